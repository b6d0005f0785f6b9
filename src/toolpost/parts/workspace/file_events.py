"""What the system says of changed files: gathered by a thread, handed over once the files are left alone."""

import threading
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import anyio.from_thread
import anyio.to_thread

from toolpost.contracts.errors import ToolFailed
from toolpost.parts.workspace import optional
from toolpost.parts.workspace.folders import WATCHES_TREES

STEP_MS: Final = 100
PATHS_LIMIT: Final = 200
"""Paths that are kept of those that changed together; of more than that it is not asked which they are."""
WAIT_LIMIT_S: Final = 10.0
"""How long files that never come to rest are waited for."""


class Notices:
    """Paths that have changed and nobody has taken yet."""

    def __init__(self) -> None:
        self._paths: set[str] = set()
        self._noted = anyio.Event()
        self._failure: str | None = None

    def note(self, paths: Iterable[str]) -> None:
        """Keep paths."""
        for path in paths:
            if len(self._paths) <= PATHS_LIMIT:
                self._paths.add(path)
        self._noted.set()

    def fail(self, reason: str) -> None:
        """Say to whoever waits that nothing will come any more."""
        self._failure = reason
        self._noted.set()

    def check(self) -> None:
        """Raise if nothing will come any more."""
        if self._failure is not None:
            raise ToolFailed(f"Changes cannot be watched: {self._failure}.")

    async def taken(self, *, settle_s: float) -> frozenset[str]:
        """Wait for a change, then until nothing has changed for a while, and return the paths."""
        await self._noted.wait()
        with anyio.move_on_after(max(WAIT_LIMIT_S, settle_s)):
            while self._noted.is_set():
                self.check()
                self._noted = anyio.Event()
                with anyio.move_on_after(settle_s):
                    await self._noted.wait()
        self._noted = anyio.Event()
        paths, self._paths = frozenset(self._paths), set()
        return paths


@asynccontextmanager
async def open_notices(folders: Collection[str]) -> AsyncIterator[Notices]:
    """Watch folders; from when this is open no change goes unnoticed. Leaving it ends the thread."""
    notices, begun, stop = Notices(), anyio.Event(), threading.Event()
    # A thread of its own: those that everybody shares are not to be held for hours.
    limiter = anyio.CapacityLimiter(1)

    async def watch() -> None:
        try:
            await anyio.to_thread.run_sync(_watch, sorted(folders), notices, begun, stop, limiter=limiter)
        except (OSError, RuntimeError) as error:
            notices.fail(str(error).split(" about [", 1)[0].rstrip("."))
        begun.set()

    optional.watchfiles()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        try:
            await begun.wait()
            yield notices
        finally:
            stop.set()


def _watch(folders: list[str], notices: Notices, begun: anyio.Event, stop: threading.Event) -> None:
    """Watch until told to stop."""
    batches: Any = optional.watchfiles().watch(
        *folders,
        watch_filter=None,
        debounce=10 * STEP_MS,
        step=STEP_MS,
        stop_event=stop,
        rust_timeout=2 * STEP_MS,
        yield_on_timeout=True,
        raise_interrupt=False,
        recursive=WATCHES_TREES,
        ignore_permission_denied=True,
    )
    for changes in batches:
        # Whatever comes first says that every watch is in its place.
        anyio.from_thread.run_sync(begun.set)
        if changes:
            anyio.from_thread.run_sync(notices.note, [path for _, path in changes])
