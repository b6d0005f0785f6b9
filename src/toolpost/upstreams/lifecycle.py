"""One instance of a server from start to end.

The transport is opened, the era negotiated, the tools listed; then the instance is watched (pings, idle time) until it stops,
drained of its calls, and closed. If the negotiation fails in a way that another mode may cure (`NegotiationMode`), it is started
once more in that mode. What happens to the server as a whole (which instances it has, backoff) is decided by the owner, `pool`.
"""

import math
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import anyio

from toolpost.base.ids import CallerId, JsonObject
from toolpost.credentials.server_tokens import ServerToken
from toolpost.upstreams.changes import InstanceSubscriptions, keep_subscribed
from toolpost.upstreams.handshake import fetch_tools, negotiate
from toolpost.upstreams.http.exchange import NotStreamable
from toolpost.upstreams.http.transport import open_http_server
from toolpost.upstreams.in_process import open_in_process_server
from toolpost.upstreams.instance import Instance
from toolpost.upstreams.notifications import ClientIds
from toolpost.upstreams.observed import ObservedTransport
from toolpost.upstreams.report import ServerProfile
from toolpost.upstreams.spec import ServerLimits, ServerSpec
from toolpost.upstreams.sse import open_sse_server
from toolpost.upstreams.stdio import open_stdio_server
from toolpost.upstreams.transport import ConnectionLost, Transport

PING_S: Final = 30.0
PING_LIMIT_S: Final = 5.0
DRAIN_POLL_S: Final = 0.02


@dataclass(frozen=True, kw_only=True)
class NegotiationMode:
    """How the negotiation is made: over the older HTTP+SSE or not, and with a probe for the stateless era or not."""

    is_sse: bool = False
    probe_first: bool = True

    def name_transport(self, spec: ServerSpec) -> str:
        if spec.in_process is not None:
            return "in process"
        return "stdio" if spec.command is not None else "sse" if self.is_sse else "http"

    def find_alternative(self, error: BaseException, spec: ServerSpec) -> "NegotiationMode | None":
        """Return a mode that may succeed where this one failed with this error; None if there is none."""
        if isinstance(error, BaseExceptionGroup):
            return self.find_alternative(error.exceptions[0], spec)
        if self.probe_first and spec.command is not None and isinstance(error, ConnectionLost):
            # Some servers exit when the first message is one that they do not know.
            return NegotiationMode(probe_first=False)
        if not self.is_sse and spec.transport is None and isinstance(error, NotStreamable):
            return NegotiationMode(is_sse=True, probe_first=False)
        return None


class InstanceOwner(Protocol):
    """Decides about an instance, and is notified of its state."""

    @property
    def limits(self) -> ServerLimits: ...

    def server_token_of(self, instance: Instance, /) -> ServerToken | None:
        """Return what authorizes the requests of an instance; None for a server that needs nothing of that kind."""
        ...

    def take_notification(
        self, instance: Instance, method: str, params: bytes, clients: ClientIds, caller: CallerId | None, /
    ) -> None: ...

    def subscriptions_of(self, instance: Instance, /) -> InstanceSubscriptions: ...

    def learn(self, tools: list[JsonObject], build: str, profile: ServerProfile, /) -> Awaitable[None]:
        """Take the server's tools, its own version, and what else it says about itself."""
        ...

    def note_reconnected(self) -> None:
        """Note that a stream to the server was lost: it may have been replaced."""
        ...

    def note_ready(self, instance: Instance, mode: NegotiationMode, /) -> None:
        """Note that the instance can be used, and the mode for the next start."""
        ...

    def note_failure(self, instance: Instance, error: BaseException, /) -> None:
        """Note that the instance could not be started."""
        ...

    def retire(self, instance: Instance, reason: str, /, *, is_fault: bool = False) -> None:
        """Send the instance no further calls, and stop it; `is_fault` records the reason as a failure of the server."""
        ...

    def may_leave(self, instance: Instance, /) -> bool:
        """Whether the instance has been idle for long enough to be stopped."""
        ...


async def run_instance(instance: Instance, spec: ServerSpec, mode: NegotiationMode, owner: InstanceOwner) -> None:
    """Run an instance until it ends. Failures are reported to the owner, and not raised."""
    with instance.starting:
        try:
            if (other := await _run_once(instance, spec, mode, owner)) is not None:
                await _run_once(instance, spec, other, owner)
        except Exception as error:  # noqa: BLE001 (a server may fail in any way; each is its own failure)
            owner.note_failure(instance, error)


async def _run_once(
    instance: Instance, spec: ServerSpec, mode: NegotiationMode, owner: InstanceOwner
) -> NegotiationMode | None:
    """Run the instance in this mode, or return the mode to try instead."""
    other: NegotiationMode | None = None
    try:
        async with _open_transport(spec, instance, mode, owner) as opened, AsyncExitStack() as stack:
            observe = owner.limits.observe
            transport = opened
            if observe is not None:
                transport = stack.enter_context(ObservedTransport(opened, observe(spec)))
            try:
                await _set_up(instance, transport, mode, owner, spec.name)
            except BaseException as error:
                # Reported before the process tree is ended, which may take seconds: waiting calls fail at once.
                if (other := mode.find_alternative(error, spec)) is None:
                    owner.note_failure(instance, error)
                raise
            async with anyio.create_task_group() as tasks:
                assert instance.negotiation is not None
                tasks.start_soon(
                    keep_subscribed,
                    transport,
                    instance.negotiation,
                    instance.subscriptions,
                    owner.note_reconnected,
                )
                await _watch(instance, spec, owner)
                tasks.cancel_scope.cancel()
            # Its calls are still answered, unless its process is gone.
            while instance.in_flight and not instance.is_lost:  # noqa: ASYNC110 (rare, and it may end in two ways)
                await anyio.sleep(DRAIN_POLL_S)
    except Exception as error:
        if (other := other or (None if instance.settled.is_set() else mode.find_alternative(error, spec))) is None:
            raise
    return other


async def _set_up(
    instance: Instance, transport: Transport, mode: NegotiationMode, owner: InstanceOwner, server: str
) -> None:
    instance.transport = transport
    instance.negotiation = await negotiate(transport, probe_first=mode.probe_first, declared=instance.declared)
    if not instance.is_handshake_only:
        # In another era the same tools may look different, and would seem to change back and forth.
        tools = await fetch_tools(transport, instance.negotiation, server)
        await owner.learn(tools, instance.negotiation.build, instance.negotiation.profile)
    instance.starting.deadline = math.inf
    instance.ready_at = time.monotonic()
    instance.subscriptions = owner.subscriptions_of(instance)
    owner.note_ready(instance, NegotiationMode(is_sse=mode.is_sse, probe_first=instance.negotiation.answers_probe))


async def _watch(instance: Instance, spec: ServerSpec, owner: InstanceOwner) -> None:
    """Ping the instance while it is idle; return when it is to stop. Retires it if it does not answer, or is idle for long."""
    while not instance.stopping.is_set():
        with anyio.move_on_after(min(PING_S, max(0.05, spec.idle_s / 4))):
            await instance.stopping.wait()
        if instance.stopping.is_set() or instance.in_flight:
            continue
        if owner.may_leave(instance):
            owner.retire(instance, "idle")
        elif not await instance.answers(PING_LIMIT_S) and not instance.in_flight:
            owner.retire(instance, f"it answered no ping within {PING_LIMIT_S:g} s", is_fault=True)


@asynccontextmanager
async def _open_transport(
    spec: ServerSpec, instance: Instance, mode: NegotiationMode, owner: InstanceOwner
) -> AsyncIterator[Transport]:
    on_notification = partial(owner.take_notification, instance)

    def on_gone(reason: str) -> None:
        # During the negotiation it is not retired: the negotiation fails, and may be tried in another mode.
        if instance.settled.is_set():
            owner.retire(instance, reason)

    if spec.in_process is not None:
        async with open_in_process_server(
            spec.name, spec.in_process, on_notification=on_notification, on_gone=on_gone
        ) as peer:
            yield peer
    elif spec.command is not None:
        async with open_stdio_server(spec, on_notification=on_notification, on_gone=on_gone) as server:
            instance.process = server
            yield server.peer
    elif mode.is_sse:
        server_token = owner.server_token_of(instance)
        async with open_sse_server(
            spec, on_notification=on_notification, on_gone=on_gone, server_token=server_token
        ) as transport:
            yield transport
    else:
        server_token = owner.server_token_of(instance)
        async with open_http_server(
            spec,
            owner.limits,
            on_notification=on_notification,
            on_gone=on_gone,
            on_reconnected=owner.note_reconnected,
            server_token=server_token,
        ) as streamable:
            yield streamable
