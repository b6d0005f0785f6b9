"""Scripts run in PostgreSQL: rows are locked one by one, so that several gateways can write at the same time.

Short scripts that come together share a transaction, and so a commit; others have one of their own. A statement of a script is
one round trip, and `Batch` makes one statement of several by `WITH`:

    Batch((A: "UPDATE a … WHERE id = ?1 RETURNING n", B: "DELETE FROM b WHERE id = ?1"))
    WITH first_part AS (UPDATE a … WHERE id = $1 RETURNING n), also_0 AS (DELETE FROM b WHERE id = $2) SELECT * FROM first_part

The parts of such a statement see the tables as they were before it, which is why they may not touch the same rows.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from toolpost.base.clocks import steady_s
from toolpost.contracts.errors import GatewayError, StoreUnavailable
from toolpost.metrics import Durations
from toolpost.store.clock import ClockReading, Correction, StoreClock
from toolpost.store.postgres.connection import Connection
from toolpost.store.scripts import LOCK_NAME, NOW, Many, Result, Row, Script, Statement, Step, only_reading

if TYPE_CHECKING:
    from toolpost.store.postgres.store import PostgresStore

GROUPS_AT_ONCE: Final = 2
"""How many groups are committed at the same time: more of them would be smaller, and wait for each other's locks."""

_READ_CLOCK: Final = """
SELECT extract(epoch FROM clock_timestamp())::double precision, extract(epoch FROM pg_postmaster_start_time())::text,
    epoch, seconds FROM store_clock
"""
# SKIP LOCKED: to wait for another gateway that corrects the clock would hold all locks of this transaction for as long.
_CORRECT: Final = """
UPDATE store_clock SET epoch = $1, seconds = $2
WHERE ctid = (SELECT ctid FROM store_clock WHERE epoch = $3 AND seconds = $4 FOR UPDATE SKIP LOCKED)
"""

_LOCK_NAME: Final = (
    "SELECT pg_advisory_xact_lock(hashtextextended('toolpost ' || current_schema() || ' lock ' || $1, 0))"
)

# Turns a GLOB pattern into a LIKE pattern: the escaped bracket, then the special characters of LIKE, then `*` and `?`.
_LIKE: Final = (
    r"replace(replace(replace(replace(replace(replace("
    r"{}, '[[]', '['), '\', '\\'), '%', '\%'), '_', '\_'), '*', '%'), '?', '_')"
)

_Make = Callable[[], Script[Any]]


class _Queued:
    """A queued script, and the future of its caller."""

    __slots__ = ("done", "durable", "make")

    def __init__(self, make: _Make, done: asyncio.Future[Any], *, durable: bool) -> None:
        self.make = make
        self.done = done
        self.durable = durable


class PostgresScripts:
    """Runs short scripts in groups, each a transaction, and others in a transaction of their own."""

    def __init__(self, store: "PostgresStore", commits: Durations) -> None:
        self._store = store
        self._commits = commits
        self._clock = store.clock
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Queued] = []
        self._group_tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False

    def run(
        self,
        make: Callable[[], Script[Result]],
        *,
        durable: bool = True,
        is_short: bool = False,
        repeatable: bool = True,
    ) -> Awaitable[Result]:
        """Run a script; done when it is committed, which in PostgreSQL is always on the disk."""
        if self._is_closing:
            raise GatewayError("the store is closed")
        if not (is_short and repeatable):
            return self._store.write(
                lambda connection: _run_script(connection, make(), self._clock), repeatable=repeatable
            )
        done: asyncio.Future[Result] = self._loop.create_future()
        self._waiting.append(_Queued(make, done, durable=durable))
        if len(self._group_tasks) < GROUPS_AT_ONCE and len(self._waiting) == 1:
            self._group_tasks.add(self._loop.create_task(self._run_groups(), name="toolpost-scripts"))
        return done

    def read(self, make: Callable[[], Script[Result]]) -> Awaitable[Result]:
        """Run a script that changes nothing, without a transaction: each statement sees what is committed when it starts."""
        return self._store.read(lambda connection: _run_script(connection, only_reading(make()), self._clock))

    def wall(self, at: float) -> float:
        """Convert a time of the store to the wall clock."""
        return self._clock.wall(at)

    async def aclose(self) -> None:
        """Commit what is queued, and refuse new scripts."""
        self._is_closing = True
        with anyio.CancelScope(shield=True):
            while self._group_tasks:
                await asyncio.wait(self._group_tasks)

    async def _run_groups(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting, []
                # Against deadlocks: a transaction that waits for a row must hold none that another waits for. Polls wait
                # for the row of their worker, so they come first.
                group.sort(key=lambda queued: queued.durable)
                await self._commit(group)
        finally:
            # Not in a done callback: a script queued between the last check and the end of the task would wait forever.
            self._group_tasks.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _commit(self, group: list[_Queued]) -> None:
        began = time.monotonic()
        try:
            results = await self._store.write(lambda connection: self._run_all(connection, group), repeatable=True)
            self._commits.observe(time.monotonic() - began)
        except StoreUnavailable as error:
            for queued in group:
                _fail(queued, StoreUnavailable(error.message, hint=error.hint))
        except Exception as error:  # noqa: BLE001 - the callers wait for it, whatever it is
            if len(group) == 1:
                _fail(group[0], error)
                return
            # To find the script that failed, each is run in a transaction of its own.
            for queued in group:
                await self._commit([queued])
        else:
            for queued, result in zip(group, results, strict=True):
                if not queued.done.done():  # its caller was cancelled
                    queued.done.set_result(result)

    async def _run_all(self, connection: Connection, group: Sequence[_Queued]) -> list[Any]:
        return [await _run_script(connection, queued.make(), self._clock) for queued in group]


def _fail(queued: _Queued, error: Exception) -> None:
    if not queued.done.done():
        queued.done.set_exception(error)


async def synchronize_clock(connection: Connection, clock: StoreClock) -> None:
    """Compare the store's time with the clock of the database, and store a correction if that has jumped."""
    began_s = steady_s()
    row = await connection.fetchrow(_READ_CLOCK)
    assert row is not None
    wall, started, epoch, seconds = row
    stored = Correction(epoch, seconds)
    reading = ClockReading(began_s=began_s, ended_s=steady_s(), wall=wall, epoch=started, stored=stored)
    if (correction := clock.adjust(reading)) is not None:
        await connection.execute(_CORRECT, *correction, *stored)


async def _run_script(connection: Connection, script: Script[Result], clock: StoreClock) -> Result:
    if clock.is_due:
        await synchronize_clock(connection, clock)
    try:
        step = next(script)
        while True:
            step = script.send([(clock.now(),)] if step is NOW else await _rows(connection, step))
    except StopIteration as end:
        result: Result = end.value
        return result


async def _rows(connection: Connection, step: Step) -> list[Row]:
    if isinstance(step, Many):
        await connection.executemany(translate(step.sql), step.values)
        return []
    if isinstance(step, Statement):
        sql, values = translate(_text_of(step)), step.values
    else:
        sql = _merge(tuple(map(_text_of, step.statements)))
        values = tuple(value for statement in step.statements for value in statement.values)
    return [tuple(row) for row in await connection.fetch(sql, *values)]


def _text_of(statement: Statement) -> str:
    return f"{statement.sql} RETURNING 1" if statement.counts else statement.sql


@lru_cache(maxsize=512)
def translate(sql: str, after: int = 0) -> str:
    """Return the SQL of a statement as PostgreSQL takes it; its parameters are numbered past the first `after`."""
    if sql == LOCK_NAME:
        return _LOCK_NAME
    sql = sql.replace("/*skip locked*/", "FOR UPDATE SKIP LOCKED").replace("/*lock*/", "FOR UPDATE")
    sql = sql.replace("/*lock w*/", "FOR UPDATE OF w").replace("/*skip locked w*/", "FOR UPDATE OF w SKIP LOCKED")
    sql = re.sub(r"GLOB (\?\d+)", lambda found: f"LIKE {_LIKE.format(found[1])}", sql)
    return re.sub(r"\?(\d+)", lambda found: f"${int(found[1]) + after}", sql)


@lru_cache(maxsize=512)
def _merge(statements: tuple[str, ...]) -> str:
    """Combine statements into one, which takes one round trip."""
    parts, after = [], 0
    for sql in statements:
        parts.append(translate(sql, after))
        after += len(set(re.findall(r"\?\d+", sql)))
    first, *others = parts
    also = ", ".join(f"also_{number} AS ({sql})" for number, sql in enumerate(others))
    if first.lstrip().startswith("SELECT"):
        return f"WITH {also} {first}" if others else first
    # A statement that changes rows can be combined with others only as a named part of WITH.
    named = ", ".join((f"first_part AS ({first})", *([also] if also else [])))
    rows = "SELECT * FROM first_part" if "RETURNING" in first else "SELECT 1"
    return f"WITH {named} {rows}"
