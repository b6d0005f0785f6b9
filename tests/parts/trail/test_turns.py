"""`trail.deciding_agents`: a turn of a conversation ends with a decision, or fails."""

from collections.abc import AsyncGenerator

import httpx2
import msgspec
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.parts.agents.asking import ADA, asked
from tests.ways import IN_MEMORY
from toolpost.app import open_app, open_http
from toolpost.parts.agents import TextChunk, TurnEnded
from toolpost.parts.agents.turn_events import AgentEvent
from toolpost.parts.trail.settings import TRAIL, TrailSettings
from toolpost.parts.trail.turns import PROMPT
from toolpost.settings.model import StoreSettings
from toolpost.testing import ScriptedAgent, ScriptedSession, conversations_of, data_of, parts_with

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


async def work(prompt: str, session: ScriptedSession) -> AsyncGenerator[AgentEvent, None]:
    """Record each word of a prompt that is a type of thought; once more asked, decide unless the agent is stubborn."""
    words = prompt.split()[-3:]
    if prompt == PROMPT and "stubborn" not in session.prompts[-2]:
        words = ["decision"]
    access = session.session_options.gateway
    assert access is not None
    headers = {"authorization": f"Bearer {access.token}"}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(access.url, http_client=http)) as client,
    ):
        for word in words:
            if word in ("plan", "decision"):
                given = {"type": word, "agent_id": "a", "content": word}
                data_of(await client.call_tool("trail__thought_record", given))
    yield TextChunk(text="done")


async def test_a_turn_ends_with_a_decision_or_fails(url: str) -> None:
    config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=url))
    config = TRAIL.put(config, TrailSettings(deciding_agents=["main"]))
    agent, free = ScriptedAgent(work), ScriptedAgent(work)
    ended: list[TurnEnded] = []
    async with open_app(config, parts=parts_with({"main": agent, "free": free})) as app, open_http(app):
        thread = await conversations_of(app).create_thread(ADA)
        for text in ("plan decision", "plan", "stubborn plan", "stubborn"):
            ended.append(await asked(app, thread.id, text))
        ended.append(await asked(app, thread.id, "plan", agent="free"))

    assert [each.state for each in ended] == ["done", "done", "failed", "failed", "done"]
    assert [prompt == PROMPT for prompt in agent.sessions[0].prompts] == [False, False, True, False, True, False, True]
    assert ended[2].error is not None
    assert "record a decision" in ended[2].error["message"]
