"""Compares the tools of servers with what they promised: their definition in the lock, else their pin.

A pin is the definition that was seen first; it is written for each tool that the lock does not name. A tool that differs is
judged (`contracts.compatibility`): on the event loop it is only compared, the judgement is made in a thread or, if it may take
long, in a process. Until it is done the status is pending. What follows from a status is decided in `servers`.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import anyio
import anyio.to_thread
import msgspec

from toolpost.base.events import event
from toolpost.base.ids import Json, JsonObject, PluginName, ToolName
from toolpost.contracts.compatibility import Definition, Judgement, Verdict, is_quick, judge
from toolpost.contracts.contract import Contract
from toolpost.contracts.findings import DefinitionScan, Finding, NameIndex, scan_definition
from toolpost.contracts.lockfile import LockedTools, is_same_promise
from toolpost.store import Pins
from toolpost.upstreams.lists import Slices, are_same

_log = logging.getLogger("toolpost.contracts")

Mode = Literal["observe", "enforce"]

SHOWN_RULES: Final = 10


@dataclass(frozen=True, kw_only=True)
class ContractStatus:
    """How a tool differs from what it promised."""

    promise: Literal["lock", "pin"]
    """Where the promise is written: in the lock file, or in the store since the tool was first seen."""
    promised: Definition
    judgement: Judgement | None
    """What changed; None while the judgement is pending."""
    findings: Sequence[Finding] = ()
    """Findings that the change added."""

    @property
    def since(self) -> str:
        """`locked` or `first seen`, for messages."""
        return "locked" if self.promise == "lock" else "first seen"

    @property
    def is_harmless(self) -> bool:
        """Whether the change is compatible and added no findings."""
        is_compatible = self.judgement is not None and self.judgement.verdict is Verdict.COMPATIBLE
        return is_compatible and not self.findings

    def as_object(self) -> JsonObject:
        judgement = self.judgement
        return {
            "promise": self.promise,
            "verdict": judgement.verdict.value if judgement is not None else "pending",
            "rules": [change.rule for change in judgement.changes][:SHOWN_RULES] if judgement is not None else [],
            "suspicions": [finding.kind.value for finding in self.findings],
        }


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """A tool as it was promised, and as it is now."""

    server: PluginName
    old: Definition
    new: Definition


@dataclass(frozen=True, kw_only=True)
class _PairVerdict:
    """The judgement on a change, and the scans of both definitions: findings also depend on the names of other tools."""

    judgement: Judgement
    old: DefinitionScan
    new: DefinitionScan


async def _ignore(_server: PluginName) -> None:
    pass


async def _no_names() -> NameIndex:
    return NameIndex()


class Promises:
    """The promises of the tools of all servers. `run` must be running, which judges changes and saves pins."""

    def __init__(
        self,
        *,
        pins: Pins,
        locked: LockedTools | None = None,
        on_judged: Callable[[PluginName], Awaitable[None]] = _ignore,
        judge_slowly: Callable[[PluginName, Definition, Definition], Awaitable[Judgement]],
    ) -> None:
        """Take pins and lock; `judge_slowly` makes the judgements that may take long, outside this process."""
        self.on_judged = on_judged
        """Called when changes of a server were judged, so that `check` returns their judgement."""
        self.names: Callable[[], Awaitable[NameIndex]] = _no_names
        """Returns the names of all tools, since a change may imitate that of another server."""
        self._judge_slowly = judge_slowly
        self._locked = locked
        self._pins = pins
        self._pinned: dict[PluginName, dict[ToolName, Definition]] = {}
        self._fresh: dict[PluginName, dict[ToolName, Definition]] = {}
        # By server too: where callers have credentials of their own, a tool is listed under one name for each of them.
        self._unjudged: dict[tuple[PluginName, ToolName], _Pair] = {}
        self._judged: dict[tuple[PluginName, ToolName], tuple[_Pair, _PairVerdict]] = {}
        self._requested = anyio.Event()
        self._settled = anyio.Event()
        self._is_judging = False

    @property
    def has_lock(self) -> bool:
        return self._locked is not None

    async def relock(self, locked: LockedTools | None) -> bool:
        """Replace the lock; returns whether it differs, and then every tool has to be checked again."""
        before, self._locked = self._locked, locked
        if before is None or locked is None or before.keys() != locked.keys():
            return before is not locked
        return not await are_same([*before.values()], [locked[name] for name in before])

    async def recall(self, server: PluginName) -> None:
        """Load the pins of a server from the store; must be called before its tools are checked."""
        found: dict[ToolName, Definition] = {}
        slices = Slices()
        for name, written in (await self._pins.of_server(server)).items():
            try:
                found[ToolName(name)] = Definition.from_json(written)
            except msgspec.ValidationError as error:
                event(_log, logging.WARNING, "pin not readable", server=server, tool=name, reason=str(error))
            await slices.give_way()
        self._pinned[server] = found

    async def check(self, server: PluginName, contract: Contract) -> ContractStatus | None:
        """Return how a tool differs from its promise; None if it does not. A tool without a promise is pinned."""
        return await self.check_definition(server, Definition.from_contract(contract))

    async def check_definition(self, server: PluginName, new: Definition) -> ContractStatus | None:
        """The same for a definition, such as that of a server's instructions."""
        name = ToolName(new.name)
        promised = self._find_promise(server, name)
        if promised is None:
            self._pin(server, name, new)
            return None
        promise, old = promised
        is_promise_kept = is_same_promise(old, new)
        if is_promise_kept and old.meta == new.meta:
            return None
        verdict = self._verdict(name, _Pair(server=server, old=old, new=new))
        if verdict is None:
            return ContractStatus(promise=promise, promised=old, judgement=None)
        brought = (await self.names()).inspect_change(verdict.old, verdict.new)
        if is_promise_kept and not brought:
            return None
        return ContractStatus(promise=promise, promised=old, judgement=verdict.judgement, findings=brought)

    def is_locked(self, definition: Definition) -> bool:
        """Whether the lock has this definition, so that a person has accepted it."""
        locked = self._locked.get(definition.name) if self._locked is not None else None
        return locked is not None and is_same_promise(locked.definition, definition)

    async def run(self) -> None:
        while True:
            await self._requested.wait()
            self._requested = anyio.Event()
            self._is_judging = True
            for server in await self._judge_all():
                await self.on_judged(server)
            self._is_judging = False
            self._settled.set()
            self._settled = anyio.Event()
            await self.save()

    async def settle(self, limit_s: float) -> None:
        """Wait until no judgement is pending, for `limit_s` at most."""
        with anyio.move_on_after(limit_s):
            while self._unjudged or self._is_judging:
                await self._settled.wait()

    async def save(self) -> None:
        """Write new pins to the store; a failure is logged."""
        while self._fresh:
            server, tools = self._fresh.popitem()
            try:
                await self._pins.add(server, await _write_all(tools))
            except anyio.get_cancelled_exc_class():
                # Kept for the save at the end of the process.
                self._fresh[server] = tools | self._fresh.get(server, {})
                raise
            except Exception as error:  # noqa: BLE001 (the pins are in force until this process ends)
                event(_log, logging.WARNING, "tools not pinned", server=server, reason=str(error))
                continue
            event(
                _log,
                logging.INFO,
                "tools seen for the first time, and pinned",
                server=server,
                tools=len(tools),
                hint="not in the lock" if self.has_lock else "there is no lock; run `toolpost lock` to create one",
            )

    def _find_promise(self, server: PluginName, name: ToolName) -> tuple[Literal["lock", "pin"], Definition] | None:
        if self._locked is not None and (locked := self._locked.get(name)) is not None:
            return "lock", locked.definition
        pinned = self._pinned.get(server, {}).get(name)
        return None if pinned is None else ("pin", pinned)

    def _pin(self, server: PluginName, name: ToolName, definition: Definition) -> None:
        for kept in (self._pinned, self._fresh):
            kept.setdefault(server, {})[name] = definition
        self._requested.set()

    def _verdict(self, name: ToolName, pair: _Pair) -> _PairVerdict | None:
        known = self._judged.get((pair.server, name))
        if known is not None and known[0] == pair:
            return known[1]
        self._unjudged[pair.server, name] = pair
        self._requested.set()
        return None

    async def _judge_all(self) -> set[PluginName]:
        servers = set()
        while self._unjudged:
            (_, name), pair = self._unjudged.popitem()
            judgement, old, new = await anyio.to_thread.run_sync(_judge_if_quick, pair)
            if judgement is None:
                judgement = await self._judge_slowly(pair.server, pair.old, pair.new)
            self._judged[pair.server, name] = pair, _PairVerdict(judgement=judgement, old=old, new=new)
            findings = (await self.names()).inspect_change(old, new)
            servers.add(pair.server)
            event(
                _log,
                logging.INFO if judgement.verdict is Verdict.COMPATIBLE and not findings else logging.WARNING,
                "tool changed",
                server=pair.server,
                tool=name,
                verdict=judgement.verdict.value,
                rules=[change.rule for change in judgement.changes][:SHOWN_RULES],
                suspicions=[finding.summary for finding in findings],
            )
        return servers


async def _write_all(tools: dict[ToolName, Definition]) -> dict[str, Json]:
    written: dict[str, Json] = {}
    slices = Slices()
    for name, tool in tools.items():
        written[name] = tool.to_json()
        await slices.give_way()
    return written


def _judge_if_quick(pair: _Pair) -> tuple[Judgement | None, DefinitionScan, DefinitionScan]:
    judgement = judge(pair.old, pair.new) if is_quick(pair.old, pair.new) else None
    return judgement, scan_definition(pair.old), scan_definition(pair.new, since=pair.old)
