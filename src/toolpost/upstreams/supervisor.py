"""One server, whatever becomes of its processes: asked through here, started and stopped through here, reported on."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.contracts.events import event
from toolpost.contracts.ids import JsonObject
from toolpost.protocol.mirrored import Headers
from toolpost.upstreams import instance as instances
from toolpost.upstreams.changes import LIST_CHANGED, Changes
from toolpost.upstreams.greeting import fetch_tools
from toolpost.upstreams.instance import Instance, now
from toolpost.upstreams.pool import Pool
from toolpost.upstreams.report import ServerReport, ServerState
from toolpost.upstreams.spec import ServerSpec
from toolpost.upstreams.trouble import Trouble
from toolpost.upstreams.wire import Notice, ServerRefused, WireLost

_log = logging.getLogger("toolpost.upstreams")

OBEY_S: Final = 0.5
DEAF_S: Final = 2.0
"""How long a server may take to heed a cancellation, and how long after that to show that it still listens."""

_UNKNOWN: Final = frozenset({-32602, -32601})
"""What a server answers for a tool that it does not have, or no longer has in this form."""


class Supervisor:
    """Keeps one server. `run` must be running; everything else may be called from any task."""

    def __init__(self, spec: ServerSpec, *, on_tools: Callable[[list[JsonObject]], None]) -> None:
        self.spec = spec
        self._on_tools = on_tools
        self._trouble = Trouble(spec.name, conceal=spec.conceal)
        self._changes = Changes(spec.name, self._relist)
        self._pool = Pool(spec, trouble=self._trouble, on_tools=on_tools, on_notice=self._take_notice)
        self._turn = anyio.Lock()
        self._tasks: TaskGroup | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own every task of this server, until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = self._pool.tasks = tasks
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
        mirrored: Headers = (),
        meta: JsonObject | None = None,
        on_notice: Notice | None = None,
    ) -> bytes:
        """Ask the server, starting it if need be; a request that it cannot have seen is tried once more."""
        if self.spec.strategy == "singleton":
            async with self._turn:
                return await self._asked(method, fields, "", name, mirrored, meta, on_notice)
        own = key if self.spec.strategy == "per_session" else ""
        return await self._asked(method, fields, own, name, mirrored, meta, on_notice)

    async def _asked(
        self,
        method: str,
        fields: bytes,
        key: str,
        name: str | None,
        mirrored: Headers,
        meta: JsonObject | None,
        on_notice: Notice | None,
    ) -> bytes:
        for attempt in (1, 2):
            instance = await self._pool.ready(key)
            began = now()
            assert instance.wire is not None
            instance.take_up()
            try:
                return await instance.wire.request(
                    method, fields, meta=meta, name=name, mirrored=mirrored, on_notice=on_notice
                )
            except WireLost as lost:
                self._pool.retire(instance, lost.message)
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
            finally:
                instance.put_down()
        raise AssertionError("two attempts end above")

    def _broken(self, instance: Instance, error: UpstreamUnavailable) -> UpstreamUnavailable:
        """Make the error of a call whose server broke under it."""
        return self._trouble.note(error.message, words=instance.last_words if instance.is_lost else (), hint=error.hint)

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
            reason = "it went on with a call that was cancelled"
            self._pool.retire(instance, reason, is_fault=True)

    # What is asked of the supervisor

    async def ensure_ready(self) -> None:
        """Start the server if it is not running, to learn its tools."""
        await self._pool.ready("")

    async def keep_ready(self) -> None:
        """Start what `min_ready` asks for and does not run."""
        await self._pool.fill_up()

    def note_trouble(self, reason: str) -> None:
        """Remember what the server is to blame for, as whoever called it saw it."""
        self._trouble.note(reason)

    def start(self) -> None:
        """Let a stopped or suspended server be started again."""
        self._pool.stopped = None
        self._pool.backoff.forget()

    def stop(self, reason: str = "it was stopped", *, hint: str | None = None) -> None:
        """End the server and start it no more until somebody says so; calls in flight keep their answers."""
        self._pool.stopped = (reason, hint or f"`toolpost servers start {self.spec.name}` starts it")
        self._pool.retire_all(reason)

    def restart(self) -> None:
        """End what runs and let it be started again; calls in flight keep their answers."""
        self.start()
        self._pool.retire_all("it was restarted")

    def adopt(self, spec: ServerSpec, *, on_tools: Callable[[list[JsonObject]], None]) -> None:
        """Go on with the same processes under another specification, which reaches the server in the same way."""
        self.spec = spec
        self._on_tools = on_tools
        self._pool.adopt(spec, on_tools)

    @property
    def state(self) -> ServerState:
        """How the server is doing, in a word."""
        return self._pool.state

    @property
    def retry_in_s(self) -> float:
        """How long it is until a server that failed may be started again; at most 0 if it may be now."""
        return self._pool.backoff.wait_s

    def report(self) -> ServerReport:
        """Say how the server is doing. Looks at every process of it: `state` alone is quicker."""
        known = list(self._pool)
        greeting = next((i.greeting for i in known if i.greeting), None)
        memory = [size for i in known if (size := i.memory_bytes) is not None]
        return ServerReport(
            name=self.spec.name,
            state=self.state,
            transport="stdio" if self.spec.command else "sse" if self._pool.manner.is_sse else "http",
            version=greeting.version if greeting else None,
            pids=tuple(i.pid for i in known if i.pid is not None),
            memory_bytes=sum(memory) if memory else None,
            in_flight=sum(i.in_flight for i in known),
            restarts=max(0, self._pool.starts - 1),
            last_error=self._trouble.last_error,
            last_error_at=self._trouble.last_error_at,
            last_words=next((i.last_words for i in known if i.last_words), self._trouble.last_words),
            oddities=self._pool.past_oddities + sum(i.oddities for i in known),
        )

    # What the server says by itself

    def _take_notice(self, method: str, _params: bytes) -> None:
        if method == LIST_CHANGED:
            self._changes.tell()

    async def _relist(self) -> None:
        instance = self._pool.any_ready()
        if instance is not None and instance.wire is not None and instance.greeting is not None:
            with anyio.fail_after(instances.START_LIMIT_S):
                self._on_tools(await fetch_tools(instance.wire, instance.greeting))
