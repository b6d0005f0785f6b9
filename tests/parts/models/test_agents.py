"""Agents as candidates: asked in the caller's name and within its limits, and nothing is tried after one has begun."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest
from mcp import Client

from tests.parts.models.endpoints import FakeEndpoint
from tests.ways import IN_MEMORY, QUICK_WAYS
from toolpost.app import open_app, open_http
from toolpost.parts.agents import TextChunk
from toolpost.parts.agents.turn_events import AgentEvent
from toolpost.parts.models.settings import MODELS, ModelSettings
from toolpost.settings import Config
from toolpost.settings.callers import CallerSettings
from toolpost.testing import ScriptedAgent, ScriptedSession, data_of, error_of, parts_with

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


def config_of(endpoint: FakeEndpoint) -> Config:
    """Configure an agent, and a model that is less preferred."""
    return MODELS.put(
        IN_MEMORY,
        {
            "helper": ModelSettings(agent="scripted", preference=1.0),
            "good": ModelSettings(url=endpoint.url, preference=0.0),
        },
    )


@asynccontextmanager
async def opened(agent: ScriptedAgent, endpoint: FakeEndpoint, name: str = "scripted") -> AsyncIterator[Client]:
    parts = parts_with({name: agent})
    async with open_app(config_of(endpoint), parts=parts) as app, QUICK_WAYS[0].client_of(app) as client:
        yield client


async def ask(client: Client, **arguments: Any) -> Any:
    return data_of(await client.call_tool("models__router_call", {"prompt": "haiku"} | arguments))


async def test_an_agent_answers(endpoint: FakeEndpoint) -> None:
    async with opened(ScriptedAgent(), endpoint) as client:
        answer = await ask(client, system="be brief")
        stats: Any = data_of(await client.call_tool("models__router_stats", {}))

    assert (answer["model"], answer["content"]) == ("helper", "be brief\n\nhaiku")
    assert answer["input_tokens"] > 0
    assert stats["models"]["helper"]["successes"] == 1


async def test_an_agent_that_is_not_there_is_passed_over(endpoint: FakeEndpoint) -> None:
    async with opened(ScriptedAgent(), endpoint, name="another") as client:
        answer = await ask(client)

    assert answer["model"] == "good"
    assert "scripted" in answer["failed"][0]["reason"]


async def test_nothing_is_tried_after_an_agent_that_has_begun(endpoint: FakeEndpoint) -> None:
    async def fail(prompt: str, session: ScriptedSession) -> AsyncGenerator[AgentEvent, None]:
        yield TextChunk(text="I have deleted ")
        raise RuntimeError("it broke")

    async with opened(ScriptedAgent(fail), endpoint) as client:
        error = error_of(await client.call_tool("models__router_call", {"prompt": "haiku"}))

    assert error["code"] == "HANDLER_ERROR"
    assert "may have acted" in error["message"]
    assert endpoint.requests == []


async def test_nothing_is_tried_after_an_agent_that_is_too_slow(endpoint: FakeEndpoint) -> None:
    async def wait(prompt: str, session: ScriptedSession) -> AsyncGenerator[AgentEvent, None]:
        yield TextChunk(text="I am ")
        await anyio.sleep(60)

    async with opened(ScriptedAgent(wait), endpoint) as client:
        late = {"prompt": "haiku", "context": {"task": {"deadline_ms": 300}}}
        error = error_of(await client.call_tool("models__router_call", late))

    assert error["code"] == "TOOL_TIMEOUT"
    assert endpoint.requests == []


async def test_an_agent_at_work_for_a_caller_is_not_asked_a_second_time_at_once(endpoint: FakeEndpoint) -> None:
    entered, release = anyio.Event(), anyio.Event()

    async def hold(prompt: str, session: ScriptedSession) -> AsyncGenerator[AgentEvent, None]:
        entered.set()
        await release.wait()
        yield TextChunk(text="done")

    async with opened(ScriptedAgent(hold), endpoint) as client:
        answers: list[Any] = []

        async def first() -> None:
            answers.append(await ask(client))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            await entered.wait()
            answers.append(await ask(client))
            release.set()

    assert [answer["model"] for answer in answers] == ["good", "helper"]
    assert "already at work" in answers[0]["failed"][0]["reason"]


async def test_an_agent_has_the_limits_of_its_caller(endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMITED_TOKEN", "t" * 32)
    limited = CallerSettings(token="${LIMITED_TOKEN}", tools=["models__*"])
    config = msgspec.structs.replace(config_of(endpoint), callers={"limited": limited})
    agent = ScriptedAgent()
    async with open_app(config, parts=parts_with({"scripted": agent})) as app, open_http(app) as url:
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared._httpx_utils import create_mcp_http_client

        http = create_mcp_http_client(headers={"authorization": f"Bearer {'t' * 32}"})
        async with http, Client(streamable_http_client(url, http_client=http)) as client:
            answer = await ask(client)
            (session,) = agent.sessions
            scopes = app.roster.find_delegated(session.session_options.gateway.token.encode()).scopes  # type: ignore[union-attr]

    assert answer["model"] == "helper"
    assert [scope.tools for scope in scopes] == [("models__*",)]
