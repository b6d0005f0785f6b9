"""POSIX: a command below a `reaper`, a small process that finds and ends whatever the command left.

On Linux a guard stands above the reaper, and ends the tree if the reaper is killed or stopped. Where there is none that can
adopt orphans (not Linux), or both were killed, the sweep of `process_strays` follows.
Part of `process_tree`, which is the one front door: only it and its other parts import this.
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
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import psutil

from toolpost.contracts.errors import GatewayError
from toolpost.upstreams.process.command import PreparedCommand, make_start_error
from toolpost.upstreams.process.pipes import CHUNK_BYTES, PipeReader, PipeWriter
from toolpost.upstreams.process.strays import end_strays, find_descendants, find_tree, warn_unkilled

log = logging.getLogger("toolpost.process_tree")

END_LIMIT_S = 5.0

_GUARD_EXIT_S = 0.2
_SWEEP_S = 1.0

_REAPER = str(Path(__file__).with_name("reaper.py"))
_REAPER_ADOPTS = sys.platform == "linux"


class ReapedTree:
    """A command below a reaper, as the reaper tells of it."""

    def __init__(self, order: PreparedCommand) -> None:
        try:
            lifeline, guard = _start_guard(order)
        except OSError as error:
            raise make_start_error(order.command[0], error.errno or 0) from error
        assert guard.stdout
        assert guard.stderr
        self.stdin = PipeWriter(guard.stdin) if guard.stdin else None
        self.stdout = PipeReader(guard.stdout)
        self.stderr = PipeReader(guard.stderr)
        self.pid = guard.pid
        self.returncode: int | None = None
        self._order = order
        self._reaper: int | None = None
        self._guard = guard
        """The parent of the reaper on Linux; elsewhere it is the reaper itself."""
        self._lifeline = lifeline
        self._heard = b""
        self._failure: int | None = None
        self._adopts = False
        self._is_gone = False
        self._started = anyio.Event()
        self._exited = anyio.Event()
        self._hung_up = anyio.Event()
        lifeline.setblocking(False)

    async def start(self) -> None:
        """Give the reaper its order, and wait until the command runs."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionError):  # A reaper that died is seen right below.
            await loop.sock_sendall(self._lifeline, _write_payload(self._order))
        loop.add_reader(self._lifeline, self._listen)
        await self._started.wait()
        if self._failure is not None:
            raise make_start_error(self._order.command[0], self._failure)
        if not self._has_command:
            raise GatewayError("the reaper of a command died while starting", command=self._order.command[0])

    async def wait(self) -> int:
        """Wait for the command's exit."""
        await self._exited.wait()
        assert self.returncode is not None
        return self.returncode

    async def end(self) -> None:
        """Have the reaper end the tree, then end whatever it could not adopt."""
        until = time.monotonic() + END_LIMIT_S
        with anyio.move_on_after(self._order.eof_s):
            await self._hung_up.wait()
        known = [] if self._adopts else await anyio.to_thread.run_sync(find_descendants, self._guard.pid)
        try:
            known += await self._end_by_reaper(until)
        finally:
            self._hang_up()
            self._lifeline.close()
        is_swept = self._adopts and (self._is_gone or self._guard.returncode == 0)
        if self._has_command and not is_swept:
            grace_s = self._order.grace_s if self._is_gone else 0.0
            await anyio.to_thread.run_sync(end_strays, known, self._order.cookie, grace_s, until)

    async def _end_by_reaper(self, until: float) -> list[psutil.Process]:
        """Have reaper and guard end the tree, and leave; return what is known of a tree that they did not end in time."""
        known: list[psutil.Process] = []
        # A guard that was stopped goes on, and sees to a reaper that was killed or stopped meanwhile. A reaper without a guard
        # is stopped for good, unless it is told to go on; while it holds the line, its number is its own.
        self._guard.send_signal(signal.SIGCONT)
        if self._guard.poll() is not None and self._reaper is not None and not self._hung_up.is_set():
            with contextlib.suppress(OSError):
                os.kill(self._reaper, signal.SIGCONT)  # noqa: TID251 - this is process_tree
        with contextlib.suppress(OSError):  # It has left by itself: the command is gone.
            self._lifeline.shutdown(socket.SHUT_WR)
        with anyio.move_on_after(until - time.monotonic() - 2 * _GUARD_EXIT_S):
            await self._hung_up.wait()
            # A reaper that has ended its tree is followed by its guard within a millisecond; without one the guard sweeps.
            await self._wait_for_guard(_GUARD_EXIT_S if self._is_gone else _SWEEP_S)
        if self._guard.poll() is None or not self._hung_up.is_set():
            log.warning("the reaper of the command %d did not end it in time", self.pid)
            known = await anyio.to_thread.run_sync(find_descendants, self._guard.pid)
            if self._reaper is not None and not self._hung_up.is_set():
                known += await anyio.to_thread.run_sync(find_tree, self._reaper)
            self._guard.kill()
            await self._wait_for_guard(_GUARD_EXIT_S)
        return known

    async def _wait_for_guard(self, limit_s: float) -> None:
        """Wait until the guard is gone, which nothing announces."""
        with anyio.move_on_after(limit_s):
            while self._guard.poll() is None:  # noqa: ASYNC110
                await anyio.sleep(0.001)

    @property
    def _has_command(self) -> bool:
        return self.pid != self._guard.pid

    def _listen(self) -> None:
        # To the end at once: uvloop does not call again for a line that is closed.
        while not self._hung_up.is_set():
            try:
                chunk = self._lifeline.recv(CHUNK_BYTES)
            except BlockingIOError:
                return
            except ConnectionError:
                chunk = b""
            self._feed(chunk)

    def _feed(self, chunk: bytes) -> None:
        *lines, self._heard = (self._heard + chunk).split(b"\n")
        for line in lines:
            self._take(*line.decode().split())
        if not chunk:
            self._hang_up()
            self._kill_group()

    def _take(self, event: str, *numbers: str) -> None:
        match event, [int(number) for number in numbers]:
            case "started", [pid, adopts, reaper]:
                self.pid, self._adopts, self._reaper = pid, bool(adopts), reaper
                self._started.set()
            case "failed", [number]:
                self._failure = number
            case "exited", [code]:
                self.returncode = code
                self._exited.set()
            case "unkilled", [pid, number]:
                warn_unkilled(pid, os.strerror(number) if number else "it is still there")
            case "gone", []:
                self._is_gone = True

    def _hang_up(self) -> None:
        """Note that no more will be heard; a reaper that was killed took its command with it."""
        if self._hung_up.is_set():
            return
        asyncio.get_running_loop().remove_reader(self._lifeline)
        if self.returncode is None:
            self.returncode = -signal.SIGKILL
        for event in (self._started, self._exited, self._hung_up):
            event.set()

    def _kill_group(self) -> None:
        """End the group of a command whose reaper was killed: at once, while its number is still its own."""
        if self._has_command and not self._is_gone:
            log.warning("the reaper of the command %d was killed or stopped, the command ends", self.pid)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)  # noqa: TID251 - this is process_tree


def _start_guard(order: PreparedCommand) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start a guard from this very thread: what it notices is the end of the thread that started it."""
    # The reaper has no part in the command's environment; but Python may need its libraries found.
    names = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    ours, theirs = socket.socketpair()
    with theirs, contextlib.ExitStack() as if_it_fails:
        if_it_fails.callback(ours.close)
        guard = subprocess.Popen(  # noqa: S603 - our own file
            [sys.executable, "-I", "-S", _REAPER, *_reaper_options(order, theirs)],
            bufsize=0,
            stdin=subprocess.PIPE if order.stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=order.cwd,
            env={name: os.environ[name] for name in names if name in os.environ},
            pass_fds=(theirs.fileno(),),
            # A group of its own, in our session: if it is stopped when we die, the kernel wakes it up.
            process_group=0,
        )
        if_it_fails.pop_all()
    return ours, guard


def _reaper_options(order: PreparedCommand, control: socket.socket) -> Iterator[str]:
    numbers = (control.fileno(), os.getpid(), int(_REAPER_ADOPTS), len(_write_payload(order)), len(order.command))
    return map(str, (*numbers, order.grace_s))


def _write_payload(order: PreparedCommand) -> bytes:
    variables = (f"{name}={value}" for name, value in order.environment.items())
    return b"\0".join(os.fsencode(part) for part in (order.path, *order.command, *variables))
