"""The life of one instance: opened, greeted, its tools learnt, kept while it is wanted, drained, ended."""

import math
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import anyio

from toolpost.base.ids import CallerId, JsonObject
from toolpost.upstreams.changes import Wishes, follow_server
from toolpost.upstreams.handshake import fetch_tools, greet
from toolpost.upstreams.http.exchange import NotStreamable
from toolpost.upstreams.http.wire import open_http_server
from toolpost.upstreams.instance import Instance
from toolpost.upstreams.notifications import Told
from toolpost.upstreams.spec import ServerLimits, ServerSpec
from toolpost.upstreams.sse import open_sse_server
from toolpost.upstreams.stdio import open_stdio_server
from toolpost.upstreams.wire import Wire, WireLost

PING_S: Final = 30.0
PING_LIMIT_S: Final = 5.0
DRAIN_LOOK_S: Final = 0.02


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How a server is met: by the older SSE or not, and whether it is asked for its era first."""

    is_sse: bool = False
    probes: bool = True

    def after(self, error: BaseException, spec: ServerSpec) -> "Manner | None":
        """Return another manner that may do where this one met this error; None if there is none."""
        if isinstance(error, BaseExceptionGroup):
            return self.after(error.exceptions[0], spec)
        if self.probes and spec.command is not None and isinstance(error, WireLost):
            # Some servers leave when the first word is one that they do not know.
            return Manner(probes=False)
        if not self.is_sse and spec.transport is None and isinstance(error, NotStreamable):
            return Manner(is_sse=True, probes=False)
        return None


class Keeper(Protocol):
    """Whoever the instance lives for."""

    @property
    def limits(self) -> ServerLimits:
        """What its callers share."""
        ...

    def take_notice(
        self, instance: Instance, method: str, params: bytes, told: Told, caller: CallerId | None, /
    ) -> None:
        """Hear a notification."""
        ...

    def wishes_of(self, instance: Instance, /) -> Wishes:
        """Say what is wanted of it besides answers."""
        ...

    def learn(self, tools: list[JsonObject], build: str, description: str, /) -> Awaitable[None]:
        """Take the server's tools, the version that it gives itself, and its description of itself."""
        ...

    def note_ready(self, instance: Instance, manner: Manner, /) -> None:
        """Hear that it can be used, and how it was met."""
        ...

    def note_failure(self, instance: Instance, error: BaseException, /) -> None:
        """Hear that it could not be started."""
        ...

    def retire(self, instance: Instance, reason: str, /, *, is_fault: bool = False) -> None:
        """Give it no more calls, and ask it to end; a fault of the server's own is remembered."""
        ...

    def may_leave(self, instance: Instance, /) -> bool:
        """Whether it has been idle for long enough."""
        ...


async def live(instance: Instance, spec: ServerSpec, manner: Manner, keeper: Keeper) -> None:
    """Live a whole life. If the server cannot be met in this manner, try another; every failure is the keeper's."""
    with instance.starting:
        try:
            if (other := await _live(instance, spec, manner, keeper)) is not None:
                await _live(instance, spec, other, keeper)
        except Exception as error:  # noqa: BLE001 (a server may fail in any way; each is its own failure)
            keeper.note_failure(instance, error)


async def _live(instance: Instance, spec: ServerSpec, manner: Manner, keeper: Keeper) -> Manner | None:
    """Meet the server and stay with it, or return the manner in which to meet it instead."""
    other: Manner | None = None
    try:
        async with _open_wire(spec, instance, manner, keeper) as wire:
            try:
                await _meet(instance, wire, manner, keeper, spec.name)
            except BaseException as error:
                # Told before its processes are ended, which takes a while: whoever waits need not.
                if (other := manner.after(error, spec)) is None:
                    keeper.note_failure(instance, error)
                raise
            async with anyio.create_task_group() as tasks:
                assert instance.greeting is not None
                tasks.start_soon(follow_server, wire, instance.greeting, instance.wishes)
                await _stay(instance, spec, keeper)
                tasks.cancel_scope.cancel()
            await _drain(instance)
    except Exception as error:
        if (other := other or (None if instance.settled.is_set() else manner.after(error, spec))) is None:
            raise
    return other


async def _meet(instance: Instance, wire: Wire, manner: Manner, keeper: Keeper, server: str) -> None:
    instance.wire = wire
    instance.greeting = await greet(wire, probes=manner.probes)
    if not instance.is_mirror:
        # In another era the same tools may look different, and would seem to change to and fro.
        tools = await fetch_tools(wire, instance.greeting, server)
        await keeper.learn(tools, instance.greeting.build, instance.greeting.description)
    instance.starting.deadline = math.inf
    instance.ready_at = time.monotonic()
    instance.wishes = keeper.wishes_of(instance)
    keeper.note_ready(instance, Manner(is_sse=manner.is_sse, probes=instance.greeting.takes_probes))


async def _stay(instance: Instance, spec: ServerSpec, keeper: Keeper) -> None:
    """Keep it until it is stopped, gone, deaf, or idle for long enough."""
    while not instance.stopping.is_set():
        with anyio.move_on_after(min(PING_S, max(0.05, spec.idle_s / 4))):
            await instance.stopping.wait()
        if instance.stopping.is_set() or instance.in_flight:
            continue
        if keeper.may_leave(instance):
            keeper.retire(instance, "idle")
        elif not await instance.answers(PING_LIMIT_S) and not instance.in_flight:
            keeper.retire(instance, f"it answered no ping within {PING_LIMIT_S:g} s", is_fault=True)


async def _drain(instance: Instance) -> None:
    """Wait until its calls are answered, or cannot be."""
    while instance.in_flight and not instance.is_lost:  # noqa: ASYNC110 (rare, and it may end in two ways)
        await anyio.sleep(DRAIN_LOOK_S)


@asynccontextmanager
async def _open_wire(spec: ServerSpec, instance: Instance, manner: Manner, keeper: Keeper) -> AsyncIterator[Wire]:
    """Reach the server by whatever transport it has."""
    on_notice = partial(keeper.take_notice, instance)

    def on_gone(reason: str) -> None:
        # One that is still being met is not given up: its greeting fails, and says what follows.
        if instance.settled.is_set():
            keeper.retire(instance, reason)

    if spec.command is not None:
        async with open_stdio_server(spec, on_notice=on_notice, on_gone=on_gone) as server:
            instance.process = server
            yield server.peer
    elif manner.is_sse:
        async with open_sse_server(spec, on_notice=on_notice, on_gone=on_gone) as wire:
            yield wire
    else:
        async with open_http_server(spec, keeper.limits, on_notice=on_notice, on_gone=on_gone) as streamable:
            yield streamable
