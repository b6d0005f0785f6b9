"""How many connections may be open, and which one is closed when there is no room: an unauthenticated one, if there is any.

A connection is *authenticated* once a request on it was admitted: with a valid token, or, where no token is required, as a
whole request. The others may take half of the places. When those are taken, the next connection is not refused; the oldest
unauthenticated one is closed instead. So a flood of connections that send nothing useful only displaces itself, and a caller
with a valid token gets in: before its first request is read, half of all places would have to be opened again.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

from toolpost.endpoints.http.descriptors import ThrottledEvent
from toolpost.metrics import Metrics

MOST_CONNECTIONS: Final = 10_000
"""The default at most: each costs memory, and an event loop serves only so many."""

BUFFER_LIMIT: Final = 32 * 1024 * 1024
"""Bytes of incomplete requests that are buffered for all unauthenticated connections together."""

BUFFER_LIMIT_AUTHENTICATED: Final = 512 * 1024 * 1024
"""The same for authenticated ones."""

LINGER_LIMIT: Final = 128
"""Connections that may wait at once for their client to read a refusal; more are closed at once."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """Limits on connections, and on the time that a request may take to arrive."""

    total: int = 768
    per_address: int = 192
    trusted: Sequence[Network] = ()
    """Networks of proxies, which stand for many clients and have no limit per address."""
    head_timeout_s: float = 10.0
    body_timeout_s: float = 30.0

    @cached_property
    def unauthenticated(self) -> int:
        """How many of all connections may be unauthenticated."""
        return max(1, self.total // 2)


def address_key(address: str | None, trusted: Sequence[Network]) -> str | None:
    """Return what an address is counted under; None if it has no limit of its own. Raises `ValueError` if it is none."""
    if address is None:
        return None
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or ip
    if ip.is_loopback or any(ip in network for network in trusted):
        return None
    if isinstance(ip, ipaddress.IPv6Address):
        # A client with one IPv6 address usually has the whole /64.
        return str(ipaddress.IPv6Network((ip, 64), strict=False))
    return str(ip)


def default_total(descriptors: int) -> int:
    """Return how many connections fit into a limit on descriptors: a quarter is left to servers, the store and modules."""
    return max(1, min(MOST_CONNECTIONS, descriptors * 3 // 4))


class TrackedConnection(Protocol):
    """A connection, as it is counted here."""

    buffered: int
    """Bytes of an incomplete request that it buffers."""

    @property
    def idle_since(self) -> float | None:
        """When its last request ended, by the clock of the event loop; None while one is in progress."""
        ...

    def evict(self) -> None:
        """Close at once; calls `Connections.close`, now or soon after."""
        ...


class Connections:
    """Every open connection of a listener."""

    def __init__(self, limits: ConnectionLimits, metrics: Metrics | None = None) -> None:
        self.limits = limits
        self.refused = (metrics or Metrics()).connections_refused
        self.lingering = 0
        # Both are ordered by when they were opened, the oldest first.
        self._unauthenticated: dict[TrackedConnection, str | None] = {}
        self._authenticated: dict[TrackedConnection, str | None] = {}
        self._by_address: dict[str, dict[TrackedConnection, None]] = {}
        self._buffering: dict[TrackedConnection, None] = {}
        self._buffered = 0
        self._buffered_authenticated = 0
        self._full = ThrottledEvent("connections are full")

    def __len__(self) -> int:
        return len(self._unauthenticated) + len(self._authenticated)

    @property
    def unauthenticated(self) -> int:
        """How many are unauthenticated."""
        return len(self._unauthenticated)

    def open(self, connection: TrackedConnection, address: str | None) -> bool:
        """Count a new connection, closing others if there is no room; False if it must be refused."""
        key = address_key(address, self.limits.trusted)
        if not self._make_room_at(key) or not self._make_room():
            return False
        self._unauthenticated[connection] = key
        if key is not None:
            self._by_address.setdefault(key, {})[connection] = None
        return True

    def authenticate(self, connection: TrackedConnection) -> None:
        """Count a connection among those that others do not displace."""
        if connection in self._unauthenticated:
            buffered = connection.buffered
            self.set_buffered(connection, 0)
            self._authenticated[connection] = self._unauthenticated.pop(connection)
            self.set_buffered(connection, buffered)

    def close(self, connection: TrackedConnection) -> None:
        """Count a connection no longer; does nothing for one that is not counted."""
        self.set_buffered(connection, 0)
        group = self._authenticated if connection in self._authenticated else self._unauthenticated
        key = group.pop(connection, None)
        if key is not None and (at_address := self._by_address.get(key)) is not None:
            at_address.pop(connection, None)
            if not at_address:
                del self._by_address[key]

    def set_buffered(self, connection: TrackedConnection, size: int) -> bool:
        """Set how much of an incomplete request a connection buffers; False if there is no room for it.

        What unauthenticated connections buffer is bounded for all of them together: beyond that, the one is closed that has
        buffered something for the longest time, which may be this one.
        """
        more, connection.buffered = size - connection.buffered, size
        if connection in self._authenticated:
            self._buffered_authenticated += more
            return self._buffered_authenticated <= BUFFER_LIMIT_AUTHENTICATED
        self._buffered += more
        if not size:
            self._buffering.pop(connection, None)
            return True
        self._buffering[connection] = None
        while self._buffered > BUFFER_LIMIT and self._buffering:
            oldest = next(iter(self._buffering))
            self._displace(oldest, "memory")
        return connection in self._buffering

    def displace(self, count: int) -> int:
        """Close the oldest unauthenticated connections, at most `count`, and return how many were closed."""
        oldest = list(self._unauthenticated)[:count]
        for connection in oldest:
            self._displace(connection, "descriptors")
        return len(oldest)

    def _make_room(self) -> bool:
        limits = self.limits
        if len(self._unauthenticated) >= limits.unauthenticated or (
            len(self) >= limits.total and self._unauthenticated
        ):
            self._full.log(connections=len(self), unauthenticated=len(self._unauthenticated), limit=limits.total)
            self._displace(next(iter(self._unauthenticated)), "displaced")
        if len(self) < limits.total:
            return True
        return self._close_idle(max(1, limits.total // 16))

    def _make_room_at(self, key: str | None) -> bool:
        at_address = self._by_address.get(key) if key is not None else None
        if at_address is None or len(at_address) < self.limits.per_address:
            return True
        oldest = next((connection for connection in at_address if connection in self._unauthenticated), None)
        if oldest is None:
            self.refused.add(of="address")
            return False
        self._displace(oldest, "displaced")
        return True

    def _close_idle(self, count: int) -> bool:
        """Close the authenticated connections that have been idle longest: their clients open new ones when they need them.

        Several at once, because finding them takes a look at all.
        """
        idle = [
            (since, connection) for connection in self._authenticated if (since := connection.idle_since) is not None
        ]
        idle.sort(key=lambda pair: pair[0])
        for _, connection in idle[:count]:
            self._displace(connection, "idle")
        if not idle:
            self._full.log(connections=len(self), unauthenticated=len(self._unauthenticated), limit=self.limits.total)
            self.refused.add(of="total")
        return bool(idle)

    def _displace(self, connection: TrackedConnection, reason: str) -> None:
        self.refused.add(of=reason)
        self.close(connection)
        connection.evict()
