"""One model of the bus, held against both kinds of store: whatever is done in whatever order, they agree."""

import asyncio
from collections.abc import Awaitable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.postgres import Postgres
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.contracts.errors import Forbidden, InvalidRequest, NotFound, ToolpostError
from toolpost.parts.bus import PART, leases
from toolpost.parts.bus.errors import StaleLease
from toolpost.parts.bus.service import Bus
from toolpost.parts.bus.submission import Submission
from toolpost.parts.bus.tasks import TASK_COLUMNS, BusPolicy, BusTask, TaskId, WorkerName, parse_tasks
from toolpost.store import Store
from toolpost.store.part_migrations import open_part_store
from toolpost.store.scripts import Script, Statement

TASKS = st.sampled_from(["t1", "t2", "t3"])
WORKERS = st.sampled_from(["w1", "w2"])
CALLERS = st.sampled_from(["one", "other", "admin"])
CALLER_OF = {"w1": "one", "w2": "other"}
OVER = ("done", "blocked", "dead", "cancelled")
Result = TypeVar("Result")


class Model:
    """What is known of each task, by what was said to the bus alone."""

    def __init__(self) -> None:
        self.state: dict[str, str] = {}
        self.needs: dict[str, set[str]] = {}
        self.holder: dict[str, str] = {}
        self.tokens: dict[str, list[str]] = {}
        self.completed: dict[str, int] = {}
        self.submitter: dict[str, str] = {}
        self.ended_by: dict[str, str] = {}

    def held_by(self, worker: str) -> str | None:
        return next((task for task, holder in self.holder.items() if holder == worker), None)

    def fresh_state(self, task: str) -> str:
        """`ready` if everything that it needs is done, else `waiting`."""
        return "ready" if all(self.state.get(one) == "done" for one in self.needs[task]) else "waiting"

    def end(self, task: str, state: str) -> None:
        self.state[task] = state
        self.ended_by.pop(task, None)
        self.holder.pop(task, None)
        if state == "done":
            for other in [other for other, known in self.state.items() if known == "waiting"]:
                if task in self.needs[other]:
                    self.state[other] = self.fresh_state(other)


class BusMachine(RuleBasedStateMachine):
    """Plays a planner, two workers and the passing of time."""

    loop: ClassVar[asyncio.AbstractEventLoop]
    store: ClassVar[Store]

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.policy = BusPolicy(
            offer_s=1_000, lease_s=1_000, lease_without_renewal_s=1_000, retry_s=0.0, retry_limit_s=0.0
        )
        self.bus = Bus(self.store, policy=self.policy, capacity=1_000)
        self.run(self.store.scripts.run(_emptied))
        for worker in ("w1", "w2"):
            assert self.run(self.bus.register(worker, worker, by=_caller(CALLER_OF[worker]))) == worker

    def run(self, doing: Awaitable[Result]) -> Result:
        return self.loop.run_until_complete(doing)

    def said(self, doing: Coroutine[Any, Any, Result]) -> Result | type[ToolpostError]:
        """Do it, and return what came of it or what kind of error."""
        try:
            return self.run(doing)
        except ToolpostError as error:
            return type(error)

    @rule(task=TASKS, priority=st.integers(0, 4), needs=st.sets(TASKS, max_size=2), by=CALLERS)
    def submit(self, task: str, priority: int, needs: set[str], by: str) -> None:
        before = self.model.state.get(task)
        wish = Submission(
            task=TaskId(task), priority=priority, needs=tuple(TaskId(one) for one in sorted(needs)), by=by
        )
        said = self.said(self.bus.submit(wish))
        if before in (*OVER, "held"):
            assert said is InvalidRequest
        elif before is not None:
            assert not isinstance(said, type)
        elif any(self.reaches(one, task) for one in needs):
            assert said is InvalidRequest
        else:
            assert not isinstance(said, type)
            self.model.needs[task] = needs
            self.model.submitter[task] = by
            self.model.state[task] = self.model.fresh_state(task)

    def reaches(self, start: str, goal: str) -> bool:
        seen, todo = set(), [start]
        while todo:
            one = todo.pop()
            if one == goal:
                return True
            if one not in seen:
                seen.add(one)
                todo += self.model.needs.get(one, ())
        return False

    @rule(worker=WORKERS, by=CALLERS)
    def poll_as(self, worker: str, by: str) -> None:
        if by != CALLER_OF[worker]:
            assert self.said(self.bus.poll(WorkerName(worker), 0, by=_caller(by))) is Forbidden
        else:
            self.poll(worker)

    def poll(self, worker: str) -> None:
        had = self.model.held_by(worker)
        said = self.said(self.bus.poll(WorkerName(worker), 0, by=_caller(CALLER_OF[worker])))
        if had is not None and self.task(had).state == "running":
            assert said is InvalidRequest
            return
        assert not isinstance(said, type)
        if said.task is None:
            assert not self.ready_for_anybody(), "something was ready, and a poll did not get it"
            return
        task = said.task
        assert task.worker == worker
        assert self.model.state[task.id] == "ready"
        assert task.token is not None
        known = self.model.tokens.setdefault(task.id, [])
        if task.token not in known:
            known.append(task.token)

    @rule(worker=WORKERS)
    def work(self, worker: str) -> None:
        """Take whatever there is, and begin it."""
        self.poll(worker)
        held = next((one for one in self.tasks() if one.worker == worker), None)
        if held is not None:
            self.acknowledge(worker, held.id, with_token=True, by=CALLER_OF[worker])

    @rule(worker=WORKERS, task=TASKS, with_token=st.booleans(), by=CALLERS)
    def acknowledge(self, worker: str, task: str, with_token: bool, by: str) -> None:
        tokens = self.model.tokens.get(task, [])
        token = tokens[-1] if with_token and tokens else None
        held = self.find(task)
        said = self.said(self.bus.acknowledge(WorkerName(worker), TaskId(task), token, by=_caller(by), renews=True))
        if held is None:
            assert said in (NotFound, InvalidRequest)
        elif by != CALLER_OF[worker]:
            assert said is Forbidden
        elif held.worker != worker or (token is not None and token != held.token):
            assert said is StaleLease
        else:
            assert not isinstance(said, type)
            assert said.state == "running"
            self.model.state[task] = "held"
            self.model.holder[task] = worker
            assert said.token is not None
            if said.token not in tokens:
                self.model.tokens.setdefault(task, []).append(said.token)

    @precondition(lambda self: self.model.tokens)
    @rule(data=st.data(), is_good=st.booleans(), by=CALLERS)
    def finish(self, data: st.DataObject, is_good: bool, by: str) -> None:
        """End a task under any token that it ever had, or under none, as its own caller or as another."""
        task = data.draw(st.sampled_from(sorted(self.model.tokens)))
        numbers = st.integers(0, len(self.model.tokens[task]))
        number = data.draw(numbers)  # the tokens themselves are new each time, and would not be found again
        token = [None, *self.model.tokens[task]][number]
        held = self.find(task)
        caller = _caller(by)
        ending = self.bus.complete(TaskId(task), token, None, by=caller)
        if not is_good:
            ending.close()
            ending = self.bus.fail(TaskId(task), token, "no", by=caller)
        said = self.said(ending)
        is_holder = held is not None and held.worker is not None and by == CALLER_OF[held.worker]
        if isinstance(said, type):
            if held is not None and held.state == "running" and is_holder and token in (None, held.token):
                raise AssertionError("whoever has the task could not end it")
            return
        if held is not None:
            assert held.state == "running"
            assert is_holder
            assert token in (None, held.token)
            self.model.end(task, "done" if is_good else "blocked")
            self.model.ended_by[task] = by
            self.model.completed[task] = self.model.completed.get(task, 0) + int(is_good)
        else:
            assert self.model.state[task] == ("done" if is_good else "blocked")
            assert self.model.ended_by[task] == by

    @rule(task=TASKS, by=CALLERS)
    def retry(self, task: str, by: str) -> None:
        held = self.find(task)
        holder = self.model.ended_by.get(task) if held is None else CALLER_OF.get(held.worker or "")
        said = self.said(self.bus.retry(TaskId(task), by=_caller(by)))
        if task not in self.model.state:
            assert said is NotFound
        elif by not in ("admin", self.model.submitter[task], holder):
            assert said is Forbidden
        else:
            assert not isinstance(said, type)
            before = self.model.state[task]
            if before != "waiting":
                self.model.end(task, self.model.fresh_state(task) if before in OVER else "ready")

    @rule(task=TASKS)
    def cancel(self, task: str) -> None:
        said = self.said(self.bus.cancel(TaskId(task), "why not"))
        if task not in self.model.state:
            assert said is NotFound
        elif self.model.state[task] not in OVER:
            assert not isinstance(said, type)
            self.model.end(task, "cancelled")

    @rule(worker=WORKERS, by=CALLERS)
    def reset(self, worker: str, by: str = "admin") -> None:
        had = self.model.held_by(worker)
        said = self.said(self.bus.reset_worker(WorkerName(worker), by=_caller(by)))
        if by not in ("admin", CALLER_OF[worker]):
            assert said is Forbidden
        elif had is not None:
            self.model.end(had, "ready")

    @precondition(lambda self: self.model.holder)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """Let a worker fall silent until its lease has run out."""
        task = data.draw(st.sampled_from(sorted(self.model.holder)))
        attempt = self.task(task).attempt
        self.run(self.store.scripts.run(lambda: _expired(task)))
        self.run(self.swept())
        self.model.end(task, "dead" if attempt >= self.policy.attempts else "ready")

    @precondition(lambda self: self.model.holder)
    @rule(data=st.data())
    def offer_next(self, data: st.DataObject) -> None:
        """Have a task go to the other worker, and the first one say all the same that it is done."""
        task = data.draw(st.sampled_from(sorted(self.model.holder)))
        first = self.model.holder[task]
        self.reset(first)
        self.work("w1" if first == "w2" else "w2")
        self.finish(data, is_good=True, by=data.draw(CALLERS))

    async def swept(self) -> None:
        await self.store.scripts.run(lambda: leases.sweep(self.policy))

    @invariant()
    def agree(self) -> None:
        """What the store has is what the model knows, and every worker has one task at most."""
        tasks, archived, workers = self.run(self.store.scripts.run(_everything))
        active = {task.id: task for task in tasks}
        over = {task.id: task.state for task in archived}
        assert not set(active) & set(over)
        assert over == {task: state for task, state in self.model.state.items() if state in OVER}
        for name, state in self.model.state.items():
            if state == "held":
                assert (active[TaskId(name)].state, active[TaskId(name)].worker) == ("running", self.model.holder[name])
            elif state == "ready":
                assert active[TaskId(name)].state in ("queued", "offered")
            elif state == "waiting":
                assert active[TaskId(name)].state == "waiting"
        holders = [task.worker for task in tasks if task.worker is not None]
        assert len(holders) == len(set(holders))
        assert {worker: task for worker, task in workers if task is not None} == {
            task.worker: task.id for task in tasks if task.worker is not None
        }

    def ready_for_anybody(self) -> bool:
        return any(task.state == "queued" for task in self.tasks())

    def tasks(self) -> list[BusTask]:
        tasks, _, _ = self.run(self.store.scripts.run(_everything))
        return tasks

    def find(self, task: str) -> BusTask | None:
        return next((one for one in self.tasks() if one.id == task), None)

    def task(self, task: str) -> BusTask:
        found = self.find(task)
        assert found is not None
        return found


def _caller(name: str) -> Caller:
    return Caller(id=CallerId(name), transport="http", is_admin=name == "admin")


def _emptied() -> Script[None]:
    for table in ("bus_tasks", "bus_archive", "bus_needs", "bus_workers", "bus_events"):
        yield Statement(f"DELETE FROM {table}")


def _expired(task: str) -> Script[None]:
    yield Statement("UPDATE bus_tasks SET expires_at = 1 WHERE id = ?1", (task,))


def _everything() -> Script[tuple[list[BusTask], list[BusTask], list[tuple[str, str | None]]]]:
    tasks = parse_tasks((yield Statement(f"SELECT {TASK_COLUMNS} FROM bus_tasks ORDER BY id")))
    archived = parse_tasks((yield Statement(f"SELECT {TASK_COLUMNS} FROM bus_archive ORDER BY id")))
    workers = yield Statement("SELECT name, task FROM bus_workers ORDER BY name")
    return tasks, archived, [(name, task) for name, task in workers]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_whatever_is_done_the_bus_is_as_the_model_says(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server: Postgres | None = request.getfixturevalue("postgres") if kind == "postgres" else None
    url = server.new_url() if server is not None else f"sqlite:{tmp_path / 'model.db'}"
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def opened() -> Store:
            return await stack.enter_async_context(open_part_store(url, PART.name, PART.migrations))

        BusMachine.store = runner.run(opened())
        BusMachine.loop = runner.get_loop()
        try:
            run_state_machine_as_test(
                BusMachine,
                settings=settings(
                    max_examples=20,
                    stateful_step_count=25,
                    deadline=None,
                    # What fails is told as it is: making it smaller would take minutes.
                    phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                    database=None,
                ),
            )
        finally:
            runner.run(stack.aclose())
