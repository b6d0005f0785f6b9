"""Whether tools still are what they promised, and what in them may be meant for the model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from toolpost.cli.doctor.findings import Finding, Group, problem, warning
from toolpost.cli.lock.pins import pinned_tools
from toolpost.contracts.compatibility import Definition, Verdict, judge
from toolpost.contracts.errors import BadLock
from toolpost.contracts.findings import NameIndex, inspect_change, inspect_definition
from toolpost.contracts.lockfile import LockedTools, is_same_promise
from toolpost.settings import Config
from toolpost.settings.lock import read_lock
from toolpost.settings.masking import concealing

SHOWN_RULES = 5


@dataclass(frozen=True, kw_only=True)
class _Promised:
    """What the tools are held to."""

    locked: LockedTools
    pinned: LockedTools
    names: NameIndex

    def of(self, name: str) -> tuple[Definition | None, str]:
        """Return what a tool promised, and since when; None if it has promised nothing."""
        for tools, since in ((self.locked, "locked"), (self.pinned, "first seen")):
            if (found := tools.get(name)) is not None:
                return found.definition, since
        return None, ""


async def with_contracts(groups: Sequence[Group], config: Config) -> list[Group]:
    """Hold every tool that was seen against the lock and the pins, and look at its words."""
    pinned = await pinned_tools(config)
    locked, broken = _locked(config)
    seen = [tool.name for group in groups for tool in group.definitions]
    promised = _Promised(locked=locked, pinned=pinned, names=NameIndex([*seen, *locked, *pinned]))
    shown = [replace(group, findings=(*group.findings, *_findings(group, config, promised))) for group in groups]
    if broken is not None and shown:
        shown[0] = replace(shown[0], findings=(*shown[0].findings, broken))
    return shown


def _locked(config: Config) -> tuple[LockedTools, Finding | None]:
    try:
        return read_lock(config.lock_path) or {}, None
    except BadLock as error:
        return {}, problem("lock", error)


def _findings(group: Group, config: Config, promised: _Promised) -> Iterator[Finding]:
    server = config.servers.get(group.name) if group.kind == "server" else None
    is_enforced = server is not None and (server.contracts or config.contracts) == "enforce"
    conceal = concealing(config.resolve_server(group.name)) if server is not None and group.definitions else str
    for tool in group.definitions:
        own = tool.name.removeprefix(f"{group.name}__")
        old, since = promised.of(tool.name)
        if old is not None and (not is_same_promise(old, tool) or inspect_change(old, tool, promised.names)):
            yield replace(_changed(old, tool, since, promised.names, is_enforced=is_enforced), tool=own)
        # What a plugin says is in the hands of whoever installed its code.
        for found in inspect_definition(tool, promised.names) if group.kind == "server" else ():
            told = warning(
                "suspicious",
                f"{found.kind.value}: {found.message}",
                hint="read the words before a model does; `deny` leaves a tool out",
            )
            yield replace(told, tool=own, place=found.place, lines=(conceal(found.excerpt),))


def _changed(old: Definition, new: Definition, since: str, names: NameIndex, *, is_enforced: bool) -> Finding:
    judgement = judge(old, new)
    is_harmless = judgement.verdict is Verdict.COMPATIBLE and not inspect_change(old, new, names)
    rules = ", ".join([change.rule for change in judgement.changes][:SHOWN_RULES])
    told = f"no longer as it was {since}: {judgement.verdict.value} ({rules})"
    hint = f"`toolpost diff` explains it, `toolpost lock --accept {new.name}` takes it over"
    if is_enforced and not is_harmless:
        return problem("contract-changed", f"{told}; it is quarantined", hint=hint)
    return warning("contract-changed", told, hint=hint)
