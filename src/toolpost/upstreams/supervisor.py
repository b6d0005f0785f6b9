"""One server, whatever becomes of its processes: asked through here, started and stopped through here, reported on."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus

from toolpost.base.caller import Caller
from toolpost.base.events import event
from toolpost.base.ids import CallerId, JsonObject
from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.protocol.mirrored import Headers
from toolpost.shares import FairQueue
from toolpost.upstreams import instance as instances
from toolpost.upstreams.changes import LIST_CHANGED, InstanceSubscriptions, ToolListRefresher
from toolpost.upstreams.failures import LastFailure
from toolpost.upstreams.handshake import ToolsListener, fetch_tools, refresh
from toolpost.upstreams.instance import HANDSHAKE_SUFFIX, Instance, now
from toolpost.upstreams.notifications import FORWARDED, ClientIds, Notification, is_level_at_least
from toolpost.upstreams.pool import InstancePool
from toolpost.upstreams.report import ServerReport, ServerState
from toolpost.upstreams.server_requests import ClientChannel
from toolpost.upstreams.spec import ServerLimits, ServerSpec
from toolpost.upstreams.transport import (
    ConnectionLost,
    PendingRequest,
    ProgressListener,
    ServerRefused,
    Transport,
    encode,
)

_log = logging.getLogger("toolpost.upstreams")

CANCELLATION_GRACE_S: Final = 0.5
CANCELLATION_PING_S: Final = 2.0
"""How long a server may take to heed a cancellation, and how long after that to show that it still listens."""

LOG_LEVEL_LIMIT_S: Final = 2.0

_UNKNOWN_TOOL_CODES: Final = frozenset({-32602, -32601})
"""What a server answers for a tool that it does not have, or no longer has in this form."""


class SentRequest(msgspec.Struct, frozen=True, gc=False):
    """A request that went out before anybody waits for its answer. The instance is taken up."""

    instance: Instance
    transport: Transport
    pending: PendingRequest
    began: float


class Supervisor:
    """Keeps one server. `run` must be running; everything else may be called from any task."""

    def __init__(
        self,
        spec: ServerSpec,
        limits: ServerLimits | None = None,
        *,
        on_tools: ToolsListener,
        on_notification: Callable[[Notification], None] = lambda _notification: None,
    ) -> None:
        self.spec = spec
        limits = limits or ServerLimits()
        self._on_tools = on_tools
        self._failure = LastFailure(spec.name, limits.callers, conceal=spec.conceal)
        self._changes = ToolListRefresher(spec.name, self._relist)
        self._on_notification = on_notification
        self._followed: dict[str, Counter[str]] = {}
        """How many follow which resources, by the key of an instance."""
        self._log_level: str | None = None
        self._pool = InstancePool(
            spec,
            limits,
            failure=self._failure,
            on_tools=on_tools,
            on_notification=self._take_notification,
            subscriptions=lambda key: InstanceSubscriptions(self._followed.get(key, ()), self._log_level),
        )
        what = f"calls waiting for `{spec.name}`, which takes one at a time"
        self._turns = FairQueue(what, limits.callers, at_once=1, waiting=limits.waiting)
        self._tasks: TaskGroup | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own every task of this server, until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = self._pool.tasks = tasks
            task_status.started()
            await self._changes.follow()

    # What is asked of the server

    def request(
        self,
        method: str,
        fields: bytes = b"",
        *,
        key: str = "",
        name: str | None = None,
        mirrored: Headers = (),
        meta: JsonObject | None = None,
        on_progress: ProgressListener | None = None,
        client_channel: ClientChannel | None = None,
        caller: Caller | None = None,
        sent: SentRequest | None = None,
    ) -> Coroutine[Any, Any, bytes]:
        """Ask the server, starting it if need be; a request that it cannot have seen is tried once more.

        With `sent`, the first attempt has been made already, and its answer is waited for.
        """
        own = self._own_key(key)
        ask = partial(self._ask, method, fields, own, name, mirrored, meta, on_progress, client_channel, caller, sent)
        return self._request_in_turn(caller, ask) if self.spec.strategy == "singleton" else ask()

    async def _request_in_turn(self, caller: Caller | None, ask: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes:
        whose = caller.id if caller is not None else CallerId("")
        await self._turns.enter(whose)
        try:
            return await ask()
        finally:
            self._turns.leave(whose)

    async def _ask(
        self,
        method: str,
        fields: bytes,
        key: str,
        name: str | None,
        mirrored: Headers,
        meta: JsonObject | None,
        on_progress: ProgressListener | None,
        client_channel: ClientChannel | None,
        caller: Caller | None,
        sent: SentRequest | None,
    ) -> bytes:
        whose = None if caller is None else caller.id
        for attempt in (1, 2):
            instance = sent.instance if sent else await self._acquire(key, caller)
            began = sent.began if sent else now()
            assert instance.transport is not None
            try:
                if sent is not None:
                    return await sent.transport.answer_to(sent.pending)
                if client_channel is not None:
                    await self._lower_level(instance, client_channel.log_level)
                return await instance.transport.request(
                    method,
                    fields,
                    meta=meta,
                    name=name,
                    mirrored=mirrored,
                    on_progress=on_progress,
                    client_channel=client_channel,
                    caller=whose,
                )
            except ConnectionLost as lost:
                self._pool.retire(instance, lost.message)
                if lost.was_sent or attempt == 2:
                    raise self._make_call_error(instance, lost, caller) from lost
                sent = None
            except UpstreamUnavailable as error:
                raise self._make_call_error(instance, error, caller) from error
            except ServerRefused as refusal:
                if refusal.code in _UNKNOWN_TOOL_CODES:
                    self._changes.tell()
                raise
            except asyncio.CancelledError:
                self._schedule_cancellation_check(instance, began)
                raise
            finally:
                instance.release()
        raise AssertionError("two attempts end above")

    async def _acquire(self, key: str, caller: Caller | None) -> Instance:
        instance = self._ready_now(key, caller) or await self._ready(key, caller)
        return instance.acquire(None if caller is None else caller.id)

    def _own_key(self, key: str) -> str:
        return key if self.spec.strategy == "per_session" else ""

    def _ready_now(self, key: str, caller: Caller | None) -> Instance | None:
        """Return the instance of a caller if it can be used at once: in the caller's era, where the server knows both."""
        if caller is None or not caller.answers_handshake:
            return self._pool.find_ready(key)
        if self._pool.is_modern is None:
            return None
        return self._pool.find_ready(key + HANDSHAKE_SUFFIX if self._pool.may_use_handshake() else key)

    async def _ready(self, key: str, caller: Caller | None) -> Instance:
        if caller is None or not caller.answers_handshake:
            return await self._pool.ready(key, caller)
        return await self._pool.ready_by_handshake(key, caller)

    def send_ahead(
        self,
        method: str,
        fields: bytes,
        *,
        name: str,
        meta: JsonObject,
        client_channel: ClientChannel | None,
        caller: Caller,
    ) -> SentRequest | None:
        """Ask the server now, if it is ready and nobody has to take turns.

        `request` must follow, unless the answer is taken ahead and the instance put down.
        """
        instance = self._ready_now("", caller) if self.spec.strategy == "shared" else None
        if instance is None or (transport := instance.transport) is None:
            return None
        pending = transport.send_ahead(
            method, fields, name=name, meta=meta, client_channel=client_channel, caller=caller.id
        )
        return None if pending is None else SentRequest(instance.acquire(caller.id), transport, pending, now())

    # What is to be told of without being asked

    @property
    def has_subscriptions(self) -> bool:
        """Whether somebody follows resources of the instance that all share."""
        return bool(self._followed.get(""))

    async def subscribe(self, uri: str, *, caller: Caller, key: str = "") -> str:
        """Follow a resource: across restarts, until as many have unsubscribed as have subscribed.

        Returns the key of the instance that has it, which `unsubscribe` takes.
        """
        instance = await self._ready(self._own_key(key), caller)
        own = instance.key
        assert instance.transport is not None
        assert instance.negotiation is not None
        if not instance.negotiation.has_subscriptions:
            raise ServerRefused(-32601, f"The server `{self.spec.name}` takes no subscriptions")
        if not instance.negotiation.is_modern and uri not in self._followed.get(own, ()):
            await instance.transport.request("resources/subscribe", b'"uri":%b' % encode(uri), caller=caller.id)
        followed = self._followed.setdefault(own, Counter())
        followed[uri] += 1
        if followed[uri] == 1:
            instance.subscriptions.follow(followed)
        return own

    async def unsubscribe(self, uri: str, *, key: str = "") -> None:
        """Follow a resource no more, if nobody else does; `key` is what `subscribe` returned."""
        own = key
        followed = self._followed.get(own, Counter())
        followed[uri] -= 1
        if followed[uri] > 0:
            return
        del followed[uri]
        if not followed:
            self._followed.pop(own, None)
        instance = self._pool.find_ready(own)
        if instance is None or instance.transport is None or instance.negotiation is None:
            return
        instance.subscriptions.follow(followed)
        if not instance.negotiation.is_modern:
            await instance.transport.request("resources/unsubscribe", b'"uri":%b' % encode(uri))

    async def roots_changed(self, client_channel: ClientChannel, *, caller: Caller, key: str = "") -> None:
        """Tell a server of the handshake era that the folders of a client have changed, if it runs and knows of them."""
        instance = self._ready_now(self._own_key(key), caller)
        if (
            instance is None
            or instance.transport is None
            or instance.negotiation is None
            or instance.negotiation.is_modern
        ):
            return
        await instance.transport.roots_changed(client_channel)

    async def set_log_level(self, level: str) -> None:
        """Have the server log from this level on, in the era that has such a thing; another instance will too."""
        self._log_level = level
        for instance in tuple(self._pool):
            if instance.ready_at and instance.subscriptions.log_level != level:
                await self._set_level(instance, level)

    async def _lower_level(self, instance: Instance, level: str | None) -> None:
        current = instance.subscriptions.log_level
        if level is not None and (current is None or not is_level_at_least(level, current)):
            await self._set_level(instance, level)

    async def _set_level(self, instance: Instance, level: str) -> None:
        assert instance.transport is not None
        assert instance.negotiation is not None
        instance.subscriptions.log_level = level
        if instance.negotiation.is_modern or "logging" not in instance.negotiation.capabilities:
            return
        try:
            with anyio.fail_after(LOG_LEVEL_LIMIT_S):
                await instance.transport.request("logging/setLevel", b'"level":%b' % encode(level))
        except (ServerRefused, UpstreamUnavailable, TimeoutError) as error:
            event(_log, logging.WARNING, "log level not set", server=self.spec.name, reason=str(error))

    def _make_call_error(
        self, instance: Instance, error: UpstreamUnavailable, caller: Caller | None
    ) -> UpstreamUnavailable:
        """Make the error of a call whose server broke under it."""
        words = instance.last_words if instance.is_lost else ()
        return self._failure.note(error.message, words=words, hint=error.hint, served=instance.callers, caller=caller)

    def _schedule_cancellation_check(self, instance: Instance, began: float) -> None:
        if self._tasks is not None and instance.process is not None and not instance.stopping.is_set():
            self._tasks.start_soon(self._check_cancellation, instance, began)

    async def _check_cancellation(self, instance: Instance, began: float) -> None:
        """End a server that goes on with a call nobody waits for, as soon as no other call would be harmed."""
        await anyio.sleep(CANCELLATION_GRACE_S)
        if instance.stopping.is_set():
            return
        if instance.has_children_since(began) or not await instance.answers(CANCELLATION_PING_S):
            event(_log, logging.WARNING, "server ignores cancellation", server=self.spec.name, pid=instance.pid)
            reason = "it went on with a call that was cancelled"
            self._pool.retire(instance, reason, is_fault=True)

    # What is asked of the supervisor

    async def ensure_ready(self) -> None:
        """Start the server if it is not running, to learn its tools."""
        await self._pool.ready("")

    async def keep_ready(self) -> None:
        """Start what `min_ready` asks for and does not run."""
        await self._pool.start_missing()

    def note_failure(self, reason: str) -> None:
        """Remember what the server is to blame for, as whoever called it saw it."""
        self._failure.note(reason)

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

    def adopt(self, spec: ServerSpec, *, on_tools: ToolsListener) -> None:
        """Go on with the same processes under another specification, which reaches the server in the same way."""
        self.spec = spec
        self._on_tools = on_tools
        self._pool.adopt(spec, on_tools)

    @property
    def capabilities(self) -> JsonObject | None:
        """What the server says that it can; None until it has been met."""
        return self._pool.capabilities

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
        negotiation = next((i.negotiation for i in known if i.negotiation), None)
        memory = [size for i in known if (size := i.memory_bytes) is not None]
        return ServerReport(
            name=self.spec.name,
            state=self.state,
            transport="stdio" if self.spec.command else "sse" if self._pool.mode.is_sse else "http",
            version=negotiation.version if negotiation else None,
            pids=tuple(i.pid for i in known if i.pid is not None),
            memory_bytes=sum(memory) if memory else None,
            in_flight=sum(i.in_flight for i in known),
            restarts=max(0, self._pool.starts - 1),
            last_error=self._failure.last_error,
            last_error_at=self._failure.last_error_at,
            last_words=next((i.last_words for i in known if i.last_words), self._failure.last_words),
            hint=self._failure.hint,
            oddities=self._pool.past_oddities + sum(i.oddities for i in known),
        )

    # What the server says by itself

    def _take_notification(
        self, instance: Instance, method: str, params: bytes, told: ClientIds, caller: CallerId | None
    ) -> None:
        if method == LIST_CHANGED:
            self._changes.tell()
        elif method in FORWARDED:
            key = self._own_key(instance.key.removesuffix(HANDSHAKE_SUFFIX))
            news = Notification(server=self.spec.name, key=key, method=method, params=params, told=told, caller=caller)
            self._on_notification(news)

    async def _relist(self) -> None:
        instance = self._pool.find_any_ready()
        if instance is not None and instance.transport is not None and instance.negotiation is not None:
            with anyio.fail_after(instances.START_LIMIT_S):
                instance.negotiation = await refresh(instance.transport, instance.negotiation)
                tools = await fetch_tools(instance.transport, instance.negotiation, self.spec.name)
                await self._on_tools(tools, instance.negotiation.build, instance.negotiation.description)
