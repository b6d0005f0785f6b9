"""The front of an HTTP connection: whole, split, pipelined or strange, a request is answered the same."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import anyio
import msgspec
import pytest
from anyio.abc import SocketStream

from tests.hostile.attacks import attack
from tests.waiting import until
from tests.ways import BEHAVIOURS, ENVELOPE, IN_MEMORY, STATELESS, plugin_of
from toolpost.app import App, open_app, open_http
from toolpost.audit import AuditFilter
from toolpost.settings.model import HttpSettings

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


def post(text: str, *, meta: dict[str, Any] | None = None, extra: str = "", name: str = "does__echo") -> bytes:
    params = {"name": name, "arguments": {"text": text}, "_meta": ENVELOPE | (meta or {})}
    body = json.dumps({"jsonrpc": "2.0", "id": text, "method": "tools/call", "params": params}).encode()
    head = (
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"accept: application/json, text/event-stream\r\nmcp-protocol-version: {STATELESS}\r\n"
        f"mcp-method: tools/call\r\nmcp-name: {name}\r\n{extra}content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Wire:
    """A connection that is kept."""

    def __init__(self, stream: SocketStream) -> None:
        self.stream = stream
        self.buffer = b""

    async def answer(self) -> tuple[int, Any]:
        """Read one response, whether it has a length or comes in chunks."""
        while b"\r\n\r\n" not in self.buffer:
            self.buffer += await self.stream.receive()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        if fields.get(b"transfer-encoding") == b"chunked":
            while not self.buffer.endswith(b"0\r\n\r\n"):
                self.buffer += await self.stream.receive()
            body, self.buffer = self.buffer, b""
            return int(head.split(b" ")[1]), body
        length = int(fields[b"content-length"])
        while len(self.buffer) < length:
            self.buffer += await self.stream.receive()
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        return int(head.split(b" ")[1]), json.loads(body) if body else None


@pytest.fixture
async def server(anyio_backend: Any) -> AsyncIterator[tuple[App, int]]:
    async with open_app(IN_MEMORY, plugins=[plugin_of(BEHAVIOURS)], bundled=False) as app, open_http(app) as url:
        yield app, int(url.split(":")[2].split("/", maxsplit=1)[0])


async def test_requests_of_every_kind_share_a_connection(server: tuple[App, int]) -> None:
    async with await anyio.connect_tcp("127.0.0.1", server[1]) as stream:
        wire = Wire(stream)
        seen: list[Any] = []
        for raw in (
            post("plain"),
            b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
            post("again"),
            post("refused", name="does__ehco"),
            post("streamed", meta={"progressToken": 1}),
            post("odd", extra="x-odd: 1\r\nx-odd: 2\r\n"),
            post("last"),
        ):
            await stream.send(raw)
            seen.append(await wire.answer())

    assert [status for status, _ in seen] == [200, 200, 200, 400, 200, 200, 200]
    assert seen[1][1]["status"] == "ok"
    assert seen[3][1]["error"]["code"] == -32602
    for index, text in ((0, "plain"), (2, "again"), (4, "streamed"), (5, "odd"), (6, "last")):
        assert seen[index][1]["result"]["structuredContent"]["data"] == text


async def test_a_request_may_come_in_any_pieces(server: tuple[App, int]) -> None:
    raw = post("in pieces")
    async with await anyio.connect_tcp("127.0.0.1", server[1]) as stream:
        wire = Wire(stream)
        for size in (1, 7, 100, len(raw) - 1):
            for start in range(0, len(raw), size):
                await stream.send(raw[start : start + size])
                await anyio.sleep(0)
            assert (await wire.answer())[1]["result"]["structuredContent"]["data"] == "in pieces"


async def test_requests_may_be_sent_without_waiting(server: tuple[App, int]) -> None:
    texts = [f"number {n}" for n in range(20)]
    mixed = [post(text) if n % 5 else post(text, meta={"progressToken": n}) for n, text in enumerate(texts)]
    async with await anyio.connect_tcp("127.0.0.1", server[1]) as stream:
        wire = Wire(stream)
        await stream.send(b"".join(mixed))
        answers = [(await wire.answer())[1]["id"] for _ in texts]

    assert answers == texts


async def test_a_client_that_hangs_up_takes_its_call_along(server: tuple[App, int]) -> None:
    app, port = server
    params = {"name": "does__sleep", "arguments": {"seconds": 20}, "_meta": ENVELOPE}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    head = post("x", name="does__sleep").partition(b"content-length")[0]
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        await until(lambda: app.gateway.in_flight == 1)
    await until(lambda: not app.gateway.in_flight)
    entries = await app.store.audit.entries(AuditFilter(), limit=10)

    assert [record.entry.outcome for record in entries] == ["cancelled"]


@attack(
    "stranger",
    "sends a good head first and then a head with one other name on the same connection",
    "each head is judged by itself",
)
async def test_a_known_head_does_not_open_the_door_for_another(server: tuple[App, int]) -> None:
    """The head is known again by its bytes: one byte more or less is another head, and is judged anew."""
    async with await anyio.connect_tcp("127.0.0.1", server[1]) as stream:
        wire = Wire(stream)
        await stream.send(post("good"))
        first = await wire.answer()
        await stream.send(post("evil").replace(b"host: localhost", b"host: evil.example"))
        second = await wire.answer()
        await stream.send(post("good"))
        third = await wire.answer()

    assert [status for status, _ in (first, second, third)] == [200, 421, 200]


async def test_the_configured_limit_holds_at_the_front_too(anyio_backend: Any) -> None:
    config = msgspec.structs.replace(IN_MEMORY, http=HttpSettings(listen="127.0.0.1:0", body_limit_bytes=1024))
    async with open_app(config, plugins=[plugin_of(BEHAVIOURS)], bundled=False) as app, open_http(app) as url:
        port = int(url.split(":")[2].split("/", maxsplit=1)[0])
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            wire = Wire(stream)
            await stream.send(post("small"))
            small = await wire.answer()
            await stream.send(post("x" * 5000))
            large = await wire.answer()
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(re.sub(rb"content-length: \d+", b"content-length: " + b"9" * 5000, post("endless")))
            endless = (await stream.receive()).split(b" ")[1]

    assert (small[0], large[0]) == (200, 413)
    assert endless in (b"400", b"413")
