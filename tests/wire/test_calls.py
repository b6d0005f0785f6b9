"""A call ends: with its result, its error, its deadline, its cancellation, or a full queue. Exactly once."""

import time
from functools import partial
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from tests.hostile.attacks import attack
from tests.plugins import behaviours
from tests.waiting import until
from tests.ways import BEHAVIOURS, IN_MEMORY, QUICK_WAYS, WAYS, Way, limited, plugin_of
from toolpost.app import open_app
from toolpost.testing import data_of, error_of

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_errors_say_who_can_mend_them(way: Way) -> None:
    async with way.client(BEHAVIOURS) as client:
        answers = {
            name: await client.call_tool(f"does__{name}", {})
            for name in ("explode", "missing", "incapable", "not_json", "late", "nothing")
        }
        late = await client.call_tool("does__late", {"seconds": 5})
        stuck = await client.call_tool("does__block", {"seconds": 1})
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("does__ehco", {})

    assert error_of(answers["explode"]) == {
        "code": "HANDLER_ERROR",
        "message": "boom",
        "details": {"exception": "RuntimeError"},
    }
    assert error_of(answers["missing"]) == {
        "code": "NOT_FOUND",
        "message": "There is no such thread.",
        "hint": "list them first",
        "details": {"thread": "t1"},
    }
    assert error_of(answers["incapable"])["code"] == "CAPABILITY_MISSING"
    assert error_of(answers["not_json"])["code"] == "HANDLER_ERROR"
    assert error_of(answers["late"])["code"] == "INVALID_PARAMS"
    assert data_of(answers["nothing"]) == "0 arguments"
    for answer in (late, stuck):
        error = error_of(answer)
        assert (error["code"], error["timeoutMs"]) == ("TOOL_TIMEOUT", 300)
    assert unknown.value.code == -32602
    assert unknown.value.data["code"] == "INVALID_REQUEST"
    assert unknown.value.data["details"]["nearest"][0] == "does__echo"


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_blocked_thread_blocks_nobody_else(way: Way) -> None:
    async with way.client(BEHAVIOURS) as client:
        answers: list[Any] = []
        seconds = 10 + WAYS.index(way) / 100  # threads of the test before may still be blocked

        async def block() -> None:
            answers.append(error_of(await client.call_tool("does__block", {"seconds": seconds}))["code"])

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(block)
            await until(lambda: behaviours.BLOCKED.count(seconds) == 5)
            echoed = data_of(await client.call_tool("does__echo", {"text": "hello"}))
            still_blocked = behaviours.BLOCKED.count(seconds)

    assert echoed == "hello"
    assert still_blocked == 5, "the loop was blocked"
    assert answers == ["TOOL_TIMEOUT"] * 5


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_serial_calls_never_meet_and_keep_their_order(way: Way) -> None:
    async with open_app(IN_MEMORY, plugins=[plugin_of(BEHAVIOURS)], bundled=False) as app, way.client_of(app) as client:
        met: list[bool] = []

        def is_here(number: int) -> bool:
            return app.gateway.in_flight + len(met) > number

        async def call(name: str) -> None:
            met.append(data_of(await client.call_tool("does__serial", {"seconds": 0.05, "name": name})))

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(call, str(number))
                # Requests over HTTP may overtake each other: the next one is sent when this one is here.
                await until(partial(is_here, number))

    assert met == [False] * 6
    assert behaviours.STARTED == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_keyed_calls_meet_only_under_other_keys(way: Way) -> None:
    async with way.client(BEHAVIOURS) as client:
        seen: list[Any] = []

        async def call(repo: str) -> None:
            seen.append(data_of(await client.call_tool("does__keyed", {"repo": repo, "seconds": 0.05})))

        async with anyio.create_task_group() as tasks:
            for repo in ("a", "b", "a", "b", "c"):
                tasks.start_soon(call, repo)

    assert not any(answer["met"] for answer in seen)
    assert max(answer["sideBySide"] for answer in seen) == 3


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_full_queue_says_so_at_once(way: Way) -> None:
    async with way.client(BEHAVIOURS, config=limited(waiting=2)) as client:
        codes: list[str] = []

        async def call() -> None:
            answer = await client.call_tool("does__serial", {"seconds": 0.8})
            codes.append(error_of(answer)["code"] if answer.is_error else "ok")

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(call)

    assert sorted(codes) == ["QUEUE_OVERLOADED", "QUEUE_OVERLOADED", "ok", "ok", "ok"]
    assert codes[:2] == ["QUEUE_OVERLOADED", "QUEUE_OVERLOADED"]


@attack(
    "caller",
    "starts more calls than may be in flight",
    "those beyond the limit are refused at once with a retry time",
)
@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_too_many_calls_in_flight_are_refused(way: Way) -> None:
    async with way.client(BEHAVIOURS, config=limited(calls=3)) as client:
        codes: list[str] = []

        async def call() -> None:
            answer = await client.call_tool("does__sleep", {"seconds": 1.5})
            codes.append(error_of(answer)["code"] if answer.is_error else "ok")

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(call)
        after = await client.call_tool("does__echo", {"text": "x"})

    assert sorted(codes) == ["QUEUE_OVERLOADED", "QUEUE_OVERLOADED", "ok", "ok", "ok"]
    assert data_of(after) == "x"


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_waiting_counts_against_the_deadline(way: Way) -> None:
    async with way.client(BEHAVIOURS) as client:
        codes: list[str] = []

        async def call() -> None:
            answer = await client.call_tool("does__serial_short", {"seconds": 1.4})
            codes.append(error_of(answer)["code"] if answer.is_error else "ok")

        started = time.monotonic()
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(call)
        took_s = time.monotonic() - started

    assert sorted(codes) == ["TOOL_TIMEOUT", "TOOL_TIMEOUT", "TOOL_TIMEOUT", "ok"]
    # The codes are the proof; this only says that nothing hung.
    assert took_s < 30, "each waited for the one before"


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_cancelled_queued_call_never_runs(way: Way) -> None:
    async with way.client(BEHAVIOURS) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "does__serial", {"seconds": 2, "name": "first"})
            await until(lambda: behaviours.STARTED == ["first"])
            with anyio.move_on_after(0.3):
                await client.call_tool("does__serial", {"name": "cancelled"})
        await client.call_tool("does__serial", {"name": "last"})

    assert behaviours.STARTED == ["first", "last"]


@pytest.mark.parametrize("way", [way for way in WAYS if way.transport == "stdio"], ids=str)
async def test_careless_output_does_not_break_the_protocol(way: Way) -> None:
    async with way.client(BEHAVIOURS) as client:
        answer = await client.call_tool("does__noisy", {})
        after = await client.call_tool("does__echo", {"text": "still here"})

    assert data_of(answer) == ""
    assert data_of(after) == "still here"


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_unknown_and_reserved_arguments_are_refused(way: Way) -> None:
    async with way.client(BEHAVIOURS) as client:
        unknown = await client.call_tool("does__search", {"query": "x", "tpo": 3})
        reserved = await client.call_tool("does__search", {"query": "x", "cursor": "c"})
        none_taken = await client.call_tool("does__nothing", {"anything": 1})
        enum = await client.call_tool("does__search", {"query": "x", "mode": "Code", "top": "3"})

    issue = error_of(unknown)["details"]["issues"][0]
    assert (issue["path"], issue["suggestion"]) == ("/tpo", "did you mean `top`?")
    assert error_of(reserved)["details"]["issues"][0]["keyword"] == "x-reserved"
    assert error_of(none_taken)["details"]["issues"][0]["path"] == "/anything"
    suggestions = {issue["path"]: issue["suggestion"] for issue in error_of(enum)["details"]["issues"]}
    assert "code" in suggestions["/mode"]
    assert "3" in suggestions["/top"]
    assert "inputSchema" in error_of(enum)["details"]


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_what_json_cannot_carry_still_gets_an_answer(way: Way) -> None:
    async def ignore(progress: float, total: float | None, message: str | None) -> None:
        return None

    async with way.client(BEHAVIOURS) as client:
        answers = {
            kind: await client.call_tool("does__awkward", {"kind": kind}, progress_callback=ignore)
            for kind in ("error", "surrogate", "deep")
        }
        number = await client.call_tool("does__awkward", {"kind": "number"})

    assert error_of(answers["error"])["code"] == "NOT_FOUND"
    assert error_of(answers["surrogate"])["code"] == "HANDLER_ERROR"
    assert error_of(answers["deep"])["code"] == "HANDLER_ERROR"
    assert data_of(number) == {"n": None}


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_call_that_cannot_be_recorded_is_not_answered_as_if_it_were(way: Way, monkeypatch: Any) -> None:
    async with way.client(BEHAVIOURS) as client:
        await client.call_tool("does__echo", {"text": "x"})
        monkeypatch.setattr("toolpost.store.sqlite.store.append_entries", _disk_full)
        answer = await client.call_tool("does__echo", {"text": "x"})
        monkeypatch.undo()
        after = await client.call_tool("does__echo", {"text": "x"})

    assert error_of(answer)["code"] == "INTERNAL"
    assert data_of(after) == "x"


def _disk_full(*_: Any, **__: Any) -> Any:
    raise OSError("no space left on device")


@attack(
    "caller",
    "calls tools that exit, cancel themselves or return invalid content",
    "the call fails, and the gateway goes on",
)
@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_a_tool_cannot_take_the_server_with_it(way: Way) -> None:
    async with way.client(BEHAVIOURS) as client:
        strays = {
            kind: await client.call_tool("does__stray", {"kind": kind}) for kind in ("cancelled", "group", "exit")
        }
        thread = await client.call_tool("does__stray_in_thread", {})
        blocks = [
            await client.call_tool("does__blocks", {"kind": kind}) for kind in ("type", "field", "json", "object")
        ]
        after = await client.call_tool("does__echo", {"text": "still here"})

    assert error_of(strays["cancelled"])["code"] == "HANDLER_ERROR"
    assert error_of(strays["group"]) == {"code": "NOT_FOUND", "message": "Not in this group."}
    assert error_of(strays["exit"])["details"]["exception"] == "SystemExit"
    assert error_of(thread)["message"] == "bye"
    assert {error_of(answer)["code"] for answer in blocks} == {"HANDLER_ERROR"}
    assert data_of(after) == "still here"


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_secret_that_is_refused_is_not_logged(way: Way, caplog: Any) -> None:
    caplog.set_level("DEBUG", logger="toolpost")
    async with way.client(BEHAVIOURS) as client:
        answer = await client.call_tool("does__login", {"login": {"password": "hunter2"}})

    error = error_of(answer)
    assert error["code"] == "INVALID_PARAMS"
    assert error["details"]["issues"][0]["path"] == "/login/password"
    assert "inputSchema" in error["details"]
    assert "hunter2" not in str(answer)
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_any_name_may_be_an_argument(way: Way) -> None:
    async with way.client(BEHAVIOURS) as client:
        await client.list_tools()
        answer = await client.call_tool("does__renamed", {"schema": 1, "_x": 2, "copy": 3, "model_config": 4})

    assert data_of(answer) == {"onTheWire": 10}
