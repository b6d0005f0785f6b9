"""How many connections there may be, and which is closed when there is no room."""

import ipaddress

import pytest

from toolpost.endpoints.http.connection_limits import BUFFER_LIMIT, ConnectionLimits, Connections, default_total


class Socket:
    """A connection without a wire."""

    def __init__(self, *, idle_since: float | None = None) -> None:
        self.buffered = 0
        self.idle_since = idle_since
        self.is_closed = False

    def evict(self) -> None:
        self.is_closed = True


def opened(connections: Connections, count: int, address: str = "127.0.0.1") -> list[Socket]:
    sockets = [Socket() for _ in range(count)]
    assert all(connections.open(socket, address) for socket in sockets)
    return sockets


def closed(sockets: list[Socket]) -> list[int]:
    return [number for number, socket in enumerate(sockets) if socket.is_closed]


def test_strangers_displace_the_oldest_of_themselves_and_no_caller() -> None:
    connections = Connections(ConnectionLimits(total=8))
    callers = opened(connections, 4)
    for caller in callers:
        connections.authenticate(caller)
    strangers = opened(connections, 10)

    assert closed(callers) == []
    assert closed(strangers) == [0, 1, 2, 3, 4, 5]
    assert (len(connections), connections.unauthenticated) == (8, 4)


def test_callers_may_take_every_place_and_the_longest_idle_gives_way() -> None:
    connections = Connections(ConnectionLimits(total=4))
    callers = [Socket(idle_since=since) for since in (3.0, None, 1.0, 2.0)]
    for caller in callers:
        assert connections.open(caller, None)
        connections.authenticate(caller)
    assert closed(callers) == []

    opened(connections, 1)

    assert closed(callers) == [2]


def test_a_newcomer_is_refused_only_where_every_place_is_a_callers_and_busy() -> None:
    connections = Connections(ConnectionLimits(total=2))
    for _ in range(2):
        connections.authenticate(opened(connections, 1)[0])

    assert not connections.open(Socket(), None)
    assert connections.refused.value("total") == 1
    assert len(connections) == 2


def test_an_address_has_a_limit_of_its_own_and_loopback_and_proxies_have_none() -> None:
    proxies = [ipaddress.ip_network("10.1.0.0/16")]
    connections = Connections(ConnectionLimits(total=100, per_address=2, trusted=proxies))
    crowd = opened(connections, 3, "192.0.2.7")
    others = opened(connections, 2, "192.0.2.8")
    mapped = opened(connections, 1, "::ffff:192.0.2.8")
    neighbours = [*opened(connections, 2, "2001:db8::1"), *opened(connections, 1, "2001:db8::ffff:1")]
    local = [
        *opened(connections, 10, "127.0.0.2"),
        *opened(connections, 10, "::1"),
        *opened(connections, 5, "10.1.2.3"),
    ]

    assert closed(crowd) == [0]
    assert closed([*others, *mapped]) == [0]
    assert closed(neighbours) == [0]
    assert closed(local) == []


def test_a_caller_is_not_displaced_by_strangers_at_the_same_address() -> None:
    connections = Connections(ConnectionLimits(total=100, per_address=2))
    caller = opened(connections, 1, "192.0.2.7")[0]
    connections.authenticate(caller)
    strangers = opened(connections, 5, "192.0.2.7")

    assert not caller.is_closed
    assert closed(strangers) == [0, 1, 2, 3]
    connections.authenticate(strangers[-1])
    assert not connections.open(Socket(), "192.0.2.7")
    connections.close(caller)
    assert connections.open(Socket(), "192.0.2.7")


def test_what_strangers_have_kept_is_bounded_for_all_of_them_together() -> None:
    connections = Connections(ConnectionLimits(total=10_000))
    share = BUFFER_LIMIT // 4
    strangers = opened(connections, 6)

    assert connections.set_buffered(strangers[0], 10)
    kept = [connections.set_buffered(stranger, share) for stranger in strangers[1:]]

    assert kept == [True] * 5
    assert closed(strangers) == [0, 1]
    connections.authenticate(strangers[2])
    assert connections.set_buffered(strangers[3], 2 * share)
    assert closed(strangers) == [0, 1]
    assert not connections.set_buffered(strangers[3], 5 * share)
    assert strangers[3].is_closed


def test_everything_that_was_counted_is_forgotten() -> None:
    connections = Connections(ConnectionLimits(total=8))
    sockets = opened(connections, 20, "192.0.2.7")
    connections.authenticate(sockets[-1])
    for socket in sockets:
        connections.set_buffered(socket, 5)
        connections.close(socket)

    assert len(connections) == 0
    assert vars(connections)["_by_address"] == {}
    assert vars(connections)["_buffering"] == {}
    assert (vars(connections)["_buffered"], vars(connections)["_buffered_authenticated"]) == (0, 0)


@pytest.mark.parametrize(("descriptors", "total"), [(256, 192), (1024, 768), (20_000, 10_000), (1, 1)])
def test_a_quarter_of_the_descriptors_is_left_to_others(descriptors: int, total: int) -> None:
    assert default_total(descriptors) == total
