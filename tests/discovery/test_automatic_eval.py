"""`automatic_eval`: the real tool's own call, in every respect but the name it was asked by."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.discovery.asking import ask, office, text_of
from tests.loaded import loaded
from tests.plugins.office import OFFICE
from tests.proofs import proves
from tests.upstreams.behind import SERVERS, gateway, hostile, lines
from tests.waiting import until
from tests.ways import AUTOMATIC, BEHAVIOURS, BOTH, QUICK_WAYS, WAYS, Way
from toolpost.audit import AuditFilter
from toolpost.base.ids import META_KEY
from toolpost.testing import data_of, error_of
from toolpost.upstreams.spec import ServerSpec

pytestmark = pytest.mark.anyio

ORDINARY = str(SERVERS / "sdk_server.py")


async def run(client: Client, tool: str, **options: Any) -> Any:
    arguments = options.pop("arguments", {})
    asked = {"toolName": tool, "arguments": arguments} | options
    return await client.call_tool("automatic_eval", asked)


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_a_wrong_call_is_refused_with_the_definition_that_was_returned(way: Way) -> None:
    async with way.client(*OFFICE, config=BOTH) as client:
        found = await ask(client, "create a calendar event")
        refused = await run(client, "calendar__create_event", arguments={"event": 7, "count": "many"})
        mended = await run(client, "calendar__create_event", arguments={"event_id": "7", "count": 2})

    refusal = json.loads(text_of(refused))
    assert refused.is_error
    assert refused.structured_content is None
    assert len(refused.content) == 1
    assert list(refusal) == ["error", "toolSchema", "code", "issues"]
    assert refusal["error"].startswith("invalid tool arguments: ")
    assert "`event_id`" in refusal["error"]
    assert refusal["toolSchema"] == found["tools"][0]
    assert refusal["code"] == "INVALID_PARAMS"
    assert {issue["path"] for issue in refusal["issues"]} == {"", "/event", "/count"}
    assert data_of(mended) == {"did": "create event", "with": {"event_id": "7", "count": 2}}


@pytest.mark.wire
@proves("automatic_eval", "toolName", "arguments")
@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_results_are_those_of_a_direct_call(way: Way) -> None:
    calls: dict[str, dict[str, Any]] = {
        "add": {"a": 1, "b": 2.5},
        "picture": {},
        "fail": {},
        "mixed": {},
        "dotted_name": {},
    }
    async with gateway(ServerSpec(name="up", command=loaded(ORDINARY)), way=way, config=BOTH) as (_, client):
        pairs = [
            (await client.call_tool(f"up__{name}", arguments), await run(client, f"up__{name}", arguments=arguments))
            for name, arguments in calls.items()
        ]
        with pytest.raises(MCPError) as direct:
            await client.call_tool("up__refuse")
        with pytest.raises(MCPError) as through:
            await run(client, "up__refuse")

    for wanted, answer in pairs:
        assert without_call_id(answer) == without_call_id(wanted)
    assert pairs[1][1].meta["example.com/n"] == 1
    assert pairs[1][1].content[0].type == "image"
    assert pairs[0][1].structured_content == {"sum": 3.5}
    assert direct.value.error == through.value.error


def without_call_id(answer: Any) -> Any:
    plain = answer.model_dump(by_alias=True, mode="json")
    plain["_meta"][META_KEY].pop("callId")
    return plain


async def test_native_results_and_failures_keep_their_own_shape() -> None:
    async with Way("memory", "legacy").client(BEHAVIOURS, config=BOTH) as client:
        for name, arguments in (("does__echo", {"text": "ü"}), ("does__plain_text", {}), ("does__explode", {})):
            direct = await client.call_tool(name, arguments)
            through = await run(client, name, arguments=arguments)

            assert without_call_id(direct) == without_call_id(through), name


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_an_unknown_tool_is_an_answer_with_the_nearest_names(way: Way) -> None:
    async with way.client(*OFFICE, config=AUTOMATIC) as client:
        near = error_of(await run(client, "calendar__creat_event"))
        far = error_of(await run(client, "x" * 200))
        itself = error_of(await run(client, "automatic_mcp"))

    assert near["code"] == "INVALID_REQUEST"
    assert near["details"]["nearest"][0] == "calendar__create_event"
    assert "automatic_mcp" in far["hint"]
    assert itself["hint"] == "call it directly"


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_its_own_arguments_are_checked_too(way: Way) -> None:
    wrong: list[dict[str, Any]] = [
        {},
        {"toolName": 7},
        {"toolName": ""},
        {"toolName": "a", "arguments": "text"},
        {"toolName": "a", "arguments": None},
        {"toolName": "a", "routingKey": ""},
        {"toolName": "a", "routingKey": "k" * 10_000},
        {"toolName": "a", "argument": {}},
    ]
    async with way.client(*OFFICE, config=AUTOMATIC) as client:
        errors = [error_of(await client.call_tool("automatic_eval", arguments)) for arguments in wrong]
        nothing = await client.call_tool("automatic_eval", {"toolName": "wiki__list_page"})

    assert {error["code"] for error in errors} == {"INVALID_PARAMS"}
    assert all("automatic_eval" in error["message"] for error in errors)
    assert "`page_id`" in json.loads(text_of(nothing))["error"]


async def test_the_record_has_the_real_tool() -> None:
    async with office(BOTH) as app, Way("memory", "legacy").client_of(app) as client:
        await run(client, "wiki__list_page", arguments={"page_id": "1"})
        await run(client, "wiki__list_page")
        await run(client, "wiki__nope")
        await ask(client, "page")
        records = [record.entry for record in await app.store.audit.entries(AuditFilter(), limit=100)]

    assert [(entry.tool, entry.source, entry.outcome, entry.code) for entry in records] == [
        ("wiki__list_page", "wiki", "ok", None),
        ("wiki__list_page", "wiki", "refused", "INVALID_PARAMS"),
        ("automatic_eval", "toolpost", "error", "INVALID_REQUEST"),
        ("automatic_mcp", "toolpost", "ok", None),
    ]


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_progress_comes_through_with_the_real_tools_name(way: Way) -> None:
    seen: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with way.client(*OFFICE, config=AUTOMATIC) as client:
        asked = {"toolName": "mail__send_slowly", "arguments": {"steps": 8}}
        answer = await client.call_tool("automatic_eval", asked, progress_callback=note)

    assert data_of(answer) == "sent"
    assert seen
    if "stdio" not in str(way):
        assert seen[-1] == 7


@pytest.mark.wire
@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_cancelled_call_is_cancelled_at_its_server(way: Way, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with gateway(hostile(log=log), way=way, config=BOTH) as (app, client):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(run, client, "up__sleep", arguments={"seconds": 60}))
            await until(lambda: "sleeping" in lines(log))
            tasks.cancel_scope.cancel()
        await until(lambda: any(line.startswith("cancelled") for line in lines(log)))
        await until(lambda: app.gateway.in_flight == 0)
        still = await run(client, "up__pid")

    assert not still.is_error


@pytest.mark.wire
async def test_the_time_limit_is_the_real_tools() -> None:
    async with gateway(hostile(timeout_s=0.2), config=BOTH) as (_, client):
        error = error_of(await run(client, "up__never"))

    assert error["code"] == "TOOL_TIMEOUT"
    assert error["timeoutMs"] == 200
    assert "up__never" in error["message"]


@pytest.mark.wire
@proves("automatic_eval", "routingKey")
@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_routing_key_keeps_calls_on_one_instance(way: Way) -> None:
    async with gateway(hostile(strategy="per_session"), way=way, config=BOTH) as (_, client):
        pids = [text_of(await run(client, "up__pid", routingKey=key)) for key in ("a", "b", "a", "b")]
        without = [text_of(await run(client, "up__pid")) for _ in range(2)]

    assert pids[0] == pids[2] != pids[1] == pids[3]
    assert without[0] == without[1]
    assert without[0] not in pids


@pytest.mark.wire
async def test_mirrored_arguments_need_no_headers_through_another_tool() -> None:
    async with Way("http", "2026-07-28").client(BEHAVIOURS, config=BOTH) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        schema = listed["does__mirrored"].input_schema
        arguments = dict.fromkeys(schema.get("required", schema["properties"]), "x")
        answer = await run(client, "does__mirrored", arguments=arguments)

    assert not answer.is_error, answer


async def test_serial_tools_wait_for_each_other_by_either_way() -> None:
    met: list[bool] = []

    async def call(client: Client, *, through: bool) -> None:
        arguments = {"seconds": 0.05}
        answer = await (
            run(client, "does__serial", arguments=arguments) if through else client.call_tool("does__serial", arguments)
        )
        met.append(data_of(answer))

    async with Way("memory", "legacy").client(BEHAVIOURS, config=BOTH) as client:
        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(partial(call, client, through=number % 2 == 0))

    assert met == [False] * 6
