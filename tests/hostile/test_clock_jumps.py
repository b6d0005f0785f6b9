"""Somebody sets the clock while agents work: nothing runs out early, nothing lasts for ever, nothing is done twice."""

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.to_thread
import msgspec
import psutil
import pytest

from tests.endpoints.tasks.asking import AT_ONCE, HttpPeer
from tests.endpoints.tasks.test_wire import ERRANDS, call, ending
from tests.hostile.attacks import attack
from tests.parts.bus.test_bus import ME, given, wish, worked
from tests.store.conftest import url_of
from tests.ways import plugin_of
from toolpost.app import open_app, open_http
from toolpost.base.ids import CallerId, JsonObject, ThreadId, TraceId
from toolpost.endpoints.tasks import orphans, owners
from toolpost.parts.agents import TurnId, recorder
from toolpost.parts.agents.plugins import schedule
from toolpost.parts.agents.plugins.conversations_handle import ConversationsHandle
from toolpost.parts.agents.threads import Turn
from toolpost.parts.bus import PART
from toolpost.parts.bus.errors import StaleLease
from toolpost.parts.bus.service import Bus
from toolpost.parts.bus.tasks import BusPolicy, TaskId
from toolpost.processes import Daemon
from toolpost.settings import Config
from toolpost.settings.model import StoreSettings
from toolpost.store import open_store
from toolpost.store.key_values import Item
from toolpost.store.part_migrations import open_part_store
from toolpost.store.postgres import scripts as postgres_scripts

pytestmark = [pytest.mark.anyio, pytest.mark.every_store]

DAY_S = 86_400.0
JUMPS = [3 * DAY_S, -3 * DAY_S]
Jump = Callable[[float], None]


@pytest.fixture
def jump(monkeypatch: pytest.MonkeyPatch) -> Jump:
    """Set the wall clock of this machine and of the database, which are looked at in every transaction."""
    real, look, create_time = time.time, postgres_scripts._READ_CLOCK, psutil.Process.create_time
    monkeypatch.setattr("toolpost.store.clock.CHECK_S", 0.0)

    def by(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: real() + seconds)
        # Linux counts from the boot of the machine, and says that this was at another time now.
        monkeypatch.setattr(psutil.Process, "create_time", lambda process: create_time(process) + seconds)
        moved = look.replace("::double precision", f"::double precision + ({seconds})::double precision", 1)
        monkeypatch.setattr(postgres_scripts, "_READ_CLOCK", moved)

    return by


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, request, tmp_path / "store.db")


@attack(
    "operator",
    "sets the clock three days ahead or back while agents hold tasks",
    "no lease and no poll runs out early, also at a second server; a dead worker's lease still runs out in its time",
)
@pytest.mark.parametrize("jump_s", JUMPS)
async def test_leases_of_the_bus_outlive_a_jump(url: str, jump_s: float, jump: Jump) -> None:
    policy = BusPolicy(lease_s=30, lease_without_renewal_s=30, retry_s=0.01, retry_limit_s=0.02, sweep_s=0.02)
    async with (
        open_part_store(url, PART.name, PART.migrations) as store,
        open_part_store(url, PART.name, PART.migrations) as second,
    ):
        bus, other = Bus(store, policy=policy), Bus(second, policy=policy)
        async with bus.open_sweeping(), other.open_sweeping():
            names = [await bus.register(name, name, by=ME) for name in ("ada", "bob")]
            await bus.submit(wish("a"))
            kept = await worked(bus, names[0])
            jump(jump_s)
            for _ in range(4):
                await anyio.sleep(0.1)
                await bus.acknowledge(names[0], kept.id, kept.token, by=ME, renews=True)
            ended = await other.complete(kept.id, kept.token, None, by=ME)
            bus.policy = replace(bus.policy, lease_s=0.5)
            await bus.submit(wish("b"))
            lost = await worked(bus, names[0])
            with anyio.fail_after(30):
                again = await given(other, names[1])
            with pytest.raises(StaleLease):
                await bus.complete(lost.id, lost.token, None, by=ME)
            _, events = await bus.history(TaskId("b"))

    assert ended.attempt == 1
    assert (again.id, again.attempt) == ("b", 1)
    assert events[0].at == pytest.approx(time.time(), abs=30), "people are told the time of their clock"


@pytest.mark.wire
@attack(
    "operator",
    "sets the clock three days ahead or back while MCP tasks run and their results are kept",
    "a running task is neither failed nor run twice, a result can be fetched for its time to live, and no longer",
)
@pytest.mark.parametrize("jump_s", JUMPS)
async def test_mcp_tasks_outlive_a_jump(
    url: str, jump_s: float, jump: Jump, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphans, "START_S", 0.05)
    monkeypatch.setattr(orphans, "SWEEP_S", 0.05)
    config = msgspec.structs.replace(AT_ONCE, store=StoreSettings(url=url))
    async with _gateway(config) as ask, _gateway(config) as elsewhere:
        done = (await ask("tools/call", call("errands__echo", text="x")))["result"]
        await ending(ask, done)
        running = (await ask("tools/call", call("errands__once", folder=str(tmp_path))))["result"]
        jump(jump_s)
        await anyio.sleep(0.3)  # several sweeps
        seen = [(await side("tasks/get", {"taskId": running["taskId"]}))["result"] for side in (ask, elsewhere)]
        (tmp_path / "go").touch()
        ended = await ending(elsewhere, running)
        kept = (await elsewhere("tasks/get", {"taskId": done["taskId"]}))["result"]

    assert [state["status"] for state in seen] == ["working", "working"]
    assert (ended["status"], kept["status"]) == ("completed", "completed")
    assert (tmp_path / "marks").read_text() == "once\n"
    created = datetime.fromisoformat(ended["createdAt"]).timestamp()
    assert created == pytest.approx(datetime.now(UTC).timestamp() + jump_s, abs=60)


@asynccontextmanager
async def _gateway(config: Config) -> AsyncIterator[Any]:
    """Open a gateway of its own, asked over HTTP by a client that knows tasks."""
    async with open_app(config, plugins=[plugin_of(ERRANDS)], bundled=False) as app, open_http(app) as url:
        peer = HttpPeer(url)

        async def ask(method: str, params: dict[str, Any]) -> Any:
            return await anyio.to_thread.run_sync(lambda: peer.ask(method, params))

        yield ask


@attack(
    "operator",
    "sets the clock, so that every process seems to have begun at another time",
    "a running server, gateway or turn does not count as ended",
)
@pytest.mark.parametrize("jump_s", JUMPS)
async def test_a_process_is_known_by_more_than_the_time_of_day(jump_s: float, jump: Jump) -> None:
    me, owner, name = Daemon.current(), owners.new_owner(), recorder.own_process_id()
    jump(jump_s)
    turn = Turn(
        id=TurnId("n"),
        thread=ThreadId("t"),
        state="running",
        trace_id=TraceId("0" * 32),
        runner=name,
        started_at=1.0,
        alive_at=1.0,
    )
    elsewhere = replace(turn, runner="elsewhere/1/1.00")

    assert psutil.Process(os.getpid()).create_time() == pytest.approx(time.time(), abs=DAY_S)
    assert me.is_alive
    assert not owners.is_gone(owner)
    assert not recorder.has_runner_ended(turn, silent_s=0)
    assert not recorder.has_runner_ended(elsewhere, silent_s=recorder.STALE_S - 1)


@attack(
    "operator",
    "sets the clock three days ahead or back while prompts are scheduled every minute",
    "skipped prompts are not repeated, and the next prompt comes at its time by the new clock",
)
@pytest.mark.parametrize("jump_s", JUMPS)
async def test_schedules_go_by_the_new_clock_without_a_flood(jump_s: float, jump: Jump) -> None:
    said: list[str] = []

    async def handle_message(_principal: object, _thread: str, prompt: str) -> None:
        said.append(prompt)

    async with open_store("sqlite::memory:") as store:
        conversations = SimpleNamespace(key_values=store.key_values, handle_message=handle_message)
        scheduler = schedule._Scheduler(
            cast("ConversationsHandle", SimpleNamespace(conversations=conversations, is_ready=True))
        )
        for number in range(50):
            value: JsonObject = {
                "thread": "t",
                "prompt": "now",
                "cron": "* * * * *",
                "timezone": "UTC",
                "next": time.time() + 60,
                "standing": {"transport": "http", "scopes": []},
            }
            await store.key_values.put(schedule.NAME, Item(owner=CallerId("ada"), id=f"s-{number}", value=value))
        jump(jump_s)
        for _ in range(3):
            await scheduler._run_due()
        coming_s = [item.value["next"] - time.time() for item in await store.key_values.items(schedule.NAME)]
        await scheduler.stop()

    assert said == []
    assert all(0 < left_s <= 60 for left_s in coming_s)
