"""The workspace as its tools see it: every question comes here, and is put to the repositories that it is about."""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio
import anyio.to_thread

from toolpost.base.ids import JsonObject
from toolpost.contracts.errors import ToolpostError
from toolpost.parts.workspace.build_order import Mode, Step
from toolpost.parts.workspace.build_process import Runner, build_repository, check_capabilities
from toolpost.parts.workspace.build_queue import Turns
from toolpost.parts.workspace.excerpt import show_slice
from toolpost.parts.workspace.hits import Found, Wish
from toolpost.parts.workspace.limiter import Gate
from toolpost.parts.workspace.merge import merged
from toolpost.parts.workspace.open_index import Indexes
from toolpost.parts.workspace.paths import relative_in
from toolpost.parts.workspace.patterns import search_pattern
from toolpost.parts.workspace.search import search_index
from toolpost.parts.workspace.spec import Repository, WorkspaceSpec
from toolpost.parts.workspace.status import check_status, index_status, workspace_status
from toolpost.parts.workspace.watch import OnBuilt, OnTrouble, Watch

_STALE_LIMIT = 50
_THREADS = 8
"""Questions that are worked on at once; the others wait."""


class BuildCall(Runner, Protocol):
    """What a build is given of its call."""

    def progress(self, progress: float | None, total: float | None, message: str | None, *, phase: str) -> None:
        """Say how far it has come."""


class Desk:
    """One workspace, its open indexes, and how many may ask at once."""

    def __init__(self, spec: WorkspaceSpec) -> None:
        self.spec = spec
        self._indexes = Indexes()
        self._gate = Gate(spec.in_flight)
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._turns = Turns()
        self._watches: dict[str, Watch] = {}

    @asynccontextmanager
    async def open_watching(
        self, *, on_built: OnBuilt | None = None, on_trouble: OnTrouble | None = None
    ) -> AsyncIterator[None]:
        """Keep every index up to date, for as long as this is open."""
        async with anyio.create_task_group() as tasks:
            for repository in self.spec.repositories:
                watch = Watch(
                    self.spec, repository, self._indexes, self._turns, on_built=on_built, on_trouble=on_trouble
                )
                self._watches[repository.name] = watch
                tasks.start_soon(watch.run)
            try:
                yield
            finally:
                self._watches.clear()
                tasks.cancel_scope.cancel()

    async def build(
        self, call: BuildCall, *, repo: str | None, mode: Mode, incremental: bool, force: bool
    ) -> JsonObject:
        """Build the index of one repository, or of each; what fails for one is named, unless it fails for all."""
        built: list[JsonObject] = []
        failures: list[tuple[str, ToolpostError]] = []
        repositories = self.spec.named(repo)
        for number, repository in enumerate(repositories):
            teller = _Teller(call, repository, number, len(repositories))
            try:
                with self._turns.taken(repository.name):
                    built.append(
                        await build_repository(
                            self.spec,
                            repository,
                            call,
                            mode=mode,
                            incremental=incremental,
                            force=force,
                            on_step=teller.tell,
                        )
                    )
            except ToolpostError as error:
                failures.append((repository.name, error))
        if failures and not built:
            raise failures[0][1]
        return {"repositories": built, "failures": [_failure(name, error) for name, error in failures]}

    async def search(self, wish: Wish, repo: str | None) -> JsonObject:
        """Search one repository, or all of them together; called off, it stops."""
        check_capabilities()
        stop = threading.Event()
        with self._gate.passed():
            try:
                return await self._in_a_thread(self.search_now, wish, repo, stop)
            finally:
                stop.set()

    async def _in_a_thread(self, function: Callable[..., JsonObject], *arguments: Any) -> JsonObject:
        # Abandoned, not awaited: whoever cancels has a right to the answer at once.
        return await anyio.to_thread.run_sync(function, *arguments, abandon_on_cancel=True, limiter=self._threads)

    def search_now(self, wish: Wish, repo: str | None, stop: threading.Event) -> JsonObject:
        """Search in this thread, until told to stop."""
        found, failures = self._found(wish, self.spec.named(repo), stop)
        hits = merged(found, wish.top)
        stale = [{"repo": one.repo, "path": path, "state": state} for one in found for path, state in one.stale.items()]
        return {
            "hits": [hit.as_object(score) for hit, score in hits],
            "searched": [one.repo for one in found],
            "truncated": any(one.is_cut for one in found),
            "stale": stale[:_STALE_LIMIT],
            "failures": [_failure(name, error) for name, error in failures],
        }

    def _found(
        self, wish: Wish, repositories: tuple[Repository, ...], stop: threading.Event
    ) -> tuple[list[Found], list[tuple[str, ToolpostError]]]:
        found: list[Found] = []
        failures: list[tuple[str, ToolpostError]] = []
        look = search_pattern if wish.regex else search_index
        for repository in repositories:
            try:
                found.append(look(self._indexes.index(repository), wish, self.spec.limits, stop))
            except ToolpostError as error:
                failures.append((repository.name, error))
        if failures and not found:
            raise failures[0][1]
        return found, failures

    async def show(self, path: str, repo: str | None, start: int | None, end: int | None) -> JsonObject:
        """Show a slice of a file."""
        with self._gate.passed():
            return await self._in_a_thread(self._shown, path, repo, start, end)

    def _shown(self, path: str, repo: str | None, start: int | None, end: int | None) -> JsonObject:
        return show_slice(self._holder_of(path, repo), path, start, end)

    def _holder_of(self, path: str, repo: str | None) -> Repository:
        """Return the repository that a path is in: the one that was named, or the first that has it."""
        if repo is not None:
            return self.spec.one(repo)
        for repository in self.spec.repositories:
            try:
                if (repository.root / relative_in(repository, path)).exists():
                    return repository
            except (ToolpostError, OSError):
                continue
        return self.spec.repositories[0]

    async def index_status(self, repo: str | None) -> JsonObject:
        """Say how one index is doing: that of the first repository, unless another is named."""
        check_capabilities()
        with self._gate.passed():
            repository = self.spec.named(repo)[0]
            return self._watched(await index_status(repository, self._indexes, self.spec.limits, self._threads))

    async def workspace_status(self) -> JsonObject:
        """Say how each index is doing."""
        check_capabilities()
        with self._gate.passed():
            status = await workspace_status(self.spec, self._indexes, self._threads)
            return status | {"repositories": [self._watched(one) for one in status["repositories"]]}

    def _watched(self, status: JsonObject) -> JsonObject:
        """Add whether an index follows its repository by itself, and how that goes."""
        watch = self._watches.get(status["repo"])
        return status | ({"watch": watch.as_object()} if watch else {})

    async def check_status(self) -> JsonObject:
        """Say what is configured and available."""
        with self._gate.passed():
            return await check_status(self.spec, self._indexes, self._troubles())

    def _troubles(self) -> dict[str, str]:
        return {name: watch.problem for name, watch in self._watches.items() if watch.problem}


class _Teller:
    """Makes progress of steps: one scale over all repositories, so that it only ever rises."""

    def __init__(self, call: BuildCall, repository: Repository, number: int, count: int) -> None:
        self._call = call
        self._repository = repository
        self._number = number
        self._count = count

    def tell(self, step: Step) -> None:
        """Pass one step on."""
        if step.phase == "parse":
            share = 0.02 + 0.88 * step.done / max(1, step.total or 1)
        else:
            share = 0.005 * step.done if step.phase == "scan" else 0.9 + 0.05 * step.done
        percent = 100 * (self._number + share) / self._count
        counted = f" {step.done}/{step.total}" if step.phase == "parse" and step.total else ""
        message = f"{self._repository.name}: {step.phase}{counted} {step.message}".rstrip()
        self._call.progress(round(percent, 2), 100, message, phase=step.phase)


def _failure(name: str, error: ToolpostError) -> JsonObject:
    said: JsonObject = {"repo": name, "code": error.code.value, "message": error.message}
    return said | ({"hint": error.hint} if error.hint else {})
