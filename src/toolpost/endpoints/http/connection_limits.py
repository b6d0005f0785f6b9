"""How many connections there may be, and which one is closed when there is no room: an unauthenticated one, if there is any.

A connection is *authenticated* once a request on it was admitted: with a valid token, or, where no token is asked for, as a whole
request. Others may take half of the places. When those are taken, the next connection is not refused: the oldest that has not
authenticated is closed instead. So a flood of connections that send nothing useful only ever displaces itself, and a caller with
a valid token gets in: its connection would have to see half of all places opened anew before its first request is read.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

from toolpost.endpoints.http.descriptors import Alarm
from toolpost.metrics import Metrics

MOST_CONNECTIONS: Final = 10_000
"""What nobody has set a higher number for: each costs memory, and an event loop serves only so many."""

HELD_LIMIT: Final = 32 * 1024 * 1024
"""Bytes of unfinished requests that are kept for all connections together that have not authenticated."""

HELD_LIMIT_KNOWN: Final = 512 * 1024 * 1024
"""The same for those that have."""

LINGER_LIMIT: Final = 128
"""Connections that may wait at once for their client to read why it was refused; more are cut off."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """Bounds on connections and on the time of a request."""

    total: int = 768
    per_address: int = 192
    trusted: Sequence[Network] = ()
    """Proxies, which stand for many clients."""
    head_timeout_s: float = 10.0
    body_timeout_s: float = 30.0

    @cached_property
    def unauthenticated(self) -> int:
        """How many of all may be connections that have not authenticated."""
        return max(1, self.total // 2)


def default_total(descriptors: int) -> int:
    """Say how many connections fit into a limit on descriptors: a quarter is left to servers, the store and modules."""
    return max(1, min(MOST_CONNECTIONS, descriptors * 3 // 4))


class Connection(Protocol):
    """A connection, as far as it is counted here."""

    held: int
    """How many bytes of an unfinished request it keeps."""

    @property
    def idle_since(self) -> float | None:
        """When its last request ended; None while one is on."""
        ...

    def evict(self) -> None:
        """Close it at once: `close` is called from here or soon after."""
        ...


class Connections:
    """Every open connection of a listener."""

    def __init__(self, limits: ConnectionLimits, metrics: Metrics | None = None) -> None:
        self.limits = limits
        self.refused = (metrics or Metrics()).connections_refused
        self.lingering = 0
        # Both are in the order in which they were opened: the oldest is the first.
        self._unauthenticated: dict[Connection, str | None] = {}
        self._authenticated: dict[Connection, str | None] = {}
        self._by_address: dict[str, dict[Connection, None]] = {}
        self._holding: dict[Connection, None] = {}
        self._held = 0
        self._held_known = 0
        self._full = Alarm("connections are full")

    def __len__(self) -> int:
        """How many are open."""
        return len(self._unauthenticated) + len(self._authenticated)

    @property
    def unauthenticated(self) -> int:
        """How many of them have not authenticated."""
        return len(self._unauthenticated)

    def open(self, connection: Connection, address: str | None) -> bool:
        """Count a new connection, closing others if there is no room; False if there is none for this one."""
        key = self._key_of(address)
        if not self._make_room_at(key) or not self._make_room():
            return False
        self._unauthenticated[connection] = key
        if key is not None:
            self._by_address.setdefault(key, {})[connection] = None
        return True

    def authenticate(self, connection: Connection) -> None:
        """Count a connection among those that are not displaced by others."""
        if connection in self._unauthenticated:
            held = connection.held
            self.hold(connection, 0)
            self._authenticated[connection] = self._unauthenticated.pop(connection)
            self.hold(connection, held)

    def close(self, connection: Connection) -> None:
        """Count a connection no longer; one that was not counted is ignored."""
        self.hold(connection, 0)
        known = self._authenticated if connection in self._authenticated else self._unauthenticated
        key = known.pop(connection, None)
        if key is not None and (there := self._by_address.get(key)) is not None:
            there.pop(connection, None)
            if not there:
                del self._by_address[key]

    def hold(self, connection: Connection, size: int) -> bool:
        """Note how much of an unfinished request a connection keeps; False if there is no room for it.

        What unauthenticated connections keep is bounded for all of them together: beyond that, the one is closed that has kept
        something for the longest time, which may be this one.
        """
        more, connection.held = size - connection.held, size
        if connection in self._authenticated:
            self._held_known += more
            return self._held_known <= HELD_LIMIT_KNOWN
        self._held += more
        if not size:
            self._holding.pop(connection, None)
            return True
        self._holding[connection] = None
        while self._held > HELD_LIMIT and self._holding:
            oldest = next(iter(self._holding))
            self._displace(oldest, "memory")
        return connection in self._holding

    def displace(self, count: int) -> int:
        """Close the oldest connections that have not authenticated, and say how many those were."""
        oldest = list(self._unauthenticated)[:count]
        for connection in oldest:
            self._displace(connection, "descriptors")
        return len(oldest)

    def _make_room(self) -> bool:
        limits = self.limits
        if len(self._unauthenticated) >= limits.unauthenticated or (
            len(self) >= limits.total and self._unauthenticated
        ):
            self._full.ring(connections=len(self), unauthenticated=len(self._unauthenticated), limit=limits.total)
            self._displace(next(iter(self._unauthenticated)), "displaced")
        if len(self) < limits.total:
            return True
        return self._close_idle(max(1, limits.total // 16))

    def _make_room_at(self, key: str | None) -> bool:
        there = self._by_address.get(key) if key is not None else None
        if there is None or len(there) < self.limits.per_address:
            return True
        oldest = next((connection for connection in there if connection in self._unauthenticated), None)
        if oldest is None:
            self.refused.add(of="address")
            return False
        self._displace(oldest, "displaced")
        return True

    def _close_idle(self, count: int) -> bool:
        """Close authenticated connections that have been idle for longest: their clients open new ones.

        Several at once, because finding them takes a look at all.
        """
        idle = [
            (since, connection) for connection in self._authenticated if (since := connection.idle_since) is not None
        ]
        idle.sort(key=lambda pair: pair[0])
        for _, connection in idle[:count]:
            self._displace(connection, "idle")
        if not idle:
            self._full.ring(connections=len(self), unauthenticated=len(self._unauthenticated), limit=self.limits.total)
            self.refused.add(of="total")
        return bool(idle)

    def _displace(self, connection: Connection, why: str) -> None:
        self.refused.add(of=why)
        self.close(connection)
        connection.evict()

    def _key_of(self, address: str | None) -> str | None:
        """Return what an address is counted under; None if it has no limit of its own."""
        if address is None:
            return None
        ip = ipaddress.ip_address(address.partition("%")[0])
        if isinstance(ip, ipaddress.IPv6Address):
            ip = ip.ipv4_mapped or ip
        if ip.is_loopback or any(ip in network for network in self.limits.trusted):
            return None
        if isinstance(ip, ipaddress.IPv6Address):
            # Whoever has one address of IPv6 has 2 to the power of 64.
            return str(ipaddress.IPv6Network((ip, 64), strict=False))
        return str(ip)
