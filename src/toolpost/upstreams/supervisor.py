"""One server across restarts of its processes: requests go through here, and so do starting, stopping and reporting.

A request takes an instance of the pool, which is started if need be, and counts as in flight on it until it is answered. Three
rules keep calls safe:

- A request is repeated only if the server cannot have seen it (`ConnectionLost.was_sent` is False), and only once, on another
  instance: a tool may have side effects. One that was refused for its era is sent once more, in the other era.
- An instance that is retired (idle, restarted, replaced) gets no further calls, and is ended when those in flight are answered.
- A cancelled call has to end. A process that still runs children of that call after half a second, or does not answer a ping
  after that, is retired: it would go on working for a caller that is gone, and block other calls.

Example: two calls are in flight when the process dies. Both fail with its exit code and its last line of stderr; a third one,
which was still in the queue to its stdin, is repeated on the instance that the pool starts next. If starts fail, `backoff` delays
the next one, up to suspension.

Instances are left to `pool` and `lifecycle`, the meaning of results to `providers.server_provider`.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from toolpost.base.caller import Caller, ClientInfo
from toolpost.base.events import event
from toolpost.base.ids import CallerId, JsonObject
from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.credentials.server_tokens import ServerTokens
from toolpost.fairness import FairQueue
from toolpost.protocol.extensions import is_extension_notification, is_extension_request
from toolpost.upstreams import instance as instances
from toolpost.upstreams.changes import InstanceSubscriptions, ToolListRefresher
from toolpost.upstreams.failures import LastFailure
from toolpost.upstreams.handshake import ToolsListener, fetch_tools, refresh
from toolpost.upstreams.instance import HANDSHAKE_SUFFIX, Instance, now
from toolpost.upstreams.notifications import FORWARDED, TOOLS_CHANGED, ClientIds, Notification, is_level_at_least
from toolpost.upstreams.pool import AddOwnerValues, InstancePool
from toolpost.upstreams.report import ServerProfile, ServerReport, ServerState
from toolpost.upstreams.server_requests import ClientChannel
from toolpost.upstreams.spec import ServerLimits, ServerSpec
from toolpost.upstreams.transport import (
    ConnectionLost,
    SentRequest,
    ServerRefused,
    UpstreamRequest,
    encode,
)

_log = logging.getLogger("toolpost.upstreams")

CANCELLATION_GRACE_S: Final = 0.5
CANCELLATION_PING_S: Final = 2.0
"""How long a server may take to act on a cancellation, and how long after that to answer a ping."""

LOG_LEVEL_LIMIT_S: Final = 2.0

_UNKNOWN_TOOL_CODES: Final = frozenset({-32602, -32601})
"""Error codes for a tool that a server does not have, or no longer has with this schema: its tools are listed again."""


_REFUSED_IN_STATELESS_ERA: Final = (
    "no back-channel",
    "server-initiated requests is unavailable on",
    "Server-to-client requests are not available on protocol revision",
)
_REFUSED_IN_HANDSHAKE_ERA: Final = (
    "Handler returned an invalid result",
    "the multi-round-trip result type",
    "returned an input-required result, but this request is served on protocol revision",
)
"""What servers refuse a request with that works in the other era alone: one that asks its client in the middle of a call, and one
whose result asks for input (`input_required`). Each has the words of the Python SDK, of FastMCP and of the TypeScript SDK.
"""

_REFUSAL_BYTES: Final = 4_096
"""A result of a failed tool that is larger is no such refusal."""
_FAILED: Final = re.compile(rb'"isError"\s*:\s*true')

_ERAS_LIMIT: Final = 10_000
"""Requests of a server whose era is remembered, by method and name."""


class Supervisor:
    """Supervises one server. `run` must be running; everything else may be called from any task."""

    def __init__(
        self,
        spec: ServerSpec,
        limits: ServerLimits | None = None,
        *,
        on_tools: ToolsListener,
        on_notification: Callable[[Notification], None] = lambda _notification: None,
        add_owner_values: AddOwnerValues | None = None,
        sibling_pools: set[InstancePool] | None = None,
        server_tokens: ServerTokens | None = None,
    ) -> None:
        """Take a specification and listeners; `add_owner_values` and `sibling_pools` as in `InstancePool`."""
        self.spec = spec
        limits = limits or ServerLimits()
        self._on_tools = on_tools
        self._failure = LastFailure(spec.name, limits.callers, conceal=spec.conceal)
        self._tool_list = ToolListRefresher(spec.name, self._relist, spec.relist_s)
        self._on_notification = on_notification
        self._subscribers: dict[str, Counter[str]] = {}
        """The number of subscribers of each resource, by the key of an instance."""
        self._log_level: str | None = None
        self._needs_handshake: dict[tuple[str, str], bool] = {}
        """Whether a request needs the handshake era, by method and name, if it has failed in the other one."""
        self._pool = InstancePool(
            spec,
            limits,
            failure=self._failure,
            on_tools=self._take_tools,
            on_reconnected=self._tool_list.note_reconnected,
            on_notification=self._take_notification,
            subscriptions=lambda key: InstanceSubscriptions(self._subscribers.get(key, ()), self._log_level),
            add_owner_values=add_owner_values if spec.caller_values else None,
            sibling_pools=sibling_pools,
            server_tokens=server_tokens,
        )
        what = f"calls waiting for `{spec.name}`, which takes one at a time"
        self._turns = FairQueue(what, limits.callers, at_once=1, waiting=limits.waiting)
        self._tasks: TaskGroup | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own every task of this server, until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = self._pool.tasks = tasks
            task_status.started()
            await self._tool_list.run()

    # Requests

    def request(
        self,
        request: UpstreamRequest,
        *,
        key: str = "",
        sent: SentRequest | None = None,
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> Coroutine[Any, Any, bytes]:
        """Send a request and return the JSON of its result; the server is started if need be.

        `key` chooses an instance with `per_session`, and is ignored otherwise. With `sent`, the request was sent by `try_send`,
        and only its answer is awaited. `check` is awaited once an instance is ready, which may have listed other tools than the
        one before; what it raises is raised, and nothing is sent. Raises `ServerRefused` or `UpstreamUnavailable`.
        """
        ask = partial(self._ask, request, self._instance_key(key), sent, check)
        return self._request_in_turn(request.caller_id, ask) if self.spec.strategy == "singleton" else ask()

    async def _request_in_turn(self, caller: CallerId | None, ask: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes:
        await self._turns.enter(caller or CallerId(""))
        try:
            return await ask()
        finally:
            self._turns.leave(caller or CallerId(""))

    async def _ask(
        self,
        request: UpstreamRequest,
        key: str,
        sent: SentRequest | None,
        check: Callable[[], Awaitable[None]] | None,
    ) -> bytes:
        caller = request.caller
        # One of the three is for the other era.
        for attempt in (1, 2, 3):
            instance = sent.instance if sent else await self._acquire(request, key, check)
            began = sent.began if sent else now()
            assert instance.transport is not None
            try:
                if sent is not None:
                    result = await sent.transport.wait_for(sent.pending)
                else:
                    await self._lower_level(instance, request.client_channel)
                    result = await instance.transport.request(request)
                # Frameworks make a result of what a tool has raised.
                if not self._note_wrong_era(request, instance, _find_failure(result)):
                    return result
                sent = None
            except ConnectionLost as lost:
                self._pool.retire(instance, lost.message)
                # A tool may have side effects: only a request that the server cannot have seen is repeated.
                if lost.was_sent or attempt >= 2:
                    raise self._make_call_error(instance, lost, caller) from lost
                sent = None
            except UpstreamUnavailable as error:
                raise self._make_call_error(instance, error, caller) from error
            except ServerRefused as refusal:
                if not self._note_wrong_era(request, instance, refusal.message):
                    self._refresh_if_unknown(request.method, refusal)
                    raise
                sent = None
            except asyncio.CancelledError:
                self._schedule_cancellation_check(instance, began)
                raise
            finally:
                # Also before it is repeated: an instance that was retired waits for its calls before it ends.
                instance.release()
        raise AssertionError("three attempts end above")

    def _refresh_if_unknown(self, method: str, refusal: ServerRefused) -> None:
        if refusal.code in _UNKNOWN_TOOL_CODES and not is_extension_request(method):
            self._tool_list.request_refresh()

    def _uses_handshake(self, request: UpstreamRequest) -> bool:
        """Whether a request goes to an instance that was opened by a handshake, where the server knows both eras."""
        is_of_era = request.caller is not None and request.caller.takes_server_requests
        if not self._needs_handshake:
            return is_of_era
        return self._needs_handshake.get((request.method, request.name or ""), is_of_era)

    def _note_wrong_era(self, request: UpstreamRequest, instance: Instance, failure: str) -> bool:
        """Return whether a request failed for its era; it is made in the other era from now on."""
        client_channel = request.client_channel
        if not failure or client_channel is None or not client_channel.capabilities:
            return False
        if not self._pool.may_use_handshake():
            return False
        is_stateless = instance.negotiation is not None and instance.negotiation.is_stateless
        signs = _REFUSED_IN_STATELESS_ERA if is_stateless else _REFUSED_IN_HANDSHAKE_ERA
        is_wrong = any(sign in failure for sign in signs)
        key = request.method, request.name or ""
        if not is_wrong or key in self._needs_handshake or len(self._needs_handshake) >= _ERAS_LIMIT:
            return False
        self._needs_handshake[key] = is_stateless
        era = "handshake" if is_stateless else "stateless"
        event(
            _log,
            logging.INFO,
            "request needs another era",
            server=self.spec.name,
            method=request.method,
            of=request.name,
            era=era,
        )
        return True

    async def _acquire(
        self, request: UpstreamRequest, key: str, check: Callable[[], Awaitable[None]] | None
    ) -> Instance:
        caller, client_channel, by_handshake = request.caller, request.client_channel, self._uses_handshake(request)
        try:
            if (instance := self._find_ready(key, by_handshake=by_handshake)) is None:
                if caller is not None and caller.client is None and client_channel is not None:
                    # A client of the stateless era says with each request what it can.
                    caller = replace(caller, client=ClientInfo(capabilities=client_channel.capabilities))
                instance = await self._find_or_start(key, caller, by_handshake=by_handshake)
        except UpstreamUnavailable as error:
            error.was_sent = False
            raise
        instance.acquire(request.caller_id)
        if check is not None:
            try:
                await check()
            except BaseException:
                instance.release()
                raise
        return instance

    def _instance_key(self, key: str) -> str:
        return key if self.spec.strategy == "per_session" else ""

    def _find_ready(self, key: str, *, by_handshake: bool) -> Instance | None:
        """Return the instance of a key if it is ready, else None: opened by a handshake, if the server knows both eras."""
        if not by_handshake:
            return self._pool.find_ready(key)
        if self._pool.is_stateless is None:
            # Before the first negotiation it is not known which of the two instances is the right one.
            return None
        return self._pool.find_ready(key + HANDSHAKE_SUFFIX if self._pool.may_use_handshake() else key)

    async def _find_or_start(self, key: str, caller: Caller | None, *, by_handshake: bool) -> Instance:
        if not by_handshake:
            return await self._pool.find_or_start(key, caller)
        return await self._pool.find_or_start_by_handshake(key, caller)

    def try_send(self, request: UpstreamRequest) -> SentRequest | None:
        """Send a caller's request now if a shared instance is ready, else return None.

        The instance is acquired: `request` must follow with `sent`, unless `on_answer` accepts the result and the instance is
        released.
        """
        instance = None
        if self.spec.strategy == "shared":
            instance = self._find_ready("", by_handshake=self._uses_handshake(request))
        if instance is None or (transport := instance.transport) is None:
            return None
        # Before it is sent: on a busy machine, the server may have started processes for it when this task goes on.
        began = now()
        pending = transport.try_send(request)
        return None if pending is None else SentRequest(instance.acquire(request.caller_id), transport, pending, began)

    # Subscriptions and log levels

    @property
    def has_subscriptions(self) -> bool:
        """Whether resources of the shared instance are subscribed to."""
        return bool(self._subscribers.get(""))

    async def subscribe(self, uri: str, *, caller: Caller, key: str = "") -> str:
        """Subscribe to a resource, also across restarts; subscriptions are counted.

        Returns the key of the instance, for `unsubscribe`. Raises `ServerRefused` if the server has no subscriptions.
        """
        by_handshake = caller.takes_server_requests
        instance = await self._find_or_start(self._instance_key(key), caller, by_handshake=by_handshake)
        key = instance.key
        assert instance.transport is not None
        assert instance.negotiation is not None
        if not instance.negotiation.has_subscriptions:
            raise ServerRefused(-32601, f"The server `{self.spec.name}` does not support subscriptions")
        # In the stateless era `set_uris` below changes the filter of the open `subscriptions/listen` instead.
        if not instance.negotiation.is_stateless and uri not in self._subscribers.get(key, ()):
            fields = b'"uri":%b' % encode(uri)
            await instance.transport.request(UpstreamRequest("resources/subscribe", fields, caller=caller))
        # Counted only now: a subscription that the server refused must not be repeated at its next start.
        subscribers = self._subscribers.setdefault(key, Counter())
        subscribers[uri] += 1
        if subscribers[uri] == 1:
            instance.subscriptions.set_uris(subscribers)
        return key

    async def unsubscribe(self, uri: str, *, key: str = "") -> None:
        """Remove one subscription; the last one for a resource also ends it at the server. `key` is from `subscribe`."""
        subscribers = self._subscribers.get(key, Counter())
        subscribers[uri] -= 1
        if subscribers[uri] > 0:
            return
        del subscribers[uri]
        if not subscribers:
            self._subscribers.pop(key, None)
        instance = self._pool.find_ready(key)
        if instance is None or instance.transport is None or instance.negotiation is None:
            return
        instance.subscriptions.set_uris(subscribers)
        if not instance.negotiation.is_stateless:
            await instance.transport.request(UpstreamRequest("resources/unsubscribe", b'"uri":%b' % encode(uri)))

    async def notify_roots_changed(self, client_channel: ClientChannel, *, caller: Caller, key: str = "") -> None:
        """Announce changed roots of a client to a running server of the handshake era that has asked for them before."""
        instance = self._find_ready(self._instance_key(key), by_handshake=caller.takes_server_requests)
        if (
            instance is None
            or instance.transport is None
            or instance.negotiation is None
            or instance.negotiation.is_stateless
        ):
            return
        await instance.transport.notify_roots_changed(client_channel)

    async def notify(self, method: str, fields: bytes, *, caller: Caller, key: str = "") -> bool:
        """Send a caller's notification to the instance that its calls use; False if none runs, which is not started for it."""
        instance = self._find_ready(self._instance_key(key), by_handshake=caller.takes_server_requests)
        if instance is None or instance.transport is None:
            return False
        await instance.transport.notify(method, fields)
        return True

    async def set_log_level(self, level: str) -> None:
        """Set the log level of all instances, running and future; the stateless era has none."""
        self._log_level = level
        for instance in tuple(self._pool):
            if instance.ready_at and instance.subscriptions.log_level != level:
                await self._set_level(instance, level)

    async def _lower_level(self, instance: Instance, client_channel: ClientChannel | None) -> None:
        level = None if client_channel is None else client_channel.log_level
        # The level is one for all callers of an instance, so it is only ever lowered here; clients that want less are sent less.
        current = instance.subscriptions.log_level
        if level is not None and (current is None or not is_level_at_least(level, current)):
            await self._set_level(instance, level)

    async def _set_level(self, instance: Instance, level: str) -> None:
        assert instance.transport is not None
        assert instance.negotiation is not None
        instance.subscriptions.log_level = level
        if instance.negotiation.is_stateless or "logging" not in instance.negotiation.capabilities:
            return
        try:
            with anyio.fail_after(LOG_LEVEL_LIMIT_S):
                await instance.transport.request(UpstreamRequest("logging/setLevel", b'"level":%b' % encode(level)))
        except (ServerRefused, UpstreamUnavailable, TimeoutError) as error:
            event(_log, logging.WARNING, "log level not set", server=self.spec.name, reason=str(error))

    def _make_call_error(
        self, instance: Instance, error: UpstreamUnavailable, caller: Caller | None
    ) -> UpstreamUnavailable:
        # Of a process that still runs, the last lines need not be about this failure.
        lines = instance.stderr_tail if instance.is_lost else ()
        made = self._failure.note(error.message, lines=lines, hint=error.hint, served=instance.callers, caller=caller)
        made.was_sent = error.was_sent
        return made

    def _schedule_cancellation_check(self, instance: Instance, began: float) -> None:
        # In the background: the caller is gone, and its task must end now.
        if self._tasks is not None and instance.process is not None and not instance.stopping.is_set():
            self._tasks.start_soon(self._check_cancellation, instance, began)

    async def _check_cancellation(self, instance: Instance, began: float) -> None:
        """Retire an instance that goes on with a cancelled call, after its other calls."""
        await anyio.sleep(CANCELLATION_GRACE_S)
        if instance.stopping.is_set():
            return
        # Nothing in MCP confirms a cancellation, so it is inferred: from processes that the call started and that still run, and
        # from a server that is too busy to answer a ping.
        if instance.has_children_since(began) or not await instance.answers(CANCELLATION_PING_S):
            event(_log, logging.WARNING, "server ignores cancellation", server=self.spec.name, pid=instance.pid)
            reason = "it went on with a call that was cancelled"
            self._pool.retire(instance, reason, is_fault=True)

    # Tools

    @property
    def is_overdue(self) -> bool:
        """Whether the tools of a running server were not listed for longer than `relist_s`; True before the first time."""
        return self._tool_list.is_overdue

    async def list_again(self, *, limit_s: float) -> None:
        """Have a running server list its tools now. Raises `UpstreamUnavailable` if they are overdue after that."""
        with anyio.move_on_after(limit_s):
            await self._tool_list.try_now()
        if self._tool_list.is_overdue:
            reason = f"its tools could not be compared with their pins: {self._tool_list.reason}"
            error = self._failure.make_error(reason, hint="try again in a moment")
            error.was_sent = False
            raise error

    async def _take_tools(self, tools: list[JsonObject], build: str, profile: ServerProfile) -> None:
        await self._on_tools(tools, build, profile)
        self._tool_list.note_listed()

    # Control and state

    async def ensure_ready(self) -> None:
        """Start the shared instance if it does not run; its tools are listed then. Raises as `request` does."""
        await self._pool.find_or_start("")

    async def keep_ready(self) -> None:
        """Start the instances that `min_ready` asks for and that do not run. Raises as `request` does."""
        await self._pool.start_missing()

    def note_failure(self, reason: str) -> None:
        """Record a failure that only the caller could see, such as a missed deadline or an invalid result."""
        self._failure.note(reason)

    def start(self) -> None:
        """Allow a stopped or suspended server to be started by the next call."""
        self._pool.stopped = None
        self._pool.backoff.forget()

    def stop(self, reason: str = "it was stopped", *, hint: str | None = None) -> None:
        """Stop the server until `start`; calls in flight are still answered."""
        self._pool.stopped = (reason, hint or f"`toolpost servers start {self.spec.name}` starts it")
        self._pool.retire_all(reason)

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped, so that no call starts it."""
        return self._pool.stopped is not None

    def restart(self) -> None:
        """Retire all instances and allow a new start; calls in flight are still answered."""
        self.start()
        self._pool.retire_all("it was restarted")

    async def renew_credentials(self) -> bool:
        """Retire instances whose credentials have been changed or removed since they were started.

        Returns whether there are credentials.
        """
        return await self._pool.renew()

    def leave(self) -> None:
        """Free the place of this owner among those of the server, once it has stopped for good."""
        self._pool.leave()

    @property
    def has_instances(self) -> bool:
        """Whether an instance runs, starts or stops."""
        return next(iter(self._pool), None) is not None

    def adopt(self, spec: ServerSpec, *, on_tools: ToolsListener) -> None:
        """Keep the processes under another specification, which must reach the server in the same way."""
        self.spec = spec
        self._on_tools = on_tools
        self._pool.adopt(spec)
        self._tool_list.set_interval(spec.relist_s)

    @property
    def capabilities(self) -> JsonObject | None:
        """The server's capabilities; None before the first negotiation."""
        return self._pool.capabilities

    @property
    def state(self) -> ServerState:
        return self._pool.state

    @property
    def waiting(self) -> int:
        """How many calls wait for their turn, of a server that takes one at a time."""
        return self._turns.waiting

    @property
    def in_flight(self) -> int:
        """How many calls its instances have."""
        return sum(instance.in_flight for instance in self._pool)

    @property
    def restarts(self) -> int:
        """How often an instance was started after the first."""
        return max(0, self._pool.starts - 1)

    @property
    def pids(self) -> list[int]:
        """The processes of its instances, without their descendants."""
        return [instance.pid for instance in self._pool if instance.pid is not None]

    def report(self) -> ServerReport:
        """Report the state of the server. Reads the memory of all its processes; `state` is cheaper."""
        known = list(self._pool)
        negotiation = next((i.negotiation for i in known if i.negotiation), None)
        memory = [size for i in known if (size := i.memory_bytes) is not None]
        return ServerReport(
            name=self.spec.name,
            state=self.state,
            transport=self._pool.mode.name_transport(self.spec),
            version=negotiation.version if negotiation else None,
            pids=tuple(i.pid for i in known if i.pid is not None),
            memory_bytes=sum(memory) if memory else None,
            in_flight=self.in_flight,
            restarts=self.restarts,
            last_error=self._failure.last_error,
            last_error_at=self._failure.last_error_at,
            stderr_tail=next((i.stderr_tail for i in known if i.stderr_tail), self._failure.stderr_tail),
            hint=self._failure.hint,
            losses=tuple(self._failure.losses),
            protocol_errors=self._pool.past_protocol_errors + sum(i.protocol_errors for i in known),
        )

    # Notifications

    def _take_notification(
        self, instance: Instance, method: str, params: bytes, clients: ClientIds, caller: CallerId | None
    ) -> None:
        if method == TOOLS_CHANGED:
            self._tool_list.request_refresh()
        elif method in FORWARDED or (self.spec.extensions and is_extension_notification(method)):
            key = self._instance_key(instance.key.removesuffix(HANDSHAKE_SUFFIX))
            self._on_notification(
                Notification(
                    server=self.spec.name,
                    key=key,
                    method=method,
                    params=params,
                    clients=clients,
                    caller=caller,
                    owner=self.spec.owner if self.spec.credentials == "caller" else None,
                )
            )

    async def _relist(self) -> None:
        """List the tools of a running server; does nothing if none runs: the next one lists them when it starts."""
        if (instance := self._pool.find_any_ready()) is None:
            return
        if instance.is_handshake_only:
            # In another era the same tools may look different. The instance that lists them is lost: the next one does.
            await self._pool.find_or_start(instance.key.removesuffix(HANDSHAKE_SUFFIX))
            return
        assert instance.transport is not None
        assert instance.negotiation is not None
        with anyio.fail_after(instances.START_LIMIT_S):
            instance.negotiation = await refresh(instance.transport, instance.negotiation)
            tools = await fetch_tools(instance.transport, instance.negotiation, self.spec.name)
            await self._take_tools(tools, instance.negotiation.build, instance.negotiation.profile)


def _find_failure(result: bytes) -> str:
    """Return the result of a tool that failed with few words; empty for any other."""
    is_failure = len(result) <= _REFUSAL_BYTES and _FAILED.search(result) is not None
    return result.decode(errors="replace") if is_failure else ""
