"""Scripts run in PostgreSQL: rows are locked one by one, so that several gateways work side by side.

Short scripts that come together share a transaction, and so a commit; others have one of their own. A statement of a script is
one round trip, and `Together` makes one statement of several by `WITH`:

    Together((A: "UPDATE a … WHERE id = ?1 RETURNING n", B: "DELETE FROM b WHERE id = ?1"))
    WITH asked AS (UPDATE a … WHERE id = $1 RETURNING n), also_0 AS (DELETE FROM b WHERE id = $2) SELECT * FROM asked

The parts of such a statement see the tables as they were before it, which is why they may not touch the same rows.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from toolpost.base.clocks import steady_s
from toolpost.contracts.errors import GatewayError, StoreUnavailable
from toolpost.store.clock import Correction, Look, StoreClock
from toolpost.store.postgres.connection import Connection
from toolpost.store.scripts import ALONE, NOW, Many, Result, Row, Script, Statement, Step

if TYPE_CHECKING:
    from toolpost.store.postgres.store import PostgresStore

LANES: Final = 2
"""How many groups are under way at the same time: more of them are smaller, and meet each other's locks."""

_LOOK: Final = """
SELECT extract(epoch FROM clock_timestamp())::double precision, extract(epoch FROM pg_postmaster_start_time())::text,
    epoch, seconds FROM store_clock
"""
# Unless another gateway is at it: who waited for it would hold up all that its own transaction has locked.
_CORRECT: Final = """
UPDATE store_clock SET epoch = $1, seconds = $2
WHERE ctid = (SELECT ctid FROM store_clock WHERE epoch = $3 AND seconds = $4 FOR UPDATE SKIP LOCKED)
"""

_ALONE: Final = "SELECT pg_advisory_xact_lock(hashtextextended('toolpost ' || current_schema() || ' alone ' || $1, 0))"

# A pattern of GLOB as one of LIKE: its escaped bracket, then what only LIKE gives a meaning, then `*` and `?`.
_LIKE: Final = (
    r"replace(replace(replace(replace(replace(replace("
    r"{}, '[[]', '['), '\', '\\'), '%', '\%'), '_', '\_'), '*', '%'), '?', '_')"
)

_Make = Callable[[], Script[Any]]


class _Queued:
    """A queued script, and the future of its caller."""

    __slots__ = ("done", "full", "make")

    def __init__(self, make: _Make, done: asyncio.Future[Any], *, full: bool) -> None:
        self.make = make
        self.done = done
        self.full = full


class PostgresScripts:
    """Short ones share a transaction with what comes at the same time; others have one of their own."""

    def __init__(self, store: "PostgresStore") -> None:
        self._store = store
        self._clock = store.clock
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Queued] = []
        self._lanes: set[asyncio.Task[None]] = set()
        self._is_closing = False

    def run(
        self, make: Callable[[], Script[Result]], *, full: bool = True, is_short: bool = False, repeatable: bool = True
    ) -> Awaitable[Result]:
        """Run a script; done when it is committed, and here always on the disk."""
        if self._is_closing:
            raise GatewayError("the store is closed")
        if not (is_short and repeatable):
            return self._store.write(lambda connection: _play(connection, make(), self._clock), repeatable=repeatable)
        done: asyncio.Future[Result] = self._loop.create_future()
        self._waiting.append(_Queued(make, done, full=full))
        if len(self._lanes) < LANES and len(self._waiting) == 1:
            self._lanes.add(self._loop.create_task(self._run_groups(), name="toolpost-scripts"))
        return done

    def read(self, make: Callable[[], Script[Result]]) -> Awaitable[Result]:
        """Run a script that changes nothing, without a transaction: each of its statements sees what is committed by then."""
        return self._store.read(lambda connection: _play(connection, make(), self._clock))

    def wall(self, at: float) -> float:
        """Return what the wall clock shows at a moment of the store's time."""
        return self._clock.wall(at)

    async def aclose(self) -> None:
        """Commit all that waits."""
        self._is_closing = True
        with anyio.CancelScope(shield=True):
            while self._lanes:
                await asyncio.wait(self._lanes)

    async def _run_groups(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting, []
                # Against deadlocks: a transaction that waits for a row must hold none that another waits for. Polls wait
                # for the row of their worker, so they come first.
                group.sort(key=lambda queued: queued.full)
                await self._commit(group)
        finally:
            # Here, not in a callback: a script that came between the last look and the end of the task would wait for ever.
            self._lanes.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _commit(self, group: list[_Queued]) -> None:
        try:
            results = await self._store.write(lambda connection: self._play_all(connection, group), repeatable=True)
        except StoreUnavailable as error:
            for queued in group:
                _fail(queued, StoreUnavailable(error.message, hint=error.hint))
        except Exception as error:  # noqa: BLE001 - the callers wait for it, whatever it is
            if len(group) == 1:
                _fail(group[0], error)
                return
            # To find the script that failed, each is run by itself.
            for queued in group:
                await self._commit([queued])
        else:
            for queued, result in zip(group, results, strict=True):
                if not queued.done.done():  # its caller was cancelled
                    queued.done.set_result(result)

    async def _play_all(self, connection: Connection, group: Sequence[_Queued]) -> list[Any]:
        return [await _play(connection, queued.make(), self._clock) for queued in group]


def _fail(queued: _Queued, error: Exception) -> None:
    if not queued.done.done():
        queued.done.set_exception(error)


async def look_at_clock(connection: Connection, clock: StoreClock) -> None:
    """Compare the store's time with the database's, and note it if that has jumped."""
    began_s = steady_s()
    row = await connection.fetchrow(_LOOK)
    assert row is not None
    wall, started, epoch, seconds = row
    kept = Correction(epoch, seconds)
    look = Look(began_s=began_s, ended_s=steady_s(), wall=wall, epoch=started, kept=kept)
    if (correction := clock.take(look)) is not None:
        await connection.execute(_CORRECT, *correction, *kept)


async def _play(connection: Connection, script: Script[Result], clock: StoreClock) -> Result:
    if clock.is_due:
        await look_at_clock(connection, clock)
    try:
        step = next(script)
        while True:
            step = script.send([(clock.now(),)] if step is NOW else await _rows(connection, step))
    except StopIteration as end:
        result: Result = end.value
        return result


async def _rows(connection: Connection, step: Step) -> list[Row]:
    if isinstance(step, Many):
        await connection.executemany(_translate(step.sql), step.values)
        return []
    if isinstance(step, Statement):
        sql, values = _translate(_text_of(step)), step.values
    else:
        sql = _merge(tuple(map(_text_of, step.statements)))
        values = tuple(value for statement in step.statements for value in statement.values)
    return [tuple(row) for row in await connection.fetch(sql, *values)]


def _text_of(statement: Statement) -> str:
    return f"{statement.sql} RETURNING 1" if statement.counts else statement.sql


@lru_cache(maxsize=512)
def _translate(sql: str, after: int = 0) -> str:
    if sql == ALONE:
        return _ALONE
    sql = sql.replace("/*skip locked*/", "FOR UPDATE SKIP LOCKED").replace("/*lock*/", "FOR UPDATE")
    sql = sql.replace("/*lock w*/", "FOR UPDATE OF w").replace("/*skip locked w*/", "FOR UPDATE OF w SKIP LOCKED")
    sql = re.sub(r"GLOB (\?\d+)", lambda found: f"LIKE {_LIKE.format(found[1])}", sql)
    return re.sub(r"\?(\d+)", lambda found: f"${int(found[1]) + after}", sql)


@lru_cache(maxsize=512)
def _merge(statements: tuple[str, ...]) -> str:
    """Make one statement of several: one round trip."""
    parts, after = [], 0
    for sql in statements:
        parts.append(_translate(sql, after))
        after += len(set(re.findall(r"\?\d+", sql)))
    first, *others = parts
    also = ", ".join(f"also_{number} AS ({sql})" for number, sql in enumerate(others))
    if first.lstrip().startswith("SELECT"):
        return f"WITH {also} {first}" if others else first
    # What changes rows can stand beside others only with a name.
    named = ", ".join((f"asked AS ({first})", *([also] if also else [])))
    rows = "SELECT * FROM asked" if "RETURNING" in first else "SELECT 1"
    return f"WITH {named} {rows}"
