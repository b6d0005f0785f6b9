"""Tasks and workers: nothing lost, nothing done twice unknowingly, nothing stuck."""

import asyncio
import dataclasses
import threading
from functools import partial
from typing import Any, cast

import anyio
import pytest

from tests.parts.bus.conftest import OpenBus
from tests.postgres import Postgres
from tests.waiting import until
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.contracts.errors import InvalidRequest, NotFound, QueueOverloaded, StoreUnavailable
from toolpost.fairness import Callers
from toolpost.parts.bus import PART, service, submission
from toolpost.parts.bus.errors import StaleLease
from toolpost.parts.bus.service import Bus
from toolpost.parts.bus.submission import Submission, SubmitResult
from toolpost.parts.bus.tasks import BusPolicy, TaskId, WorkerName, WorkerTask
from toolpost.parts.bus.workers import PollAnswer
from toolpost.store.part_migrations import open_part_store
from toolpost.store.scripts import Script, Statement

pytestmark = [pytest.mark.anyio, pytest.mark.every_store]

ME = Caller(id=CallerId("me"), transport="memory")
LOST = BusPolicy(lease_s=0.3, lease_without_renewal_s=0.3, retry_s=0.05, retry_limit_s=0.2, sweep_s=0.05)
"""What a worker has begun is soon lost; until then it has the usual time, so that no test has to be quick."""


def wish(task: str, priority: int = 2, by: str = ME.id, **options: object) -> Submission:
    return Submission(task=TaskId(task), priority=priority, by=by, **options)  # type: ignore[arg-type]


def keep_leases(bus: Bus) -> None:
    """Give the tasks that are handed out from now on the usual time."""
    bus.policy = dataclasses.replace(bus.policy, offer_s=60, lease_s=60, lease_without_renewal_s=60)


async def given(bus: Bus, name: str, wait_s: float = 30) -> WorkerTask:
    polled = await bus.poll(WorkerName(name), wait_s, by=ME)
    assert polled.task is not None
    return polled.task


async def worked(bus: Bus, name: str) -> WorkerTask:
    task = await given(bus, name)
    await bus.acknowledge(WorkerName(name), task.id, task.token, renews=True, by=ME)
    return task


async def test_a_task_goes_its_whole_way(open_bus: OpenBus) -> None:
    async with open_bus() as bus:
        name = await bus.register("ada", "me", by=ME)
        submitted = await bus.submit(wish("a-1", payload='{"n":1}'))
        task = await worked(bus, name)
        await bus.complete(task.id, task.token, '"fine"', by=ME)
        ended, events = await bus.history(task.id)
        after = await bus.overview()

    assert submitted.worker == "ada"
    assert task.payload_json == {"n": 1}
    assert (ended.state, ended.result_json, ended.attempt) == ("done", "fine", 1)
    assert [one.kind for one in events] == ["submitted", "offered", "acknowledged", "done"]
    assert after.counts == {}


async def test_a_poll_that_waits_is_woken_at_once(open_bus: OpenBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "CHECK_POLLS_S", 1e9)  # so that it is not found by looking
    async with open_bus() as bus, open_bus() as elsewhere:
        name = await bus.register("ada", "me", by=ME)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: given(bus, name, wait_s=100))
            await _until_polling(bus, name)
            with anyio.fail_after(30):  # long before the poll ends by itself
                submitted = await elsewhere.submit(wish("a-1"))
                await _until_polling(elsewhere, name, is_polling=False)

    assert submitted.worker == "ada"


async def test_priorities_come_first_and_age(open_bus: OpenBus) -> None:
    def wait_long() -> Script[None]:
        yield Statement("UPDATE bus_tasks SET rank = rank - 450, submitted_at = submitted_at - 450")

    async with open_bus(policy=BusPolicy(priority_s=100)) as bus:
        await bus.submit(wish("old and idle", 4))
        await bus._store.scripts.run(wait_long)
        positions = [(await bus.submit(wish(f"p{priority}", priority))).position for priority in (4, 0, 2)]
        name = await bus.register("ada", "me", by=ME)
        order = []
        for _ in range(4):
            task = await worked(bus, name)
            order.append(task.id)
            await bus.complete(task.id, task.token, None, by=ME)

    assert positions == [2, 2, 3]
    assert order == ["old and idle", "p0", "p2", "p4"]


async def test_what_is_not_acknowledged_goes_back(open_bus: OpenBus) -> None:
    async with open_bus(policy=BusPolicy(offer_s=0.2, sweep_s=0.05)) as bus:
        names = [await bus.register("ada", "me", by=ME), await bus.register("bob", "me", by=ME)]
        await bus.submit(wish("a-1"))
        first = await given(bus, names[0])
        keep_leases(bus)
        second = await worked(bus, names[1])
        with pytest.raises(StaleLease):
            await bus.acknowledge(names[0], first.id, first.token, renews=True, by=ME)
        await bus.complete(second.id, second.token, None, by=ME)

    assert first.id == second.id
    assert first.token != second.token


async def test_a_lost_worker_s_task_is_done_by_another_and_its_late_word_is_refused(open_bus: OpenBus) -> None:
    async with open_bus(policy=LOST) as bus:
        names = [await bus.register("ada", "me", by=ME), await bus.register("bob", "me", by=ME)]
        await bus.submit(wish("a-1"))
        lost = await worked(bus, names[0])
        keep_leases(bus)
        kept = await worked(bus, names[1])
        with pytest.raises(StaleLease):
            await bus.complete(lost.id, lost.token, None, by=ME)
        await bus.complete(kept.id, kept.token, None, by=ME)
        again = await bus.complete(kept.id, kept.token, None, by=ME)
        with pytest.raises(StaleLease):
            await bus.complete(lost.id, lost.token, None, by=ME)

    assert again.state == "done"
    assert kept.attempt == 1


async def test_three_attempts_and_it_is_dead_and_can_be_revived(open_bus: OpenBus) -> None:
    async with open_bus(policy=LOST) as bus:
        name = await bus.register("ada", "me", by=ME)
        await bus.submit(wish("a-1"))
        for _ in range(3):
            task = await worked(bus, name)
            with anyio.fail_after(20):
                while (await bus.history(task.id))[0].state == "running":
                    await anyio.sleep(0.05)
        keep_leases(bus)
        dead = (await bus.overview()).troubled
        revived = await bus.retry(TaskId("a-1"), by=ME)
        task = await worked(bus, name)
        await bus.complete(task.id, task.token, None, by=ME)

    assert [(task.id, task.state) for task in dead] == [("a-1", "dead")]
    assert revived == SubmitResult(
        task=TaskId("a-1"), worker=revived.worker, position=revived.position, offered=revived.offered
    )


async def test_a_lease_that_is_renewed_does_not_run_out(open_bus: OpenBus) -> None:
    async with open_bus() as bus:
        name = await bus.register("ada", "me", by=ME)
        await bus.submit(wish("a-1"))
        task = await given(bus, name)
        ends = []
        for _ in range(3):
            lease = await bus.acknowledge(name, task.id, task.token, renews=True, by=ME)
            ends.append(lease.expires_at or 0)
            await anyio.sleep(0.02)
        ended = await bus.complete(task.id, task.token, None, by=ME)

    assert ends == sorted(set(ends)), "each time it ends later"
    assert ends[-1] - ends[0] >= 0.03
    assert ended.attempt == 1


async def test_dependencies_are_waited_for_and_circles_refused(open_bus: OpenBus) -> None:
    async with open_bus() as bus:
        name = await bus.register("ada", "me", by=ME)
        last = await bus.submit(wish("c", needs=(TaskId("a"), TaskId("b"))))
        await bus.submit(wish("b", needs=(TaskId("a"),)))
        with pytest.raises(InvalidRequest, match="would wait for itself"):
            await bus.submit(wish("a", needs=(TaskId("c"),)))
        with pytest.raises(InvalidRequest, match="would wait for itself"):
            await bus.submit(wish("x", needs=(TaskId("x"),)))
        await bus.submit(wish("a"))
        order = []
        for _ in range(3):
            task = await worked(bus, name)
            order.append(task.id)
            await bus.complete(task.id, task.token, None, by=ME)

    assert last.waits_for == ("a", "b")
    assert order == ["a", "b", "c"]


async def test_of_two_servers_that_close_a_circle_at_the_same_moment_one_is_refused(open_bus: OpenBus) -> None:
    said: list[tuple[object, object]] = []
    async with open_bus() as bus, open_bus() as elsewhere:
        for number in range(20):
            one, other = TaskId(f"{number}-one"), TaskId(f"{number}-other")
            said.append(
                await asyncio.gather(
                    bus.submit(wish(one, needs=(other,))),
                    elsewhere.submit(wish(other, needs=(one,))),
                    return_exceptions=True,
                )
            )

    assert [sorted(type(one).__name__ for one in both) for both in said] == [["InvalidRequest", "SubmitResult"]] * 20


async def test_one_caller_submits_at_most_their_share(open_bus: OpenBus) -> None:
    callers = Callers()
    callers.are_several = True
    async with open_bus(capacity=4, callers=callers) as bus:
        for task in ("a", "b"):
            await bus.submit(wish(task, by="ada"))
        with pytest.raises(QueueOverloaded) as refused:
            await bus.submit(wish("c", by="ada"))
        again = await bus.submit(wish("a", by="ada"))
        await bus.submit(wish("d", by="bob"))

    assert refused.value.is_own
    assert refused.value.details["limit"] == 2
    assert (again.task, again.position) == ("a", 1)


async def test_submitting_twice_is_submitting_once(open_bus: OpenBus) -> None:
    async with open_bus(capacity=2) as bus:
        first = await bus.submit(wish("a", dedupe_key="k"))
        again = await bus.submit(wish("a", dedupe_key="k"))
        other = await bus.submit(wish("b", dedupe_key="k"))
        await bus.submit(wish("c"))
        with pytest.raises(QueueOverloaded):
            await bus.submit(wish("d"))
        name = await bus.register("ada", "me", by=ME)
        task = await worked(bus, name)
        with pytest.raises(InvalidRequest, match="is with the worker `ada` already"):
            await bus.submit(wish("a"))
        await bus.complete(task.id, None, None, by=ME)
        with pytest.raises(InvalidRequest, match="is over: done"):
            await bus.submit(wish("a"))

    assert (first.position, again.position) == (1, 1)
    assert (other.task, other.is_duplicate) == ("a", True)


async def test_a_poll_that_is_given_up_gives_its_offer_back(open_bus: OpenBus) -> None:
    async with open_bus() as bus:
        names = [await bus.register(name, "me", by=ME) for name in ("ada", "bob")]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(bus.poll, names[0], 5, by=ME))
            await _until_polling(bus, "ada")
            tasks.cancel_scope.cancel()
        await bus.submit(wish("a"))
        task = await given(bus, names[1], 1)

    assert task.worker == "bob"


async def test_a_poll_that_ends_while_the_store_is_away_waits_no_more(
    open_bus: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_bus() as bus:
        name = await bus.register("ada", "me", by=ME)

        async def away(*_: object, **__: object) -> None:
            raise StoreUnavailable("the database is away")

        with monkeypatch.context() as patched:
            patched.setattr(bus, "_end_poll", away)
            with pytest.raises(StoreUnavailable):
                await bus.poll(name, 0.01, by=ME)

        assert not bus._waiting


async def test_a_reset_answers_a_poll_and_frees_a_task(open_bus: OpenBus) -> None:
    async with open_bus() as bus:
        name = await bus.register("ada", "me", by=ME)
        polled: list[PollAnswer] = []

        async def poll() -> None:
            polled.append(await bus.poll(name, 60, by=ME))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(poll)
            await _until_polling(bus, name)
            nothing = await bus.reset_worker(name, by=ME)
        await bus.submit(wish("a"))
        await worked(bus, name)
        freed = await bus.reset_worker(name, by=ME)
        other = await bus.register("ada", "somebody else", by=ME)
        task = await given(bus, other, 1)

    assert (nothing, polled[0].was_reset, freed) == (None, True, "a")
    assert (other, task.worker) == ("ada-1", "ada-1")


async def test_who_is_not_there_is_named(open_bus: OpenBus) -> None:
    async with open_bus() as bus:
        with pytest.raises(NotFound, match="Unknown worker"):
            await bus.poll(WorkerName("nobody"), 1, by=ME)
        with pytest.raises(NotFound, match="Unknown task"):
            await bus.complete(TaskId("nothing"), None, None, by=ME)
        name = await bus.register("ada", "me", by=ME)
        await bus.submit(wish("a"))
        task = await given(bus, name)
        with pytest.raises(InvalidRequest, match="has not been acknowledged"):
            await bus.complete(task.id, None, None, by=ME)
        await bus.acknowledge(name, task.id, None, renews=False, by=ME)
        with pytest.raises(InvalidRequest, match="has the task `a`"):
            await bus.poll(name, 1, by=ME)
        failed = await bus.fail(task.id, None, "no time", by=ME)
        blocked, _ = await bus.history(task.id)

    assert failed.id == "a"
    assert (blocked.state, blocked.reason) == ("blocked", "no time")


async def test_a_second_poll_takes_the_place_of_the_first(open_bus: OpenBus) -> None:
    async with open_bus() as bus, open_bus() as elsewhere:
        name = await bus.register("ada", "me", by=ME)
        polled: list[PollAnswer] = []

        async def poll(where: Bus) -> None:
            polled.append(await where.poll(name, 60, by=ME))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(poll, bus)
            await _until_polling(bus, name)
            tasks.start_soon(poll, elsewhere)
            await until(lambda: polled)
            await bus.submit(wish("a"))

    assert polled[0].is_superseded
    assert polled[1].task is not None


async def test_an_offer_that_nobody_fetches_is_passed_on_to_who_polls(open_bus: OpenBus) -> None:
    async with open_bus() as bus:
        absent = await bus.register("absent", "me", by=ME)
        submitted = await bus.submit(wish("a"))
        present = await bus.register("present", "you", by=ME)
        task = await given(bus, present, 1)

    assert (submitted.worker, task.worker) == (absent, present)


async def test_an_offer_that_was_fetched_is_not_passed_on(open_bus: OpenBus) -> None:
    async with open_bus() as bus:
        await bus.register("ada", "me", by=ME)
        await bus.submit(wish("a-1"))
        await bus.submit(wish("a-2"))
        first = await worked(bus, "ada")
        await bus.complete(first.id, first.token, None, by=ME)
        kept = await given(bus, "ada", wait_s=0.01)
        await bus.register("bob", "me", by=ME)
        await anyio.sleep(0.05)  # by now the poll of the first worker would have ended
        other = await bus.poll(WorkerName("bob"), 0.05, by=ME)
        begun = await bus.acknowledge(WorkerName("ada"), kept.id, kept.token, renews=True, by=ME)

    assert (kept.id, kept.leases) == ("a-2", 1)
    assert other.task is None
    assert begun.state == "running"


async def test_who_waits_has_the_next_task_before_who_has_just_done_one(open_bus: OpenBus) -> None:
    async with open_bus() as bus, anyio.create_task_group() as tasks:
        await bus.register("ada", "me", by=ME)
        await bus.register("bob", "me", by=ME)
        await bus.submit(wish("a-1"))
        first = await worked(bus, "ada")
        taken: list[WorkerTask] = []

        async def wait() -> None:
            taken.append(await given(bus, "bob"))

        tasks.start_soon(wait)
        await _until_polling(bus, "bob")
        await bus.complete(first.id, first.token, None, by=ME)
        idle = {worker.name: worker for worker in (await bus.overview()).workers}[WorkerName("ada")]
        submitted = await bus.submit(wish("a-2"))

    assert (idle.task, idle.poll) == (None, None)
    assert submitted.worker == "bob"
    assert [task.id for task in taken] == ["a-2"]


async def _until_polling(bus: Bus, name: str, *, is_polling: bool = True) -> None:
    with anyio.fail_after(30):
        while any(w.name == name and w.poll is not None for w in (await bus.overview()).workers) != is_polling:
            await anyio.sleep(0.01)


async def test_a_worker_that_leaves_is_forgotten_and_its_name_is_free(open_bus: OpenBus) -> None:
    async with open_bus(policy=BusPolicy(sweep_s=0.05)) as bus:
        name = await bus.register("ada", "me", by=ME)
        again = await bus.register("ada", "me", by=ME)
        await bus.submit(wish("a"))
        await given(bus, name)
        task = await bus.reset_worker(name, leaves=True, by=ME)
        after = await bus.overview()
        await bus.register("bob", "me", by=ME)
        await worked(bus, WorkerName("bob"))
        busy = await bus.reset_worker(WorkerName("bob"), leaves=True, by=ME)
        done = await bus.complete(TaskId("a"), (await bus.history(TaskId("a")))[0].token, None, by=ME)
        bus.policy = dataclasses.replace(bus.policy, forget_s=0.2)
        with anyio.fail_after(30):
            while (last := await bus.overview()).workers:
                await anyio.sleep(0.02)

    assert (name, again, task) == ("ada", "ada", "a")
    assert after.workers == []
    assert busy is None
    assert done.worker == "bob"
    assert last.workers == []


async def test_what_is_retried_waits_for_what_it_needs(open_bus: OpenBus) -> None:
    async with open_bus() as bus:
        name = await bus.register("ada", "me", by=ME)
        await bus.submit(wish("b", needs=(TaskId("a"),)))
        await bus.cancel(TaskId("b"), "later")
        retried = await bus.retry(TaskId("b"), by=ME)
        nothing = await bus.poll(name, 0, by=ME)

    assert retried.waits_for == ("a",)
    assert nothing.task is None


async def test_a_task_that_ended_before_its_ender_was_recorded_is_over_for_anybody(url: str, open_bus: OpenBus) -> None:
    def before() -> Script[None]:
        yield Statement(
            "INSERT INTO bus_archive (id, state, priority, submitted_by, submitted_at, rank, not_before, attempt, leases,"
            " worker, token, is_fetched, result, changed_at)"
            " VALUES ('old', 'done', 2, 'me', 1, 1, 0, 1, 2, 'ada', 'x', 1, '1', 1)"
        )

    async with open_part_store(url, PART.name, PART.migrations) as store:
        await store.scripts.run(before)
    person = Caller(id=CallerId("oauth:a person"), transport="http")
    async with open_bus(policy=BusPolicy(forget_s=1e12)) as bus:
        again = await bus.complete(TaskId("old"), None, "1", by=person)
        with pytest.raises(InvalidRequest, match="over with another result"):
            await bus.complete(TaskId("old"), None, "2", by=person)

    assert again.state == "done"


async def test_a_word_without_a_token_counts_for_the_worker_of_the_same_caller_that_has_the_task(
    open_bus: OpenBus,
) -> None:
    async with open_bus(policy=LOST) as bus:
        names = [await bus.register("ada", "me", by=ME), await bus.register("bob", "me", by=ME)]
        await bus.submit(wish("a-1"))
        await worked(bus, names[0])
        keep_leases(bus)
        kept = await worked(bus, names[1])
        done = await bus.complete(kept.id, None, None, by=ME)

    assert (done.worker, kept.leases) == ("bob", 2)


@pytest.mark.wire
async def test_a_task_that_is_done_while_it_is_submitted_again_is_not_done_twice(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, submit, lives = postgres.new_url(), submission.submit, 1

    async def live() -> None:
        async with open_part_store(url, PART.name, PART.migrations) as store:
            bus = Bus(store)
            async with bus.open_sweeping():
                name = await bus.register("ada", "me", by=ME)
                await bus.submit(wish("a-1"))
                task = await worked(bus, name)
                await bus.complete(task.id, task.token, None, by=ME)

    def live_elsewhere() -> None:
        thread = threading.Thread(target=asyncio.run, args=(live(),))
        thread.start()
        thread.join()

    def submit_slowly(*values: Any) -> Script[SubmitResult]:
        """Submit, but right before the insert another gateway submits the same task, and has it done."""
        nonlocal lives
        script = submit(*values)
        step = next(script)
        while True:
            if lives and "INSERT INTO bus_tasks" in getattr(step, "sql", ""):
                lives -= 1
                live_elsewhere()
            try:
                step = script.send((yield step))
            except StopIteration as end:
                return cast("SubmitResult", end.value)

    monkeypatch.setattr(submission, "submit", submit_slowly)
    async with open_part_store(url, PART.name, PART.migrations) as store:
        bus = Bus(store)
        with pytest.raises(InvalidRequest, match="is over: done"):
            await bus.submit(wish("a-1"))
        left = await bus.overview()

    assert lives == 0
    assert left.counts == {}, "it is not queued again"
