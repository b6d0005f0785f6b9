"""A client on standard input and output: one JSON message per line."""

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
from toolpost.endpoints.calls import CallHandler
from toolpost.endpoints.duplex import ClientConnection, CloseReason
from toolpost.endpoints.sdk.lazy import LazySdk
from toolpost.protocol.lines import LineSplitter, OversizedLine
from toolpost.protocol.rpc import INVALID_REQUEST, ProtocolError, find_request_id

GRACE_S: Final = 1.0
"""How long calls may go on when the client has closed its end: clients kill a server that stays for two seconds."""

_CHUNK: Final = 65_536
_QUEUE_HIGH: Final = 256


class StdioStreams:
    """Duplicates of standard input and output; descriptors 0 and 1 themselves no longer lead to the client."""

    def __init__(self) -> None:
        """Take over both: from now on a tool that prints writes to stderr, and one that reads gets the end of the file."""
        self.input_fd = os.dup(0)
        self.output_fd = os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)


async def serve_stdio(
    handler: CallHandler,
    sdk: LazySdk,
    streams: StdioStreams,
    *,
    message_limit: int,
    stop: asyncio.Event,
    grace_s: float,
    view: View = EVERYTHING,
) -> None:
    """Serve the client that started this process, until it closes its end or `stop` is set."""
    # A session of its own: what is stored per session is not shared with other processes of the same caller.
    caller = Caller(id=CallerId("local"), transport="stdio", session=uuid4().hex, is_admin=True)
    async with _LineWriter(streams.output_fd) as writer, _LineReader(streams.input_fd, message_limit, stop) as reader:
        connection = ClientConnection(handler, sdk, caller=caller, send=writer.send, view=view)

        def close_reason() -> CloseReason | None:
            return CloseReason(grace_s=grace_s, reason="the server is shutting down") if stop.is_set() else None

        await connection.serve(_messages(reader, writer), grace_s=GRACE_S, close_reason=close_reason)


async def _messages(reader: "_LineReader", writer: "_LineWriter") -> AsyncIterator[bytes]:
    while (line := await reader.line()) is not None:
        # Back-pressure: a client that does not read its answers is not read from either.
        await writer.wait_for_room()
        if isinstance(line, OversizedLine):
            # The line's first bytes are kept, and its id is mostly among them.
            refusal = ProtocolError(
                INVALID_REQUEST, f"A message has at most {reader.limit} bytes", request_id=find_request_id(line)
            )
            writer.send(refusal.as_response())
        else:
            yield line


class _LineReader:
    """Reads lines from a descriptor: on the event loop where it can be polled, else in a thread."""

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

    async def __aenter__(self) -> "_LineReader":
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
        self._lines.extend(self._splitter.feed(data))
        if self._transport is not None and len(self._lines) > _QUEUE_HIGH:
            self._transport.pause_reading()
        self._wake_up()

    def end(self) -> None:
        self._lines.extend(self._splitter.feed(b"\n"))
        self._ended = True
        self._wake_up()

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _end_on_stop(self) -> None:
        # A read from a terminal or a file cannot be cancelled; its thread is a daemon, and is left behind.
        await self._stop.wait()
        self._ended = True
        self._wake_up()

    def _read_in_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        def post(take: Callable[..., None], *arguments: bytes) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(take, *arguments)

        while data := os.read(self._fd, _CHUNK):
            post(self.feed, data)
        post(self.end)


class _PipeProtocol(asyncio.Protocol):
    def __init__(self, reader: _LineReader) -> None:
        self._reader = reader

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._reader.end()


class _LineWriter(asyncio.BaseProtocol):
    """Writes lines to a descriptor without waiting; `wait_for_room` is for the reader of requests."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._transport: asyncio.WriteTransport | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._closed = asyncio.Event()

    async def __aenter__(self) -> "_LineWriter":
        loop = asyncio.get_running_loop()
        if _can_be_polled(self._fd):
            self._transport, _ = await loop.connect_write_pipe(lambda: self, os.fdopen(self._fd, "wb", 0))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._transport is not None:
            self._transport.close()
            await self._closed.wait()

    def send(self, raw: bytes) -> None:
        """Write a message and a newline."""
        if self._transport is not None:
            self._transport.write(raw + b"\n")
        elif not _write_all(self._fd, raw + b"\n"):
            self._room.set()

    async def wait_for_room(self) -> None:
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
    """Whether the event loop can watch it. Pipes and sockets only: libuv aborts the process on a file, and Windows has
    neither.
    """
    mode = os.fstat(fd).st_mode
    return sys.platform != "win32" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))


def _write_all(fd: int, data: bytes) -> bool:
    """Write all to a descriptor that cannot be polled; False if the client has closed its end."""
    try:
        while data:
            data = data[os.write(fd, data) :]
    except BrokenPipeError:
        sys.stderr.write("toolpost: the client has closed its end\n")
        return False
    return True
