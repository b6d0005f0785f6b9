"""Conversations in SQLite."""

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

from toolpost.store.kept_threads import KeptThreads
from toolpost.store.threads_sql import Make, Result, Steps

Job = Callable[[sqlite3.Connection], Any]


def sqlite_threads(*, write: Callable[[Job], Awaitable[Any]], read: Callable[[Job], Awaitable[Any]]) -> KeptThreads:
    """Return the conversations of a store that runs jobs on its connections."""

    async def writing(make: Make[Result], /) -> Result:
        result: Result = await write(lambda connection: _run(connection, make()))
        return result

    async def reading(make: Make[Result], /) -> Result:
        result: Result = await read(lambda connection: _run(connection, make()))
        return result

    return KeptThreads(write=writing, read=reading)


def _run(connection: sqlite3.Connection, steps: Steps[Result]) -> Result:
    try:
        asked = next(steps)
        while True:
            asked = steps.send(connection.execute(*asked).fetchall())
    except StopIteration as end:
        result: Result = end.value
        return result
