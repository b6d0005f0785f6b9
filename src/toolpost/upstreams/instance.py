"""One running instance of a server: its transport, its process, and the calls on it."""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import anyio
import psutil

from toolpost.base.ids import CallerId, JsonObject
from toolpost.contracts.errors import CredentialRequired, LoginRequired, UpstreamUnavailable
from toolpost.upstreams.changes import InstanceSubscriptions
from toolpost.upstreams.handshake import Negotiation
from toolpost.upstreams.stdio import ServerProcess
from toolpost.upstreams.transport import ServerRefused, Transport, UpstreamRequest

START_LIMIT_S: Final = 30.0

HANDSHAKE_SUFFIX: Final = "\thandshake"
"""Ends the key of the second instance, for callers of the handshake era (see `pool`)."""

_TICK_S: Final = 0.02
"""Start times of processes are known to a clock tick, which is 10 ms on Linux."""


@dataclass(kw_only=True, eq=False)
class Instance:
    """A running or starting instance. A call uses it from `acquire` to `release`."""

    key: str
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """With which it was started, to see whether the owner's values have changed since."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    declared: JsonObject = field(default_factory=dict)
    """The client's extensions that a handshake declares to the server."""
    transport: Transport | None = None
    negotiation: Negotiation | None = None
    process: ServerProcess | None = None
    began_at: float = field(default_factory=time.monotonic)
    starting: anyio.CancelScope = field(
        default_factory=lambda: anyio.CancelScope(deadline=anyio.current_time() + START_LIMIT_S)
    )
    """Has a deadline until the instance is ready, and none afterwards."""
    settled: anyio.Event = field(default_factory=anyio.Event)
    """Set when the start has succeeded or failed."""
    failure: UpstreamUnavailable | LoginRequired | CredentialRequired | None = None
    stopping: anyio.Event = field(default_factory=anyio.Event)
    is_over: bool = False
    in_flight: int = 0
    callers: set[CallerId] = field(default_factory=set)
    """The callers that have used it. Stops at two, which is enough to know that they are several."""
    has_served: bool = False
    used_at: float = field(default_factory=time.monotonic)
    ready_at: float | None = None
    subscriptions: InstanceSubscriptions = field(default_factory=InstanceSubscriptions)

    def acquire(self, caller: CallerId | None) -> "Instance":
        """Count a call in flight, so that the instance is not stopped under it; returns the instance."""
        self.in_flight += 1
        self.has_served = True
        if caller is not None and len(self.callers) < 2:
            self.callers.add(caller)
        return self

    def release(self) -> None:
        self.in_flight -= 1
        self.used_at = time.monotonic()

    @property
    def is_handshake_only(self) -> bool:
        """Whether it was opened by a handshake although the server knows the stateless era too."""
        return self.key.endswith(HANDSHAKE_SUFFIX)

    def spin(self) -> None:
        """Poll the output of the process for a moment; see `ServerProcess.spin`."""
        if self.process is not None:
            self.process.spin()

    def stop(self) -> None:
        """Ask it to end after its calls; a start in progress is cancelled."""
        self.stopping.set()
        if not self.settled.is_set():
            self.starting.cancel()

    @property
    def is_lost(self) -> bool:
        """Whether its process is gone, or has closed its pipes."""
        return self.process is not None and self.process.gone.is_set()

    @property
    def stderr_tail(self) -> tuple[str, ...]:
        """The last lines of its stderr."""
        return tuple(self.process.stderr_tail) if self.process else ()

    @property
    def protocol_errors(self) -> int:
        """How many of its messages made no sense; 0 over HTTP."""
        return (
            self.process.peer.protocol_errors
            if self.process is not None
            else getattr(self.transport, "protocol_errors", 0)
        )

    @property
    def pid(self) -> int | None:
        """The process id of a server that was started by a command, None for any other."""
        return self.process.process.pid if self.process else None

    @property
    def memory_bytes(self) -> int | None:
        """Resident memory of the process and its descendants; None if there is no process."""
        if self.pid is None:
            return None
        try:
            root = psutil.Process(self.pid)
            return sum(p.memory_info().rss for p in (root, *root.children(recursive=True)))
        except psutil.Error:
            return None

    def has_children_since(self, moment: float) -> bool:
        """Whether the server runs processes that it started after a moment as `now` returns it."""
        if self.pid is None:
            return False
        try:
            children = psutil.Process(self.pid).children(recursive=True)
            # psutil adds the boot time, which `now` does not have on Linux.
            offset = psutil.boot_time() if sys.platform == "linux" else 0.0
            return any(child.create_time() - offset >= moment - _TICK_S for child in children)
        except psutil.Error:
            return False

    async def answers(self, limit_s: float) -> bool:
        """Ping the server, with a request of its era; any answer counts, also an error."""
        assert self.transport is not None
        assert self.negotiation is not None
        try:
            with anyio.fail_after(limit_s):
                await self.transport.request(
                    UpstreamRequest("server/discover" if self.negotiation.is_stateless else "ping")
                )
        except (TimeoutError, UpstreamUnavailable):
            return False
        except (ServerRefused, LoginRequired, CredentialRequired):
            # An error is an answer: the server is alive. A login that has expired says nothing about it; the next call reports it
            pass
        return True


def now() -> float:
    """Return the time on the clock that `has_children_since` compares with."""
    # Linux records process starts on this clock; psutil converts them to wall time, which is off by up to a second.
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.time()
