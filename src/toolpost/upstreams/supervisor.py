"""One server and its instances: started when needed, kept while used, backed off when they fail, never left behind."""

import asyncio
import logging
import time
from typing import Final, Protocol

import anyio
from anyio.abc import TaskGroup, TaskStatus

from toolpost.contracts.errors import QueueOverloaded, ToolpostError, UpstreamUnavailable
from toolpost.contracts.events import event
from toolpost.contracts.ids import JsonObject
from toolpost.upstreams import backoff
from toolpost.upstreams import instance as instances
from toolpost.upstreams.backoff import Backoff
from toolpost.upstreams.changes import LIST_CHANGED, Changes
from toolpost.upstreams.greeting import fetch_tools
from toolpost.upstreams.instance import Instance, now
from toolpost.upstreams.life import Manner, live
from toolpost.upstreams.peer import Peer
from toolpost.upstreams.report import ServerReport, ServerState
from toolpost.upstreams.spec import ServerSpec
from toolpost.upstreams.wire import Notice, ServerRefused, WireLost

_log = logging.getLogger("toolpost.upstreams")

SHORT_LIFE_S: Final = 5.0
"""A server that dies younger than this without having been used would do so again."""

OBEY_S: Final = 0.5
DEAF_S: Final = 2.0
"""How long a server may take to heed a cancellation, and how long after that to show that it still listens."""

INSTANCES_LIMIT: Final = 100
"""How many sessions may have a server of their own at the same time."""

_UNKNOWN: Final = frozenset({-32602, -32601})
"""What a server answers for a tool that it does not have, or no longer has in this form."""


class OnTools(Protocol):
    """Takes a server's tools."""

    def __call__(self, definitions: list[JsonObject], /) -> None:
        """Take them, as they came."""
        ...


class Supervisor:
    """Keeps one server. `run` must be running; everything else may be called from any task."""

    def __init__(self, spec: ServerSpec, *, on_tools: OnTools) -> None:
        self.spec = spec
        self.learn = on_tools
        self._instances: dict[str, Instance] = {}
        self._leaving: set[Instance] = set()
        self._one_left = anyio.Event()
        self._tasks: TaskGroup | None = None
        self._turn = anyio.Lock()
        self._backoff = Backoff()
        self._manner = Manner(is_sse=spec.transport == "sse", probes=spec.transport != "sse")
        self._changes = Changes(spec.name, self._relist)
        self._starts = 0
        self._is_stopped = False
        self._last_error: str | None = None
        self._last_hint: str | None = None
        self._last_words: tuple[str, ...] = ()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own every task of this server, until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            task_status.started()
            await self._changes.follow()

    # What is asked of the server

    async def request(
        self,
        method: str,
        fields: bytes = b"",
        *,
        key: str = "",
        name: str | None = None,
        meta: JsonObject | None = None,
        on_notice: Notice | None = None,
    ) -> bytes:
        """Ask the server, starting it if need be; a request that it cannot have seen is tried once more."""
        if self.spec.strategy == "singleton":
            async with self._turn:
                return await self._asked(method, fields, "", name, meta, on_notice)
        return await self._asked(method, fields, self._key_of(key), name, meta, on_notice)

    async def _asked(
        self, method: str, fields: bytes, key: str, name: str | None, meta: JsonObject | None, on_notice: Notice | None
    ) -> bytes:
        for attempt in (1, 2):
            instance = await self._ready(key)
            began = now()
            assert instance.wire is not None
            with instance.used():
                try:
                    return await instance.wire.request(method, fields, meta=meta, name=name, on_notice=on_notice)
                except WireLost as lost:
                    self.retire(instance, lost.message)
                    if lost.was_sent or attempt == 2:
                        raise self._broken(instance, lost) from lost
                except UpstreamUnavailable as error:
                    raise self._broken(instance, error) from error
                except ServerRefused as refusal:
                    if refusal.code in _UNKNOWN:
                        self._changes.tell()
                    raise
                except asyncio.CancelledError:
                    self._after_giving_up(instance, began)
                    raise
        raise AssertionError("two attempts end above")

    async def ensure_ready(self) -> None:
        """Start the server if it is not running: for `min_ready`, and to learn its tools."""
        await self._ready("")

    # What is asked of the supervisor

    def start(self) -> None:
        """Let a stopped or suspended server be started again."""
        self._is_stopped = False
        self._backoff.forget()

    def stop(self) -> None:
        """End the server and start it no more until somebody says so; calls in flight keep their answers."""
        self._is_stopped = True
        self._retire_all("it was stopped")

    def restart(self) -> None:
        """End what runs and let it be started again; calls in flight keep their answers."""
        self.start()
        self._retire_all("it was restarted")

    def report(self) -> ServerReport:
        """Say how the server is doing. Looks at every process of it: `state` alone is quicker."""
        known = [*self._instances.values(), *self._leaving]
        greeting = next((i.greeting for i in known if i.greeting), None)
        memory = [size for i in known if (size := i.memory_bytes) is not None]
        return ServerReport(
            name=self.spec.name,
            state=self.state,
            transport="stdio" if self.spec.command else "sse" if self._manner.is_sse else "http",
            version=greeting.version if greeting else None,
            pids=tuple(i.pid for i in known if i.pid is not None),
            memory_bytes=sum(memory) if memory else None,
            in_flight=sum(i.in_flight for i in known),
            restarts=max(0, self._starts - 1),
            last_error=self._last_error,
            last_words=next((i.last_words for i in known if i.last_words), self._last_words),
            oddities=sum(i.wire.oddities for i in known if isinstance(i.wire, Peer)),
        )

    @property
    def state(self) -> ServerState:
        """How the server is doing, in a word."""
        running = self._instances.values()
        if any(i.ready_at and i.in_flight for i in running):
            return ServerState.BUSY
        if any(i.ready_at for i in running):
            return ServerState.READY
        if running:
            return ServerState.STARTING
        if any(i.in_flight for i in self._leaving):
            return ServerState.DRAINING
        if self._backoff.is_suspended:
            return ServerState.SUSPENDED
        return ServerState.FAILED if self._backoff.failures and not self._is_stopped else ServerState.STOPPED

    # Instances come

    def _key_of(self, key: str) -> str:
        return key if self.spec.strategy == "per_session" else ""

    async def _ready(self, key: str) -> Instance:
        """Return an instance that can be used: the one of this key, the spare one, or a new one."""
        while True:
            instance = self._instances.get(key) or self._adopted(key) or await self._begun(key)
            if not instance.settled.is_set():
                await instance.settled.wait()
            if instance.failure is not None:
                raise self._unavailable(instance.failure.message, hint=instance.failure.hint, instance=instance)
            if not instance.stopping.is_set():
                return instance

    def _adopted(self, key: str) -> Instance | None:
        """Give a session the instance that was started for nobody: no session has used it."""
        spare = self._instances.pop("", None)
        if spare is not None:
            spare.key = key
            self._instances[key] = spare
        return spare

    async def _begun(self, key: str) -> Instance:
        while self.spec.strategy == "singleton" and self._leaving:
            # One process at a time: its files and ports are free when the one before is gone.
            await self._one_left.wait()
        if (begun := self._instances.get(key)) is not None:
            return begun
        self._check_startable()
        assert self._tasks is not None, "the supervisor is not running"
        instance = self._instances[key] = Instance(key=key)
        self._tasks.start_soon(self._live, instance)
        return instance

    def _check_startable(self) -> None:
        command = f"`toolpost servers start {self.spec.name}`"
        if self._is_stopped:
            raise self._unavailable("it was stopped", hint=f"{command} starts it")
        if self._backoff.is_suspended:
            reason = f"it failed {backoff.FAILURES_LIMIT} times in a row, and was given up; the last time: "
            raise self._unavailable(f"{reason}{self._last_error}", hint=f"put it right, then {command} tries again")
        if (wait_s := self._backoff.wait_s) > 0:
            hint = f"{self._last_hint}; " if self._last_hint else ""
            raise self._unavailable(f"{self._last_error}", hint=f"{hint}it may be started again in {wait_s:.1f} s")
        if len(self._instances) >= INSTANCES_LIMIT:
            self._make_room()

    def _make_room(self) -> None:
        idle = [i for i in self._instances.values() if i.ready_at and not i.in_flight]
        if not idle:
            raise QueueOverloaded(
                f"The server `{self.spec.name}` serves {INSTANCES_LIMIT} sessions already.",
                hint="try again in a moment",
                limit=INSTANCES_LIMIT,
            )
        self.retire(min(idle, key=lambda i: i.used_at), "others need the room")

    async def _live(self, instance: Instance) -> None:
        self._starts += 1
        try:
            await live(instance, self.spec, self._manner, self)
        finally:
            self._forget(instance)

    def note_ready(self, instance: Instance, manner: Manner) -> None:
        """Let whoever waits use it."""
        self._manner = manner
        instance.settled.set()
        event(_log, logging.INFO, "server ready", server=self.spec.name, pid=instance.pid)

    def note_failure(self, instance: Instance, error: BaseException) -> None:
        """Tell whoever waits, and hold off the next start."""
        if instance.settled.is_set():
            return
        is_late = instance.starting.cancel_called and not instance.stopping.is_set()
        if isinstance(error, asyncio.CancelledError) and not is_late:
            return  # Stopped: `_forget` says so.
        reason = f"it did not get ready within {instances.START_LIMIT_S:g} s" if is_late else _told(error)
        self._last_words = instance.last_words
        self._last_error = _with_words(reason, self._last_words)
        self._last_hint = _hint_of(error)
        self._backoff.note_failure(began_at=instance.began_at)
        instance.failure = UpstreamUnavailable(self._last_error, hint=self._last_hint)
        instance.settled.set()
        self._set_aside(instance)
        event(_log, logging.WARNING, "server failed to start", server=self.spec.name, reason=self._last_error)

    # Instances go

    def may_leave(self, instance: Instance) -> bool:
        """Whether an instance has been idle for long enough, and is not one that is to be kept."""
        is_idle = time.monotonic() - instance.used_at >= self.spec.idle_s
        return is_idle and len(self._instances) > self.spec.min_ready

    def retire(self, instance: Instance, reason: str) -> None:
        """Give it no more calls, and end it when those it has are answered."""
        if instance.stopping.is_set() or instance.is_over:
            return
        self._set_aside(instance)
        instance.stop()
        if instance.is_lost:
            self._note_loss(instance, reason)
        event(_log, logging.INFO, "server leaves", server=self.spec.name, pid=instance.pid, reason=reason)

    def _set_aside(self, instance: Instance) -> None:
        if self._instances.get(instance.key) is instance:
            del self._instances[instance.key]
        self._leaving.add(instance)

    def _note_loss(self, instance: Instance, reason: str) -> None:
        """Remember why a process went; one that dies young and idle would do so again, and is held off."""
        self._last_words = instance.last_words
        self._last_error = _with_words(reason, self._last_words)
        self._last_hint = None
        is_young = instance.ready_at is not None and time.monotonic() - instance.ready_at < SHORT_LIFE_S
        if is_young and not instance.has_served:
            self._backoff.note_failure(began_at=instance.began_at)

    def _retire_all(self, reason: str) -> None:
        for instance in tuple(self._instances.values()):
            self.retire(instance, reason)

    def _forget(self, instance: Instance) -> None:
        instance.is_over = True
        self._set_aside(instance)
        self._leaving.discard(instance)
        if not instance.settled.is_set():
            instance.failure = UpstreamUnavailable("it was stopped while it started")
            instance.settled.set()
        self._one_left.set()
        self._one_left = anyio.Event()

    def _after_giving_up(self, instance: Instance, began: float) -> None:
        if self._tasks is not None and instance.process is not None and not instance.stopping.is_set():
            self._tasks.start_soon(self._see_it_obey, instance, began)

    async def _see_it_obey(self, instance: Instance, began: float) -> None:
        """End a server that goes on with a call nobody waits for, as soon as no other call would be harmed."""
        await anyio.sleep(OBEY_S)
        if instance.stopping.is_set():
            return
        if instance.has_children_since(began) or not await instance.answers(DEAF_S):
            event(_log, logging.WARNING, "server ignores cancellation", server=self.spec.name, pid=instance.pid)
            self._last_error = "it went on with a call that was cancelled"
            self.retire(instance, self._last_error)

    # What the server says by itself

    def take_notice(self, method: str, _params: bytes) -> None:
        """Hear a notification that belongs to no call."""
        if method == LIST_CHANGED:
            self._changes.tell()

    async def _relist(self) -> None:
        instance = next((i for i in self._instances.values() if i.ready_at), None)
        if instance is not None and instance.wire is not None and instance.greeting is not None:
            with anyio.fail_after(instances.START_LIMIT_S):
                self.learn(await fetch_tools(instance.wire, instance.greeting))

    # How it is told

    def _broken(self, instance: Instance, error: UpstreamUnavailable) -> UpstreamUnavailable:
        """Make the error of a call whose server broke under it."""
        self._last_error = _with_words(error.message, instance.last_words if instance.is_lost else ())
        return self._unavailable(self._last_error, hint=error.hint, instance=instance)

    def _unavailable(
        self, reason: str, *, hint: str | None = None, instance: Instance | None = None
    ) -> UpstreamUnavailable:
        words = instance.last_words if instance else self._last_words
        return UpstreamUnavailable(
            f"The server `{self.spec.name}` is not available: {reason}",
            hint=hint or "the next call starts it again, if it can be",
            stderr="\n".join(words[-10:]) or None,
            server=self.spec.name,
        )


def _told(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return _told(error.exceptions[0])
    if isinstance(error, ServerRefused):
        return f"it refused to be greeted: {error.message}"
    return str(error) or type(error).__name__


def _hint_of(error: BaseException) -> str | None:
    if isinstance(error, BaseExceptionGroup):
        return _hint_of(error.exceptions[0])
    return error.hint if isinstance(error, ToolpostError) else None


def _with_words(reason: str, words: tuple[str, ...]) -> str:
    return f"{reason}; it said: {words[-1][:300]}" if words else reason
