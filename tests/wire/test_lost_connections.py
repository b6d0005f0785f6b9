"""A lost connection: in the stateless era it cancels the call, in the handshake era the call goes on and can be come back to."""

import http.client
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.plugins import behaviours
from tests.upstreams.servers.http_server import HttpServer, serving
from tests.waiting import until
from tests.ways import BEHAVIOURS, ENVELOPE, IN_MEMORY, STATELESS, plugin_of
from toolpost.app import open_app, open_http
from toolpost.audit import AuditFilter
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

BOTH = "application/json, text/event-stream"


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Any, "Peer"]]:
    async with open_app(IN_MEMORY, plugins=[plugin_of(BEHAVIOURS)], bundled=False) as app, open_http(app) as url:
        yield app, Peer(url)


class Peer:
    """A raw client, which can hang up in the middle of anything."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.session = ""

    def open(self, verb: str, message: Any = None, **headers: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self.url.split("/")[2], timeout=20)
        fields = {"accept": BOTH, "content-type": "application/json"}
        if self.session:
            fields |= {"mcp-session-id": self.session, "mcp-protocol-version": "2025-11-25"}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(verb, "/mcp", json.dumps(message) if message else None, fields)
        return connection

    def ask(self, message: Any, **headers: str) -> tuple[int, Any]:
        connection = self.open("POST", message, **headers)
        answer = connection.getresponse()
        body = answer.read()
        self.session = answer.headers.get("mcp-session-id", self.session)
        connection.close()
        lines = body.splitlines() if not body.startswith(b"{") else [b"data: " + body]
        found = [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
        return answer.status, found[-1] if found else None

    def shake_hands(self, **capabilities: Any) -> None:
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "x", "version": "0"},
        }
        self.ask({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        self.ask({"jsonrpc": "2.0", "method": "notifications/initialized"})


def call(name: str, *, meta: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments, "_meta": meta or {}}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


async def outcomes(app: Any) -> list[str]:
    return [record.entry.outcome for record in await app.store.audit.entries(AuditFilter(), limit=10)]


@pytest.mark.parametrize("hears", [False, True], ids=["json", "events"])
async def test_in_the_handshake_era_the_call_goes_on(hears: bool) -> None:
    meta = {"progressToken": "t"} if hears else {}
    async with served() as (app, peer):
        await anyio.to_thread.run_sync(peer.shake_hands)
        opened = await anyio.to_thread.run_sync(lambda: peer.open("POST", call("does__sleep", meta=meta, seconds=0.5)))
        await until(lambda: behaviours.STARTED)
        opened.close()
        with anyio.fail_after(30):
            while await outcomes(app) != ["ok"]:
                await anyio.sleep(0.05)


@pytest.mark.parametrize("hears", [False, True], ids=["json", "events"])
async def test_in_the_stateless_era_it_is_cancelled(hears: bool) -> None:
    meta = ENVELOPE | ({"progressToken": "t"} if hears else {})
    headers = {"mcp_protocol_version": STATELESS, "mcp_method": "tools/call", "mcp_name": "does__sleep"}
    async with served() as (app, peer):
        opened = await anyio.to_thread.run_sync(
            lambda: peer.open("POST", call("does__sleep", meta=meta, seconds=20), **headers)
        )
        await until(lambda: behaviours.STARTED)
        opened.close()
        with anyio.fail_after(30):
            while await outcomes(app) != ["cancelled"]:
                await anyio.sleep(0.05)


async def test_a_client_comes_back_for_the_rest_of_a_stream() -> None:
    def talk(peer: Peer) -> tuple[list[bytes], list[bytes]]:
        peer.shake_hands()
        opened = peer.open("POST", call("does__chatter", meta={"progressToken": "t"}, count=8, pause=0.2))
        stream = opened.getresponse()
        first = [stream.readline() for _ in range(8)]
        stream.close()
        opened.close()
        seen = [line for line in first if line.startswith(b"id: ")]
        again = peer.open("GET", last_event_id=seen[-1][4:].strip().decode())
        rest = again.getresponse().read()
        again.close()
        return first, rest.splitlines(keepends=True)

    async with served() as (_, peer):
        first, rest = await anyio.to_thread.run_sync(talk, peer)

    assert first[0].startswith(b"id: ")
    assert first[1] == b"retry: 1000\r\n"
    messages = [json.loads(line[6:]) for line in rest if line.startswith(b"data: {")]
    numbers = [int(line.rpartition(b":")[2]) for line in [*first, *rest] if line.startswith(b"id: ")]
    assert numbers == list(range(len(numbers)))
    assert messages[-1]["id"] == 7
    assert messages[-1]["result"]["structuredContent"]["data"] == 8
    assert all(message["method"] == "notifications/progress" for message in messages[:-1])


async def test_another_session_cannot_come_back_for_it() -> None:
    def talk(peer: Peer) -> int:
        peer.shake_hands()
        opened = peer.open("POST", call("does__chatter", meta={"progressToken": "t"}, count=4, pause=0.2))
        line = opened.getresponse().readline()
        other = Peer(peer.url)
        other.shake_hands()
        answer = other.open("GET", last_event_id=line[4:].strip().decode())
        answer.sock.settimeout(1)
        status = answer.getresponse()
        try:
            body = status.read(200)
        except TimeoutError:
            body = b""
        opened.close()
        answer.close()
        assert b"chatter" not in body
        assert b"progress" not in body
        return status.status

    async with served() as (_, peer):
        await anyio.to_thread.run_sync(talk, peer)


@pytest.mark.parametrize("streams", [False, True], ids=["json", "events"])
async def test_a_servers_own_error_has_the_status_of_its_code(streams: bool) -> None:
    server = HttpServer(streams=streams)
    statuses: dict[str, int] = {}
    async with serving(server) as url:
        spec = ServerSpec(name="up", url=url)
        async with open_app(IN_MEMORY, bundled=False, servers=[spec]) as app, open_http(app) as at:
            peer = Peer(at)
            for code in (-32602, -32021, -32601, -32603, -31001):
                server.refusal_code = code
                for meta in ({}, {"progressToken": "t"}):
                    status, answer = await anyio.to_thread.run_sync(
                        lambda m=meta: peer.ask(  # type: ignore[misc]
                            call("up__refuse", meta=ENVELOPE | m),
                            mcp_protocol_version=STATELESS,
                            mcp_method="tools/call",
                            mcp_name="up__refuse",
                        )
                    )
                    assert answer["error"]["code"] == code
                    statuses[f"{code} {bool(meta)}"] = status

    expected = {-32602: 400, -32021: 400, -32601: 404, -32603: 200, -31001: 200}
    assert statuses == {f"{code} {hears}": status for code, status in expected.items() for hears in (False, True)}
