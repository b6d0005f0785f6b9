"""Schemas of hostile servers: a kilobyte that takes a validator an hour must not take the event loop a moment."""

import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest
from mcp import Client
from mcp_types import CallToolResult

from tests.hostile.attacks import attack, loop_cpu_s, slowness
from tests.hostile.schemas import RECURSIVE, REFUSED, SLOW, SLOW_VALUES, deep, holding
from tests.upstreams.behind import ONE_OF_EACH, gateway
from tests.waiting import until
from tests.ways import IN_MEMORY, Way
from toolpost.app import App
from toolpost.cli.call.schemas import describe_type, properties_of
from toolpost.contracts import Definition, Judgement, judge
from toolpost.contracts.lockfile import LockedTool, drifts, lock_text, parse_lock
from toolpost.discovery.search.document import ToolDocument, fields_of
from toolpost.settings.model import StoreSettings
from toolpost.upstreams.spec import ServerSpec

SERVER = Path(__file__).parent / "servers" / "definitions.py"
ANY: dict[str, Any] = {"type": "object"}
LIMIT_S = 1.5

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


def tool(name: str, takes: Any = None, gives: Any = None) -> dict[str, Any]:
    listed = {"name": name, "inputSchema": takes or ANY}
    return listed if gives is None else listed | {"outputSchema": gives}


def spec(tmp_path: Path, name: str, tools: list[dict[str, Any]], results: Any = None, **options: Any) -> ServerSpec:
    file = tmp_path / f"{name}.json"
    file.write_text(json.dumps({"tools": tools, "results": results or {}}))
    return ServerSpec(name=name, command=(sys.executable, "-S", "-E", str(SERVER), str(file)), **options)


def code_of(answer: CallToolResult) -> str:
    assert answer.is_error
    return str((answer.meta or {})["dev.toolpost/meta"]["code"])


def validating() -> list[psutil.Process]:
    children = psutil.Process().children(recursive=True)
    return [
        child for child in children if child.is_running() and "toolpost.upstreams.validation.process" in _line(child)
    ]


def _line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@asynccontextmanager
async def free_loop(client: Client, *, limit_s: float = 5.0) -> AsyncIterator[None]:
    """Assert that meanwhile the loop does not validate, which takes it minutes, and that a call of another server is answered."""
    answered = 0

    async def call() -> None:
        nonlocal answered
        while True:
            # First: a call that is sent before the slow one says nothing.
            await anyio.sleep(0.1)
            assert not (await client.call_tool("good__plain", {})).is_error
            answered += 1

    before = loop_cpu_s(os.getpid())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        yield
        tasks.cancel_scope.cancel()
    assert loop_cpu_s(os.getpid()) - before < limit_s * slowness()
    assert answered >= 1


@attack(
    "server",
    "lists tools whose schemas multiply their own paths: `$ref` chains, branches, recursion in place, huge patterns",
    "each such tool is refused with its place and a reason; the server's other tools are served",
)
async def test_schemas_that_multiply_are_refused_and_the_server_serves_on(tmp_path: Path) -> None:
    tools = [tool(f"takes-{name}", takes=schema) for name, schema in REFUSED.items()]
    tools += [tool(f"gives-{name}", gives=schema) for name, schema in REFUSED.items()]
    before = time.thread_time()

    async with gateway(spec(tmp_path, "good", [*tools, tool("plain")])) as (app, client):
        listed = await client.list_tools()
        answer = await client.call_tool("good__plain", {})
        refused = {refusal.details["tool"]: refusal for refusal in app.servers.providers["good"].refused}

    assert [found.name for found in listed.tools] == ["good__plain"]
    assert not answer.is_error
    assert refused.keys() == {found["name"] for found in tools}
    assert all(refusal.details["place"] and refusal.details["reason"] for refusal in refused.values())
    assert "apply over 2,000 schemas" in refused["takes-ref-doubling"].message
    assert "leads back to itself" in refused["gives-itself"].message
    assert time.thread_time() - before < 10.0 * slowness()


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[tuple[App, Client]]:
    tools = [tool(f"takes-{name}", takes=schema) for name, schema in SLOW.items()]
    tools += [tool(f"gives-{name}", gives=schema) for name, schema in SLOW.items()]
    results = {f"gives-{name}": value for name, value in SLOW_VALUES.items()}
    bad = spec(tmp_path, "bad", tools, results, timeout_s=LIMIT_S)
    async with gateway(bad, spec(tmp_path, "good", [tool("plain")])) as opened:
        yield opened


@attack(
    "caller",
    "sends a megabyte of arguments to a tool whose schema takes minutes to hold them to",
    "the call ends with TOOL_TIMEOUT at its deadline, the process that validated is gone, other calls are answered meanwhile",
)
@pytest.mark.parametrize("name", SLOW)
async def test_arguments_that_take_minutes_to_validate_end_at_the_deadline(slow: tuple[App, Client], name: str) -> None:
    _, client = slow

    async with free_loop(client):
        answer = await client.call_tool(f"bad__takes-{name}", SLOW_VALUES[name])

    assert code_of(answer) == "TOOL_TIMEOUT"
    await until(lambda: not validating())


@attack(
    "server",
    "returns a valid result that its own output schema takes minutes to hold it to",
    "the call ends with TOOL_TIMEOUT at its deadline, the process that validated is gone, other calls are answered meanwhile",
)
@pytest.mark.parametrize("name", SLOW)
async def test_results_that_take_minutes_to_validate_end_at_the_deadline(slow: tuple[App, Client], name: str) -> None:
    _, client = slow

    async with free_loop(client):
        answer = await client.call_tool(f"bad__gives-{name}", {})

    assert code_of(answer) == "TOOL_TIMEOUT"
    await until(lambda: not validating())


@attack(
    "caller",
    "sends a deep value to a recursive schema, so that the explanation of the error never ends",
    "the call is refused with INVALID_PARAMS, unexplained after two seconds; other calls are answered meanwhile",
)
async def test_a_refusal_that_cannot_be_explained_in_time_is_a_plain_refusal(tmp_path: Path) -> None:
    bad = spec(tmp_path, "bad", [tool("takes", takes=RECURSIVE["twice-at-each-level"])])
    async with gateway(bad, spec(tmp_path, "good", [tool("plain")])) as (_, client):
        async with free_loop(client):
            answer = await client.call_tool("bad__takes", deep(40))

    assert code_of(answer) == "INVALID_PARAMS"
    assert "breaks the schema" in str(answer.content)


@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_schemas_without_a_bound_take_and_refuse_what_they_should(way: Way, tmp_path: Path) -> None:
    recursive = RECURSIVE["unevaluated-at-each-level"]
    tools = [tool("takes", takes=recursive), tool("gives", gives=recursive), tool("lies", gives=recursive)]
    results: dict[str, Any] = {"gives": {"a": {"c": {"c": {}}}}, "lies": {"a": {"c": {"d": {}}}}}

    async with gateway(spec(tmp_path, "up", tools, results), way=way) as (_, client):
        taken = await client.call_tool("up__takes", {"a": {"c": {"c": {}}}})
        refused = await client.call_tool("up__takes", {"a": {"c": {"d": {}}}})
        given = await client.call_tool("up__gives", {})
        lied = await client.call_tool("up__lies", {})
        count = len(validating())

    assert not taken.is_error
    assert code_of(refused) == "INVALID_PARAMS"
    assert "`d` is not a known property" in str(refused.content)
    assert given.structured_content == results["gives"]
    assert code_of(lied) == "OUTPUT_VALIDATION_FAILED"
    assert count == 1
    assert not validating()


@attack(
    "server",
    "lists megabytes of definitions at once",
    "they are compiled beside the event loop, which goes on answering",
)
async def test_large_definitions_are_compiled_beside_the_loop(tmp_path: Path) -> None:
    large = {
        "type": "object",
        "properties": {f"p{n}": {"anyOf": [{"type": "string"}, {"$ref": "#"}]} for n in range(800)},
    }
    tools = [tool(f"t{n}", takes=large) for n in range(6)]
    before, all_before = time.thread_time(), time.process_time()

    async with gateway(spec(tmp_path, "up", [*tools, tool("plain")])) as (app, _):
        await until(lambda: len(app.servers.providers["up"].tools) == len(tools) + 1)
        on_loop, everywhere = time.thread_time() - before, time.process_time() - all_before

    assert on_loop < 0.7 * everywhere


ALL = REFUSED | SLOW | RECURSIVE


def changed(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        **schema,
        "properties": {**schema.get("properties", {}), "another": {"type": "string"}},
        "required": ["another"],
    }


@attack(
    "repository",
    "brings a lock file whose definitions multiply their own paths, for `toolpost check`, `diff` and `lock` to compare",
    "each change is reported with its verdict, or as undecided, within the budget of a comparison",
)
@pytest.mark.parametrize("name", ALL)
def test_hostile_schemas_are_compared_in_time(name: str) -> None:
    raw = ALL[name]
    old = Definition(name="t", input_schema=raw, output_schema=raw)
    new = Definition(name="t", input_schema=changed(raw), output_schema=changed(raw))
    locked = parse_lock(lock_text({"t": LockedTool.of("s", old)}), name="toolpost.lock")
    live = {"t": LockedTool.of("s", new)}
    started = time.thread_time()

    [drift] = drifts(locked, live, judge=judge)

    assert time.thread_time() - started < 10.0 * slowness()
    assert drift.judgement.changes
    assert drift.verdict != "compatible"


@attack(
    "server",
    "lists infinite schemas, for searches of tools and displays of their arguments",
    "only texts of the first levels are indexed, and displayed types are cut",
)
@pytest.mark.parametrize("name", ALL)
def test_hostile_schemas_are_searched_and_shown_in_time(name: str) -> None:
    raw = ALL[name]
    started = time.thread_time()

    fields_of(ToolDocument(name="t", input_schema=raw))
    for argument in list(properties_of(raw, raw).values())[:10]:
        describe_type(argument, raw)

    assert time.thread_time() - started < 5.0 * slowness()


def test_the_type_of_arrays_without_end_is_shown() -> None:
    raw = {"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}

    assert describe_type({"$ref": "#/$defs/t"}, raw).startswith("array of array of")


@attack(
    "server",
    "changes a tool to a schema whose values are too large to be made: 200 required properties in each of 200, twelve deep",
    "the change is judged within its budget, without an example",
)
def test_values_without_end_are_not_made() -> None:
    names = [f"p{n}" for n in range(150)]
    again = {"$ref": "#/$defs/t"}
    endless = holding(again, t={"type": ["object", "null"], "required": names, "additionalProperties": again})
    old = Definition(name="t", input_schema=endless | {"required": ["a"]})
    new = Definition(name="t", input_schema=changed(endless))
    started = time.thread_time()

    judgement = judge(old, new)

    assert time.thread_time() - started < 10.0 * slowness()
    assert judgement.verdict != "compatible"


def conditions(count: int) -> dict[str, Any]:
    """Return a schema of few paths, whose conditions multiply when it is compared: each way of each with all others."""

    def ways(n: int) -> list[Any]:
        return [{"required": [f"k{n}{way}"], "properties": {f"k{n}{way}": {"minimum": way}}} for way in range(3)]

    return {"type": "object", "allOf": [{"anyOf": ways(n)} for n in range(count)]}


@attack(
    "server",
    "changes a tool from one schema that is slow to compare to another",
    "the change is judged in a process of its own; the event loop has hardly anything to do with it",
)
async def test_a_change_that_is_slow_to_judge_holds_up_nobody(tmp_path: Path) -> None:
    old, new = tool("t", takes=conditions(5)), tool("t", takes=conditions(5) | {"minProperties": 1})
    config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=f"sqlite:{tmp_path / 'store.db'}"))
    async with gateway(spec(tmp_path, "bad", [old]), config=config):
        pass

    bad, good = spec(tmp_path, "bad", [new]), spec(tmp_path, "good", [tool("plain")])
    before = loop_cpu_s(os.getpid())
    async with gateway(bad, good, config=config) as (app, client):
        await app.servers.providers["bad"].supervisor.ensure_ready()
        await until(lambda: _judgement(app) is not None)
        assert not (await client.call_tool("good__plain", {})).is_error
        judgement, elsewhere = _judgement(app), len(validating())

    assert judgement is not None
    assert elsewhere == 1
    assert judgement.changes
    assert loop_cpu_s(os.getpid()) - before < 5.0 * slowness()


def _judgement(app: App) -> Judgement | None:
    standings = app.servers.providers["bad"].statuses.values()
    return next((standing.judgement for standing in standings), None)
