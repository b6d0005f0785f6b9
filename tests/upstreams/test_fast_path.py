"""A plain call asks and answers ahead of any task: answered once, recorded once, before the answer; the rest is as ever."""

import json
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from mcp import MCPError

from tests.upstreams.behind import HOSTILE, MEMORY, PAIRS, gateway, hostile, lines, report, text_of
from tests.upstreams.servers.http_server import HttpServer, serving
from tests.waiting import until
from tests.ways import ENVELOPE, IN_MEMORY, Way, stdio_peer
from toolpost.audit import AuditFilter, AuditRecord
from toolpost.contracts.errors import BadConfiguration
from toolpost.middleware import fast_path
from toolpost.middleware.audit import AuditExit
from toolpost.middleware.tool_lock import ToolLock
from toolpost.processes.tree import PipeReader
from toolpost.settings import Config
from toolpost.settings.model import LimitSettings, StoreSettings
from toolpost.store import open_store
from toolpost.store.call_journal import CallJournal
from toolpost.testing import error_of
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_leaks"), pytest.mark.wire]


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What came of each attempt to answer ahead."""
    seen: list[bool] = []
    append_now = AuditExit.append_now

    def watched(*arguments: Any) -> bool:
        seen.append(append_now(*arguments))
        return seen[-1]

    monkeypatch.setattr(AuditExit, "append_now", watched)
    return seen


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave calls without a task until something happens to them."""
    monkeypatch.setattr(fast_path, "TASK_AFTER_S", 20.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def on_disk(path: Path) -> Config:
    return msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=f"sqlite:{path}"))


BACKS = ["stdio", "json", "events"]


@asynccontextmanager
async def behind(back: str, version: str = "2026-07-28", **options: Any) -> AsyncIterator[ServerSpec]:
    """A server that echoes: on stdio, or over HTTP with its answers as they are or as events."""
    if back == "stdio":
        yield hostile(version=version, **options)
    else:
        async with serving(HttpServer(version=version, streams=back == "events")) as url:
            yield ServerSpec(name="up", url=url, **options)


async def recorded(path: Path) -> list[AuditRecord]:
    async with open_store(path) as store:
        assert (await store.audit.verify()).is_intact
        return await store.audit.entries(AuditFilter(), limit=1_000)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("back", BACKS)
@pytest.mark.parametrize(("way", "version"), PAIRS, ids=str)
async def test_lone_calls_are_answered_ahead_and_recorded_once(
    way: Way, version: str, back: str, path: Path, noted: list[bool]
) -> None:
    async with behind(back, version) as spec, gateway(spec, way=way, config=on_disk(path)) as (app, client):
        await client.call_tool("up__echo", {"text": "first"})
        answers = [text_of(await client.call_tool("up__echo", {"text": str(n)})) for n in range(20)]
        seen = report(app)
        counted = app.gateway.metrics.calls.value("OK")

    assert answers == [str(n) for n in range(20)]
    assert noted.count(True) == len(noted) >= 20
    assert [record.entry.outcome for record in await recorded(path)] == ["ok"] * 21
    assert seen.in_flight == 0
    assert counted == 21


async def test_a_server_that_takes_its_time_is_hardly_ever_watched_for_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched: list[bool] = []
    spin = PipeReader.spin

    def counted(self: PipeReader, limit_s: float) -> bool:
        watched.append(spin(self, limit_s))
        return watched[-1]

    monkeypatch.setattr(PipeReader, "spin", counted)
    async with gateway(hostile()) as (_, client):
        for _ in range(100):
            await client.call_tool("up__sleep", {"seconds": 0.002})

    # The 1st, 3rd, 7th, 15th, 31st and 63rd call, and what hit upon a word that the server said by itself.
    assert 3 <= len(watched) <= 12


async def test_a_server_that_answers_while_it_is_watched_is_watched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[bool] = []
    spin = PipeReader.spin

    def patient(self: PipeReader, _limit_s: float) -> bool:
        watched.append(spin(self, 0.5))
        return watched[-1]

    monkeypatch.setattr(PipeReader, "spin", patient)
    async with gateway(hostile()) as (_, client):
        for _ in range(30):
            # Not so quick that the answer is there before anybody could watch for it.
            assert text_of(await client.call_tool("up__sleep", {"seconds": 0.002})) == "slept"

    # The first request may still be on its way to the pipe.
    assert len(watched) >= 5
    assert all(watched[1:])


@pytest.mark.parametrize("back", BACKS)
@pytest.mark.parametrize(("way", "version"), PAIRS, ids=str)
async def test_calls_that_meet_are_each_answered_once(way: Way, version: str, back: str, path: Path) -> None:
    answers: dict[int, str] = {}
    async with behind(back, version) as spec, gateway(spec, way=way, config=on_disk(path)) as (app, client):

        async def call(number: int) -> None:
            answers[number] = text_of(await client.call_tool("up__echo", {"text": str(number)}))

        for start in range(0, 60, 6):
            async with anyio.create_task_group() as tasks:
                for number in range(start, start + 1 + start // 12):
                    tasks.start_soon(call, number)

        seen, counted = report(app), app.gateway.metrics.calls.value("OK")

    assert answers == {number: str(number) for number in answers}
    assert len(await recorded(path)) == len(answers) == counted
    assert seen.in_flight == 0


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("streams", [False, True], ids=["json", "events"])
async def test_calls_that_are_answered_together_need_no_tasks(
    version: str, streams: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together: list[str] = []
    append = AuditExit.append

    def watched(self: AuditExit, call: Any, outcome: Any) -> Any:
        together.append(call.id)
        return append(self, call, outcome)

    monkeypatch.setattr(AuditExit, "append", watched)
    server = HttpServer(version=version, streams=streams)
    answers: list[str] = []
    async with serving(server) as url, gateway(ServerSpec(name="up", url=url), config=on_disk(path)) as (app, client):
        await called_together(client, "up__sleep", {"seconds": 0.05}, times=8)  # so that there are connections
        together.clear()

        async def call() -> None:
            answers.append(text_of(await client.call_tool("up__wait")))

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(call)
            await until(lambda: server.methods.count("tools/call") == 16)
            server.released.set()
        await until(lambda: report(app).in_flight == app.gateway.in_flight == 0)

    assert answers == ["released"] * 8
    assert len(together) >= 6, "the last of them may have been alone"
    assert [record.entry.outcome for record in await recorded(path)] == ["ok"] * 16


async def called_together(client: Any, tool: str, arguments: dict[str, Any], *, times: int) -> list[Any]:
    answers: list[Any] = []

    async def call() -> None:
        answers.append(await client.call_tool(tool, arguments))

    async with anyio.create_task_group() as tasks:
        for _ in range(times):
            tasks.start_soon(call)
    return answers


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("back", BACKS)
async def test_what_cannot_be_put_on_the_record_is_not_answered(back: str, path: Path) -> None:
    async with behind(back) as spec, gateway(spec, config=on_disk(path)) as (app, client):
        await called_together(client, "up__sleep", {"seconds": 0.05}, times=8)
        with closing(sqlite3.connect(path)) as meddler:
            head = meddler.execute("SELECT * FROM audit_head").fetchall()
            meddler.execute("DELETE FROM audit_head")
            meddler.commit()
            refused = await called_together(client, "up__sleep", {"seconds": 0.05}, times=8)
            meddler.executemany(f"INSERT INTO audit_head VALUES ({', '.join('?' * len(head[0]))})", head)
            meddler.commit()
        after = await called_together(client, "up__sleep", {"seconds": 0.05}, times=8)
        await until(lambda: report(app).in_flight == app.gateway.in_flight == 0)

    codes = [error_of(answer)["code"] for answer in refused if answer.is_error]
    assert codes == ["INTERNAL"] * len(codes)
    assert len(codes) >= 6, "one that is alone is written down beside the store"
    assert [text_of(answer) for answer in after] == ["slept"] * 8
    # They are written once the store takes them: as they ended, not as lost.
    assert [record.entry.outcome for record in await recorded(path)] == ["ok"] * 24


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_calls_that_wait_together_have_their_deadlines(version: str, path: Path) -> None:
    server = HttpServer(version=version)
    async with serving(server) as url:
        spec = ServerSpec(name="up", url=url, timeout_s=2)
        async with gateway(spec, way=MEMORY, config=on_disk(path)) as (app, client):
            await called_together(client, "up__sleep", {"seconds": 0.05}, times=4)
            answers = await called_together(client, "up__never", {}, times=4)
            await until(lambda: server.hung_up == 4)
            await until(lambda: report(app).in_flight == app.gateway.in_flight == 0)

    assert [error_of(answer)["code"] for answer in answers] == ["TOOL_TIMEOUT"] * 4
    assert [record.entry.code for record in await recorded(path)] == [None] * 4 + ["TOOL_TIMEOUT"] * 4


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_call_without_a_task_is_called_off_over_http(version: str, path: Path) -> None:
    server = HttpServer(version=version)
    async with (
        serving(server) as url,
        gateway(ServerSpec(name="up", url=url), config=on_disk(path)) as (app, client),
    ):
        await client.call_tool("up__echo", {"text": "warm"})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "up__never", {})
            await until(lambda: server.methods.count("tools/call") == 2)
            tasks.cancel_scope.cancel()
        await until(lambda: server.hung_up == 1)
        await until(lambda: report(app).in_flight == app.gateway.in_flight == 0)
        after = await client.call_tool("up__echo", {"text": "after"})

    assert text_of(after) == "after"
    assert [record.entry.outcome for record in await recorded(path)] == ["ok", "cancelled", "ok"]


@pytest.mark.usefixtures("patient")
async def test_a_session_that_was_forgotten_is_opened_again_for_a_call_without_a_task(path: Path) -> None:
    server = HttpServer(version="2025-11-25")
    async with serving(server) as url, gateway(ServerSpec(name="up", url=url), config=on_disk(path)) as (_, client):
        await client.call_tool("up__echo", {"text": "warm"})
        server.forget_sessions()
        answer = await client.call_tool("up__echo", {"text": "again"})

    assert text_of(answer) == "again"
    assert [record.entry.outcome for record in await recorded(path)] == ["ok", "ok"]


@pytest.mark.parametrize(("way", "version"), PAIRS, ids=str)
async def test_what_is_not_plain_goes_the_long_way(way: Way, version: str, path: Path, noted: list[bool]) -> None:
    async with gateway(hostile(version=version, timeout_s=3), way=way, config=on_disk(path)) as (_, client):
        lie = await client.call_tool("up__lie", {})
        nothing = await client.call_tool("up__no_result", {})
        late = await client.call_tool("up__never", {})
        with pytest.raises(MCPError):
            await client.call_tool("up__refuse", {})

    codes = ["OUTPUT_VALIDATION_FAILED", "UPSTREAM_UNAVAILABLE", "TOOL_TIMEOUT"]
    assert [error_of(answer)["code"] for answer in (lie, nothing, late)] == codes
    assert [record.entry.code for record in await recorded(path)] == [*codes, "HANDLER_ERROR"]
    assert noted == []


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("way", "version"), PAIRS, ids=str)
async def test_a_call_without_a_task_is_called_off_at_its_server(
    way: Way, version: str, path: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with gateway(hostile(version=version, log=log), way=way, config=on_disk(path)) as (app, client):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "up__sleep", {"seconds": 60})
            await until(lambda: "sleeping" in lines(log))
            tasks.cancel_scope.cancel()
        await until(lambda: any(line.startswith("cancelled ") for line in lines(log)))
        await until(lambda: report(app).in_flight == app.gateway.in_flight == 0)
        after = await client.call_tool("up__echo", {"text": "after"})

    assert text_of(after) == "after"
    assert [record.entry.outcome for record in await recorded(path)] == ["cancelled", "ok"]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("way", "version"), PAIRS, ids=str)
async def test_a_call_without_a_task_is_told_of_whatever_becomes_of_its_server(
    way: Way, version: str, path: Path, noted: list[bool]
) -> None:
    async with gateway(hostile(version=version), way=way, config=on_disk(path)) as (app, client):
        warm = await client.call_tool("up__echo", {"text": "warm"})
        nothing = await client.call_tool("up__no_result", {})
        lie = await client.call_tool("up__lie", {})
        with pytest.raises(MCPError, match="not today"):
            await client.call_tool("up__refuse", {})
        crash = await client.call_tool("up__crash", {})
        await until(lambda: report(app).in_flight == app.gateway.in_flight == 0)

    assert text_of(warm) == "warm"
    codes = ["UPSTREAM_UNAVAILABLE", "OUTPUT_VALIDATION_FAILED", "UPSTREAM_UNAVAILABLE"]
    assert [error_of(answer)["code"] for answer in (nothing, lie, crash)] == codes
    codes.insert(2, "HANDLER_ERROR")
    assert [record.entry.code for record in await recorded(path)] == [None, *codes]
    assert noted in ([], [True]), "the first may have had to wait for its server"


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("way", "version"), PAIRS, ids=str)
async def test_what_a_server_says_before_its_answer_changes_nothing(
    way: Way, version: str, path: Path, noted: list[bool]
) -> None:
    answers = []
    async with gateway(hostile(version=version), way=way, config=on_disk(path)) as (_, client):
        await client.call_tool("up__echo", {"text": "warm"})
        noted.clear()
        answers += [
            await client.call_tool(f"up__{tool}", {}) for tool in ("garbage", "half_line", "unknown_id", "twice")
        ]
        answers.append(await client.call_tool("up__chatter", {"count": 40}))
        answers.append(await client.call_tool("up__echo", {"text": "after"}))

    assert [text_of(answer) for answer in answers] == ["after garbage", "é", "yours", "first", "said a lot", "after"]
    assert noted == [True] * 6
    assert len(await recorded(path)) == 7


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("way", "version"), PAIRS, ids=str)
async def test_a_call_that_was_asked_ahead_keeps_its_place(way: Way, version: str, path: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = msgspec.structs.replace(on_disk(path), limits=LimitSettings(calls=1))
    answers: list[Any] = []
    async with gateway(hostile(version=version, log=log), way=way, config=config) as (_, client):

        async def sleep() -> None:
            answers.append(await client.call_tool("up__sleep", {"seconds": 2}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sleep)
            await until(lambda: "sleeping" in lines(log))
            refused = await client.call_tool("up__echo", {"text": "no room"})
        after = await client.call_tool("up__echo", {"text": "room again"})

    assert error_of(refused)["code"] == "QUEUE_OVERLOADED"
    assert [text_of(answer) for answer in (*answers, after)] == ["slept", "room again"]
    assert sorted(record.entry.outcome for record in await recorded(path)) == ["ok", "ok", "refused"]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("way", "version"), PAIRS, ids=str)
async def test_a_call_without_a_task_ends_with_the_gateway(way: Way, version: str, path: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    answers: list[Any] = []
    async with gateway(hostile(version=version, log=log), way=way, config=on_disk(path)) as (app, client):

        async def sleep() -> None:
            answers.append(await client.call_tool("up__sleep", {"seconds": 60}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sleep)
            await until(lambda: "sleeping" in lines(log))
            assert app.gateway.in_flight == 1
            await app.gateway.drain(0)

    assert error_of(answers[0])["code"] == "CANCELLED"
    assert [record.entry.outcome for record in await recorded(path)] == ["cancelled"]


@pytest.mark.parametrize(("way", "version"), PAIRS, ids=str)
async def test_a_deadline_sooner_than_a_task_would_come_is_kept(way: Way, version: str, path: Path) -> None:
    async with gateway(hostile(version=version, timeout_s=0.015), way=way, config=on_disk(path)) as (_, client):
        with anyio.fail_after(20):
            answers = [await client.call_tool("up__never", {}) for _ in range(2)]

    assert [error_of(answer)["code"] for answer in answers] == ["TOOL_TIMEOUT"] * 2
    assert [record.entry.code for record in await recorded(path)] == ["TOOL_TIMEOUT"] * 2


@pytest.fixture
def behind_stdio(path: Path, tmp_path: Path) -> Iterator[Any]:
    """A gateway on stdio, with a server whose log says what it was told."""
    command = [sys.executable, "-S", "-E", str(HOSTILE), "--version", "2025-11-25", "--start", "", "--log"]
    (tmp_path / "toolpost.toml").write_text(
        f"[store]\nurl = {json.dumps(f'sqlite:{path}')}\n"
        f"[servers.up]\ncommand = {json.dumps(command[0])}\nargs = {json.dumps([*command[1:], str(tmp_path / 'log')])}\n"
    )
    with stdio_peer(cwd=tmp_path) as peer:
        yield peer


async def test_a_call_that_is_called_off_in_the_same_breath_is_called_off_at_its_server(
    behind_stdio: Any, path: Path, tmp_path: Path
) -> None:
    peer = behind_stdio
    assert peer.call("up__echo", text="warm")["result"]
    sleep = {"name": "up__sleep", "arguments": {"seconds": 60}, "_meta": ENVELOPE}
    both = (
        {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": sleep},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}},
    )

    peer.send_raw(b"\n".join(json.dumps(message).encode() for message in both))

    await until(lambda: any(line.startswith("cancelled ") for line in lines(tmp_path / "log")))
    assert peer.call("up__echo", text="after")["result"]
    peer.process.stdin.close()
    peer.process.wait(60)
    assert [record.entry.outcome for record in await recorded(path)] == ["ok", "cancelled", "ok"]


async def test_what_was_answered_is_on_record_when_the_gateway_is_killed(behind_stdio: Any, path: Path) -> None:
    peer = behind_stdio
    answers = [peer.call("up__echo", text=str(number)) for number in range(30)]

    peer.process.kill()
    peer.process.wait(60)

    told = [answer["result"]["_meta"]["dev.toolpost/meta"]["callId"] for answer in answers]
    assert [record.entry.call_id for record in await recorded(path)] == told


RAISED = {
    "a header that cannot be sent": BadConfiguration("the header 'authorization' of an upstream cannot be sent"),
    "a bug": KeyError("x"),
    "an error of a library": OSError(28, "No space left on device"),
}
STEPS = ("accepts_quickly", "is_open_to", "read_plain_result", "append_now")


@pytest.mark.parametrize(
    ("step", "raised", "back"),
    [
        *[("try_send", raised, back) for raised, back in zip(RAISED, BACKS, strict=True)],
        *[(step, "a bug", "stdio") for step in STEPS],
    ],
)
async def test_whatever_the_fast_path_raises_goes_the_ordinary_way(
    step: str, raised: str, back: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A header that cannot be sent once left a call without any answer."""
    met: list[str] = []

    def refuse(*_arguments: Any, **_named: Any) -> Any:
        met.append(step)
        raise RAISED[raised]

    async with behind(back) as spec, gateway(spec, config=on_disk(path)) as (app, client):
        assert text_of(await client.call_tool("up__echo", {"text": "a"})) == "a"
        holders: dict[str, Any] = {
            "try_send": app.servers.providers["up"].supervisor,
            "accepts_quickly": fast_path,
            "is_open_to": ToolLock,
            "read_plain_result": fast_path,
            "append_now": AuditExit,
        }
        monkeypatch.setattr(holders[step], step, refuse)
        with anyio.fail_after(30):
            assert text_of(await client.call_tool("up__echo", {"text": "b"})) == "b"
    assert met == [step]
    assert [record.entry.outcome for record in await recorded(path)] == ["ok", "ok"]


async def test_a_call_that_gets_a_task_after_it_was_sent_is_journaled_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[str] = []
    tasks: list[object] = []
    enter, start_task = CallJournal.enter, fast_path._SentCall.start_task

    def note(journal: CallJournal, draft: Any) -> Any:
        entered.append(draft.tool)
        return enter(journal, draft)

    def note_task(sent: Any, answer: object = None) -> None:
        tasks.append(sent)
        start_task(sent, answer)

    monkeypatch.setattr(CallJournal, "enter", note)
    monkeypatch.setattr(fast_path._SentCall, "start_task", note_task)
    async with gateway(hostile(), config=on_disk(path)) as (_, client):
        await client.call_tool("up__echo", {"text": "started"})
        entered.clear()
        await client.call_tool("up__sleep", {"seconds": 0.2})

    assert tasks
    assert entered == ["up__sleep"]
    assert [record.entry.outcome for record in await recorded(path)] == ["ok", "ok"]
