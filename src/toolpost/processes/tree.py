"""The only place that starts processes; it ends them together with everything that they started.

A command may fork, leave its session, ignore SIGTERM, or outlive a gateway that was killed, and none of its processes may stay
behind. Killing a process group is not enough for that, so each platform has its own means:

- Linux: each command runs below a `reaper`, a small process that is a child subreaper. The kernel gives it every orphan of the
  tree, so it finds and ends all of them, also when the gateway is killed. A guard above it does the same if the reaper is killed.
- Other POSIX systems: the reaper ends the process group; a sweep with psutil follows, by parentage and by a cookie in the
  environment (`strays`). The sweep also follows on Linux if reaper and guard were both killed.
- Windows: a Job Object, which ends with the gateway's last handle to it.

The order of ending: stdin is closed, `eof_s`, SIGTERM to the tree, `grace_s`, SIGKILL until nothing is left; 5 s in all.

Example: `async with open_process(["sh", "-c", "sleep 99 & exec server"], stdin=True, eof_s=0.5)` starts two processes. Leaving
the block closes the server's stdin; half a second later SIGTERM goes to both, and the block ends when both are gone.

`command` prepares a command, `posix` and `windows` run it, `strays` sweeps, `pipes` reads and writes, and `daemon` starts what is
to outlive the gateway. They are parts of this module: other packages import them from here.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream

from toolpost.processes import posix as process_posix
from toolpost.processes import windows as process_windows
from toolpost.processes.command import PreparedCommand, make_environment, prepare_command
from toolpost.processes.daemon import Daemon, birth_of
from toolpost.processes.pipes import (
    Capture,
    LineListener,
    PipeReader,
    PipeWriter,
    each_line,
    each_log_line,
    wait_for_end,
)

__all__ = [
    "CompletedCommand",
    "Daemon",
    "LineListener",
    "PipeReader",
    "PipeWriter",
    "Process",
    "birth_of",
    "make_environment",
    "open_process",
    "run",
]


@dataclass(frozen=True, kw_only=True)
class CompletedCommand:
    """The exit code of a command, and the tail of its output."""

    returncode: int
    stdout: str
    stderr: str
    is_cut: bool = False
    """Whether more was written than was kept, so that an output lacks its beginning."""


class _Tree(Protocol):
    """A command and everything that it started, on one platform."""

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
    """A running command, with its pipes. Read both outputs: a command blocks when a pipe is full."""

    def __init__(self, tree: _Tree) -> None:
        self.stdin = tree.stdin
        self.stdout = tree.stdout
        self.stderr = tree.stderr
        self._tree = tree
        self._ending: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The process id of the command itself."""
        return self._tree.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None while the command runs."""
        return self._tree.returncode

    async def feed(self, data: bytes) -> None:
        """Write to stdin and close it; a command that does not read it is no error."""
        assert self.stdin is not None
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self.stdin.send(data)
        await self.stdin.aclose()

    async def read_lines(self, limit: int, take: Callable[[bytes], None]) -> None:
        """Pass every line of stdout to `take`, one longer than the limit as `OversizedLine`, until the pipe is closed."""
        await each_line(self.stdout, limit, take)

    async def read_log_lines(self, take: Callable[[str], None]) -> None:
        """Pass every line of stderr as text to `take`, the last one also without a newline, until the pipe is closed."""
        await each_log_line(self.stderr, take)

    async def wait(self) -> int:
        """Wait for the exit of the command itself; its descendants may still run, and hold its pipes."""
        return await self._tree.wait()

    async def end(self) -> None:
        """End the command and everything that it started, also when cancelled; a second call waits for the first."""
        if self._ending is None:
            # A task of its own: anyio's shield holds off cancellations by anyio, but not those by asyncio.
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
    """Wait until a task is done; a cancellation is raised only after that."""
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
    """Start a command; leaving ends it and everything that it started, also when cancelled, within 5 s.

    Its environment is `make_environment(env)`. With `stdin` it gets a pipe; otherwise its stdin is empty. It has `eof_s` from the
    end of stdin to SIGTERM, and `grace_s` from there to SIGKILL; together they are cut to 3.5 s. Raises `CapabilityMissing` if it
    cannot be started.
    """
    prepared = prepare_command(command, cwd=cwd, env=env, stdin=stdin, grace_s=grace_s, eof_s=eof_s)
    process = await _start(prepared)
    try:
        yield process
    finally:
        await process._close()  # noqa: SLF001 - opened here, closed here


async def _start(command: PreparedCommand) -> Process:
    if sys.platform == "win32":
        return Process(await process_windows.start_in_job(command))
    tree = process_posix.ReapedTree(command)
    process = Process(tree)
    try:
        await tree.start()
    except BaseException:
        # Also when cancelled: the reaper runs, and may have started the command.
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

    `on_line` gets each line as it comes, cut at 8 KiB; what it raises ends the command and is raised here. The environment is
    `make_environment(env)`. Raises `CapabilityMissing` if the command cannot be started.
    """
    async with open_process(command, cwd=cwd, env=env, stdin=input is not None, grace_s=grace_s) as process:
        stdout = Capture("stdout", process.stdout, tail_bytes=tail_bytes, on_line=on_line)
        stderr = Capture("stderr", process.stderr, tail_bytes=tail_bytes, on_line=on_line)
        with _unwrap_group():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stdout.read_all)
                tasks.start_soon(stderr.read_all)
                if input is not None:
                    tasks.start_soon(process.feed, input)
                returncode = await process.wait()
                # Descendants may hold the pipes, such as the `tee` of a pipeline: they get a moment, and are ended then.
                await wait_for_end(stdout, stderr)
                await process.end()
                # All writers are dead, and what they wrote is read. A process that could not be killed must not block this.
                await wait_for_end(stdout, stderr)
                tasks.cancel_scope.cancel()
    return CompletedCommand(
        returncode=returncode, stdout=stdout.tail(), stderr=stderr.tail(), is_cut=stdout.is_cut or stderr.is_cut
    )


@contextlib.contextmanager
def _unwrap_group() -> Iterator[None]:
    """Raise the first exception of a group in place of the group."""
    try:
        yield
    except BaseExceptionGroup as group:
        error = group.exceptions[0]
        raise error from error.__cause__
