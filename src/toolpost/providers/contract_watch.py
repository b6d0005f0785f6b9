"""Compares the tools of servers with their promised definition: in the lock, else their pin.

A pin is the definition that was seen first; it is written for each tool that the lock does not name. A tool that differs is
judged (`contracts.compatibility`): on the event loop it is only compared, the judgement is made in a thread or, if it may take
long, in a process. Until it is done the status is pending. `quarantine` decides the consequences of a status.

Of pins only digests are in memory (`pinned_names`); the definition of one that differs is read from the store.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import anyio
import anyio.to_thread
import msgspec

from toolpost.base import Json, JsonObject, PluginName, ToolName, event
from toolpost.base.log_limit import TOOL_LINES, LogLimit
from toolpost.contracts.compatibility import Definition, Judgement, Verdict, is_quick, judge
from toolpost.contracts.compatibility.definition import is_skill_name, is_tool_name
from toolpost.contracts.contract import Contract
from toolpost.contracts.findings import DefinitionScan, Finding, NameIndex, scan_definition
from toolpost.contracts.lockfile import LockedTools, is_same_promise
from toolpost.providers.pinned_names import NAMES_LIMIT, Pin, PinnedNames
from toolpost.store.known_tools import Pins
from toolpost.upstreams.lists import Slices, are_same

_log = logging.getLogger("toolpost.contracts")

Mode = Literal["observe", "enforce"]

SHOWN_RULES: Final = 10

RETRY_S: Final = 5.0
"""After how long pins are written or read again, if the store was unavailable."""

Promise = Literal["lock", "pin"]


@dataclass(frozen=True, kw_only=True)
class ContractStatus:
    """The differences of a tool from its pin or lock."""

    promise: Promise
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
            "findings": [finding.kind.value for finding in self.findings],
        }


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """A tool as it was promised, and as it is now."""

    server: PluginName
    promise: Promise
    old: Definition
    new: Definition


@dataclass(frozen=True, kw_only=True)
class _PairVerdict:
    """The judgement on a change, and the scans of both definitions: findings also depend on the names of other tools."""

    judgement: Judgement
    old: DefinitionScan
    new: DefinitionScan


@dataclass(kw_only=True)
class _Unsaved:
    """Changes of the pins of a server that the store does not have yet."""

    fresh: dict[ToolName, Definition] = field(default_factory=dict)
    dropped: set[ToolName] = field(default_factory=set)
    seen: set[ToolName] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True)
class CheckedTools:
    """The tools of a listing, compared with their promises."""

    statuses: dict[ToolName, ContractStatus] = field(default_factory=dict)
    """The tools that differ."""
    left_out: frozenset[ToolName] = frozenset()
    """Tools with new names, of a server that renames its tools too often."""


class ContractWatch:
    """The promises of the tools of all servers. `run` must be running, which judges changes and saves pins."""

    def __init__(
        self,
        *,
        pins: Pins,
        locked: LockedTools | None,
        mode: Mode,
        names: Callable[[], Awaitable[NameIndex]],
        judge_slowly: Callable[[PluginName, Definition, Definition], Awaitable[Judgement]],
    ) -> None:
        """Take pins and lock; `judge_slowly` makes the judgements that may take long, outside this process.

        `names` returns the names of all tools, since a change may imitate that of another server.
        """
        self.mode: Mode = mode
        """What happens to a tool that differs, unless the settings of its server say otherwise."""
        self.names = names
        self._judge_slowly = judge_slowly
        self._locked = locked
        self._pins = pins
        self._pinned: dict[PluginName, PinnedNames] = {}
        self._unsaved: dict[PluginName, _Unsaved] = {}
        self._saving: dict[PluginName, _Unsaved] = {}
        """What is being written to the store."""
        self._save_lock = anyio.Lock()
        self._unread: set[PluginName] = set()
        """Servers with changed tools whose pins could not be read."""
        # By server too: where callers have credentials of their own, a tool is listed under one name for each of them.
        self._unjudged: dict[tuple[PluginName, ToolName], _Pair] = {}
        self._judged: dict[PluginName, dict[ToolName, tuple[_Pair, _PairVerdict]]] = {}
        self._requested = anyio.Event()
        self._settled = anyio.Event()
        self._is_judging = False
        self._changed_lines = LogLimit(lines=TOOL_LINES)

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
        await self._pins.trim(server, NAMES_LIMIT)
        found = await self._pins.measure(server, _measure_pin)
        slices = Slices()
        for name, pin in found.items():
            if not isinstance(pin, Pin):
                event(_log, logging.WARNING, "pin not readable", server=server, tool=name, reason=pin)
            await slices.give_way()
        readable = {ToolName(name): pin for name, pin in found.items() if isinstance(pin, Pin)}
        fresh = {name: Pin.of(definition) for name, definition in self._list_fresh(server).items()}
        # All at once: a server that runs may be listing its tools.
        self._drop(server, self._pinned.setdefault(server, PinnedNames()).replace(readable | fresh))

    def forget(self, server: PluginName) -> None:
        """Remove the pins of a server from memory, once they are saved."""
        self._pinned.pop(server, None)
        self._judged.pop(server, None)

    def find_problem(self, server: PluginName) -> str | None:
        """Return why tools of a server are or were left out, within the last hour; None if none were."""
        pinned = self._pinned.get(server)
        return pinned.problem if pinned is not None else None

    async def check_all(self, server: PluginName, contracts: Mapping[ToolName, Contract]) -> CheckedTools:
        """Compare all tools of a listing with their promises, and pin those without; too many new names are left out."""
        slices = Slices()
        definitions: dict[ToolName, Definition] = {}
        pins: dict[ToolName, Pin] = {}
        for name, contract in contracts.items():
            definitions[name] = Definition.from_contract(contract)
            pins[name] = Pin.of(definitions[name])
            await slices.give_way()
        pinned = self._pinned.setdefault(server, PinnedNames())
        if gone := pinned.begin_listing(definitions):
            self._unsaved_of(server).seen.update(gone)
            self._requested.set()
        for name in self._judged.get(server, {}).keys() - definitions.keys():
            # Instructions and skills are listed apart: without a verdict, each comparison would judge a changed one again.
            if is_tool_name(name):
                del self._judged[server][name]
        olds = await self._find_olds(server, pins)
        new = {name: pin for name, pin in pins.items() if pinned.get(name) is None and not self._has_lock_of(name)}
        taken = self._take_new(server, new)
        for name in taken:
            self._pin(server, name, definitions[name], pins[name])
            await slices.give_way()
        statuses: dict[ToolName, ContractStatus] = {}
        for name, (promise, old) in olds.items():
            if (status := await self._compare(server, promise, old, definitions[name])) is not None:
                statuses[name] = status
            await slices.give_way()
        return CheckedTools(statuses=statuses, left_out=frozenset(new.keys() - set(taken)))

    def begin_skills(self, server: PluginName, skills: Collection[ToolName]) -> None:
        """Forget the verdicts on skills that a server lists no longer."""
        judged = self._judged.get(server, {})
        for name in [name for name in judged if is_skill_name(name) and name not in skills]:
            del judged[name]

    async def check(self, server: PluginName, contract: Contract) -> ContractStatus | None:
        """Return how a tool differs from its promise; None if it does not. A tool without a promise is pinned."""
        return await self.check_definition(server, Definition.from_contract(contract))

    async def check_definition(self, server: PluginName, new: Definition) -> ContractStatus | None:
        """The same for a definition, such as that of a server's instructions."""
        name, pin = ToolName(new.name), Pin.of(new)
        pinned = self._pinned.setdefault(server, PinnedNames())
        pinned.note_seen(name)
        for promise, old in (await self._find_olds(server, {name: pin})).values():
            return await self._compare(server, promise, old, new)
        if pinned.get(name) is None:
            self._pin(server, name, new, pin)
        return None

    def may_hold(self, server: PluginName, skill: Definition) -> bool:
        """Whether a skill is locked or pinned, or may be pinned: one with a new name is not, if its server renames too much."""
        name, pinned = ToolName(skill.name), self._pinned.setdefault(server, PinnedNames())
        if self._has_lock_of(name) or pinned.get(name) is not None:
            return True
        was_degraded = pinned.problem is not None
        is_selected = pinned.select_skill(name, Pin.of(skill))
        self._tell_degraded(server, was_degraded=was_degraded)
        return is_selected

    async def _compare(
        self, server: PluginName, promise: Promise, old: Definition | None, new: Definition
    ) -> ContractStatus | None:
        if old is None:
            # Its pin cannot be read now: it differs, and is judged later.
            return ContractStatus(promise=promise, promised=new, judgement=None)
        is_promise_kept = is_same_promise(old, new)
        if is_promise_kept and old.meta == new.meta:
            return None
        verdict = self._verdict(ToolName(new.name), _Pair(server=server, promise=promise, old=old, new=new))
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

    async def run(self, on_judged: Callable[[PluginName], Awaitable[None]]) -> None:
        """Judge changes and save pins, until cancelled.

        `on_judged` is called when changes of a server were judged, so that `check` returns their judgement.
        """
        while True:
            with anyio.move_on_after(RETRY_S if self._unsaved or self._unread else math.inf) as waited:
                await self._requested.wait()
            self._requested = anyio.Event()
            self._is_judging = True
            servers = await self._judge_all()
            if waited.cancelled_caught:
                servers |= self._unread
                self._unread.clear()
            for server in servers:
                await on_judged(server)
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
        """Write new pins to the store; a failure is logged, and they are written again later."""
        # One at a time: the last save of a process waits for one that is being cancelled, and writes what that has left.
        async with self._save_lock:
            while self._unsaved:
                server, changes = self._unsaved.popitem()
                self._saving[server] = changes
                try:
                    written = await _write_all(changes.fresh)
                    await self._pins.add(server, written, drop=changes.dropped, seen=changes.seen)
                except BaseException as error:
                    self._unsaved[server] = _merge(changes, self._unsaved.get(server))
                    if not isinstance(error, Exception):
                        raise  # Cancelled: written by the save at the end of the process.
                    event(_log, logging.WARNING, "tools not pinned", server=server, reason=str(error))
                    return
                finally:
                    del self._saving[server]
                if not changes.fresh:
                    continue
                event(
                    _log,
                    logging.INFO,
                    "tools seen for the first time, and pinned",
                    server=server,
                    tools=len(changes.fresh),
                    hint="not in the lock" if self.has_lock else "there is no lock; run `toolpost lock` to create one",
                )

    def _has_lock_of(self, name: ToolName) -> bool:
        return self._locked is not None and name in self._locked

    def _unsaved_of(self, server: PluginName) -> _Unsaved:
        return self._unsaved.setdefault(server, _Unsaved())

    def _list_fresh(self, server: PluginName) -> dict[ToolName, Definition]:
        """Return the pins that the store may not have yet."""
        found: dict[ToolName, Definition] = {}
        for unsaved in (self._saving, self._unsaved):
            if (changes := unsaved.get(server)) is not None:
                found |= changes.fresh
        return found

    def _take_new(self, server: PluginName, new: Mapping[ToolName, Pin]) -> Sequence[ToolName]:
        pinned = self._pinned[server]
        was_degraded = pinned.problem is not None
        taken = pinned.select_new(new)
        self._tell_degraded(server, was_degraded=was_degraded)
        return taken

    def _tell_degraded(self, server: PluginName, *, was_degraded: bool) -> None:
        problem = self._pinned[server].problem
        if problem is not None and not was_degraded:
            hint = "if that is intended, `toolpost lock` accepts what it has now"
            event(_log, logging.WARNING, "server is degraded", server=server, reason=problem, hint=hint)

    async def _find_olds(
        self, server: PluginName, pins: Mapping[ToolName, Pin]
    ) -> dict[ToolName, tuple[Promise, Definition | None]]:
        """Return what was promised of the tools that may differ from it; None for a pin that cannot be read now.

        Another gateway of the same store may have dropped a pin that this one has: it is forgotten.
        """
        found: dict[ToolName, tuple[Promise, Definition | None]] = {}
        unread: list[ToolName] = []
        fresh, judged, pinned = self._list_fresh(server), self._judged.get(server, {}), self._pinned[server]
        for name, pin in pins.items():
            if self._locked is not None and (locked := self._locked.get(name)) is not None:
                found[name] = "lock", locked.definition
            elif (known := pinned.get(name)) is None or known == pin:
                continue
            elif (definition := fresh.get(name)) is not None:
                found[name] = "pin", definition
            elif (pair := judged.get(name)) is not None and pair[0].promise == "pin":
                found[name] = "pin", pair[0].old
            else:
                unread.append(name)
        if unread:
            found |= await self._read_pins(server, unread)
        return found

    async def _read_pins(
        self, server: PluginName, names: Sequence[ToolName]
    ) -> dict[ToolName, tuple[Promise, Definition | None]]:
        olds, slices = dict[ToolName, Definition](), Slices()
        try:
            found = await self._pins.of_server(server, names)
            for name, written in found.items():
                olds[ToolName(name)] = Definition.from_json(written)
                await slices.give_way()
        except Exception as error:  # noqa: BLE001 (the tools count as changed until the store can be read)
            event(_log, logging.WARNING, "pins could not be read", server=server, reason=str(error))
            self._unread.add(server)
            self._requested.set()
            return dict.fromkeys(names, ("pin", None))
        for name in names:
            if name not in olds:
                self._pinned[server].remove(name)
        return {name: ("pin", old) for name, old in olds.items()}

    def _pin(self, server: PluginName, name: ToolName, definition: Definition, pin: Pin) -> None:
        self._unsaved_of(server).fresh[name] = definition
        self._drop(server, self._pinned[server].add(name, pin))
        self._requested.set()

    def _drop(self, server: PluginName, names: Sequence[ToolName]) -> None:
        """Drop pins for which there is no more room."""
        for name in names:
            unsaved = self._unsaved_of(server)
            if unsaved.fresh.pop(name, None) is None:
                unsaved.dropped.add(name)
            self._judged.get(server, {}).pop(name, None)
            self._unjudged.pop((server, name), None)
        if names:
            self._requested.set()

    def _verdict(self, name: ToolName, pair: _Pair) -> _PairVerdict | None:
        known = self._judged.get(pair.server, {}).get(name)
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
            self._judged.setdefault(pair.server, {})[name] = pair, _PairVerdict(judgement=judgement, old=old, new=new)
            findings = (await self.names()).inspect_change(old, new)
            servers.add(pair.server)
            if not (count := self._changed_lines.take(pair.server)):
                continue
            event(
                _log,
                logging.INFO if judgement.verdict is Verdict.COMPATIBLE and not findings else logging.WARNING,
                "tool changed",
                server=pair.server,
                tool=name,
                verdict=judgement.verdict.value,
                rules=[change.rule for change in judgement.changes][:SHOWN_RULES],
                findings=[finding.summary for finding in findings],
                tools=count if count > 1 else None,
            )
        return servers


async def _write_all(tools: dict[ToolName, Definition]) -> dict[str, Json]:
    written: dict[str, Json] = {}
    slices = Slices()
    for name, tool in tools.items():
        written[name] = tool.to_json()
        await slices.give_way()
    return written


def _merge(before: _Unsaved, after: _Unsaved | None) -> _Unsaved:
    """Return what is unsaved after a save failed, during which more has changed."""
    if after is None:
        return before
    fresh = {name: one for name, one in before.fresh.items() if name not in after.dropped}
    return _Unsaved(fresh=fresh | after.fresh, dropped=before.dropped | after.dropped, seen=before.seen | after.seen)


def _measure_pin(written: Json) -> Pin | str:
    """Return a pin in the store, or why it cannot be read."""
    try:
        return Pin.of(Definition.from_json(written))
    except msgspec.ValidationError as error:
        return str(error)


def _judge_if_quick(pair: _Pair) -> tuple[Judgement | None, DefinitionScan, DefinitionScan]:
    judgement = judge(pair.old, pair.new) if is_quick(pair.old, pair.new) else None
    return judgement, scan_definition(pair.old), scan_definition(pair.new, since=pair.old)
