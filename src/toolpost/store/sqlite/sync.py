"""Syncs the write-ahead log to the disk after a commit, in a thread, while the event loop continues.

With `synchronous = FULL`, SQLite writes the frames of a commit to the log, syncs the log, and returns: the loop would be blocked
for as long. Here it commits with `NORMAL`, which writes the same frames without the sync, and the same file is synced afterwards;
only then are the callers of the group answered, and the readers that may have seen what it changed.

    commit of a, b (page cache)  ->  fdatasync of the -wal file  ->  a and b are answered, or raise that the disk has failed

A failed sync may have dropped dirty pages, and the next one would succeed. So after a failure nothing that needs
the disk succeeds until the store is opened again and SQLite has read what the disk really holds.
docs/decisions/0037 has the argument why this is as safe as `FULL`.
"""

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from toolpost.store.sqlite.transactions import Group, Job

Settle = Callable[[Group], None]

_sync_data: Final = getattr(os, "fdatasync", os.fsync)


class LogSync:
    """Syncs the log for one group at a time, in a thread that is started when it is first needed."""

    def __init__(self, path: Path) -> None:
        """Open the log, which must exist."""
        # For writing, which Windows requires of a flush.
        self._file = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        self._thread: threading.Thread | None = None
        self._requests: SimpleQueue[asyncio.AbstractEventLoop | None] = SimpleQueue()
        self._group: Group = []
        self._settle: Settle | None = None
        self.failure: sqlite3.OperationalError | None = None
        """Set by the first sync that fails. What the disk holds is unknown from then on, and later commits build on it."""

    @property
    def is_running(self) -> bool:
        """Whether a group is on its way to the disk."""
        return bool(self._group)

    def start(self, group: Group, settle: Settle) -> None:
        """Sync a group that was just committed, and call `settle` with it on the loop; none may be on its way."""
        self._group, self._settle = list(group), settle
        if self._thread is None:
            # A daemon: a loop that ended without closing the store must not keep the process alive.
            self._thread = threading.Thread(target=self._run, name="toolpost-disk", daemon=True)
            self._thread.start()
        self._requests.put(asyncio.get_running_loop())

    def join(self, job: Job) -> None:
        """Add a reader to the group that is on its way, to be answered with it."""
        self._group.append(job)

    def close(self) -> None:
        """Close the file; no group may be on its way."""
        if self._thread is not None:
            self._requests.put(None)
            self._thread.join()
        os.close(self._file)

    def _run(self) -> None:
        while (loop := self._requests.get()) is not None:
            error = None
            try:
                _sync_data(self._file)
            except OSError as failed:
                error = failed
            # A loop that was closed has no callers left.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._end, error)

    def _end(self, error: OSError | None) -> None:
        group, self._group = self._group, []
        if error is not None:
            self.failure = sqlite3.OperationalError(
                f"the disk failed ({error}); start again, to go on from what it holds"
            )
            self.failure.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            self.failure.__cause__ = error
            for job in group:
                job.error = self.failure
        assert self._settle is not None
        self._settle(group)
