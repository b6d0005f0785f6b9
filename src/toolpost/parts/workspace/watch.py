"""Keep an index up to date: changed files are indexed in the background once they are left alone.

Where files cannot be watched (no watches left, a network drive), the repository is scanned every `POLL_S` instead.
"""

import logging
import time
from collections.abc import Callable
from pathlib import PurePath
from typing import Final

import anyio
import anyio.to_thread

from toolpost.base.events import event
from toolpost.base.ids import JsonObject
from toolpost.contracts.errors import NoIndex, ToolpostError
from toolpost.parts.workspace.build_order import IndexMode
from toolpost.parts.workspace.build_process import BuildQueue, build_repository
from toolpost.parts.workspace.file_events import PATHS_LIMIT, FileChanges, folders_to_watch, watch_folders
from toolpost.parts.workspace.open_index import OpenIndexes
from toolpost.parts.workspace.scan import index_prefix, work_tree_of
from toolpost.parts.workspace.secrets import is_hidden, may_hold_secrets
from toolpost.parts.workspace.spec import Repository, WorkspaceSpec
from toolpost.upstreams.process import tree as process_tree

_log = logging.getLogger("toolpost.parts.workspace")

POLL_S: Final = 15.0
"""How often a repository is scanned if it cannot be watched."""
RETRY_LIMIT_S: Final = 60.0
_CHANGES: Final = ("added", "changed", "renamed", "removed")

OnBuilt = Callable[[JsonObject], None]
"""Called with the summary of each build that changed something."""
OnProblem = Callable[[str, str], None]
"""Called once with the name of a repository and what is wrong."""


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
                    built = await self._run_build()
            except TimeoutError:
                self._note_failure(f"The build took longer than {self._spec.build_limit_s:g} s.")
            except Exception as error:  # noqa: BLE001 (an index that cannot be updated must not end the gateway)
                self._note_failure(_reason(error))
            else:
                self._problem, self._failures = None, 0
                self._report_build(built)
            self._phase = "watching"
            self._took_s = time.monotonic() - started
            self._next_build_at = time.monotonic() + min(self._took_s, RETRY_LIMIT_S)
        return self._problem is None

    async def _run_build(self) -> JsonObject:
        mode = await anyio.to_thread.run_sync(self._mode)
        return await build_repository(
            self._spec,
            self._repository,
            _BackgroundRunner(),
            mode=mode,
            incremental=True,
            force=False,
            on_step=lambda _: None,
        )

    def _mode(self) -> IndexMode:
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

    def _report_build(self, built: JsonObject) -> None:
        if any(built[kind] for kind in _CHANGES):
            event(_log, logging.INFO, "index updated", **{name: built[name] for name in ("repo", *_CHANGES, "seconds")})
            if self._on_built is not None:
                self._on_built(built)


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
        on_line: process_tree.LineListener | None = None,
    ) -> process_tree.CompletedCommand:
        return await process_tree.run(command, env=env, input=input, tail_bytes=keep_bytes, on_line=on_line)
