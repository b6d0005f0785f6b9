"""Checks of definitions: changes against the lock and the pins, and text that may be addressed to the model."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from toolpost.app.tool_states import read_pinned_tools, read_recent_names
from toolpost.contracts.compatibility import Definition, Verdict, judge
from toolpost.contracts.compatibility.definition import is_tool_name
from toolpost.contracts.errors import BadLock
from toolpost.contracts.findings import NameIndex, inspect_change, inspect_definition
from toolpost.contracts.lockfile import LockedTools, is_same_promise
from toolpost.providers.pinned_names import RENAMES_LIMIT, RENAMES_S
from toolpost.settings import Config, make_concealer
from toolpost.settings.lock import read_lock
from toolpost.settings.section import credential_users
from toolpost.terminal.findings import Diagnosis, Group, problem, warning

SHOWN_RULES = 5


@dataclass(frozen=True, kw_only=True)
class _Baseline:
    """The definitions that tools are compared with."""

    locked: LockedTools
    pinned: LockedTools
    names: NameIndex

    def of(self, name: str) -> tuple[Definition | None, str]:
        """Return a tool's locked, else pinned definition, and which it is; (None, "") for an unknown tool."""
        for tools, since in ((self.locked, "locked"), (self.pinned, "first seen")):
            if (found := tools.get(name)) is not None:
                return found.definition, since
        return None, ""


async def with_contracts(groups: Sequence[Group], config: Config) -> list[Group]:
    """Add the findings about changed and suspicious definitions to each group."""
    pinned = await read_pinned_tools(config)
    recent = await read_recent_names(config, RENAMES_S)
    locked, broken = _read_lock(config)
    seen = [tool.name for group in groups for tool in group.definitions]
    baseline = _Baseline(locked=locked, pinned=pinned, names=NameIndex([*seen, *locked, *pinned]))
    shown = [
        replace(
            group,
            findings=(
                *group.findings,
                *_find_renaming(group, recent.get(group.name, ())),
                *_findings(group, config, baseline),
            ),
        )
        for group in groups
    ]
    if broken is not None and shown:
        shown[0] = replace(shown[0], findings=(*shown[0].findings, broken))
    return shown


def _read_lock(config: Config) -> tuple[LockedTools, Diagnosis | None]:
    try:
        return read_lock(config.lock_path) or {}, None
    except BadLock as error:
        return {}, problem("lock", error)


def _find_renaming(group: Group, recent: Collection[str]) -> Iterator[Diagnosis]:
    """Warn of a server that keeps renaming its tools; `recent` are the names that it first listed within the last hour."""
    if group.kind != "server" or not group.definitions:
        return
    gone = set(recent) - {tool.name for tool in group.definitions}
    if len(gone) >= RENAMES_LIMIT // 2:
        yield warning(
            "renaming",
            f"degraded: it keeps renaming its tools; {len(gone):,} names that were new within the last hour are gone",
            hint=f"the gateway takes {RENAMES_LIMIT:,} names in an hour that come in place of others, and leaves out the rest;"
            " `toolpost lock` accepts the tools that it has now",
        )


def _findings(group: Group, config: Config, baseline: _Baseline) -> Iterator[Diagnosis]:
    # Of servers and APIs: their definitions are the text of others.
    user = credential_users(config).get(group.name)
    is_enforced = user is not None and (user.settings.contracts or config.contracts) == "enforce"
    is_server = group.kind == "server" and group.name in config.servers
    conceal = make_concealer(config.resolve_server(group.name)) if is_server and group.definitions else str
    for tool in group.definitions:
        own = tool.name.removeprefix(f"{group.name}__")
        old, since = baseline.of(tool.name)
        if old is not None and (not is_same_promise(old, tool) or inspect_change(old, tool, baseline.names)):
            yield replace(_describe_change(old, tool, since, baseline.names, is_enforced=is_enforced), tool=own)
        # The text of a plugin is as trusted as its code, which the operator installed.
        for found in inspect_definition(tool, baseline.names) if user is not None else ():
            finding = warning(
                "suspicious",
                f"{found.kind.value}: {found.message}",
                hint="read the text before a model does; exclude the tool with `deny`"
                if is_tool_name(tool.name)
                else f"models are not shown it before `toolpost lock --accept {tool.name}`",
            )
            yield replace(finding, tool=own, place=found.place, lines=(conceal(found.excerpt),))


def _describe_change(old: Definition, new: Definition, since: str, names: NameIndex, *, is_enforced: bool) -> Diagnosis:
    judgement = judge(old, new)
    is_harmless = judgement.verdict is Verdict.COMPATIBLE and not inspect_change(old, new, names)
    rules = ", ".join([change.rule for change in judgement.changes][:SHOWN_RULES])
    message = f"changed since it was {since}: {judgement.verdict.value} ({rules})"
    hint = f"`toolpost diff` explains the change, `toolpost lock --accept {new.name}` accepts it"
    if is_enforced and not is_harmless:
        return problem("contract-changed", f"{message}; it is quarantined", hint=hint)
    return warning("contract-changed", message, hint=hint)
