"""The workspace as its tools use it: build, search, show and status, for one repository or all.

Blocking work runs in a small thread pool of its own; `plugin` refuses calls beyond `in_flight`.
"""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio
import anyio.to_thread

from toolpost import ToolpostError
from toolpost.base import JsonObject
from toolpost.parts.workspace.build_messages import BuildStep, IndexMode
from toolpost.parts.workspace.build_process import BuildQueue, ProcessRunner, build_repository, check_capabilities
from toolpost.parts.workspace.excerpt import show_slice
from toolpost.parts.workspace.open_index import OpenIndexes
from toolpost.parts.workspace.paths import relative_path
from toolpost.parts.workspace.patterns import search_pattern
from toolpost.parts.workspace.query import SearchRequest
from toolpost.parts.workspace.results import SearchResult, merge_hits
from toolpost.parts.workspace.search import search_index
from toolpost.parts.workspace.spec import Repository, WorkspaceSpec
from toolpost.parts.workspace.status import check_status, index_status, workspace_status
from toolpost.parts.workspace.watch import IndexWatcher, OnBuilt, OnProblem

_STALE_LIMIT = 50
_THREADS = 8
"""How many searches and reads run at once; further ones wait."""


class BuildCall(ProcessRunner, Protocol):
    """The services of the call that waits for a build: to run commands and to report progress."""

    def progress(self, progress: float | None, total: float | None, message: str | None, *, phase: str) -> None: ...


class WorkspaceService:
    """One workspace with its open indexes and watchers."""

    def __init__(self, spec: WorkspaceSpec) -> None:
        self.spec = spec
        self._indexes = OpenIndexes()
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._queue = BuildQueue()
        self._watchers: dict[str, IndexWatcher] = {}

    @asynccontextmanager
    async def open_watching(
        self, *, on_built: OnBuilt | None = None, on_problem: OnProblem | None = None
    ) -> AsyncIterator[None]:
        """Keep every index up to date in the background until this is left."""
        async with anyio.create_task_group() as tasks:
            for repository in self.spec.repositories:
                watcher = IndexWatcher(
                    self.spec, repository, self._indexes, self._queue, on_built=on_built, on_problem=on_problem
                )
                self._watchers[repository.name] = watcher
                tasks.start_soon(watcher.run)
            try:
                yield
            finally:
                self._watchers.clear()
                tasks.cancel_scope.cancel()

    async def build(
        self, call: BuildCall, *, repo: str | None, mode: IndexMode, incremental: bool, force: bool
    ) -> JsonObject:
        """Build the index of one repository, or of all; raises only if all fail, else lists the failures."""
        built: list[JsonObject] = []
        failures: list[tuple[str, ToolpostError]] = []
        repositories = self.spec.select(repo)
        for number, repository in enumerate(repositories):
            reporter = _ProgressReporter(call, repository, number, len(repositories))
            try:
                with self._queue.for_caller(repository.name):
                    built.append(
                        await build_repository(
                            self.spec,
                            repository,
                            call,
                            mode=mode,
                            incremental=incremental,
                            force=force,
                            on_step=reporter.report,
                        )
                    )
            except ToolpostError as error:
                failures.append((repository.name, error))
        if failures and not built:
            raise failures[0][1]
        return {"repositories": built, "failures": [_describe_failure(name, error) for name, error in failures]}

    async def search(self, request: SearchRequest, repo: str | None) -> JsonObject:
        """Search one repository, or all together. Returns at once when it is cancelled; the thread stops soon after."""
        check_capabilities()  # whether the optional libraries are installed
        stop = threading.Event()
        try:
            return await self._run_in_thread(self.search_blocking, request, repo, stop)
        finally:
            stop.set()

    async def _run_in_thread(self, function: Callable[..., JsonObject], *arguments: Any) -> JsonObject:
        # Abandoned on cancellation: a cancelled call must not wait for the thread.
        return await anyio.to_thread.run_sync(function, *arguments, abandon_on_cancel=True, limiter=self._threads)

    def search_blocking(self, request: SearchRequest, repo: str | None, stop: threading.Event) -> JsonObject:
        """Search in this thread; `stop` ends it early. Raises only if all repositories fail."""
        results, failures = self._search_each(request, self.spec.select(repo), stop)
        hits = merge_hits(results, request.top)
        stale = [
            {"repo": result.repo, "path": path, "state": state}
            for result in results
            for path, state in result.stale.items()
        ]
        return {
            "hits": [hit.as_object(score) for hit, score in hits],
            "searched": [result.repo for result in results],
            "truncated": any(result.is_cut for result in results),
            "stale": stale[:_STALE_LIMIT],
            "failures": [_describe_failure(name, error) for name, error in failures],
        }

    def _search_each(
        self, request: SearchRequest, repositories: tuple[Repository, ...], stop: threading.Event
    ) -> tuple[list[SearchResult], list[tuple[str, ToolpostError]]]:
        results: list[SearchResult] = []
        failures: list[tuple[str, ToolpostError]] = []
        search = search_pattern if request.regex else search_index
        for repository in repositories:
            try:
                results.append(search(self._indexes.get(repository), request, self.spec.limits, stop))
            except ToolpostError as error:
                failures.append((repository.name, error))
        if failures and not results:
            raise failures[0][1]
        return results, failures

    async def show(self, path: str, repo: str | None, start: int | None, end: int | None) -> JsonObject:
        """Return lines of a file, as `show_slice` does."""
        # The repository is found in the thread too: that looks at the disk.
        return await self._run_in_thread(lambda: show_slice(self._repository_of(path, repo), path, start, end))

    def _repository_of(self, path: str, repo: str | None) -> Repository:
        """Return the named repository, or the first that has the path; if none has, the first, whose error names the path."""
        if repo is not None:
            return self.spec.find(repo)
        for repository in self.spec.repositories:
            try:
                if (repository.root / relative_path(repository, path)).exists():
                    return repository
            except (ToolpostError, OSError):
                continue
        return self.spec.repositories[0]

    async def index_status(self, repo: str | None) -> JsonObject:
        """Return the status of one index: of the first repository if none is named."""
        check_capabilities()
        repository = self.spec.select(repo)[0]
        return self._add_watcher(await index_status(repository, self._indexes, self.spec.limits, self._threads))

    async def workspace_status(self) -> JsonObject:
        check_capabilities()
        status = await workspace_status(self.spec, self._indexes, self._threads)
        return status | {"repositories": [self._add_watcher(each) for each in status["repositories"]]}

    def _add_watcher(self, status: JsonObject) -> JsonObject:
        """Add the state of the watcher, if the index is watched."""
        watcher = self._watchers.get(status["repo"])
        return status | ({"watch": watcher.as_object()} if watcher else {})

    async def check_status(self) -> JsonObject:
        return await check_status(
            self.spec,
            self._indexes,
            {name: watcher.problem for name, watcher in self._watchers.items() if watcher.problem},
        )


class _ProgressReporter:
    """Turns build steps into progress from 0 to 100 over all repositories, which never falls."""

    def __init__(self, call: BuildCall, repository: Repository, number: int, count: int) -> None:
        self._call = call
        self._repository = repository
        self._number = number
        self._count = count

    def report(self, step: BuildStep) -> None:
        if step.phase == "parse":
            share = 0.02 + 0.88 * step.done / max(1, step.total or 1)
        else:
            share = 0.005 * step.done if step.phase == "scan" else 0.9 + 0.05 * step.done
        percent = 100 * (self._number + share) / self._count
        counted = f" {step.done}/{step.total}" if step.phase == "parse" and step.total else ""
        message = f"{self._repository.name}: {step.phase}{counted} {step.message}".rstrip()
        self._call.progress(round(percent, 2), 100, message, phase=step.phase)


def _describe_failure(name: str, error: ToolpostError) -> JsonObject:
    failure: JsonObject = {"repo": name, "code": error.code.value, "message": error.message}
    return failure | ({"hint": error.hint} if error.hint else {})
