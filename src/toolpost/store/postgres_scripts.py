"""Scripts run in PostgreSQL: rows are locked one by one, so that several servers work side by side."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from toolpost.store.postgres_connection import Connection
from toolpost.store.scripts import NOW, Result, Row, Script, Statement

if TYPE_CHECKING:
    from toolpost.store.postgres import PostgresStore

_NOW = "SELECT extract(epoch FROM clock_timestamp())::double precision"


class PostgresScripts:
    """Each in a transaction of its own."""

    def __init__(self, store: "PostgresStore") -> None:
        self._store = store

    async def run(self, make: Callable[[], Script[Result]], *, full: bool = True) -> Result:  # noqa: ARG002
        """Run a script; done when it is committed, which here always outlives a power cut."""
        return await self._store.write(lambda connection: _played(connection, make()), repeatable=True)


async def _played(connection: Connection, script: Script[Result]) -> Result:
    try:
        statement = next(script)
        while True:
            statement = script.send(await _rows(connection, statement))
    except StopIteration as end:
        result: Result = end.value
        return result


async def _rows(connection: Connection, statement: Statement) -> list[Row]:
    sql = _NOW if statement is NOW else _translated(statement.sql)
    return [tuple(row) for row in await connection.fetch(sql, *statement.values)]


@lru_cache(maxsize=512)
def _translated(sql: str) -> str:
    sql = sql.replace("/*skip locked*/", "FOR UPDATE SKIP LOCKED").replace("/*lock*/", "FOR UPDATE")
    return re.sub(r"\?(\d+)", r"$\1", sql)
