"""`notifications/tasks`: whoever listens is told what becomes of a task, and need not ask."""

import http.client
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from queue import Empty, Queue
from socket import SHUT_RDWR
from threading import Thread
from typing import Any

import anyio
import pytest

from tests.endpoints.tasks.asking import AT_ONCE, DECLARED, ENDED, EXTENSION, HttpPeer, PipePeer
from tests.endpoints.tasks.test_wire import ERRANDS, call, config
from tests.upstreams.test_questions import asking_behind
from tests.ways import ENVELOPE, STATELESS, Way, plugin_of, stdio_peer
from toolpost.app import open_app, open_http
from toolpost.settings import Config

__all__ = ["config"]

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


class Stream:
    """What comes on one `subscriptions/listen`."""

    def __init__(self, url: str, wanted: dict[str, Any], meta: dict[str, Any] = DECLARED) -> None:
        self._connection = http.client.HTTPConnection(url.split("/")[2], timeout=20)
        body = {"jsonrpc": "2.0", "id": "ear", "method": "subscriptions/listen"}
        said = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": STATELESS,
            "Mcp-Method": "subscriptions/listen",
        }
        params = {"notifications": wanted, "_meta": meta}
        self._connection.request("POST", "/mcp", json.dumps(body | {"params": params}), said)
        self._answer = self._connection.getresponse()
        self._heard: Queue[dict[str, Any]] = Queue()
        Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            if "event-stream" not in self._answer.headers["Content-Type"]:
                self._heard.put(json.loads(self._answer.read()))
                return
            for line in self._answer:
                if line.startswith(b"data:"):
                    self._heard.put(json.loads(line[5:]))
        except (OSError, ValueError, AttributeError):
            return  # it was closed

    async def next(self) -> dict[str, Any]:
        return await anyio.to_thread.run_sync(lambda: self._heard.get(timeout=30))

    async def nothing(self, within_s: float) -> bool:
        try:
            await anyio.to_thread.run_sync(lambda: self._heard.get(timeout=within_s))
        except Empty:
            return True
        return False

    def close(self) -> None:
        if self._connection.sock is not None:
            self._connection.sock.shutdown(SHUT_RDWR)  # which wakes the thread that reads
        self._connection.close()


@asynccontextmanager
async def _listening(url: str, wanted: dict[str, Any], meta: dict[str, Any] = DECLARED) -> AsyncIterator[Stream]:
    stream = await anyio.to_thread.run_sync(Stream, url, wanted, meta)
    try:
        yield stream
    finally:
        stream.close()


@asynccontextmanager
async def _gateway(config: Config) -> AsyncIterator[tuple[HttpPeer, str]]:
    async with open_app(config, plugins=[plugin_of(ERRANDS)], bundled=False) as app, open_http(app) as url:
        yield HttpPeer(url), url


async def asked(peer: HttpPeer, method: str, params: dict[str, Any]) -> dict[str, Any]:
    answer = await anyio.to_thread.run_sync(lambda: peer.ask(method, params))
    result: dict[str, Any] = answer["result"]
    return result


async def test_who_listens_is_told_what_tasks_get_would_say(config: Config, tmp_path: Path) -> None:
    async with _gateway(config) as (peer, url):
        handle = await asked(peer, "tools/call", call("errands__once", folder=str(tmp_path)))
        async with _listening(url, {"taskIds": [handle["taskId"]]}) as stream:
            acknowledged = await stream.next()
            working = await stream.next()
            (tmp_path / "go").touch()
            done = await stream.next()
            is_over = await stream.nothing(0.3)
        shown = await asked(peer, "tasks/get", {"taskId": handle["taskId"]})

    stamp = {"io.modelcontextprotocol/subscriptionId": "ear"}
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledged["params"]["notifications"] == {"taskIds": [handle["taskId"]]}
    assert [told["method"] for told in (working, done)] == ["notifications/tasks"] * 2
    assert [told["params"]["_meta"] for told in (working, done)] == [stamp] * 2
    assert (working["params"]["status"], done["params"]["status"]) == ("working", "completed")
    moving = {"_meta", "resultType", "pollIntervalMs"}
    assert {key: value for key, value in done["params"].items() if key not in moving} == {
        key: value for key, value in shown.items() if key not in moving
    }
    assert "resultType" not in done["params"]
    assert is_over


async def test_another_gateway_of_the_store_tells_it_too(config: Config, tmp_path: Path) -> None:
    async with _gateway(config) as (peer, _), _gateway(config) as (_, elsewhere):
        handle = await asked(peer, "tools/call", call("errands__once", folder=str(tmp_path)))
        async with _listening(elsewhere, {"taskIds": [handle["taskId"]]}) as stream:
            await stream.next()
            await stream.next()
            await asked(peer, "tasks/cancel", {"taskId": handle["taskId"]})
            with anyio.fail_after(30):
                ended = await stream.next()

    assert ended["params"]["status"] == "cancelled"


async def test_a_task_that_nobody_has_is_agreed_to_and_never_heard_of(config: Config) -> None:
    async with _gateway(config) as (_, url):
        wanted = {"taskIds": ["nobody's"], "toolsListChanged": True}
        async with _listening(url, wanted) as stream:
            acknowledged = await stream.next()
            is_silent = await stream.nothing(0.3)

    assert acknowledged["params"]["notifications"] == wanted
    assert is_silent


@pytest.mark.parametrize(
    ("wanted", "meta", "code"),
    [
        ({"taskIds": ["a"]}, ENVELOPE, -32021),
        ({"taskIds": "a"}, DECLARED, -32602),
        ({"taskIds": [1]}, DECLARED, -32602),
        ({"taskIds": ["a"] * 1_001}, DECLARED, -32602),
    ],
)
async def test_who_may_not_or_asks_nonsense_is_told(wanted: dict[str, Any], meta: dict[str, Any], code: int) -> None:
    async with _gateway(AT_ONCE) as (_, url):
        async with _listening(url, wanted, meta) as stream:
            refused = await stream.next()

    assert refused["error"]["code"] == code
    if code == -32021:
        assert refused["error"]["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


async def test_a_question_in_the_middle_is_told() -> None:
    capabilities: dict[str, Any] = {"elicitation": {"form": {}}, "roots": {}, "extensions": {EXTENSION: {}}}
    able = ENVELOPE | {"io.modelcontextprotocol/clientCapabilities": capabilities}
    answers = {"elicitation/create": {"action": "accept", "content": {"name": "Ada"}}, "roots/list": {"roots": []}}
    async with asking_behind(Way("stdio", STATELESS)) as app, open_http(app) as url:
        peer = HttpPeer(url)

        async def ask(method: str, params: dict[str, Any]) -> Any:
            return (await anyio.to_thread.run_sync(lambda: peer.ask(method, params, meta=able)))["result"]

        about = {"taskId": (await ask("tools/call", call("up__ask_twice", what="form")))["taskId"]}
        told: list[str] = []
        async with _listening(url, {"taskIds": [about["taskId"]]}, able) as stream:
            await stream.next()
            while not told or told[-1] not in ENDED:
                state = (await stream.next())["params"]
                told.append(state["status"])
                if state["status"] == "input_required":
                    ((key, question),) = state["inputRequests"].items()
                    await ask("tasks/update", about | {"inputResponses": {key: answers[question["method"]]}})

    assert [status for status in told if status != "working"] == ["input_required", "input_required", "completed"]


async def test_over_stdio_it_is_the_same(tmp_path: Path) -> None:
    def talk() -> list[dict[str, Any]]:
        with stdio_peer(ERRANDS, cwd=tmp_path) as raw:
            process = raw.process
            assert process.stdin is not None
            assert process.stdout is not None
            handle = PipePeer(process).ask("tools/call", call("errands__once", folder=str(tmp_path)))["result"]
            params = {"notifications": {"taskIds": [handle["taskId"]]}, "_meta": DECLARED}
            body = {"jsonrpc": "2.0", "id": "ear", "method": "subscriptions/listen", "params": params}
            process.stdin.write(json.dumps(body).encode() + b"\n")
            process.stdin.flush()
            heard = [json.loads(process.stdout.readline()) for _ in range(2)]
            (tmp_path / "go").touch()
            return [*heard, json.loads(process.stdout.readline())]

    acknowledged, working, done = await anyio.to_thread.run_sync(talk)

    assert list(acknowledged["params"]["notifications"]) == ["taskIds"]
    assert (working["params"]["status"], done["params"]["status"]) == ("working", "completed")
    assert done["params"]["result"]["structuredContent"]["data"] == "done"
