"""Conversations over HTTP, as a browser or a program leads them: streams, refusals, and a server that is killed."""

import json
import signal
import socket
import subprocess
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import jsonschema
import msgspec
import pytest

from tests.hostile.attacks import attack
from tests.parts.agents.asking import desk, limit
from tests.parts.agents.test_acp import has_gone, with_agent
from tests.waiting import until
from tests.ways import IN_MEMORY, TOOLPOST, server_environment
from toolpost import Plugin
from toolpost.app import App, open_http
from toolpost.parts.agents import TextChunk
from toolpost.parts.agents.api import stream as talk_stream
from toolpost.parts.agents.session_pool import PoolLimits
from toolpost.parts.agents.settings import AgentSettings
from toolpost.parts.agents.turn_events import AgentEvent
from toolpost.settings import Config
from toolpost.settings.callers import CallerSettings
from toolpost.testing import ScriptedAgent, ScriptedSession, acp_agent_command, conversations_of, open_test_app

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


@dataclass
class Web:
    app: App
    http: httpx2.AsyncClient

    async def thread(self, **body: Any) -> str:
        answer = await self.http.post("/api/threads", json=body)
        assert answer.status_code == 201
        return str(answer.json()["id"])

    async def say(self, thread: str, text: str, **body: Any) -> Any:
        return (await self.http.post(f"/api/threads/{thread}/messages", json={"text": text, **body})).json()

    async def events(self, thread: str, text: str, **body: Any) -> AsyncIterator[tuple[str, Any]]:
        headers = {"Accept": "text/event-stream"}
        path = f"/api/threads/{thread}/messages"
        async with self.http.stream("POST", path, json={"text": text, **body}, headers=headers) as response:
            assert response.headers["content-type"] == "text/event-stream"
            async for event in read_events(response):
                yield event


async def read_events(response: httpx2.Response) -> AsyncIterator[tuple[str, Any]]:
    kind = ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            kind = line[7:]
        elif line.startswith("data: "):
            yield kind, json.loads(line[6:])


@asynccontextmanager
async def web(config: Config, *plugins: Plugin, token: str = "", **agents: ScriptedAgent) -> AsyncIterator[Web]:
    async with open_test_app(desk, *plugins, config=config, agents=agents) as app, open_http(app) as url:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with httpx2.AsyncClient(base_url=url.removesuffix("/mcp"), headers=headers, timeout=60) as http:
            yield Web(app, http)


async def test_ten_turns_of_a_prewarmed_thread_all_find_it_warm() -> None:
    async with web(with_agent()) as site:
        thread = await site.thread()
        warmed = await site.http.post("/api/prewarm", json={"threadId": thread})
        counts = [(await site.say(thread, "count"))["text"] for _ in range(10)]
        metrics = conversations_of(site.app).pool.metrics

        assert (warmed.status_code, warmed.json()["state"]) == (200, "warm")
        assert counts == [str(number) for number in range(1, 11)]
        assert (metrics.agent_turns.value("warm"), metrics.warm_ratio) == (10, 1.0)
        text = (await site.http.get("/metrics")).text
        assert 'toolpost_agent_turns_total{found="warm"} 10' in text
        assert "toolpost_agent_sessions_opened_total 1" in text
        assert "toolpost_agent_turns_waiting 0" in text


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "INVALID_REQUEST"),
        ({"threadId": 7}, 400, "INVALID_REQUEST"),
        ({"threadId": ""}, 400, "INVALID_REQUEST"),
        ({"thread_id": "t-1"}, 400, "INVALID_REQUEST"),
        ([], 400, "INVALID_REQUEST"),
        ({"threadId": "t-nobody"}, 404, "NOT_FOUND"),
    ],
)
async def test_prewarming_what_is_not_there_is_refused(body: Any, status: int, code: str) -> None:
    async with web(IN_MEMORY, main=ScriptedAgent()) as site:
        answer = await site.http.post("/api/prewarm", json=body)

    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


async def test_a_turn_is_streamed_and_ends_once() -> None:
    async with web(with_agent()) as site:
        thread = await site.thread(title="streams")
        events = [event async for event in site.events(thread, "stream 3 5")]
        messages = (await site.http.get(f"/api/threads/{thread}/messages")).json()["messages"]
        turns = (await site.http.get(f"/api/threads/{thread}/turns")).json()["turns"]
        shown = (await site.http.get(f"/api/threads/{thread}")).json()

    assert [kind for kind, _ in events] == ["started", "session", "text", "text", "text", "ended"]
    assert events[0][1]["thread"] == thread
    assert events[-1][1]["text"] == "word0 word1 word2 "
    assert [(m["seq"], m["role"], m["text"]) for m in messages] == [
        (1, "user", "stream 3 5"),
        (2, "assistant", "word0 word1 word2 "),
    ]
    assert [turn["state"] for turn in turns] == ["done"]
    assert (shown["title"], shown["isWarm"], shown["messages"]) == ("streams", True, 2)


async def test_whoever_goes_away_cancels_the_turn_unless_they_said_otherwise() -> None:
    async with web(with_agent()) as site:
        thread = await site.thread()
        async for kind, _ in site.events(thread, "stream 2000 10"):
            if kind == "text":
                break
        await settled(site, thread)
        async for kind, _ in site.events(thread, "stream 20 10", onDisconnect="continue"):
            if kind == "text":
                break
        await settled(site, thread)
        turns = (await site.http.get(f"/api/threads/{thread}/turns")).json()["turns"]
        messages = (await site.http.get(f"/api/threads/{thread}/messages")).json()["messages"]

    assert [turn["state"] for turn in turns] == ["done", "cancelled"]
    assert messages[-1]["text"].endswith("word19 ")
    assert messages[1]["details"] == {"state": "cancelled"}


async def test_whoever_listens_and_reads_no_more_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    async def shout(prompt: str, session: ScriptedSession) -> AsyncGenerator[AgentEvent, None]:
        for _ in range(80):
            yield TextChunk(text="x" * 100_000)
            await anyio.sleep(0)

    monkeypatch.setattr(talk_stream, "WAITING_LIMIT", 20)
    async with web(IN_MEMORY, shouter=ScriptedAgent(shout)) as site:
        thread = await site.thread()
        address = (site.http.base_url.host, site.http.base_url.port or 0)
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(address)
            deaf.sendall(f"GET /api/threads/{thread}/events HTTP/1.1\r\nHost: {address[0]}\r\n\r\n".encode())
            await until(lambda: conversations_of(site.app).running._listeners)
            ended = await site.say(thread, "go on")

            await until(lambda: not conversations_of(site.app).running._listeners)
    assert (ended["state"], len(ended["text"])) == ("done", 8_000_000)


async def settled(site: Web, thread: str) -> None:
    async def is_settled() -> bool:
        return "running" not in (await site.http.get(f"/api/threads/{thread}")).json()

    await until(is_settled)


async def test_a_turn_can_be_cancelled_by_another_request() -> None:
    async with web(with_agent()) as site:
        thread = await site.thread()
        ended: dict[str, Any] = {}

        async def ask() -> None:
            ended.update(await site.say(thread, "hang"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            with anyio.fail_after(30):
                while not (await site.http.get(f"/api/threads/{thread}")).json().get("isWarm"):
                    await anyio.sleep(0.02)
            stopped = await site.http.post(f"/api/threads/{thread}/cancel", json={})
        nothing = await site.http.post(f"/api/threads/{thread}/cancel", json={"turn": "u-1"})

    assert stopped.json() == {"cancelled": [ended["turn"]]}
    assert (ended["state"], ended["error"]["code"]) == ("cancelled", "CANCELLED")
    assert nothing.status_code == 404


async def test_what_happens_in_a_thread_can_be_followed_by_others() -> None:
    async with web(with_agent()) as site:
        thread = await site.thread()
        seen: list[str] = []

        async def follow() -> None:
            async with site.http.stream("GET", f"/api/threads/{thread}/events") as response:
                following.set()
                async for kind, _ in read_events(response):
                    seen.append(kind)
                    if kind == "ended":
                        return

        following = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await following.wait()
            await site.say(thread, "say hello")

    assert seen == ["started", "session", "text", "ended"]


@pytest.mark.parametrize(
    ("prompt", "status", "code"),
    [("crash", 503, "UPSTREAM_UNAVAILABLE"), ("fail", 502, "HANDLER_ERROR"), ("hang", 504, "TOOL_TIMEOUT")],
)
async def test_a_turn_that_fails_says_so_in_its_status_too(prompt: str, status: int, code: str) -> None:
    async with web(with_agent()) as site:
        thread = await site.thread()
        await site.say(thread, "say hello")
        answer = await site.http.post(
            f"/api/threads/{thread}/messages", json={"text": prompt, "timeoutS": 0.5 if prompt == "hang" else 30}
        )

    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/api/threads/{}/messages", {}, 400),
        ("POST", "/api/threads/{}/messages", {"text": " "}, 400),
        ("POST", "/api/threads/{}/messages", {"text": "x" * 300_000}, 400),
        ("POST", "/api/threads/{}/messages", {"text": "x", "agent": "nobody"}, 400),
        ("POST", "/api/threads/{}/messages", {"text": "x", "mood": "good"}, 400),
        ("POST", "/api/threads", {"agent": "nobody"}, 400),
        ("POST", "/api/threads/t-0/messages", {"text": "x"}, 404),
        ("GET", "/api/threads/{}/messages?limit=many", None, 400),
        ("GET", "/api/threads/{}/nothing", None, 404),
        ("PUT", "/api/threads/{}", {}, 405),
        ("GET", "/api/prewarm", None, 405),
        ("GET", "/api/nothing", None, 404),
        ("GET", "/api/", None, 404),
    ],
)
async def test_what_cannot_be_asked_is_refused_with_the_reason(method: str, path: str, body: Any, status: int) -> None:
    async with web(IN_MEMORY, main=ScriptedAgent()) as site:
        thread = await site.thread()
        answer = await site.http.request(method, path.format(thread), json=body)

    assert answer.status_code == status
    assert answer.json()["error"]["message"]


async def test_threads_are_renamed_listed_and_forgotten() -> None:
    async with web(IN_MEMORY, main=ScriptedAgent(), other=ScriptedAgent()) as site:
        first, second = await site.thread(title="first"), await site.thread()
        await site.say(second, "a   question\nof some length")
        listed = (await site.http.get("/api/threads")).json()["threads"]
        page = (await site.http.get("/api/threads?limit=1")).json()
        rest = (await site.http.get(f"/api/threads?limit=1&before={page['next']}")).json()
        changed = await site.http.patch(f"/api/threads/{first}", json={"title": "renamed", "agent": "other"})
        gone = await site.http.delete(f"/api/threads/{second}", headers={"X-Toolpost": "1"})
        missing = await site.http.get(f"/api/threads/{second}")
        agents = (await site.http.get("/api/agents")).json()["agents"]

    assert [thread["title"] for thread in listed] == ["a question of some length", "first"]
    assert [thread["id"] for thread in (*page["threads"], *rest["threads"])] == [second, first]
    assert (changed.json()["title"], changed.json()["agent"]) == ("renamed", "other")
    assert (gone.status_code, missing.status_code) == (200, 404)
    assert [(agent["name"], agent.get("isDefault", False)) for agent in agents] == [("main", True), ("other", False)]


async def test_another_agent_does_not_inherit_the_model_of_the_one_before() -> None:
    command, *args = acp_agent_command()
    choosy = AgentSettings(command=command, args=[*args, "--models", "small,large"])
    agents = {"choosy": choosy, "plain": AgentSettings(command=command, args=args)}
    async with web(msgspec.structs.replace(IN_MEMORY, parts={"agents": agents})) as site:
        thread = await site.thread(model="small")
        path = f"/api/threads/{thread}"

        async def change(**body: Any) -> Any:
            return (await site.http.patch(path, json=body)).json()

        first = await site.say(thread, "model")
        aside = await site.say(thread, "say once", agent="plain")
        renamed = await change(title="t")
        other = await change(agent="plain")
        plain = await site.say(thread, "say more")
        back = await change(agent=None, model="large")
        again = await site.say(thread, "model")
        forgotten = await change(model=None)

    assert (first["text"], aside.get("text"), plain.get("text"), again["text"]) == ("small", "once", "more", "large")
    assert [(shown.get("agent"), shown.get("model")) for shown in (renamed, other, back, forgotten)] == [
        (None, "small"),
        ("plain", None),
        (None, "large"),
        (None, None),
    ]


@attack(
    "caller",
    "reads, continues, cancels and deletes another caller's conversation",
    "it does not exist for other callers",
)
async def test_nobody_sees_the_conversations_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADA_TOKEN", "ada-secret")
    monkeypatch.setenv("BOB_TOKEN", "bob-secret")
    callers = {"ada": CallerSettings(token="${ADA_TOKEN}"), "bob": CallerSettings(token="${BOB_TOKEN}")}
    config = msgspec.structs.replace(IN_MEMORY, callers=callers)
    agent = ScriptedAgent()
    async with web(config, token="ada-secret", main=agent) as site:
        thread = await site.thread()
        await site.say(thread, "a secret")
        bob = {"Authorization": "Bearer bob-secret"}
        path = f"/api/threads/{thread}"
        seen = [
            (await site.http.get(path, headers=bob)).status_code,
            (await site.http.get(f"{path}/messages", headers=bob)).status_code,
            (await site.http.get(f"{path}/events", headers=bob)).status_code,
            (await site.http.post(f"{path}/messages", json={"text": "x"}, headers=bob)).status_code,
            (await site.http.post("/api/prewarm", json={"threadId": thread}, headers=bob)).status_code,
            (await site.http.delete(path, headers={**bob, "X-Toolpost": "1"})).status_code,
        ]
        listed = (await site.http.get("/api/threads", headers=bob)).json()["threads"]
        nobody = await site.http.get(path, headers={"Authorization": ""})

    assert seen == [404] * 6
    assert listed == []
    assert nobody.status_code == 401
    assert len(agent.sessions) == 1


@attack(
    "stranger",
    "has a page of another site lead conversations",
    "it is refused by its Origin and its media type",
)
async def test_pages_of_other_origins_and_plain_forms_are_turned_away() -> None:
    async with web(IN_MEMORY, main=ScriptedAgent()) as site:
        foreign = await site.http.post("/api/threads", json={}, headers={"Origin": "https://evil.example"})
        form = await site.http.post("/api/threads", content="{}", headers={"Content-Type": "text/plain"})
        fine = await site.http.get("/api/threads", headers={"Origin": "http://localhost:3000"})

    assert (foreign.status_code, form.status_code, fine.status_code) == (403, 415, 200)
    for answer in (foreign, form, fine):
        assert "access-control-allow-origin" not in answer.headers


@attack(
    "agent",
    "leads conversations with the token that it was lent",
    "it is refused: the token is for tools alone",
)
async def test_an_agent_may_use_tools_and_lead_no_conversations() -> None:
    agent = ScriptedAgent()
    async with web(IN_MEMORY, main=agent) as site:
        thread = await site.thread()
        await site.say(thread, "hello")
        door = agent.sessions[0].session_options.gateway
        assert door is not None
        headers = {"Authorization": f"Bearer {door.token}"}
        refused = await site.http.post(f"/api/threads/{thread}/messages", json={"text": "more"}, headers=headers)
        servers = await site.http.get("/api/servers", headers=headers)
        conversations_of(site.app).pool.evict_thread(thread)  # type: ignore[arg-type]
        await until(lambda: site.app.roster.find_delegated(door.token.encode()) is None)

    assert (refused.status_code, servers.status_code) == (403, 403)
    assert door.token not in repr(door)


async def test_everything_is_described() -> None:
    async with web(IN_MEMORY, main=ScriptedAgent()) as site:
        description = (await site.http.get("/api/openapi.json")).json()
        thread = await site.thread()
        events = [data async for _, data in site.events(thread, "hello")]
        shown = (await site.http.get(f"/api/threads/{thread}")).json()

    assert description["openapi"] == "3.1.0"
    assert set(description["paths"]["/api/threads/{thread}/messages"]) == {"get", "post"}
    assert "/api/prewarm" in description["paths"]
    for event in events:
        jsonschema.validate(event, {"$ref": "#/components/schemas/TurnEvent", "components": description["components"]})
    jsonschema.validate(shown, {"$ref": "#/components/schemas/ShownThread", "components": description["components"]})


async def test_every_answer_is_as_it_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    command, *args = acp_agent_command()
    agents = {
        name: AgentSettings(command=command, args=[*args, *options])
        for name, options in {"script": [], "dead": ["--exit"], "hung": ["--hang"]}.items()
    }
    limit(monkeypatch, pool=PoolLimits(open_s=4), cancel_s=0.5)
    async with web(msgspec.structs.replace(IN_MEMORY, parts={"agents": agents})) as site:
        description = (await site.http.get("/api/openapi.json")).json()
        thread = await site.thread()
        seen: set[tuple[str, str, int]] = set()

        async def ask(method: str, path: str, body: Any = None, **sent: Any) -> None:
            answer = await site.http.request(method, path.format(thread=thread), json=body, **sent)
            described = description["paths"][path.partition("?")[0]][method.lower()]["responses"]
            schema = described[str(answer.status_code)]["content"]["application/json"]["schema"]
            jsonschema.validate(answer.json(), {**schema, "components": description["components"]})
            seen.add((method, path.partition("?")[0], answer.status_code))

        one = "/api/threads/{thread}"
        for path in (
            "/api/openapi.json",
            "/api/health",
            "/api/agents",
            "/api/threads",
            one,
            f"{one}/turns",
        ):
            await ask("GET", path)
        await ask("GET", "/api/threads?limit=many")
        await ask("GET", "/api/agents", headers={"Host": "elsewhere.example"})
        await ask("GET", "/api/agents", headers={"Origin": "https://evil.example"})
        for body in ({}, {"titel": "x"}, {"agent": "nobody"}):
            await ask("POST", "/api/threads", body)
        await ask("POST", "/api/threads", headers={"Content-Type": "text/plain"})
        await ask("POST", "/api/threads", {"title": "x" * 6_000_000})
        await ask("PATCH", one, {"title": "described"})
        for text in ("say hi", "crash", "fail", 'call desk__add {"a": 1, "b": 2}'):
            await ask("POST", f"{one}/messages", {"text": text})
        await ask("POST", f"{one}/messages", {"text": "hang", "timeoutS": 0.2})
        await ask("GET", f"{one}/messages")
        await ask("GET", f"{one}/turns")
        await ask("POST", f"{one}/cancel", {})
        await ask("POST", f"{one}/cancel", {"turn": "u-1"})
        for agent in ("script", "dead", "hung", "nobody"):
            await ask("POST", "/api/prewarm", {"threadId": thread, "agent": agent})
        await ask("POST", "/api/prewarm", {"threadId": "t-nobody"})
        await ask("DELETE", one, {})
        await ask("GET", one)

    prewarmed = {status for _, path, status in seen if path == "/api/prewarm"}
    assert prewarmed == {200, 400, 404, 503, 504}
    assert {status for _, path, status in seen if path == "/api/threads"} == {200, 201, 400, 413, 415}
    answered = {(method.lower(), path) for method, path, status in seen if status < 300}
    own = ("/api/openapi.json", "/api/health", "/api/agents", "/api/threads", "/api/prewarm")
    described = {path: methods for path, methods in description["paths"].items() if path.startswith(own)}
    every = {(method, path) for path, methods in described.items() for method in methods}
    assert every - answered == {("get", f"{one}/events")}


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ({"txt": "x"}, "did you mean `text`?"),
        ({"text": "x", "timeout": 5}, "did you mean `timeoutS`?"),
        ({}, "an object with: text, agent, model, timeoutS, onDisconnect"),
        ([], "an object with: text, agent, model, timeoutS, onDisconnect"),
    ],
)
async def test_a_body_that_is_refused_can_be_mended(body: Any, hint: str) -> None:
    async with web(IN_MEMORY, main=ScriptedAgent()) as site:
        thread = await site.thread()
        answer = await site.http.post(f"/api/threads/{thread}/messages", json=body)

    assert (answer.status_code, answer.json()["error"]["hint"]) == (400, hint)


async def test_health_names_the_plugin_that_is_not_well() -> None:
    careless = Plugin("careless")

    @careless.hook
    async def toolpost_before_invoke(prompt: str) -> str:
        raise KeyError("lost")

    async with web(IN_MEMORY, careless, main=ScriptedAgent()) as site:
        before = (await site.http.get("/api/health")).json()
        answer = await site.say(await site.thread(), "hello")
        after = (await site.http.get("/api/health")).json()

    assert (before["status"], before["plugins"]["careless"]["state"]) == ("ok", "healthy")
    assert answer["text"] == "hello"
    assert (after["status"], after["plugins"]["careless"]["state"]) == ("degraded", "degraded")
    assert "toolpost_before_invoke" in after["plugins"]["careless"]["problems"][0]


async def test_a_server_that_is_killed_leaves_nothing_running_and_the_thread_readable(tmp_path: Path) -> None:
    command, *args = acp_agent_command()
    (tmp_path / "toolpost.toml").write_text(
        f'[http]\nlisten = "127.0.0.1:0"\n[agents.script]\ncommand = "{command}"\nargs = {json.dumps(args)}\n'
    )
    server, url = start_server(tmp_path)
    async with httpx2.AsyncClient(base_url=url, timeout=30) as http:
        thread = (await http.post("/api/threads", json={})).json()["id"]
        path = f"/api/threads/{thread}"
        pid, daemon = [
            int((await http.post(f"{path}/messages", json={"text": text})).json()["text"]) for text in ("pid", "fork")
        ]
        headers = {"Accept": "text/event-stream"}
        async with http.stream(
            "POST", f"{path}/messages", json={"text": "stream 2000 10"}, headers=headers
        ) as response:
            async for kind, _ in read_events(response):
                if kind == "text":
                    break
            server.kill()
            server.wait()

    assert await has_gone(pid)
    assert await has_gone(daemon)
    server, url = start_server(tmp_path)
    try:
        async with httpx2.AsyncClient(base_url=url, timeout=30) as http:
            turns = (await http.get(f"{path}/turns")).json()["turns"]
            again = (await http.post(f"{path}/messages", json={"text": "echo"})).json()
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)

    assert [turn["state"] for turn in turns] == ["interrupted", "done", "done"]
    assert turns[0]["error"]["code"] == "CANCELLED"
    assert '"text":"stream 2000 10"' in again["text"]


def start_server(folder: Path) -> tuple["subprocess.Popen[bytes]", str]:
    log = (folder / "log").open("wb")
    server = subprocess.Popen([TOOLPOST, "serve"], cwd=folder, env=server_environment(), stderr=log, stdout=log)
    log.close()
    deadline, text = time.monotonic() + 60, ""
    while time.monotonic() < deadline:
        text = (folder / "log").read_text()
        for word in text.split():
            if word.startswith("http://127.0.0.1:") and "/mcp" in word:
                return server, word.split("/mcp")[0]
        time.sleep(0.05)
    raise AssertionError(f"the server did not start: {text}")
