"""`[groups.NAME]`: the tools that several servers have in common become one tool, `NAME__tool`, which outlives a server.

A tool is common if every server of the group whose tools are known has it, under the same name and with the same schemas, or has
it quarantined. It is listed once; its former names, `server__tool`, still answer. What a server has alone stays as it is.

A call goes to the first server whose circuit is closed, through the whole gateway: middleware, approvals and the audit see the
server's own tool. It goes to the next server only if the first cannot have seen the call, or if the tool may be called twice:
because its servers say so (`readOnlyHint`, `idempotentHint`), or the settings.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from toolpost import QueueOverloaded, ToolpostError, UpstreamUnavailable
from toolpost.base import PluginName, ToolName, event, steady_s
from toolpost.contracts import NAME_LIMIT, BadConfiguration, Contract, InvalidResult, ToolTimedOut
from toolpost.middleware import ProvidedTool
from toolpost.parts import JoinedTool, ToolGroup
from toolpost.parts.models.breaker import FAILURES, Breaker, CircuitPass
from toolpost.parts.models.settings import GroupSettings
from toolpost.parts.models.stats import ModelAttempt, Stats

T = TypeVar("T")

_log = logging.getLogger("toolpost.models")


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
    clock: Callable[[], float] = steady_s
    breakers: dict[str, Breaker] = field(init=False)

    def __post_init__(self) -> None:
        self.breakers = {
            f"{name}/{server}": Breaker(self.clock, limit=FAILURES)
            for name, group in self.settings.items()
            for server in group.servers
        }

    def make(self) -> list[ToolGroup]:
        """Return the groups as contributions."""
        return [
            ToolGroup(
                name=PluginName(name),
                servers=group.servers,
                join=partial(self._join, name, group),
            )
            for name, group in self.settings.items()
        ]

    def _join(
        self, name: str, group: GroupSettings, listed: Sequence[ProvidedTool], quarantined: Sequence[ProvidedTool]
    ) -> list[JoinedTool]:
        """Return the tools of a group, made from those of its servers."""
        # A server that never started has no tools yet, is not among these, and so takes none from the others.
        by_server: dict[str, dict[str, ProvidedTool]] = {}
        for tool in listed:
            by_server.setdefault(tool.provider, {})[tool.contract.terms.name] = tool
        held = {(str(tool.provider), tool.contract.terms.name) for tool in quarantined}
        joined: list[JoinedTool] = []
        # The definition of the first server that has a tool counts.
        every = {own: tool for theirs in reversed(by_server.values()) for own, tool in theirs.items()}
        for own, tool in every.items():
            # A server whose tool is quarantined is passed over, and does not take the tool from the group.
            needed = sum((server, own) not in held for server in by_server)
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
            full_name = ToolName(f"{name}__{own}")
            if len(same) < needed or len(full_name) > NAME_LIMIT:
                continue
            contract = replace(
                tool.contract,
                name=full_name,
                aliases=tuple(member.tool.contract.name for member in same),
                # Each server has its own time limit, one after another.
                timeout_s=sum(member.tool.contract.timeout_s for member in same),
            )
            may_repeat = own in group.idempotent or all(_is_repeatable(member.tool.contract) for member in same)
            joined.append(
                JoinedTool(
                    contract=contract,
                    runs=[member.tool for member in same],
                    choose=Failover(self, full_name, same, may_repeat=may_repeat),
                )
            )
        return joined


class Failover:
    """Chooses the server that answers a call of one tool of a group."""

    def __init__(self, groups: Groups, name: ToolName, members: Sequence[Member], *, may_repeat: bool) -> None:
        self._groups = groups
        self._name = name
        self._members = members
        self._may_repeat = may_repeat

    async def __call__(self, run: Callable[[ProvidedTool], Awaitable[T]], asking: ProvidedTool | None, /) -> T:
        """Run the tool of one server after another, until one answers or no other may be tried."""
        members = [member for member in self._members if asking is None or member.tool is asking]
        last: ToolpostError | None = None
        for member in members:
            if (attempt := member.breaker.enter()) is None:
                continue
            try:
                return await self._run(member, attempt, run)
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

    async def _run(self, member: Member, attempt: CircuitPass, run: Callable[[ProvidedTool], Awaitable[T]]) -> T:
        """Run one server's tool, and count how that ended."""
        started = self._groups.clock()
        try:
            result = await run(member.tool)
        except QueueOverloaded:
            # Our own queue was full, which says nothing about the server.
            attempt.abandon()
            self._record(member, started, is_success=False)
            raise
        except (UpstreamUnavailable, ToolTimedOut, InvalidResult):
            attempt.note_failure()
            self._record(member, started, is_success=False)
            raise
        except ToolpostError:
            # An error of the caller, or the server's own refusal, is an answer.
            attempt.note_success()
            self._record(member, started, is_success=True)
            raise
        except BaseException:
            attempt.abandon()
            raise
        attempt.note_success()
        self._record(member, started, is_success=True)
        return result

    def _record(self, member: Member, started: float, *, is_success: bool) -> None:
        seconds = self._groups.clock() - started
        self._groups.stats.record(ModelAttempt(name=member.key, is_success=is_success, seconds=seconds))


def check_names(settings: Mapping[str, GroupSettings], servers: Mapping[str, object]) -> None:
    """Raise `BadConfiguration` for a group with the name of a server, or of servers that do not exist."""
    for name, group in settings.items():
        if name in servers:
            raise BadConfiguration(f"groups.{name}: a server has this name already.", hint="rename the group")
        for server in group.servers:
            if server not in servers:
                raise BadConfiguration(f"groups.{name}: there is no server `{server}`.", hint=f"add [servers.{server}]")


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
