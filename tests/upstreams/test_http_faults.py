"""A server over HTTP does what it should not: its own calls get a clear answer, everything else goes on."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError

from tests.hostile.attacks import attack
from tests.upstreams.behind import (
    ERAS,
    ONE_OF_EACH,
    PAIRS,
    Timed,
    beside,
    gateway,
    hostile,
    report,
    retry_in_s,
    text_of,
)
from tests.upstreams.servers.http_server import HttpServer, serving
from tests.upstreams.test_stdio_faults import unavailable
from tests.waiting import until
from tests.ways import QUICK_WAYS, STATELESS, Way
from toolpost.app import App
from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.net import client as http_client
from toolpost.testing import error_of
from toolpost.upstreams import failures, handshake
from toolpost.upstreams.http import transport as http_transport
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_leaks"), pytest.mark.wire]


@asynccontextmanager
async def behind_http(
    server: HttpServer, *, way: Way = ONE_OF_EACH[0], **options: Any
) -> AsyncIterator[tuple[App, Client]]:
    """Open a gateway with this server behind it, and a good one beside it."""
    async with serving(server) as url:
        async with gateway(ServerSpec(name="up", url=url, **options), hostile("good"), way=way) as (app, client):
            yield app, client


@pytest.mark.parametrize("streams", [False, True], ids=["json", "events"])
@pytest.mark.parametrize(("way", "version"), PAIRS, ids=str)
async def test_json_and_events_are_the_same_in_both_eras(way: Way, version: str, streams: bool) -> None:
    server = HttpServer(version=version, streams=streams)
    async with behind_http(server, way=way) as (app, client):
        answer = await client.call_tool("up__echo", {"text": "hi"})
        with pytest.raises(MCPError) as refusal:
            await client.call_tool("up__refuse")
        seen = report(app)

    assert text_of(answer) == "hi"
    assert (refusal.value.code, refusal.value.message, refusal.value.error.data) == (-31001, "not today", {"why": 1})
    assert (seen.version, seen.transport, seen.state) == (version, "http", "ready")
    assert server.sessions == {}, "the session was not closed"
    if version == STATELESS:
        assert server.headers[-1]["mcp-method"] == "tools/call"
        assert server.headers[-1]["mcp-name"] == "refuse"


@pytest.mark.parametrize("version", ERAS)
async def test_a_server_that_refuses_a_revision_and_lists_its_own_is_met_in_its_own_era(version: str) -> None:
    server = HttpServer(version=version)
    server.refuses_revisions = 1
    async with behind_http(server) as (app, client):
        answer = await client.call_tool("up__echo", {"text": "hi"})
        seen = report(app)

    assert text_of(answer) == "hi"
    assert seen.version == version


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize(
    ("status", "said"),
    [(403, "refused access"), (404, "HTTP 404"), (500, "HTTP 500"), (307, "has moved"), (200, "not MCP")],
)
async def test_a_status_is_told_and_harms_nobody_else(status: int, said: str, version: str) -> None:
    server = HttpServer(version=version, has_sessions=False)
    server.location = "https://example.com/there"
    async with behind_http(server) as (app, client):
        server.status = status
        answer = await beside(client, "good", lambda: client.call_tool("up__echo"))
        seen = report(app)
        server.status = None
        after = await client.call_tool("up__echo", {"text": "again"})

    error = unavailable(answer)
    assert said in error["message"]
    assert seen.last_error is not None
    assert said in seen.last_error
    if status == 307:
        assert "https://example.com/there" in error["hint"]
    assert text_of(after) == "again"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (403, "it refused access (HTTP 403)"),
        (404, "there is no MCP server at this address (HTTP 404)"),
        (405, "there is no MCP server at this address (HTTP 405)"),
        (500, "it answered with HTTP 500"),
        (307, "it has moved (HTTP 307)"),
        (200, "it answered with something that is not MCP (HTTP 200)"),
    ],
)
async def test_a_status_at_the_start_is_a_failed_start(status: int, said: str) -> None:
    server = HttpServer()
    server.status = status
    async with behind_http(server) as (app, client):
        names = {tool.name for tool in (await client.list_tools()).tools}
        seen = report(app)

    assert (seen.state, seen.last_error) == ("failed", said)
    assert "good__echo" in names


@attack(
    "server",
    "answers over HTTP without end, in halves or as something else",
    "the call fails within the limit, and others are answered",
)
@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_answers_without_end_or_in_halves_fail_their_own_call(
    way: Way, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client.HttpClient.__init__, "__kwdefaults__", small_bodies())
    server = HttpServer(version=version)
    async with behind_http(server, way=way, timeout_s=3.0) as (app, client):

        async def call_all() -> dict[str, dict[str, Any]]:
            tools = ("endless", "cut", "cut_events", "lie", "endless_events")
            return {tool: error_of(await client.call_tool(f"up__{tool}")) for tool in tools}

        errors = await beside(client, "good", call_all)
        after = await client.call_tool("up__echo", {"text": "fine"})
        seen = report(app)

    assert "more than 1000000 bytes" in errors["endless"]["message"]
    assert "ask for less" in errors["endless"]["hint"]
    assert "in the middle of its answer" in errors["cut"]["message"]
    assert "without an answer" in errors["cut_events"]["message"]
    assert "not MCP" in errors["lie"]["message"]
    assert [error["code"] for error in errors.values()] == ["UPSTREAM_UNAVAILABLE"] * 4 + ["TOOL_TIMEOUT"]
    assert text_of(after) == "fine"
    assert seen.restarts == 0


def small_bodies() -> dict[str, Any]:
    defaults = http_client.HttpClient.__init__.__kwdefaults__
    assert defaults is not None
    return {**defaults, "body_limit": 1_000_000}


async def test_a_server_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "FIRST_S", 0.05)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    async with gateway(ServerSpec(name="up", url=f"http://127.0.0.1:{port}/mcp"), hostile("good")) as (app, client):
        seen = report(app)
        answer = await client.call_tool("good__echo", {"text": "here"})
        async with serving(HttpServer(), port=port):
            await until(lambda: retry_in_s(app.servers.providers["up"].supervisor) <= 0)
            await app.servers.providers["up"].supervisor.ensure_ready()
            await until(lambda: any(tool.contract.name == "up__echo" for tool in app.gateway.catalog))
            late = await client.call_tool("up__echo", {"text": "late"})

    assert seen.state == "failed"
    assert seen.last_error is not None
    assert f"cannot connect to 127.0.0.1:{port}" in seen.last_error
    assert text_of(answer) == "here"
    assert text_of(late) == "late"


@pytest.mark.parametrize("version", ERAS)
async def test_a_server_that_goes_away_and_comes_back_is_found_again(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "FIRST_S", 0.05)
    async with serving(HttpServer(version=version)) as url:
        port = int(url.split(":")[2].split("/")[0])
        opened = gateway(ServerSpec(name="up", url=url))
        app, client = await opened.__aenter__()
    try:
        gone = await client.call_tool("up__echo")
        async with serving(HttpServer(version=version), port=port):
            await until(lambda: retry_in_s(app.servers.providers["up"].supervisor) <= 0)
            back = await client.call_tool("up__echo", {"text": "back"})
    finally:
        await opened.__aexit__(None, None, None)

    assert "cannot connect" in unavailable(gone)["message"]
    assert text_of(back) == "back"


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_forgotten_session_is_opened_anew_and_the_call_repeated(way: Way) -> None:
    server = HttpServer(version="2025-06-18")
    async with behind_http(server, way=way) as (app, client):
        first = [text_of(await client.call_tool("up__count")) for _ in range(2)]
        server.forget_sessions()
        second = text_of(await client.call_tool("up__count"))
        seen = report(app)

    assert (first, second) == (["1", "2"], "1")
    assert seen.restarts == 1
    assert server.methods.count("initialize") == 2


@pytest.mark.parametrize("version", ERAS)
async def test_a_probe_that_hangs_is_not_waited_for(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "PROBE_LIMIT_S", 0.2)
    server = HttpServer(version="2025-03-26" if version != STATELESS else STATELESS)
    server.hangs_on_probe = True
    async with behind_http(server) as (app, client):
        seen = report(app)
        answer = await client.call_tool("up__echo", {"text": "hi"}) if version != STATELESS else None

    assert seen.state == ("failed" if version == STATELESS else "ready")
    if answer is not None:
        assert text_of(answer) == "hi"


async def test_a_probe_that_is_answered_after_the_handshake_was_refused_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "PROBE_LIMIT_S", 2)
    server = HttpServer(version=STATELESS)
    server.probe_pause.clear()

    async def answer_late() -> None:
        await until(lambda: "initialize" in server.methods)
        await anyio.sleep(0.1)  # it is slow on purpose
        server.probe_pause.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer_late)
        async with behind_http(server) as (app, client):
            seen = report(app)
            answer = await client.call_tool("up__echo", {"text": "hi"})

    assert seen.state == "ready"
    assert text_of(answer) == "hi"


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_streams_that_stay_open_or_are_cut_still_answer(way: Way, version: str) -> None:
    server = HttpServer(version=version)
    async with behind_http(server, way=way, timeout_s=120.0) as (_, client):
        with Timed() as lingering:
            lingered = await client.call_tool("up__linger")
        resumed = await client.call_tool("up__resume")
        asked = await client.call_tool("up__ask_back")

    assert text_of(lingered) == "lingered"
    assert lingering.took_s < 100, "it was waited for until the deadline"
    assert text_of(asked) == "asked"
    assert server.answers[0]["error"]["code"] == -32601
    if version == STATELESS:
        assert unavailable(resumed)
    else:
        assert text_of(resumed) == "resumed"


@pytest.mark.parametrize(("way", "version"), PAIRS, ids=str)
async def test_a_flood_of_progress_is_shaped(way: Way, version: str) -> None:
    heard: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with behind_http(HttpServer(version=version), way=way) as (_, client):
        with Timed() as flood:
            answer = await client.call_tool("up__flood", {"count": 2000}, progress_callback=hear)

    assert text_of(answer) == "flooded"
    assert 1 <= len(heard) <= 4 * flood.took_s + 4
    assert heard[-1] == 2000


async def test_the_event_stream_outlives_an_authorization_server_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_transport, "RESUME_S", 0.01)
    requested = anyio.Event()

    class Client:
        async def request(self, method: str, **_options: Any) -> Any:
            assert method == "GET"
            requested.set()
            await anyio.sleep_forever()

    class Token:
        header = None
        fresh_until = 0.0
        tries = 0

        async def prepare(self) -> None:
            self.tries += 1
            if self.tries == 1:
                raise UpstreamUnavailable("the authorization server cannot be reached")

    client: Any = Client()
    server_token: Any = Token()
    transport = http_transport.HttpTransport("up", client, on_notification=lambda *_: None, server_token=server_token)
    transport._has_session.set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(transport.listen, lambda _reason: None)
        with anyio.fail_after(30):
            await requested.wait()
        tasks.cancel_scope.cancel()
