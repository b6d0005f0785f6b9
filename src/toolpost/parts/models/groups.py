"""`[groups.NAME]`: the tools that several servers have in common become one tool, `NAME__tool`, which outlives a server.

A tool is common if every server of the group whose tools are known has it, under the same name and with the same schemas, or has
it quarantined. It is listed once; its former names, `server__tool`, still answer. What a server has alone stays as it is.

A call goes to the first server whose circuit is closed, through the whole gateway: middleware, approvals and the audit see the
server's own tool. It goes to the next server only if the first cannot have seen the call, or if the tool may be called twice:
because its servers say so (`readOnlyHint`, `idempotentHint`), or the settings.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from toolpost import QueueOverloaded, ToolpostError, UpstreamUnavailable
from toolpost.authoring.context import Context
from toolpost.base import JsonObject, PluginName, ToolName, event, steady_s
from toolpost.contracts import NAME_LIMIT, BadConfiguration, Contract, InvalidResult, ToolTimedOut
from toolpost.discovery.views import FilteredProvider, tags_of
from toolpost.gateway import Gateway
from toolpost.middleware import ProgressNotification, ProvidedTool, is_input_required
from toolpost.parts.models.breaker import FAILURES, Breaker, CircuitPass
from toolpost.parts.models.settings import GroupSettings
from toolpost.parts.models.stats import ModelAttempt, Stats
from toolpost.protocol.rpc import Resumption
from toolpost.providers import Provider, RawResult

_log = logging.getLogger("toolpost.models")

MARK: Final = "|"
"""Between the name of a server, which contains none, and its own state of a call that asks for input."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """A server's tool among the common ones, and the circuit of its server."""

    server: str
    tool: ProvidedTool
    breaker: Breaker
    key: str
    """Its name among candidates: `group/server`."""


@dataclass(kw_only=True)
class Groups:
    """All groups of a gateway."""

    settings: Mapping[str, GroupSettings]
    stats: Stats
    find_gateway: Callable[[], Gateway]
    """Returns the gateway, once tools can be called."""
    clock: Callable[[], float] = steady_s
    breakers: dict[str, Breaker] = field(init=False)

    def __post_init__(self) -> None:
        self.breakers = {
            f"{name}/{server}": Breaker(self.clock, limit=FAILURES)
            for name, group in self.settings.items()
            for server in group.servers
        }

    def derive(self, providers: Sequence[Provider]) -> Sequence[Provider]:
        """Return the providers with common tools moved from servers to their groups."""
        found = {str(provider.name): provider for provider in providers}
        for name, group in self.settings.items():
            members = [found[server] for server in group.servers if server in found]
            if name in found:
                # Servers of this name are refused when the settings are read; plugins are known only now.
                event(_log, logging.WARNING, "group has the name of a plugin, and is left out", group=name)
                continue
            tools, moved = self._join(name, group, members)
            if not tools:
                continue
            tags = frozenset.intersection(*map(tags_of, members)) if group.tags is None else frozenset(group.tags)
            found[name] = FilteredProvider(
                name=PluginName(name),
                tools=tools,
                quarantined={},
                tags=tags,
                description=" ".join(member.description for member in members),
            )
            for member in members:
                rest = {key: tool for key, tool in found[member.name].tools.items() if key not in moved}
                found[member.name] = FilteredProvider(
                    name=member.name,
                    tools=rest,
                    quarantined=member.quarantined,
                    tags=tags_of(member),
                    description=member.description,
                )
        return list(found.values())

    def _join(
        self, name: str, group: GroupSettings, members: Sequence[Provider]
    ) -> tuple[dict[ToolName, ProvidedTool], set[ToolName]]:
        """Return the tools of a group, and the names of the servers' tools that they stand for."""
        by_server = {
            str(member.name): {tool.contract.terms.name: tool for tool in member.tools.values()}
            for member in members
            # A server that never started has none yet, and must not take them from the others.
            if member.tools
        }
        quarantined = [
            (str(member.name), tool.contract.terms.name) for member in members for tool in member.quarantined.values()
        ]
        tools: dict[ToolName, ProvidedTool] = {}
        moved: set[ToolName] = set()
        # The definition of the first server that has a tool counts.
        every = {own: tool for theirs in reversed(by_server.values()) for own, tool in theirs.items()}
        for own, tool in every.items():
            # A server whose tool is quarantined is passed over, and does not take the tool from the group.
            needed = sum((server, own) not in quarantined for server in by_server)
            same = [
                Member(
                    server=server,
                    tool=theirs[own],
                    breaker=self.breakers[f"{name}/{server}"],
                    key=f"{name}/{server}",
                )
                for server, theirs in by_server.items()
                if own in theirs and _has_same_schemas(theirs[own].contract, tool.contract)
            ]
            joined = ToolName(f"{name}__{own}")
            if len(same) < needed or len(joined) > NAME_LIMIT:
                continue
            moved.update(member.tool.contract.name for member in same)
            contract = replace(
                tool.contract,
                name=joined,
                aliases=tuple(member.tool.contract.name for member in same),
                # Each server has its own time limit, one after another.
                timeout_s=sum(member.tool.contract.timeout_s for member in same),
            )
            may_repeat = own in group.idempotent or all(_is_repeatable(member.tool.contract) for member in same)
            failover = _Failover(self, joined, same, may_repeat=may_repeat)
            tools[joined] = ProvidedTool(
                contract=contract,
                provider=PluginName(name),
                invoke=failover.invoke,
                runs=tuple(member.tool for member in same),
            )
        return tools, moved


class _Failover:
    """One tool of a group."""

    def __init__(self, groups: Groups, name: ToolName, members: Sequence[Member], *, may_repeat: bool) -> None:
        self._groups = groups
        self._name = name
        self._members = members
        self._may_repeat = may_repeat

    async def invoke(self, arguments: JsonObject, context: Context) -> RawResult:
        """Call the tool of one server after another, until one answers or no other may be tried."""
        members, resumption = self._resume(context.resumption)
        last: ToolpostError | None = None
        for member in members:
            if (attempt := member.breaker.enter()) is None:
                continue
            try:
                return await self._call(member, attempt, arguments, context, resumption)
            except (UpstreamUnavailable, ToolTimedOut, InvalidResult, QueueOverloaded) as error:
                last = error
                # Otherwise the server may have seen the call: a second one would act twice.
                was_not_sent = isinstance(error, UpstreamUnavailable) and not error.was_sent
                if not (self._may_repeat or was_not_sent or isinstance(error, QueueOverloaded)):
                    raise
                event(_log, logging.WARNING, "server of a group failed", tool=self._name, server=member.server)
        if last is not None:
            raise last
        retry_s = min(member.breaker.report.retry_s for member in members)
        raise UpstreamUnavailable(
            f"No server of `{self._name}` is available.",
            hint=f"try again in {retry_s:.0f} s; `router_fallback` shows their circuits",
            retryAfterMs=round(retry_s * 1000),
        )

    async def _call(
        self,
        member: Member,
        attempt: CircuitPass,
        arguments: JsonObject,
        context: Context,
        resumption: Resumption | None,
    ) -> RawResult:
        """Call one server's tool through the gateway, and count how that ended."""
        groups = self._groups
        gateway = groups.find_gateway()
        started = groups.clock()
        is_success = False

        def relay(progress: ProgressNotification) -> None:
            context.progress(progress.progress, progress.total, progress.message)

        try:
            answer = await gateway.call(
                gateway.admit(
                    caller=context.caller,
                    name=member.tool.contract.name,
                    arguments=arguments,
                    trace_id=context.trace_id,
                    on_progress=relay if context.wants_progress else None,
                    meta=context.meta,
                    client_channel=context.client_channel,
                    resumption=resumption,
                    tool=member.tool,
                )
            )
            error = answer.error
            # An error of the caller, or the server's own refusal, is an answer.
            is_success = not isinstance(error, UpstreamUnavailable | ToolTimedOut | InvalidResult | QueueOverloaded)
        except BaseException:
            attempt.abandon()
            raise
        if is_success:
            attempt.note_success()
        elif isinstance(error, QueueOverloaded):
            # Our own queue was full, which says nothing about the server.
            attempt.abandon()
        else:
            attempt.note_failure()
        groups.stats.record(ModelAttempt(name=member.key, is_success=is_success, seconds=groups.clock() - started))
        if error is not None:
            raise error
        return RawResult(upstream_fields=_mark_state(answer.upstream_fields or {}, member.server), results="off")

    def _resume(self, resumption: Resumption | None) -> tuple[Sequence[Member], Resumption | None]:
        """Return who may be called; answers to a server's requests for input go to that server alone."""
        server, mark, state = (resumption.state or "").partition(MARK) if resumption is not None else ("", "", "")
        asking = [member for member in self._members if member.server == server]
        if resumption is None or not mark or not asking:
            return self._members, resumption
        return asking, Resumption(responses=resumption.responses, state=state or None)


def check_names(settings: Mapping[str, GroupSettings], servers: Mapping[str, object]) -> None:
    """Raise `BadConfiguration` for a group with the name of a server, or of servers that do not exist."""
    for name, group in settings.items():
        if name in servers:
            raise BadConfiguration(f"groups.{name}: a server has this name already.", hint="rename the group")
        for server in group.servers:
            if server not in servers:
                raise BadConfiguration(f"groups.{name}: there is no server `{server}`.", hint=f"add [servers.{server}]")


def _mark_state(fields: Mapping[str, msgspec.Raw], server: str) -> Mapping[str, msgspec.Raw]:
    """Remember which server asks for input, in the state that the client sends back."""
    if not is_input_required(fields):
        return fields
    state = msgspec.json.decode(fields["requestState"], type=str) if "requestState" in fields else ""
    return {**fields, "requestState": msgspec.Raw(msgspec.json.encode(f"{server}{MARK}{state}"))}


def _has_same_schemas(one: Contract, other: Contract) -> bool:
    if one.arguments_schema.raw != other.arguments_schema.raw:
        return False
    results = [contract.result_schema.raw if contract.result_schema is not None else None for contract in (one, other)]
    return results[0] == results[1]


def _is_repeatable(contract: Contract) -> bool:
    annotations = contract.definition.get("annotations")
    if not isinstance(annotations, dict):
        return False
    return annotations.get("readOnlyHint") is True or annotations.get("idempotentHint") is True
