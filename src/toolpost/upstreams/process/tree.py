"""The one place that starts processes, and ends them together with everything that they started.

POSIX: each command runs below a `reaper`, a small process that finds and ends whatever the command left, also
when the gateway itself was killed. Where that reaper cannot adopt orphans (not Linux), or was killed, a sweep
with psutil follows: by parentage, by group, by a cookie in the environment. Windows: a Job Object.

`process_order` makes a command ready, `process_posix` and `process_windows` run it, `process_strays` sweeps,
`process_pipes` reads and writes, `process_daemon` starts what is to outlive us: they are parts of this one, which
is their only front door.

The order of ending: stdin closed, SIGTERM to the tree, `grace_s`, SIGKILL until nothing is left; 5 s in all.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream

from toolpost.upstreams.process import posix as process_posix
from toolpost.upstreams.process import windows as process_windows
from toolpost.upstreams.process.command import PreparedCommand, make_environment, prepare_command
from toolpost.upstreams.process.daemon import Daemon, birth_of, end_daemon, is_alive, start_daemon, this_process
from toolpost.upstreams.process.pipes import Capture, LineListener, PipeReader, PipeWriter, feed, wait_for_end

__all__ = [
    "CompletedCommand",
    "Daemon",
    "LineListener",
    "PipeReader",
    "PipeWriter",
    "Process",
    "birth_of",
    "end_daemon",
    "is_alive",
    "make_environment",
    "open_process",
    "run",
    "start_daemon",
    "this_process",
]


@dataclass(frozen=True, kw_only=True)
class CompletedCommand:
    """A command that ran to its end: its exit code and the tail of what it wrote."""

    returncode: int
    stdout: str
    stderr: str
    is_cut: bool = False
    """Whether more was written than was kept: then an output starts somewhere in the middle."""


class _Tree(Protocol):
    """A command and everything that it started, as a platform knows them."""

    @property
    def stdin(self) -> ByteSendStream | None: ...
    @property
    def stdout(self) -> ByteReceiveStream: ...
    @property
    def stderr(self) -> ByteReceiveStream: ...
    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    async def wait(self) -> int: ...
    async def end(self) -> None: ...


class Process:
    """A running command, with its pipes. Read both outputs: a command whose pipe is full stands still."""

    def __init__(self, tree: _Tree) -> None:
        self.stdin = tree.stdin
        self.stdout = tree.stdout
        self.stderr = tree.stderr
        self._tree = tree
        self._ending: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """Return the id of the command itself."""
        return self._tree.pid

    @property
    def returncode(self) -> int | None:
        """Return the exit code, below zero for a signal, or None while the command runs."""
        return self._tree.returncode

    async def wait(self) -> int:
        """Wait for the command's exit, whoever may still hold its pipes."""
        return await self._tree.wait()

    async def end(self) -> None:
        """End the command and everything it started; a second time does nothing."""
        if self._ending is None:
            # A task of its own, for anyio's shield keeps off anyio's cancellations, and not those of asyncio.
            self._ending = asyncio.create_task(self._end())
        with anyio.CancelScope(shield=True):
            await _wait_uncancelled(self._ending)

    async def _end(self) -> None:
        if self.stdin:
            await self.stdin.aclose()
        await self._tree.end()

    async def _close(self) -> None:
        try:
            await self.end()
        finally:
            with anyio.CancelScope(shield=True):
                await self.stdout.aclose()
                await self.stderr.aclose()


async def _wait_uncancelled(task: asyncio.Task[None]) -> None:
    """Wait until a task is done; a cancellation meanwhile is raised only then."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled:
        raise cancelled
    task.result()


@asynccontextmanager
async def open_process(
    command: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bool = False,
    grace_s: float = 2.0,
    eof_s: float = 0.0,
) -> AsyncIterator[Process]:
    """Start a command; leaving ends it and everything it started, also when cancelled, within 5 s.

    The command gets the environment of `environment_of(env)`, and so nothing of the gateway's that was not
    meant for it. `stdin` gives it a pipe to read from; otherwise it reads nothing. To end by itself it has
    `eof_s` from the end of its stdin until SIGTERM, and `grace_s` from there until SIGKILL; 3.5 s in all.
    """
    order = prepare_command(command, cwd=cwd, env=env, stdin=stdin, grace_s=grace_s, eof_s=eof_s)
    process = await _start(order)
    try:
        yield process
    finally:
        await process._close()  # noqa: SLF001 - opened here, closed here


async def _start(order: PreparedCommand) -> Process:
    if sys.platform == "win32":
        return Process(await process_windows.start_in_job(order))
    tree = process_posix.ReapedTree(order)
    process = Process(tree)
    try:
        await tree.start()
    except BaseException:
        await process._close()  # noqa: SLF001 - half open
        raise
    return process


async def run(
    command: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    input: bytes | None = None,  # noqa: A002 - as subprocess.run calls it
    grace_s: float = 2.0,
    on_line: LineListener | None = None,
    tail_bytes: int = 16_384,
) -> CompletedCommand:
    """Run a command to its end; nothing that it started survives this call, also when cancelled.

    `on_line` is told each line as it comes, cut at 8 KiB. The environment is that of `environment_of(env)`.
    """
    async with open_process(command, cwd=cwd, env=env, stdin=input is not None, grace_s=grace_s) as process:
        stdout = Capture("stdout", process.stdout, tail_bytes=tail_bytes, on_line=on_line)
        stderr = Capture("stderr", process.stderr, tail_bytes=tail_bytes, on_line=on_line)
        with _unwrap_group():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stdout.read_all)
                tasks.start_soon(stderr.read_all)
                if process.stdin and input is not None:
                    tasks.start_soon(feed, process.stdin, input)
                returncode = await process.wait()
                # What the command left may hold its pipes: it gets a moment, and then its end.
                await wait_for_end(stdout, stderr)
                await process.end()
                await wait_for_end(stdout, stderr)
                tasks.cancel_scope.cancel()
    return CompletedCommand(
        returncode=returncode, stdout=stdout.tail(), stderr=stderr.tail(), is_cut=stdout.is_cut or stderr.is_cut
    )


@contextlib.contextmanager
def _unwrap_group() -> Iterator[None]:
    """Raise what a listener raised as it is, not as a group of one."""
    try:
        yield
    except BaseExceptionGroup as group:
        error = group.exceptions[0]
        raise error from error.__cause__
