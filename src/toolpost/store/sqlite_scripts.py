"""Scripts run in SQLite: within the writer's next group, waiting for the disk."""

import sqlite3
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from toolpost.store.scripts import NOW, Result, Row, Script, Statement


class _Write(Protocol):
    def __call__(self, job: Callable[[sqlite3.Connection], Any], *, full: bool) -> Awaitable[Any]: ...


class SteadyClock:
    """The time of day, which never goes back: when the system's does, this one goes on by itself until it is overtaken.

    A lease that was given before must not last an hour longer because somebody has set the clock.
    """

    def __init__(self) -> None:
        self._said = 0.0
        self._at = time.monotonic()

    def now(self) -> float:
        """Say what time it is."""
        at = time.monotonic()
        self._said, self._at = max(time.time(), self._said + at - self._at), at
        return self._said


class SqliteScripts:
    """One writer, so that no script ever waits for another's lock."""

    def __init__(self, *, write: _Write) -> None:
        self._write = write
        self._clock = SteadyClock()

    async def run(self, make: Callable[[], Script[Result]], *, full: bool = True) -> Result:
        """Run a script; done when it is committed, with `full` when it outlives a power cut too."""
        result: Result = await self._write(lambda connection: _played(connection, make(), self._clock), full=full)
        return result


def _played(connection: sqlite3.Connection, script: Script[Result], clock: SteadyClock) -> Result:
    try:
        statement = next(script)
        while True:
            statement = script.send(_rows(connection, statement, clock))
    except StopIteration as end:
        result: Result = end.value
        return result


def _rows(connection: sqlite3.Connection, statement: Statement, clock: SteadyClock) -> list[Row]:
    if statement is NOW:
        return [(clock.now(),)]
    return connection.execute(statement.sql, statement.values).fetchall()
