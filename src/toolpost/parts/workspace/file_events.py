"""File system notifications: which folders are watched, and the changed paths, returned once the files are left alone.

watchfiles blocks, so it runs in a thread; `FileChanges` passes its paths to the event loop.
"""

import os
import sys
import threading
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import anyio.from_thread
import anyio.to_thread

from toolpost.contracts.errors import ToolFailed
from toolpost.parts.workspace import optional
from toolpost.parts.workspace.scan import FileScan, index_prefix, work_tree_of
from toolpost.parts.workspace.spec import Repository

STEP_MS: Final = 100
PATHS_LIMIT: Final = 200
"""How many changed paths are kept; if there are more, everything counts as changed."""
WAIT_LIMIT_S: Final = 10.0
"""How long `FileChanges.collect` waits for files that never stop changing."""
WATCHES_TREES: Final = not sys.platform.startswith("linux")
"""Whether the system watches a folder with everything below it; inotify needs one watch for each folder."""


def folders_to_watch(repository: Repository) -> frozenset[str]:
    """Return the folders that can contain indexed files; those that git ignores are left out, however large they are."""
    root = repository.root
    if not root.is_dir():
        raise ToolFailed(f"There is no folder {root}.", hint="`workspace.roots` in toolpost.toml names it")
    if WATCHES_TREES:
        return frozenset({os.fspath(root)})
    tree = work_tree_of(repository)
    file_scan = FileScan(root=root, tree=tree)
    for _ in file_scan.files():
        continue
    if tree is not None:
        tree.index.close()
    # A build writes to the index: if that were watched, every build would cause the next one.
    own = index_prefix(repository) or "\0"
    return frozenset(
        f"{os.fspath(root)}/{folder}" if folder else os.fspath(root)
        for folder in file_scan.folders
        if not f"{folder}/".startswith(own)
    )


class FileChanges:
    """Changed paths that have not been collected yet."""

    def __init__(self) -> None:
        self._paths: set[str] = set()
        self._has_changed = anyio.Event()
        self._failure: str | None = None

    def add(self, paths: Iterable[str]) -> None:
        for path in paths:
            if len(self._paths) <= PATHS_LIMIT:
                self._paths.add(path)
        self._has_changed.set()

    def fail(self, reason: str) -> None:
        """End watching: `collect` and `check` raise from now on."""
        self._failure = reason
        self._has_changed.set()

    def check(self) -> None:
        """Raise `ToolFailed` if watching has ended."""
        if self._failure is not None:
            raise ToolFailed(f"Changes cannot be watched: {self._failure}.")

    async def collect(self, *, settle_s: float) -> frozenset[str]:
        """Wait for a change, then until nothing has changed for `settle_s`, and return the paths."""
        await self._has_changed.wait()
        with anyio.move_on_after(max(WAIT_LIMIT_S, settle_s)):
            while self._has_changed.is_set():
                self.check()
                self._has_changed = anyio.Event()
                with anyio.move_on_after(settle_s):
                    await self._has_changed.wait()
        self._has_changed = anyio.Event()
        paths, self._paths = frozenset(self._paths), set()
        return paths


@asynccontextmanager
async def watch_folders(folders: Collection[str]) -> AsyncIterator[FileChanges]:
    """Watch folders. Every change after this is entered is reported; leaving it ends the thread."""
    changes, has_started, stop = FileChanges(), anyio.Event(), threading.Event()
    # A limiter of its own: the thread lives for hours, and must not take a place in the default thread pool.
    limiter = anyio.CapacityLimiter(1)

    async def watch() -> None:
        try:
            await anyio.to_thread.run_sync(_watch, sorted(folders), changes, has_started, stop, limiter=limiter)
        except (OSError, RuntimeError) as error:
            changes.fail(str(error).split(" about [", 1)[0].rstrip("."))
        has_started.set()

    optional.watchfiles()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        try:
            await has_started.wait()
            yield changes
        finally:
            stop.set()


def _watch(folders: list[str], changes: FileChanges, has_started: anyio.Event, stop: threading.Event) -> None:
    """Run in a thread until `stop` is set."""
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
    for batch in batches:
        # The first batch, even an empty one, shows that every watch is set.
        anyio.from_thread.run_sync(has_started.set)
        if batch:
            anyio.from_thread.run_sync(changes.add, [path for _, path in batch])
