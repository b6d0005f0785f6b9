"""What the tools of servers are held to: the lock, and where that names none, what was seen first."""

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
from toolpost.contracts.drift import is_same
from toolpost.contracts.findings import Look, Names, Suspicion, look_at
from toolpost.contracts.lockfile import Tools
from toolpost.store import Pins
from toolpost.upstreams.lists import Slices, are_same

_log = logging.getLogger("toolpost.contracts")

Mode = Literal["observe", "enforce"]

SHOWN_RULES: Final = 10


@dataclass(frozen=True, kw_only=True)
class ContractStatus:
    """How a tool stands to what it promised."""

    promise: Literal["lock", "pin"]
    """Where the promise is written: in the lock, or in the store since the tool was first seen."""
    promised: Definition
    judgement: Judgement | None
    """What changed; None while it is being judged."""
    suspicions: Sequence[Suspicion] = ()
    """What the change brought that may be meant for the model."""

    @property
    def since(self) -> str:
        """Say since when it is held to that: `locked` or `first seen`."""
        return "locked" if self.promise == "lock" else "first seen"

    @property
    def is_harmless(self) -> bool:
        """Whether no caller notices, and nobody has to look."""
        is_compatible = self.judgement is not None and self.judgement.verdict is Verdict.COMPATIBLE
        return is_compatible and not self.suspicions

    def as_object(self) -> JsonObject:
        """Say it in JSON."""
        judgement = self.judgement
        return {
            "promise": self.promise,
            "verdict": judgement.verdict.value if judgement is not None else "pending",
            "rules": [change.rule for change in judgement.changes][:SHOWN_RULES] if judgement is not None else [],
            "suspicions": [suspicion.kind.value for suspicion in self.suspicions],
        }


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """A tool as it was promised and as it is."""

    server: PluginName
    old: Definition
    new: Definition


@dataclass(frozen=True, kw_only=True)
class _PairVerdict:
    """What a change means, and what it takes to see it beside the tools that there will be."""

    judgement: Judgement
    old: Look
    new: Look


async def _ignore(_server: PluginName) -> None:
    pass


async def _no_names() -> Names:
    return Names()


class Promises:
    """The promises of all servers, and the judge who compares. `run` must be running."""

    def __init__(
        self,
        *,
        pins: Pins,
        locked: Tools | None = None,
        on_judged: Callable[[PluginName], Awaitable[None]] = _ignore,
        judge_slowly: Callable[[PluginName, Definition, Definition], Awaitable[Judgement]],
    ) -> None:
        """Take pins and lock; `judge_slowly` judges what is not quickly judged, where that holds up nobody."""
        self.on_judged = on_judged
        """Told when a server's tools can be looked at again."""
        self.names: Callable[[], Awaitable[Names]] = _no_names
        """Gives the names of all tools, since a change may bring another server's."""
        self._judge_slowly = judge_slowly
        self._locked = locked
        self._pins = pins
        self._pinned: dict[PluginName, dict[ToolName, Definition]] = {}
        self._fresh: dict[PluginName, dict[ToolName, Definition]] = {}
        self._unjudged: dict[ToolName, _Pair] = {}
        self._judged: dict[ToolName, tuple[_Pair, _PairVerdict]] = {}
        self._asked = anyio.Event()
        self._settled = anyio.Event()
        self._is_judging = False

    @property
    def has_lock(self) -> bool:
        """Whether there is a lock; without one, what is seen first is trusted."""
        return self._locked is not None

    async def relock(self, locked: Tools | None) -> bool:
        """Hold tools to another lock from now on, and say whether it is another; whoever looks again finds it."""
        before, self._locked = self._locked, locked
        if before is None or locked is None or before.keys() != locked.keys():
            return before is not locked
        return not await are_same([*before.values()], [locked[name] for name in before])

    async def recall(self, server: PluginName) -> None:
        """Read what was pinned of a server at an earlier start. To be called before its tools are looked at."""
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
        """Say how a tool stands to its promise; None if it is what it was, or has made none until now."""
        new = Definition.from_contract(contract)
        promised = self._find_promise(server, contract.name)
        if promised is None:
            self._pin(server, contract.name, new)
            return None
        promise, old = promised
        is_promise_kept = is_same(old, new)
        if is_promise_kept and old.meta == new.meta:
            return None
        verdict = self._verdict(contract.name, _Pair(server=server, old=old, new=new))
        if verdict is None:
            return ContractStatus(promise=promise, promised=old, judgement=None)
        brought = (await self.names()).find_new(verdict.old, verdict.new)
        if is_promise_kept and not brought:
            return None
        return ContractStatus(promise=promise, promised=old, judgement=verdict.judgement, suspicions=brought)

    async def run(self) -> None:
        """Judge and pin what comes, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked = anyio.Event()
            self._is_judging = True
            for server in await self._judge_all():
                await self.on_judged(server)
            self._is_judging = False
            self._settled.set()
            self._settled = anyio.Event()
            await self.save()

    async def settle(self, limit_s: float) -> None:
        """Wait until everything is judged, but no longer than this."""
        with anyio.move_on_after(limit_s):
            while self._unjudged or self._is_judging:
                await self._settled.wait()

    async def save(self) -> None:
        """Keep what was seen first, for the next start."""
        while self._fresh:
            server, tools = self._fresh.popitem()
            try:
                await self._pins.add(server, await _write_all(tools))
            except anyio.get_cancelled_exc_class():
                # The last save, at the end of the process, does it.
                self._fresh[server] = tools | self._fresh.get(server, {})
                raise
            except Exception as error:  # noqa: BLE001 (held all the same, until this process ends)
                event(_log, logging.WARNING, "tools not pinned", server=server, reason=str(error))
                continue
            event(
                _log,
                logging.INFO,
                "tools seen for the first time, and pinned",
                server=server,
                tools=len(tools),
                hint="not in the lock" if self.has_lock else "there is no lock; `toolpost lock` writes one",
            )

    def _find_promise(self, server: PluginName, name: ToolName) -> tuple[Literal["lock", "pin"], Definition] | None:
        if self._locked is not None and (locked := self._locked.get(name)) is not None:
            return "lock", locked.definition
        pinned = self._pinned.get(server, {}).get(name)
        return None if pinned is None else ("pin", pinned)

    def _pin(self, server: PluginName, name: ToolName, definition: Definition) -> None:
        for kept in (self._pinned, self._fresh):
            kept.setdefault(server, {})[name] = definition
        self._asked.set()

    def _verdict(self, name: ToolName, pair: _Pair) -> _PairVerdict | None:
        known = self._judged.get(name)
        if known is not None and known[0] == pair:
            return known[1]
        self._unjudged[name] = pair
        self._asked.set()
        return None

    async def _judge_pair(self, pair: _Pair) -> _PairVerdict:
        judgement, old, new = await anyio.to_thread.run_sync(_judge_if_quick, pair)
        if judgement is None:
            judgement = await self._judge_slowly(pair.server, pair.old, pair.new)
        return _PairVerdict(judgement=judgement, old=old, new=new)

    async def _judge_all(self) -> set[PluginName]:
        servers = set()
        while self._unjudged:
            name, pair = self._unjudged.popitem()
            # It may take its whole budget: calls go on meanwhile.
            verdict = await self._judge_pair(pair)
            self._judged[name] = pair, verdict
            judgement, suspicions = verdict.judgement, (await self.names()).find_new(verdict.old, verdict.new)
            servers.add(pair.server)
            event(
                _log,
                logging.INFO if judgement.verdict is Verdict.COMPATIBLE and not suspicions else logging.WARNING,
                "tool changed",
                server=pair.server,
                tool=name,
                verdict=judgement.verdict.value,
                rules=[change.rule for change in judgement.changes][:SHOWN_RULES],
                suspicions=[suspicion.told for suspicion in suspicions],
            )
        return servers


async def _write_all(tools: dict[ToolName, Definition]) -> dict[str, Json]:
    written: dict[str, Json] = {}
    slices = Slices()
    for name, tool in tools.items():
        written[name] = tool.to_json()
        await slices.give_way()
    return written


def _judge_if_quick(pair: _Pair) -> tuple[Judgement | None, Look, Look]:
    judgement = judge(pair.old, pair.new) if is_quick(pair.old, pair.new) else None
    return judgement, look_at(pair.old), look_at(pair.new, since=pair.old)
