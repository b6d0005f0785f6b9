"""Scripts run in SQLite: within the writer's next group, waiting for the disk."""

import sqlite3
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from toolpost.store.scripts import NOW, Result, Row, Script, Statement


class _Write(Protocol):
    def __call__(self, job: Callable[[sqlite3.Connection], Any], *, full: bool) -> Awaitable[Any]: ...


class SqliteScripts:
    """One writer, so that no script ever waits for another's lock."""

    def __init__(self, *, write: _Write) -> None:
        self._write = write

    async def run(self, make: Callable[[], Script[Result]]) -> Result:
        """Run a script; done when it is committed, and outlives a power cut."""
        result: Result = await self._write(lambda connection: _played(connection, make()), full=True)
        return result


def _played(connection: sqlite3.Connection, script: Script[Result]) -> Result:
    try:
        statement = next(script)
        while True:
            statement = script.send(_rows(connection, statement))
    except StopIteration as end:
        result: Result = end.value
        return result


def _rows(connection: sqlite3.Connection, statement: Statement) -> list[Row]:
    if statement is NOW:
        return [(time.time(),)]
    return connection.execute(statement.sql, statement.values).fetchall()
