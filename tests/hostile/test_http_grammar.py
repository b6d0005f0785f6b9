"""HTTP as no client writes it, on raw sockets: a request means one thing, or it is refused and its connection closed.

Every refused case has a whole second call behind it, and a farewell: a server that misreads where the first one ends answers one.
"""

from collections.abc import Iterator

import pytest

from tests.hostile.attacks import attack
from tests.hostile.served import FAREWELL, Served, call_body, head, open_gateway, request, statuses_of

pytestmark = pytest.mark.wire

BODY = call_body("first")
HIDDEN = request(call_body("smuggled"))
LENGTH = b"content-length: %d\r\n" % len(BODY)
CHUNKED = b"transfer-encoding: chunked\r\n"
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)


def with_lines(lines: bytes, body: bytes = BODY) -> bytes:
    """Return a call with these lines at the end of its head, which say how long it is."""
    return head(None)[:-2] + lines + b"\r\n" + body


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with open_gateway(tmp_path_factory.mktemp("gateway")) as served:
        yield served


def assert_refused(gateway: Served, raw: bytes) -> None:
    received = gateway.send(raw + HIDDEN + FAREWELL)

    assert statuses_of(received) in ([400], [414]), received
    assert b"smuggled" not in received
    assert b'"id":"first"' not in received


SMUGGLED = {
    "a length and chunks": with_lines(b"content-length: 5\r\n" + CHUNKED, b"0\r\n\r\n"),
    "chunks and a length": with_lines(CHUNKED + b"content-length: 5\r\n", b"0\r\n\r\n"),
    "a length that reaches over the chunks": with_lines(
        b"content-length: %d\r\n%b" % (5 + len(HIDDEN), CHUNKED), b"0\r\n\r\n"
    ),
    "two lengths that differ": with_lines(b"content-length: 0\r\n" + LENGTH),
    "two lengths that agree": with_lines(LENGTH + LENGTH),
    "a list of lengths": with_lines(b"content-length: %d, %d\r\n" % (len(BODY), len(BODY))),
    "a length with a sign": with_lines(b"content-length: +%d\r\n" % len(BODY)),
    "a negative length": with_lines(b"content-length: -1\r\n"),
    "a hexadecimal length": with_lines(b"content-length: 0x%x\r\n" % len(BODY)),
    "a length with an underscore": with_lines(b"content-length: 1_0\r\n"),
    "a length in two parts": with_lines(b"content-length: 1 0\r\n"),
    "a length that no integer holds": with_lines(b"content-length: 99999999999999999999999\r\n"),
    "a length of nothing": with_lines(b"content-length: \r\n"),
    "a folded length": with_lines(b"content-length: 1\r\n 0\r\n"),
    "an encoding that is nearly chunked": with_lines(b"transfer-encoding: xchunked\r\n", b"0\r\n\r\n"),
    "an encoding behind a control character": with_lines(b"transfer-encoding: \x0bchunked\r\n" + LENGTH),
    "chunked that is not the last encoding": with_lines(b"transfer-encoding: chunked, identity\r\n", b"0\r\n\r\n"),
    "an encoding of identity beside a length": with_lines(b"transfer-encoding: identity\r\n" + LENGTH),
    "two encodings": with_lines(CHUNKED + b"transfer-encoding: identity\r\n", b"0\r\n\r\n"),
    "a space before the colon of the encoding": with_lines(b"transfer-encoding : chunked\r\n" + LENGTH),
    "a space before the colon of the length": with_lines(b"content-length : 3\r\n" + LENGTH),
    "an encoding behind a bare line feed": with_lines(b"x-a: b\ntransfer-encoding: chunked\r\n" + LENGTH),
    "an encoding behind a bare carriage return": with_lines(b"x-a: b\rtransfer-encoding: chunked\r\n" + LENGTH),
}


@attack(
    "stranger",
    "hides a second request behind a body whose length can be read in two ways: `Content-Length` with `Transfer-Encoding`, "
    "twice, signed, folded, behind a bare line feed and 17 more",
    "the request is refused with 400 and the connection is closed; the hidden request is never read",
)
@pytest.mark.parametrize("raw", SMUGGLED.values(), ids=SMUGGLED)
def test_a_body_of_two_lengths(gateway: Served, raw: bytes) -> None:
    assert_refused(gateway, raw)


LINES = {
    "a folded header": with_lines(b"x-a: b\r\n c\r\n" + LENGTH),
    "a header folded by a tab": with_lines(b"x-a: b\r\n\tcontent-length: 3\r\n" + LENGTH),
    "lines that end in bare line feeds": request(BODY).replace(b"\r\n", b"\n"),
    "NUL in a value": with_lines(b"x-a: b\0c\r\n" + LENGTH),
    "NUL in a name": with_lines(b"x-\0a: b\r\n" + LENGTH),
    "NUL in the path": request(BODY, path="/mcp\0x"),
    "a header without a colon": with_lines(b"nonsense\r\n" + LENGTH),
    "a header without a name": with_lines(b": x\r\n" + LENGTH),
    "a name that is not ASCII": with_lines(b"x-\xc3\xa4: 1\r\n" + LENGTH),
    "a space in the path": request(BODY, path="/mcp x"),
    "a space before the method": b" " + request(BODY),
    "a method of 60,000 letters": request(BODY, verb="A" * 60_000),
    "a method in small letters": request(BODY, verb="post"),
    "a method that asks for a tunnel": request(BODY, verb="CONNECT", path="evil.example:443"),
    "a version that there never was": request(BODY).replace(b"HTTP/1.1", b"HTTP/1.2"),
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
}


@attack(
    "stranger",
    "writes lines that HTTP does not allow: folded headers, bare line feeds, NUL bytes, names that are not ASCII, huge or "
    "unknown methods, other protocols",
    "the request is refused with 400 (414 for a line that is too long) and the connection is closed",
)
@pytest.mark.parametrize("raw", LINES.values(), ids=LINES)
def test_lines_that_are_not_http(gateway: Served, raw: bytes) -> None:
    assert_refused(gateway, raw)


CHUNK_FAULTS = {
    "a negative size": b"-1\r\n",
    "a size that overflows": b"fffffffffffffffff1\r\n",
    "a size with a prefix": b"0x5\r\nhello\r\n0\r\n\r\n",
    "a size that ends in a bare line feed": CHUNKS.replace(b"\r\n", b"\n", 1),
    "more data than the size says": b"3\r\nabcdef\r\n0\r\n\r\n",
    "an extension with a line feed": b"%x;a\nb\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
}


@attack(
    "stranger",
    "sends chunks with negative, overflowing or prefixed sizes, with line feeds in extensions",
    "the request is refused with 400 (414 for a line that is too long) and the connection is closed",
)
@pytest.mark.parametrize("chunks", CHUNK_FAULTS.values(), ids=CHUNK_FAULTS)
def test_chunks_that_do_not_add_up(gateway: Served, chunks: bytes) -> None:
    assert_refused(gateway, with_lines(CHUNKED, chunks))


@attack(
    "stranger",
    "puts a whole call into the body of another request",
    "the body is data, and is never run: only requests that stand behind each other on the connection are, in order",
)
@pytest.mark.parametrize(
    "outer",
    [
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
        b"DELETE /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
        b"GET /chat HTTP/1.1\r\nhost: localhost\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (CHUNKED, len(HIDDEN), HIDDEN),
        request(HIDDEN),
        with_lines(CHUNKED, b"%x;a=%b\r\n%b\r\n0\r\n\r\n" % (len(HIDDEN), b"smuggled" * 5, HIDDEN)),
    ],
    ids=["GET", "DELETE", "GET in chunks", "POST", "POST in chunks with an extension"],
)
def test_a_call_inside_a_body(gateway: Served, outer: bytes) -> None:
    received = gateway.send(outer + request(BODY) + FAREWELL)

    _, *after = statuses_of(received)
    assert b"smuggled" not in received
    # A body that is refused unread closes its connection.
    assert after in ([200, 200], [])
    assert received.count(b'"id":"first"') == len(after[:1])


@attack(
    "stranger",
    "puts a length, a host and a token among the trailers of a body in chunks",
    "trailers are dropped: the body ends where its last chunk says",
)
def test_trailers(gateway: Served) -> None:
    trailers = b"content-length: 500\r\nhost: evil.example\r\nauthorization: Bearer x\r\n\r\n"
    received = gateway.send(with_lines(CHUNKED, CHUNKS[:-2] + trailers) + FAREWELL)

    assert statuses_of(received) == [200, 200]
    assert received.count(b'"id":"first"') == 1


@attack(
    "stranger",
    "asks for an upgrade to h2c or WebSocket, to get past a proxy that stops checking after it",
    "there is no upgrade: the request is ordinary, and later requests pass the same checks",
)
@pytest.mark.parametrize(
    "upgrade",
    [
        request(BODY, connection="Upgrade, HTTP2-Settings", upgrade="h2c", http2_settings="AAMAAABkAAQAAP__"),
        head(None, verb="GET", connection="upgrade", upgrade="websocket", sec_websocket_version="13")[:-2]
        + b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    ],
    ids=["h2c", "websocket"],
)
def test_an_upgrade(gateway: Served, upgrade: bytes) -> None:
    received = gateway.send(upgrade + request(call_body("after"), host="evil.example") + FAREWELL)

    statuses = statuses_of(received)
    assert statuses[0] in (200, 400, 405)
    assert statuses[1:] in ([421, 200], [421])
    assert b'"id":"after"' not in received


@attack(
    "stranger",
    "names a path in other spellings: encoded, with dots, doubled slashes, as a whole URL, with another server's name",
    "no spelling gets around the checks of token, Host and Origin, which stand before every path below /mcp",
)
def test_paths_in_other_spellings(tmp_path_factory: pytest.TempPathFactory) -> None:
    with open_gateway(tmp_path_factory.mktemp("guarded"), TOOLPOST_TOKEN="the-right-token-of-32-characters") as gateway:
        seen = {
            path: statuses_of(gateway.send(request(BODY, path=path) + FAREWELL))[0]
            for path in (
                "/mcp",
                "/%6dcp",
                "/mcp/",
                "//mcp",
                "/mcp#x",
                "/mcp?token=the-right-token-of-32-characters",
                "/mcp?access_token=the-right-token-of-32-characters",
                "/chat/../mcp",
                "/healthz/../mcp",
                "/mcp/server/does",
                "/mcp/tags/x",
                "http://localhost/mcp",
                "http://evil.example/mcp",
                "/mcp;x",
                "/metrics",
                "/api/servers",
                "/api/threads",
            )
        }

    assert set(seen.values()) <= {401, 404, 405}, seen
    assert [seen[path] for path in ("/mcp", "/%6dcp", "http://evil.example/mcp", "/metrics", "/api/servers")] == [
        401
    ] * 5


@attack(
    "stranger",
    "speaks HTTP/1.0, leaves out Host or sends two",
    "one version and one Host are understood; the rest is refused",
)
def test_old_versions_and_hosts(gateway: Served) -> None:
    old = gateway.send(request(BODY).replace(b"HTTP/1.1", b"HTTP/1.0") + HIDDEN)
    hosts = {
        "none": statuses_of(gateway.send(request(BODY, host="") + FAREWELL))[0],
        "none in HTTP/1.0": statuses_of(gateway.send(request(BODY, host="").replace(b"HTTP/1.1", b"HTTP/1.0")))[0],
        "two": statuses_of(gateway.send(with_lines(b"host: evil.example\r\n" + LENGTH) + FAREWELL))[0],
        "two that agree": statuses_of(gateway.send(with_lines(b"host: localhost\r\n" + LENGTH) + FAREWELL))[0],
        "nobody's, at 0.9": statuses_of(gateway.send(b"GET /mcp\r\n\r\n"))[0],
    }

    assert b"smuggled" not in old, "a connection of HTTP/1.0 has one request"
    assert {400, 421} >= set(hosts.values()), hosts
