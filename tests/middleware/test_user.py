"""Middleware of users: around every call, whatever its transport, era and tool, with nothing that it can break for others."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from mcp import Client
from mcp_types import CallToolResult

from tests.endpoints.tasks.asking import AT_ONCE, Tasks
from tests.plugins import guarded
from tests.upstreams.behind import MEMORY, PAIRS, gateway, hostile, lines, report, text_of
from tests.upstreams.servers.http_server import HttpServer, serving
from tests.ways import (
    BEHAVIOURS,
    BOTH,
    IN_MEMORY,
    QUICK_WAYS,
    STATELESS,
    TOOLPOST,
    WAYS,
    Way,
    plugin_of,
    server_environment,
)
from toolpost import CallRequest, CallResult, Forbidden, Middleware, Next, Plugin, UpstreamUnavailable
from toolpost.app import App, open_app, open_http
from toolpost.audit import AuditEntry, AuditFilter
from toolpost.contracts.digest import quick_digest
from toolpost.contracts.errors import BadConfiguration
from toolpost.settings import Config
from toolpost.settings.model import MiddlewareSettings
from toolpost.testing import data_of, error_of
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

BACKS = ["stdio", "http"]


@asynccontextmanager
async def behind(back: str, version: str = STATELESS, **options: Any) -> AsyncIterator[ServerSpec]:
    if back == "stdio":
        yield hostile(version=version, **options)
    else:
        async with serving(HttpServer(version=version)) as url:
            yield ServerSpec(name="up", url=url, **options)


@asynccontextmanager
async def served(
    *middleware: Middleware,
    way: Way = MEMORY,
    config: Config = IN_MEMORY,
    tools: Sequence[Plugin] = (),
    servers: Sequence[ServerSpec] = (),
) -> AsyncIterator[tuple[App, Client]]:
    """Serve the tools of `behaviours` and these, with the middleware around them."""
    plugins = [plugin_of(BEHAVIOURS), *tools, Plugin("around", middleware=middleware)]
    async with gateway(*servers, way=way, config=config, plugins=plugins) as opened:
        yield opened


async def entries(app: App) -> list[AuditEntry]:
    return [record.entry for record in await app.store.audit.entries(AuditFilter(), limit=100)]


def logged(caplog: pytest.LogCaptureFixture) -> str:
    return " ".join(str(getattr(record, "fields", "")) for record in caplog.records)


def text(answer: CallToolResult) -> Any:
    return data_of(answer) if answer.structured_content else text_of(answer)


# -- every way of a call -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_a_functions_arguments_are_changed_and_refused(way: Way) -> None:
    async with way.client(BEHAVIOURS, "tests.plugins.guarded:plugin") as client:
        assert data_of(await client.call_tool("does__echo", {"text": "hello"})) == "HELLO"
        assert error_of(await client.call_tool("does__echo", {"text": "forbidden"}))["code"] == "FORBIDDEN"


@pytest.mark.parametrize("back", BACKS)
@pytest.mark.parametrize(("way", "version"), PAIRS, ids=str)
async def test_a_servers_arguments_are_changed_and_refused(way: Way, version: str, back: str) -> None:
    async with behind(back, version) as spec, served(guarded.shout, way=way, servers=[spec]) as (_, client):
        for _ in range(3):
            assert text_of(await client.call_tool("up__echo", {"text": "hello"})) == "HELLO"
        assert error_of(await client.call_tool("up__echo", {"text": "forbidden"}))["code"] == "FORBIDDEN"


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_call_through_automatic_eval_is_the_call_of_its_tool(way: Way) -> None:
    seen: list[CallRequest] = []

    async def watch(call: CallRequest, proceed: Next) -> CallResult:
        seen.append(call)
        return await proceed(call)

    async with served(watch, guarded.shout, way=way, config=BOTH, servers=[hostile()]) as (_, client):
        for tool in ("does__echo", "up__echo"):
            answer = await client.call_tool("automatic_eval", {"toolName": tool, "arguments": {"text": "hello"}})
            assert text(answer) == "HELLO"
        await client.call_tool("automatic_mcp", {"query": "echo"})
    assert [(call.tool, call.provider, call.via) for call in seen[:2]] == [
        ("does__echo", "does", "automatic_eval"),
        ("up__echo", "up", "automatic_eval"),
    ]
    assert seen[2].tool == "automatic_mcp"


@pytest.mark.parametrize("tool", ["does__echo", "up__echo"])
async def test_a_task_passes_it_too(tool: str) -> None:
    async with served(guarded.shout, config=AT_ONCE, servers=[hostile()]) as (app, _):
        async with open_http(app) as url, Client(url, mode=STATELESS, extensions=[tasks := Tasks()]) as client:
            assert text(await client.call_tool(tool, {"text": "hello"})) == "HELLO"
            refused = await client.call_tool(tool, {"text": "forbidden"})
            assert error_of(refused)["code"] == "FORBIDDEN"
        assert len(tasks.handles) == 2
        assert [(e.outcome, e.code) for e in await entries(app)] == [("ok", None), ("refused", "FORBIDDEN")]


# -- what it may do ----------------------------------------------------------------------------------------------------------


async def test_it_is_told_whose_call_of_what_it_is() -> None:
    seen: list[CallRequest] = []

    async def watch(call: CallRequest, proceed: Next) -> CallResult:
        seen.append(call)
        return await proceed(call)

    async with served(watch, servers=[hostile()]) as (app, client):
        await client.call_tool("does__echo", {"text": "a"})
        await client.call_tool("up__echo", {"text": "b"})
        recorded = await entries(app)
    assert [(c.tool, c.provider, c.arguments, c.via) for c in seen] == [
        ("does__echo", "does", {"text": "a"}, None),
        ("up__echo", "up", {"text": "b"}, None),
    ]
    assert {call.caller.transport for call in seen} == {"memory"}
    assert [(c.id, c.trace_id) for c in seen] == [(e.call_id, e.trace_id) for e in recorded]


@pytest.mark.parametrize("tool", ["does__echo", "up__echo"])
@pytest.mark.parametrize("in_place", [False, True])
async def test_the_audit_has_the_arguments_that_were_really_used(tool: str, in_place: bool) -> None:
    async def change(call: CallRequest, proceed: Next) -> CallResult:
        if in_place:
            call.arguments["text"] = "changed"
            return await proceed(call)
        return await proceed(call.with_arguments({"text": "changed"}))

    async with served(change, servers=[hostile()]) as (app, client):
        assert text(await client.call_tool(tool, {"text": "sent"})) == "changed"
        assert [entry.arguments for entry in await entries(app)] == [quick_digest({"text": "changed"})]


@pytest.mark.parametrize("changed", [{"text": 7}, {}, {"text": "x", "more": 1}, {"text": object()}, "text"])
async def test_changed_arguments_are_validated(changed: Any) -> None:
    async def spoil(call: CallRequest, proceed: Next) -> CallResult:
        return await proceed(call.with_arguments(changed))

    async with served(spoil) as (app, client):
        assert error_of(await client.call_tool("does__echo", {"text": "fine"}))["code"] == "INVALID_PARAMS"
        assert [(e.outcome, e.code) for e in await entries(app)] == [("refused", "INVALID_PARAMS")]


async def test_it_may_repair_what_a_client_sent() -> None:
    async def repair(call: CallRequest, proceed: Next) -> CallResult:
        return await proceed(call.with_arguments({"text": str(call.arguments.get("text", ""))}))

    async with served(repair) as (_, client):
        assert data_of(await client.call_tool("does__echo", {"text": 7})) == "7"


async def test_it_sees_the_errors_of_a_call_and_may_try_again() -> None:
    attempts: list[str] = []

    async def retry(call: CallRequest, proceed: Next) -> CallResult:
        try:
            return await proceed(call)
        except UpstreamUnavailable as error:
            attempts.append(error.code)
            return await proceed(call.with_arguments({"text": "again"}))

    async def fail_once(call: CallRequest, proceed: Next) -> CallResult:
        if not attempts:
            raise UpstreamUnavailable("It is away.")
        return await proceed(call)

    async with served(retry, fail_once, servers=[hostile()]) as (app, client):
        assert text_of(await client.call_tool("up__echo", {"text": "first"})) == "again"
        recorded = await entries(app)
    assert attempts == ["UPSTREAM_UNAVAILABLE"]
    assert [(e.outcome, e.arguments) for e in recorded] == [("ok", quick_digest({"text": "again"}))]


@pytest.mark.parametrize("back", BACKS)
async def test_a_refused_call_never_reaches_its_server(back: str, tmp_path: Path) -> None:
    asked: list[Any] = []

    async def refuse(call: CallRequest, _proceed: Next) -> CallResult:
        asked.append(call.arguments)
        raise Forbidden(f"{call.caller.id} may not.", hint="ask somebody", why="test")

    async with behind(back) if back == "http" else behind(back, log=tmp_path / "log") as spec:
        async with served(refuse, servers=[spec]) as (app, client):
            told = error_of(await client.call_tool("up__echo", {"text": "secret"}))
            assert (told["code"], told["hint"], told["details"]) == ("FORBIDDEN", "ask somebody", {"why": "test"})
            assert [(e.outcome, e.code) for e in await entries(app)] == [("refused", "FORBIDDEN")]
    assert asked == [{"text": "secret"}]
    assert not [line for line in lines(tmp_path / "log") if "secret" in line or "tools/call" in line]


async def test_it_answers_itself() -> None:
    ran: list[str] = []
    counting = Plugin("counting")

    @counting.tool
    async def add(a: int, b: int) -> int:
        """Add."""
        ran.append("add")
        return a + b

    async def answer(call: CallRequest, proceed: Next) -> CallResult:
        if call.tool == "counting__add":
            return CallResult(data=42, content=[{"type": "text", "text": "beside"}])
        if call.tool == "up__lie":
            return CallResult(data={"n": 7})
        return CallResult("plain") if call.tool == "up__echo" else await proceed(call)

    for way in (MEMORY, Way("http", "legacy")):
        async with served(answer, way=way, tools=[counting], servers=[hostile()]) as (app, client):
            added = await client.call_tool("counting__add", {"a": 1, "b": 1})
            assert data_of(added) == 42
            assert [getattr(block, "text", "") for block in added.content][1:] == ["beside"]
            lied = await client.call_tool("up__lie", {})
            assert (lied.structured_content, text_of(lied)) == ({"n": 7}, '{"n":7}')
            assert text_of(await client.call_tool("up__echo", {"text": "x"})) == "plain"
            assert [e.outcome for e in await entries(app)] == ["ok"] * 3
    assert ran == []


@pytest.mark.parametrize(
    ("tool", "made"),
    [("does__echo", CallResult(7)), ("up__lie", CallResult({"n": "seven"})), ("up__lie", CallResult(None))],
)
async def test_an_answer_of_its_own_that_breaks_the_output_schema_is_refused(tool: str, made: CallResult) -> None:
    async def answer(_call: CallRequest, _proceed: Next) -> CallResult:
        return made

    async with served(answer, servers=[hostile(results="off")]) as (app, client):
        arguments = {"text": "x"} if tool == "does__echo" else {}
        assert error_of(await client.call_tool(tool, arguments))["code"] == "OUTPUT_VALIDATION_FAILED"
        assert [e.code for e in await entries(app)] == ["OUTPUT_VALIDATION_FAILED"]


@pytest.mark.parametrize("tool", ["does__echo", "up__echo"])
@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_result_is_inspected_and_passed_on_unchanged(way: Way, tool: str) -> None:
    seen: list[tuple[Any, list[Any], bool]] = []

    async def inspect(call: CallRequest, proceed: Next) -> CallResult:
        result = await proceed(call)
        seen.append((result.data, list(result.content), result.is_error))
        return result

    answers = []
    for middleware in ((), (inspect,)):
        async with served(*middleware, way=way, servers=[hostile()]) as (_, client):
            answer = await client.call_tool(tool, {"text": "same"})
            answers.append(answer.model_dump(exclude={"meta": True}))
    assert answers[0] == answers[1]
    if tool == "does__echo":
        assert seen == [("same", [], False)]
    else:
        assert seen == [(None, [{"type": "text", "text": "same"}], False)]


async def test_a_result_is_changed() -> None:
    async def redact(call: CallRequest, proceed: Next) -> CallResult:
        result = await proceed(call)
        if call.tool == "up__echo":
            return result.replace(content=[{"type": "text", "text": "(redacted)"}])
        return result.replace(data="(redacted)")

    telling = Plugin("telling")

    @telling.tool
    async def name() -> str:
        """Tell a secret."""
        return "secret"

    async with served(redact, tools=[telling], servers=[hostile()]) as (_, client):
        assert "secret" not in str(await client.call_tool("telling__name", {}))
        assert text_of(await client.call_tool("up__echo", {"text": "secret"})) == "(redacted)"


async def test_other_data_of_a_servers_result_are_not_betrayed_by_its_text() -> None:
    async def hide(call: CallRequest, proceed: Next) -> CallResult:
        return (await proceed(call)).replace(data={"n": 0})

    # What this server's tool answers breaks its own schema: `off` lets it through to the middleware.
    async with served(hide, servers=[hostile(results="off")]) as (_, client):
        answer = await client.call_tool("up__lie", {})
        assert answer.structured_content == {"n": 0}
        assert [getattr(block, "text", "") for block in answer.content] == ['{"n":0}']


async def test_a_result_may_be_kept_for_later_calls() -> None:
    kept: dict[str, CallResult] = {}

    async def cache(call: CallRequest, proceed: Next) -> CallResult:
        if call.tool not in kept:
            kept[call.tool] = await proceed(call)
        return kept[call.tool]

    async with served(cache, servers=[hostile()]) as (_, client):
        for tool in ("does__echo", "up__echo"):
            first, second = [await client.call_tool(tool, {"text": word}) for word in ("first", "second")]
            assert text(first) == text(second) == "first"
            assert first.meta != second.meta  # each has its own call id


# -- what it cannot break ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["does__echo", "up__echo"])
@pytest.mark.parametrize(
    "raised",
    [
        RuntimeError("private"),
        KeyError("private"),
        SystemExit(3),
        asyncio.CancelledError(),
        ExceptionGroup("several", [OSError("private")]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_it_raises_is_one_answer(
    raised: BaseException, tool: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(call: CallRequest, proceed: Next) -> CallResult:
        if call.arguments["text"] == "before":
            raise raised
        result = await proceed(call)
        if call.arguments["text"] == "after":
            raise raised
        return result

    async with served(fail, servers=[hostile()]) as (app, client):
        for moment in ("before", "after"):
            with caplog.at_level(logging.ERROR):
                told = error_of(await client.call_tool(tool, {"text": moment}))
            assert told["code"] == "INTERNAL"
            assert "private" not in str(told)
            assert "around:fail" in logged(caplog)
        assert text(await client.call_tool(tool, {"text": "fine"})) == "fine"
        assert [(e.outcome, e.code) for e in await entries(app)] == [("error", "INTERNAL")] * 2 + [("ok", None)]


@pytest.mark.parametrize("returned", [None, {"data": 1}, "text"])
async def test_what_is_no_result_is_one_answer(returned: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def forget(_call: CallRequest, _proceed: Next) -> CallResult:
        return returned  # type: ignore[no-any-return]

    async with served(forget) as (_, client):
        assert error_of(await client.call_tool("does__echo", {"text": "x"}))["code"] == "INTERNAL"
    assert "around:forget" in logged(caplog)


async def test_results_that_are_not_json_are_one_answer() -> None:
    async def odd(_call: CallRequest, _proceed: Next) -> CallResult:
        return CallResult(object())

    async with served(odd, servers=[hostile()]) as (_, client):
        for tool in ("does__echo", "up__echo"):
            assert error_of(await client.call_tool(tool, {"text": "x"}))["code"] == "INTERNAL"


@pytest.mark.parametrize("moment", ["before", "after", "deaf"])
@pytest.mark.parametrize("tool", ["does__echo", "up__echo"])
async def test_one_that_hangs_is_ended_at_the_deadline(tool: str, moment: str) -> None:
    async def hang(call: CallRequest, proceed: Next) -> CallResult:
        result = await proceed(call) if moment == "after" else None
        try:
            await anyio.sleep(20)
        except asyncio.CancelledError:
            if moment != "deaf":
                raise
            await asyncio.sleep(20)  # the cancellation is swallowed, and comes again
        assert result is not None
        return result

    limit_s = 1.5 if moment == "after" else 0.3  # the server's answer is in it
    config = msgspec.structs.replace(IN_MEMORY, limits=msgspec.structs.replace(IN_MEMORY.limits, timeout_s=limit_s))
    async with served(hang, config=config, servers=[hostile()]) as (app, client):
        with anyio.fail_after(20):
            told = error_of(await client.call_tool(tool, {"text": "x"}))
        assert told["code"] == "TOOL_TIMEOUT"
        assert "around:hang" in told["hint"]
        assert [e.code for e in await entries(app)] == ["TOOL_TIMEOUT"]
        # The server is not to blame for it.
        assert report(app).last_error is None


async def test_a_call_that_waits_in_it_is_cancelled_with_its_client() -> None:
    started, ended = anyio.Event(), anyio.Event()

    async def hang(_call: CallRequest, _proceed: Next) -> CallResult:
        started.set()
        try:
            await anyio.sleep(20)
        finally:
            ended.set()
        raise AssertionError

    async with served(hang, servers=[hostile()]) as (app, client):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "up__echo", {"text": "x"})
            await started.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(20):
            await ended.wait()
            while not await entries(app):
                await anyio.sleep(0.01)
        assert [e.outcome for e in await entries(app)] == ["cancelled"]


# -- where it comes from -----------------------------------------------------------------------------------------------------


def named(*references: str) -> Config:
    return msgspec.structs.replace(IN_MEMORY, middleware=MiddlewareSettings(load=list(references)))


@pytest.mark.parametrize(
    ("load", "plugins", "expected"),
    [
        (["shout", "exclaim"], [], "HELLO, hey"),
        (["exclaim", "shout"], [], "HELLO, HEY"),
        (["exclaim"], ["shout"], "HELLO, HEY"),
        (["shout"], ["exclaim"], "HELLO, hey"),
        ([], ["exclaim", "shout"], "HELLO, HEY"),
    ],
)
async def test_the_configurations_is_outside_and_the_first_outermost(
    load: list[str], plugins: list[str], expected: str
) -> None:
    bringing = [Plugin(name, middleware=[getattr(guarded, name)]) for name in plugins]
    config = named(*(f"tests.plugins.guarded:{name}" for name in load))
    async with gateway(config=config, plugins=[plugin_of(BEHAVIOURS), *bringing]) as (_, client):
        assert data_of(await client.call_tool("does__echo", {"text": "hello"})) == expected


async def test_a_decorator_adds_it_too() -> None:
    plugin = Plugin("decorated")
    assert plugin.middleware(guarded.shout) is guarded.shout
    async with gateway(plugins=[plugin_of(BEHAVIOURS), plugin]) as (_, client):
        assert data_of(await client.call_tool("does__echo", {"text": "hello"})) == "HELLO"


@pytest.mark.parametrize(
    "reference", ["tests.plugins.none:at_all", "tests.plugins.guarded:nothing", "tests.plugins.guarded:plugin"]
)
async def test_nothing_is_served_without_a_middleware_that_is_configured(reference: str) -> None:
    with pytest.raises(BadConfiguration, match=r"middleware\.load"):
        async with open_app(named(reference), bundled=False):
            pass


@pytest.mark.parametrize("function", [guarded.sync, guarded.alone, 7])
async def test_what_is_no_middleware_is_refused(function: Any) -> None:
    if callable(function):
        with pytest.raises(BadConfiguration, match=r"middleware\.load"):
            async with open_app(named(f"tests.plugins.guarded:{function.__name__}"), bundled=False):
                pass
    async with open_app(IN_MEMORY, plugins=[Plugin("odd", middleware=[function])], bundled=False) as app:
        assert [plugin.state for plugin in app.plugins.plugins] == ["failed"]


async def test_one_that_fails_to_load_stops_serve(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text('[middleware]\nload = ["nowhere:found"]\n')
    done = await anyio.run_process(
        [TOOLPOST, "serve", "--stdio"], cwd=tmp_path, env=server_environment(), check=False, input=b""
    )
    assert done.returncode != 0
    assert b"middleware.load" in done.stderr
