"""Reads the output of a process line by line."""

import logging
from collections.abc import Callable

import anyio
from anyio.abc import ByteReceiveStream

from toolpost.base.events import event
from toolpost.protocol.lines import LineSplitter
from toolpost.upstreams.process.tree import PipeReader

_log = logging.getLogger("toolpost.upstreams")

LOG_LINE_LIMIT = 16_384


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
