"""Reading from a database file, in worker threads, on connections that cannot write."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from toolpost.store.sqlite.connection import open_reader

Result = TypeVar("Result")


class SqliteReaders:
    """A few connections, opened when first needed and kept."""

    def __init__(self, path: Path, *, busy_timeout_s: float, most: int = 4) -> None:
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._most = most
        self._limiter = anyio.CapacityLimiter(most)
        self._idle: list[sqlite3.Connection] = []

    async def read(self, job: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run a job that sees one state of the database from beginning to end."""
        return await anyio.to_thread.run_sync(self._read, job, limiter=self._limiter)

    async def aclose(self) -> None:
        """Close the connections, once those in use are back."""
        with anyio.CancelScope(shield=True):
            for _ in range(self._most):
                await self._limiter.acquire_on_behalf_of(object())
        while self._idle:
            self._idle.pop().close()

    def _read(self, job: Callable[[sqlite3.Connection], Result]) -> Result:
        connection = self._idle.pop() if self._idle else open_reader(self._path, busy_timeout_s=self._busy_timeout_s)
        try:
            connection.execute("BEGIN")
            result = job(connection)
            connection.execute("ROLLBACK")
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return result
