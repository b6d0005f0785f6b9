"""A plain call asks and answers ahead of its task: answered once, recorded once, before the answer; the rest is as ever."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from mcp import MCPError

from tests.upstreams.behind import HOSTILE, PAIRS, gateway, hostile, lines, report, text_of, until
from tests.ways import ENVELOPE, IN_MEMORY, Way, stdio_peer
from toolpost.config import Config, StoreSettings
from toolpost.pipeline.audit import AuditExit
from toolpost.store import AuditFilter, AuditRecord, open_store
from toolpost.testing import error_of

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_leaks")]


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What came of each attempt to answer ahead."""
    seen: list[bool] = []
    is_noted = AuditExit.is_noted

    def watched(*arguments: Any) -> bool:
        seen.append(is_noted(*arguments))
        return seen[-1]

    monkeypatch.setattr(AuditExit, "is_noted", watched)
    return seen


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def on_disk(path: Path) -> Config:
    return msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=f"sqlite:{path}"))


async def recorded(path: Path) -> list[AuditRecord]:
    async with open_store(path) as store:
        assert (await store.audit.verify()).is_intact
        return await store.audit.entries(AuditFilter(), limit=1_000)


@pytest.mark.parametrize(("way", "version"), PAIRS, ids=str)
async def test_lone_calls_are_answered_ahead_and_recorded_once(
    way: Way, version: str, path: Path, noted: list[bool]
) -> None:
    async with gateway(hostile(version=version), way=way, config=on_disk(path)) as (app, client):
        await client.call_tool("up__echo", {"text": "first"})
        answers = [text_of(await client.call_tool("up__echo", {"text": str(n)})) for n in range(20)]
        seen = report(app)
        counted = app.gateway.metrics.calls.value("OK")

    assert answers == [str(n) for n in range(20)]
    assert noted.count(True) == len(noted) >= 20
    assert [record.entry.outcome for record in await recorded(path)] == ["ok"] * 21
    assert seen.in_flight == 0
    assert counted == 21


@pytest.mark.parametrize(("way", "version"), PAIRS, ids=str)
async def test_calls_that_meet_are_each_answered_once(way: Way, version: str, path: Path) -> None:
    answers: dict[int, str] = {}
    async with gateway(hostile(version=version), way=way, config=on_disk(path)) as (_, client):

        async def call(number: int) -> None:
            answers[number] = text_of(await client.call_tool("up__echo", {"text": str(number)}))

        for start in range(0, 60, 6):
            async with anyio.create_task_group() as tasks:
                for number in range(start, start + 1 + start // 12):
                    tasks.start_soon(call, number)

    assert answers == {number: str(number) for number in answers}
    assert len(await recorded(path)) == len(answers)


@pytest.mark.parametrize(("way", "version"), PAIRS, ids=str)
async def test_what_is_not_plain_goes_the_long_way(way: Way, version: str, path: Path, noted: list[bool]) -> None:
    async with gateway(hostile(version=version, timeout_s=1), way=way, config=on_disk(path)) as (_, client):
        lie = await client.call_tool("up__lie", {})
        nothing = await client.call_tool("up__no_result", {})
        late = await client.call_tool("up__never", {})
        with pytest.raises(MCPError):
            await client.call_tool("up__refuse", {})

    codes = ["OUTPUT_VALIDATION_FAILED", "UPSTREAM_UNAVAILABLE", "TOOL_TIMEOUT"]
    assert [error_of(answer)["code"] for answer in (lie, nothing, late)] == codes
    assert [record.entry.code for record in await recorded(path)] == [*codes, "HANDLER_ERROR"]
    assert noted == []


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
    peer.process.wait(10)
    assert [record.entry.outcome for record in await recorded(path)] == ["ok", "cancelled", "ok"]


async def test_what_was_answered_is_on_record_when_the_gateway_is_killed(behind_stdio: Any, path: Path) -> None:
    peer = behind_stdio
    answers = [peer.call("up__echo", text=str(number)) for number in range(30)]

    peer.process.kill()
    peer.process.wait(10)

    told = [answer["result"]["_meta"]["dev.toolpost/meta"]["callId"] for answer in answers]
    assert [record.entry.call_id for record in await recorded(path)] == told
