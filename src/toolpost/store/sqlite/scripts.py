"""Runs scripts in SQLite: writing scripts in groups on one connection, reading scripts on separate connections."""

import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from toolpost.base.clocks import boot_id, steady_s
from toolpost.contracts.errors import GatewayError
from toolpost.store.clock import ClockReading, Correction, StoreClock
from toolpost.store.scripts import NOW, Batch, Many, Result, Row, Script, Statement, only_reading
from toolpost.store.sqlite.connection import open_reader
from toolpost.store.sqlite.group_commit import GroupCommit

Make = Callable[[], Script[Any]]


class ScriptRunner:
    """Runs scripts within a transaction that is open, with the clock of the store."""

    def __init__(self, clock: StoreClock) -> None:
        self.clock = clock

    def run_script(self, connection: sqlite3.Connection, script: Script[Result]) -> Result:
        """Run one script to its end, and return its result."""
        (result,) = self._run_each(connection, [lambda: script])
        return result  # type: ignore[no-any-return]

    def run_all(self, connection: sqlite3.Connection, makes: Sequence[Make]) -> list[Any]:
        """Run scripts one after the other, and return their results; within a transaction that may write."""
        if self.clock.is_due:
            synchronize_clock(connection, self.clock)
        return self._run_each(connection, makes)

    def _run_each(self, connection: sqlite3.Connection, makes: Sequence[Make]) -> list[Any]:
        cursor = connection.cursor()
        waiting: list[Statement] = []
        # One time for all scripts of the transaction.
        now: list[Row] = [(self.clock.now(),)]
        results = [_run_script(cursor, make(), waiting, now) for make in makes]
        if waiting:
            _run_batched(cursor, waiting)
        return results


class SqliteReaders:
    """A few connections that cannot write, used in worker threads; opened when first needed, and kept."""

    def __init__(self, path: Path, *, busy_timeout_s: float, most: int = 4) -> None:
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._most = most
        self._limiter = anyio.CapacityLimiter(most)
        self._idle: list[sqlite3.Connection] = []

    async def read(self, job: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run a job that sees one state of the database from beginning to end."""

        def read() -> Result:
            connection = self._idle.pop() if self._idle else open_reader(self._path, self._busy_timeout_s)
            try:
                connection.execute("BEGIN")
                result = job(connection)
                connection.execute("ROLLBACK")
            except BaseException:
                connection.close()
                raise
            self._idle.append(connection)
            return result

        return await anyio.to_thread.run_sync(read, limiter=self._limiter)

    async def aclose(self) -> None:
        """Close the connections, once those in use are back."""
        with anyio.CancelScope(shield=True):
            for _ in range(self._most):
                await self._limiter.acquire_on_behalf_of(object())
        while self._idle:
            self._idle.pop().close()


class SqliteScripts:
    """One writer, so that no script ever waits for another's lock."""

    def __init__(
        self,
        runner: ScriptRunner,
        writer: GroupCommit,
        readers: SqliteReaders | None,
        *,
        explain: Callable[[BaseException], Exception],
    ) -> None:
        """Without `readers` the writer also reads: a database in memory belongs to one connection."""
        self._runner = runner
        self._writer = writer
        self._readers = readers
        self._explain = explain
        self._is_closed = False

    def run(
        self,
        make: Callable[[], Script[Result]],
        *,
        durable: bool = True,
        is_short: bool = False,
        repeatable: bool = True,  # noqa: ARG002 - whether a commit was kept is always known here
    ) -> Awaitable[Result]:
        """Run a script; done when it is committed, with `durable` when it survives a power cut."""
        return self._writer.submit(make, durable=durable, is_short=is_short)

    async def read(self, make: Callable[[], Script[Result]]) -> Result:
        """Run a script that changes nothing, in a worker thread, on one state of the database."""
        if self._is_closed:
            raise GatewayError("the store is closed")
        if self._readers is None:
            result: Result = await self._writer.submit(lambda: only_reading(make()))
            return result
        try:
            found = await self._readers.read(lambda connection: self._runner.run_script(connection, make()))
        except sqlite3.Error as error:
            raise self._explain(error) from error
        # It may have seen a group that is committed but not yet on the disk, whose callers are not answered yet either.
        await self._writer.wait_for_disk()
        return found

    def wall(self, at: float) -> float:
        """Convert a time of the store to the wall clock."""
        return self._runner.clock.wall(at)

    async def aclose(self) -> None:
        """Close the connections that read; the writer is closed by the store."""
        self._is_closed = True
        if self._readers is not None:
            await self._readers.aclose()


def synchronize_clock(connection: sqlite3.Connection, clock: StoreClock) -> None:
    """Compare the store's time with the clock of this machine, and store a correction if that has jumped; in a transaction."""
    stored = Correction(*connection.execute("SELECT epoch, seconds FROM store_clock").fetchone())
    reading = ClockReading(began_s=steady_s(), wall=time.time(), ended_s=steady_s(), epoch=boot_id(), stored=stored)
    if (correction := clock.adjust(reading)) is not None:
        connection.execute("UPDATE store_clock SET epoch = ?, seconds = ?", correction)


def _run_script(cursor: sqlite3.Cursor, script: Script[Result], waiting: list[Statement], now: list[Row]) -> Result:
    execute = cursor.execute
    rows: list[Row]
    try:
        step = next(script)
        while True:
            if step is NOW:
                step = script.send(now)
                continue
            if isinstance(step, Many):
                cursor.executemany(step.sql, step.values)
                step = script.send([])
                continue
            others: Sequence[Statement] = ()
            if isinstance(step, Batch):
                step, *others = step.statements
            # Of statements that come together, only the rows of the first are sent, so that the others are not fetched.
            if step.may_be_deferred:
                waiting.append(step)
                rows = []
            else:
                execute(step.sql, step.values)
                rows = [()] * cursor.rowcount if step.counts else cursor.fetchall()
            for other in others:
                if other.may_be_deferred:
                    waiting.append(other)
                else:
                    execute(other.sql, other.values)
            step = script.send(rows)
    except StopIteration as end:
        result: Result = end.value
        return result


def _run_batched(cursor: sqlite3.Cursor, waiting: Sequence[Statement]) -> None:
    """Run statements of the same SQL with one `executemany`: most of the cost of one is the call from Python."""
    alike: dict[str, list[Row]] = {}
    for statement in waiting:
        alike.setdefault(statement.sql, []).append(statement.values)
    for sql, values in alike.items():
        cursor.executemany(sql, values)
