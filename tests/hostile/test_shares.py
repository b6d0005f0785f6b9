"""One caller floods what all share, and another one is served: calls, queues, servers, sessions, streams, tasks, threads."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, MCPError
from mcp_types import CallToolResult

from tests.endpoints.tasks.asking import DECLARED
from tests.hostile.attacks import attack
from tests.parts.agents.asking import limit
from tests.upstreams.behind import hostile, text_of
from tests.upstreams.servers.http_server import serving
from tests.upstreams.servers.telling import Telling, telling_app
from tests.waiting import until
from tests.ways import BEHAVIOURS, ENVELOPE, STATELESS, plugin_of, stdio_peer
from tests.wire.callers import ERAS, Project, client_of
from toolpost.app import App, open_app, open_http
from toolpost.base.caller import Caller
from toolpost.base.ids import META_KEY, CallerId
from toolpost.endpoints.http import sessions
from toolpost.endpoints.tasks import runner
from toolpost.settings.model import LimitSettings
from toolpost.testing import ScriptedAgent, error_of, parts_with
from toolpost.upstreams.http import transport as http_transport
from toolpost.upstreams.spec import ServerSpec

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
    pytest.mark.wire,
]

JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "0"},
}


class Shared:
    """A gateway that Ada and Bob share."""

    def __init__(self, app: App, url: str, stack: AsyncExitStack) -> None:
        self.app = app
        self.url = url
        self._stack = stack

    async def client(self, name: str, mode: str = STATELESS) -> Client:
        return await self._stack.enter_async_context(client_of(self.url, f"{name}-token", mode))

    async def raw(self, token: str) -> httpx2.AsyncClient:
        headers = {"authorization": f"Bearer {token}", **JSON}
        return await self._stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=20))

    async def opened(self, http: httpx2.AsyncClient) -> httpx2.Response:
        """Open a session of the handshake era."""
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
        return await http.post(self.url, json=body)

    async def ask(self, http: httpx2.AsyncClient, method: str, meta: Any = ENVELOPE, **params: Any) -> httpx2.Response:
        """Ask in the stateless era."""
        headers = {"mcp-protocol-version": STATELESS, "mcp-method": method, "mcp-name": str(params.get("name", ""))}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        return await http.post(self.url, json=body, headers=headers)

    @asynccontextmanager
    async def flooded(
        self, count: int, call: Callable[[], Awaitable[CallToolResult]], *, refuses: int = 0
    ) -> AsyncIterator[list[Any]]:
        """Make calls that do not end while this is open; yields the errors of those that were refused, once they were."""
        refused: list[Any] = []
        answered = 0

        async def one() -> None:
            nonlocal answered
            answer = await call()
            answered += 1
            if answer.is_error:
                refused.append(error_of(answer))

        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(one)
            await until(lambda: self.app.gateway.in_flight + answered >= count and len(refused) >= refuses)
            yield refused
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def shared(
    tmp_path: Path, limits: str = "", *, callers: tuple[str, ...] = ("ada", "bob"), **options: Any
) -> AsyncIterator[Shared]:
    config = Project(tmp_path).write(*callers, more=f"[tasks]\nafter_s = 0\n[limits]\n{limits}\n").load()
    plugins = [plugin_of(BEHAVIOURS)]
    async with open_app(config, plugins=plugins, bundled=False, **options) as app, open_http(app) as url:
        async with AsyncExitStack() as stack:
            yield Shared(app, url, stack)


def assert_overloaded(error: Any, *, limit: int) -> None:
    assert error["code"] == "QUEUE_OVERLOADED"
    assert error["details"]["limit"] == limit
    assert error["details"]["retryAfterMs"] >= 1000
    assert "try again in" in error["hint"]


def assert_refused(answer: httpx2.Response, status: int) -> None:
    assert answer.status_code == status, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    assert "QUEUE_OVERLOADED" in answer.text


@pytest.mark.parametrize(
    ("mode", "tool"), [("legacy", "does__sleep"), ("legacy", "up__sleep"), (STATELESS, "up__sleep")]
)
@attack(
    "caller",
    "makes as many calls at once as the gateway takes, of a function or of a server",
    "half of `limits.calls` are taken; the others are refused with a time to try again, and other callers are served",
)
async def test_calls_in_flight(tmp_path: Path, mode: str, tool: str) -> None:
    async with shared(tmp_path, "calls = 6", servers=[hostile()]) as gateway:
        ada, bob = await gateway.client("ada", mode), await gateway.client("bob", mode)
        await bob.call_tool("up__echo")
        async with gateway.flooded(8, lambda: ada.call_tool(tool, {"seconds": 30}), refuses=5) as refused:
            served = [
                await bob.call_tool("up__echo", {"text": "bob"}),
                await bob.call_tool("does__echo", {"text": "x"}),
            ]
        await until(lambda: gateway.app.gateway.in_flight == 0)
        after = await ada.call_tool("up__echo", {"text": "ada"})

    assert len(refused) == 5
    assert_overloaded(refused[0], limit=3)
    assert text_of(served[0]) == "bob"
    assert not served[1].is_error
    assert text_of(after) == "ada"


async def test_a_single_caller_gets_everything(tmp_path: Path) -> None:
    async with shared(tmp_path, "calls = 6", callers=("ada",)) as gateway:
        ada = await gateway.client("ada")
        async with gateway.flooded(8, lambda: ada.call_tool("does__sleep", {"seconds": 30}), refuses=2) as refused:
            pass

    assert len(refused) == 2
    assert_overloaded(refused[0], limit=6)


@attack(
    "agent",
    "calls tools with its delegated token while its caller has used up the share",
    "it counts as that caller, and gets nothing more",
)
async def test_an_agent_counts_as_the_caller_whom_it_acts_for(tmp_path: Path) -> None:
    async with shared(tmp_path, "calls = 4") as gateway:
        ada = await gateway.client("ada")
        agent = Caller(id=CallerId("ada"), transport="agent")
        gateway.app.roster.delegate(b"lent-token", agent, ())
        lent = await gateway.client("lent")
        async with gateway.flooded(2, lambda: ada.call_tool("does__sleep", {"seconds": 30})):
            refused = await lent.call_tool("does__echo", {"text": "x"})

    assert_overloaded(error_of(refused), limit=2)


@pytest.mark.parametrize(("mode", "tool"), [("legacy", "does__serial"), (STATELESS, "up__sleep")])
@attack(
    "caller",
    "fills the queue of a tool that runs one call at a time, or of a `singleton` server",
    "half of `limits.waiting` places are theirs, and a call of another caller is the next but one to run",
)
async def test_places_in_a_queue(tmp_path: Path, mode: str, tool: str) -> None:
    async with shared(tmp_path, "waiting = 8", servers=[hostile(strategy="singleton")]) as gateway:
        ada, bob = await gateway.client("ada", mode), await gateway.client("bob", mode)
        await bob.call_tool("up__echo")
        ended: list[CallToolResult] = []

        async def call() -> CallToolResult:
            answer = await ada.call_tool(tool, {"seconds": 1})
            ended.extend([answer] if not answer.is_error else [])
            return answer

        async with gateway.flooded(8, call, refuses=3) as refused:
            # One of Ada's runs and four wait: with a plain queue Bob's would wait for all of them.
            before = len(ended)
            served = await bob.call_tool(tool, {"seconds": 0})
            meanwhile = len(ended) - before

    assert len(refused) == 3
    assert_overloaded(refused[0], limit=4)
    assert not served.is_error
    assert meanwhile <= 2


@attack(
    "caller",
    "keeps every thread busy with synchronous tools",
    "half of `limits.threads` are theirs; a synchronous tool of another caller runs at once",
)
async def test_threads_of_synchronous_tools(tmp_path: Path) -> None:
    async with shared(tmp_path, "threads = 4") as gateway:
        ada, bob = await gateway.client("ada"), await gateway.client("bob")
        async with gateway.flooded(8, lambda: ada.call_tool("does__block", {"seconds": 8})):
            with anyio.fail_after(7):  # what blocks a thread blocks it for 8 s
                served = await bob.call_tool("does__add", {"a": 1, "b": 2})

    assert not served.is_error


class Hanging(Telling):
    """Never gives out its second page."""

    async def read(self, context: Any, params: Any) -> Any:
        if str(params.uri) == "page://two":
            await anyio.sleep_forever()
        return await super().read(context, params)


@attack(
    "caller",
    "takes every connection to a server over HTTP with calls that do not end",
    "half of the connections are theirs; a call of another caller does not wait",
)
async def test_connections_to_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_transport, "CONNECTIONS", 4)
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(telling_app(Hanging(), is_stateless=True))
        url = await stack.enter_async_context(serving(app))
        async with shared(tmp_path, servers=[ServerSpec(name="up", url=url)]) as gateway:
            ada, bob = await gateway.client("ada"), await gateway.client("bob")
            async with anyio.create_task_group() as tasks:
                for _ in range(6):
                    tasks.start_soon(ada.read_resource, "page://two")
                await anyio.sleep(0.5)  # they have taken what they can
                with anyio.fail_after(30):
                    served = await bob.read_resource("page://one")
                tasks.cancel_scope.cancel()

    assert served.contents


def routed(key: str) -> Any:
    return {META_KEY: {"routingKey": key}}


@pytest.mark.parametrize("mode", ERAS)
@attack(
    "caller",
    "chooses one routing key after the other, each with a server of its own",
    "only their own idle servers make room; another caller's server keeps its state",
)
async def test_routing_keys_end_nobody_else_s_server(tmp_path: Path, mode: str) -> None:
    async with shared(tmp_path, "instances = 4", servers=[hostile(strategy="per_session")]) as gateway:
        ada, bob = await gateway.client("ada", mode), await gateway.client("bob", mode)
        first = text_of(await bob.call_tool("up__count", meta=routed("a")))
        counted = [text_of(await ada.call_tool("up__count", meta=routed(str(n)))) for n in range(4)]
        again = text_of(await bob.call_tool("up__count", meta=routed("a")))
        latest = text_of(await ada.call_tool("up__count", meta=routed("3")))

    assert first == "1"
    assert counted == ["1"] * 4
    assert again == "2"
    assert latest == "2"


@attack(
    "caller",
    "has a call in flight with each of its own servers, and asks for one more",
    "it is refused with a time to try again; another caller gets a server",
)
async def test_servers_of_one_s_own(tmp_path: Path) -> None:
    async with shared(tmp_path, "instances = 4", servers=[hostile(strategy="per_session")]) as gateway:
        ada, bob = await gateway.client("ada"), await gateway.client("bob")
        async with anyio.create_task_group() as tasks:
            for key in "ab":
                tasks.start_soon(partial(ada.call_tool, "up__sleep", {"seconds": 30}, meta=routed(key)))
            await until(lambda: gateway.app.gateway.in_flight == 2)
            await until(lambda: gateway.app.servers.providers["up"].supervisor.in_flight == 2)
            refused = await ada.call_tool("up__count", meta=routed("c"))
            served = await bob.call_tool("up__count", meta=routed("a"))
            tasks.cancel_scope.cancel()

    assert_overloaded(error_of(refused), limit=2)
    assert text_of(served) == "1"


@attack(
    "caller",
    "opens sessions without end",
    "half of all sessions are theirs, then it is HTTP 429 with `Retry-After`; when all are taken, 503; no other one's ends",
)
async def test_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LimitSettings, "sessions", 4)
    async with shared(tmp_path, callers=("ada", "bob", "eve")) as gateway:
        ada, bob, eve = [await gateway.raw(f"{name}-token") for name in ("ada", "bob", "eve")]
        flood = [await gateway.opened(ada) for _ in range(4)]
        others = [await gateway.opened(bob), await gateway.opened(bob)]
        refused = await gateway.opened(eve)
        monkeypatch.setattr(sessions, "RECENT_S", 0.0)
        monkeypatch.setattr(sessions, "SEARCH_S", 0.0)
        reopened = await gateway.opened(ada)
        statuses = []
        for http, answer in ((ada, flood[0]), (ada, flood[1]), (bob, others[0])):
            known = {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
            body = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
            statuses.append((await http.post(gateway.url, json=body, headers=known)).status_code)
        ended = await ada.delete(gateway.url, headers={"mcp-session-id": reopened.headers["mcp-session-id"]})
        anew = await gateway.opened(eve)

    assert [answer.status_code for answer in flood[:2]] == [200, 200]
    for answer in flood[2:]:
        assert_refused(answer, 429)
    assert [answer.status_code for answer in others] == [200, 200]
    assert_refused(refused, 503)
    # The one of Ada's that was used longest ago made room for her next one.
    assert statuses == [404, 200, 200]
    assert ended.status_code == 200
    assert anew.status_code == 200


@pytest.mark.parametrize("mode", ERAS)
@attack(
    "caller",
    "opens event streams without end, with GET or `subscriptions/listen`",
    "half of all streams are theirs, then it is HTTP 429 with `Retry-After`; another caller's stream is opened",
)
async def test_streams(tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LimitSettings, "streams", 4)
    async with shared(tmp_path) as gateway, AsyncExitStack() as open_streams:

        async def stream(http: httpx2.AsyncClient) -> int:
            if mode == STATELESS:
                params = {"notifications": {"toolsListChanged": True}, "_meta": ENVELOPE}
                body = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
                headers = {"mcp-protocol-version": STATELESS, "mcp-method": "subscriptions/listen"}
                opening = http.stream("POST", gateway.url, json=body, headers=headers)
            else:
                session = (await gateway.opened(http)).headers["mcp-session-id"]
                headers = {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
                opening = http.stream("GET", gateway.url, headers=headers | {"accept": "text/event-stream"})
            answer = await open_streams.enter_async_context(opening)
            if answer.status_code != 200:
                await answer.aread()
                assert_refused(answer, 429)
            return answer.status_code

        ada, bob = await gateway.raw("ada-token"), await gateway.raw("bob-token")
        flood = [await stream(ada) for _ in range(4)]
        others = await stream(bob)
        await open_streams.aclose()
        await until(lambda: not gateway.app.shares.streams.taken)

    assert flood == [200, 200, 429, 429]
    assert others == 200


@attack(
    "caller",
    "has the gateway keep MCP tasks without end",
    "half of all tasks are theirs; another caller's task is kept",
)
async def test_mcp_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "TASKS_LIMIT", 4)
    async with shared(tmp_path) as gateway:
        ada, bob = await gateway.raw("ada-token"), await gateway.raw("bob-token")

        async def task(http: httpx2.AsyncClient) -> Any:
            wish = {"name": "does__echo", "arguments": {"text": "x"}}
            return (await gateway.ask(http, "tools/call", DECLARED, **wish)).json()

        flood = [await task(ada) for _ in range(3)]
        others = await task(bob)

    assert [answer.get("result", {}).get("resultType") for answer in flood] == ["task", "task", None]
    assert_overloaded(flood[2]["error"]["data"], limit=2)
    assert others["result"]["resultType"] == "task"


@attack(
    "caller",
    "begins conversations with agents without end, and follows them",
    "half of the conversations and of all streams are theirs, then it is HTTP 429 with `Retry-After`",
)
async def test_conversations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, threads=4)
    agents = {"agent": ScriptedAgent()}
    monkeypatch.setattr(LimitSettings, "streams", 2)
    async with shared(tmp_path, parts=parts_with(agents)) as gateway:
        ada, bob = await gateway.raw("ada-token"), await gateway.raw("bob-token")
        api = gateway.url.replace("/mcp", "/api/threads")
        flood = [await ada.post(api, json={}) for _ in range(3)]
        others = await bob.post(api, json={})
        events = f"{api}/{flood[0].json()['id']}/events"
        async with ada.stream("GET", events) as followed:
            refused = await ada.get(events)
            async with bob.stream("GET", f"{api}/{others.json()['id']}/events") as theirs:
                statuses = (followed.status_code, theirs.status_code)

    assert [answer.status_code for answer in flood] == [201, 201, 429]
    assert_refused(flood[2], 429)
    assert others.status_code == 201
    assert statuses == (200, 200)
    assert_refused(refused, 429)


@attack(
    "caller",
    "floods resources, prompts and completions of a server that does not answer",
    "these count as calls in flight too",
)
async def test_requests_besides_tools_count_too(tmp_path: Path) -> None:
    async with shared(tmp_path, "calls = 4", servers=[hostile()]) as gateway:
        ada, bob = await gateway.client("ada"), await gateway.client("bob")
        async with gateway.flooded(2, lambda: ada.call_tool("up__sleep", {"seconds": 30})):
            with pytest.raises(MCPError) as refused:
                await ada.list_resources(cache_mode="bypass")
            listed = await bob.list_resources(cache_mode="bypass")

    assert refused.value.error.data["code"] == "QUEUE_OVERLOADED"
    assert listed.resources == []


def test_an_overload_says_when_to_try_again_on_stdio(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text("[limits]\ncalls = 1\n")
    with stdio_peer(BEHAVIOURS, cwd=tmp_path) as peer:
        peer.start("tools/call", {"name": "does__sleep", "arguments": {"seconds": 0.5}}, id=1)
        answer = peer.request("tools/call", {"name": "does__echo", "arguments": {"text": "x"}}, id=2)
        assert peer.receive()["id"] == 1

    error = answer["result"]["structuredContent"]["error"]
    assert_overloaded(error, limit=1)
