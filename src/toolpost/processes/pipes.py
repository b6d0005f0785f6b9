"""The gateway's ends of a command's pipes, its output line by line, and the capture of it. Part of `tree`."""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from typing import IO

import anyio
import anyio.lowlevel
from anyio.abc import ByteReceiveStream, ByteSendStream

from toolpost.base.events import event
from toolpost.protocol.lines import LineSplitter

_log = logging.getLogger("toolpost.upstreams")

LineListener = Callable[[str, str], None]
"""Takes the stream's name, `stdout` or `stderr`, and a line of it."""

LINE_LIMIT_BYTES = 8_192
LOG_LINE_LIMIT = 16_384
CHUNK_BYTES = 65_536
SETTLE_S = 0.2


class _PipeEnd:
    """A non-blocking end of a pipe; a task that waits for it gets `ClosedResourceError` when it is closed."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        os.set_blocking(file.fileno(), False)

    async def aclose(self) -> None:
        if not self._file.closed:
            anyio.notify_closing(self._file.fileno())
            self._file.close()

    def _fileno(self) -> int:
        if self._file.closed:
            raise anyio.ClosedResourceError
        return self._file.fileno()


class PipeReader(_PipeEnd, ByteReceiveStream):
    """The reading end of a command's stdout or stderr. Use either `read_into` or `receive`, not both."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self._reading: asyncio.Future[None] | None = None
        self._read_chunk: Callable[[], bool] | None = None

    async def aclose(self) -> None:
        self._read_chunk = None
        if self._reading is not None and not self._reading.done():
            asyncio.get_running_loop().remove_reader(self._fileno())
            self._reading.set_exception(anyio.ClosedResourceError())
        await super().aclose()

    async def read_into(self, take: Callable[[bytes], None]) -> None:
        """Pass each chunk to `take` until the other end is closed. The event loop reads: no task is woken for a chunk."""
        loop, fileno = asyncio.get_running_loop(), self._fileno()
        reading = self._reading = loop.create_future()

        def read_chunk() -> bool:
            """Read one chunk; False if there is nothing to read yet."""
            if reading.done():
                # Cancelled in this turn of the loop; the task that awaits it runs in the next.
                loop.remove_reader(fileno)
                return True
            try:
                if chunk := os.read(fileno, CHUNK_BYTES):
                    take(chunk)
                    return True
                reading.set_result(None)
            except BlockingIOError:
                return False
            except Exception as error:  # noqa: BLE001 (raised where the future is awaited)
                reading.set_exception(error)
            self._read_chunk = None
            loop.remove_reader(fileno)
            return True

        # One chunk in a turn, also if there are more: a server that writes without end must not keep the loop from other work.
        loop.add_reader(fileno, read_chunk)
        self._read_chunk = read_chunk
        try:
            await reading
        finally:
            self._read_chunk = None
            if not self._file.closed:
                loop.remove_reader(fileno)

    def spin(self, limit_s: float) -> bool:
        """Poll for a chunk within this time, in this turn of the loop; False if none came."""
        # A busy loop on purpose: to sleep in the selector and be woken takes longer than many servers take to answer.
        until = time.perf_counter() + limit_s
        while self._read_chunk is not None:
            if self._read_chunk():
                return True
            if time.perf_counter() > until:
                break
        return False

    async def receive(self, max_bytes: int = CHUNK_BYTES) -> bytes:
        """Wait for a chunk; raises `EndOfStream` once every process has closed the other end."""
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                chunk = os.read(self._fileno(), max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._fileno())
                continue
            if not chunk:
                raise anyio.EndOfStream
            return chunk


class PipeWriter(_PipeEnd, ByteSendStream):
    """The writing end of a command's stdin."""

    def send_now(self, item: bytes) -> int:
        """Write as much as the pipe takes without waiting; returns the number of bytes, 0 also if the pipe is broken."""
        try:
            return os.write(self._file.fileno(), item)
        except (BlockingIOError, BrokenPipeError, ValueError):  # the last says that it is closed
            return 0

    async def send(self, item: bytes) -> None:
        # A pipe that always takes its bytes would otherwise never let other tasks run, nor a cancellation be noticed.
        await anyio.lowlevel.checkpoint()
        rest = memoryview(item)
        while rest:
            try:
                rest = rest[os.write(self._fileno(), rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._fileno())
            except BrokenPipeError as error:
                raise anyio.BrokenResourceError from error


async def each_line(stream: ByteReceiveStream, limit: int, take: Callable[[bytes], None]) -> None:
    """Pass every line to `take`, one longer than the limit as `OversizedLine`, until the pipe is closed."""
    await _split(stream, LineSplitter(limit), take)


async def each_log_line(stream: ByteReceiveStream, take: Callable[[str], None]) -> None:
    """Pass every line as text to `take`, the last one also without a newline, until the pipe is closed."""
    splitter = LineSplitter(LOG_LINE_LIMIT)

    def take_bytes(line: bytes) -> None:
        take(line.decode(errors="replace").rstrip())

    await _split(stream, splitter, take_bytes)
    for line in splitter.feed(b"\n"):
        take_bytes(line)


async def _split(stream: ByteReceiveStream, splitter: LineSplitter, take: Callable[[bytes], None]) -> None:
    def feed(chunk: bytes) -> None:
        for line in splitter.feed(chunk):
            take(line)

    try:
        if isinstance(stream, PipeReader):
            await stream.read_into(feed)
            return
        async for chunk in stream:
            feed(chunk)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
        event(_log, logging.DEBUG, "output closed", reason=str(error))


class Capture:
    """One output of a command: passes its lines on, and keeps its tail."""

    def __init__(self, name: str, stream: ByteReceiveStream, *, tail_bytes: int, on_line: LineListener | None) -> None:
        self.is_over = anyio.Event()
        self._name = name
        self._stream = stream
        self.is_cut = False
        self._tail = bytearray()
        self._tail_bytes = tail_bytes
        self._line = bytearray()
        self._on_line = on_line

    async def read_all(self) -> None:
        async for chunk in self._stream:
            # Cut at each chunk, so that a command that writes gigabytes takes the memory of one that writes pages.
            self._tail += chunk
            if len(self._tail) > self._tail_bytes:
                self.is_cut = True
                del self._tail[: len(self._tail) - self._tail_bytes]
            if self._on_line:
                self._split(chunk, self._on_line)
        if self._on_line and self._line:
            self._emit(self._on_line)
        self.is_over.set()

    def tail(self) -> str:
        return self._tail.decode(errors="replace")

    def _split(self, chunk: bytes, on_line: LineListener) -> None:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            self._append(piece)
            self._emit(on_line)
        self._append(rest)

    def _append(self, piece: bytes) -> None:
        self._line += piece[: LINE_LIMIT_BYTES - len(self._line)]

    def _emit(self, on_line: LineListener) -> None:
        line = self._line.decode(errors="replace").removesuffix("\r")
        self._line.clear()
        on_line(self._name, line)


async def wait_for_end(*captures: Capture) -> None:
    """Wait for outputs to end, for `SETTLE_S` at most."""
    with anyio.move_on_after(SETTLE_S):
        for capture in captures:
            await capture.is_over.wait()
