"""Strangers who hold connections, send without end, or do not read: a real process, raw sockets, one machine."""

import contextlib
import json
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.hostile.attacks import attack, loop_cpu_s, slowness
from tests.ways import BEHAVIOURS, ENVELOPE, STATELESS, TOOLPOST, server_environment
from toolpost.endpoints.http.connection import LINGER_BYTES_ADMITTED

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc, and changes limits of a process"),
    pytest.mark.wire,
]

TOKEN = "t0ken"
SETTINGS = (
    f'plugins.load = ["{BEHAVIOURS}"]\n[http]\ntoken = "${{file:token}}"\nhead_timeout_s = 1\nbody_timeout_s = 2\n'
)


@dataclass(frozen=True)
class Gateway:
    """A server in a process of its own."""

    process: "subprocess.Popen[bytes]"
    port: int
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def connect(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def rss(self) -> int:
        found: int = psutil.Process(self.pid).memory_info().rss
        return found

    def serves(self) -> float:
        """Have a caller with a token served, and return how long that took."""
        began = time.monotonic()
        with self.connect() as caller:
            caller.sendall(post({"text": "hi"}))
            status, _, body = answer_of(caller)
        assert status == 200, body
        assert b'"hi"' in body
        return time.monotonic() - began

    @property
    def is_up(self) -> bool:
        return self.process.poll() is None


@contextlib.contextmanager
def serving(folder: Path, settings: str = SETTINGS, descriptors: int | None = None) -> Iterator[Gateway]:
    (folder / "token").write_text(TOKEN)
    (folder / "toolpost.toml").write_text(settings)
    limit = f"ulimit -n {descriptors}; " if descriptors else ""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", f"{limit}exec {TOOLPOST} serve --json --listen 127.0.0.1:0"],
            cwd=folder,
            env=server_environment(),
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (folder / "log").read_text()
        port = int(json.loads(line)["url"].split(":")[2].split("/")[0])
        yield Gateway(process, port, folder / "log")
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One server for all attacks that must leave it as it was."""
    with serving(tmp_path_factory.mktemp("gateway")) as started:
        started.serves()
        yield started
        assert started.is_up


@pytest.fixture
def many_sockets() -> Iterator[None]:
    """Let this process have more connections than the server may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip(f"this process may open {hard} files, and needs 4,096")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def post(arguments: dict[str, Any], *, tool: str = "does__echo", extra: str = "", token: str = TOKEN) -> bytes:
    params = {"name": tool, "arguments": arguments, "_meta": ENVELOPE}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    return head(extra, tool=tool, token=token, length=len(body)) + body


def head(extra: str = "", *, tool: str = "does__echo", token: str = TOKEN, length: int | None = None) -> bytes:
    counted = f"content-length: {length}\r\n" if length is not None else ""
    return (
        f"POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n"
        f"accept: application/json, text/event-stream\r\nmcp-protocol-version: {STATELESS}\r\nmcp-method: tools/call\r\n"
        f"mcp-name: {tool}\r\n{extra}{counted}\r\n"
    ).encode("latin-1")


def answer_of(caller: socket.socket) -> tuple[int, dict[bytes, bytes], bytes]:
    """Read one response; the status is 0 if the server closed without one."""
    received = b""
    while b"\r\n\r\n" not in received:
        more = caller.recv(65536)
        if not more:
            return 0, {}, received
        received += more
    top, _, body = received.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in top.split(b"\r\n")[1:])
    while len(body) < int(fields[b"content-length"]):
        body += caller.recv(65536)
    return int(top.split(b" ")[1]), fields, body


def is_closed(stream: socket.socket, within_s: float) -> bool:
    """Whether the server ends a connection within some time, whatever it sends before."""
    until = time.monotonic() + within_s
    with contextlib.suppress(ConnectionError, TimeoutError):
        while (left := until - time.monotonic()) > 0:
            stream.settimeout(left)
            if not stream.recv(65536):
                return True
        return False
    return time.monotonic() < until


def flood(gateway: Gateway, count: int, data: bytes) -> list[socket.socket]:
    """Open connections that send something and then nothing, as fast as it goes."""
    made = []
    for _ in range(count):
        stranger = gateway.connect()
        with contextlib.suppress(ConnectionError):  # it may be displaced by now
            stranger.sendall(data)
        made.append(stranger)
    return made


@attack(
    "stranger",
    "opens 1,200 connections right after the start and sends a single byte on each, where 1,024 files may be open",
    "a caller with a token is served at once, the process goes on, and the log says that connections are full",
)
@pytest.mark.usefixtures("many_sockets")
def test_connections_that_send_one_byte_lock_nobody_out(tmp_path: Path) -> None:
    with serving(tmp_path, descriptors=1024) as gateway:
        strangers = flood(gateway, 1200, b"P")
        took_s = gateway.serves()
        files = psutil.Process(gateway.pid).num_fds()
        strangers += flood(gateway, 100, b"P")
        took_s = max(took_s, gateway.serves())

        assert gateway.is_up
        assert took_s < 30
        assert files < 900
        assert "connections are full" in gateway.log.read_text()
        for stranger in strangers:
            stranger.close()


@attack(
    "stranger",
    "opens 1,200 connections and sends a single byte on each, where the system allows many",
    "a caller with a token is served at once; every such connection is closed when its time for headers is over",
)
@pytest.mark.usefixtures("many_sockets")
def test_many_idle_connections_are_served_beside(gateway: Gateway) -> None:
    strangers = flood(gateway, 1200, b"P")
    took_s = gateway.serves()

    assert took_s < 30
    assert all(is_closed(stranger, 20) for stranger in strangers)
    for stranger in strangers:
        stranger.close()


@attack(
    "stranger",
    "lets the server run out of file descriptors while it still loads modules, and connects again and again",
    "the process goes on, says so in its log once, answers 503 with Retry-After, and recovers by itself",
)
def test_the_server_survives_without_descriptors(tmp_path: Path) -> None:
    with serving(tmp_path) as gateway, contextlib.ExitStack() as connections:
        known = connections.enter_context(gateway.connect())
        known.sendall(post({"text": "before"}))
        assert answer_of(known)[0] == 200
        soft, hard = resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE)
        highest = max(int(file.name) for file in Path(f"/proc/{gateway.pid}/fd").iterdir())
        resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (highest + 1, hard))
        refused = []
        # Descriptors may still become free, as those of modules that are loaded: connections that are served keep them.
        for _ in range(highest + 100):
            caller = connections.enter_context(gateway.connect())
            with contextlib.suppress(ConnectionError):  # the server may have closed by now
                caller.sendall(post({"text": "one more"}))
            answer = answer_of(caller)
            assert answer[0] in (200, 503)
            refused += [answer] if answer[0] == 503 else []
            if len(refused) == 20:
                break
        known.sendall(post({"text": "meanwhile"}))
        meanwhile = answer_of(known)
        time.sleep(1)  # a loop that spins would have logged by now
        log = gateway.log.read_text()
        resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (soft, hard))

        assert len(refused) == 20
        assert all(fields[b"retry-after"].isdigit() for _, fields, _ in refused)
        assert meanwhile[0] == 200
        assert log.count("out of file descriptors") == 1
        gateway.serves()
        assert initialized(gateway) == 200


def initialized(gateway: Gateway) -> int:
    """Open a session, for which the SDK is needed; it may be loading again."""
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "peer", "version": "0"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).encode()
    with gateway.connect() as caller:
        caller.settimeout(30)
        caller.sendall(
            b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nauthorization: Bearer t0ken\r\n"
            b"accept: application/json, text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        )
        return int(caller.recv(65536).split(b" ")[1])


@attack(
    "stranger",
    "sends headers without end: a single one, many, or a first line that never ends, also byte by byte",
    "431 or 414 after 64 KiB, 8 KiB or 128 lines, and the connection is closed",
)
@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\nx: " + b"a" * 200_000, 431),
        (b"POST /mcp HTTP/1.1\r\nx: " + b"a" * 65_600 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 500 + b"\r\n", 431),
        (b"GET /" + b"a" * 20_000, 414),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    ],
)
def test_a_head_is_bounded(gateway: Gateway, data: bytes, status: int) -> None:
    with gateway.connect() as stranger:
        with contextlib.suppress(ConnectionError):
            stranger.sendall(data)
        found, fields, _ = answer_of(stranger)

        assert found == status
        assert fields[b"connection"] == b"close"
        assert is_closed(stranger, 20)


@attack(
    "stranger",
    "sends 64 MB of headers over 1,040 connections and finishes none",
    "memory grows by no more than half of that",
)
@pytest.mark.usefixtures("many_sockets")
def test_unfinished_headers_hold_little_memory(gateway: Gateway) -> None:
    assert _grown(gateway, connections=1040, each=61_000) < 48_000_000


@attack(
    "stranger", "sends 200 MB of headers over 3,300 connections and finishes none", "memory grows by less than 64 MB"
)
@pytest.mark.soak
@pytest.mark.usefixtures("many_sockets")
def test_many_unfinished_headers_hold_little_memory(gateway: Gateway) -> None:
    assert _grown(gateway, connections=3300, each=61_000) < 64_000_000


def _grown(gateway: Gateway, *, connections: int, each: int) -> int:
    before = gateway.rss()
    strangers = flood(gateway, connections, b"GET / HTTP/1.1\r\nx: " + b"a" * each)
    gateway.serves()
    grown = gateway.rss() - before
    for stranger in strangers:
        stranger.close()
    return grown


@attack(
    "stranger",
    "connects and sends nothing, or a header every now and then",
    "the connection ends after `http.head_timeout_s`, with 408 if anything was sent; a caller's connection stays open",
)
def test_a_head_has_a_deadline(gateway: Gateway) -> None:
    with gateway.connect() as silent, gateway.connect() as slow, gateway.connect() as known:
        known.sendall(post({"text": "hi"}))
        assert answer_of(known)[0] == 200
        for _ in range(6):
            with contextlib.suppress(ConnectionError):
                slow.sendall(b"GET / HTTP/1.1\r\nx: y\r\n"[:15])
            time.sleep(0.25)

        assert answer_of(slow)[0] == 408
        assert is_closed(silent, 20)
        known.sendall(post({"text": "hi"}))
        assert answer_of(known)[0] == 200


@attack(
    "caller",
    "sends a body byte by byte, plain, chunked, or to a path that uvicorn serves",
    "408 after `http.body_timeout_s`; a slow upload that makes progress goes through",
)
@pytest.mark.parametrize(
    "extra", ["content-length: 5000\r\n", "content-length: 500000\r\n", "transfer-encoding: chunked\r\n"]
)
def test_a_body_has_a_deadline(gateway: Gateway, extra: str) -> None:
    with gateway.connect() as slow:
        slow.sendall(head(extra))
        for byte in b"5000\r\n":
            with contextlib.suppress(ConnectionError):  # its time may be over by now
                slow.sendall(bytes([byte]))
            time.sleep(0.15)
        status, fields, _ = answer_of(slow)

        assert (status, fields[b"connection"]) == (408, b"close")
        assert is_closed(slow, 20)


def test_a_slow_upload_goes_through(gateway: Gateway) -> None:
    raw = post({"text": "x" * 30_000})
    with gateway.connect() as slow:
        for start in range(0, len(raw), 4_000):
            slow.sendall(raw[start : start + 4_000])
            time.sleep(0.3)

        assert answer_of(slow)[0] == 200


@attack(
    "stranger",
    "sends 300 MB as the body of a request that is refused",
    "the refusal comes at once, no `100 Continue` does, and the rest of the body is not read",
)
@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (head("content-length: 300000000\r\n", token="wrong"), 401),
        (head("content-length: 300000000\r\nexpect: 100-continue\r\n", token="wrong"), 401),
        (head("transfer-encoding: chunked\r\n", token="wrong") + b"11e1a300\r\n", 401),
        (head("content-length: 300000000\r\n"), 413),
        (head("content-length: 300000000\r\nexpect: 100-continue\r\n"), 413),
        (head("content-length: 300000000\r\norigin: https://evil.example\r\n"), 403),
        (head("content-length: 300000000\r\n").replace(b"host: localhost", b"host: evil.example"), 421),
        (head("content-length: 300000000\r\n").replace(b"application/json\r\na", b"text/plain\r\na"), 415),
        (head("content-length: 300000000\r\n").replace(b"/mcp", b"/nothing"), 404),
    ],
)
def test_a_body_is_not_read_after_a_refusal(gateway: Gateway, raw: bytes, status: int) -> None:
    used_s = loop_cpu_s(gateway.pid)
    with gateway.connect() as stranger:
        stranger.sendall(raw)
        found, fields, _ = answer_of(stranger)
        sent = 0
        with contextlib.suppress(OSError):
            stranger.settimeout(0.2)
            while sent < 300_000_000:
                sent += stranger.send(b"a" * 65_536)

    assert (found, fields[b"connection"]) == (status, b"close")
    # The buffers of both sockets, and what is read to let the answer through: more of a caller than of a stranger.
    assert sent < (LINGER_BYTES_ADMITTED + 40_000_000 if status in (413, 415) else 16_000_000)
    assert loop_cpu_s(gateway.pid) - used_s < 2.0 * slowness()


@attack(
    "stranger",
    "sends a malformed, missing or second Host or Origin, or frames a body in two ways",
    "400, or 421 for another server's name, and 403 for another page; the connection is closed",
)
@pytest.mark.parametrize(
    ("change", "status"),
    [
        (("host: localhost", "host: localhost\r\nhost: localhost"), 400),
        (("host: localhost\r\n", ""), 400),
        (("host: localhost", "host:"), 400),
        (("host: localhost", "host: user@localhost"), 400),
        (("host: localhost", "host: local host"), 400),
        (("host: localhost", "host: localhost, evil.example"), 400),
        (("host: localhost", "host: localhost:"), 400),
        (("host: localhost", "host: localhost:99999"), 400),
        (("host: localhost", "host: localhost:80:80"), 400),
        (("host: localhost", "host: [::1"), 400),
        (("host: localhost", "host: [::1]evil.example"), 400),
        (("host: localhost", "host: [::1:::]"), 400),
        (("host: localhost", "host: ::1"), 400),
        (("host: localhost", "host: .localhost"), 400),
        (("host: localhost", "host: localhost.."), 400),
        (("host: localhost", "host: localhost/evil"), 400),
        (("host: localhost", "host: local\x01host"), 400),
        (("host: localhost", "host: localhost."), 421),
        (("host: localhost", "host: 127.0.0.1.evil.example"), 421),
        (("host: localhost", "host: localhost\r\norigin: http://localhost\r\norigin: http://localhost"), 400),
        (("host: localhost", "host: localhost\r\norigin: http://localhost, http://localhost"), 403),
        (("host: localhost", "host: localhost\r\norigin: http://localhost:80@evil.example"), 403),
        (("host: localhost", "host: localhost\r\norigin: http://localhost:evil"), 403),
        (("host: localhost", "host: localhost\r\norigin: http://[::1]evil"), 403),
        (("host: localhost", "host: localhost\r\norigin: ://localhost"), 403),
        (("host: localhost", "host: localhost\r\norigin: null"), 403),
        (("host: localhost", "host: localhost\r\ncontent-length: 1"), 400),
        (("host: localhost", "host: localhost\r\ntransfer-encoding: chunked"), 400),
        (("host: localhost", "host: LOCALHOST:8420"), 200),
        (("host: localhost", "host: [::1]:8420"), 200),
        (("host: localhost", "host: localhost\r\norigin: http://localhost:3000"), 200),
    ],
    ids=repr,
)
def test_hosts_and_origins_are_read_strictly(gateway: Gateway, change: tuple[str, str], status: int) -> None:
    with gateway.connect() as stranger:
        stranger.sendall(post({"text": "hi"}).decode("latin-1").replace(*change).encode("latin-1"))

        assert answer_of(stranger)[0] == status


@attack(
    "caller",
    "sends 30 MB of requests behind a slow one, and reads none of the answers",
    "the server reads no further than a few hundred kilobytes ahead",
)
def test_pipelined_requests_are_not_read_ahead(gateway: Gateway) -> None:
    before = gateway.rss()
    with gateway.connect() as caller:
        caller.sendall(post({"seconds": 1.0}, tool="does__sleep"))
        ahead = _sent(caller, post({"text": "hi"}) * 100, limit=30_000_000, for_s=0.8)

    assert ahead < 16_000_000
    assert gateway.rss() - before < 12_000_000


@attack(
    "caller",
    "asks for large answers again and again, and never reads one",
    "no further request is begun while an answer is unread; memory stays as it was",
)
@pytest.mark.parametrize("extra", ["", "x-odd: 1\r\nx-odd: 2\r\n"], ids=["fast path", "uvicorn"])
def test_unread_answers_do_not_pile_up(gateway: Gateway, extra: str) -> None:
    raw = post({"text": "x" * 100_000}, extra=extra)
    before = gateway.rss()
    with gateway.connect() as caller:
        _sent(caller, raw, limit=40_000_000, for_s=1.0)
        grown = gateway.rss() - before

    assert grown < 16_000_000
    gateway.serves()


def _sent(caller: socket.socket, raw: bytes, *, limit: int, for_s: float) -> int:
    """Send something over and over, for a time or until there is no more room; returns how much went out."""
    sent, at, until = 0, 0, time.monotonic() + for_s
    caller.setblocking(False)
    while sent < limit and time.monotonic() < until:
        with contextlib.suppress(BlockingIOError):
            count = caller.send(raw[at:])
            sent, at = sent + count, (at + count) % len(raw)
            continue
        time.sleep(0.01)
    return sent


@attack(
    "stranger",
    "sends a head of 60 KB, or a chunked body, one byte a packet",
    "the loop spends as little on each byte as on any other packet",
)
@pytest.mark.parametrize(
    "raw", [b"GET / HTTP/1.1\r\nx: ", head("transfer-encoding: chunked\r\n") + b"ff;"], ids=["head", "chunk"]
)
def test_single_bytes_cost_the_loop_little(gateway: Gateway, raw: bytes) -> None:
    with gateway.connect() as stranger:
        stranger.sendall(raw)
        used_s = loop_cpu_s(gateway.pid)
        for _ in range(900):
            stranger.sendall(b"a")
        used_s = loop_cpu_s(gateway.pid) - used_s

    assert used_s < 1.5 * slowness()


def test_every_refusal_is_counted(gateway: Gateway) -> None:
    with gateway.connect() as admin:
        admin.sendall(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer t0ken\r\n\r\n")
        page = answer_of(admin)[2].decode()

    assert re.search(r'toolpost_connections_refused_total\{why="431"\} \d', page)
    assert re.search(r"toolpost_connections [1-9]", page)
