"""POSIX: a command below a `reaper`, a small process that finds and ends whatever the command left.

Where that reaper cannot adopt orphans (not Linux), or was killed, the sweep of `process_strays` follows.
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

from toolpost.contracts.errors import GatewayError
from toolpost.upstreams.process_order import Order, not_started
from toolpost.upstreams.process_pipes import CHUNK_BYTES, PipeReader, PipeWriter
from toolpost.upstreams.process_strays import descendants, end_strays, warn_unkilled

log = logging.getLogger("toolpost.process_tree")

END_LIMIT_S = 5.0

_REAPER = str(Path(__file__).with_name("reaper.py"))
_REAPER_ADOPTS = sys.platform == "linux"


class ReapedTree:
    """A command below a reaper, as the reaper tells of it."""

    def __init__(self, order: Order) -> None:
        try:
            lifeline, reaper = _popen_reaper(order)
        except OSError as error:
            raise not_started(order.command[0], error.errno or 0) from error
        assert reaper.stdout
        assert reaper.stderr
        self.stdin = PipeWriter(reaper.stdin) if reaper.stdin else None
        self.stdout = PipeReader(reaper.stdout)
        self.stderr = PipeReader(reaper.stderr)
        self.pid = reaper.pid
        self.returncode: int | None = None
        self._order = order
        self._reaper = reaper
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
            await loop.sock_sendall(self._lifeline, _payload(self._order))
        loop.add_reader(self._lifeline, self._listen)
        await self._started.wait()
        if self._failure is not None:
            raise not_started(self._order.command[0], self._failure)
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
        known = [] if self._adopts else await anyio.to_thread.run_sync(descendants, self._reaper.pid)
        try:
            await self._dismiss_reaper(until)
        finally:
            self._hang_up()
            self._lifeline.close()
        if self._has_command and not (self._adopts and self._is_gone):
            grace_s = self._order.grace_s if self._is_gone else 0.0
            await anyio.to_thread.run_sync(end_strays, known, self._order.cookie, grace_s, until)

    async def _dismiss_reaper(self, until: float) -> None:
        with contextlib.suppress(OSError):  # It has left by itself: the command is gone.
            self._lifeline.shutdown(socket.SHUT_WR)
        with anyio.move_on_after(until - time.monotonic() - 0.5):
            await self._hung_up.wait()
        if not self._hung_up.is_set():
            log.warning("the reaper %d did not end its command in time", self._reaper.pid)
            self._reaper.kill()
            with anyio.move_on_after(0.2):
                await self._hung_up.wait()
        # It has closed the line, or was killed: this is a matter of a millisecond, which nothing announces.
        with anyio.move_on_after(0.2):
            while self._reaper.poll() is None:  # noqa: ASYNC110
                await anyio.sleep(0.001)

    @property
    def _has_command(self) -> bool:
        return self.pid != self._reaper.pid

    def _listen(self) -> None:
        # To the end at once: uvloop does not call again for a line that is closed.
        while not self._hung_up.is_set():
            try:
                chunk = self._lifeline.recv(CHUNK_BYTES)
            except BlockingIOError:
                return
            except ConnectionError:
                chunk = b""
            self._hear(chunk)

    def _hear(self, chunk: bytes) -> None:
        *lines, self._heard = (self._heard + chunk).split(b"\n")
        for line in lines:
            self._take(*line.decode().split())
        if not chunk:
            self._hang_up()
            self._outlive_reaper()

    def _take(self, event: str, *numbers: str) -> None:
        match event, [int(number) for number in numbers]:
            case "started", [pid, adopts]:
                self.pid, self._adopts = pid, bool(adopts)
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

    def _outlive_reaper(self) -> None:
        """End the group of a command whose reaper was killed: at once, while its number is still its own."""
        if self._has_command and not self._is_gone:
            log.warning("the reaper %d was killed, the command %d ends", self._reaper.pid, self.pid)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)  # noqa: TID251 - this is process_tree


def _popen_reaper(order: Order) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start a reaper from this very thread: what it notices is the end of the thread that started it."""
    # The reaper has no part in the command's environment; but Python may need its libraries found.
    names = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    ours, theirs = socket.socketpair()
    with theirs, contextlib.ExitStack() as if_it_fails:
        if_it_fails.callback(ours.close)
        reaper = subprocess.Popen(  # noqa: S603 - our own file
            [sys.executable, "-I", "-S", _REAPER, *_reaper_options(order, theirs)],
            bufsize=0,
            stdin=subprocess.PIPE if order.stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=order.cwd,
            env={name: os.environ[name] for name in names if name in os.environ},
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
        if_it_fails.pop_all()
    return ours, reaper


def _reaper_options(order: Order, control: socket.socket) -> Iterator[str]:
    numbers = (control.fileno(), os.getpid(), int(_REAPER_ADOPTS), len(_payload(order)), len(order.command))
    return map(str, (*numbers, order.grace_s))


def _payload(order: Order) -> bytes:
    variables = (f"{name}={value}" for name, value in order.environment.items())
    return b"\0".join(os.fsencode(part) for part in (order.path, *order.command, *variables))
