"""The manifest of a generation (`files.db`): each indexed file with size, times and hash, and each skipped file with why."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

FILE_NAME: Final = "files.db"

_TABLES: Final = """
CREATE TABLE files (
    path TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, ctime_ns INTEGER NOT NULL,
    hash BLOB NOT NULL, language TEXT NOT NULL, family TEXT NOT NULL, lines INTEGER NOT NULL, chunks INTEGER NOT NULL,
    masked INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE skipped (
    path TEXT PRIMARY KEY, reason TEXT NOT NULL,
    size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, ctime_ns INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class FileStamp:
    """Size and times of a file: if they are equal, it is taken as unchanged without reading it."""

    size: int
    mtime_ns: int
    ctime_ns: int


@dataclass(frozen=True, slots=True)
class FileRow:
    """An indexed file."""

    path: str
    stamp: FileStamp
    hash: bytes
    language: str
    family: str
    lines: int
    chunks: int
    masked: bool
    """Whether it contains credentials, which are masked wherever it is shown."""


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """A skipped file, and why."""

    path: str
    reason: str
    stamp: FileStamp | None = None
    """Set if the reason follows from its content: while the stamp is the same, the file is not read again."""


def write_manifest(
    folder: Path, files: Iterable[FileRow], skipped: Iterable[SkippedRow], facts: dict[str, Any]
) -> None:
    """Write the manifest of a new generation. Not durable until `checksums` flushes it to disk."""
    path = folder / FILE_NAME
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; {_TABLES} BEGIN;")
        connection.executemany(
            "INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    *(row.path, row.stamp.size, row.stamp.mtime_ns, row.stamp.ctime_ns),
                    *(row.hash, row.language, row.family, row.lines, row.chunks, row.masked),
                )
                for row in files
            ),
        )
        stamped = ((row.path, row.reason, row.stamp or FileStamp(0, 0, 0)) for row in skipped)
        rows = ((path, reason, at.size, at.mtime_ns, at.ctime_ns) for path, reason, at in stamped)
        connection.executemany("INSERT OR REPLACE INTO skipped VALUES (?, ?, ?, ?, ?)", rows)
        encoded = ((name, msgspec.json.encode(value).decode()) for name, value in facts.items())
        connection.executemany("INSERT INTO facts VALUES (?, ?)", encoded)
        connection.execute("COMMIT")
    finally:
        connection.close()


class Manifest:
    """A manifest, open for reading."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def files(self) -> Iterator[FileRow]:
        """Yield all indexed files, sorted by path."""
        for row in self._connection.execute("SELECT * FROM files ORDER BY path"):
            yield _parse_row(row)

    def file(self, path: str) -> FileRow | None:
        row = self._connection.execute("SELECT * FROM files WHERE path = ?", (path,)).fetchone()
        return None if row is None else _parse_row(row)

    def skipped(self) -> list[SkippedRow]:
        found = self._connection.execute("SELECT * FROM skipped ORDER BY path")
        return [SkippedRow(path, reason, FileStamp(*stamp)) for path, reason, *stamp in found]

    def facts(self) -> dict[str, Any]:
        """Return the mode, the git state and the time of the scan."""
        found = self._connection.execute("SELECT name, value FROM facts")
        return {name: msgspec.json.decode(value) for name, value in found}

    def totals(self) -> dict[str, int]:
        row = self._connection.execute(
            "SELECT count(*), coalesce(sum(lines), 0), coalesce(sum(chunks), 0), coalesce(sum(size), 0) FROM files"
        ).fetchone()
        return dict(zip(("files", "lines", "chunks", "sourceBytes"), row, strict=True))

    def languages(self) -> dict[str, int]:
        """Return the number of files by language, most first."""
        found = self._connection.execute("SELECT language, count(*) FROM files GROUP BY language ORDER BY 2 DESC, 1")
        return dict(found.fetchall())

    def skipped_by_reason(self) -> dict[str, int]:
        found = self._connection.execute("SELECT reason, count(*) FROM skipped GROUP BY reason ORDER BY 1")
        return dict(found.fetchall())


@contextmanager
def open_manifest(folder: Path) -> Iterator[Manifest]:
    """Open a manifest for reading, from any thread; opened as immutable, because a published generation never changes."""
    path = folder / FILE_NAME
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)
    try:
        yield Manifest(connection)
    finally:
        connection.close()


def _parse_row(row: tuple[Any, ...]) -> FileRow:
    path, size, mtime_ns, ctime_ns, digest, language, family, lines, chunks, masked = row
    return FileRow(path, FileStamp(size, mtime_ns, ctime_ns), digest, language, family, lines, chunks, bool(masked))
