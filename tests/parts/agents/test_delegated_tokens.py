"""An agent's way in to the gateway: its caller's name and limits, for as long as its session and its caller last."""

from typing import Any

import httpx2
import msgspec
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.hostile.attacks import attack
from tests.parts.agents.test_api import web
from tests.waiting import until
from tests.ways import IN_MEMORY
from toolpost.app.callers import read_callers
from toolpost.base.caller import GatewayAccess
from toolpost.settings import Config
from toolpost.settings.callers import CallerSettings
from toolpost.testing import ScriptedAgent, conversations_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


def with_callers(**callers: CallerSettings) -> Config:
    return msgspec.structs.replace(IN_MEMORY, callers=callers)


@pytest.fixture
def ada(monkeypatch: pytest.MonkeyPatch) -> CallerSettings:
    monkeypatch.setenv("ADA_TOKEN", "ada-secret")
    monkeypatch.setenv("BOB_TOKEN", "bob-secret")
    return CallerSettings(token="${ADA_TOKEN}", tools=["desk__add", "desk__whoami"])


async def tools_through(door: GatewayAccess, mode: str = "auto") -> list[str]:
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {door.token}"}) as http:
        async with Client(streamable_http_client(door.url, http_client=http), mode=mode) as client:
            return [tool.name for tool in (await client.list_tools()).tools]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_an_agent_sees_what_its_caller_sees_in_both_eras(ada: CallerSettings, mode: str) -> None:
    agent = ScriptedAgent()
    async with web(with_callers(ada=ada), token="ada-secret", main=agent) as site:
        await site.say(await site.thread(), "hello")
        door = agent.sessions[0].session_options.gateway
        assert door is not None
        seen = await tools_through(door, mode)

    assert seen == ["desk__add", "desk__whoami"]


@attack(
    "agent",
    "keeps the token that it was lent and uses it after its session",
    "the token ends with the session",
)
async def test_a_door_closes_with_its_session(ada: CallerSettings) -> None:
    agent = ScriptedAgent()
    async with web(with_callers(ada=ada), token="ada-secret", main=agent) as site:
        thread: Any = await site.thread()
        await site.say(thread, "hello")
        door = agent.sessions[0].session_options.gateway
        assert door is not None
        conversations_of(site.app).pool.evict_thread(thread)
        await until(lambda: agent.sessions[0].is_closed)

        async def is_refused() -> bool:
            return await status_of(site.http, door) == 401

        await until(is_refused)


@attack(
    "agent",
    "goes on for a caller who was removed",
    "its agents lose access with the caller",
)
async def test_what_is_taken_from_a_caller_is_taken_from_their_agents(ada: CallerSettings) -> None:
    agent = ScriptedAgent()
    bob = CallerSettings(token="${BOB_TOKEN}")
    async with web(with_callers(ada=ada, bob=bob), token="ada-secret", main=agent) as site:
        await site.say(await site.thread(), "hello")
        door = agent.sessions[0].session_options.gateway
        assert door is not None
        less = CallerSettings(token="${ADA_TOKEN}", tools=["desk__whoami", "desk__fail"])
        site.app.roster.replace(read_callers(with_callers(ada=less, bob=bob)))
        seen = await tools_through(door)
        site.app.roster.replace(read_callers(with_callers(bob=bob)))
        status = await status_of(site.http, door)

    assert seen == ["desk__whoami"]
    assert status == 401


async def status_of(http: httpx2.AsyncClient, door: GatewayAccess) -> int:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"Authorization": f"Bearer {door.token}", "Accept": "application/json, text/event-stream"}
    return (await http.post("/mcp", json=message, headers=headers)).status_code
