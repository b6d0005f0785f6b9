"""Entries on their way into the audit: one line each in a file of this process, written before the answer goes out.

A line is in the page cache once it is written, as a commit is, at a tenth of its cost; a few milliseconds later the entries
are committed together, and the file is emptied. What a process that was killed has left there, the next one to open the
store takes over.
"""

import contextlib
import logging
import os
import secrets
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from toolpost.contracts.errors import GatewayError
from toolpost.contracts.events import event
from toolpost.store.audit import AuditEntry
from toolpost.store.chain import refuse_malformed

if sys.platform != "win32":
    import fcntl

_log = logging.getLogger("toolpost.store")

_MARK = "-notes-"
_FLAGS = os.O_RDWR | os.O_APPEND

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AuditEntry).decode

Append = Callable[[sqlite3.Connection, Sequence[AuditEntry]], object]


class Notes:
    """The file of this process. Whoever holds its lock lives."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd
        self._size = 0

    def add(self, entry: AuditEntry) -> None:
        """Write an entry down; one that is malformed is refused, and half a line is taken back."""
        refuse_malformed(entry)
        line = _encode(entry) + b"\n"
        if os.write(self._fd, line) != len(line):
            os.ftruncate(self._fd, self._size)
            raise OSError("the disk took half a line")
        self._size += len(line)

    def clear(self) -> None:
        """Forget what has been committed, which is everything."""
        os.ftruncate(self._fd, 0)
        self._size = 0

    def close(self) -> None:
        """End it; a file with entries in it is left to whoever opens the store next."""
        if not self._size:
            self._path.unlink(missing_ok=True)
        os.close(self._fd)


def open_notes(store: Path) -> Notes | None:
    """Make this process's file beside the store; None where files cannot be locked, or no file can be made."""
    if sys.platform == "win32":
        return None
    path = store.with_name(f"{store.name}{_MARK}{os.getpid()}-{secrets.token_hex(4)}")
    try:
        fd = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        return None
    if not _is_locked(fd, path):
        os.close(fd)
        return None
    return Notes(path, fd)


def take_over_notes(store: Path, connection: sqlite3.Connection, append: Append) -> None:
    """Commit what processes that are no more have left, each entry once."""
    for path, fd in _left_behind(store):
        try:
            entries = [entry for line in _lines(fd) if (entry := _entry_in(line)) is not None]
            _commit(connection, entries, append)
        except (GatewayError, sqlite3.Error, OSError) as error:
            event(_log, logging.WARNING, "audit notes not taken over", file=str(path), reason=str(error))
        else:
            path.unlink(missing_ok=True)
        finally:
            os.close(fd)


def _left_behind(store: Path) -> Iterator[tuple[Path, int]]:
    if sys.platform == "win32":
        return
    for path in sorted(store.parent.glob(f"{store.name}{_MARK}*")):
        with contextlib.suppress(OSError):
            fd = os.open(path, _FLAGS)
            if _is_locked(fd, path):
                yield path, fd
            else:
                os.close(fd)


def _is_locked(fd: int, path: Path) -> bool:
    """Take the lock of a file, and see that it is still the file of that name."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(fd).st_ino == path.stat().st_ino
    except OSError:
        return False


def _lines(fd: int) -> list[bytes]:
    return os.pread(fd, os.fstat(fd).st_size, 0).split(b"\n")


def _entry_in(line: bytes) -> AuditEntry | None:
    """Read an entry; half a line was never acknowledged to anybody."""
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _commit(connection: sqlite3.Connection, entries: Sequence[AuditEntry], append: Append) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        # The process may have died between the commit and the emptying of its file.
        missing = [entry for entry in entries if not _is_recorded(connection, entry)]
        if missing:
            append(connection, missing)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _is_recorded(connection: sqlite3.Connection, entry: AuditEntry) -> bool:
    return connection.execute("SELECT 1 FROM audit WHERE call_id = ?", (entry.call_id,)).fetchone() is not None
