"""Tasks and conversations: what happens in several processes and belongs together."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.parts.agents.asking import ADA, asked, desk
from tests.parts.telemetry.receiver import open_receiver
from tests.parts.telemetry.test_spans import config_of
from tests.ways import STATELESS, Way
from toolpost.app import open_app, open_http
from toolpost.parts.agents import TextChunk
from toolpost.parts.agents.turn_events import AgentEvent
from toolpost.parts.telemetry.call_spans import derive_ids
from toolpost.settings.model import PluginSettings
from toolpost.testing import ScriptedAgent, ScriptedSession, conversations_of, open_test_app

pytestmark = [pytest.mark.anyio, pytest.mark.wire, pytest.mark.soak]


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_the_calls_of_a_task_are_linked_across_gateways(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}" if store == "sqlite" else request.getfixturevalue("postgres").new_url()
    way = Way("memory", STATELESS)
    with open_receiver() as one, open_receiver() as two:
        first, second = (
            msgspec.structs.replace(config_of(receiver, store=url), plugins=PluginSettings(bundled=["bus"]))
            for receiver in (one, two)
        )
        async with open_app(first) as app, way.client_of(app) as planner:
            await planner.call_tool("bus__submit_task", {"bead_id": "T-7"})
        async with open_app(second) as app, way.client_of(app) as worker:
            await worker.call_tool("bus__register_worker", {"name": "w"})
            polled = (await worker.call_tool("bus__poll_task", {"name": "w"})).structured_content or {}
            held = {"bead_id": "T-7", "lease_token": polled["task"]["lease_token"]}
            await worker.call_tool("bus__ack_task", {"name": "w", **held})
            await worker.call_tool("bus__worker_done", held)
    task = one.one("toolpost.bus.task")
    submitted = one.one("tools/call bus__submit_task")
    calls = [submitted, *(two.one(f"tools/call bus__{name}") for name in ("poll_task", "ack_task", "worker_done"))]

    assert (task.trace, task.id) == derive_ids("bus.task", "T-7")
    assert task.links == [(submitted.trace, submitted.id)]
    for call in calls:
        assert call.links == [(task.trace, task.id)]
        assert call.attributes["toolpost.bus.task.id"] == "T-7"
    assert len({call.trace for call in calls}) == 4


async def test_a_turn_is_the_parent_of_the_calls_of_its_agent() -> None:
    async def script(text: str, session: ScriptedSession) -> AsyncGenerator[AgentEvent, None]:
        reached = session.session_options.gateway
        assert reached is not None
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {reached.token}"}) as http:
            async with Client(streamable_http_client(reached.url, http_client=http)) as client:
                await client.call_tool("desk__whoami", {})
        yield TextChunk(text="done")

    with open_receiver() as receiver:
        agents = {"helper": ScriptedAgent(script)}
        async with open_test_app(desk, config=config_of(receiver), agents=agents) as app, open_http(app):
            thread = (await conversations_of(app).create_thread(ADA)).id
            ended = await asked(app, thread, "Who am I?")
    turn, call = receiver.one("invoke_agent helper"), receiver.one("tools/call desk__whoami")

    assert (turn.trace, turn.kind) == (ended.trace_id, "INTERNAL")
    assert (call.trace, call.parent) == (turn.trace, turn.id)
    assert turn.began <= call.began <= call.ended <= turn.ended
    expected: dict[str, Any] = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
    assert turn.attributes == expected | {"gen_ai.conversation.id": thread, "toolpost.caller": "local"}
