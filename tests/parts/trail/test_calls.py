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
from tests.ways import IN_MEMORY, QUICK_WAYS, STATELESS, Way
from toolpost import Plugin
from toolpost.app import App, open_app
from toolpost.audit import AuditFilter
from toolpost.authoring.middleware import CallRequest, CallResult, Next
from toolpost.base.ids import META_KEY, CallerId, ToolName
from toolpost.contracts.errors import ToolpostError
from toolpost.parts.trail.calls import CallRecorder
from toolpost.parts.trail.records import Draft
from toolpost.parts.trail.service import Thought, Trail, context_name, draft_result
from toolpost.parts.trail.settings import TRAIL, TrailSettings
from toolpost.settings import Config
from toolpost.settings.model import MiddlewareSettings, PluginSettings, StoreSettings
from toolpost.testing import data_of, error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

BY_HANDSHAKE, WITHOUT_SESSION = Way("http", "legacy"), Way("http", STATELESS)

shop = Plugin("shop")
STARTED = asyncio.Event()
"""Set when something slow is being bought."""


@shop.tool(timeout_s=0.2)
async def wait(what: str) -> str:
    "Wait for something."
    await asyncio.sleep(30)
    return what


@shop.tool
async def buy(what: str) -> str:
    "Buy something."
    if what == "nothing":
        raise ValueError("there is nothing")
    if what == "slow":
        STARTED.set()
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
    async with open_app(config_of(url), plugins=[shop]) as app, BY_HANDSHAKE.client_of(app) as client:
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
    async with open_app(config_of(url), plugins=[shop]) as app, WITHOUT_SESSION.client_of(app) as client:
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
    async with open_app(config, plugins=[shop]) as app, BY_HANDSHAKE.client_of(app) as client:
        await client.call_tool("shop__buy", {"what": "milk"})
        found = await records(client)

    assert [each["kind"] for each in found] == ["call", "result"]


@pytest.mark.parametrize("moment", ["in the tool", "while it is recorded"])
async def test_a_cancelled_call_has_its_result(moment: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.STARTED", asyncio.Event())
    append = Trail.append

    async def append_slowly(self: Trail, owner: CallerId, name: str, draft: Draft, **options: Any) -> Any:
        written = await append(self, owner, name, draft, **options)
        if draft.body["kind"] == "call":
            STARTED.set()
            await anyio.sleep(0.3)  # it is slow on purpose
        return written

    if moment == "while it is recorded":
        monkeypatch.setattr(Trail, "append", append_slowly)
    async with open_app(config_of(url), plugins=[shop]) as app, BY_HANDSHAKE.client_of(app) as client:
        await ask(client, "audit_session_start", intent="shopping")
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, "shop__buy", {"what": "slow"})
                await STARTED.wait()
                tasks.cancel_scope.cancel()
            while len(found := await records(client)) < 2:
                await anyio.sleep(0.05)

    assert [each.get("outcome") for each in found] == [None, "cancelled"]


async def test_the_trail_and_the_audit_agree_on_what_became_of_a_call(url: str) -> None:
    async with open_app(config_of(url), plugins=[shop]) as app, BY_HANDSHAKE.client_of(app) as client:
        await ask(client, "audit_session_start", intent="shopping")
        for tool, given in (
            ("buy", {"what": "milk"}),
            ("buy", {"what": "nothing"}),
            ("buy", {"what": 7}),
            ("wait", {"what": "rain"}),
        ):
            await client.call_tool(f"shop__{tool}", given)
        found = await records(client)
        audited = [await audit(app, each["call_id"]) for each in found[::2]]

    shown = [(each["outcome"], each["code"]) for each in found[1::2]]
    assert shown == [(entry.outcome, entry.code) for entry in audited]
    assert shown == [("ok", None), ("error", "HANDLER_ERROR"), ("refused", "INVALID_PARAMS"), ("error", "TOOL_TIMEOUT")]


async def try_twice(call: CallRequest, proceed: Next) -> CallResult:
    """Run a call again with other arguments if it fails."""
    try:
        return await proceed(call)
    except ToolpostError:
        return await proceed(call.with_arguments({"what": "milk"}))


async def test_each_attempt_of_a_call_is_recorded(url: str) -> None:
    config = msgspec.structs.replace(config_of(url), middleware=MiddlewareSettings(load=[f"{__name__}:try_twice"]))
    async with open_app(config, plugins=[shop]) as app, BY_HANDSHAKE.client_of(app) as client:
        await ask(client, "audit_session_start", intent="shopping")
        data_of(await client.call_tool("shop__buy", {"what": "nothing"}))
        found = await records(client)
        entry = await audit(app, found[0]["call_id"])

    first, failed, second, done = found
    assert len({each["call_id"] for each in found}) == 1
    assert (failed["call"], failed["outcome"]) == (first["hash"], "error")
    assert (done["call"], done["outcome"], entry.outcome) == (second["hash"], "ok", "ok")
    assert second["arguments"] == entry.arguments != first["arguments"]


async def test_a_task_ends_with_a_decision_where_that_is_required(url: str) -> None:
    config = config_of(url, decisions={"bus__worker_done": "bead_id"})
    async with open_app(config) as app, WITHOUT_SESSION.client_of(app) as client:
        for tool, given in (
            ("register_worker", {"name": "w"}),
            ("submit_task", {"bead_id": "b-1"}),
            ("poll_task", {"name": "w"}),
            ("ack_task", {"name": "w", "bead_id": "b-1"}),
        ):
            data_of(await client.call_tool(f"bus__{tool}", given))
        refused = error_of(await client.call_tool("bus__worker_done", {"bead_id": "b-1"}))
        await ask(client, "thought_record", type="plan", agent_id="w", content="x", task_id="b-1")
        theirs = Thought(type="decision", task_id="b-1", agent_id="b", content="theirs")
        await app.service(Trail).record(BOB, theirs, None)
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
        # A first attempt that has its result, and a second one that has none.
        _, first = await trail.append(CallerId("ann"), "work", Draft(once="call c-1 1", body=body))
        failed = draft_result(
            CallerId("ann"), "c-1", first.hash, outcome="error", code=None, duration_ms=1, result=None
        )
        await trail.end_call(first.session, CallerId("ann"), "work", failed)
        await trail.append(CallerId("ann"), "work", Draft(once="call c-1 2", body=body))
        entry = draft(1).complete(outcome="lost", code=None, duration_ms=0.0, result=None)
        await app.store.audit.append(entry)
    async with open_app(config_of(url)):
        pass
    async with open_app(config_of(url)) as app:
        found = await app.service(Trail).list(
            CallerId("ann"), session_id="work", task_id=None, kinds=["call", "result"], after=(0, 0), limit=10
        )

    assert [record.body_json.get("outcome") for _, record in found] == [None, "error", None, "lost"]
    assert found[3][1].body_json["call"] == found[2][1].hash


async def test_calls_outside_of_sessions_keep_their_fast_path() -> None:
    async with open_app(config_of("sqlite::memory:"), plugins=[shop]) as app, BY_HANDSHAKE.client_of(app) as client:
        await client.call_tool("shop__buy", {"what": "milk"})
        ((_, recorder),) = app.gateway.pipeline._middleware
        assert isinstance(recorder, CallRecorder)
        before = recorder.applies_to_call(ANN, ToolName("shop__buy"), {})
        await app.service(Trail).start(ANN.id, context_name(ANN), "x", None)
        after = [recorder.applies_to_call(caller, ToolName("shop__buy"), {}) for caller in (ANN, BOB)]

    assert (before, after) == (False, [True, False])


async def test_a_decision_is_required_of_bare_names() -> None:
    config = TRAIL.put(
        msgspec.structs.replace(IN_MEMORY, plugins=PluginSettings(only="desk")),
        TrailSettings(decisions={"desk__close": "task"}),
    )
    plugin = Plugin("desk")

    @plugin.tool
    async def close(task: str) -> str:
        """Close a task."""
        return task

    async with open_app(config, plugins=[plugin]) as app, QUICK_WAYS[0].client_of(app) as client:
        error = error_of(await client.call_tool("close", {"task": "t-1"}))

    assert (error["code"], "needs a decision" in error["message"]) == ("INVALID_REQUEST", True)
