"""A group that is committed and on its way to the disk, and whoever waits for what it has changed."""

import sqlite3
from collections.abc import Callable

from toolpost.store.sqlite.disk import Disk
from toolpost.store.sqlite.transactions import Group, Job


class Syncing:
    """Settles one group at a time when all that was committed is on the disk. Once that has failed, nothing is any more."""

    def __init__(self, disk: Disk, *, settle: Callable[[Group], None]) -> None:
        self._disk = disk
        self._settle = settle
        self._under_way: Group = []
        self.failure: sqlite3.OperationalError | None = None
        """Nobody knows what the disk holds after this: what came later would rest on it."""

    @property
    def is_under_way(self) -> bool:
        """Whether a group waits for the disk."""
        return bool(self._under_way)

    def start(self, group: Group) -> None:
        """Settle a group that was just committed, when it is on the disk."""
        self._under_way = list(group)
        self._disk.start(self._end)

    def join(self, job: Job) -> None:
        """Settle one who only looks, when the group that is under way is on the disk."""
        self._under_way.append(job)

    def close(self) -> None:
        """Let go of the file; nothing may be under way."""
        self._disk.close()

    def _end(self, error: OSError | None) -> None:
        group, self._under_way = self._under_way, []
        if error is not None:
            self.failure = _failure(error)
            for job in group:
                job.error = self.failure
        self._settle(group)


def _failure(error: OSError) -> sqlite3.OperationalError:
    failure = sqlite3.OperationalError(f"the disk failed ({error}); start again, to go on from what it holds")
    failure.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    failure.__cause__ = error
    return failure
