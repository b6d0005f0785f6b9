"""Entries on their way into the audit: one line each in a file of this process, written before the answer goes out.

The file has its full size from the start and is mapped into memory: a line that was copied there is in the page cache, as
a commit is, at a hundredth of its cost. A few milliseconds later the entries are committed together, and the lines are
written over. What a process that was killed has left, the next one to open the store takes over.
"""

import contextlib
import logging
import mmap
import os
import secrets
import sqlite3
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from toolpost.base.events import event
from toolpost.contracts.errors import GatewayError
from toolpost.store.audit import AuditEntry
from toolpost.store.chain import refuse_malformed

if sys.platform != "win32":
    import fcntl

_log = logging.getLogger("toolpost.store")

_MARK = "-notes-"

SIZE_BYTES = 256 * 1024
_END = b"\0"
"""Stands after the last line. No line holds it: JSON writes it in another way."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AuditEntry).decode

Append = Callable[[sqlite3.Connection, Sequence[AuditEntry]], object]


class Notes:
    """The file of this process. Whoever holds its lock lives."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd
        self._map = mmap.mmap(fd, SIZE_BYTES)
        self._used = 0

    def add(self, entry: AuditEntry) -> bool:
        """Write an entry down, unless there is no room for it; one that is malformed is refused."""
        refuse_malformed(entry)
        encoded = _encode(entry)
        # Whoever dies while copying leaves a line that is half an older one: its sum tells.
        line = b"%08x %b\n\0" % (zlib.crc32(encoded), encoded)
        start = self._used
        end = start + len(line)
        if end > SIZE_BYTES:
            return False
        self._map[start:end] = line
        self._used = end - 1
        return True

    def clear(self) -> None:
        """Forget what has been committed, which is everything."""
        self._map[:1] = _END
        self._used = 0

    def close(self) -> None:
        """End it; a file with entries in it is left to whoever opens the store next."""
        if not self._used:
            self._path.unlink(missing_ok=True)
        self._map.close()
        os.close(self._fd)


def open_notes(store: Path) -> Notes | None:
    """Make this process's file beside the store; None where none can be made, locked or given its size."""
    if not hasattr(os, "posix_fallocate"):
        return None
    path = store.with_name(f"{store.name}{_MARK}{os.getpid()}-{secrets.token_hex(4)}")
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        return None
    try:
        if _is_locked(fd, path):
            # A disk that is full says so here: to write where it has no room for would end the process.
            os.posix_fallocate(fd, 0, SIZE_BYTES)
            return Notes(path, fd)
    except (OSError, ValueError) as error:
        event(_log, logging.WARNING, "no audit notes", file=str(path), reason=str(error))
    path.unlink(missing_ok=True)
    os.close(fd)
    return None


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


def count_noted(store: Path) -> int:
    """Count the entries in the notes of all processes, without taking them over."""
    noted = 0
    for path in store.parent.glob(f"{store.name}{_MARK}*"):
        with contextlib.suppress(OSError):
            lines = path.read_bytes().partition(_END)[0].splitlines()
            noted += sum(_entry_in(line) is not None for line in lines)
    return noted


def _left_behind(store: Path) -> Iterator[tuple[Path, int]]:
    if sys.platform == "win32":
        return
    for path in sorted(store.parent.glob(f"{store.name}{_MARK}*")):
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDWR)
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
    return os.pread(fd, os.fstat(fd).st_size, 0).partition(_END)[0].splitlines()


def _entry_in(line: bytes) -> AuditEntry | None:
    """Read an entry; a line that is not whole was never acknowledged to anybody."""
    checksum, _, encoded = line.partition(b" ")
    try:
        return _decode(encoded) if int(checksum, 16) == zlib.crc32(encoded) else None
    except (msgspec.DecodeError, ValueError):
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
