"""One running server: the transport to it, what it said about itself, who is using it."""

import sys
import time
from dataclasses import dataclass, field
from typing import Final

import anyio
import psutil

from toolpost.base.ids import CallerId
from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.upstreams.changes import InstanceSubscriptions
from toolpost.upstreams.handshake import Negotiation
from toolpost.upstreams.peer import Peer
from toolpost.upstreams.stdio import ServerProcess
from toolpost.upstreams.transport import ServerRefused, Transport

START_LIMIT_S: Final = 30.0

HANDSHAKE_SUFFIX: Final = "\thandshake"
"""Ends the key of an instance that callers of the handshake era have beside the one that everybody uses."""

_TICK_S: Final = 0.02


@dataclass(kw_only=True, eq=False)
class Instance:
    """A server while it lives. Callers hold it from `acquire` to `release`."""

    key: str
    transport: Transport | None = None
    negotiation: Negotiation | None = None
    process: ServerProcess | None = None
    began_at: float = field(default_factory=time.monotonic)
    starting: anyio.CancelScope = field(default_factory=lambda: _make_deadline(START_LIMIT_S))
    """Has a deadline until the server is ready."""
    settled: anyio.Event = field(default_factory=anyio.Event)
    """Set when it is known whether it started."""
    failure: UpstreamUnavailable | None = None
    stopping: anyio.Event = field(default_factory=anyio.Event)
    is_over: bool = False
    in_flight: int = 0
    callers: set[CallerId] = field(default_factory=set)
    """Whose calls it has had; of more than two it is only known that they are several."""
    has_served: bool = False
    used_at: float = field(default_factory=time.monotonic)
    ready_at: float | None = None
    subscriptions: InstanceSubscriptions = field(default_factory=InstanceSubscriptions)

    def acquire(self, caller: CallerId | None) -> "Instance":
        """Count a call, so that nobody stops the server under it."""
        self.in_flight += 1
        self.has_served = True
        if caller is not None and len(self.callers) < 2:
            self.callers.add(caller)
        return self

    def release(self) -> None:
        """Note that a call is over."""
        self.in_flight -= 1
        self.used_at = time.monotonic()

    @property
    def is_handshake_only(self) -> bool:
        """Whether it was met by a handshake although the server knows the other era too."""
        return self.key.endswith(HANDSHAKE_SUFFIX)

    def linger(self) -> None:
        """Read what a server that is quick says at once."""
        if self.process is not None:
            self.process.linger()

    def stop(self) -> None:
        """Ask it to end; one that is still starting need not go on with that."""
        self.stopping.set()
        if not self.settled.is_set():
            self.starting.cancel()

    @property
    def is_lost(self) -> bool:
        """Whether its process is gone, or can no longer be talked to."""
        return self.process is not None and self.process.gone.is_set()

    @property
    def last_words(self) -> tuple[str, ...]:
        """The last lines of its stderr."""
        return tuple(self.process.last_words) if self.process else ()

    @property
    def oddities(self) -> int:
        """How often it said something that makes no sense."""
        return self.transport.oddities if isinstance(self.transport, Peer) else 0

    @property
    def pid(self) -> int | None:
        """The process, for a server that is one of ours."""
        return self.process.process.pid if self.process else None

    @property
    def memory_bytes(self) -> int | None:
        """What the process and its children hold."""
        if self.pid is None:
            return None
        try:
            root = psutil.Process(self.pid)
            return sum(p.memory_info().rss for p in (root, *root.children(recursive=True)))
        except psutil.Error:
            return None

    def has_children_since(self, moment: float) -> bool:
        """Whether the server runs processes that it has started since this moment of `now`."""
        if self.pid is None:
            return False
        try:
            children = psutil.Process(self.pid).children(recursive=True)
            return any(_start_time_of(child) >= moment - _TICK_S for child in children)
        except psutil.Error:
            return False

    async def answers(self, limit_s: float) -> bool:
        """Ask for a sign of life, in the words of the server's era."""
        assert self.transport is not None
        assert self.negotiation is not None
        try:
            with anyio.fail_after(limit_s):
                await self.transport.request("server/discover" if self.negotiation.is_modern else "ping")
        except (TimeoutError, UpstreamUnavailable):
            return False
        except ServerRefused:
            return True
        return True


def _make_deadline(limit_s: float) -> anyio.CancelScope:
    return anyio.CancelScope(deadline=anyio.current_time() + limit_s)


def now() -> float:
    """Return the time as `has_children_since` counts it."""
    # On Linux a process knows when it started by this clock; psutil makes wall time of it, off by up to a second.
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.time()


def _start_time_of(process: psutil.Process) -> float:
    return process.create_time() - psutil.boot_time() if sys.platform == "linux" else process.create_time()
