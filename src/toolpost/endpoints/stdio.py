"""A client on standard input and output, one JSON message a line."""

import asyncio
import os
import stat
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final
from uuid import uuid4

from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.discovery import EVERYTHING, View
from toolpost.endpoints.calls import Lane
from toolpost.endpoints.duplex import Connection, Ending
from toolpost.endpoints.sdk.lazy import LateSdk
from toolpost.protocol.lines import LineSplitter, OversizedLine
from toolpost.protocol.rpc import INVALID_REQUEST, ProtocolError, find_request_id

GRACE_S: Final = 1.0
"""How long calls may go on when the client has closed its end: clients terminate a server that stays for two seconds."""

_CHUNK: Final = 65_536
_QUEUE_HIGH: Final = 256


class Wire:
    """Standard input and output, taken out of everybody else's reach."""

    def __init__(self) -> None:
        """Claim both: a tool that prints writes to stderr from now on, and one that reads meets the end of the file."""
        self.input_fd = os.dup(0)
        self.output_fd = os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)


async def serve_stdio(
    lane: Lane,
    sdk: LateSdk,
    wire: Wire,
    *,
    message_limit: int,
    stop: asyncio.Event,
    grace_s: float,
    view: View = EVERYTHING,
) -> None:
    """Serve the one client that started this process, until it closes its end or `stop` is set."""
    # The client that started this process has it for itself: another one's session is another's.
    caller = Caller(id=CallerId("local"), transport="stdio", session=uuid4().hex, is_admin=True)
    async with _Writer(wire.output_fd) as writer, _Reader(wire.input_fd, message_limit, stop) as reader:
        connection = Connection(lane, sdk, caller=caller, send=writer.send, view=view)

        def ending() -> Ending | None:
            return Ending(grace_s=grace_s, reason="the server is shutting down") if stop.is_set() else None

        await connection.serve(_messages(reader, writer), grace_s=GRACE_S, ending=ending)


async def _messages(reader: "_Reader", writer: "_Writer") -> AsyncIterator[bytes]:
    while (line := await reader.line()) is not None:
        # A client that does not read its answers is not read from either.
        await writer.has_room()
        if isinstance(line, OversizedLine):
            # The first bytes of the line are left, and its id is mostly among them.
            refusal = ProtocolError(
                INVALID_REQUEST, f"A message has at most {reader.limit} bytes", request_id=find_request_id(line)
            )
            writer.send(refusal.as_response())
        else:
            yield line


class _Reader:
    """Lines of a file descriptor; from the loop where it can be polled, else from a thread."""

    def __init__(self, fd: int, limit: int, stop: asyncio.Event) -> None:
        self.limit = limit
        self._fd = fd
        self._stop = stop
        self._lines: deque[bytes] = deque()
        self._splitter = LineSplitter(limit)
        self._ended = False
        self._wake: asyncio.Future[None] | None = None
        self._transport: asyncio.ReadTransport | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "_Reader":
        loop = asyncio.get_running_loop()
        self._stopping = loop.create_task(self._end_on_stop())
        if _can_be_polled(self._fd):
            self._transport, _ = await loop.connect_read_pipe(lambda: _PipeProtocol(self), os.fdopen(self._fd, "rb", 0))
        else:
            threading.Thread(target=self._read_in_thread, args=(loop,), daemon=True, name="toolpost-stdin").start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._stopping is not None:
            self._stopping.cancel()
        if self._transport is not None:
            self._transport.close()

    async def line(self) -> bytes | None:
        """Return the next line, None at the end."""
        while not self._lines:
            if self._ended:
                return None
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        line = self._lines.popleft()
        if self._transport is not None and len(self._lines) == _QUEUE_HIGH // 2 and not self._ended:
            self._transport.resume_reading()
        return line

    def feed(self, data: bytes) -> None:
        """Take a chunk from the descriptor."""
        self._lines.extend(self._splitter.feed(data))
        if self._transport is not None and len(self._lines) > _QUEUE_HIGH:
            self._transport.pause_reading()
        self._awake()

    def end(self) -> None:
        """Take the end of the input."""
        self._lines.extend(self._splitter.feed(b"\n"))
        self._ended = True
        self._awake()

    def _awake(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _end_on_stop(self) -> None:
        await self._stop.wait()
        self._ended = True
        self._awake()

    def _read_in_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        def post(take: Callable[..., None], *arguments: bytes) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(take, *arguments)

        while data := os.read(self._fd, _CHUNK):
            post(self.feed, data)
        post(self.end)


class _PipeProtocol(asyncio.Protocol):
    def __init__(self, reader: _Reader) -> None:
        self._reader = reader

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._reader.end()


class _Writer(asyncio.BaseProtocol):
    """A file descriptor that takes lines at once and says when it is full."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._transport: asyncio.WriteTransport | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._closed = asyncio.Event()

    async def __aenter__(self) -> "_Writer":
        loop = asyncio.get_running_loop()
        if _can_be_polled(self._fd):
            self._transport, _ = await loop.connect_write_pipe(lambda: self, os.fdopen(self._fd, "wb", 0))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._transport is not None:
            self._transport.close()
            await self._closed.wait()

    def send(self, raw: bytes) -> None:
        """Write a message and its newline."""
        if self._transport is not None:
            self._transport.write(raw + b"\n")
        elif not _written(self._fd, raw + b"\n"):
            self._room.set()

    async def has_room(self) -> None:
        """Wait until the client has read enough of what it was sent."""
        await self._room.wait()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._room.set()
        self._closed.set()


def _can_be_polled(fd: int) -> bool:
    """Pipes and sockets can, files and terminals cannot (libuv aborts the process on a file); on Windows nothing can."""
    mode = os.fstat(fd).st_mode
    return sys.platform != "win32" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))


def _written(fd: int, data: bytes) -> bool:
    """Write to a descriptor that cannot be polled, such as a file."""
    try:
        while data:
            data = data[os.write(fd, data) :]
    except BrokenPipeError:
        sys.stderr.write("toolpost: the client has closed its end\n")
        return False
    return True
