"""Our own cycles: eight workers and eight submitters on one bus."""

import asyncio
import itertools
import sqlite3
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import uvloop

from bench.load import BenchError
from toolpost.base.caller import OPERATOR
from toolpost.parts.bus import PART
from toolpost.parts.bus.service import Bus
from toolpost.parts.bus.submission import Submission
from toolpost.parts.bus.tasks import TaskId, WorkerName
from toolpost.store.part_migrations import open_part_store

WORKERS = 8
BACKLOG = 64


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Bus]:
    async with open_part_store(url, PART.name, PART.migrations, pool=2 * WORKERS) as store:
        bus = Bus(store)
        async with bus.open_sweeping():
            yield bus


class _Round:
    """One measurement: names of its own, so that rounds can follow each other on one store."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.mark = uuid.uuid4().hex[:8]
        self.numbers = itertools.count()
        self.submitted_at: dict[str, float] = {}
        self.taken_ms: list[float] = []
        self.done = 0
        self.room = asyncio.Semaphore(BACKLOG)
        self.is_over = False

    async def submit(self) -> None:
        name = f"{self.mark}-{next(self.numbers)}"
        self.submitted_at[name] = time.perf_counter()
        await self.bus.submit(Submission(task=TaskId(name), priority=2, payload='{"n":1}'))

    async def work(self, number: int) -> None:
        name = WorkerName(await self.bus.register(f"{self.mark}-{number}", "bench", by=OPERATOR))
        while not self.is_over:
            polled = await self.bus.poll(name, 0.5, by=OPERATOR)
            task = polled.task
            if task is None:
                continue
            if (at := self.submitted_at.pop(task.id, None)) is not None:
                self.taken_ms.append((time.perf_counter() - at) * 1000)
            await self.bus.acknowledge(name, task.id, task.token, by=OPERATOR, renews=True)
            await self.bus.complete(task.id, task.token, '"fine"', by=OPERATOR)
            self.done += 1
            self.room.release()
        await self.bus.reset_worker(name, by=OPERATOR, leaves=True)

    async def feed(self, until: float) -> None:
        while time.perf_counter() < until:
            await self.room.acquire()
            await self.submit()


async def per_second(url: str, seconds: float) -> float:
    """Return how many whole cycles a second there are; every task that was submitted must have been done."""
    async with _opened(url) as bus:
        measured = _Round(bus)
        workers = [asyncio.ensure_future(measured.work(number)) for number in range(WORKERS)]
        began = time.perf_counter()
        await asyncio.gather(*(measured.feed(began + seconds) for _ in range(WORKERS)))
        submitted = next(measured.numbers)
        while measured.done < submitted:
            if time.perf_counter() > began + seconds + 30:
                raise BenchError(f"{submitted} tasks were submitted, {measured.done} are done")
            await asyncio.sleep(0.002)
        took_s = time.perf_counter() - began
        measured.is_over = True
        await asyncio.gather(*workers)
    return measured.done / took_s


async def latency_ms(url: str, rate: float, seconds: float) -> tuple[float, float]:
    """Submit at this rate; return p50 and p99 from the submit to the worker."""
    async with _opened(url) as bus:
        measured = _Round(bus)
        workers = [asyncio.ensure_future(measured.work(number)) for number in range(WORKERS)]
        await asyncio.sleep(0.2)
        began = time.perf_counter()
        waiting = set()
        for number in range(int(rate * seconds)):
            if (ahead_s := began + number / rate - time.perf_counter()) > 0.0005:
                await asyncio.sleep(ahead_s)
            task = asyncio.ensure_future(measured.submit())
            waiting.add(task)
            task.add_done_callback(waiting.discard)
        await asyncio.gather(*waiting)
        await asyncio.sleep(0.5)
        measured.is_over = True
        await asyncio.gather(*workers)
    taken = sorted(measured.taken_ms)
    return taken[len(taken) // 2], taken[int(len(taken) * 0.99)]


async def fill(url: str, finished: int) -> None:
    """Write tasks that are over, with their history, behind the store's back."""
    async with open_part_store(url, PART.name, PART.migrations):
        pass
    path = url.partition(":")[2]
    await asyncio.to_thread(_fill, path, finished)


def _fill(path: str, finished: int) -> None:
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(
            f"{numbers} INSERT INTO bus_archive (id, state, priority, payload, dedupe_key, submitted_by, submitted_at, rank,"
            " not_before, attempt, leases, worker, token, is_fetched, expires_at, reason, result, changed_at)"
            " SELECT printf('old-%08d', i), 'done', 2, '{\"n\":1}', NULL, 'bench', 1.0e9 + i, 1.0e9 + i, 0, 1, 1, 'w',"
            " 'token', 1, NULL, NULL, '\"fine\"', 1.0e9 + i FROM n",
            (finished,),
        )
        for number, kind in enumerate(("submitted", "offered", "acknowledged", "done")):
            connection.execute(
                f"{numbers} INSERT INTO bus_events (task, seq, at, kind, worker, attempt, detail)"
                " SELECT printf('old-%08d', i), 4 * i + ?, 1.0e9 + i, ?, 'w', 1, NULL FROM n",
                (finished, number, kind),
            )


asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
