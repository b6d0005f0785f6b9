"""A journal for audit entries that come alone, so that a single call need not wait for a commit.

An answer waits until its entry is safe. Under load many entries share a commit; a call that is alone would pay for a whole one, a
third of what the gateway adds to it. So its entry is first copied as one line into a file of this process beside the store, which
is mapped into memory: then it is in the page cache, where a commit without a sync puts it too, at a hundredth of the cost. A few
milliseconds later the entries of the journal are committed together, and the journal starts from its beginning:

    call 1 -> line 1, answered    call 2 -> line 2, answered    5 ms: both committed in one batch, journal cleared

Failures:

- *The process is killed before the commit.* The file stays, its lock is released; the next process that opens the store adds
  the entries, except those whose call id is in the audit already (killed between commit and clearing).
- *It is killed while a line is copied.* Then the line is a new one's beginning and an older one's end: its checksum tells, and
  its call was never answered.
- *The commit fails.* The entries are written as soon as the store takes them (`late_entries`), and until then every other entry
  waits for its commit, so that callers get the error; one that finds room comes before those of the journal. If they cannot be
  written the file is kept for the next start.
- *The disk is full.* The file has its full size from the start: writing to a mapped page without space behind it would kill
  the process with a signal.
"""

import asyncio
import contextlib
import logging
import mmap
import os
import secrets
import sqlite3
import zlib
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from toolpost.base.events import event
from toolpost.contracts.errors import GatewayError
from toolpost.store.audit import AuditLog, Write
from toolpost.store.audit_values import AuditEntry
from toolpost.store.call_journal import CallJournal, lock_abandoned, try_lock
from toolpost.store.chain import Values, values_of
from toolpost.store.scripts import Scripts

_log = logging.getLogger("toolpost.store")

COMMIT_S: Final = 0.005
"""How long a journaled entry may wait for others to be committed with."""

SIZE_BYTES: Final = 256 * 1024
_MARK: Final = "-notes-"
"""In the names of the files; kept, so that those of an older version are found."""
_END: Final = b"\0"
"""Stands after the last line. No line holds it: JSON escapes it."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AuditEntry).decode


class _Done:
    """An awaitable that is done."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


_DONE: Final = _Done()


class JournaledAuditLog(AuditLog):
    """An audit log that acknowledges entries which come alone as soon as they are in the journal."""

    def __init__(self, scripts: Scripts, write: Write, journal: "EntryJournal", calls: CallJournal) -> None:
        super().__init__(scripts, write, calls)
        self._loop = asyncio.get_running_loop()
        self._journal: EntryJournal | None = journal
        self._journaled: list[Values] = []
        """Entries in the journal that are not queued for a commit yet."""
        self._uncommitted = 0
        """How many entries of the journal are queued or being committed."""
        self._last: asyncio.Future[None] | None = None
        """Done when the entries that were queued last are committed."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_closing = False
        self._is_paused = False
        """Whether a commit has failed, and entries of the journal are not written yet."""

    def append(self, entry: AuditEntry, *, is_only_call: bool = False) -> Awaitable[None]:
        """Record an entry; done when it is journaled, if it is `is_only_call`, else when it is committed."""
        if is_only_call and self.try_journal(entry):
            return _DONE
        # First, so that the chain has the order of the answers.
        self._commit_journaled()
        return super().append(entry)

    def try_journal(self, entry: AuditEntry) -> bool:
        """Journal an entry, to be committed in a moment; False if there is no journal, or no space in it."""
        if self._journal is None or self._is_closing or self._is_paused:
            return False
        # Before it is journaled: a malformed entry is refused, and must not be found after a restart.
        values = values_of(entry)
        if not self._journal.add(entry):
            return False
        self._journaled.append(values)
        if self._timer is None:
            self._timer = self._loop.call_later(COMMIT_S, self._commit_journaled)
        return True

    async def flush(self) -> None:
        """Commit the entries of the journal, where they can be read."""
        self._commit_journaled()
        # Not until the queue is empty: under load it never is.
        if self._last is not None and not self._last.done():
            await asyncio.wait([self._last])

    async def aclose(self) -> None:
        """Commit all entries, and remove the journal unless that failed."""
        self._is_closing = True
        self._commit_journaled()
        await super().aclose()
        if self._last is not None:
            # The last entries are committed, and `_end` runs in a later turn of the loop: until then the journal is not clear.
            with anyio.CancelScope(shield=True):
                await asyncio.wait([self._last])
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _commit_journaled(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._journaled:
            entries, self._journaled = self._journaled, []
            self._uncommitted += len(entries)
            self._last = self._batches.add(entries)
            self._last.add_done_callback(partial(self._end, len(entries)))

    def _end(self, count: int, committed: "asyncio.Future[None]") -> None:
        self._uncommitted -= count
        if (error := committed.exception()) is not None and not self._is_paused:
            # From now on entries wait for their commit, and callers get the error.
            event(_log, logging.ERROR, "audit journal not committed", exception=error)
            self._is_paused = True
            self._journaled.clear()  # all of them are in the file
        # Not before: the lines of an entry that is not committed yet are all that is left of it after a kill.
        if self._uncommitted or self._journaled or self._journal is None:
            return
        if not self._is_paused:
            self._journal.clear()
        elif entries := self._journal.read():
            for entry in entries[:-1]:
                self._late.add(entry)
            self._late.add(entries[-1], self._resume)

    def _resume(self) -> None:
        """Use the journal again: its entries are written."""
        if self._journal is not None:
            self._journal.clear()
        self._is_paused = False


class EntryJournal:
    """The file of this process. It holds the lock of the file for as long as it lives."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd
        self._map = mmap.mmap(fd, SIZE_BYTES)
        self._used = 0

    def add(self, entry: AuditEntry) -> bool:
        """Write an entry; False if there is no space left for it."""
        encoded = _encode(entry)
        line = b"%08x %b\n\0" % (zlib.crc32(encoded), encoded)
        start = self._used
        end = start + len(line)
        if end > SIZE_BYTES:
            return False
        self._map[start:end] = line
        # The next line begins on the end mark of this one.
        self._used = end - 1
        return True

    def read(self) -> list[AuditEntry]:
        """Return the entries that were added since it was cleared."""
        return list(_decode_lines(self._map[: self._used + 1]))

    def clear(self) -> None:
        """Start from the beginning: all entries are committed."""
        # One byte is enough, and is written whole: what follows the mark is not read.
        self._map[:1] = _END
        self._used = 0

    def close(self) -> None:
        """Close the file, and delete it if it is empty; otherwise the next process that opens the store adds its entries."""
        if not self._used:
            self._path.unlink(missing_ok=True)
        self._map.close()
        os.close(self._fd)


def open_journal(store: Path) -> EntryJournal | None:
    """Create this process's journal beside the store; None where a file cannot be created, locked or given its size."""
    if not hasattr(os, "posix_fallocate"):
        return None
    path = store.with_name(f"{store.name}{_MARK}{os.getpid()}-{secrets.token_hex(4)}")
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        return None
    try:
        # Between its creation and this, another process that opens the store may have taken and deleted it.
        if try_lock(fd, path):
            os.posix_fallocate(fd, 0, SIZE_BYTES)
            return EntryJournal(path, fd)
    except (OSError, ValueError) as error:
        event(_log, logging.WARNING, "no audit journal", file=str(path), reason=str(error))
    path.unlink(missing_ok=True)
    os.close(fd)
    return None


def recover_journals(store: Path, append: Callable[[Sequence[AuditEntry]], None]) -> None:
    """Have the entries that killed processes have left in their journals committed by `append`, unless the audit has them."""
    for path, fd in lock_abandoned(store.with_name(f"{store.name}{_MARK}")):
        try:
            append(list(_decode_lines(os.pread(fd, os.fstat(fd).st_size, 0))))
        except (GatewayError, sqlite3.Error, OSError) as error:
            event(_log, logging.WARNING, "audit journal not recovered", file=str(path), reason=str(error))
        else:
            path.unlink(missing_ok=True)
        finally:
            os.close(fd)


def count_journaled(store: Path) -> int:
    """Count the entries in the journals of all processes, without changing anything."""
    count = 0
    for path in store.parent.glob(f"{store.name}{_MARK}*"):
        with contextlib.suppress(OSError):
            count += sum(1 for _ in _decode_lines(path.read_bytes()))
    return count


def _decode_lines(data: bytes) -> Iterator[AuditEntry]:
    """Decode the lines of a journal, except one that is not whole: its call was never answered."""
    for line in data.partition(_END)[0].splitlines():
        checksum, _, encoded = line.partition(b" ")
        with contextlib.suppress(msgspec.DecodeError, ValueError):
            if int(checksum, 16) == zlib.crc32(encoded):
                yield _decode(encoded)
