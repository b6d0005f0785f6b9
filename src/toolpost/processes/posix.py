"""POSIX: runs a command below a `reaper`, a small process that finds and ends leftover processes. Part of `tree`.

On Linux the gateway starts a guard, which starts the reaper and ends the tree if the reaper is killed or stopped; elsewhere the
two are one process. A socket, the lifeline, connects the gateway and the reaper: the reaper reports events on it, one a line, and
ends the tree when the gateway's side is closed. Where orphans cannot be adopted (not Linux), or both were killed,
the sweep of `strays` follows.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess  # noqa: TID251 - this is process_tree
import sys
import time
from pathlib import Path

import anyio
import anyio.to_thread
import psutil

from toolpost.contracts.errors import GatewayError
from toolpost.processes.command import PreparedCommand, make_start_error
from toolpost.processes.pipes import CHUNK_BYTES, PipeReader, PipeWriter
from toolpost.processes.strays import end_strays, find_descendants, find_tree, warn_unkilled

log = logging.getLogger("toolpost.process_tree")

END_LIMIT_S = 5.0

_GUARD_EXIT_S = 0.2
_SWEEP_S = 1.0

_REAPER = str(Path(__file__).with_name("reaper.py"))
_REAPER_ADOPTS = sys.platform == "linux"


class ReapedTree:
    """A command below a reaper, in the state that the reaper last reported."""

    def __init__(self, command: PreparedCommand) -> None:
        try:
            lifeline, guard = _start_guard(command)
        except OSError as error:
            raise make_start_error(command.argv[0], error.errno or 0) from error
        assert guard.stdout
        assert guard.stderr
        self.stdin = PipeWriter(guard.stdin) if guard.stdin else None
        self.stdout = PipeReader(guard.stdout)
        self.stderr = PipeReader(guard.stderr)
        self.pid = guard.pid
        self.returncode: int | None = None
        self._command = command
        self._reaper: int | None = None
        self._guard = guard
        """The parent of the reaper on Linux; elsewhere it is the reaper itself."""
        self._lifeline = lifeline
        self._unparsed = b""
        self._errno: int | None = None
        self._adopts = False
        self._is_gone = False
        self._started = anyio.Event()
        self._exited = anyio.Event()
        self._hung_up = anyio.Event()
        lifeline.setblocking(False)

    async def start(self) -> None:
        """Send the command to the reaper, and wait until it runs; raises `CapabilityMissing` or `GatewayError`."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionError):  # The death of a reaper is noticed below.
            await loop.sock_sendall(self._lifeline, _write_payload(self._command))
        loop.add_reader(self._lifeline, self._listen)
        await self._started.wait()
        if self._errno is not None:
            raise make_start_error(self._command.argv[0], self._errno)
        if not self._has_command:
            raise GatewayError("the reaper of a command died while starting", command=self._command.argv[0])

    async def wait(self) -> int:
        await self._exited.wait()
        assert self.returncode is not None
        return self.returncode

    async def end(self) -> None:
        """Have the reaper end the tree, then sweep what it could not adopt."""
        until = time.monotonic() + END_LIMIT_S
        # stdin is closed: most servers exit on that, and need no signal.
        with anyio.move_on_after(self._command.eof_s):
            await self._hung_up.wait()
        known = [] if self._adopts else await anyio.to_thread.run_sync(find_descendants, self._guard.pid)
        try:
            known += await self._end_by_reaper(until)
        finally:
            self._hang_up()
            self._lifeline.close()
        is_swept = self._adopts and (self._is_gone or self._guard.returncode == 0)
        if self._has_command and not is_swept:
            grace_s = self._command.grace_s if self._is_gone else 0.0
            await anyio.to_thread.run_sync(end_strays, known, self._command.cookie, grace_s, until)

    async def _end_by_reaper(self, until: float) -> list[psutil.Process]:
        """Have reaper and guard end the tree and exit; returns the processes of a tree that they did not end in time."""
        known: list[psutil.Process] = []
        # A guard that was stopped must continue, to notice a reaper that was killed or stopped. A stopped reaper without a guard
        # would stay stopped; as long as it holds its end of the socket, its process id cannot have been reused.
        self._guard.send_signal(signal.SIGCONT)
        if self._guard.poll() is not None and self._reaper is not None and not self._hung_up.is_set():
            with contextlib.suppress(OSError):
                os.kill(self._reaper, signal.SIGCONT)  # noqa: TID251 - this is process_tree
        with contextlib.suppress(OSError):  # The reaper has exited, so the command is gone.
            self._lifeline.shutdown(socket.SHUT_WR)
        with anyio.move_on_after(until - time.monotonic() - 2 * _GUARD_EXIT_S):
            await self._hung_up.wait()
            # A guard follows a reaper that has ended its tree within a millisecond; otherwise it has the tree to end.
            await self._wait_for_guard(_GUARD_EXIT_S if self._is_gone else _SWEEP_S)
        if self._guard.poll() is None or not self._hung_up.is_set():
            # Listed before the guard is killed: afterwards its descendants belong to init, and cannot be found by parentage.
            log.warning("the reaper of the command %d did not end it in time", self.pid)
            known = await anyio.to_thread.run_sync(find_descendants, self._guard.pid)
            if self._reaper is not None and not self._hung_up.is_set():
                known += await anyio.to_thread.run_sync(find_tree, self._reaper)
            self._guard.kill()
            await self._wait_for_guard(_GUARD_EXIT_S)
        return known

    async def _wait_for_guard(self, limit_s: float) -> None:
        """Wait until the guard has exited, by polling: no event announces it."""
        with anyio.move_on_after(limit_s):
            while self._guard.poll() is None:  # noqa: ASYNC110
                await anyio.sleep(0.001)

    @property
    def _has_command(self) -> bool:
        return self.pid != self._guard.pid

    def _listen(self) -> None:
        # Read to the end at once: uvloop does not call the reader again for a socket that is closed.
        while not self._hung_up.is_set():
            try:
                chunk = self._lifeline.recv(CHUNK_BYTES)
            except BlockingIOError:
                return
            except ConnectionError:
                chunk = b""
            *lines, self._unparsed = (self._unparsed + chunk).split(b"\n")
            for line in lines:
                self._take_event(*line.decode().split())
            if not chunk:
                self._hang_up()
                self._kill_group()

    def _take_event(self, event: str, *numbers: str) -> None:
        match event, [int(number) for number in numbers]:
            case "started", [pid, adopts, reaper]:
                self.pid, self._adopts, self._reaper = pid, bool(adopts), reaper
                self._started.set()
            case "failed", [number]:
                self._errno = number
            case "exited", [code]:
                self.returncode = code
                self._exited.set()
            case "unkilled", [pid, number]:
                warn_unkilled(pid, os.strerror(number) if number else "it is still there")
            case "gone", []:
                self._is_gone = True

    def _hang_up(self) -> None:
        """Stop listening. A command whose exit was not reported counts as killed: it dies with its reaper."""
        if self._hung_up.is_set():
            return
        asyncio.get_running_loop().remove_reader(self._lifeline)
        if self.returncode is None:
            self.returncode = -signal.SIGKILL
        for event in (self._started, self._exited, self._hung_up):
            event.set()

    def _kill_group(self) -> None:
        """Kill the process group of a command whose reaper was killed: at once, before its id can be reused."""
        if self._has_command and not self._is_gone:
            log.warning("the reaper of the command %d was killed or stopped, the command ends", self.pid)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)  # noqa: TID251 - this is process_tree


def _start_guard(command: PreparedCommand) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start a guard from this thread: on Linux its parent death signal is sent when the thread that started it ends."""
    # The command's environment is sent later; Python itself may need these to find its libraries.
    names = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    ours, theirs = socket.socketpair()
    options = (
        *(theirs.fileno(), os.getpid(), int(_REAPER_ADOPTS)),
        *(len(_write_payload(command)), len(command.argv), command.grace_s),
    )
    with theirs, contextlib.ExitStack() as if_it_fails:
        if_it_fails.callback(ours.close)
        guard = subprocess.Popen(  # noqa: S603 - our own file
            [sys.executable, "-I", "-S", _REAPER, *map(str, options)],
            bufsize=0,
            stdin=subprocess.PIPE if command.stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=command.cwd,
            env={name: os.environ[name] for name in names if name in os.environ},
            pass_fds=(theirs.fileno(),),
            # A process group of its own in the gateway's session: if it is stopped when the gateway dies, its group is orphaned,
            # and the kernel sends it SIGHUP and SIGCONT.
            process_group=0,
        )
        if_it_fails.pop_all()
    return ours, guard


def _write_payload(command: PreparedCommand) -> bytes:
    variables = (f"{name}={value}" for name, value in command.environment.items())
    return b"\0".join(os.fsencode(part) for part in (command.path, *command.argv, *variables))
