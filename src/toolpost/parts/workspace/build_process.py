"""Builds from the side of the gateway: start a build process, read its progress, and order the builds of one repository.

A build runs in a process because a parser cannot be cancelled: one that hangs on a file is killed, and the build is repeated
without that file.
"""

import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol

import anyio
import msgspec

from toolpost import CapabilityMissing, ErrorCode, NotFound, ToolFailed, ToolpostError
from toolpost.base import JsonObject
from toolpost.parts.workspace import optional
from toolpost.parts.workspace.build_messages import (
    BuildFailure,
    BuildOrder,
    BuildStep,
    BuildSummary,
    IndexMode,
    decode_message,
    encode,
    make_order,
)
from toolpost.parts.workspace.spec import Repository, WorkspaceSpec
from toolpost.processes import CompletedCommand, LineListener

_OUTPUT_BYTES = 256 * 1024
STUCK_S = 60.0
"""How long the parser may take for one file; most take milliseconds, the largest a second or two."""


class ProcessRunner(Protocol):
    """Runs commands; their whole process tree ends with the call. A tool's `Context` is one."""

    async def run(
        self,
        command: list[str],
        *,
        env: dict[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002 (as the context has it)
        check: bool = True,
        keep_bytes: int = ...,
        on_line: LineListener | None = None,
    ) -> CompletedCommand:
        """Run a command to its end; `on_line` gets each line of its output."""
        ...


class BuildQueue:
    """Orders the builds of one workspace: those for callers first, and at most one in the background."""

    def __init__(self) -> None:
        self._for_callers: Counter[str] = Counter()
        """How many callers wait for a build of each repository."""
        self._has_ended = anyio.Event()
        self._background = anyio.Lock()

    @contextmanager
    def for_caller(self, name: str) -> Iterator[None]:
        """Mark a build of a repository as one that a caller waits for."""
        self._for_callers[name] += 1
        try:
            yield
        finally:
            self._for_callers[name] -= 1
            self._has_ended.set()
            self._has_ended = anyio.Event()

    @asynccontextmanager
    async def in_background(self, name: str) -> AsyncIterator[None]:
        """Wait until no caller builds this repository, and no other background build runs."""
        async with self._background:
            while self._for_callers[name]:
                await self._has_ended.wait()
            yield


async def build_repository(
    spec: WorkspaceSpec,
    repository: Repository,
    runner: ProcessRunner,
    *,
    mode: IndexMode,
    incremental: bool,
    force: bool,
    on_step: Callable[[BuildStep], None],
) -> JsonObject:
    """Build one index and return its summary for callers; raise the `ToolpostError` that the build process reported."""
    check_capabilities()
    started, avoid = time.monotonic(), list[str]()
    while True:
        order = make_order(
            repository,
            mode=mode,
            incremental=incremental,
            force=force,
            wait_s=spec.build_limit_s,
            limits=spec.limits,
            avoid=avoid,
        )
        reader = _ProgressReader(on_step)
        finished = await _run_once(order, runner, reader)
        if finished is not None:
            return _as_object(repository, _parse_outcome(finished, repository), time.monotonic() - started)
        # Try again without the file that the parser could not finish.
        avoid.append(reader.slow_file)


async def _run_once(order: BuildOrder, runner: ProcessRunner, reader: "_ProgressReader") -> CompletedCommand | None:
    """Run the process to its end; return None if it was killed because it was stuck in one file."""
    finished: CompletedCommand | None = None
    failure: ToolpostError | None = None
    async with anyio.create_task_group() as tasks:

        async def kill_when_stuck() -> None:
            while not reader.is_stuck:  # noqa: ASYNC110 (a hanging parser sends no event)
                await anyio.sleep(1.0)
            tasks.cancel_scope.cancel()

        tasks.start_soon(kill_when_stuck)
        try:
            finished = await runner.run(
                # -P: the working directory may contain a module that shadows one of ours.
                [sys.executable, "-P", "-m", "toolpost.parts.workspace"],
                env={name: os.environ[name] for name in ("PYTHONPATH", "PYTHONHOME") if name in os.environ},
                input=encode(order),
                check=False,
                keep_bytes=_OUTPUT_BYTES,
                on_line=reader.read_line,
            )
        except ToolpostError as error:
            failure = error  # Raised below: the task group would wrap it in an ExceptionGroup.
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return finished


def check_capabilities() -> None:
    """Raise `CapabilityMissing` if a required library is not installed."""
    if missing := optional.missing_modules():
        raise CapabilityMissing(
            f"The workspace needs {', '.join(f'`{name}`' for name in missing)}.",
            hint=optional.EXTRA_HINT,
            missing=missing,
        )


class _ProgressReader:
    """Reads the output of a build process."""

    def __init__(self, on_step: Callable[[BuildStep], None]) -> None:
        self._on_step = on_step
        self._step_at = time.monotonic()
        self.slow_file = ""

    @property
    def is_stuck(self) -> bool:
        """Whether the parser has been in one file for longer than `STUCK_S`."""
        return bool(self.slow_file) and time.monotonic() - self._step_at > STUCK_S

    def read_line(self, stream: str, line: str) -> None:
        if stream != "stdout":
            return
        try:
            message = decode_message(line)
        except msgspec.DecodeError:
            return  # Long lines arrive truncated; the summary is read from the whole output at the end.
        if isinstance(message, BuildStep):
            self._step_at, self.slow_file = time.monotonic(), message.slow_file or ""
            self._on_step(message)


def _parse_outcome(finished: CompletedCommand, repository: Repository) -> BuildSummary:
    last = finished.stdout.rstrip().rsplit("\n", 1)[-1]
    try:
        message = decode_message(last) if last else None
    except msgspec.DecodeError:
        message = None
    if isinstance(message, BuildSummary):
        return message
    if isinstance(message, BuildFailure):
        kinds: dict[str, type[ToolpostError]] = {
            ErrorCode.CAPABILITY_MISSING: CapabilityMissing,
            ErrorCode.NOT_FOUND: NotFound,
        }
        raise kinds.get(message.code, ToolFailed)(message.message, hint=message.hint)
    how = f"signal {-finished.returncode}" if finished.returncode < 0 else f"exit code {finished.returncode}"
    raise ToolFailed(
        f"The build of `{repository.name}` ended with {how}.",
        hint="the previous index still answers; build again",
        stderr=finished.stderr or None,
        repo=repository.name,
    )


def _as_object(repository: Repository, built: BuildSummary, took_s: float) -> JsonObject:
    encoded: JsonObject = {
        "repo": repository.name,
        "generation": built.generation,
        "files": built.files,
        "chunks": built.chunks,
        "lines": built.lines,
        "bytes": built.bytes,
        "sourceBytes": built.source_bytes,
        "added": built.added,
        "changed": built.changed,
        "removed": built.removed,
        "renamed": built.renamed,
        "unchanged": built.unchanged,
        "skipped": built.skipped,
        "skippedFiles": [{"path": path, "reason": reason} for path, reason in built.skipped_files],
        "seconds": round(took_s, 3),
    }
    return encoded | ({"rebuilt": built.rebuilt} if built.rebuilt else {})
