"""Verifies the audit of a SQLite file without changing it: a copy on a read-only disk is evidence.

Opening a store migrates it, recovers journals and makes files beside it. None of this happens here. How the file is opened
depends on what is beside it:

- no write-ahead log: as immutable, so that SQLite neither locks nor makes anything;
- a log and its index (`-shm`), as a running server has them: read-only, beside the server;
- a log alone, as in a copy, or an index that may not be used: from a temporary copy of both files.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio.to_thread

from toolpost.store.audit import AuditLog
from toolpost.store.audit_values import AuditVerdict
from toolpost.store.chain import BEGINNING
from toolpost.store.clock import StoreClock
from toolpost.store.scripts import Result, Script
from toolpost.store.sqlite.connection import lenient_text
from toolpost.store.sqlite.journal import count_journaled
from toolpost.store.sqlite.scripts import ScriptRunner


async def verify_file(path: Path) -> AuditVerdict:
    """Verify the audit in a file that exists; what cannot be read whole is a verdict too, never an exception of the database."""
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(closing(await anyio.to_thread.run_sync(_open, path, stack)))
            tables, damage = await anyio.to_thread.run_sync(_find_damage, connection)
            if damage is not None:
                return _unreadable(damage)
            scripts = _ReadOnly(connection)
            verdict = await AuditLog(scripts, scripts.run).verify(has_segments="audit_segments" in tables)
        except (sqlite3.Error, OSError) as error:
            return _unreadable(str(error))
    noted = await anyio.to_thread.run_sync(count_journaled, path)
    return replace(verdict, noted=noted)


def _unreadable(reason: str) -> AuditVerdict:
    return AuditVerdict(checked=0, head=BEGINNING, reason=f"the store cannot be read whole: {reason}")


def _open(path: Path, stack: ExitStack) -> sqlite3.Connection:
    log, index = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    has_log = log.exists() and log.stat().st_size > 0
    if index.exists():
        try:
            return _connect(path, "mode=ro")
        except sqlite3.OperationalError:
            pass  # On a read-only disk the index may be of no use; a copy has another.
    if not has_log:
        return _connect(path, "mode=ro&immutable=1")
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolpost-verify-")))
    for file in (path, log):
        shutil.copyfile(file, folder / file.name)
    return _connect(folder / path.name, "mode=rw")


def _connect(path: Path, how: str) -> sqlite3.Connection:
    url = f"{path.absolute().as_uri()}?{how}"
    connection = sqlite3.connect(url, uri=True, timeout=10.0, isolation_level=None, check_same_thread=False)
    connection.text_factory = lenient_text
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _find_damage(connection: sqlite3.Connection) -> tuple[set[str], str | None]:
    """Return the tables, and what is wrong with the file itself: a page that is missing need not be one of the audit's."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if tables and not {"audit", "audit_head"} <= tables:
        return tables, "it holds no audit; is it a store of Toolpost?"
    found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(1)")]
    if found != ["ok"]:
        return tables, found[0] if found else "the check of the database returned nothing"
    return tables, None if tables else "it is empty"


class _ReadOnly:
    """Scripts that read, on one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._runner = ScriptRunner(StoreClock())

    async def read(self, make: Callable[[], Script[Result]]) -> Result:
        return await anyio.to_thread.run_sync(lambda: self._runner.run_script(self._connection, make()))

    def run(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("a file that is only verified is not written to")

    def wall(self, at: float) -> float:
        return at
