"""Our ends of a command's pipes, and what it wrote through them: lines told, tails kept.

Part of `process_tree`, which is the one front door: only it and its other parts import this.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from typing import IO

import anyio
import anyio.lowlevel
from anyio.abc import ByteReceiveStream, ByteSendStream

LineListener = Callable[[str, str], None]
"""Is told the stream's name, `stdout` or `stderr`, and a line of it."""

LINE_LIMIT_BYTES = 8_192
CHUNK_BYTES = 65_536
SETTLE_S = 0.2


class _PipeEnd:
    """Our end of a pipe: waited for by the loop, closed under whoever waits."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        os.set_blocking(file.fileno(), False)

    async def aclose(self) -> None:
        """Close the pipe, also under whoever waits for it."""
        if not self._file.closed:
            anyio.notify_closing(self._file.fileno())
            self._file.close()

    def _number(self) -> int:
        if self._file.closed:
            raise anyio.ClosedResourceError
        return self._file.fileno()


class PipeReader(_PipeEnd, ByteReceiveStream):
    """What the command writes."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self._telling: asyncio.Future[None] | None = None
        self._has_read: Callable[[], bool] | None = None

    async def aclose(self) -> None:
        """Close the pipe, also under whoever is told what comes."""
        self._has_read = None
        if self._telling is not None and not self._telling.done():
            asyncio.get_running_loop().remove_reader(self._number())
            self._telling.set_exception(anyio.ClosedResourceError())
        await super().aclose()

    async def tell(self, take: Callable[[bytes], None]) -> None:
        """Tell each chunk until nobody holds the other end: the loop itself reads, no task is woken for a chunk."""
        loop, number = asyncio.get_running_loop(), self._number()
        telling = self._telling = loop.create_future()

        def has_read() -> bool:
            try:
                if chunk := os.read(number, CHUNK_BYTES):
                    take(chunk)
                    return True
                telling.set_result(None)
            except BlockingIOError:
                return False
            except Exception as error:  # noqa: BLE001 (whoever waits is told)
                telling.set_exception(error)
            self._has_read = None
            loop.remove_reader(number)
            return True

        loop.add_reader(number, has_read)
        self._has_read = has_read
        try:
            await telling
        finally:
            self._has_read = None
            if not self._file.closed:
                loop.remove_reader(number)

    def linger(self, limit_s: float) -> bool:
        """Tell what comes within a moment, in this turn of the loop; False if nothing does."""
        until = time.perf_counter() + limit_s
        while self._has_read is not None:
            if self._has_read():
                return True
            if time.perf_counter() > until:
                break
        return False

    async def receive(self, max_bytes: int = CHUNK_BYTES) -> bytes:
        """Wait for a chunk; `EndOfStream` once nobody holds the other end."""
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


class PipeWriter(_PipeEnd, ByteSendStream):
    """What the command reads."""

    def send_now(self, item: bytes) -> int:
        """Write as much as the pipe takes at once, and say how much; of a broken pipe `send` says more."""
        try:
            return os.write(self._file.fileno(), item)
        except (BlockingIOError, BrokenPipeError, ValueError):  # the last says that it is closed
            return 0

    async def send(self, item: bytes) -> None:
        """Write all of it, as fast as the command reads."""
        await anyio.lowlevel.checkpoint()
        rest = memoryview(item)
        while rest:
            try:
                rest = rest[os.write(self._number(), rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._number())
            except BrokenPipeError as error:
                raise anyio.BrokenResourceError from error


class Capture:
    """One output of a command: its lines told, its tail kept."""

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
        """Read until nobody holds the other end."""
        async for chunk in self._stream:
            self._tail += chunk
            if len(self._tail) > self._tail_bytes:
                self.is_cut = True
                del self._tail[: len(self._tail) - self._tail_bytes]
            if self._on_line:
                self._split(chunk, self._on_line)
        if self._on_line and self._line:
            self._tell(self._on_line)
        self.is_over.set()

    def tail(self) -> str:
        """Return the last of what was written."""
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


async def wait_for_end(*captures: Capture) -> None:
    """Give outputs a moment to end."""
    with anyio.move_on_after(SETTLE_S):
        for capture in captures:
            await capture.is_over.wait()


async def feed(stdin: ByteSendStream, data: bytes) -> None:
    """Write what a command is to read, and close; a command need not read it."""
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await stdin.send(data)
    await stdin.aclose()
