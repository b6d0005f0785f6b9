"""One connection, without a wire and with a clock of its own: what it keeps, what it does when nothing comes."""

from typing import Any

import pytest

from tests.hostile.attacks import assert_linear, thread_cpu_s
from toolpost.endpoints.http.connection import (
    BODY_RATE,
    EVENTS_LIMIT,
    KEEP_ALIVE_S,
    STALL_BYTES,
    STALL_S,
    ServerConnection,
)
from toolpost.endpoints.http.connection_limits import ConnectionLimits, Connections
from toolpost.endpoints.http.event_log import EventLog

HEAD = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"


class Clock:
    """A loop whose time is ours."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Any]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, after_s: float, callback: Any) -> Any:
        timer = _Timer()
        self.timers.append((self.now + after_s, (timer, callback)))
        return timer

    def call_soon(self, callback: Any) -> None:
        self.call_later(0, callback)

    def pass_by(self, seconds: float) -> None:
        until = self.now + seconds
        while due := sorted((pair for pair in self.timers if pair[0] <= until), key=lambda pair: pair[0]):
            self.timers.remove(due[0])
            self.now = max(self.now, due[0][0])
            timer, callback = due[0][1]
            if not timer.is_cancelled:
                callback()
        self.now = until


class _Timer:
    is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Transport:
    """What a client would see, and how much of it is unread."""

    def __init__(self) -> None:
        self.sent = b""
        self.unsent = 0
        self.is_reading = True
        self.ended = ""

    def write(self, data: bytes) -> None:
        assert not self.ended
        self.sent += data

    def get_extra_info(self, _name: str) -> Any:
        return ("192.0.2.7", 1)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = self.ended or "half"

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def is_closing(self) -> bool:
        return self.ended in ("closed", "aborted")

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


class Endpoint:
    """Admits every plain head, and answers when it is told to."""

    body_limit = 1 << 22
    requires_token = False

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.answers_at_once = True

    def read_head(self, raw: bytes) -> Any:
        length = int(raw.rpartition(b": ")[2])
        return type("Head", (), {"length": length, "admission": type("Admission", (), {"is_valid": True})})

    def start(self, front: ServerConnection, _head: Any, body: bytes) -> bool:
        self.bodies.append(body)
        if self.answers_at_once:
            front.respond(b"{}")
        return True


class Line:
    """A connection, all of its parts."""

    def __init__(self) -> None:
        self.clock, self.transport, self.endpoint = Clock(), Transport(), Endpoint()
        self.connections = Connections(ConnectionLimits(total=100, head_timeout_s=10, body_timeout_s=30))
        config = type("Config", (), {"loaded_app": self.endpoint})
        state = type("State", (), {"connections": set(), "tasks": set()})
        loop: Any = self.clock
        self.front = ServerConnection(config, state, self.connections, loop)
        wire: Any = self.transport
        self.front.connection_made(wire)

    def send(self, data: bytes) -> None:
        self.front.data_received(data)

    def end(self) -> str:
        """How the connection ended: `half`, `closed` or `aborted`; empty while it is open."""
        return self.transport.ended


@pytest.fixture
def line() -> Line:
    return Line()


def test_a_head_in_single_bytes_costs_what_its_bytes_cost() -> None:
    def cost(size: int) -> float:
        def send() -> None:
            line = Line()
            line.send(b"POST /mcp HTTP/1.1\r\nx: ")
            for _ in range(size):
                line.send(b"a")
            assert not line.transport.sent

        return thread_cpu_s(send)

    assert_linear(cost, small=8_000)


def test_a_stranger_has_a_moment_and_a_caller_a_minute(line: Line) -> None:
    line.clock.pass_by(9)
    assert not line.end()
    line.send(HEAD % 2 + b"{}")
    assert line.endpoint.bodies == [b"{}"]
    assert line.connections.unauthenticated == 0

    line.clock.pass_by(KEEP_ALIVE_S - 1)
    assert not line.end()
    line.clock.pass_by(2)
    assert line.end() == "closed"

    stranger = Line()
    stranger.clock.pass_by(11)
    assert stranger.end() == "closed"


def test_a_head_that_comes_in_drops_has_one_deadline(line: Line) -> None:
    for _ in range(11):
        line.send(b"P" if not line.transport.sent else b"")
        line.clock.pass_by(1)

    assert line.transport.sent.startswith(b"HTTP/1.1 408 ")
    assert line.end() == "half"
    line.clock.pass_by(3)
    assert line.end() == "aborted"


@pytest.mark.parametrize(("rate", "is_whole"), [(1, False), (BODY_RATE // 4, False), (BODY_RATE + 100, True)])
def test_a_body_must_make_progress(line: Line, rate: int, is_whole: bool) -> None:
    size = 250_000
    line.send(HEAD % size)
    for _ in range(size // rate + 1 if rate > 1 else 100):
        if line.transport.sent:
            break
        line.send(b"a" * rate)
        line.clock.pass_by(1)

    assert line.transport.sent.startswith(b"HTTP/1.1 200 " if is_whole else b"HTTP/1.1 408 ")


def test_what_comes_behind_a_request_is_kept_once_and_not_read_on(line: Line) -> None:
    line.endpoint.answers_at_once = False
    line.send(HEAD % 1 + b"1" + HEAD % 1 + b"2" + HEAD % 1)
    assert (line.endpoint.bodies, line.transport.is_reading) == ([b"1"], False)

    line.front.respond(b"{}")
    line.clock.pass_by(0)
    assert (line.endpoint.bodies, line.transport.is_reading) == ([b"1", b"2"], False)

    line.front.respond(b"{}")
    line.clock.pass_by(0)
    assert line.transport.is_reading
    line.send(b"3")
    assert line.endpoint.bodies == [b"1", b"2", b"3"]


def test_a_client_that_does_not_read_is_asked_no_more_and_cut_off(line: Line) -> None:
    line.endpoint.answers_at_once = False
    line.send(HEAD % 1 + b"1")
    line.transport.unsent = 1 << 20
    line.front.pause_writing()
    line.front.respond(b"{}")
    assert not line.transport.is_reading

    line.clock.pass_by(STALL_S - 1)
    line.transport.unsent -= STALL_BYTES
    line.clock.pass_by(STALL_S)
    assert not line.end()
    line.clock.pass_by(STALL_S)
    assert line.end() == "aborted"
    assert line.connections.refused.value("stalled") == 1


def test_a_client_that_reads_again_goes_on(line: Line) -> None:
    line.endpoint.answers_at_once = False
    line.send(HEAD % 1 + b"1")
    line.front.pause_writing()
    line.send(HEAD % 1 + b"2")
    line.front.respond(b"{}")
    line.clock.pass_by(1)
    assert line.endpoint.bodies == [b"1"]

    line.front.resume_writing()
    line.clock.pass_by(KEEP_ALIVE_S)
    assert line.endpoint.bodies == [b"1", b"2"]
    assert not line.end()


def test_events_that_nobody_reads_end_the_connection(line: Line) -> None:
    line.endpoint.answers_at_once = False
    line.send(HEAD % 1 + b"1")
    send = line.front.sender(lambda: EventLog("s", primes=False))
    line.front.pause_writing()
    send(b"{}")
    assert not line.end()

    line.transport.unsent = EVENTS_LIMIT + 1
    send(b"{}")
    assert line.end() == "aborted"


def test_a_refused_client_is_read_from_only_for_a_while(line: Line) -> None:
    line.send(b"GET / HTTP/1.1\r\nno colon\r\n\r\n")
    assert line.transport.sent.startswith(b"HTTP/1.1 400 ")
    for _ in range(10):
        line.send(b"a" * 65_536)

    assert not line.transport.is_reading
    line.clock.pass_by(5)
    assert line.end() == "aborted"


def test_a_caller_whose_message_is_refused_may_send_more_of_it(line: Line) -> None:
    line.front.authenticate()
    line.send(b"GET / HTTP/1.1\r\nno colon\r\n\r\n")
    for _ in range(100):
        line.send(b"a" * 65_536)
    assert line.transport.is_reading

    line.clock.pass_by(60)
    assert line.end() == "half"
    for _ in range(1_000):
        line.send(b"a" * 65_536)
    assert not line.transport.is_reading


def test_few_refused_connections_linger_at_once() -> None:
    line = Line()
    line.connections.lingering = 1_000
    line.send(b"\x16\x03\x01")

    assert line.end() == "closed"


def test_an_unread_last_answer_does_not_hold_a_connection_forever(line: Line) -> None:
    line.send(HEAD % 1 + b"1")
    line.transport.unsent = 1_000
    line.front.shutdown()
    assert line.end() == "closed"

    line.clock.pass_by(STALL_S + 1)
    assert line.end() == "aborted"


def test_a_whole_connection_is_forgotten(line: Line) -> None:
    line.send(HEAD % 100 + b"1")
    assert line.connections.unauthenticated == 1
    line.front.connection_lost(None)

    assert len(line.connections) == 0
    line.clock.pass_by(100)
    assert not line.end()


def test_events_have_ids_and_are_kept_with_the_answer(line: Line) -> None:
    line.endpoint.answers_at_once = False
    line.send(HEAD % 1 + b"1")
    log = EventLog("s", primes=True)
    line.front.sender(lambda: log)(b"{1}")
    line.front.respond(b"{2}")

    written = line.transport.sent
    assert written.count(b"id: s:") == 3
    assert b"retry: 1000" in written
    assert log.may_resume(0)
    assert log.ended_at is not None
