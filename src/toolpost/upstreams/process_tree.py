"""The one place that starts processes, and ends them together with everything that they started.

POSIX: each command runs below a `reaper`, a small process that finds and ends whatever the command left, also
when the gateway itself was killed. Where that reaper cannot adopt orphans (not Linux), or was killed, a sweep
with psutil follows: by parentage, by group, by a cookie in the environment. Windows: a Job Object.

The order of ending: stdin closed, SIGTERM to the tree, `grace_s`, SIGKILL until nothing is left; 5 s in all.
"""

# ruff: noqa: TID251 - everyone else is sent here
import asyncio
import contextlib
import errno
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread
import psutil  # type: ignore[import-untyped]
from anyio.abc import ByteReceiveStream, ByteSendStream

from toolpost.contracts.errors import CapabilityMissing, GatewayError

__all__ = ["Finished", "LineListener", "Process", "environment_of", "open_process", "run"]

log = logging.getLogger("toolpost.process_tree")

LineListener = Callable[[str, str], None]
"""Is told the stream's name, `stdout` or `stderr`, and a line of it."""

COOKIE = "TOOLPOST_PROCESS_TREE"
"""The variable that marks every process of a tree, for the sweep."""

END_LIMIT_S = 5.0
LONGEST_GRACE_S = 3.5
LINE_LIMIT_BYTES = 8_192

_SETTLE_S = 0.2
_CHUNK_BYTES = 65_536
_REAPER = str(Path(__file__).with_name("reaper.py"))
_REAPER_ADOPTS = sys.platform == "linux"
_INHERITED = {"PATH", "HOME", "USER", "LANG", "TMPDIR", "TZ", "TERM", "SHELL"}
_INHERITED_ON_WINDOWS = {
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERNAME", "USERPROFILE"),
    *("HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)"),
    *("NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE"),
}


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A command that ran to its end: its exit code and the tail of what it wrote."""

    returncode: int
    stdout: str
    stderr: str


class _Tree(Protocol):
    """A command and everything that it started, as a platform knows them."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    async def wait(self) -> int: ...
    async def end(self) -> None: ...


class Process:
    """A running command, with its pipes. Read both outputs: a command whose pipe is full stands still."""

    def __init__(
        self,
        tree: _Tree,
        *,
        stdin: ByteSendStream | None,
        stdout: ByteReceiveStream,
        stderr: ByteReceiveStream,
    ) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
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
            await _see_through(self._ending)

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


async def _see_through(task: asyncio.Task[None]) -> None:
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
    order = _order_of(command, cwd=cwd, env=env, stdin=stdin, grace_s=grace_s, eof_s=eof_s)
    if sys.platform == "win32":
        process = await _start_in_job(order)
    else:
        process = await _start_below_reaper(order)
    try:
        yield process
    finally:
        await process._close()  # noqa: SLF001 - opened here, closed here


async def run(
    command: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    input: bytes | None = None,  # noqa: A002 - as subprocess.run calls it
    grace_s: float = 2.0,
    on_line: LineListener | None = None,
    tail_bytes: int = 16_384,
) -> Finished:
    """Run a command to its end; nothing that it started survives this call, also when cancelled.

    `on_line` is told each line as it comes, cut at 8 KiB. The environment is that of `environment_of(env)`.
    """
    async with open_process(command, cwd=cwd, env=env, stdin=input is not None, grace_s=grace_s) as process:
        stdout = _Capture("stdout", process.stdout, tail_bytes=tail_bytes, on_line=on_line)
        stderr = _Capture("stderr", process.stderr, tail_bytes=tail_bytes, on_line=on_line)
        with _first_error_alone():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stdout.read_all)
                tasks.start_soon(stderr.read_all)
                if process.stdin and input is not None:
                    tasks.start_soon(_feed, process.stdin, input)
                returncode = await process.wait()
                # What the command left may hold its pipes: it gets a moment, and then its end.
                await _wait_for_the_end_of(stdout, stderr)
                await process.end()
                await _wait_for_the_end_of(stdout, stderr)
                tasks.cancel_scope.cancel()
    return Finished(returncode=returncode, stdout=stdout.tail(), stderr=stderr.tail())


def environment_of(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what a command's environment is: a minimal set of the gateway's own, and what was given on top.

    The minimal set: PATH, HOME, USER, LANG, LC_*, TMPDIR, TZ, TERM and SHELL; on Windows also what programs
    cannot start without. No secret of the gateway reaches a command that was not given it.
    """
    names = _INHERITED | _INHERITED_ON_WINDOWS if sys.platform == "win32" else _INHERITED
    inherited = {name: value for name, value in os.environ.items() if name in names or name.startswith("LC_")}
    if sys.platform == "win32":
        return inherited | {name.upper(): value for name, value in (given or {}).items()}
    return inherited | dict(given or {})


# What is to be started


@dataclass(frozen=True, kw_only=True)
class _Order:
    command: tuple[str, ...]
    path: str
    cwd: str | None
    environment: Mapping[str, str]
    cookie: str
    stdin: bool
    grace_s: float
    eof_s: float


def _order_of(
    command: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
    stdin: bool,
    grace_s: float,
    eof_s: float,
) -> _Order:
    cookie = os.urandom(8).hex()
    environment = environment_of(env) | {COOKIE: cookie}
    folder = None if cwd is None else os.fspath(cwd)
    eof_s = min(eof_s, LONGEST_GRACE_S) if stdin else 0.0
    return _Order(
        command=tuple(command),
        path=_find(command[0], folder, environment),
        cwd=folder,
        environment=environment,
        cookie=cookie,
        stdin=stdin,
        grace_s=min(grace_s, LONGEST_GRACE_S - eof_s),
        eof_s=eof_s,
    )


def _find(name: str, cwd: str | None, environment: Mapping[str, str]) -> str:
    """Return the absolute path of a command, sought as its own environment and folder would have it."""
    if cwd is not None and not Path(cwd).is_dir():
        raise CapabilityMissing(
            f"the command `{name}` cannot be started in {cwd}: there is no such directory",
            hint="make the directory, or name another working directory",
            command=name,
            cwd=cwd,
        )
    is_path = Path(name).name != name
    # A relative path starts from the command's folder, not from ours.
    wanted = str(Path(cwd or "", name).absolute()) if is_path else name
    if path := shutil.which(wanted, path=environment.get("PATH", os.defpath)):
        return str(Path(path).absolute())
    raise _not_started(name, errno.EACCES if is_path and Path(wanted).exists() else errno.ENOENT)


def _not_started(name: str, number: int) -> CapabilityMissing:
    hints = {
        errno.ENOENT: "install it, or give its full path; it is sought on the PATH that the command gets",
        errno.EACCES: "make the file executable (chmod +x), or name another command",
        errno.ENOEXEC: "a script needs a first line such as #!/bin/sh",
    }
    return CapabilityMissing(
        f"the command `{name}` cannot be started: {os.strerror(number)}",
        hint=hints.get(number, "try the command in a shell, as the user that runs Toolpost"),
        command=name,
    )


# POSIX: a reaper above each command


async def _start_below_reaper(order: _Order) -> Process:
    try:
        lifeline, reaper = _popen_reaper(order)
    except OSError as error:
        raise _not_started(order.command[0], error.errno or 0) from error
    assert reaper.stdout
    assert reaper.stderr
    tree = _ReapedTree(order, reaper, lifeline)
    process = Process(
        tree,
        stdin=_PipeWriter(reaper.stdin) if reaper.stdin else None,
        stdout=_PipeReader(reaper.stdout),
        stderr=_PipeReader(reaper.stderr),
    )
    try:
        await tree.start()
    except BaseException:
        await process._close()  # noqa: SLF001 - half open
        raise
    return process


def _popen_reaper(order: _Order) -> tuple[socket.socket, subprocess.Popen[bytes]]:
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


def _reaper_options(order: _Order, control: socket.socket) -> Iterator[str]:
    numbers = (control.fileno(), os.getpid(), int(_REAPER_ADOPTS), len(_payload(order)), len(order.command))
    return map(str, (*numbers, order.grace_s))


def _payload(order: _Order) -> bytes:
    variables = (f"{name}={value}" for name, value in order.environment.items())
    return b"\0".join(os.fsencode(part) for part in (order.path, *order.command, *variables))


class _ReapedTree:
    """A command below a reaper, as the reaper tells of it."""

    def __init__(self, order: _Order, reaper: subprocess.Popen[bytes], lifeline: socket.socket) -> None:
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
            raise _not_started(self._order.command[0], self._failure)
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
        known = [] if self._adopts else await anyio.to_thread.run_sync(_descendants, self._reaper.pid)
        try:
            await self._dismiss_reaper(until)
        finally:
            self._hang_up()
            self._lifeline.close()
        if self._has_command and not (self._adopts and self._is_gone):
            grace_s = self._order.grace_s if self._is_gone else 0.0
            await anyio.to_thread.run_sync(_end_strays, known, self._order.cookie, grace_s, until)

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
                chunk = self._lifeline.recv(_CHUNK_BYTES)
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
                _warn_unkilled(pid, os.strerror(number) if number else "it is still there")
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
                os.killpg(self.pid, signal.SIGKILL)


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _end_strays(known: list[psutil.Process], cookie: str, grace_s: float, until: float) -> None:
    """End who got away from the reaper: who was below it before, and who carries the cookie."""
    graced_until = min(time.monotonic() + grace_s, until - 0.5)
    asked: set[psutil.Process] = set()
    while (strays := _alive(known, cookie)) and time.monotonic() < until:
        is_graced = time.monotonic() < graced_until
        for stray in strays - asked if is_graced else strays:
            with contextlib.suppress(psutil.Error):  # Who is gone is gone; who refused is warned of below, once.
                stray.send_signal(signal.SIGTERM if is_graced else signal.SIGKILL)
        asked |= strays
        time.sleep(0.05)
    for stray in strays:
        _warn_unkilled(stray.pid, "it is still there")


def _alive(known: Iterable[psutil.Process], cookie: str) -> set[psutil.Process]:
    found = set(known)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(COOKIE) == cookie:
                found |= {process, *process.children(recursive=True)}
    return {process for process in found if _is_alive(process)}


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _warn_unkilled(pid: int, reason: str) -> None:
    log.warning("process %d could not be ended: %s", pid, reason, extra={"pid": pid})


class _PipeEnd:
    """Our end of a pipe: waited for by the loop, closed under whoever waits."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        os.set_blocking(file.fileno(), False)

    async def aclose(self) -> None:
        if not self._file.closed:
            anyio.notify_closing(self._file.fileno())
            self._file.close()

    def _number(self) -> int:
        if self._file.closed:
            raise anyio.ClosedResourceError
        return self._file.fileno()


class _PipeReader(_PipeEnd, ByteReceiveStream):
    """What the command writes."""

    async def receive(self, max_bytes: int = _CHUNK_BYTES) -> bytes:
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                chunk = os.read(self._number(), max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._number())
                continue
            if not chunk:
                raise anyio.EndOfStream
            return chunk


class _PipeWriter(_PipeEnd, ByteSendStream):
    """What the command reads."""

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        rest = memoryview(item)
        while rest:
            try:
                rest = rest[os.write(self._number(), rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._number())
            except BrokenPipeError as error:
                raise anyio.BrokenResourceError from error


# Windows: a job around each command

if sys.platform == "win32":
    import ctypes
    import struct
    from ctypes import wintypes

    async def _start_in_job(order: _Order) -> Process:
        try:
            process = await anyio.open_process(
                [order.path, *order.command[1:]],
                stdin=subprocess.PIPE if order.stdin else subprocess.DEVNULL,
                cwd=order.cwd,
                env=order.environment,
                creationflags=subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP,
            )
        except OSError as error:
            raise _not_started(order.command[0], error.errno or 0) from error
        assert process.stdout
        assert process.stderr
        tree = _JobTree(order, process, _new_job(process.pid))
        return Process(tree, stdin=process.stdin, stdout=process.stdout, stderr=process.stderr)

    class _JobTree:
        """A command in a Job Object, which ends with the gateway's last handle and so with the gateway."""

        def __init__(self, order: _Order, process: anyio.abc.Process, job: int | None) -> None:
            self._order = order
            self._process = process
            self._job = job

        @property
        def pid(self) -> int:
            return self._process.pid

        @property
        def returncode(self) -> int | None:
            return self._process.returncode

        async def wait(self) -> int:
            return await self._process.wait()

        async def end(self) -> None:
            """Let the command follow the end of its stdin, as there is no SIGTERM; then end the job."""
            if self._order.stdin:
                with anyio.move_on_after(self._order.eof_s + self._order.grace_s):
                    await self._process.wait()
            job, self._job = self._job, None
            if job is None or not _end_job(job):
                await _taskkill(self._process.pid)
            with anyio.move_on_after(0.5):
                await self._process.wait()
            if self._process.returncode is None:
                _warn_unkilled(self._process.pid, "it is still there")

    def _new_job(pid: int) -> int | None:
        """Put a process into a job that is killed when its handle closes; None where that is not allowed."""
        # JOBOBJECT_EXTENDED_LIMIT_INFORMATION: all zero, but KILL_ON_JOB_CLOSE in its LimitFlags.
        limits = bytearray(144 if sys.maxsize > 2**32 else 112)
        struct.pack_into("<I", limits, 16, 0x2000)
        kernel = _kernel32()
        job = kernel.CreateJobObjectW(None, None)
        process = kernel.OpenProcess(0x0101, False, pid)  # PROCESS_SET_QUOTA | PROCESS_TERMINATE
        is_set = kernel.SetInformationJobObject(job, 9, bytes(limits), len(limits))
        is_ready = is_set and kernel.AssignProcessToJobObject(job, process)
        if process:
            kernel.CloseHandle(process)
        if job and not is_ready:
            kernel.CloseHandle(job)
        return int(job) if is_ready else None

    def _end_job(job: int) -> bool:
        kernel = _kernel32()
        is_ended = kernel.TerminateJobObject(job, 1)
        kernel.CloseHandle(job)
        return bool(is_ended)

    def _kernel32() -> ctypes.WinDLL:
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        handle, number = wintypes.HANDLE, wintypes.DWORD
        kernel.CreateJobObjectW.restype = handle
        kernel.CreateJobObjectW.argtypes = (wintypes.LPVOID, wintypes.LPCWSTR)
        kernel.OpenProcess.restype = handle
        kernel.OpenProcess.argtypes = (number, wintypes.BOOL, number)
        kernel.SetInformationJobObject.argtypes = (handle, ctypes.c_int, wintypes.LPVOID, number)
        kernel.AssignProcessToJobObject.argtypes = (handle, handle)
        kernel.TerminateJobObject.argtypes = (handle, wintypes.UINT)
        kernel.CloseHandle.argtypes = (handle,)
        return kernel

    async def _taskkill(pid: int) -> None:
        """End a process and its children; one that is gone already is no error."""
        with anyio.move_on_after(1.0):
            await anyio.run_process(["taskkill", "/pid", str(pid), "/T", "/F"], check=False)


# What a command writes and reads


class _Capture:
    """One output of a command: its lines told, its tail kept."""

    def __init__(self, name: str, stream: ByteReceiveStream, *, tail_bytes: int, on_line: LineListener | None) -> None:
        self.is_over = anyio.Event()
        self._name = name
        self._stream = stream
        self._tail = bytearray()
        self._tail_bytes = tail_bytes
        self._line = bytearray()
        self._on_line = on_line

    async def read_all(self) -> None:
        async for chunk in self._stream:
            self._tail += chunk
            del self._tail[: max(0, len(self._tail) - self._tail_bytes)]
            if self._on_line:
                self._split(chunk, self._on_line)
        if self._on_line and self._line:
            self._tell(self._on_line)
        self.is_over.set()

    def tail(self) -> str:
        return self._tail.decode(errors="replace")

    def _split(self, chunk: bytes, on_line: LineListener) -> None:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            self._append(piece)
            self._tell(on_line)
        self._append(rest)

    def _append(self, piece: bytes) -> None:
        self._line += piece[: LINE_LIMIT_BYTES - len(self._line)]

    def _tell(self, on_line: LineListener) -> None:
        line = self._line.decode(errors="replace").removesuffix("\r")
        self._line.clear()
        on_line(self._name, line)


async def _wait_for_the_end_of(*captures: _Capture) -> None:
    with anyio.move_on_after(_SETTLE_S):
        for capture in captures:
            await capture.is_over.wait()


async def _feed(stdin: ByteSendStream, data: bytes) -> None:
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await stdin.send(data)
    await stdin.aclose()


@contextlib.contextmanager
def _first_error_alone() -> Iterator[None]:
    """Raise what a listener raised as it is, not as a group of one."""
    try:
        yield
    except BaseExceptionGroup as group:
        error = group.exceptions[0]
        raise error from error.__cause__
