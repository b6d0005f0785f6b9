"""Sessions of the handshake era over HTTP: opened by `initialize`, closed by DELETE, nobody else's."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from tests.ways import BEHAVIOURS, IN_MEMORY, plugin_of
from tests.wire.test_bad_input import RawHttp
from toolpost.app import App, open_app, open_http
from toolpost.endpoints.http import sessions

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "0"}}


class Session(RawHttp):
    """A client of the handshake era, by hand."""

    def __init__(self, port: int, app: App) -> None:
        super().__init__(port)
        self.app = app
        self.session_id = ""

    async def open(self) -> None:
        head = (
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            "accept: application/json, text/event-stream\r\nconnection: close\r\n"
        )
        body = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE})
        async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
            await stream.send(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
            received = b"".join([chunk async for chunk in stream])
        lines = received.partition(b"\r\n\r\n")[0].split(b"\r\n")
        fields = dict(line.split(b": ", 1) for line in lines[1:])
        self.session_id = fields[b"mcp-session-id"].decode()
        await self.tell("notifications/initialized")

    async def tell(self, method: str, **params: Any) -> int:
        status, _ = await self._post({"jsonrpc": "2.0", "method": method, "params": params})
        return status

    async def call(self, name: str, request_id: Any = 1, **arguments: Any) -> tuple[int, Any]:
        params = {"name": name, "arguments": arguments}
        return await self._post({"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params})

    async def _post(self, message: dict[str, Any], verb: str = "POST") -> tuple[int, Any]:
        status, body = await self.post(
            json.dumps(message).encode(),
            verb=verb,
            mcp_protocol_version="2025-06-18",
            mcp_session_id=self.session_id,
            mcp_method="",
            mcp_name="",
        )
        return status, json.loads(body) if body.startswith(b"{") else body


@pytest.fixture
async def session(anyio_backend: Any) -> AsyncIterator[Session]:
    async with open_app(IN_MEMORY, plugins=[plugin_of(BEHAVIOURS)], bundled=False) as app, open_http(app) as url:
        opened = Session(int(url.split(":")[2].split("/", maxsplit=1)[0]), app)
        await opened.open()
        yield opened


async def test_a_session_lives_from_initialize_to_delete(session: Session) -> None:
    before = await session.call("does__echo", text="x")
    deleted, _ = await session._post({}, verb="DELETE")
    after = await session.call("does__echo", text="x")

    assert before[0] == 200
    assert before[1]["result"]["structuredContent"]["data"] == "x"
    assert deleted == 200
    assert after[0] == 404


@pytest.mark.parametrize(("method", "key"), [("notifications/cancelled", "requestId"), ("$/cancelRequest", "id")])
async def test_a_cancelled_call_says_so_in_its_own_response(session: Session, method: str, key: str) -> None:
    answers: list[Any] = []

    async def ask() -> None:
        answers.append(await session.call("does__sleep", request_id=7, seconds=20))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        while not session.app.gateway.in_flight:
            await anyio.sleep(0.01)
        told = await session.tell(method, **{key: "7"})
        unknown = await session.tell(method, **{key: "nobody"})

    assert (told, unknown) == (202, 202)
    [(status, answer)] = answers
    assert status == 200
    assert answer["result"]["structuredContent"]["error"]["code"] == "CANCELLED"


async def test_a_duplicate_id_in_a_session_is_refused(session: Session) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: session.call("does__sleep", request_id="twin", seconds=2))
        while not session.app.gateway.in_flight:
            await anyio.sleep(0.01)
        status, answer = await session.call("does__echo", request_id="twin", text="x")

    assert status == 400
    assert answer["error"]["code"] == -32600


async def test_closing_a_session_cancels_its_calls(session: Session) -> None:
    answers: list[Any] = []

    async def ask() -> None:
        answers.append(await session.call("does__sleep", seconds=20))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        while not session.app.gateway.in_flight:
            await anyio.sleep(0.01)
        await session._post({}, verb="DELETE")

    assert answers[0][1]["result"]["structuredContent"]["error"]["code"] == "CANCELLED"


async def test_a_session_that_nobody_uses_is_ended(session: Session, monkeypatch: Any) -> None:
    monkeypatch.setattr(sessions, "IDLE_S", -1)
    [endpoint] = [o for o in _endpoints() if session.session_id in o._sessions._sessions]
    assert endpoint._sessions.list_idle() == [session.session_id]
    await endpoint._sdk.end(session.session_id)
    monkeypatch.undo()
    status, _ = await session.call("does__echo", text="x")

    assert status == 404


def _endpoints() -> list[Any]:
    import gc

    from toolpost.endpoints.http.app import HttpEndpoint

    return [found for found in gc.get_objects() if isinstance(found, HttpEndpoint)]
