"""Builds as the gateway sees them: a process is started, told what to do, listened to, and ended with its call."""

import os
import sys
import time
from collections.abc import Callable
from typing import Protocol

import anyio
import msgspec

from toolpost.base.ids import JsonObject
from toolpost.contracts.errors import CapabilityMissing, ErrorCode, NotFound, ToolFailed, ToolpostError
from toolpost.parts.workspace import optional
from toolpost.parts.workspace.build_order import BuildOrder, Built, Failed, Mode, Step, decode_told, encode, order_of
from toolpost.parts.workspace.spec import Repository, WorkspaceSpec
from toolpost.upstreams.process.tree import CompletedCommand, LineListener

_NEEDED = ("tantivy", "tree_sitter", "re2", "pathspec")
_KEPT_BYTES = 256 * 1024
STUCK_S = 60.0
"""How long one file may take; most take a few milliseconds, the largest a second or two."""


class Runner(Protocol):
    """Runs a command whose whole tree ends with the call, as a tool's context does."""

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
        """Run it to its end."""
        ...


async def build_repository(
    spec: WorkspaceSpec,
    repository: Repository,
    runner: Runner,
    *,
    mode: Mode,
    incremental: bool,
    force: bool,
    on_step: Callable[[Step], None],
) -> JsonObject:
    """Build one index in a process of its own, and return what came of it."""
    check_capabilities()
    started, avoid = time.monotonic(), list[str]()
    while True:
        order = order_of(
            repository,
            mode=mode,
            incremental=incremental,
            force=force,
            wait_s=spec.build_limit_s,
            limits=spec.limits,
            avoid=avoid,
        )
        ear = _Ear(on_step)
        finished = await _attempted(order, runner, ear)
        if finished is not None:
            return _shown(repository, _outcome(finished, repository), time.monotonic() - started)
        # Whatever is in that file, the others are indexed.
        avoid.append(ear.in_hand)


async def _attempted(order: BuildOrder, runner: Runner, ear: "_Ear") -> CompletedCommand | None:
    """Run the process to its end; None if it had to be ended because of a file that it did not get over."""
    finished: CompletedCommand | None = None
    failure: ToolpostError | None = None
    async with anyio.create_task_group() as tasks:

        async def wait_for_silence() -> None:
            while not ear.is_stuck:  # noqa: ASYNC110 (a parser tells nobody)
                await anyio.sleep(1.0)
            tasks.cancel_scope.cancel()

        tasks.start_soon(wait_for_silence)
        try:
            finished = await runner.run(
                # Without the folder it starts in on its path: that may hold anything.
                [sys.executable, "-P", "-m", "toolpost.parts.workspace"],
                env={name: os.environ[name] for name in ("PYTHONPATH", "PYTHONHOME") if name in os.environ},
                input=encode(order),
                check=False,
                keep_bytes=_KEPT_BYTES,
                on_line=ear.hear,
            )
        except ToolpostError as error:
            failure = error  # Raised below, as it is: the group would wrap it.
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return finished


def check_capabilities() -> None:
    """Raise for what the index is made of and is not installed."""
    if missing := [name for name in _NEEDED if not optional.has(name)]:
        raise CapabilityMissing(
            f"The workspace needs {', '.join(f'`{name}`' for name in missing)}.",
            hint=optional.EXTRA_HINT,
            missing=missing,
        )


class _Ear:
    """Listens to a process that builds."""

    def __init__(self, on_step: Callable[[Step], None]) -> None:
        self._on_step = on_step
        self._heard_at = time.monotonic()
        self.in_hand = ""

    @property
    def is_stuck(self) -> bool:
        """Whether it has been with one file for longer than any file takes."""
        return bool(self.in_hand) and time.monotonic() - self._heard_at > STUCK_S

    def hear(self, stream: str, line: str) -> None:
        """Take a line."""
        if stream != "stdout":
            return
        try:
            told = decode_told(line)
        except msgspec.DecodeError:
            return  # The last line may be longer than what is shown of it; it is read at the end.
        if isinstance(told, Step):
            self._heard_at, self.in_hand = time.monotonic(), told.in_hand or ""
            self._on_step(told)


def _outcome(finished: CompletedCommand, repository: Repository) -> Built:
    last = finished.stdout.rstrip().rsplit("\n", 1)[-1]
    try:
        told = decode_told(last) if last else None
    except msgspec.DecodeError:
        told = None
    if isinstance(told, Built):
        return told
    if isinstance(told, Failed):
        raise _error_of(told)
    how = f"signal {-finished.returncode}" if finished.returncode < 0 else f"exit code {finished.returncode}"
    raise ToolFailed(
        f"The build of `{repository.name}` ended with {how}.",
        hint="the index before still answers; build again",
        stderr=finished.stderr or None,
        repo=repository.name,
    )


def _error_of(failed: Failed) -> ToolpostError:
    kinds: dict[str, type[ToolpostError]] = {
        ErrorCode.CAPABILITY_MISSING: CapabilityMissing,
        ErrorCode.NOT_FOUND: NotFound,
    }
    return kinds.get(failed.code, ToolFailed)(failed.message, hint=failed.hint)


def _shown(repository: Repository, built: Built, took_s: float) -> JsonObject:
    shown: JsonObject = {
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
    return shown | ({"rebuilt": built.rebuilt} if built.rebuilt else {})
