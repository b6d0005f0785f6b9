"""Groups of servers: a tool that they have in common is listed once, and one of them answers its calls.

The group is a provider of its own, beside its servers. What a server has alone stays with the server. Which tools are common,
and which server answers, is decided by the part that contributes the group.

Example: with `ToolGroup(name="wiki", servers=("eu", "us"), …)`, `wiki__search` is listed in place of `eu__search` and
`us__search`, which still answer as its former names.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import msgspec

from toolpost.authoring.context import Context
from toolpost.base.events import event
from toolpost.base.ids import JsonObject, PluginName
from toolpost.contracts.contract import Contract
from toolpost.discovery.views import FilteredProvider, is_complete, tags_of
from toolpost.protocol.rpc import Resumption
from toolpost.providers import ProvidedTool, Provider, RawResult
from toolpost.providers.input_required import is_input_required

T = TypeVar("T")

_log = logging.getLogger("toolpost.groups")

MARK: Final = "|"
"""Between the name of a server, which contains none, and its own state of a call that asks for input."""


class Choose(Protocol):
    """Runs tools of a `JoinedTool`, one after another, and returns the result of one of them."""

    async def __call__(self, run: Callable[[ProvidedTool], Awaitable[T]], asking: ProvidedTool | None, /) -> T:
        """Return what `run` returns; it raises the error of the tool, a `ToolpostError`.

        `asking` is the tool that has asked for input, where the call brings the answers: no other tool can use them.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class JoinedTool:
    """A tool of a group, and the tools that it stands for."""

    contract: Contract
    runs: Sequence[ProvidedTool]
    choose: Choose


@dataclass(frozen=True, kw_only=True)
class ToolGroup:
    """Lists tools that several servers have in common once, under the name of a group. Each runs as a call of its own."""

    name: PluginName
    servers: Sequence[str]
    join: Callable[[Sequence[ProvidedTool], Sequence[ProvidedTool]], Sequence[JoinedTool]]
    """Takes the tools of the servers, and those in quarantine. Called whenever they change, perhaps in a thread."""


CallNested = Callable[[ProvidedTool, JsonObject, Context, Resumption | None], Awaitable[RawResult]]
"""Runs a tool within the call of another (`Gateway.call_nested`)."""


def add_groups(
    groups: Iterable[ToolGroup], providers: Sequence[Provider], call_nested: CallNested
) -> Sequence[Provider]:
    """Return the providers with common tools moved from servers to their groups."""
    found = {provider.name: provider for provider in providers}
    for group in groups:
        if group.name in found:
            # Servers of this name are refused when the settings are read; plugins are known only now.
            event(_log, logging.WARNING, "group has the name of a plugin, and is left out", group=group.name)
            continue
        members = [found[PluginName(server)] for server in group.servers if server in found]
        joined = group.join(
            [tool for member in members for tool in member.tools.values()],
            [tool for member in members for tool in member.quarantined.values()],
        )
        if not joined:
            continue
        found[group.name] = FilteredProvider(
            name=group.name,
            tools={each.contract.name: _provide(group.name, each, call_nested) for each in joined},
            quarantined={},
            tags=frozenset.intersection(*map(tags_of, members)),
            description=" ".join(member.description for member in members),
        )
        moved = {tool.contract.name for each in joined for tool in each.runs}
        for member in members:
            found[member.name] = FilteredProvider(
                name=member.name,
                tools={name: tool for name, tool in member.tools.items() if name not in moved},
                quarantined=member.quarantined,
                tags=tags_of(member),
                refused=member.refused,
                description=member.description,
                is_complete=is_complete(member),
            )
    return list(found.values())


def _provide(group: PluginName, joined: JoinedTool, call_nested: CallNested) -> ProvidedTool:
    async def invoke(arguments: JsonObject, context: Context) -> RawResult:
        asking, resumption = _find_asking(joined.runs, context.resumption)

        async def run(tool: ProvidedTool) -> RawResult:
            result = await call_nested(tool, arguments, context, resumption)
            return RawResult(upstream_fields=_mark_state(result.upstream_fields or {}, tool.provider), results="off")

        return await joined.choose(run, asking)

    return ProvidedTool(contract=joined.contract, provider=group, invoke=invoke, runs=tuple(joined.runs))


def _find_asking(
    tools: Sequence[ProvidedTool], resumption: Resumption | None
) -> tuple[ProvidedTool | None, Resumption | None]:
    """Return the tool that has asked for input, and the answers for it; None, and the answers as they are, for any other call."""
    server, mark, state = (resumption.state or "").partition(MARK) if resumption is not None else ("", "", "")
    asking = next((tool for tool in tools if tool.provider == server), None) if mark else None
    if resumption is None or asking is None:
        return None, resumption
    return asking, Resumption(responses=resumption.responses, state=state or None)


def _mark_state(fields: Mapping[str, msgspec.Raw], server: str) -> Mapping[str, msgspec.Raw]:
    """Remember which server asks for input, in the state that the client sends back."""
    if not is_input_required(fields):
        return fields
    state = msgspec.json.decode(fields["requestState"], type=str) if "requestState" in fields else ""
    return {**fields, "requestState": msgspec.Raw(msgspec.json.encode(f"{server}{MARK}{state}"))}
