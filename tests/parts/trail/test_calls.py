"""Calls in the sessions of the trail: recorded before they are dispatched, with their results and the decisions behind them."""

import asyncio
from typing import Any, cast

import anyio
import msgspec
import pytest
from mcp import Client

from tests.parts.trail.test_sessions import ANN, BOB
from tests.parts.trail.test_tools import ask
from tests.store.test_call_journal import draft
from tests.ways import IN_MEMORY, MODERN, Way
from toolpost import Plugin
from toolpost.app import open_app
from toolpost.base.ids import META_KEY, CallerId, ToolName
from toolpost.parts.trail.calls import CallRecorder
from toolpost.parts.trail.records import Draft
from toolpost.parts.trail.service import Trail, context_name
from toolpost.parts.trail.settings import TRAIL, TrailSettings
from toolpost.running import App
from toolpost.settings import Config, StoreSettings
from toolpost.store import AuditEntry, AuditFilter
from toolpost.testing import data_of, error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

HANDSHAKE, STATELESS = Way("http", "legacy"), Way("http", MODERN)

shop = Plugin("shop")


@shop.tool
async def buy(what: str) -> str:
    "Buy something."
    if what == "nothing":
        raise ValueError("there is nothing")
    if what == "slow":
        await asyncio.sleep(30)
    return f"bought {what}"


def config_of(url: str, **settings: Any) -> Config:
    return TRAIL.put(msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=url)), TrailSettings(**settings))


async def records(client: Client, **given: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await ask(client, "thought_record_list", kind="all", **given))["records"]
    return found


async def audit(app: App, call: str) -> Any:
    (record,) = await app.store.audit.entries(AuditFilter(call_id=call), limit=10)
    return record.entry


async def test_calls_of_an_mcp_session_are_chained_with_its_thoughts(url: str) -> None:
    async with open_app(config_of(url), plugins=[shop]) as app, HANDSHAKE.client_of(app) as client:
        await client.call_tool("shop__buy", {"what": "before"})
        await ask(client, "audit_session_start", intent="shopping")
        await client.call_tool("shop__buy", {"what": "milk"})
        await client.call_tool("shop__buy", {"what": "nothing"})
        calls = await records(client)
        decision = await ask(
            client, "thought_record", type="decision", agent_id="a", content="go home", references=[calls[0]["call_id"]]
        )
        final = await ask(client, "merkle_finalize")
        await client.call_tool("shop__buy", {"what": "bread"})
        later = (await records(client))[5:]
        verdict = await ask(client, "audit_verify_chain")
        entry = await audit(app, calls[0]["call_id"])

    shown = [(each["kind"], each.get("tool"), each.get("outcome"), each.get("code")) for each in calls]
    assert shown == [
        ("call", "shop__buy", None, None),
        ("result", None, "ok", None),
        ("call", "shop__buy", None, None),
        ("result", None, "error", "HANDLER_ERROR"),
    ]
    assert calls[1]["call"] == calls[0]["hash"]
    assert (calls[0]["arguments"], calls[1]["result"]) == (entry.arguments, entry.result)
    assert decision["references"] == [calls[0]["hash"]]
    assert final["size"] == 5
    assert [(each["kind"], each["session_id"]) for each in later] == [
        ("call", f"{final['session_id']}.2"),
        ("result", f"{final['session_id']}.2"),
    ]
    assert verdict == {"valid": True, "broken_count": 0, "record_count": 7}


async def test_a_call_names_its_session_and_the_decision_that_it_follows(url: str) -> None:
    async with open_app(config_of(url), plugins=[shop]) as app, STATELESS.client_of(app) as client:
        await ask(client, "audit_session_start", intent="shopping", session_id="work")
        plan = await ask(client, "thought_record", type="plan", agent_id="a", content="look", session_id="work")
        decision = await ask(client, "thought_record", type="decision", agent_id="a", content="buy", session_id="work")

        async def buy_with(**facts: Any) -> Any:
            meta = cast("Any", {META_KEY: facts})
            return await client.call_tool("shop__buy", {"what": "milk"}, meta=meta)

        data_of(await buy_with(session_id="work", follows=decision["hash"]))
        data_of(await client.call_tool("shop__buy", {"what": "unseen"}))
        refused = [
            error_of(await buy_with(**facts))["code"]
            for facts in (
                {"session_id": "other"},
                {"session_id": 7},
                {"session_id": "work", "follows": "0" * 64},
                {"session_id": "work", "follows": plan["hash"]},
            )
        ]
        found = await records(client, session_id="work")

    assert refused == ["NOT_FOUND", "INVALID_PARAMS", "INVALID_PARAMS", "INVALID_PARAMS"]
    assert [each["kind"] for each in found] == ["thought", "thought", "call", "result"]
    assert found[2]["follows"] == decision["hash"]


async def test_all_sessions_are_recorded_where_that_is_set() -> None:
    config = config_of("sqlite::memory:", sessions="all")
    async with open_app(config, plugins=[shop]) as app, HANDSHAKE.client_of(app) as client:
        await client.call_tool("shop__buy", {"what": "milk"})
        found = await records(client)

    assert [each["kind"] for each in found] == ["call", "result"]


async def test_a_cancelled_call_has_its_result(url: str) -> None:
    async with open_app(config_of(url), plugins=[shop]) as app, HANDSHAKE.client_of(app) as client:
        await ask(client, "audit_session_start", intent="shopping")
        with anyio.move_on_after(0.3):
            await client.call_tool("shop__buy", {"what": "slow"})
        with anyio.fail_after(5):
            while len(found := await records(client)) < 2:
                await anyio.sleep(0.05)

    assert [each.get("outcome") for each in found] == [None, "cancelled"]


async def test_a_task_ends_with_a_decision_where_that_is_required(url: str) -> None:
    config = config_of(url, decisions={"bus__worker_done": "bead_id"})
    async with open_app(config) as app, STATELESS.client_of(app) as client:
        for tool, given in (
            ("register_worker", {"name": "w"}),
            ("submit_task", {"bead_id": "b-1"}),
            ("poll_task", {"name": "w"}),
            ("ack_task", {"name": "w", "bead_id": "b-1"}),
        ):
            data_of(await client.call_tool(f"bus__{tool}", given))
        refused = error_of(await client.call_tool("bus__worker_done", {"bead_id": "b-1"}))
        await ask(client, "thought_record", type="plan", agent_id="w", content="x", task_id="b-1")
        again = error_of(await client.call_tool("bus__worker_done", {"bead_id": "b-1"}))
        await ask(client, "thought_record", type="decision", agent_id="w", content="done", task_id="b-1")
        done = data_of(await client.call_tool("bus__worker_done", {"bead_id": "b-1"}))

    assert [refused["code"], again["code"]] == ["INVALID_REQUEST"] * 2
    assert "thought_record" in refused["hint"]
    assert done["success"] is True


async def test_what_a_killed_gateway_left_is_closed(url: str) -> None:
    """The records are those of a gateway that was killed after the audit had its entry, or while the tool ran."""
    async with open_app(config_of(url)) as app:
        trail = app.service(Trail)
        body = {
            "kind": "call",
            "author": "ann",
            "call_id": "c-1",
            "tool": "files__write",
            "arguments": "",
            "follows": None,
        }
        await trail.append(CallerId("ann"), "work", Draft(once="call c-1", body=body))
        entry = AuditEntry(**draft(1), outcome="lost", code=None, duration_ms=0.0, result=None)
        await app.store.audit.append(entry)
    async with open_app(config_of(url)):
        pass
    async with open_app(config_of(url)) as app:
        found = await app.service(Trail).list(
            CallerId("ann"), session_id="work", task_id=None, kinds=["call", "result"], after=(0, 0), limit=10
        )

    assert [record.body_json.get("outcome") for _, record in found] == [None, "lost"]


async def test_calls_outside_of_sessions_keep_their_fast_path() -> None:
    async with open_app(config_of("sqlite::memory:"), plugins=[shop]) as app, HANDSHAKE.client_of(app) as client:
        await client.call_tool("shop__buy", {"what": "milk"})
        ((_, recorder),) = app.gateway.pipeline._middleware
        assert isinstance(recorder, CallRecorder)
        before = recorder.applies_to_call(ANN, ToolName("shop__buy"), {})
        await app.service(Trail).start(ANN.id, context_name(ANN), "x", None)
        after = [recorder.applies_to_call(caller, ToolName("shop__buy"), {}) for caller in (ANN, BOB)]

    assert (before, after) == (False, [True, False])
