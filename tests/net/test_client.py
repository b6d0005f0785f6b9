"""The HTTP client against servers that answer well, badly, in pieces, too much or not at all: real sockets, both loops."""

import asyncio
import contextlib
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvicorn

from tests.hostile.attacks import attack
from tests.waiting import until
from toolpost.contracts.errors import BadConfiguration
from toolpost.net.client import (
    TRUST_LIMIT_S,
    FailureKind,
    HeaderLines,
    HttpClient,
    HttpFailed,
    Response,
    StartedRequest,
)
from toolpost.net.connection import UpstreamConnection

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
EVENTS_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(params=[True, False], ids=["uvloop", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


@dataclass
class Request:
    line: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    out: asyncio.StreamWriter
    connection: int
    """The how manieth connection it came on."""

    def header(self, name: bytes) -> bytes | None:
        found = [value for known, value in self.headers if known.lower() == name]
        assert len(found) <= 1
        return found[0] if found else None

    async def write(self, *parts: bytes) -> None:
        """Write the parts so that each arrives by itself."""
        for part in parts:
            self.out.write(part)
            await self.out.drain()
            if len(parts) > 1:
                await asyncio.sleep(0)

    async def write_bytewise(self, raw: bytes) -> None:
        await self.write(*(raw[at : at + 1] for at in range(len(raw))))


Answer = Callable[[Request], Awaitable[None]]


@dataclass
class Server:
    answer: Answer
    port: int = 0
    opened: int = 0
    ended: int = 0
    most_open: int = 0
    requests: list[Request] = field(default_factory=list)
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self.tasks.add(task)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.opened += 1
        self.most_open = max(self.most_open, self.opened - self.ended)
        number = self.opened
        try:
            while True:
                await self.answer_next(reader, writer, number)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError, ssl.SSLError):
            pass
        finally:
            self.ended += 1
            self.tasks.discard(task)
            # Python 3.11 raises if the transport was closed while it had bytes to write, and has written them since.
            with contextlib.suppress(AttributeError):
                writer.transport.abort()

    async def answer_next(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        line, *rest = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
        headers = [(name, value.strip()) for name, _, value in (each.partition(b":") for each in rest)]
        length = next((int(value) for name, value in headers if name.lower() == b"content-length"), 0)
        request = Request(line, headers, await reader.readexactly(length), writer, number)
        self.requests.append(request)
        answering = asyncio.ensure_future(self.answer(request))
        # A client that leaves is to be seen while its answer is still being written.
        leaving = asyncio.ensure_future(self.is_left(reader))
        try:
            await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                await answering
            else:
                raise ConnectionResetError
        finally:
            for each in (answering, leaving):
                each.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)

    async def is_left(self, reader: asyncio.StreamReader) -> None:
        while not reader.at_eof():
            await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def serving(
    answer: Answer | bytes, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Server]:
    """Serve; plain bytes are the answer to everything."""

    async def same(request: Request) -> None:
        assert isinstance(answer, bytes)
        await request.write(answer)

    server = Server(same if isinstance(answer, bytes) else answer)
    listener = await asyncio.start_server(server.talk, host, 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in list(server.tasks):
            task.cancel()
        while server.tasks:
            await asyncio.sleep(0.001)


async def answer_of(raw: bytes, method: str = "POST", **options: Any) -> Response:
    """Return what the client makes of an answer, after which the connection is closed by the server."""

    async def answer(request: Request) -> None:
        await request.write(raw)
        request.out.close()

    async with serving(answer) as server, HttpClient(server.url, **options) as client:
        with anyio.fail_after(20):
            return await client.request(method, b"")


async def failure_of(raw: bytes, **options: Any) -> HttpFailed:
    with pytest.raises(HttpFailed) as caught:
        await answer_of(raw, **options)
    return caught.value


async def events_of(stream: bytes, cut: int = 0, **options: Any) -> list[bytes]:
    """Return the events that the client sees in a stream, sent in pieces of this size."""
    events: list[bytes] = []

    async def answer(request: Request) -> None:
        await request.write(EVENTS_HEAD)
        size = cut or len(stream)
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        await request.write(*(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces), b"0\r\n\r\n")

    async with serving(answer) as server, HttpClient(server.url, **options) as client:
        response = await client.post(b"{}", on_event=events.append)
    assert response.status == 200
    assert response.body == b""
    return events


# What goes out


async def test_request_is_written_as_http_wants_it() -> None:
    async with serving(OK) as server:
        async with HttpClient(f"http://localhost:{server.port}/a/b?c=d#e", headers={"X-Key": "k"}) as client:
            response = await client.post(b'{"a":1}', [(b"mcp-session-id", b"s1")], on_event=None)

    (request,) = server.requests
    assert response.status == 200
    assert response.body == b"{}"
    assert request.line == b"POST /a/b?c=d HTTP/1.1"
    assert request.body == b'{"a":1}'
    assert request.header(b"host") == b"localhost:%d" % server.port
    assert request.header(b"x-key") == b"k"
    assert request.header(b"mcp-session-id") == b"s1"
    assert request.header(b"content-type") == b"application/json"
    assert request.header(b"accept") == b"application/json, text/event-stream"


async def test_get_and_delete_have_no_body() -> None:
    async with serving(OK) as server, HttpClient(server.url) as client:
        await client.request("GET")
        await client.request("DELETE", headers=[(b"mcp-session-id", b"s1")])

    assert [request.line.split()[0] for request in server.requests] == [b"GET", b"DELETE"]
    assert all(request.header(b"content-length") is None for request in server.requests)


async def test_large_body_arrives_whole() -> None:
    body = bytes(range(256)) * 16_384
    async with serving(OK) as server, HttpClient(server.url) as client:
        await client.post(body)

    assert server.requests[0].body == body


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://example.org/", "example.org"),
        ("http://example.org:80/", "example.org"),
        ("https://example.org:443/", "example.org"),
        ("https://example.org:80/", "example.org:80"),
        ("http://EXAMPLE.org:8080", "example.org:8080"),
        ("http://[::1]:8080/", "[::1]:8080"),
        ("http://[::1]/", "[::1]"),
        ("http://bücher.example/", "xn--bcher-kva.example"),
    ],
)
def test_host_header_has_the_port_unless_it_is_the_default(url: str, host: str) -> None:
    client = HttpClient(url, ssl_context=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    assert client._address.authority == host


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org",
        "ftp://example.org/",
        "http://",
        "http:///mcp",
        "http://user:s3cret@example.org/",
        "http://s3cret@example.org/",
        "http://example.org:port/",
        "http://example.org:99999/",
        "http://[::1/",
        "http://exa mple.org/",
        "http://example.org/a b",
        "http://example.org/a\r\nx: y",
        "http://example.org/ä",
    ],
)
def test_bad_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        HttpClient(url)

    assert "s3cret" not in str(caught.value.as_object())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("a", "s3cret\r\nb: c"),
        ("a b", "c"),
        ("", "c"),
        ("a:", "c"),
        ("Host", "c"),
        ("ä", "c"),
        ("a", "…"),
    ],
)
def test_bad_configured_header_is_refused_without_its_value(name: str, value: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        HttpClient("http://localhost/", headers={name: value})

    assert "s3cret" not in str(caught.value.as_object())


@attack(
    "caller",
    "passes arguments that become headers of a server's request, with line breaks in them",
    "the call is refused, and nothing is written",
)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"a", b"b\r\nc: d"),
        (b"a", b"b\n"),
        (b"a", b"b\r"),
        (b"a", b"b\0"),
        (b"a\r\nb", b"c"),
        (b"", b"c"),
        (b"content-length", b"0"),
        (b"Transfer-Encoding", b"chunked"),
        (b"HOST", b"other"),
    ],
)
async def test_header_that_could_smuggle_another_is_refused(name: bytes, value: bytes) -> None:
    async with serving(OK) as server, HttpClient(server.url) as client:
        with pytest.raises(HttpFailed) as caught:
            await client.post(b"{}", [(name, value)])

    assert caught.value.kind == FailureKind.BAD_REQUEST
    assert not caught.value.sent
    assert server.opened == 0


async def test_line_break_at_the_end_of_a_configured_value_is_only_blank_space() -> None:
    async with serving(OK) as server, HttpClient(server.url, headers={"Authorization": "Bearer x\n"}) as client:
        await client.post(b"{}")

    assert server.requests[0].header(b"authorization") == b"Bearer x"


async def test_method_that_could_smuggle_is_refused() -> None:
    async with HttpClient("http://localhost/") as client:
        with pytest.raises(HttpFailed, match="no HTTP method"):
            await client.request("GET / HTTP/1.1\r\nx: y\r\n\r\nGET")


# What comes back


@pytest.mark.parametrize("status", [200, 202, 301, 307, 400, 401, 404, 500, 503])
async def test_every_status_is_an_answer(status: int) -> None:
    async def answer(request: Request) -> None:
        head = b"HTTP/1.1 %d Whatever\r\nLocation: http://127.0.0.1:1/\r\nWWW-Authenticate: Bearer x=1\r\n" % status
        await request.write(head + b"content-length: 2\r\n\r\nno")

    async with serving(answer) as server, HttpClient(server.url) as client:
        response = await client.post(b"{}")

    assert response.status == status
    assert response.body == b"no"
    assert response.headers[b"www-authenticate"] == b"Bearer x=1"
    assert response.headers[b"location"] == b"http://127.0.0.1:1/"
    assert server.opened == 1


ANSWERS = {
    "length": b"HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 5\r\n\r\nhello",
    "chunks": b"HTTP/1.1 200 OK\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\n\r\n",
    "trailers": b"HTTP/1.1 200 OK\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: z\r\nT:\r\n\r\n",
    "interim": b"HTTP/1.1 100 Continue\r\nX: 1\r\n\r\nHTTP/1.1 103 Early Hints\r\nX: 2\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nX: y \r\nEmpty:\r\nContent-Length: 5\r\n\r\nhello",
}


@pytest.mark.parametrize("raw", ANSWERS.values(), ids=ANSWERS)
async def test_answer_is_the_same_wherever_it_is_cut(raw: bytes) -> None:
    async def answer(request: Request) -> None:
        await request.write_bytewise(raw)

    async with serving(answer) as server, HttpClient(server.url) as client:
        cut = await client.post(b"{}")
        again = await client.post(b"{}")
        server.answer = lambda request: request.write(raw)
        whole = await client.post(b"{}")

    assert cut == again == whole
    assert cut.body == b"hello"
    assert cut.headers[b"x"] == b"y"
    assert server.opened == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_answer_without_a_body_leaves_the_connection_usable(raw: bytes) -> None:
    async with serving(raw) as server, HttpClient(server.url) as client:
        first = await client.post(b"{}")
        await client.post(b"{}")

    assert first.body == b""
    assert server.opened == 1


async def test_head_ends_with_its_head() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n") as server, HttpClient(server.url) as client:
        with anyio.fail_after(20):
            response = await client.request("HEAD")
            await client.request("HEAD")

    assert response.headers[b"content-length"] == b"5"
    assert response.body == b""


async def test_repeated_header_is_one_list() -> None:
    response = await answer_of(b"HTTP/1.1 200 OK\r\nVary: a\r\nvary: b\r\ncontent-length: 0\r\n\r\n")

    assert response.headers[b"vary"] == b"a, b"


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_body_without_a_length_ends_with_the_connection(version: bytes) -> None:
    response = await answer_of(b"HTTP/%b 200 OK\r\n\r\nhello" % version)

    assert response.body == b"hello"


async def test_events_without_a_length_end_with_the_connection() -> None:
    events: list[bytes] = []

    async def answer(request: Request) -> None:
        await request.write(b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: a\n\ndata: half")
        request.out.close()

    async with serving(answer) as server, HttpClient(server.url) as client:
        response = await client.post(b"{}", on_event=events.append)

    assert response.status == 200
    assert events == [b"a"]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 200 O",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        EVENTS_HEAD + b"9\r\ndata: a\n\n\r\n",
    ],
)
async def test_half_an_answer_is_a_loss(raw: bytes) -> None:
    failure = await failure_of(raw)

    assert failure.kind == FailureKind.CONNECTION_LOST
    assert failure.sent


async def test_reset_in_a_body_without_a_length_is_a_loss() -> None:
    async def answer(request: Request) -> None:
        await request.write(b"HTTP/1.1 200 OK\r\n\r\nhello")
        await asyncio.sleep(0.02)  # two writes, and not one
        request.out.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        request.out.transport.abort()

    async with serving(answer) as server, HttpClient(server.url) as client:
        with pytest.raises(HttpFailed) as caught:
            await client.post(b"{}")

    assert caught.value.kind == FailureKind.CONNECTION_LOST


@attack(
    "server",
    "answers in broken HTTP: two lengths, a length with chunks, bad chunks, an upgrade, another protocol",
    "the call fails as a malformed answer",
)
@pytest.mark.parametrize(
    "raw",
    [
        b"garbage\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
    ],
)
async def test_what_is_not_proper_http_is_told_as_such(raw: bytes) -> None:
    failure = await failure_of(raw)

    assert failure.kind == FailureKind.MALFORMED_ANSWER
    assert failure.sent


# Limits


@pytest.mark.parametrize(
    "head",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"],
    ids=["told", "untold"],
)
async def test_body_over_the_limit_is_refused(head: bytes) -> None:
    failure = await failure_of(head + b"x" * 2_000, body_limit=1_999)

    assert failure.kind == FailureKind.TOO_LARGE
    assert "1999" in failure.reason


async def test_body_at_the_limit_is_fine() -> None:
    response = await answer_of(b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2_000, body_limit=2_000)

    assert len(response.body) == 2_000


def _endless(start: bytes, again: bytes) -> Answer:
    async def answer(request: Request) -> None:
        await request.write(start)
        while True:
            await request.write(again)
            await asyncio.sleep(0)

    return answer


@attack(
    "server",
    "sends heads, bodies, events and chunk extensions that never end",
    "each is cut off at its limit",
)
@pytest.mark.parametrize(
    ("start", "again"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1000\r\n" + b"x" * 4096 + b"\r\n"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x" * 4096),
        (b"HTTP/1.1 200 OK\r\n", b"X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n" * 100),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            b"X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n" * 100,
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;", b"x" * 4096),
        (EVENTS_HEAD, b"1006\r\ndata: " + b"x" * 4096 + b"\r\n"),
        (EVENTS_HEAD, b"1007\r\ndata: " + b"x" * 4096 + b"\n\r\n"),
    ],
    ids=["body", "header", "headers", "interim", "trailers", "extension", "line", "event"],
)
async def test_what_never_ends_is_cut_off(start: bytes, again: bytes) -> None:
    async with serving(_endless(start, again)) as server, HttpClient(server.url, body_limit=1_000_000) as client:
        with anyio.fail_after(30), pytest.raises(HttpFailed) as caught:
            await client.post(b"{}")
        await until(lambda: server.ended == 1)

    assert caught.value.kind == FailureKind.TOO_LARGE


async def test_large_head_in_one_piece_is_refused_and_a_large_body_is_not_taken_for_one() -> None:
    body = b"x" * 200_000
    fine = await answer_of(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + body, head_limit=1_000)
    failure = await failure_of(
        b"HTTP/1.1 200 OK\r\nX: %b\r\nContent-Length: 0\r\n\r\n" % body[:1_001], head_limit=1_000
    )

    assert fine.body == body
    assert failure.kind == FailureKind.TOO_LARGE


async def test_large_answer_arrives_whole() -> None:
    body = bytes(range(256)) * 40_000
    response = await answer_of(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    assert response.body == body


# Events

STREAM = (
    b"\xef\xbb\xbfdata: one\n\n"
    b": a comment\r\nevent: message\r\nid: 7\r\nretry: 250\r\ndata:two\r\ndata:  lines\r\n\r\n"
    b"data\r\rdata: cr\rid\r\r"
    b"event: nothing\nid: 8\n\n"
    b'unknown: x\ndata: {"a":"\xc3\xa4: b"}\n\n\n\n'
    b"data: never ended\n"
)
TOLD = [b"one", b"two\n lines", b"", b"cr", b'{"a":"\xc3\xa4: b"}']


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 7])
async def test_events_are_the_same_wherever_they_are_cut(cut: int) -> None:
    assert await events_of(STREAM, cut) == TOLD


async def test_many_events_come_in_order() -> None:
    told = [b'{"n":%d}' % number for number in range(2_000)]

    assert await events_of(b"".join(b"event: message\ndata: %b\n\n" % each for each in told), 1_000) == told


async def test_large_event_comes_whole_up_to_the_limit() -> None:
    data = b"x" * 1_000_000

    assert await events_of(b"data: " + data + b"\n\n", 10_000, body_limit=1_000_006) == [data]
    with pytest.raises(HttpFailed, match="event has more than 1000005 bytes"):
        await events_of(b"data: " + data + b"\n\n", 10_000, body_limit=1_000_005)


async def test_comments_may_go_on_for_ever() -> None:
    stream = b": keep alive\n\n" * 500 + b": still here\n" * 500 + b"data: a\n\n"

    assert await events_of(stream, 100, body_limit=200) == [b"a"]


async def test_event_is_told_before_the_stream_ends() -> None:
    is_told, may_end = asyncio.Event(), asyncio.Event()

    async def answer(request: Request) -> None:
        await request.write(EVENTS_HEAD + b"9\r\ndata: a\n\n\r\n")
        await may_end.wait()
        await request.write(b"0\r\n\r\n")

    async with serving(answer) as server, HttpClient(server.url) as client:
        call = asyncio.ensure_future(client.request("GET", on_event=lambda _: is_told.set()))
        await asyncio.wait_for(is_told.wait(), 30)
        assert not call.done()
        may_end.set()

        assert (await call).status == 200


async def test_events_nobody_listens_to_are_drained() -> None:
    raw = EVENTS_HEAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(STREAM), STREAM)
    async with serving(raw) as server, HttpClient(server.url) as client:
        first = await client.post(b"{}")
        await client.post(b"{}")

    assert first.body == b""
    assert first.last_event_id == b"8"
    assert first.retry_ms == 250
    assert server.opened == 1


async def test_lost_stream_tells_its_last_event() -> None:
    failure = await failure_of(EVENTS_HEAD + b"20\r\nid: 1\ndata: a\n\nid: 2\ndata: bbbb\n\r\n")

    assert failure.kind == FailureKind.CONNECTION_LOST
    assert failure.last_event_id == b"1"


async def test_failure_of_the_listener_is_raised_and_ends_the_request() -> None:
    def fail(_: bytes) -> None:
        raise LookupError("mine")

    async with serving(_endless(EVENTS_HEAD, b"9\r\ndata: a\n\n\r\n")) as server, HttpClient(server.url) as client:
        with pytest.raises(LookupError, match="mine"):
            await client.post(b"{}", on_event=fail)
        await until(lambda: server.ended == 1)


# Connections kept, and not


async def test_connection_is_kept() -> None:
    async with serving(OK) as server, HttpClient(server.url) as client:
        for _ in range(20):
            await client.post(b"{}")

    assert server.opened == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        OK + b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad",
        OK + b"bad",
        OK + b"H",
    ],
    ids=["close", "http-1.0", "second-answer", "garbage", "one-byte"],
)
async def test_connection_that_cannot_be_trusted_is_not_used_again(raw: bytes) -> None:
    async with serving(raw) as server, HttpClient(server.url) as client:
        answers = [await client.post(b"{}") for _ in range(3)]
        await until(lambda: server.ended == 3)

    assert [answer.body for answer in answers] == [b"{}"] * 3
    assert server.opened == 3


@attack(
    "server",
    "sends a second answer, for the next request to take",
    "the connection is closed, and the next request has its own answer",
)
async def test_answer_that_nobody_asked_for_is_not_taken_for_the_next() -> None:
    async def answer(request: Request) -> None:
        await request.write(OK)
        await asyncio.sleep(0.01)  # two writes, and not one
        await request.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad")

    async with serving(answer) as server, HttpClient(server.url) as client:
        await client.post(b"{}")
        await until(lambda: server.ended == 1)
        second = await client.post(b"{}")

    assert second.body == b"{}"
    assert server.opened == 2


async def test_connection_that_the_server_closed_while_idle_is_not_used() -> None:
    async def answer(request: Request) -> None:
        await request.write(OK)
        request.out.close()

    async with serving(answer) as server, HttpClient(server.url) as client:
        await client.post(b"{}")
        await until(lambda: not client._idle)
        second = await client.post(b"{}")

    assert second.status == 200
    assert server.opened == 2


RESET = struct.pack("ii", 1, 0)
"""The linger option that turns a close into a reset."""


@contextlib.contextmanager
def closing_listener(*, by_reset: bool = False) -> Iterator[tuple[int, threading.Event]]:
    """Serve from a thread, so that it closes its first connection also while our loop is held up."""
    may_close, has_closed = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer_once() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65_536)
                peer.sendall(OK)
                may_close.wait(30)
                if by_reset:
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            has_closed.set()

        def serve() -> None:
            for _ in range(2):
                with contextlib.suppress(TimeoutError):
                    answer_once()

        listener.settimeout(30)
        thread = threading.Thread(target=serve)
        thread.start()
        may_close.set()
        yield listener.getsockname()[1], has_closed
        thread.join()


@pytest.mark.parametrize("by_reset", [False, True])
async def test_close_that_the_loop_has_not_seen_yet_is_noticed(*, by_reset: bool) -> None:
    with closing_listener(by_reset=by_reset) as (port, has_closed):
        async with HttpClient(f"http://127.0.0.1:{port}/") as client:
            await client.post(b"{}")
            # The loop is held up from here on, so it cannot tell the client.
            has_closed.wait(30)
            time.sleep(TRUST_LIMIT_S + 0.01)
            (kept,) = client._idle
            assert not kept._transport.is_closing()

            second = await client.post(b"{}")

    assert second.status == 200


async def test_write_that_fails_at_once_is_tried_on_a_fresh_connection() -> None:
    with closing_listener(by_reset=True) as (port, has_closed):
        async with HttpClient(f"http://127.0.0.1:{port}/") as client:
            await client.post(b"{}")
            has_closed.wait(30)
            client._idle[0].idle_since_s = asyncio.get_running_loop().time()  # so that nobody looks

            second = await client.post(b"{}")

    assert second.status == 200


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what the other side has received")
@pytest.mark.parametrize("way", ["post", "start"])
@pytest.mark.parametrize("has_read", [False, True])
async def test_request_that_meets_a_close_on_its_way_is_repeated_if_it_was_not_received(
    has_read: bool, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check before the request sees nothing, because what the server sent has not arrived: here, because it is off."""
    monkeypatch.setattr(UpstreamConnection, "has_unexpected_input", lambda _: False)
    received: list[bytes] = []
    with serving_twice(received, has_read=has_read) as (port, may_close, has_closed):
        async with HttpClient(f"http://127.0.0.1:{port}/") as client:
            await client.post(b"first")
            await asyncio.sleep(TRUST_LIMIT_S + 0.01)
            if not has_read:
                may_close.set()
                has_closed.wait(30)  # The loop is held up: it learns of the close after it has written.
            started = client.start(b"second", HeaderLines(), lambda _: False) if way == "start" else None
            responding = client.finish(started) if started is not None else client.post(b"second")
            if has_read:
                with pytest.raises(HttpFailed) as caught:
                    await responding
                assert caught.value.sent
            else:
                assert (await responding).status == 200

    assert received == [b"first", b"second"], "each came once"


@contextlib.contextmanager
def serving_twice(received: list[bytes], *, has_read: bool) -> Iterator[tuple[int, threading.Event, threading.Event]]:
    """Answer one request on each of two connections, from a thread; the first one is closed after it.

    With `has_read`, the next request on it is read before.
    """
    may_close, has_closed = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer(*, then_closes: bool) -> None:
            peer, _ = listener.accept()
            with peer:
                received.append(peer.recv(65_536).rpartition(b"\r\n\r\n")[2])
                peer.sendall(OK)
                if then_closes and has_read:
                    received.append(peer.recv(65_536).rpartition(b"\r\n\r\n")[2])
                elif then_closes:
                    may_close.wait(30)
            has_closed.set()

        def serve() -> None:
            with contextlib.suppress(TimeoutError):
                listener.settimeout(30)
                answer(then_closes=True)
                listener.settimeout(0.5 if has_read else 30)  # what was received is not to come again
                answer(then_closes=False)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], may_close, has_closed
        thread.join()


async def test_connection_is_not_used_when_the_server_is_about_to_close_it() -> None:
    async def answer(request: Request) -> None:
        await request.write(OK.replace(b"\r\n\r\n", b"\r\nkeep-alive: max=9, timeout=5\r\n\r\n"))

    async with serving(answer) as server, HttpClient(server.url) as client:
        for idle_s in (0.0, 3.0, 4.1):
            if client._idle:
                client._idle[0].idle_since_s -= idle_s
            await client.post(b"{}")

    assert [request.connection for request in server.requests] == [1, 1, 2]


async def test_idle_time_of_a_server_is_learned_from_what_it_closes() -> None:
    async def answer(request: Request) -> None:
        await request.write(OK)
        if request.connection == 1:
            request.out.close()

    async with serving(answer) as server, HttpClient(server.url) as first, HttpClient(server.url) as second:
        await first.post(b"{}")
        (kept,) = first._idle
        kept.idle_since_s -= 2.0
        await until(lambda: not first._idle)
        for idle_s in (0.0, 1.5, 1.7):
            if second._idle:
                second._idle[0].idle_since_s -= idle_s
            await second.post(b"{}")

    assert [request.connection for request in server.requests] == [1, 2, 2, 3]


async def test_reused_connection_that_dies_with_the_request_is_not_tried_again() -> None:
    async def answer(request: Request) -> None:
        if len(server.requests) == 2:
            request.out.transport.abort()
        else:
            await request.write(OK)

    async with serving(answer) as server, HttpClient(server.url) as client:
        await client.post(b"{}")
        with pytest.raises(HttpFailed) as caught:
            await client.post(b"{}")
        third = await client.post(b"{}")

    assert caught.value.kind == FailureKind.CONNECTION_LOST
    assert caught.value.sent
    assert third.status == 200
    assert len(server.requests) == 3


async def test_kept_connection_that_takes_no_byte_is_replaced() -> None:
    async with serving(OK) as server, HttpClient(server.url) as client:
        await client.post(b"{}")
        client._idle[0]._transport.abort()
        second = await client.post(b"{}")

    assert second.status == 200
    assert server.opened == 2


async def test_idle_connections_are_closed_in_time_and_used_ones_are_not() -> None:
    async def answer(request: Request) -> None:
        await asyncio.sleep(0.01)  # two writes, and not one
        await request.write(OK)

    async with serving(answer) as server, HttpClient(server.url, idle_s=1) as client:
        await asyncio.gather(*(client.post(b"{}") for _ in range(4)))
        with anyio.fail_after(20):
            while server.ended < 3:
                await client.post(b"{}")
                await asyncio.sleep(0.03)
        assert server.opened == 4
        await until(lambda: server.ended == 4)
        await client.post(b"{}")

    assert server.opened == 5


@contextlib.contextmanager
def hasty_listener() -> Iterator[int]:
    """Answer after the first bytes of a request, and read no more of it."""
    may_close = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1_000)
                peer.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
                may_close.wait(30)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        may_close.set()
        thread.join()


async def test_answer_before_the_request_was_read_is_taken_and_ends_the_connection() -> None:
    with hasty_listener() as port:
        async with HttpClient(f"http://127.0.0.1:{port}/") as client:
            with anyio.fail_after(20):
                response = await client.post(b"x" * 32_000_000)

            assert response.status == 413
            assert not client._idle


# Many at once


async def test_many_at_once_each_get_their_own_answer() -> None:
    async def answer(request: Request) -> None:
        await asyncio.sleep(0)
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(request.body)
        await request.write(head + request.body)

    async def work(client: HttpClient, worker: int) -> None:
        for number in range(50):
            body = b"%d/%d" % (worker, number) * (number + 1)
            assert (await client.post(body)).body == body

    async with serving(answer) as server, HttpClient(server.url) as client:
        await asyncio.gather(*(work(client, worker) for worker in range(32)))

    assert server.opened <= 32


async def test_connections_are_bounded_and_turns_are_taken_in_order() -> None:
    async def answer(request: Request) -> None:
        await asyncio.sleep(0.001)  # two writes, and not one
        await request.write(OK)

    async with serving(answer) as server, HttpClient(server.url, max_connections=3) as client:
        await asyncio.gather(*(client.post(b"%d" % number) for number in range(60)))
        assert client._busy == 0

    assert server.opened == 3
    order = [int(request.body) for request in server.requests]
    assert all(abs(place - number) < 3 for place, number in enumerate(order))


async def test_cancelled_caller_leaves_the_line() -> None:
    may_answer = asyncio.Event()

    async def answer(request: Request) -> None:
        await may_answer.wait()
        await request.write(OK)

    async with serving(answer) as server, HttpClient(server.url, max_connections=1) as client:
        calls = [asyncio.ensure_future(client.post(b"%d" % number)) for number in range(5)]
        await until(lambda: len(server.requests) == 1)
        calls[1].cancel()
        calls[3].cancel()
        await asyncio.wait([calls[1], calls[3]])
        assert len(client._waiters) == 2
        may_answer.set()
        await asyncio.gather(calls[0], calls[2], calls[4])

    assert [request.body for request in server.requests] == [b"0", b"2", b"4"]


async def test_turn_that_comes_to_a_cancelled_caller_is_passed_on() -> None:
    async with serving(OK) as server, HttpClient(server.url, max_connections=1) as client:
        client._busy = 1  # as if a request were out
        calls = [asyncio.ensure_future(client.post(b"%d" % number)) for number in range(2)]
        await until(lambda: len(client._waiters) == 2)
        client._release_slot()
        calls[0].cancel()
        with anyio.fail_after(20):
            assert (await calls[1]).status == 200
        assert client._busy == 0

    assert calls[0].cancelled()
    assert [request.body for request in server.requests] == [b"1"]


# Cancelling and closing


@pytest.mark.parametrize(
    "start", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", EVENTS_HEAD + b"5\r\ndata:"]
)
async def test_cancelling_closes_that_connection_and_no_other(start: bytes) -> None:
    may_answer = asyncio.Event()

    async def answer(request: Request) -> None:
        if request.body == b"slow":
            await request.write(start)
            await asyncio.sleep(60)
        await may_answer.wait()
        await request.write(OK)

    async with serving(answer) as server, HttpClient(server.url) as client:
        slow, other = (asyncio.ensure_future(client.post(body)) for body in (b"slow", b"other"))
        await until(lambda: len(server.requests) == 2)
        await asyncio.sleep(0.01)  # what was written has arrived
        slow.cancel()
        await until(lambda: server.ended == 1)
        may_answer.set()

        assert (await other).status == 200
        assert slow.cancelled()
        assert client._busy == 0
        assert len(client._open) == 1


async def test_time_limit_of_whoever_waits_closes_the_connection() -> None:
    async def answer(_request: Request) -> None:
        scope.deadline = anyio.current_time()
        await asyncio.sleep(60)

    async with serving(answer) as server, HttpClient(server.url) as client:
        with pytest.raises(TimeoutError), anyio.fail_after(60) as scope:
            await client.post(b"{}")
        await until(lambda: server.ended == 1)


async def test_no_event_is_told_after_cancelling() -> None:
    events: list[bytes] = []

    def cancel_myself(data: bytes) -> None:
        events.append(data)
        call.cancel()

    async with serving(_endless(EVENTS_HEAD, b"9\r\ndata: a\n\n\r\n")) as server, HttpClient(server.url) as client:
        call = asyncio.ensure_future(client.post(b"{}", on_event=cancel_myself))
        await asyncio.wait([call])
        count = len(events)
        await until(lambda: server.ended == 1)

    assert call.cancelled()
    assert len(events) == count


async def test_closing_the_client_ends_what_is_under_way() -> None:
    async with serving(lambda _: asyncio.sleep(60)) as server:
        client = HttpClient(server.url, max_connections=2)
        calls = [asyncio.ensure_future(client.post(b"{}")) for _ in range(3)]
        await until(lambda: len(server.requests) == 2)
        await client.aclose()
        await client.aclose()
        ends = await asyncio.gather(*calls, return_exceptions=True)

        assert [end.kind for end in ends if isinstance(end, HttpFailed)] == [FailureKind.CLIENT_CLOSED] * 3
        assert [end.sent for end in ends if isinstance(end, HttpFailed)] == [True, True, False]
        assert not client._open
        with pytest.raises(HttpFailed, match="closed"):
            await client.post(b"{}")
        await until(lambda: server.ended == 2)


async def test_turn_that_comes_with_the_close_is_refused() -> None:
    async with serving(OK) as server:
        client = HttpClient(server.url, max_connections=1)
        client._busy = 1  # as if a request were out
        call = asyncio.ensure_future(client.post(b"{}"))
        await until(lambda: client._waiters)
        client._release_slot()
        await client.aclose()
        with pytest.raises(HttpFailed) as caught:
            await call

    assert caught.value.kind == FailureKind.CLIENT_CLOSED
    assert server.opened == 0


# Connecting


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "no-such-host.invalid:{port}"])
async def test_server_that_is_not_there(host: str) -> None:
    async with HttpClient(f"http://{host.format(port=_free_port())}/") as client:
        with pytest.raises(HttpFailed, match="cannot connect") as caught:
            await client.post(b"{}")
        assert client._busy == 0

    assert caught.value.kind == FailureKind.CANNOT_CONNECT
    assert not caught.value.sent


@contextlib.contextmanager
def mute_port() -> Iterator[int]:
    """Listen, and never say a word: a TLS handshake with it does not end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


async def test_connecting_has_a_time_limit() -> None:
    with mute_port() as port:
        async with HttpClient(f"https://127.0.0.1:{port}/", connect_timeout_s=0.1) as client:
            with pytest.raises(HttpFailed, match=r"within 0.1 s") as caught:
                await client.post(b"{}")

    assert caught.value.kind == FailureKind.CONNECT_TIMED_OUT
    assert not caught.value.sent


async def test_closing_the_client_ends_connecting() -> None:
    with mute_port() as port:
        client = HttpClient(f"https://127.0.0.1:{port}/", connect_timeout_s=60)
        call = asyncio.ensure_future(client.post(b"{}"))
        await until(lambda: client._connecting)
        await client.aclose()
        with anyio.fail_after(20), pytest.raises(HttpFailed) as caught:
            await call

    assert caught.value.kind == FailureKind.CLIENT_CLOSED


async def test_cancelling_ends_connecting() -> None:
    with mute_port() as port:
        async with HttpClient(f"https://127.0.0.1:{port}/") as client:
            with anyio.move_on_after(0.05) as scope:
                await client.post(b"{}")

            assert scope.cancelled_caught
            assert client._busy == 0
            assert not client._connecting


async def test_ipv6_address() -> None:
    try:
        async with serving(OK, host="::1") as server, HttpClient(f"http://[::1]:{server.port}/") as client:
            response = await client.post(b"{}")
    except OSError:
        pytest.skip("there is no IPv6 here")

    assert response.status == 200
    assert server.requests[0].header(b"host") == b"[::1]:%d" % server.port


# TLS


@dataclass
class Certificate:
    path: Path

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path)
        return context

    def client_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.path))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """Make a certificate for `localhost` and 127.0.0.1, signed by itself."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    path.write_bytes(pem + made.public_bytes(serialization.Encoding.PEM))
    return Certificate(path)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_tls_server_that_is_trusted(certificate: Certificate, host: str) -> None:
    body = b"x" * 1_000_000
    async with serving(OK, tls=certificate.server_context()) as server:
        url = f"https://{host}:{server.port}/mcp"
        async with HttpClient(url, ssl_context=certificate.client_context()) as client:
            for _ in range(5):
                assert (await client.post(body)).body == b"{}"
            (kept,) = client._idle
            assert not kept.has_unexpected_input()
        await until(lambda: server.ended == 1)

    assert server.opened == 1
    assert server.requests[0].body == body
    assert server.requests[0].header(b"host") == f"{host}:{server.port}".encode()


async def test_cancelling_closes_a_tls_connection(certificate: Certificate) -> None:
    async with serving(_endless(EVENTS_HEAD, b"9\r\ndata: a\n\n\r\n"), tls=certificate.server_context()) as server:
        url = f"https://127.0.0.1:{server.port}/mcp"
        async with HttpClient(url, ssl_context=certificate.client_context()) as client:
            with anyio.CancelScope() as scope:
                await client.post(b"{}", on_event=lambda _event: scope.cancel())
            await until(lambda: server.ended == 1)


async def test_tls_server_that_is_not_trusted(certificate: Certificate) -> None:
    async with serving(OK, tls=certificate.server_context()) as server:
        async with HttpClient(f"https://localhost:{server.port}/mcp") as client:
            with pytest.raises(HttpFailed, match="certificate") as caught:
                await client.post(b"{}")

    assert caught.value.kind == FailureKind.TLS_FAILED
    assert not caught.value.sent
    assert not server.requests


async def test_plain_server_behind_https_is_told() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    listener = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with HttpClient(f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}/") as client:
        with pytest.raises(HttpFailed) as caught:
            await client.post(b"{}")
    listener.close()
    await anyio.wait_all_tasks_blocked()

    assert caught.value.kind in {FailureKind.TLS_FAILED, FailureKind.CANNOT_CONNECT}


# A real server


@contextlib.asynccontextmanager
async def uvicorn_serving(app: Any) -> AsyncIterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off", timeout_keep_alive=60))
    serving = asyncio.ensure_future(server._serve())
    await until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        await serving


async def echo_twice(scope: Any, receive: Any, send: Any) -> None:
    """Answer GET with events, and anything else with what came."""
    if scope["method"] == "GET":
        kind, parts = b"text/event-stream", [b"data: 1\r\n\r\n", b"data: 2\r\n\r\n"]
    else:
        kind, parts = b"application/json", [(await receive())["body"]] * 2
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
    for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def test_uvicorn() -> None:
    events: list[bytes] = []
    async with uvicorn_serving(echo_twice) as url, HttpClient(url) as client:
        answers = await asyncio.gather(*(client.post(b"%d" % number) for number in range(32)))
        await client.request("GET", on_event=events.append)

    assert [answer.body for answer in answers] == [b"%d" % number * 2 for number in range(32)]
    assert events == [b"1", b"2"]


async def test_a_stream_that_breaks_behind_what_was_waited_for_is_an_answer() -> None:
    events: list[bytes] = []

    async def answer(request: Request) -> None:
        await request.write(EVENTS_HEAD, b"d\r\ndata: enough\n\r\n1\r\n\n\r\n")
        request.out.transport.abort()

    def listen(event: bytes) -> bool:
        events.append(event)
        return event == b"enough"

    async with serving(answer) as server, HttpClient(server.url) as client:
        response = await client.post(b"{}", on_event=listen)
        assert (response.status, events) == (200, [b"enough"])
        assert (await client.post(b"{}", on_event=listen)).status == 200

    assert server.opened == 2


async def test_a_stream_that_stays_open_behind_what_was_waited_for_is_left() -> None:
    async def answer(request: Request) -> None:
        await request.write(EVENTS_HEAD, b"e\r\ndata: enough\n\n\r\n")
        await asyncio.sleep(60)

    async with serving(answer) as server, HttpClient(server.url) as client:
        with anyio.fail_after(20):
            response = await client.post(b"{}", on_event=lambda _event: True)
        assert response.status == 200
        await until(lambda: server.ended == 1)


# What is started before anybody waits


@contextlib.asynccontextmanager
async def two_started(
    answer: Answer | bytes = OK,
) -> AsyncIterator[tuple[Server, HttpClient, StartedRequest, StartedRequest]]:
    """Two requests in one turn of the loop, on connections that were kept."""
    async with serving(answer) as server, HttpClient(server.url) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.post, b"1")
            tasks.start_soon(client.post, b"2")
        first, second = (client.start(body, HeaderLines(), lambda _event: None) for body in (b"3", b"4"))
        assert first is not None
        assert second is not None
        yield server, client, first, second


async def test_nothing_is_started_without_a_connection_at_hand() -> None:
    async with serving(OK) as server, HttpClient(server.url, max_connections=1) as client:
        assert client.start(b"1", HeaderLines(), lambda _event: None) is None
        await client.post(b"2")
        started = client.start(b"3", HeaderLines(), lambda _event: None)
        assert started is not None
        assert client.start(b"4", HeaderLines(), lambda _event: None) is None
        assert (await client.finish(started)).body == b"{}"
        await client.post(b"5")

    assert [request.body for request in server.requests] == [b"2", b"3", b"5"]
    assert server.opened == 1


@attack("server", "has a token put into a header that it breaks", "the header before stays, and no connection is lost")
async def test_a_header_that_cannot_be_sent_changes_nothing() -> None:
    async with serving(OK) as server, HttpClient(server.url, max_connections=1) as client:
        client.set_header("authorization", "Bearer good")
        await client.post(b"1")
        for value in ("Bearer a\r\nb: c", "Bearer \u0100"):
            with pytest.raises(BadConfiguration):
                client.set_header("authorization", value)
        broken = ((b"a", b"b\r\nc"),)
        with pytest.raises(HttpFailed):
            client.start(b"2", broken, lambda _event: None)  # type: ignore[arg-type]
        started = client.start(b"3", HeaderLines(), lambda _event: None)
        assert started is not None, "the connection is still at hand"
        await client.finish(started)

    assert [request.header(b"authorization") for request in server.requests] == [b"Bearer good"] * 2
    assert server.opened == 1


async def test_what_is_started_together_is_answered() -> None:
    async with two_started() as (server, client, first, second):
        responses = [await client.finish(started) for started in (first, second)]

    assert [response.body for response in responses] == [b"{}", b"{}"]
    assert sorted(request.body for request in server.requests) == [b"1", b"2", b"3", b"4"]
    assert server.opened == 2


@pytest.mark.parametrize("fault", ["closed", "lost", "unasked"])
async def test_a_connection_that_fails_before_anything_is_written_costs_nothing(fault: str) -> None:
    async with two_started() as (server, client, first, second):
        match fault:
            case "closed":
                second.connection._transport.abort()
            case "lost":
                second.connection.connection_lost(None)
            case _:
                second.connection.data_received(OK)
        responses = [await client.finish(started) for started in (first, second)]

    assert [response.body for response in responses] == [b"{}", b"{}"]
    assert sorted(request.body for request in server.requests) == [b"1", b"2", b"3", b"4"]


async def test_a_client_that_is_closed_writes_nothing_more() -> None:
    async with two_started() as (server, client, first, second):
        await client.aclose()
        for started in (first, second):
            with pytest.raises(HttpFailed) as caught:
                await client.finish(started)
            assert caught.value.kind is FailureKind.CLIENT_CLOSED

    assert b"4" not in {request.body for request in server.requests}


async def test_an_answer_that_is_taken_ahead_leaves_the_connection_as_it_was() -> None:
    taken: list[bytes] = []
    async with two_started() as (server, client, first, second):

        def take(response: Response) -> bool:
            taken.append(response.body)
            client.release(first)
            return True

        first.connection.on_answer = take
        await until(lambda: taken == [b"{}"])
        assert not first.answer.done()
        await client.finish(second)
        for body in (b"5", b"6"):
            await client.post(body)

    assert taken == [b"{}"]
    assert len(server.requests) == 6
    assert server.opened == 2
