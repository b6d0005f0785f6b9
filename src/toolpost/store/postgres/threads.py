"""Conversations in PostgreSQL."""

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from toolpost.store.kept_threads import KeptThreads
from toolpost.store.postgres.connection import Connection
from toolpost.store.threads_sql import Make, Result, Steps

if TYPE_CHECKING:
    from toolpost.store.postgres.store import PostgresStore


def postgres_threads(store: "PostgresStore") -> KeptThreads:
    """Return the conversations of a store."""

    async def writing(make: Make[Result], /) -> Result:
        return await store.write(lambda connection: _run(connection, make()), repeatable=True)

    async def reading(make: Make[Result], /) -> Result:
        return await store.read(lambda connection: _run(connection, make()))

    return KeptThreads(write=writing, read=reading)


async def _run(connection: Connection, steps: Steps[Result]) -> Result:
    try:
        statement, values = next(steps)
        while True:
            statement, values = steps.send(await connection.fetch(_translated(statement), *values))
    except StopIteration as end:
        result: Result = end.value
        return result


@lru_cache(maxsize=64)
def _translated(statement: str) -> str:
    return re.sub(r"\?(\d+)", r"$\1", statement)
