"""What a server says about one caller's calls reaches no other caller: log messages, late ones too, and its last words."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp_types import LoggingMessageNotificationParams

from tests.hostile.attacks import attack
from tests.upstreams.behind import ERAS
from tests.upstreams.servers.http_server import serving
from tests.upstreams.servers.telling import Telling, telling_app
from tests.waiting import until
from tests.ways import IN_MEMORY, STATELESS
from tests.wire.callers import Project, client_of
from toolpost.app import App, open_app, open_http
from toolpost.base.ids import CallerId
from toolpost.testing import error_of
from toolpost.upstreams import notifications
from toolpost.upstreams.notifications import Attribution
from toolpost.upstreams.spec import ServerSpec

pytestmark = [
    pytest.mark.anyio,
    # The client warns of what only the handshake era has; here both eras are meant.
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
    pytest.mark.wire,
]

SERVER = Path(__file__).parent / "servers" / "logging_server.py"
LOG_LEVEL: Any = {"io.modelcontextprotocol/logLevel": "debug"}


def logging_server(version: str, **options: Any) -> ServerSpec:
    return ServerSpec(name="up", command=(sys.executable, "-S", "-E", str(SERVER), "--version", version), **options)


class Ears:
    """A gateway with a server that logs, and the sessions of Ada, Bob and an administrator, with what each has heard."""

    def __init__(self, app: App, url: str, stack: AsyncExitStack) -> None:
        self.app = app
        self.url = url
        self.heard: dict[str, list[Any]] = {}
        self._stack = stack

    async def join(self, name: str, mode: str = "legacy") -> Client:
        """Open a session that wants to hear everything."""
        heard = self.heard.setdefault(name, [])

        async def hear(params: LoggingMessageNotificationParams) -> None:
            heard.append(params.data)

        client = await self._stack.enter_async_context(
            client_of(self.url, f"{name}-token", mode, logging_callback=hear)
        )
        if mode == "legacy":
            await client.set_logging_level("debug")
        return client

    async def until_calls(self, count: int) -> None:
        """Wait until so many calls are in flight, and their server has them."""
        await until(lambda: self.app.gateway.in_flight == count)
        await until(lambda: sum(one.supervisor.in_flight for one in self.app.servers.providers.values()) == count)

    async def settle(self) -> None:
        """Wait until whoever is to hear what was said has heard it: an administrator's word comes after it."""
        await anyio.sleep(0.2)  # what must not be heard has no end to wait for


@asynccontextmanager
async def ears(tmp_path: Path, server: ServerSpec | str, **options: Any) -> AsyncIterator[Ears]:
    config = Project(tmp_path).write("ada", "bob", "root\nadmin = true").load()
    spec = logging_server(server, **options) if isinstance(server, str) else server
    async with open_app(config, bundled=False, servers=[spec]) as app, open_http(app) as url:
        async with AsyncExitStack() as stack:
            yield Ears(app, url, stack)


@pytest.mark.parametrize("version", ERAS)
@attack(
    "server",
    "logs about one caller's call while other callers listen for log messages",
    "only the caller whose call is in flight hears it",
)
async def test_a_log_message_goes_to_the_caller_whose_call_is_in_flight(tmp_path: Path, version: str) -> None:
    async with ears(tmp_path, version) as gateway:
        ada, _, _ = [await gateway.join(name) for name in ("ada", "bob", "root")]
        await ada.call_tool("up__say", {"text": "about ada", "seconds": 0.1})
        await until(lambda: gateway.heard["ada"])
        await gateway.settle()

    assert gateway.heard == {"ada": ["about ada"], "bob": [], "root": []}


@pytest.mark.parametrize("version", ERAS)
@attack(
    "server",
    "logs while calls of several callers are in flight, so that nothing says whose call it is about",
    "only callers with `admin = true` hear it",
)
async def test_where_it_cannot_be_told_only_administrators_hear_it(tmp_path: Path, version: str) -> None:
    async with ears(tmp_path, version) as gateway:
        ada, bob, _ = [await gateway.join(name) for name in ("ada", "bob", "root")]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bob.call_tool, "up__sleep", {"seconds": 2})
            await gateway.until_calls(1)
            tasks.start_soon(ada.call_tool, "up__say", {"text": "about ada"})
        await until(lambda: gateway.heard["root"])
        await gateway.settle()

    assert gateway.heard == {"ada": [], "bob": [], "root": ["about ada"]}


@attack(
    "server",
    "answers one caller's call, and logs about it when another caller's call is in flight",
    "the other caller does not hear it; callers with `admin = true` do",
)
async def test_what_is_said_late_is_not_taken_for_the_next_caller_s(tmp_path: Path) -> None:
    async with ears(tmp_path, "2025-11-25") as gateway:
        ada, bob, _ = [await gateway.join(name) for name in ("ada", "bob", "root")]
        await ada.call_tool("up__say", {"text": "about ada", "late": 1})
        await bob.call_tool("up__sleep", {"seconds": 1.5})
        await until(lambda: gateway.heard["root"])
        await gateway.settle()

    assert gateway.heard == {"ada": [], "bob": [], "root": ["about ada"]}


@attack(
    "caller",
    "gives a call up, which its server does not heed and goes on to log about",
    "no other caller hears it",
)
async def test_what_is_said_about_a_call_that_was_given_up_is_nobody_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "LATE_S", 0.0)
    async with ears(tmp_path, STATELESS) as gateway:
        ada, bob, _ = [await gateway.join(name) for name in ("ada", "bob", "root")]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ada.call_tool, "up__say", {"text": "about ada", "seconds": 0.5, "late": 0.5})
            await gateway.until_calls(1)
            tasks.cancel_scope.cancel()
        await bob.call_tool("up__sleep", {"seconds": 1.5})
        await until(lambda: gateway.heard["root"])
        await gateway.settle()

    assert gateway.heard["bob"] == []


@attack(
    "caller",
    "asks for log messages of every level with a stateless call, while the server works for another caller",
    "it receives only messages about its own calls",
)
async def test_a_stateless_call_hears_of_nobody_else(tmp_path: Path) -> None:
    async with ears(tmp_path, "2025-11-25") as gateway:
        ada, bob = await gateway.join("ada", STATELESS), await gateway.join("bob", STATELESS)
        await bob.call_tool("up__say", {"text": "about bob", "seconds": 0.1}, meta=LOG_LEVEL)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: bob.call_tool("up__sleep", {"seconds": 2}, meta=LOG_LEVEL))
            await gateway.until_calls(1)
            await ada.call_tool("up__say", {"text": "about ada"}, meta=LOG_LEVEL)

    assert gateway.heard == {"ada": [], "bob": ["about bob"]}


@attack(
    "server",
    "logs over HTTP on the response to a call whose client did not ask for log messages",
    "it is about that call: no other caller hears it",
)
async def test_what_comes_on_a_call_s_own_stream_is_that_caller_s(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(telling_app(Telling(), is_stateless=False))
        server = ServerSpec(name="up", url=await stack.enter_async_context(serving(app)))
        async with ears(tmp_path, server) as gateway:
            ada, bob = await gateway.join("ada", STATELESS), await gateway.join("bob")
            await ada.call_tool("up__say", {"level": "error"})
            await bob.call_tool("up__say", {"level": "critical"})
            await until(lambda: gateway.heard["bob"])
            await gateway.settle()

    assert gateway.heard == {"ada": [], "bob": ["a critical"]}


@attack(
    "server",
    "has a process for each session, and logs",
    "the session hears it whose process it is, and no other caller",
)
async def test_a_server_of_one_s_own_logs_to_its_owner(tmp_path: Path) -> None:
    async with ears(tmp_path, "2025-11-25", strategy="per_session") as gateway:
        ada, bob, _ = [await gateway.join(name) for name in ("ada", "bob", "root")]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bob.call_tool, "up__sleep", {"seconds": 0.4})
            tasks.start_soon(ada.call_tool, "up__say", {"text": "about ada", "late": 0.1})
        await until(lambda: gateway.heard["ada"])
        await gateway.settle()

    assert gateway.heard == {"ada": ["about ada"], "bob": [], "root": []}


@attack(
    "server",
    "crashes under one caller's call after it has written another caller's data to stderr",
    "the error shows the last lines of stderr to callers with `admin = true` alone",
)
async def test_last_words_are_not_shown_to_other_callers(tmp_path: Path) -> None:
    async with ears(tmp_path, "2025-11-25") as gateway:
        ada, bob, root = [await gateway.join(name, STATELESS) for name in ("ada", "bob", "root")]
        seen = {}
        for name, client in (("bob", bob), ("root", root), ("ada", ada)):
            await ada.call_tool("up__say", {"text": "password of ada"})
            seen[name] = str(error_of(await client.call_tool("up__crash")))

    assert "password" not in seen["bob"]
    assert "admin" in seen["bob"]
    # Nobody else had a call with the process that Ada brought down: what it said is about her own.
    assert "password" in seen["root"]
    assert "password" in seen["ada"]


class RawSession:
    """A session of the handshake era by hand: what the stream of no request brings, with the ids of its events."""

    def __init__(self, http: httpx2.AsyncClient, url: str, session: str) -> None:
        self._http = http
        self._url = url
        self.last = ""
        self._headers = {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}

    @classmethod
    async def open(cls, http: httpx2.AsyncClient, url: str) -> "RawSession":
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        session = cls(http, url, (await http.post(url, json=body)).headers["mcp-session-id"])
        await session.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return session

    async def post(self, body: Any) -> None:
        await self._http.post(self._url, json=body, headers=self._headers)

    async def say(self, text: str) -> None:
        wish = {"name": "up__say", "arguments": {"text": text, "seconds": 0.1}}
        await self.post({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": wish})

    async def listen(self, heard: list[str], after: str = "") -> None:
        """Listen until cancelled; `last` is then the id of the last event."""
        headers = self._headers | {"accept": "text/event-stream"} | ({"last-event-id": after} if after else {})
        async with self._http.stream("GET", self._url, headers=headers) as stream:
            async for line in stream.aiter_lines():
                if line.startswith("id: "):
                    self.last = line[4:]
                elif line.startswith("data: ") and len(line) > 6:
                    heard.append(json.loads(line[6:])["params"]["data"])


@attack(
    "caller",
    "comes back to a lost event stream with the id of its last event, after the server has logged about others",
    "the stream of that session goes on; no event of another session is in it",
)
async def test_a_resumed_stream_has_no_events_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "LATE_S", 0.0)
    async with ears(tmp_path, "2025-11-25") as gateway, AsyncExitStack() as stack:

        async def session(name: str) -> RawSession:
            said = {"authorization": f"Bearer {name}-token", "accept": "application/json, text/event-stream"}
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=said, timeout=20))
            return await RawSession.open(http, gateway.url)

        ada, bob = await session("ada"), await session("bob")
        first, theirs, rest = list[str](), list[str](), list[str]()
        async with anyio.create_task_group() as others:
            others.start_soon(bob.listen, theirs)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ada.listen, first)
                await until(lambda: gateway.app.shares.streams.taken == 2)
                await ada.say("about ada")
                await until(lambda: first)
                tasks.cancel_scope.cancel()
            await until(lambda: gateway.app.shares.streams.taken == 1)
            await bob.say("about bob")
            await until(lambda: theirs)
            with anyio.move_on_after(0.5):
                await ada.listen(rest, after=ada.last)
            others.cancel_scope.cancel()

    assert ada.last
    assert (first, theirs) == (["about ada"], ["about bob"])
    assert rest == []


async def test_on_a_gateway_without_callers_everybody_is_the_same() -> None:
    config, heard = IN_MEMORY, list[Any]()

    async def hear(params: LoggingMessageNotificationParams) -> None:
        heard.append(params.data)

    async with open_app(config, bundled=False, servers=[logging_server("2025-11-25")]) as app, open_http(app) as url:
        async with Client(url, mode="legacy", logging_callback=hear) as client:
            await client.set_logging_level("debug")
            await client.call_tool("up__say", {"text": "late", "late": 0.1})
            await until(lambda: heard)

    assert heard == ["late"]


ADA, BOB = CallerId("ada"), CallerId("bob")


def test_a_message_is_about_the_only_caller_in_flight() -> None:
    attribution = Attribution()

    assert attribution.find_caller([]) is None
    assert attribution.find_caller([None]) is None
    assert attribution.find_caller([ADA, None, ADA]) == ADA
    assert attribution.find_caller([ADA, BOB]) is None


def test_a_call_that_has_just_ended_leaves_doubt_for_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    attribution = Attribution()
    attribution.note_end(ADA)
    attribution.note_end(BOB)
    attribution.note_end(BOB)

    assert attribution.find_caller([ADA]) is None
    assert attribution.find_caller([BOB]) is None
    monkeypatch.setattr(notifications, "LATE_S", 0.0)
    assert attribution.find_caller([BOB]) == BOB
    attribution.note_abandoned(ADA)
    assert attribution.find_caller([BOB]) is None
    assert attribution.find_caller([ADA]) == ADA
    assert attribution.may_serve_others(BOB)
    assert not attribution.may_serve_others(ADA)
    monkeypatch.setattr(notifications, "ABANDONED_S", 0.0)
    assert attribution.find_caller([BOB]) == BOB
