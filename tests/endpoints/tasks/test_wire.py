"""What a client sees of tasks: handles, states, ends, refusals, the same over HTTP, stdio and in memory."""

import base64
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest
from mcp import Client

from tests.endpoints.tasks.asking import AT_ONCE, ENDED, EXTENSION, HttpPeer, PipePeer, Tasks
from tests.hostile.attacks import attack
from tests.postgres import Postgres
from tests.upstreams.behind import hostile
from tests.upstreams.test_questions import asking_behind
from tests.ways import ENVELOPE, IN_MEMORY, STATELESS, WAYS, Way, plugin_of, stdio_peer, stdio_server
from tests.wire.callers import Project
from toolpost.app import App, open_app, open_http
from toolpost.audit import AuditFilter
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.endpoints.tasks import orphans, runner
from toolpost.endpoints.tasks.records import TaskRecord
from toolpost.settings import Config
from toolpost.settings.model import StoreSettings, TaskSettings
from toolpost.store.tables import TABLES

pytestmark = [pytest.mark.anyio, pytest.mark.wire, pytest.mark.every_store]

ERRANDS = "tests.plugins.errands:plugin"
Ask = Callable[..., Any]
MISSING: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


@pytest.fixture(params=["sqlite", "postgres"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Config:
    """A gateway on a new place in each kind of store."""
    url = f"sqlite:{tmp_path / 'store.db'}"
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        url = server.new_url()
    return msgspec.structs.replace(AT_ONCE, store=StoreSettings(url=url))


@asynccontextmanager
async def asked(config: Config = AT_ONCE, **options: Any) -> AsyncIterator[tuple[Ask, App]]:
    """Open a gateway, and a raw client over HTTP."""
    async with open_app(config, plugins=[plugin_of(ERRANDS)], bundled=False, **options) as app, open_http(app) as url:
        peer = HttpPeer(url)

        async def ask(method: str, params: dict[str, Any], **more: Any) -> Any:
            return await anyio.to_thread.run_sync(lambda: peer.ask(method, params, **more))

        yield ask, app


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


async def ending(ask: Ask, handle: dict[str, Any]) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        state: dict[str, Any] = (await ask("tasks/get", {"taskId": handle["taskId"]}))["result"]
        if state["status"] in ENDED:
            return state
        await anyio.sleep(0.02)
    raise AssertionError("the task does not end")


async def test_a_handle_is_given_at_once_and_leads_to_the_result(config: Config, tmp_path: Path) -> None:
    async with asked(config) as (ask, _):
        handle = (await ask("tools/call", call("errands__once", folder=str(tmp_path))))["result"]
        working = (await ask("tasks/get", {"taskId": handle["taskId"]}))["result"]
        (tmp_path / "go").touch()
        done = await ending(ask, handle)

    assert (handle["resultType"], handle["status"]) == ("task", "working")
    assert (handle["ttlMs"], handle["pollIntervalMs"]) == (3_660_000, 100)
    assert datetime.fromisoformat(handle["createdAt"]) <= datetime.fromisoformat(handle["lastUpdatedAt"])
    assert "result" not in handle
    assert (working["resultType"], working["status"]) == ("complete", "working")
    assert working["statusMessage"] == "half of it"
    assert (done["resultType"], done["status"], done["ttlMs"] > 3_600_000) == ("complete", "completed", True)
    assert done["result"]["structuredContent"] == {"ok": True, "data": "done"}
    assert done["result"]["isError"] is False
    assert "error" not in done


@pytest.mark.parametrize("way", [way for way in WAYS if way.mode == STATELESS], ids=str)
async def test_the_official_client_gets_the_result_of_any_tool(way: Way, tmp_path: Path) -> None:
    tasks = Tasks()
    async with _official(way, tasks, tmp_path) as client:
        answer = await client.call_tool("errands__echo", {"text": "hello"})
        refused = await client.call_tool("errands__echo", {"txt": "hello"})

    assert answer.structured_content == {"ok": True, "data": "hello"}
    assert refused.is_error
    assert "txt" in str(refused.structured_content)
    assert len(tasks.handles) == 2


@asynccontextmanager
async def _official(way: Way, tasks: Tasks, folder: Path) -> AsyncIterator[Client]:
    if way.transport == "stdio":
        (folder / "toolpost.toml").write_text("[tasks]\nafter_s = 0\n")
        async with Client(stdio_server(ERRANDS, cwd=folder), mode=way.mode, extensions=[tasks]) as client:
            yield client
        return
    async with open_app(AT_ONCE, plugins=[plugin_of(ERRANDS)], bundled=False) as app:
        if way.transport == "memory":
            async with Client(
                open_memory_endpoint(app.call_handler, app.sdk), mode=way.mode, extensions=[tasks]
            ) as client:
                yield client
        else:
            async with open_http(app) as url, Client(url, mode=way.mode, extensions=[tasks]) as client:
                yield client


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_who_does_not_declare_it_never_gets_a_task(way: Way) -> None:
    async with way.client(ERRANDS) as client:
        answer = await client.call_tool("errands__echo", {"text": "hello"})

    assert answer.structured_content == {"ok": True, "data": "hello"}


async def test_it_must_be_declared_on_that_very_request(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    async with asked() as (ask, _):
        handle = (await ask("tools/call", call("errands__again", folder=str(tmp_path))))["result"]
        plain = await ask("tools/call", call("errands__echo", text="x"), meta=ENVELOPE)
        refusals = [
            await ask(method, {"taskId": handle["taskId"], "inputResponses": {}}, meta=ENVELOPE)
            for method in ("tasks/get", "tasks/update", "tasks/cancel")
        ]

    assert plain["result"]["resultType"] == "complete"
    assert [(refusal["error"]["code"], refusal["error"]["data"]) for refusal in refusals] == [(-32021, MISSING)] * 3


async def test_a_server_s_tool_can_be_a_task_though_the_server_knows_of_none() -> None:
    async with asked(servers=[hostile()]) as (ask, _):
        handle = (await ask("tools/call", call("up__echo", text="far away")))["result"]
        done = await ending(ask, handle)
        refused = (await ask("tools/call", call("up__refuse")))["result"]
        failed = await ending(ask, refused)

    assert handle["resultType"] == "task"
    assert done["result"]["content"][0]["text"] == "far away"
    assert (failed["status"], failed["error"]["code"]) == ("failed", -31001)
    assert failed["error"]["message"] == failed["statusMessage"]
    assert "result" not in failed


async def test_a_task_is_called_off(config: Config, tmp_path: Path) -> None:
    async with asked(config) as (ask, app):
        handle = (await ask("tools/call", call("errands__once", folder=str(tmp_path))))["result"]
        acknowledged = await ask("tasks/cancel", {"taskId": handle["taskId"]})
        ended = await ending(ask, handle)
        again = await ask("tasks/cancel", {"taskId": handle["taskId"]})
        entries = await app.store.audit.entries(AuditFilter(), limit=5)

    assert acknowledged["result"]["resultType"] == again["result"]["resultType"] == "complete"
    assert ended["status"] == "cancelled"
    assert "result" not in ended
    assert [record.entry.outcome for record in entries] == ["cancelled"]


async def test_a_failed_call_is_a_completed_task_that_says_so() -> None:
    async with asked() as (ask, _):
        handle = (await ask("tools/call", call("errands__late")))["result"]
        ended = await ending(ask, handle)

    assert ended["status"] == "completed"
    assert ended["result"]["isError"] is True
    assert ended["result"]["structuredContent"]["error"]["code"] == "TOOL_TIMEOUT"


async def test_what_a_client_answers_unasked_is_acknowledged_and_ignored(tmp_path: Path) -> None:
    async with asked() as (ask, _):
        handle = (await ask("tools/call", call("errands__again", folder=str(tmp_path))))["result"]
        taken = await ask("tasks/update", {"taskId": handle["taskId"], "inputResponses": {"name": {}}})
        bad = await ask("tasks/update", {"taskId": handle["taskId"]})
        (tmp_path / "go").touch()
        done = await ending(ask, handle)

    assert taken["result"]["resultType"] == "complete"
    assert bad["error"]["code"] == -32602
    assert done["status"] == "completed"


def header(name: str) -> str:
    return f"=?base64?{base64.b64encode(name.encode()).decode()}?="


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_an_unknown_task_is_refused(method: str) -> None:
    async with asked() as (ask, _):
        for name in ("nope", "", "x" * 5_000, "'; DROP TABLE mcp_tasks; --", "\u00e9\n\u0000"):
            answer = await ask(method, {"taskId": name, "inputResponses": {}}, **{"Mcp-Name": header(name)})

            assert answer["error"]["code"] == -32602
            assert answer["error"]["data"]["code"] == "NOT_FOUND"
        numbers = await ask(method, {"taskId": 7, "inputResponses": {}})
        lied = await ask(method, {"taskId": "a", "inputResponses": {}}, **{"Mcp-Name": "b"})
        listed = await ask("tasks/list", {})

    assert numbers["error"]["code"] == -32602
    assert lied["error"]["code"] == -32020
    assert listed["error"]["code"] == -32601


async def test_unknown_tools_are_refused_before_there_is_a_task() -> None:
    async with asked() as (ask, _):
        answer = await ask("tools/call", call("errands__ecko"))

    assert answer["error"]["code"] == -32602
    assert answer["error"]["data"]["code"] == "INVALID_REQUEST"


async def test_the_extension_is_announced_where_it_can_be_used() -> None:
    async with asked() as (ask, app):
        discovered = (await ask("server/discover", {}))["result"]
        async with Client(open_memory_endpoint(app.call_handler, app.sdk), mode="legacy") as old:
            before = old.server_capabilities

    assert discovered["capabilities"]["extensions"] == {EXTENSION: {}}
    assert not before.extensions


async def test_over_stdio_other_requests_are_answered_meanwhile(tmp_path: Path) -> None:
    def talk() -> Any:
        with stdio_peer(ERRANDS, cwd=tmp_path) as raw:
            peer = PipePeer(raw.process)
            handle = peer.ask("tools/call", call("errands__once", folder=str(tmp_path)))["result"]
            other = peer.ask("tools/call", call("errands__echo", text="meanwhile"), meta=ENVELOPE)["result"]
            undeclared = peer.ask("tasks/get", {"taskId": handle["taskId"]}, meta=ENVELOPE)
            (tmp_path / "go").touch()
            while (state := peer.ask("tasks/get", {"taskId": handle["taskId"]})["result"])["status"] == "working":
                time.sleep(0.02)
            return handle, other, undeclared, state

    handle, other, undeclared, state = await anyio.to_thread.run_sync(talk)

    assert handle["resultType"] == "task"
    assert other["structuredContent"]["data"] == "meanwhile"
    assert undeclared["error"]["code"] == -32021
    assert state["result"]["structuredContent"]["data"] == "done"


async def test_quick_calls_are_answered_as_usual(tmp_path: Path) -> None:
    async with asked(IN_MEMORY) as (ask, _):
        quick = (await ask("tools/call", call("errands__echo", text="quick")))["result"]
        handle = (await ask("tools/call", call("errands__once", folder=str(tmp_path))))["result"]
        (tmp_path / "go").touch()
        done = await ending(ask, handle)

    assert (quick["resultType"], quick["structuredContent"]["data"]) == ("complete", "quick")
    assert (handle["resultType"], done["status"]) == ("task", "completed")


async def test_a_task_is_forgotten_when_its_time_is_over(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphans, "START_S", 0.1)
    monkeypatch.setattr(orphans, "SWEEP_S", 0.1)
    short = msgspec.structs.replace(config, tasks=TaskSettings(ttl_s=2, after_s=0))
    async with asked(short) as (ask, app):
        handle = (await ask("tools/call", call("errands__echo", text="x")))["result"]
        await ending(ask, handle)
        await anyio.sleep(2)  # as long as it lives
        gone = await ask("tasks/get", {"taskId": handle["taskId"]})
        table = next(table for table in TABLES if table.name == "mcp_tasks")
        with anyio.fail_after(30):
            while await app.store.tables.count(table):
                await anyio.sleep(0.05)

    assert gone["error"]["code"] == -32602


@attack(
    "caller",
    "reads, updates and cancels another caller's task by its id",
    "the task does not exist for other callers",
)
async def test_another_caller_has_no_part_in_it(tmp_path: Path) -> None:
    config = Project(tmp_path).write("ada", "bob").load()
    async with open_app(config, plugins=[plugin_of(ERRANDS)], bundled=False) as app, open_http(app) as url:

        async def ask(who: str, method: str, params: dict[str, Any]) -> Any:
            return await anyio.to_thread.run_sync(lambda: HttpPeer(url, f"{who}-token").ask(method, params))

        handle = (await ask("ada", "tools/call", call("errands__once", folder=str(tmp_path))))["result"]
        about = {"taskId": handle["taskId"], "inputResponses": {}}
        others = [await ask("bob", method, about) for method in ("tasks/get", "tasks/update", "tasks/cancel")]
        own = (await ask("ada", "tasks/get", about))["result"]
        (tmp_path / "go").touch()
        await ending(partial(ask, "ada"), handle)
        late = await ask("bob", "tasks/get", about)
        nobody = await anyio.to_thread.run_sync(lambda: HttpPeer(url).ask("tasks/get", about))

    assert [answer["error"]["code"] for answer in (*others, late)] == [-32602] * 4
    assert own["status"] == "working"
    assert nobody["error"]["data"]["code"] == "UNAUTHORIZED"


@pytest.mark.parametrize("back", [Way("stdio", "legacy"), Way("stdio", STATELESS)], ids=str)
async def test_what_a_server_asks_is_found_and_answered_by_whoever_looks_in(back: Way) -> None:
    capabilities: dict[str, Any] = {"elicitation": {"form": {}}, "roots": {}, "extensions": {EXTENSION: {}}}
    able = ENVELOPE | {"io.modelcontextprotocol/clientCapabilities": capabilities}
    async with asking_behind(back) as app, open_http(app) as url:
        peer = HttpPeer(url)

        async def ask(method: str, params: dict[str, Any]) -> Any:
            return (await anyio.to_thread.run_sync(lambda: peer.ask(method, params, meta=able)))["result"]

        handle = await ask("tools/call", call("up__ask_twice", what="form"))
        about = {"taskId": handle["taskId"]}
        answers = {"elicitation/create": {"action": "accept", "content": {"name": "Ada"}}, "roots/list": {"roots": []}}
        asked = []
        while (state := await ask("tasks/get", about))["status"] not in ENDED:
            if state["status"] == "input_required":
                ((key, question),) = state["inputRequests"].items()
                asked.append((key, question["method"]))
                await ask(
                    "tasks/update", about | {"inputResponses": {"never asked": {}, key: answers[question["method"]]}}
                )
            await anyio.sleep(0.05)

    assert [method for _, method in asked] == ["elicitation/create", "roots/list"]
    assert len({key for key, _ in asked}) == 2
    assert "Ada" in state["result"]["content"][0]["text"]


async def test_a_plugin_asks_in_the_middle_of_a_task() -> None:
    capabilities: dict[str, Any] = {"elicitation": {"form": {}}, "extensions": {EXTENSION: {}}}
    able = ENVELOPE | {"io.modelcontextprotocol/clientCapabilities": capabilities}
    async with open_app(IN_MEMORY, plugins=[plugin_of("tests.plugins.offers:plugin")]) as app, open_http(app) as url:
        peer = HttpPeer(url)

        async def ask(method: str, params: dict[str, Any]) -> Any:
            return (await anyio.to_thread.run_sync(lambda: peer.ask(method, params, meta=able)))["result"]

        handle = await ask("tools/call", call("offers__book"))
        about, asked = {"taskId": handle["taskId"]}, []
        while (state := await ask("tasks/get", about))["status"] not in ENDED:
            if state["status"] == "input_required":
                ((key, question),) = state["inputRequests"].items()
                asked.append((key, question["params"]["message"]))
                answer = {"action": "accept", "content": {"name": "Ada"} if key == "booking" else {"value": True}}
                await ask("tasks/update", about | {"inputResponses": {key: answer}})
            await anyio.sleep(0.05)

    assert asked == [("booking", "Your booking?"), ("elicitation-1", "A table for 2?")]
    assert state["result"]["structuredContent"]["data"]["sure"] is True


async def test_nobody_keeps_more_tasks_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "TASKS_LIMIT", 2)
    async with asked(AT_ONCE) as (ask, _):
        answers = [await ask("tools/call", call("errands__echo", text="x")) for _ in range(3)]

    assert [answer.get("result", {}).get("resultType") for answer in answers] == ["task", "task", None]
    assert answers[2]["error"]["data"]["code"] == "QUEUE_OVERLOADED"


async def test_many_at_once(config: Config) -> None:
    async with asked(config) as (ask, _):
        handles: list[dict[str, Any]] = []

        async def one(number: int) -> None:
            handles.append((await ask("tools/call", call("errands__echo", text=str(number))))["result"])

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(one, number)
        said = [(await ending(ask, handle))["result"]["structuredContent"]["data"] for handle in handles]

    assert len({handle["taskId"] for handle in handles}) == 100
    assert sorted(map(int, said)) == list(range(100))


async def test_a_call_of_an_agent_is_not_run_again_by_another_process(tmp_path: Path) -> None:
    """Its limits end with its conversation, and a record of the call does not have them."""
    (tmp_path / "go").touch()
    async with open_app(AT_ONCE, plugins=[plugin_of(ERRANDS)], bundled=False) as app:
        stored = []
        for transport in ("http", "agent"):
            caller = Caller(id=CallerId("ann"), transport=transport)
            call = app.gateway.admit(caller=caller, name="errands__again", arguments={"folder": str(tmp_path)})
            stored.append(await app.call_handler.tasks.runner.begin(call))

    assert [isinstance(task, TaskRecord) and bool(task.is_repeatable) for task in stored] == [True, False]
