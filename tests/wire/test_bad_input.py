"""Nonsense gets a clear protocol error, the server keeps serving, nothing is lost."""

import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.hostile.attacks import attack
from tests.ways import BEHAVIOURS, ENVELOPE, IN_MEMORY, STATELESS, StdioPeer, plugin_of, stdio_peer
from toolpost.app import open_app, open_http
from toolpost.protocol import rpc

pytestmark = pytest.mark.wire


def call(request_id: Any = 1, **changes: Any) -> dict[str, Any]:
    params = {"name": "does__echo", "arguments": {"text": "hi"}, "_meta": ENVELOPE}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params} | changes


DEEP = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b"[" * 10_000 + b"]" * 10_000 + b"}"
DEEP_STRING = json.dumps(call()).replace('"hi"', json.dumps("[{" * 10_000)).encode()

NONSENSE: list[tuple[str, bytes, int]] = [
    ("malformed", b'{"jsonrpc": "2.0", "id": 1, "method": ', -32700),
    ("empty object", b"{}", -32600),
    ("a number", b"42", -32600),
    ("a batch", json.dumps([call(1), call(2)]).encode(), -32600),
    ("an empty batch", b"[]", -32600),
    ("invalid UTF-8", json.dumps(call()).encode().replace(b"hi", b"\xff\xfe"), -32700),
    ("NaN", json.dumps(call()).encode().replace(b'"hi"', b"NaN"), -32700),
    ("Infinity", json.dumps(call()).encode().replace(b'"hi"', b"-Infinity"), -32700),
    ("10,000 deep", DEEP, -32600),
    ("another jsonrpc", json.dumps(call(jsonrpc="1.0")).encode(), -32600),
    ("a null id", json.dumps(call(None)).encode(), -32600),
    ("a fractional id", json.dumps(call(1.5)).encode(), -32600),
    ("an object as id", json.dumps(call({"a": 1})).encode(), -32600),
    ("a huge id", json.dumps(call("x" * 10_000)).encode(), -32600),
    ("a huge number as id", json.dumps(call(10**400)).encode(), -32600),
    ("method is a number", json.dumps(call(method=7)).encode(), -32600),
    ("unknown method", json.dumps(call(method="tools/cal")).encode(), -32601),
    ("no name", json.dumps(call(params={"arguments": {}, "_meta": ENVELOPE})).encode(), -32602),
    ("params is a list", json.dumps(call(params=[1])).encode(), -32602),
    (
        "arguments is a list",
        json.dumps(call(params={"name": "does__echo", "arguments": [], "_meta": ENVELOPE})).encode(),
        -32602,
    ),
    ("unknown tool", json.dumps(call(params={"name": "nope", "_meta": ENVELOPE})).encode(), -32602),
    (
        "a revision that is not served",
        json.dumps(
            call(params={"name": "does__echo", "_meta": ENVELOPE | {next(iter(ENVELOPE)): "2031-01-01"}})
        ).encode(),
        -32022,
    ),
    (
        "half an envelope",
        json.dumps(call(params={"name": "does__echo", "_meta": {next(iter(ENVELOPE)): STATELESS}})).encode(),
        -32602,
    ),
]
IDS = [name for name, _, _ in NONSENSE]


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StdioPeer]:
    with stdio_peer(BEHAVIOURS, cwd=tmp_path_factory.mktemp("stdio")) as opened:
        yield opened


@attack(
    "caller",
    "sends nonsense on stdio: broken JSON, batches, NaN, 10,000 levels of nesting, impossible ids",
    "each gets a JSON-RPC error, and the next call is answered",
)
@pytest.mark.parametrize(("body", "code"), [(body, code) for _, body, code in NONSENSE], ids=IDS)
def test_nonsense_on_stdio(peer: StdioPeer, body: bytes, code: int) -> None:
    peer.send_raw(body)
    answer = peer.receive()
    after = peer.call("does__echo", text="still here")

    assert answer["error"]["code"] == code
    assert answer["error"]["message"]
    assert after["result"]["structuredContent"]["data"] == "still here"


def test_brackets_inside_a_string_are_not_nesting(peer: StdioPeer) -> None:
    peer.send_raw(DEEP_STRING)

    assert peer.receive()["result"]["isError"] is False


def test_a_hundred_megabytes_on_stdio(peer: StdioPeer) -> None:
    for _ in range(100):
        assert peer.process.stdin is not None
        peer.process.stdin.write(b"x" * 1024 * 1024)
    peer.send_raw(b"")
    answer = peer.receive()
    after = peer.call("does__echo", text="still here")

    assert answer["error"]["code"] == -32600
    assert "4194304" in answer["error"]["message"]
    assert after["result"]["structuredContent"]["data"] == "still here"


def test_an_id_goes_back_as_it_came(peer: StdioPeer) -> None:
    for request_id in (0, -1, 2**63, 10**60, "", "ü", "7", "null"):
        assert peer.request("tools/list", id=request_id)["id"] == request_id


@pytest.mark.parametrize("half", [b"\\ud800", b"\\udc00 and more", b"\xed\xa0\x80"])
@pytest.mark.parametrize("method", ["tools/call", "tools/list", "prompts/get"])
def test_half_of_a_surrogate_pair_is_refused_with_the_id(method: str, half: bytes, peer: StdioPeer) -> None:
    params = {"name": "does__echo", "cursor": "c", "arguments": {"text": "hi"}, "_meta": ENVELOPE}
    message = json.dumps(call("mine", method=method, params=params)).encode()
    for raw in (message.replace(b'"hi"', b'"%b"' % half), message.replace(b'"c"', b'"%b"' % half)):
        peer.send_raw(raw)
        answer = peer.receive()

        assert (answer["id"], answer["error"]["code"]) == ("mine", -32700 if half[0] == 0xED else -32600)
    assert peer.call("does__echo", text="still here")["result"]["structuredContent"]["data"] == "still here"


def test_a_duplicate_id_in_flight_does_not_cost_the_first_its_answer(peer: StdioPeer) -> None:
    peer.start("tools/call", {"name": "does__sleep", "arguments": {"seconds": 0.3}}, id="twin")
    peer.start("tools/call", {"name": "does__echo", "arguments": {"text": "x"}}, id="twin")
    refusal = peer.receive()
    answer = peer.receive()

    assert refusal["id"] is None
    assert refusal["error"]["code"] == -32600
    assert refusal["error"]["data"] == {"id": "twin"}
    assert answer["id"] == "twin"
    assert answer["result"]["structuredContent"] == {"ok": True, "data": "done"}


def test_empty_lines_and_notifications_are_passed_over(peer: StdioPeer) -> None:
    peer.send_raw(b"")
    peer.send_raw(b"   \r")
    peer.send({"jsonrpc": "2.0", "method": "notifications/whatever"})
    peer.send({"jsonrpc": "2.0", "id": 5, "result": {}})

    assert peer.call("does__echo", text="x")["result"]["isError"] is False


def test_a_call_before_the_handshake_is_refused(tmp_path: Path) -> None:
    with stdio_peer(BEHAVIOURS, cwd=tmp_path) as fresh:
        fresh.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "does__echo"}})
        refusal = fresh.receive()
        agreed = fresh.shake_hands("2025-06-18")
        fresh.send({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "does__nothing"}})
        answer = fresh.receive()

    assert refusal["error"]["code"] == -32602
    assert agreed["result"]["protocolVersion"] == "2025-06-18"
    assert answer["result"]["structuredContent"]["data"] == "0 arguments"


def test_requests_sent_behind_initialize_wait_for_it(tmp_path: Path) -> None:
    with stdio_peer(BEHAVIOURS, cwd=tmp_path) as fresh:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "0"}}
        fresh.send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        fresh.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        fresh.send({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        answers = [fresh.receive(), fresh.receive()]

    assert [answer["id"] for answer in answers] == [1, 2]
    assert len(answers[1]["result"]["tools"]) > 10


class RawHttp:
    """HTTP by hand, one request after the other on one connection."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def post(self, body: bytes, *, path: str = "/mcp", verb: str = "POST", **headers: str) -> tuple[int, bytes]:
        fields = {
            "host": f"127.0.0.1:{self.port}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": STATELESS,
            "mcp-method": "tools/call",
            "mcp-name": "does__echo",
            "content-length": str(len(body)),
            "connection": "close",
        } | {name.replace("_", "-"): value for name, value in headers.items()}
        head = f"{verb} {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in fields.items() if v) + "\r\n"
        return await self.send(head.encode() + body)

    async def send(self, raw: bytes) -> tuple[int, bytes]:
        async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
            received = b""

            async def send() -> None:
                with contextlib.suppress(anyio.BrokenResourceError, ConnectionError):
                    await stream.send(raw)

            # A refusal comes before the body was sent, which is then not read any more.
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(send)
                with contextlib.suppress(anyio.BrokenResourceError):
                    async for chunk in stream:
                        received += chunk
                tasks.cancel_scope.cancel()
        head, _, rest = received.partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), rest


@pytest.fixture
async def http(anyio_backend: Any) -> AsyncIterator[RawHttp]:
    async with open_app(IN_MEMORY, plugins=[plugin_of(BEHAVIOURS)], bundled=False) as app, open_http(app) as url:
        yield RawHttp(int(url.split(":")[2].split("/")[0]))


HTTP_METHOD = {"unknown method": "tools/cal"}
HTTP_NAME = {"unknown tool": "nope"}
HTTP_CODE = {"a revision that is not served": -32020}


@attack(
    "caller",
    "sends the same nonsense over HTTP",
    "each gets 400 or 404 with a JSON-RPC error, and the next call is answered",
)
@pytest.mark.anyio
async def test_nonsense_over_http(http: RawHttp) -> None:
    for name, body, code in NONSENSE:
        method = HTTP_METHOD.get(name, "tools/call")
        status, answer = await http.post(body, mcp_method=method, mcp_name=HTTP_NAME.get(name, "does__echo"))
        assert json.loads(answer)["error"]["code"] == HTTP_CODE.get(name, code), name
        assert status == (404 if code == rpc.METHOD_NOT_FOUND else 400), name
    status, answer = await http.post(json.dumps(call()).encode())

    assert status == 200
    assert json.loads(answer)["result"]["structuredContent"] == {"ok": True, "data": "hi"}


@attack(
    "stranger",
    "sends a Host or an Origin of another site, headers that contradict the body, media types that a form can send",
    "each is refused before the message is looked at",
)
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"mcp_name": "does__other"}, 400, -32020),
        ({"mcp_name": ""}, 400, -32020),
        ({"mcp_method": "tools/list"}, 400, -32020),
        ({"mcp_method": ""}, 400, -32020),
        ({"mcp_protocol_version": "2031-01-01"}, 400, None),
        ({"mcp_protocol_version": "2025-11-25"}, 400, None),
        ({"mcp_protocol_version": "2025-11-25", "mcp_session_id": "nobody"}, 404, None),
        ({"mcp_protocol_version": ""}, 400, None),
        ({"accept": "text/html"}, 406, -32600),
        ({"content_type": "text/plain"}, 415, -32600),
        ({"host": "evil.example"}, 421, -32600),
        ({"host": "127.0.0.1.evil.example:80"}, 421, -32600),
        ({"origin": "https://evil.example"}, 403, -32600),
        ({"origin": "null"}, 403, -32600),
        ({"verb": "PUT"}, 405, None),
        ({"path": "/nowhere"}, 404, -32600),
    ],
    ids=str,
)
async def test_wrong_headers_are_refused(http: RawHttp, headers: dict[str, str], status: int, code: int | None) -> None:
    got, answer = await http.post(json.dumps(call()).encode(), **headers)

    assert got == status
    if code is not None:
        assert json.loads(answer)["error"]["code"] == code


@pytest.mark.anyio
async def test_local_pages_and_names_are_welcome(http: RawHttp) -> None:
    for headers in ({"origin": "http://localhost:3000"}, {"host": "localhost:1"}, {"host": "[::1]:8420"}):
        status, _ = await http.post(json.dumps(call()).encode(), **headers)
        assert status == 200


@attack(
    "stranger",
    "sends a header twice whose copies two readers could take differently",
    "the request is refused with 400",
)
@pytest.mark.anyio
async def test_a_header_sent_twice_is_refused(http: RawHttp) -> None:
    body = json.dumps(call()).encode()
    status, _ = await http.post(body, mcp_method="tools/call\r\nmcp-method: tools/call")

    assert status == 400


@pytest.mark.anyio
@pytest.mark.parametrize("space", [" ", "\t", "  \t "], ids=repr)
@pytest.mark.parametrize("path", ["/mcp", "/mcp/server/does"])
async def test_whitespace_around_a_header_is_not_part_of_it(space: str, path: str, http: RawHttp) -> None:
    name = "does__echo" if path == "/mcp" else "echo"
    params = {"name": name, "arguments": {"text": "hi"}, "_meta": ENVELOPE | {"progressToken": 1}}
    fields = {"mcp_name": f"{space}{name}{space}", "mcp_method": f"tools/call{space}"}
    fields["mcp_protocol_version"] = f"{STATELESS}{space}"
    status, answer = await http.post(json.dumps(call(params=params)).encode(), path=path, **fields)

    assert (status, b'"data":"hi"' in answer) == (200, True)


@pytest.mark.anyio
@pytest.mark.parametrize("is_declared", [True, False], ids=["declared", "chunked"])
async def test_a_client_that_sends_all_of_a_large_body_first_reads_the_refusal(
    http: RawHttp, is_declared: bool
) -> None:
    size = 20 * 1024 * 1024
    length = f"content-length: {size}" if is_declared else "transfer-encoding: chunked"
    head = f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n{length}\r\n\r\n"
    body = b"x" * size if is_declared else (b"10000\r\n" + b"x" * 0x10000 + b"\r\n") * (size // 0x10000) + b"0\r\n\r\n"

    def send_then_read() -> bytes:
        with socket.create_connection(("127.0.0.1", http.port), timeout=60) as peer:
            peer.sendall(head.encode() + body)
            return peer.recv(65_536)

    assert (await anyio.to_thread.run_sync(send_then_read)).startswith(b"HTTP/1.1 413 ")


@pytest.mark.anyio
async def test_a_hundred_megabytes_over_http(http: RawHttp) -> None:
    declared, _ = await http.post(b"x" * 100 * 1024 * 1024)
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    head = (
        b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    )
    undeclared, answer = await http.send(head + chunk * 1600)
    after, _ = await http.post(json.dumps(call()).encode())

    assert (declared, undeclared, after) == (413, 413, 200)
    assert "4194304" in json.loads(answer)["error"]["message"]


@pytest.mark.anyio
async def test_half_a_request_and_silence_cost_nothing(http: RawHttp) -> None:
    with socket.create_connection(("127.0.0.1", http.port)) as half:
        half.sendall(b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n\r\n{")
        status, _ = await http.post(json.dumps(call()).encode())
    garbage, _ = await http.send(b"\x16\x03\x01 this is not HTTP\r\n\r\n")

    assert status == 200
    assert garbage == 400
