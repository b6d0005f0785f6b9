"""A server on stdio does what it should not: its own calls get a clear answer, everything else goes on."""

from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from mcp import MCPError

from tests.hostile.attacks import attack
from tests.upstreams.behind import MEMORY, ONE_OF_EACH, PAIRS, Timed, beside, gateway, hostile, lines, report, text_of
from tests.waiting import until
from tests.ways import STATELESS, Way
from toolpost.providers import server_provider
from toolpost.testing import error_of
from toolpost.upstreams import handshake, instance
from toolpost.upstreams import stdio as stdio_wire

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_leaks"), pytest.mark.wire]


def unavailable(answer: Any, server: str = "up") -> dict[str, Any]:
    error = error_of(answer)
    assert error["code"] == "UPSTREAM_UNAVAILABLE", error
    assert error["details"]["server"] == server
    assert f"`{server}`" in error["message"]
    assert error["hint"]
    return error


@attack(
    "server",
    "prints invalid messages: garbage, half lines, answers without a request, answers twice",
    "they are ignored, and its calls are answered",
)
@pytest.mark.parametrize(("way", "version"), PAIRS, ids=str)
async def test_what_makes_no_sense_is_passed_over(way: Way, version: str) -> None:
    async with gateway(hostile(version=version, start="garbage"), hostile("good"), way=way) as (app, client):

        async def call_all() -> dict[str, str]:
            tools = ("garbage", "half_line", "unknown_id", "twice", "text_id", "ask_back", "echo")
            return {tool: text_of(await client.call_tool(f"up__{tool}", {"text": "hi"})) for tool in tools}

        said = await beside(client, "good", call_all)
        seen = report(app)

    assert said == {
        "garbage": "after garbage",
        "half_line": "é",
        "unknown_id": "yours",
        "twice": "first",
        "text_id": "by text",
        "ask_back": "asked",
        "echo": "hi",
    }
    assert seen.protocol_errors >= 12
    assert seen.restarts == 0
    assert seen.version == version


@pytest.mark.parametrize(("way", "version"), PAIRS, ids=str)
async def test_a_crash_is_told_at_once_with_its_last_words(way: Way, version: str) -> None:
    async with gateway(hostile(version=version), hostile("good"), way=way) as (app, client):
        with Timed() as crash:
            answer = await beside(client, "good", lambda: client.call_tool("up__crash"))
        seen = report(app)
        after = await client.call_tool("up__echo", {"text": "again"})

    error = unavailable(answer)
    assert "exit code 3" in error["message"]
    assert "boom: the disk is on fire" in error["message"]
    assert "boom" in error["stderr"]
    assert crash.took_s < 30
    assert seen.last_error is not None
    assert "boom" in seen.last_error
    assert seen.stderr_tail[-1] == "boom: the disk is on fire"
    assert text_of(after) == "again"


@pytest.mark.parametrize("tool", ["close_stdin", "close_stdout"])
@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_a_server_that_closes_a_pipe_is_replaced(way: Way, tool: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with gateway(hostile(log=log), hostile("good"), way=way) as (_, client):
        first = await client.call_tool(f"up__{tool}", read_timeout_seconds=20) if tool == "close_stdout" else None
        if tool == "close_stdin":
            first = await call_with_closed_stdin(client, log)
        after = await client.call_tool("up__echo", {"text": "again"})

    unavailable(first)
    assert text_of(after) == "again"


async def call_with_closed_stdin(client: Any, log: Path) -> Any:
    """Close it by one call, and notice it by the next: a pipe tells of its end only when it is written to."""
    answers: list[Any] = []

    async def call(tool: str) -> None:
        answers.append(await client.call_tool(f"up__{tool}", {"text": "x"}))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, "close_stdin")
        await until(lambda: "deaf" in lines(log))
        tasks.start_soon(call, "echo")
    # The one that could not be sent was tried again elsewhere.
    assert sum(1 for answer in answers if not answer.is_error) == 1
    return next(answer for answer in answers if answer.is_error)


@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_a_call_that_is_never_answered_ends_at_its_deadline(way: Way, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with gateway(hostile(timeout_s=2, log=log), hostile("good"), way=way) as (app, client):
        answer = await beside(client, "good", lambda: client.call_tool("up__never"))
        after = await client.call_tool("up__echo", {"text": "still here"})
        seen = report(app)

    assert error_of(answer)["code"] == "TOOL_TIMEOUT"
    assert text_of(after) == "still here"
    assert seen.restarts == 0
    assert any(line.startswith("cancelled ") for line in lines(log))


@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_fifteen_megabytes_are_passed_on(way: Way) -> None:
    size = 15 * 1024 * 1024
    async with gateway(hostile(), hostile("good"), way=way) as (_, client):
        answer = await beside(client, "good", lambda: client.call_tool("up__big", {"bytes": size}))

    assert len(text_of(answer)) == size


@attack(
    "server",
    "answers with more than the limit",
    "that call fails, and others are answered",
)
async def test_an_answer_beyond_the_limit_fails_its_own_call_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio_wire, "MESSAGE_LIMIT", 100_000)
    async with gateway(hostile()) as (app, client):
        answer = await beside(client, "up", lambda: client.call_tool("up__big", {"bytes": 200_000}))
        seen = report(app)

    assert "more than 100000 bytes" in unavailable(answer)["message"]
    assert "ask for less" in unavailable(answer)["hint"]
    assert seen.restarts == 0


@attack(
    "server",
    "floods a call with progress",
    "the client gets a trickle, and other servers' calls are as quick as before",
)
@pytest.mark.parametrize(("way", "version"), PAIRS, ids=str)
async def test_a_flood_of_progress_is_shaped_and_slows_nothing(
    way: Way, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[float] = []
    read: list[bytes] = []
    really_read = server_provider._parse_progress

    def noted(params: bytes) -> object:
        read.append(params)
        return really_read(params)

    monkeypatch.setattr(server_provider, "_parse_progress", noted)

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with gateway(hostile(version=version), hostile("good"), way=way) as (_, client):
        with Timed() as flood:
            answer = await client.call_tool("up__flood", {"count": 2000}, progress_callback=hear)

    assert text_of(answer) == "flooded"
    assert 1 <= len(heard) <= 4 * flood.took_s + 4
    assert heard[-1] == 2000
    assert heard == sorted(set(heard))
    assert len(read) == len(heard), "what is not sent on is not read"
    assert flood.took_s < 60


@attack(
    "server",
    "sends a result that violates its own output schema",
    "the result is refused and does not reach the caller",
)
@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_results_that_lie_are_refused_and_errors_are_passed_on(way: Way) -> None:
    async with gateway(hostile(), way=way) as (_, client):
        lie = await client.call_tool("up__lie")
        nothing = await client.call_tool("up__no_result")
        needy = await client.call_tool("up__input_required")
        harmless = await client.call_tool("up__null_error")
        with pytest.raises(MCPError) as refusal:
            await client.call_tool("up__refuse")

    assert error_of(lie)["code"] == "OUTPUT_VALIDATION_FAILED"
    assert "no content" in unavailable(nothing)["message"]
    assert "input_required" in unavailable(needy)["message"]
    assert harmless.content == []
    assert (refusal.value.code, refusal.value.message) == (-31001, "not today")
    assert refusal.value.error.data == {"why": [1, 2]}


@attack(
    "server",
    "lists a tool with a schema that cannot be used",
    "that tool is left out with a reason; its other tools are served",
)
@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_one_bad_schema_does_not_spoil_the_others(way: Way) -> None:
    async with gateway(hostile(start="bad_schemas"), way=way) as (app, client):
        names = {tool.name for tool in (await client.list_tools()).tools}
        answer = await client.call_tool("up__echo", {"text": "fine"})
        refused = [refusal.details["tool"] for refusal in app.servers.providers["up"].refused]

    assert text_of(answer) == "fine"
    assert "up__no_schema" not in names
    assert refused == ["no_schema", "bad_type", "no_object", "far_away", "bad_pattern", "bad_output", "None", "7"]


@attack(
    "server",
    "starts daemons that leave its session",
    "they end with the server",
)
async def test_daemons_of_a_server_die_with_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with gateway(hostile(log=log)) as (_, client):
        await client.call_tool("up__family")
        await client.call_tool("up__family")
        children = [int(line.split()[1]) for line in lines(log) if line.startswith("child ")]
        alive = [pid for pid in children if psutil.pid_exists(pid)]
        await client.call_tool("up__crash")
        await until(lambda: not any(psutil.pid_exists(pid) for pid in children))

    assert len(alive) == 2


# A start that goes wrong


@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_a_server_that_exits_at_once_is_told_with_its_last_words(way: Way, tmp_path: Path) -> None:
    async with gateway(hostile(start="exit"), hostile("good"), way=way) as (app, client):
        names = {tool.name for tool in (await client.list_tools()).tools}
        seen = report(app)

    assert "good__echo" in names
    assert not any(name.startswith("up__") for name in names)
    assert seen.state == "failed"
    assert seen.last_error is not None
    assert "exit code 1" in seen.last_error
    assert "I will not" in seen.last_error


@attack(
    "server",
    "hangs at its start",
    "other servers are served meanwhile",
)
async def test_a_server_that_hangs_holds_up_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "START_LIMIT_S", 1.0)
    monkeypatch.setattr(handshake, "PROBE_LIMIT_S", 0.2)
    async with gateway(hostile(start="hang"), hostile("good")) as (app, client):
        answer = await client.call_tool("good__echo", {"text": "here"})
        seen = report(app)

    assert text_of(answer) == "here"
    assert seen.state == "failed"
    assert seen.last_error == "it did not get ready within 1 s; it said: hostile server here"


async def test_a_command_that_is_not_there_is_told_with_a_hint() -> None:
    spec = hostile()
    async with gateway(spec.__class__(name="up", command=("no-such-server-anywhere",))) as (app, _):
        seen = report(app)

    assert seen.last_error is not None
    assert "`no-such-server-anywhere` cannot be started" in seen.last_error


@pytest.mark.parametrize("start", ["exit_on_probe", "hang_on_probe", "nonsense_on_probe", "same_cursor"])
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26"])
async def test_servers_that_know_only_older_revisions_are_met(
    start: str, version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(handshake, "PROBE_LIMIT_S", 0.3)
    log = tmp_path / "log"
    async with gateway(hostile(start=start, version=version, log=log)) as (app, client):
        first = await client.call_tool("up__echo", {"text": "hi"})
        seen = report(app)
        await client.call_tool("up__crash")
        second = await client.call_tool("up__echo", {"text": "hi"})

    assert text_of(first) == text_of(second) == "hi"
    assert (seen.version, seen.state, seen.last_error) == (version, "ready", None)
    probes = lines(log).count("server/discover")
    # What stumbled over the question is not asked again.
    assert probes == (1 if start in ("exit_on_probe", "hang_on_probe") else 2)


@pytest.mark.parametrize("version", ["2025-06-18", STATELESS])
async def test_a_server_that_is_slow_to_start_is_met_in_its_own_era(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "PROBE_LIMIT_S", 0.1)
    async with gateway(hostile(start="slow", version=version)) as (app, client):
        answer = await client.call_tool("up__echo", {"text": "at last"})
        seen = report(app)

    assert text_of(answer) == "at last"
    assert (seen.version, seen.state, seen.restarts) == (version, "ready", 0)


async def test_a_server_that_insists_on_its_revision_gets_it() -> None:
    async with gateway(hostile(start="strict", version="2024-11-05")) as (app, client):
        answer = await client.call_tool("up__echo", {"text": "hi"})
        seen = report(app)

    assert text_of(answer) == "hi"
    assert seen.version == "2024-11-05"


@pytest.mark.parametrize(
    ("start", "reason"),
    [("endless", "its list of tools does not end"), ("refuse_list", "no list today")],
)
async def test_a_list_that_cannot_be_read_is_a_failed_start(start: str, reason: str) -> None:
    async with gateway(hostile(start=start)) as (app, _):
        seen = report(app)

    assert seen.state == "failed"
    assert seen.last_error is not None
    assert reason in seen.last_error


@pytest.mark.parametrize("version", ["2025-11-25", STATELESS])
async def test_a_server_without_tools_is_no_failure(version: str) -> None:
    async with gateway(hostile(start="no_tools", version=version), way=MEMORY) as (app, client):
        tools = (await client.list_tools()).tools
        seen = report(app)

    assert tools == []
    assert seen.state == "ready"
