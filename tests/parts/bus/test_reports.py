"""What became of tasks: read, waited for and listed, on both stores, through clients of both eras."""

import dataclasses
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from mcp import Client

from tests.parts.bus.conftest import OpenBus
from tests.parts.bus.projects import ERAS, Agent, Project
from tests.parts.bus.test_bus import LOST, ME, given, wish, worked
from tests.waiting import until
from tests.ways import OURS, STATELESS
from tests.wire.callers import Project as Callers
from tests.wire.callers import client_of
from toolpost.app import open_app, open_http
from toolpost.base.caller import OPERATOR
from toolpost.contracts.errors import NotFound
from toolpost.parts.bus import service as bus_module
from toolpost.parts.bus.reports import ACTIVE, FINISHED, Position, Summary
from toolpost.parts.bus.service import Bus
from toolpost.parts.bus.tasks import TaskId
from toolpost.settings import Config
from toolpost.settings.model import StoreSettings
from toolpost.store.scripts import Script, Statement
from toolpost.testing import data_of, error_of

pytestmark = pytest.mark.anyio

T = TaskId("t")


@pytest.fixture
def config(url: str, tmp_path: Path) -> Config:
    config = Callers(tmp_path).write("planner", "ada", "eve", "boss\nadmin = true").load()
    return msgspec.structs.replace(config, store=StoreSettings(url=url), plugins=OURS)


@asynccontextmanager
async def opened(config: Config, mode: str, *names: str) -> AsyncIterator[list["Member"]]:
    async with open_app(config) as app, open_http(app) as url, AsyncExitStack() as stack:
        yield [Member(await stack.enter_async_context(client_of(url, f"{name}-token", mode))) for name in names]


class Member(Agent):
    """A caller with a token of its own, on a gateway."""

    async def ask(self, tool: str, **arguments: Any) -> Any:
        return data_of(await self.try_(tool, **arguments))

    async def try_(self, tool: str, **arguments: Any) -> Any:
        return await self.client.call_tool(f"bus__{tool}", arguments)

    async def refused(self, tool: str, **arguments: Any) -> str:
        return str(error_of(await self.try_(tool, **arguments))["code"])


@pytest.mark.wire
@pytest.mark.parametrize("mode", ERAS)
async def test_a_planner_reads_waits_for_and_lists_what_it_handed_over(config: Config, mode: str) -> None:
    async with opened(config, mode, "planner", "ada") as (planner, ada):
        await ada.ask("register_worker", name="w")
        await planner.ask("submit_task", bead_id="good", payload={"n": 1}, priority=1)
        await ada.work("w")
        running = await planner.ask("get_task", bead_id="good")
        await planner.ask("submit_task", bead_id="bad")
        await planner.ask("submit_task", bead_id="later", depends_on=["bad"])
        later = await planner.ask("get_task", bead_id="later")
        waited: dict[str, Any] = {}

        async def wait(name: str, **arguments: Any) -> None:
            waited[name] = await planner.ask("wait_tasks", bead_ids=["bad", "good"], timeout_ms=55_000, **arguments)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: wait("any", all=False))
            tasks.start_soon(lambda: wait("all"))
            await anyio.sleep(0.1)  # the promise holds in either order; this one is the likelier
            await ada.ask("worker_done", bead_id="good", result={"lines": [1, None]})
            await ada.work("w")
            await ada.ask("task_failed", bead_id="bad", reason="no time")
        short = await planner.ask("wait_tasks", bead_ids=["later", "good"], timeout_ms=1)
        good, bad = [await planner.ask("get_task", bead_id=task) for task in ("good", "bad")]
        listed = await planner.ask("list_tasks")
        first = await planner.ask("list_tasks", state="finished", limit=1)
        second = await planner.ask("list_tasks", state="finished", limit=1, cursor=first["next_cursor"])
        blocked = await planner.ask("list_tasks", state="blocked")

    assert (running["state"], running["worker"], running["attempt"], running["payload"]) == (
        "running",
        "w",
        1,
        {"n": 1},
    )
    assert [set(one) for one in running["attempts"]] == [{"attempt", "worker", "started_at"}]
    assert (later["state"], later["waits_for"], later["attempts"]) == ("waiting", ["bad"], [])
    assert "timeout" not in waited["any"]
    assert {one["bead_id"]: one.get("result") for one in waited["any"]["tasks"]}["good"] == {"lines": [1, None]}
    assert [(one["bead_id"], one["state"], one.get("reason")) for one in waited["all"]["tasks"]] == [
        ("bad", "blocked", "no time"),
        ("good", "done", None),
    ]
    assert (short["timeout"], [one["state"] for one in short["tasks"]]) == (True, ["waiting", "done"])
    assert (good["state"], good["result"], good["priority"]) == ("done", {"lines": [1, None]}, 1)
    assert good["submitted_at"] <= good["attempts"][0]["started_at"] <= good["attempts"][0]["ended_at"]
    assert good["attempts"][0]["ended_at"] == good["changed_at"]
    assert [(one["outcome"], one.get("error")) for one in (*good["attempts"], *bad["attempts"])] == [
        ("done", None),
        ("failed", "no time"),
    ]
    assert {one["bead_id"] for one in listed["tasks"]} == {"good", "bad", "later"}
    assert [one["tasks"][0]["bead_id"] for one in (first, second)] == ["bad", "good"]
    assert "next_cursor" not in second
    assert [one["reason"] for one in blocked["tasks"]] == ["no time"]


@pytest.mark.wire
async def test_a_caller_reads_no_more_of_another_s_task_than_the_board_shows(config: Config) -> None:
    async with opened(config, STATELESS, "planner", "ada", "eve", "boss") as (planner, ada, eve, boss):
        await ada.ask("register_worker", name="w")
        tokens = []
        for task in ("done", "blocked", "running"):
            await planner.ask("submit_task", bead_id=task, payload="secret")
            tokens.append((await ada.work("w") or {})["lease_token"])
            if task == "done":
                await ada.ask("worker_done", bead_id=task, result="secret")
            elif task == "blocked":
                await ada.ask("task_failed", bead_id=task, reason="no time")
        await planner.ask("submit_task", bead_id="queued", payload="secret")
        await planner.ask("submit_task", bead_id="waiting", payload="secret", depends_on=["queued"])
        names = ["done", "blocked", "running", "queued", "waiting"]
        on_the_board = [await eve.ask("get_task", bead_id=task) for task in ("blocked", "running", "queued")]
        refused = [await eve.refused("get_task", bead_id=task) for task in ("done", "waiting")]
        refused += [await eve.refused("wait_tasks", bead_ids=[task], timeout_ms=1) for task in names]
        unknown = [await eve.refused("get_task", bead_id="x"), await eve.refused("wait_tasks", bead_ids=["x"])]
        lists = [await one.ask("list_tasks") for one in (planner, ada, eve, boss)]
        results = [(await one.ask("get_task", bead_id="done"))["result"] for one in (planner, ada, boss)]
        told = [await one.ask("get_task", bead_id=task) for one in (planner, ada, boss) for task in names[:3]]

    assert on_the_board[0] == {"bead_id": "blocked", "state": "blocked", "reason": "no time"}
    assert set(on_the_board[1]) == {"bead_id", "state", "worker", "attempt", "lease_expires_at"}
    assert on_the_board[2] == {"bead_id": "queued", "state": "queued"}
    assert refused == ["FORBIDDEN"] * 7
    assert unknown == ["NOT_FOUND"] * 2
    assert [sorted(one["bead_id"] for one in page["tasks"]) for page in lists] == [
        sorted(names),
        ["blocked", "done", "running"],
        [],
        sorted(names),
    ]
    assert results == ["secret"] * 3
    assert not any(token in json.dumps([told, lists, on_the_board]) for token in tokens)


@pytest.mark.wire
async def test_what_a_page_does_not_hold_is_on_the_next_and_a_wrong_cursor_is_refused(config: Config) -> None:
    async with opened(config, STATELESS, "planner") as (planner,):
        for number in range(7):
            await planner.ask("submit_task", bead_id=f"t-{number}")
        found: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            page = await planner.ask("list_tasks", limit=3, state="active", **cursor)
            found += [one["bead_id"] for one in page["tasks"]]
            if "next_cursor" not in page:
                break
            cursor = {"cursor": page["next_cursor"]}
        wrong = [await planner.refused("list_tasks", cursor=bad) for bad in ("x", "bm8=", "WzEsMl0=", "ä", "W10=")]

    assert found == [f"t-{number}" for number in reversed(range(7))]
    assert wrong == ["INVALID_PARAMS"] * 5


def over(found: tuple[list[Summary], dict[TaskId, str]]) -> list[str]:
    return [one.state for one in found[0]]


async def ended(bus: Bus, how: Callable[[], Any], *, elsewhere: Bus | None = None) -> tuple[list[str], float]:
    """Wait for a task in one process while it is ended in another; how it stood, and the seconds from its end to the answer."""
    waited: list[tuple[list[str], float]] = []

    async def wait() -> None:
        waiting = elsewhere or bus
        states = over(await waiting.wait_tasks([T, TaskId("done")], 60, by=ME, wants_all=True))
        waited.append((states, time.perf_counter()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await until(lambda: bus._store.scripts.read(_watches))
        await how()
        since = time.perf_counter()
    states, at = waited[0]
    return states, at - since


@pytest.mark.parametrize("how", ["done", "failed", "cancelled"])
async def test_the_end_of_a_task_wakes_a_waiter_in_another_process(
    open_bus: OpenBus, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only the wake-up is left.
    monkeypatch.setattr(bus_module, "RECHECK_S", 100.0)
    async with open_bus() as bus, open_bus() as elsewhere:
        name = await bus.register("ada", "me", by=ME)
        for task in ("done", "t"):
            await bus.submit(wish(task))
            await worked(bus, name)
            if task == "done":
                await bus.complete(TaskId(task), None, None, by=ME)
        ways = {
            "done": lambda: bus.complete(T, None, '"fine"', by=ME),
            "failed": lambda: bus.fail(T, None, "no", by=ME),
            "cancelled": lambda: bus.cancel(T, "no"),
        }
        states, waited_s = await ended(bus, ways[how], elsewhere=elsewhere)
        left = await bus._store.scripts.read(_watches)

    assert states == [{"failed": "blocked"}.get(how, how), "done"]
    assert waited_s < 30
    assert left == []


async def test_a_task_that_is_given_up_wakes_its_waiter(open_bus: OpenBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_module, "RECHECK_S", 100.0)
    async with open_bus(policy=dataclasses.replace(LOST, attempts=2)) as bus:
        name = await bus.register("ada", "me", by=ME)
        await bus.submit(wish("t"))
        began = time.monotonic()

        async def lose() -> None:
            await worked(bus, name)
            await anyio.sleep(0.5)  # longer than the lease
            await worked(bus, name)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lose)
            states = over(await bus.wait_tasks([T], 90, by=ME, wants_all=True))
        waited_s = time.monotonic() - began
        report = await bus.read_task(T, by=ME)

    assert states == ["dead"]
    assert waited_s < 60
    assert [(one.number, one.outcome, one.error) for one in report.attempts] == [
        (1, "lease_expired", "its worker went silent"),
        (2, "lease_expired", "its worker went silent"),
    ]
    assert report.task.reason == "its worker went silent 2 times"


async def test_a_missed_wake_up_is_made_up_for(open_bus: OpenBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_module, "RECHECK_S", 0.1)
    async with open_bus() as bus:
        monkeypatch.setattr(bus, "_ring_end", lambda _task: None)
        name = await bus.register("ada", "me", by=ME)
        await bus.submit(wish("done"))
        await worked(bus, name)
        await bus.complete(TaskId("done"), None, None, by=ME)
        await bus.submit(wish("t"))
        await worked(bus, name)
        states, waited_s = await ended(bus, lambda: bus.complete(T, None, None, by=ME))

    assert states == ["done", "done"]
    assert waited_s < 30


async def test_a_waiter_that_goes_away_or_crashes_leaves_nothing_behind(open_bus: OpenBus) -> None:
    async with open_bus(policy=LOST) as bus:
        await bus.submit(wish("t"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: bus.wait_tasks([T], 20, by=ME, wants_all=True))
            with anyio.fail_after(30):
                while not (while_waiting := await bus._store.scripts.read(_watches)):
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
        after = await bus._store.scripts.read(_watches)
        await bus._store.scripts.run(
            lambda: iterate(Statement("INSERT INTO bus_watches (task, waiter, until) VALUES ('t', 'crashed', 1)"))
        )
        with anyio.fail_after(30):
            while await bus._store.scripts.read(_watches):
                await anyio.sleep(0.01)

    assert [row[0] for row in while_waiting] == ["t"]
    assert after == []


def iterate(statement: Statement) -> Script[None]:
    yield statement


def _watches() -> Script[list[Any]]:
    return [tuple(row) for row in (yield Statement("SELECT task, waiter FROM bus_watches"))]


async def test_attempts_are_told_as_they_ended_also_after_a_retry(open_bus: OpenBus) -> None:
    async with open_bus() as bus:
        name = await bus.register("ada", "me", by=ME)
        await bus.submit(wish("t"))
        await given(bus, name)
        await bus.reset_worker(name, by=ME)  # offered, not begun: no attempt
        await worked(bus, name)
        await bus.reset_worker(name, by=ME)
        await worked(bus, name)
        await bus.retry(T, by=ME)
        await worked(bus, name)
        await bus.fail(T, None, "no money", by=ME)
        await bus.retry(T, by=ME)
        await worked(bus, name)
        report = await bus.read_task(T, by=ME)
        with pytest.raises(NotFound):
            await bus.read_task(TaskId("x"), by=ME)

    assert [(one.number, one.outcome, one.error) for one in report.attempts] == [
        (1, "reset", "its worker was reset"),
        (2, "taken_away", "it was retried while it ran"),
        (3, "failed", "no money"),
        (1, None, None),
    ]


async def test_results_that_do_not_fit_into_one_answer_are_left_to_get_task(open_bus: OpenBus) -> None:
    async with open_bus() as bus:
        name = await bus.register("ada", "me", by=ME)
        names = [TaskId(f"t-{number}") for number in range(3)]
        for task, chars in zip(names, (200_000, 100_000, 50_000), strict=True):
            await bus.submit(wish(task))
            await worked(bus, name)
            await bus.complete(task, None, json.dumps("x" * (chars - 2)), by=ME)
        summaries, results = await bus.wait_tasks(names, 0, by=ME, wants_all=True)

    assert [one.result_chars for one in summaries] == [200_000, 100_000, 50_000]
    assert list(results) == ["t-0", "t-2"]


async def test_a_list_of_many_finished_tasks_reads_only_its_page(open_bus: OpenBus) -> None:
    def fill() -> Script[None]:
        yield Statement(
            "INSERT INTO bus_archive (id, state, priority, payload, submitted_by, submitted_at, rank, not_before, attempt,"
            " leases, is_fetched, changed_at) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)"
            " SELECT 't-' || i, 'done', 2, 'p', CASE WHEN i % 1000 = 0 THEN 'me' ELSE 'other' END, i, i, 0, 1, 1, 1, i / 10"
            " FROM n"
        )

    async with open_bus() as bus:
        await bus._store.scripts.run(fill)
        own, everything = [
            [(await bus.list_tasks(states, by=by, limit=100)).tasks for states in ((*ACTIVE, *FINISHED), ("done",))]
            for by in (ME, OPERATOR)
        ]
        page = await bus.list_tasks(FINISHED, by=ME, limit=2, after=Position(300.0, "t-3000"))

    assert (
        [one.id for one in own[0]] == [one.id for one in own[1]] == [f"t-{n}" for n in (5000, 4000, 3000, 2000, 1000)]
    )
    assert len(everything[0]) == 100
    assert [one.id for one in everything[0][:3]] == ["t-5000", "t-4999", "t-4998"]
    assert [one.id for one in page.tasks] == ["t-2000", "t-1000"]
    assert page.next is None


@pytest.mark.wire
@pytest.mark.parametrize(("url", "mode"), [("sqlite", "legacy"), ("postgres", STATELESS)], indirect=["url"])
async def test_an_agent_reads_results_through_bus_connect(project: Project, url: str, mode: str) -> None:
    project.make(store_url=url)
    async with project.client(mode=mode) as planner, project.client(mode=STATELESS) as worker:
        await worker.ask("register_worker", name="w")
        await planner.ask("submit_task", bead_id="t")
        await worker.work("w")
        waited: list[Any] = []

        async def wait() -> None:
            waited.append(await planner.ask("wait_tasks", bead_ids=["t"], timeout_ms=55_000))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.sleep(0.2)  # the promise holds in either order; this one is the likelier
            await worker.ask("worker_done", bead_id="t", result=[1])
        read = await planner.ask("get_task", bead_id="t")
        listed = await planner.ask("list_tasks", state="done")
        unknown = error_of(await planner.try_("get_task", bead_id="x"))
        quick = await planner.ask("wait_tasks", bead_ids=["t"], timeout_ms=0)
        by_hand = await anyio.to_thread.run_sync(project.json, "tasks", "--state", "finished")

    assert waited[0] == quick
    assert (waited[0]["tasks"][0]["state"], waited[0]["tasks"][0]["result"]) == ("done", [1])
    assert (read["result"], len(read["attempts"])) == ([1], 1)
    assert [one["bead_id"] for one in listed["tasks"]] == ["t"]
    assert by_hand == listed
    assert unknown["code"] == "NOT_FOUND"


@pytest.mark.soak
async def test_a_wait_through_bus_connect_outlives_a_server_that_is_killed(project: Project) -> None:
    project.make()
    async with project.client() as planner:
        await planner.ask("submit_task", bead_id="t")
        waited: list[Any] = []

        async def wait() -> None:
            waited.append(await planner.ask("wait_tasks", bead_ids=["t"], timeout_ms=50_000))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.sleep(0.3)  # the promise holds in either order; this one is the likelier
            project.kill_server()
            await anyio.to_thread.run_sync(project.run, "cancel", "t")

    assert waited[0]["tasks"][0]["state"] == "cancelled"


@pytest.mark.wire
async def test_a_client_that_goes_away_ends_its_wait(config: Config) -> None:
    async with open_app(config) as app, open_http(app) as url:
        async with client_of(url, "planner-token", STATELESS) as client:
            await Member(client).ask("submit_task", bead_id="t")
            await _give_up_waiting(client)
        with anyio.fail_after(30):
            while await app.store.scripts.read(_watches):
                await anyio.sleep(0.01)


async def _give_up_waiting(client: Client) -> None:
    with anyio.move_on_after(0.3):
        await client.call_tool("bus__wait_tasks", {"bead_ids": ["t"]})
