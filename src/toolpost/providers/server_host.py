"""All servers of one gateway: kept running as they ask for, their tools remembered while they are down."""

import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from toolpost.base.events import event
from toolpost.base.ids import PluginName
from toolpost.contracts.contract import Contract
from toolpost.contracts.errors import ToolpostError
from toolpost.contracts.lockfile import LockedTools
from toolpost.providers.findings import Watch
from toolpost.providers.promises import Mode, Promises
from toolpost.providers.servers import ServerSource
from toolpost.store import KnownTools
from toolpost.upstreams.notifications import News
from toolpost.upstreams.report import ServerState
from toolpost.upstreams.spec import ServerLimits, ServerSpec
from toolpost.upstreams.supervisor import Supervisor

_log = logging.getLogger("toolpost.servers")

LEARN_LIMIT_S: Final = 10.0
"""How long the start waits for servers whose tools nobody has seen yet; those that take longer are listed when they come."""

JUDGE_LIMIT_S: Final = 5.0
"""How long the start waits for tools to be judged that are not as they were promised."""

KEEP_READY_S: Final = 2.0

LEARNED_S: Final = 300.0
"""How long after a long list there may still be work with it: each tool that has changed is judged by itself."""

WAIT_TOLD_S: Final = 1.5
"""How long an opening waits before it says for whom."""


@dataclass(frozen=True, kw_only=True)
class Applied:
    """What a change of the configuration has come to, by the names of servers."""

    added: list[str]
    removed: list[str]
    restarted: list[str]
    """Reached in another way."""
    revised: list[str]
    """Held to other rules, by the same processes."""

    @property
    def is_nothing(self) -> bool:
        """Whether nothing has changed."""
        return not (self.added or self.removed or self.restarted or self.revised)


class ServerHost:
    """The servers behind one gateway."""

    def __init__(
        self,
        specs: Iterable[ServerSpec],
        limits: ServerLimits | None = None,
        *,
        known: KnownTools,
        promises: Promises,
        contracts: Mode = "observe",
        default_timeout_s: float,
        on_change: Callable[[Collection[str]], None],
        beside: Iterable[str] = (),
        on_news: Callable[[News], None] = lambda _news: None,
        learn_limit_s: float | None = None,
        on_wait: Callable[[Collection[str]], None] | None = None,
    ) -> None:
        """Tell `on_change` the names of servers whose tools are other ones now; `beside` are those of other tools.

        It is told no name when only the description of a server is another: the tools are as they were listed.

        `learn_limit_s` is how long an opening waits for servers whose tools nobody has seen; if that takes longer than a
        moment, `on_wait` is told which these are.
        """
        self._on_wait = on_wait
        self._known = known
        self._limits = limits
        self.promises = promises
        promises.on_judged = self._reconsider
        self.watch = Watch(self._all_contracts, beside=beside)
        promises.names = self.watch.find_names
        self._contracts: Mode = contracts
        self._default_timeout_s = default_timeout_s
        self._on_change = on_change
        self._on_news = on_news
        self._learn_limit_s = LEARN_LIMIT_S if learn_limit_s is None else learn_limit_s
        self._seen = anyio.Event()
        self._unsaved: set[str] = set()
        self._has_others_changed = anyio.Event()
        self._unconsidered: set[PluginName] = set()
        self._tasks: TaskGroup | None = None
        self._running: dict[Supervisor, anyio.CancelScope] = {}
        self._applying = anyio.Lock()
        self.sources = {spec.name: self._source(spec) for spec in specs}
        """By name. Changed in place, so that whoever holds it sees what is there now."""

    async def apply(self, specs: Iterable[ServerSpec]) -> "Applied":
        """Take over other specifications, all or none: a server that does not start leaves everything as it was."""
        async with self._applying:
            wanted = {spec.name: spec for spec in specs}
            staged = {name: source for name, spec in wanted.items() if (source := self._staged(spec)) is not None}
            try:
                await self._try_out(staged)
            except BaseException:
                for source in staged.values():
                    self._let_go(source)
                raise
            return self._commit(wanted, staged, await self._revise(wanted, staged))

    def _source(self, spec: ServerSpec, successor_of: ServerSource | None = None) -> ServerSource:
        return ServerSource(
            spec,
            self._limits,
            default_timeout_s=self._default_timeout_s,
            on_seen=self._note_seen,
            on_change=self._note_change,
            # Some servers put the time of day into their instructions. The index follows, and no client is told of other tools.
            on_described=lambda: self._on_change([]),
            promises=self.promises,
            contracts=self._contracts,
            on_news=self._on_news,
            successor_of=successor_of,
        )

    def _staged(self, spec: ServerSpec) -> ServerSource | None:
        """Make a source for a server that is new, or that is reached in another way; None for any other."""
        current = self.sources.get(spec.name)
        return None if current is not None and current.spec.reaches_like(spec) else self._source(spec)

    async def _try_out(self, staged: Mapping[str, ServerSource]) -> None:
        assert self._tasks is not None, "the servers are not running"
        for source in staged.values():
            await self.promises.recall(source.name)
            await self._tasks.start(self._run, source.supervisor)
        async with anyio.create_task_group() as tasks:
            for source in staged.values():
                tasks.start_soon(source.supervisor.ensure_ready)

    async def _revise(
        self, wanted: Mapping[str, ServerSpec], staged: Mapping[str, ServerSource]
    ) -> dict[str, ServerSource]:
        """Make sources that hold running servers to other rules; their processes, and the calls on them, go on."""
        revised: dict[str, ServerSource] = {}
        for name, spec in wanted.items():
            if name not in staged and (current := self.sources[name]).spec != spec:
                revised[name] = self._source(spec, successor_of=current)
                await revised[name].succeed(current)
        return revised

    def _commit(
        self,
        wanted: Mapping[str, ServerSpec],
        staged: Mapping[str, ServerSource],
        revised: Mapping[str, ServerSource],
    ) -> "Applied":
        before = dict(self.sources)
        after = {name: staged.get(name) or revised.get(name) or before[name] for name in wanted}
        for name, source in revised.items():
            source.supervisor.adopt(source.spec, on_tools=source.learn)
            if self._tasks is not None:
                # The server may have told of other tools just before it was adopted.
                self._tasks.start_soon(source.succeed, before[name])
        self.sources.clear()
        self.sources.update(after)
        for name, source in before.items():
            if after.get(name) is not source and (name not in after or name in staged):
                self._let_go(source)
            if name in staged:
                # Calls that found the tool a moment ago go to the server that has taken its place.
                source.supervisor = staged[name].supervisor
        self.watch.look()
        self._on_change([name for name in before.keys() | after.keys() if before.get(name) is not after.get(name)])
        return Applied(
            added=sorted(after.keys() - before.keys()),
            removed=sorted(before.keys() - after.keys()),
            restarted=sorted(name for name in staged if name in before),
            revised=sorted(revised),
        )

    def _let_go(self, source: ServerSource) -> None:
        """End a server for good, when the calls that it carries are answered."""
        source.supervisor.stop("it is no longer configured", hint="list the tools again")
        if self._tasks is not None:
            self._tasks.start_soon(self._end, source.supervisor)

    async def _end(self, supervisor: Supervisor) -> None:
        while supervisor.report().pids or supervisor.report().in_flight:  # noqa: ASYNC110 (rare, and nobody waits for it)
            await anyio.sleep(0.1)
        if (scope := self._running.get(supervisor)) is not None:
            scope.cancel()

    async def _run(self, supervisor: Supervisor, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        with anyio.CancelScope() as self._running[supervisor]:
            try:
                await supervisor.run(task_status=task_status)
            finally:
                del self._running[supervisor]

    @asynccontextmanager
    async def open_running(self) -> AsyncIterator[None]:
        """Run every server's supervisor; leaving ends every server."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            for source in self.sources.values():
                await tasks.start(self._run, source.supervisor)
                await self.promises.recall(source.name)
                remembered = await self._known.recall(source.name)
                # Tools of a server that cannot be reached as it is configured are not offered.
                if remembered is not None and source.spec.problem is None:
                    await source.learn(remembered.definitions, remembered.build, remembered.description)
            self._unsaved.clear()
            tasks.start_soon(self._save_seen)
            tasks.start_soon(self._reconsider_noted)
            tasks.start_soon(self.promises.run)
            tasks.start_soon(self.watch.run)
            await self._learn_missing()
            # Whoever lists the tools at once misses none that only changed harmlessly.
            await self.promises.settle(JUDGE_LIMIT_S)
            tasks.start_soon(self._keep_ready)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await self._save()
                    await self.promises.save()

    async def _learn_missing(self) -> None:
        """Start the servers whose tools nobody has seen, side by side, and wait for them a while."""
        missing = [source for source in self.sources.values() if source.definitions is None]
        async with anyio.create_task_group() as around:
            around.start_soon(self._tell_waiting, missing)
            with anyio.move_on_after(self._learn_limit_s):
                async with anyio.create_task_group() as tasks:
                    for source in missing:
                        tasks.start_soon(self._learn, source)
            around.cancel_scope.cancel()

    async def _tell_waiting(self, missing: Collection[ServerSource]) -> None:
        await anyio.sleep(WAIT_TOLD_S)
        waiting = [source.name for source in missing if source.supervisor.state is ServerState.STARTING]
        if self._on_wait is not None and waiting:
            self._on_wait(waiting)

    async def _learn(self, source: ServerSource) -> None:
        try:
            await source.supervisor.ensure_ready()
        except ToolpostError as error:
            event(_log, logging.WARNING, "server not available", server=source.name, reason=error.message)

    async def _keep_ready(self) -> None:
        """Keep warm what is to be kept warm, and go on trying those whose tools nobody has seen yet."""
        under_way: set[ServerSource] = set()
        is_first = True

        async def keep(source: ServerSource) -> None:
            with suppress(ToolpostError):  # it is in the report, and tried again when its time has come
                await (source.supervisor.keep_ready if source.spec.min_ready else source.supervisor.ensure_ready)()
            under_way.discard(source)

        async with anyio.create_task_group() as tasks:
            while True:
                for source in tuple(self.sources.values()):
                    # Those whose tools are not known have been tried a moment ago.
                    is_wanted = source.spec.min_ready or source.supervisor.is_followed
                    is_wanted = is_wanted or (source.definitions is None and not is_first)
                    if is_wanted and source not in under_way:
                        under_way.add(source)
                        # One that takes its time to start keeps no other one waiting.
                        tasks.start_soon(keep, source)
                is_first = False
                await anyio.sleep(KEEP_READY_S)

    def has_learned_many(self) -> bool:
        """Whether a long list of tools was taken over a moment ago, or is being: there are very many new objects."""
        now = time.monotonic()
        return any(now - source.learned_many_at < LEARNED_S for source in self.sources.values())

    async def relock(self, locked: LockedTools | None) -> bool:
        """Hold every tool to another lock, and say whether it is another."""
        is_another = await self.promises.relock(locked)
        for name in tuple(self.sources) if is_another else ():
            await self._reconsider(PluginName(name))
        return is_another

    async def _reconsider(self, server: PluginName) -> None:
        if (source := self.sources.get(server)) is not None:
            await source.reconsider()

    async def _reconsider_noted(self) -> None:
        """Look again at servers of which another server's tools may speak.

        Not where the change is noted: that is amid the learning of one server, and two would wait for each other.
        """
        while True:
            await self._has_others_changed.wait()
            self._has_others_changed = anyio.Event()
            while self._unconsidered:
                await self._reconsider(self._unconsidered.pop())

    def _all_contracts(self) -> dict[PluginName, list[Contract]]:
        return {source.name: source.contracts for source in self.sources.values()}

    def _note_change(self, source: ServerSource) -> None:
        self.watch.look()
        if self.sources.get(source.name) is source:
            self._on_change([source.name])
        for other in self.sources.values():
            # What changed in another's tools may be a word about these.
            if other is not source and other.standings:
                self._unconsidered.add(other.name)
                self._has_others_changed.set()

    def _note_seen(self, source: ServerSource) -> None:
        self._unsaved.add(source.name)
        self._seen.set()

    async def _save_seen(self) -> None:
        """Remember definitions for the next start, off the path of any call."""
        while True:
            await self._seen.wait()
            self._seen = anyio.Event()
            await self._save()

    async def _save(self) -> None:
        while self._unsaved:
            source = self.sources.get(self._unsaved.pop())
            if source is not None and source.definitions is not None:
                try:
                    await self._known.remember(source.name, source.definitions, source.build, source.description)
                except Exception as error:  # noqa: BLE001 (a list that is not kept costs one start, later)
                    event(_log, logging.WARNING, "tools not remembered", server=source.name, reason=str(error))
