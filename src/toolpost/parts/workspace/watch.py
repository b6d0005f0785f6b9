"""Keep an index up to date: changed files are indexed in the background once they are left alone.

Where files cannot be watched (no watches left, a network drive), the repository is scanned every `POLL_S` instead. watchfiles
blocks, so it runs in a thread; `FileChanges` passes its paths to the event loop.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from pathlib import PurePath
from typing import Any, Final

import anyio
import anyio.from_thread
import anyio.to_thread

from toolpost import NoIndex, ToolFailed, ToolpostError
from toolpost.base import JsonObject, event
from toolpost.parts.workspace import optional
from toolpost.parts.workspace.build_messages import IndexMode
from toolpost.parts.workspace.build_process import BuildQueue, build_repository
from toolpost.parts.workspace.open_index import OpenIndexes
from toolpost.parts.workspace.scan import FileScan, index_prefix, work_tree_of
from toolpost.parts.workspace.secrets import is_hidden, may_hold_secrets
from toolpost.parts.workspace.spec import Repository, WorkspaceSpec
from toolpost.processes import CompletedCommand, LineListener, run

_log = logging.getLogger("toolpost.parts.workspace")

POLL_S: Final = 15.0
"""How often a repository is scanned if it cannot be watched."""
RETRY_LIMIT_S: Final = 60.0
STEP_MS: Final = 100
PATHS_LIMIT: Final = 200
"""How many changed paths are kept; if there are more, everything counts as changed."""
WAIT_LIMIT_S: Final = 10.0
"""How long `FileChanges.collect` waits for files that never stop changing."""
WATCHES_TREES: Final = not sys.platform.startswith("linux")
"""Whether the system watches a folder with everything below it; inotify needs one watch for each folder."""
_CHANGES: Final = ("added", "changed", "renamed", "removed")

OnBuilt = Callable[[JsonObject], None]
"""Called with the summary of each build that changed something."""
OnProblem = Callable[[str, str], None]
"""Called once with the name of a repository and what is wrong."""


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
            await anyio.to_thread.run_sync(
                _run_watchfiles, sorted(folders), changes, has_started, stop, limiter=limiter
            )
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


def _run_watchfiles(folders: list[str], changes: FileChanges, has_started: anyio.Event, stop: threading.Event) -> None:
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


class IndexWatcher:
    """Keeps the index of one repository up to date. Failures are logged and retried; `run` raises nothing but cancellation."""

    def __init__(
        self,
        spec: WorkspaceSpec,
        repository: Repository,
        indexes: OpenIndexes,
        queue: BuildQueue,
        *,
        on_built: OnBuilt | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        self._spec = spec
        self._repository = repository
        self._indexes = indexes
        self._queue = queue
        self._on_built = on_built
        self._on_problem = on_problem
        self._phase = "starting"
        self._polling_reason: str | None = None
        """Why the repository is polled instead of watched."""
        self._problem: str | None = None
        """Why the last build failed."""
        self._failures = 0
        self._took_s = 0.0
        self._next_build_at = 0.0

    @property
    def problem(self) -> str | None:
        """Why the last build failed, or why the repository is not watched; None if all is well."""
        return self._problem or self._polling_reason

    def as_object(self) -> JsonObject:
        """Return the state: `starting`, `watching`, `indexing`, `polling` or `failing`, with the problem."""
        state = "failing" if self._problem else "polling" if self._polling_reason else self._phase
        return {"state": state} | ({"message": self.problem} if self.problem else {})

    async def run(self) -> None:
        """Watch and build until cancelled."""
        while True:
            try:
                await self._watch()
            except Exception as error:  # noqa: BLE001 (an index that cannot be updated must not end the gateway)
                reason = _reason(error)
                if reason != self._polling_reason:
                    self._report_problem("changes are not watched", reason)
                self._polling_reason = reason
                await anyio.sleep(max(POLL_S, 4 * self._took_s))
                await self._build()

    async def _watch(self) -> None:
        """Build after each change; return when the set of folders has changed, to watch the new ones."""
        folders = await anyio.to_thread.run_sync(folders_to_watch, self._repository)
        async with watch_folders(folders) as changes:
            changes.check()
            self._polling_reason = None
            # Watch first, then build: the build finds earlier changes, the watch reports later ones.
            is_done = await self._build()
            while True:
                has_changed = await self._wait_for_changes(
                    changes, None if is_done else min(2.0 ** min(self._failures, 10), RETRY_LIMIT_S)
                )
                if has_changed and await anyio.to_thread.run_sync(folders_to_watch, self._repository) != folders:
                    return
                is_done = await self._build()

    async def _wait_for_changes(self, changes: FileChanges, limit_s: float | None) -> bool:
        """Wait for changes of files that may be indexed; return False if none came within `limit_s`."""
        with anyio.move_on_after(limit_s):
            while True:
                paths = await changes.collect(settle_s=self._spec.settle_s)
                if await anyio.to_thread.run_sync(self._is_relevant, paths):
                    # After a long build wait as long again, so that building takes at most half of the time.
                    await anyio.sleep(max(0.0, self._next_build_at - time.monotonic()))
                    return True
        return False

    def _is_relevant(self, paths: frozenset[str]) -> bool:
        """Whether any of these files may be indexed: not hidden, not secret, and tracked or not ignored by git."""
        if len(paths) > PATHS_LIMIT:
            return True
        root, own = self._repository.root, index_prefix(self._repository)
        below = (PurePath(path).relative_to(root).as_posix() for path in paths)
        seen = [path for path in below if not is_hidden(path) and not (own and f"{path}/".startswith(own))]
        seen = [path for path in seen if not may_hold_secrets(path) or self._repository.allows(path)]
        if not seen:
            return False
        tree = work_tree_of(self._repository)
        if tree is None:
            return True
        is_relevant = any(tree.is_tracked(path) or not tree.ignore.ignores(f"{tree.prefix}{path}") for path in seen)
        tree.index.close()
        return is_relevant

    async def _build(self) -> bool:
        """Update the index; return whether that succeeded. Errors are kept as the problem."""
        async with self._queue.in_background(self._repository.name):
            self._phase, started = "indexing", time.monotonic()
            try:
                with anyio.fail_after(self._spec.build_limit_s):
                    built = await build_repository(
                        self._spec,
                        self._repository,
                        _BackgroundRunner(),
                        mode=await anyio.to_thread.run_sync(self._read_mode),
                        incremental=True,
                        force=False,
                        on_step=lambda _: None,
                    )
            except TimeoutError:
                self._note_failure(f"The build took longer than {self._spec.build_limit_s:g} s.")
            except Exception as error:  # noqa: BLE001 (an index that cannot be updated must not end the gateway)
                self._note_failure(_reason(error))
            else:
                self._problem, self._failures = None, 0
                if any(built[kind] for kind in _CHANGES):
                    facts = {name: built[name] for name in ("repo", *_CHANGES, "seconds")}
                    event(_log, logging.INFO, "index updated", **facts)
                    if self._on_built is not None:
                        self._on_built(built)
            self._phase = "watching"
            self._took_s = time.monotonic() - started
            self._next_build_at = time.monotonic() + min(self._took_s, RETRY_LIMIT_S)
        return self._problem is None

    def _read_mode(self) -> IndexMode:
        """Return the mode of the present index, which an update keeps."""
        try:
            with self._indexes.get(self._repository).read_manifest() as manifest:
                mode: IndexMode = manifest.facts()["mode"]
                return mode
        except NoIndex:
            return "all"

    def _note_failure(self, reason: str) -> None:
        self._failures += 1
        if reason != self._problem:
            self._report_problem("index not updated", reason)
        self._problem = reason

    def _report_problem(self, what: str, reason: str) -> None:
        event(_log, logging.WARNING, what, repo=self._repository.name, reason=reason)
        if self._on_problem is not None:
            self._on_problem(self._repository.name, reason)


def _reason(error: Exception) -> str:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error.message if isinstance(error, ToolpostError) else f"{type(error).__name__}: {error}"


class _BackgroundRunner:
    """A `ProcessRunner` for builds that no call waits for."""

    async def run(
        self,
        command: list[str],
        *,
        env: dict[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002 (as the context has it)
        check: bool = True,  # noqa: ARG002 (the outcome is read from its output)
        keep_bytes: int = 16_384,
        on_line: LineListener | None = None,
    ) -> CompletedCommand:
        return await run(command, env=env, input=input, tail_bytes=keep_bytes, on_line=on_line)
