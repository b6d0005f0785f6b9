"""One server and its lifecycle: started when needed, kept while used, backed off when it fails, never left behind."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.contracts.events import event
from toolpost.contracts.ids import JsonObject
from toolpost.upstreams.greeting import fetch_tools, greet
from toolpost.upstreams.instance import Instance, open_wire
from toolpost.upstreams.spec import ServerSpec
from toolpost.upstreams.wire import Notice, ServerRefused, WireLost

_log = logging.getLogger("toolpost.upstreams")

START_LIMIT_S: Final = 30.0
BACKOFF_FIRST_S: Final = 1.0
BACKOFF_LIMIT_S: Final = 30.0
FAILURES_LIMIT: Final = 5
SHORT_LIFE_S: Final = 5.0
PING_S: Final = 30.0
PING_LIMIT_S: Final = 5.0
DEBOUNCE_S: Final = 0.2
OBEY_S: Final = 0.5
SESSION_TTL_S: Final = 300.0


class ServerState(StrEnum):
    """How a server is doing."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    BUSY = "busy"
    DRAINING = "draining"
    FAILED = "failed"
    SUSPENDED = "suspended"


@dataclass(frozen=True, kw_only=True)
class ServerReport:
    """What `toolpost servers` shows."""

    name: str
    state: ServerState
    transport: str
    version: str | None
    pids: tuple[int, ...]
    memory_bytes: int | None
    in_flight: int
    restarts: int
    last_error: str | None
    last_words: tuple[str, ...]


class Supervisor:
    """Keeps one server. `run` must be running; everything else may be called from any task."""

    def __init__(self, spec: ServerSpec, *, on_tools: Callable[[list[JsonObject]], None]) -> None:
        self.spec = spec
        self._on_tools = on_tools
        self._instances: dict[str, Instance] = {}
        self._leaving: set[Instance] = set()
        self._tasks: TaskGroup | None = None
        self._turn = anyio.Lock()
        self._failures = 0
        self._starts = 0
        self._retry_at = 0.0
        self._is_suspended = False
        self._is_stopped = False
        self._last_error: str | None = None
        self._last_words: tuple[str, ...] = ()
        self._refreshing = False

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own every task of this server, until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            task_status.started()
            await anyio.sleep_forever()

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
            began = time.time()
            assert instance.wire is not None
            with instance.used():
                try:
                    return await instance.wire.request(method, fields, meta=meta, name=name, on_notice=on_notice)
                except WireLost as lost:
                    self._last_error = lost.message
                    instance.stop(lost.message)
                    if lost.was_sent or attempt == 2:
                        raise self._unavailable(lost.message) from lost
                except anyio.get_cancelled_exc_class():
                    self._after_giving_up(instance, began)
                    raise
        raise AssertionError("two attempts end above")

    async def ensure_ready(self) -> None:
        """Start the server if it is not running: for `min_ready`, and to learn its tools."""
        await self._ready(self._key_of(""))

    def start(self) -> None:
        """Let a stopped or suspended server be started again."""
        self._is_stopped = self._is_suspended = False
        self._failures = 0
        self._retry_at = 0.0

    def stop(self) -> None:
        """End the server and start it no more until somebody says so."""
        self._is_stopped = True
        self.restart()

    def restart(self) -> None:
        """End what runs; calls in flight keep their instance until they are answered."""
        for instance in tuple(self._instances.values()):
            self._retire(instance, "asked to restart")

    def report(self) -> ServerReport:
        """Say how the server is doing."""
        instances = [*self._instances.values(), *self._leaving]
        greeting = next((i.greeting for i in instances if i.greeting), None)
        memory = [i.memory_bytes for i in instances]
        words = next((tuple(i.process.last_words) for i in instances if i.process and i.process.last_words), None)
        return ServerReport(
            name=self.spec.name,
            state=self._state(),
            transport="stdio" if self.spec.command else self.spec.transport or "http",
            version=greeting.version if greeting else None,
            pids=tuple(i.pid for i in instances if i.pid is not None),
            memory_bytes=sum(m for m in memory if m is not None) if any(memory) else None,
            in_flight=sum(i.in_flight for i in instances),
            restarts=max(0, self._starts - 1),
            last_error=self._last_error,
            last_words=words or self._last_words,
        )

    def _state(self) -> ServerState:
        instances = self._instances.values()
        if any(i.ready_at and i.in_flight for i in instances):
            return ServerState.BUSY
        if any(i.ready_at for i in instances):
            return ServerState.READY
        if instances:
            return ServerState.STARTING
        if self._leaving:
            return ServerState.DRAINING
        if self._is_suspended:
            return ServerState.SUSPENDED
        return ServerState.FAILED if self._failures else ServerState.STOPPED

    def _key_of(self, key: str) -> str:
        return key if self.spec.strategy == "per_session" else ""

    async def _ready(self, key: str) -> Instance:
        instance = self._instances.get(key)
        if instance is None or instance.stopping.is_set():
            instance = self._begin(key)
        await instance.settled.wait()
        if instance.failure is not None:
            raise self._unavailable(str(instance.failure)) from instance.failure
        return instance

    def _begin(self, key: str) -> Instance:
        if self._is_stopped:
            raise self._unavailable("it was stopped", hint=f"`toolpost servers start {self.spec.name}` starts it")
        if self._is_suspended:
            raise self._unavailable(
                f"it failed to start {FAILURES_LIMIT} times: {self._last_error}",
                hint=f"`toolpost servers start {self.spec.name}` tries again",
            )
        wait_s = self._retry_at - time.monotonic()
        if wait_s > 0:
            raise self._unavailable(f"{self._last_error}", hint=f"the next start is in {wait_s:.0f} s")
        assert self._tasks is not None, "the supervisor is not running"
        instance = self._instances[key] = Instance(key=key)
        self._tasks.start_soon(self._live, instance)
        return instance

    async def _live(self, instance: Instance) -> None:
        """The whole life of one instance."""
        self._starts += 1
        try:
            async with open_wire(
                self.spec, instance, on_notice=self._take_notice, on_gone=instance.stop
            ) as instance.wire:
                with anyio.fail_after(START_LIMIT_S):
                    instance.greeting = await greet(instance.wire)
                    self._on_tools(await fetch_tools(instance.wire, instance.greeting))
                self._started(instance)
                await self._stay(instance)
        except Exception as error:  # noqa: BLE001 (a server may fail in any way; each is its own failure)
            self._failed(instance, error)
        finally:
            self._forget(instance)

    def _started(self, instance: Instance) -> None:
        instance.ready_at = time.monotonic()
        instance.settled.set()
        event(_log, logging.INFO, "server ready", server=self.spec.name, pid=instance.pid)

    async def _stay(self, instance: Instance) -> None:
        """Keep it until it is stopped, gone, deaf, or idle for long enough."""
        while not instance.stopping.is_set():
            with anyio.move_on_after(min(PING_S, max(0.05, self._idle_limit_s / 4))):
                await instance.stopping.wait()
            if instance.stopping.is_set():
                break
            if instance.in_flight == 0 and self._may_leave(instance):
                self._retire(instance, "idle")
            elif instance.in_flight == 0 and not await self._answers(instance):
                self._retire(instance, "it does not answer")
        self._leaving.add(instance)
        while instance.in_flight and not self._is_lost(instance):  # noqa: ASYNC110 (rare, and it may also end by a crash)
            await anyio.sleep(0.02)
        if instance.stop_reason:
            self._note_short_life(instance)

    @property
    def _idle_limit_s(self) -> float:
        return SESSION_TTL_S if self.spec.strategy == "per_session" else self.spec.idle_s

    def _may_leave(self, instance: Instance) -> bool:
        is_idle = time.monotonic() - instance.used_at > self._idle_limit_s
        return is_idle and len(self._instances) > self.spec.min_ready

    @staticmethod
    def _is_lost(instance: Instance) -> bool:
        return instance.process is not None and instance.process.gone.is_set()

    def _note_short_life(self, instance: Instance) -> None:
        """A server that keeps dying right after its start would do so again: that counts as a failed start."""
        assert instance.ready_at is not None
        lived_s = time.monotonic() - instance.ready_at
        if self._is_lost(instance):
            self._last_error = instance.stop_reason
            self._remember_words(instance)
            if lived_s < SHORT_LIFE_S:
                self._back_off(instance.stop_reason)
                return
        self._failures = 0

    def _failed(self, instance: Instance, error: Exception) -> None:
        reason = _told(error)
        if instance.process is not None and instance.process.last_words:
            reason = f"{reason}; it said: {instance.process.last_words[-1][:300]}"
        self._remember_words(instance)
        instance.failure = UpstreamUnavailable(reason)
        instance.settled.set()
        self._back_off(reason)
        event(_log, logging.WARNING, "server failed to start", server=self.spec.name, reason=reason)

    def _remember_words(self, instance: Instance) -> None:
        if instance.process is not None:
            self._last_words = tuple(instance.process.last_words)

    def _back_off(self, reason: str) -> None:
        self._last_error = reason
        self._failures += 1
        self._is_suspended = self._failures >= FAILURES_LIMIT
        self._retry_at = time.monotonic() + min(BACKOFF_LIMIT_S, BACKOFF_FIRST_S * 2 ** (self._failures - 1))

    def _forget(self, instance: Instance) -> None:
        self._leaving.discard(instance)
        if self._instances.get(instance.key) is instance:
            del self._instances[instance.key]
        if not instance.settled.is_set():
            instance.failure = UpstreamUnavailable("it was stopped while it started")
            instance.settled.set()

    def _retire(self, instance: Instance, reason: str) -> None:
        """Give it no more calls, and end it when those it has are answered."""
        if self._instances.get(instance.key) is instance:
            del self._instances[instance.key]
        self._leaving.add(instance)
        instance.stop(reason)

    async def _answers(self, instance: Instance) -> bool:
        """Ask for a sign of life, in the words of the server's era."""
        assert instance.wire is not None
        assert instance.greeting is not None
        try:
            with anyio.fail_after(PING_LIMIT_S):
                await instance.wire.request("server/discover" if instance.greeting.is_modern else "ping")
        except (TimeoutError, WireLost):
            return False
        except ServerRefused:
            return True
        return True

    def _after_giving_up(self, instance: Instance, began: float) -> None:
        if self._tasks is not None and instance.process is not None:
            self._tasks.start_soon(self._see_it_obey, instance, began)

    async def _see_it_obey(self, instance: Instance, began: float) -> None:
        """End a server that goes on with a call nobody waits for, as soon as no other call would be harmed."""
        await anyio.sleep(OBEY_S)
        if instance.stopping.is_set():
            return
        with anyio.move_on_after(1.0) as deaf:
            await self._answers(instance)
        if deaf.cancelled_caught or instance.children_since(began):
            event(_log, logging.WARNING, "server ignores cancellation", server=self.spec.name, pid=instance.pid)
            self._retire(instance, "it went on with a call that was cancelled")

    def _take_notice(self, method: str, _params: bytes) -> None:
        if method == "notifications/tools/list_changed" and self._tasks is not None and not self._refreshing:
            self._refreshing = True
            self._tasks.start_soon(self._refresh)

    async def _refresh(self) -> None:
        """Learn the tools anew; a burst of changes is one."""
        await anyio.sleep(DEBOUNCE_S)
        self._refreshing = False
        instance = next((i for i in self._instances.values() if i.ready_at), None)
        if instance is None or instance.wire is None or instance.greeting is None:
            return
        try:
            self._on_tools(await fetch_tools(instance.wire, instance.greeting))
        except (UpstreamUnavailable, ServerRefused) as error:
            event(_log, logging.WARNING, "tools could not be listed", server=self.spec.name, reason=str(error))

    def _unavailable(self, reason: str, hint: str | None = None) -> UpstreamUnavailable:
        return UpstreamUnavailable(
            f"The server `{self.spec.name}` is not available: {reason}", hint=hint, server=self.spec.name
        )


def _told(error: Exception) -> str:
    if isinstance(error, BaseExceptionGroup):
        return _told(error.exceptions[0]) if isinstance(error.exceptions[0], Exception) else str(error)
    if isinstance(error, TimeoutError):
        return f"it did not get ready within {START_LIMIT_S:g} s"
    return str(error) or type(error).__name__
