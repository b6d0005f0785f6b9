"""A file put on the disk while the loop goes on: by the kernel itself where it can, otherwise by a thread."""

import asyncio
import contextlib
import importlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Protocol

Told = Callable[[OSError | None], None]
"""Told on the loop when it is over, with what went wrong."""

_sync_data: Final = getattr(os, "fdatasync", os.fsync)


class Disk(Protocol):
    """Puts one file on the disk, which somebody else writes."""

    def start(self, told: Told) -> None:
        """Have all that was written so far put on the disk; one at a time. An `OSError` if that cannot even be asked for."""
        ...

    def release(self) -> int:
        """Give the file back; nothing may be under way."""
        ...

    def close(self) -> None:
        """Let go of the file; nothing may be under way."""
        ...


class LateDisk:
    """Decides when it is first asked: most stores never are, and what the kernel is asked with takes a while to load."""

    def __init__(self, path: Path) -> None:
        """Open the file, which must be there."""
        # For writing, which Windows asks of those who flush.
        self._file = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        self._disk: Disk | None = None

    def start(self, told: Told) -> None:
        """Have all that was written so far put on the disk; one at a time."""
        if self._disk is None:
            self._disk = disk_of(self._file)
        try:
            self._disk.start(told)
        except OSError:
            # The kernel does not take it just now, or not of this file. That says nothing about the disk, which a thread asks.
            self._disk.release()
            self._disk = ThreadDisk(self._file)
            self._disk.start(told)

    def release(self) -> int:
        """Give the file back; nothing may be under way."""
        return self._file if self._disk is None else self._disk.release()

    def close(self) -> None:
        """Let go of the file; nothing may be under way."""
        os.close(self.release())


def disk_of(file: int) -> Disk:
    """Take the way that costs least: a thread has to be woken, and then waits for the interpreter to be free."""
    try:
        module: Any = importlib.import_module("toolpost.store.sqlite.kernel_disk")
        disk: Disk = module.KernelDisk(file)
    except (ImportError, OSError):
        return ThreadDisk(file)
    return disk


class ThreadDisk:
    """Has a thread wait for the disk."""

    def __init__(self, file: int) -> None:
        """Take over a file."""
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Told | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="toolpost-disk", daemon=True)
        self._thread.start()

    def start(self, told: Told) -> None:
        """Have all that was written so far put on the disk; one at a time."""
        self._queue.put(told)

    def release(self) -> int:
        """Give the file back; nothing may be under way."""
        self._queue.put(None)
        self._thread.join()
        return self._file

    def close(self) -> None:
        """Let go of the file; nothing may be under way."""
        os.close(self.release())

    def _run(self) -> None:
        while (told := self._queue.get()) is not None:
            error = None
            try:
                _sync_data(self._file)
            except OSError as failed:
                error = failed
            # A loop that was closed has nobody left who waits.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(told, error)
