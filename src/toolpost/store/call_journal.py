"""A journal of calls in flight: calls that may have had an effect are known even after a kill before their audit entry.

The audit has one entry for a call, written when the call ends. A tool may write a file, and the gateway be killed before that:
without this journal nothing would show that the call was ever made. So each call is written into a file of this process before it
is dispatched, and taken out when its entry is safe. The file is mapped into memory: a write is a copy into the page cache, which
survives the process, though not the machine, and takes a microsecond.

    call a enters -> slot 0    call b enters -> slot 1    a is recorded -> slot 0 is free    killed: b is still in slot 1

The next process that opens the store finds the file, whose lock was lost with its process, and records each call as `lost`, in
the transaction that looks whether the audit has the call already. So each is recorded once, also if several gateways start at the
same time, or if one is killed before it has deleted the file. A store in PostgreSQL has these files in a folder of the gateway:
they are found when a gateway is started there again.

A slot is one or more blocks of `BLOCK_BYTES`: a mark, the JSON of the call and a zero byte. A free one has a zero byte for a
mark. The mark is set last, and a killed process has done all that came before: no slot that has it is half written. The file
only grows to what was in flight at once, and has its disk space before it is written to: to write to a mapped page without
space behind it would kill the process with a signal.
"""

import contextlib
import logging
import math
import mmap
import os
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from toolpost.base.events import event
from toolpost.base.state_folder import make_folder
from toolpost.contracts.errors import StoreUnavailable
from toolpost.store.audit_values import AuditDraft, AuditEntry

if sys.platform != "win32":
    import fcntl

_log = logging.getLogger("toolpost.store")

LOGGED_TOOLS: Final = 10
"""How many tools of lost calls a line of the log names."""

BLOCK_BYTES: Final = 1024
FIRST_BLOCKS: Final = 64
"""How many blocks a new file has; it doubles when they are used up."""
RETRY_S: Final = 10.0
"""After how many seconds without a journal the next call tries again to make one."""
_FREE: Final = 0
_TAKEN: Final = 1
_END: Final = b"\0"
"""Stands after the JSON of a call, which never holds it: JSON escapes it."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AuditDraft).decode

Slot = tuple[int, int]
"""The first block of a slot, and how many it has."""


class CallJournal:
    """The file of this process, made when the first call enters. It holds the lock of the file for as long as it lives."""

    def __init__(self, prefix: Path) -> None:
        """`prefix` is the beginning of the path, which all journals of a store share."""
        self._prefix = prefix
        self._path: Path | None = None
        self._fd = -1
        self._map: mmap.mmap | None = None
        self._blocks = 0
        self._used = 0
        """Blocks that have belonged to a slot; those behind them are free and zero."""
        self._free: dict[int, list[int]] = {}
        """First blocks of slots that were left, by how many blocks they have."""
        self._in_flight = 0
        self._off_until = math.inf if sys.platform == "win32" else 0.0
        """Until when no file is made; a disk may have room again."""
        self._is_reported = False

    def enter(self, draft: AuditDraft) -> Slot | None:
        """Write what is known of a call before it is dispatched; None where no journal can be made, which is logged once.

        Raises StoreUnavailable if there is a journal and no space for the call.
        """
        line = _encode(draft) + _END
        count = len(line) // BLOCK_BYTES + 1  # with the mark
        # Slots of the same size are used again, so that the file grows with what is in flight and not with what was called.
        if free := self._free.get(count):
            first = free.pop()
        else:
            if self._map is None and not self._open():
                return None
            first = self._used
            if first + count > self._blocks:
                self._grow(first + count)
            self._used += count
        assert self._map is not None
        start = first * BLOCK_BYTES
        self._map[start + 1 : start + 1 + len(line)] = line
        # Last: a process that is killed in between leaves a slot that counts as free.
        self._map[start] = _TAKEN
        self._in_flight += 1
        return first, count

    def leave(self, slot: Slot) -> None:
        """Take a call out: its entry is safe."""
        if self._map is None:
            return
        first, count = slot
        self._map[first * BLOCK_BYTES] = _FREE
        self._free.setdefault(count, []).append(first)
        self._in_flight -= 1

    def close(self) -> None:
        """Close the file, and delete it unless calls are left in it: those are recorded when the store is next opened."""
        if self._map is None or self._path is None:
            return
        # While it is still locked: another process would take it for that of a killed one.
        if not self._in_flight:
            self._path.unlink(missing_ok=True)
        self._map.close()
        self._map = None
        self._free.clear()
        self._off_until = math.inf
        os.close(self._fd)

    def _open(self) -> bool:
        if time.monotonic() < self._off_until:
            return False
        path = self._prefix.with_name(f"{self._prefix.name}{os.getpid()}-{secrets.token_hex(4)}")
        try:
            make_folder(path.parent)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            return self._give_up(path, error)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _reserve(fd, FIRST_BLOCKS * BLOCK_BYTES)
            self._map = mmap.mmap(fd, FIRST_BLOCKS * BLOCK_BYTES)
        except (OSError, ValueError) as error:
            path.unlink(missing_ok=True)
            os.close(fd)
            return self._give_up(path, error)
        self._path, self._fd, self._blocks = path, fd, FIRST_BLOCKS
        return True

    def _give_up(self, path: Path, error: Exception) -> bool:
        self._off_until = time.monotonic() + RETRY_S
        if not self._is_reported:
            self._is_reported = True
            event(_log, logging.WARNING, "calls in flight are not journaled", file=str(path), reason=str(error))
        return False

    def _grow(self, blocks: int) -> None:
        assert self._map is not None
        new = max(blocks, self._blocks * 2)
        try:
            _reserve(self._fd, new * BLOCK_BYTES)
            # A new mapping: macOS cannot resize a mapping.
            before, self._map = self._map, mmap.mmap(self._fd, new * BLOCK_BYTES)
            before.close()
        except (OSError, ValueError) as error:
            raise StoreUnavailable(
                f"the journal of calls in flight cannot grow: {error}", hint="make space on the disk of the gateway"
            ) from error
        self._blocks = new


def _reserve(fd: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
        return
    # Without the call, the space is there once it was written to.
    have = os.fstat(fd).st_size
    os.pwrite(fd, bytes(size - have), have)


class AbandonedCalls:
    """The journals of processes that have ended, and the calls in them."""

    def __init__(self, prefix: Path) -> None:
        """Take the locks of all journals of a store whose process has ended; `close` lets go of them."""
        self._files = list(lock_abandoned(prefix))
        self.entries = [entry for _, fd in self._files for entry in _entries_in(fd)]
        """What is to be recorded, of those that are not."""

    def delete(self) -> None:
        """Delete the journals: what was in them is recorded. One line tells of all the calls, however many there are."""
        if self.entries:
            event(
                _log,
                logging.WARNING,
                "gateway was killed",
                calls=len(self.entries),
                tools=sorted({entry.tool for entry in self.entries})[:LOGGED_TOOLS],
                hint="calls in flight at that time; the audit has those whose end is unknown with the outcome `lost`",
            )
        for path, _ in self._files:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the locks."""
        for _, fd in self._files:
            os.close(fd)
        self._files = []


def lock_abandoned(prefix: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files that begin with `prefix` and whose process has ended, open and locked."""
    if sys.platform == "win32":
        return
    for path in sorted(prefix.parent.glob(f"{prefix.name}*")):
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDWR)
            if try_lock(fd, path):
                yield path, fd
            else:
                os.close(fd)


def try_lock(fd: int, path: Path) -> bool:
    """Take the lock of a file; False if its process lives, or the file was deleted since it was opened."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(fd).st_ino == path.stat().st_ino
    except OSError:
        return False


def _entries_in(fd: int) -> Iterator[AuditEntry]:
    data = os.pread(fd, os.fstat(fd).st_size, 0)
    for start in range(0, len(data), BLOCK_BYTES):
        # A block within a slot may begin with anything: what follows is no JSON of a call then.
        if data[start] == _TAKEN:
            with contextlib.suppress(msgspec.DecodeError, TypeError):
                yield lost_entry(_decode(data[start + 1 : data.find(_END, start + 1)]))


def lost_entry(draft: AuditDraft) -> AuditEntry:
    """Return the entry of a call that entered and never left: what it returned, and how long it took, is not known."""
    return draft.complete(outcome="lost", code=None, duration_ms=0.0, result=None)
