"""Wake-ups for a database file: in this process at once, in others through a small file that each of them polls."""

import asyncio
import logging
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from toolpost.base.events import event
from toolpost.store.wakeups import Listener, Listeners, encode_topic

_log = logging.getLogger("toolpost.store")

CHECK_S: Final = 0.02
"""How often the file is checked while there are listeners: one `fstat`, however many there are."""

LARGEST_BYTES: Final = 1 << 20
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
_MARK_BYTES: Final = 33


class SqliteWakeups:
    """Each ring is a line in the file. Nothing in the database is touched, so a ring costs no commit."""

    def __init__(self, path: str | Path) -> None:
        # A database in memory belongs to one process.
        self._path = path.with_name(path.name + "-rings") if isinstance(path, Path) else None
        self._origin = uuid.uuid4().hex[:12]
        self._listeners = Listeners()
        self._file: WakeupFile | None = None
        self._watching: asyncio.Task[None] | None = None

    def ring(self, topic: str) -> None:
        """Wake the listeners of a topic, here at once and in other processes soon."""
        name = encode_topic(topic)
        self._listeners.wake([name])
        if self._path is not None:
            try:
                self._open_file(self._path).add(f"{self._origin} {name}")
            except OSError as error:
                # What was rung for is committed: a full disk must not make it look as if it were not.
                self._log_error(error)

    def open_listener(self, *topics: str) -> "_Listening":
        """Listen to topics; rings from now on wake the listener."""
        return _Listening(self, [encode_topic(topic) for topic in topics])

    def join(self, names: Sequence[str]) -> Listener:
        """Add a listener to these topics."""
        listener = self._listeners.join(names)
        if self._watching is None and self._path is not None:
            try:
                file = self._open_file(self._path)
                file.read_new()
                self._watching = asyncio.get_running_loop().create_task(self._watch(file), name="toolpost-rings")
            except OSError as error:
                self._log_error(error)
        return listener

    def leave(self, names: Sequence[str], listener: Listener) -> None:
        """Remove a listener from these topics."""
        self._listeners.leave(names, listener)

    async def aclose(self) -> None:
        """Stop watching."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            self._watching = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open_file(self, path: Path) -> "WakeupFile":
        if self._file is None:
            self._file = WakeupFile(path)
        return self._file

    def _log_error(self, error: OSError) -> None:
        """Log that the file cannot be opened, read or written now: a ring is a hint, and may be missed."""
        event(_log, logging.WARNING, "other processes are not woken", path=str(self._path), reason=str(error))

    async def _watch(self, file: "WakeupFile") -> None:
        try:
            while self._listeners:
                await asyncio.sleep(CHECK_S)
                lines = file.read_new()
                if lines is None:
                    self._listeners.wake_all()
                    continue
                rung = (line.partition(" ") for line in lines)
                self._listeners.wake(name for origin, _, name in rung if origin != self._origin)
        finally:
            self._watching = None


class _Listening:
    """A listener while this is open. A class: each poll of a worker opens one, and a generator takes several times as long."""

    __slots__ = ("_listener", "_names", "_wakeups")

    def __init__(self, wakeups: SqliteWakeups, names: Sequence[str]) -> None:
        self._wakeups = wakeups
        self._names = names

    async def __aenter__(self) -> Listener:
        self._listener = self._wakeups.join(self._names)
        return self._listener

    async def __aexit__(self, *_: object) -> None:
        self._wakeups.leave(self._names, self._listener)


class WakeupFile:
    """A file to which processes append lines and which they read. A long one is truncated, and gets a new random first line."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, _FLAGS, 0o600)
        if os.fstat(self._file).st_size == 0:
            self._begin()
        self._mark = self._bytes(0, _MARK_BYTES)
        self._read = os.fstat(self._file).st_size

    def add(self, line: str) -> None:
        if os.fstat(self._file).st_size > LARGEST_BYTES:
            os.ftruncate(self._file, 0)
            self._begin()
        os.write(self._file, f"{line}\n".encode())

    def read_new(self) -> list[str] | None:
        """Return the lines since the last call; None if the file was truncated since, so that some may be missed."""
        size = os.fstat(self._file).st_size
        if size == self._read:
            return []
        # Compared by its random first line, not by its size: a file that was truncated may be longer again by now.
        mark = self._bytes(0, _MARK_BYTES)
        if mark != self._mark:
            self._mark, self._read = mark, size
            return None
        new = self._bytes(self._read, size - self._read)
        whole = new.rfind(b"\n") + 1
        self._read += whole
        return new[:whole].decode("ascii", "replace").splitlines()

    def close(self) -> None:
        os.close(self._file)

    def _begin(self) -> None:
        os.write(self._file, f"{uuid.uuid4().hex}\n".encode())

    def _bytes(self, at: int, count: int) -> bytes:
        # The position is of no matter to `add`: the file is opened with O_APPEND.
        os.lseek(self._file, at, os.SEEK_SET)
        return os.read(self._file, max(0, count))
