"""A server as a process of ours, on its stdin and stdout; what it writes to stderr is kept for when it fails."""

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream

from toolpost.contracts.events import event
from toolpost.protocol.lines import LineSplitter, TooLong
from toolpost.upstreams import process_tree
from toolpost.upstreams.peer import Peer
from toolpost.upstreams.spec import ServerSpec
from toolpost.upstreams.wire import Notice

_log = logging.getLogger("toolpost.upstreams")

MESSAGE_LIMIT: Final = 64 * 1024 * 1024
STDERR_LINES: Final = 50
EOF_S: Final = 0.5
"""How long a server may take to leave by itself once its stdin has ended."""


@dataclass(kw_only=True)
class StdioServer:
    """A running server process and the way to it."""

    peer: Peer
    process: process_tree.Process
    last_words: deque[str]
    gone: anyio.Event

    async def end(self) -> None:
        """End the process and everything that it started."""
        await self.process.end()


@asynccontextmanager
async def open_stdio_server(
    spec: ServerSpec, *, on_notice: Notice, on_gone: Callable[[str], None]
) -> AsyncIterator[StdioServer]:
    """Start the server; leaving ends its whole process tree."""
    assert spec.command is not None
    outbox = _Outbox()
    peer = Peer(spec.name, outbox.put, on_notice=on_notice)
    last_words: deque[str] = deque(maxlen=STDERR_LINES)
    async with (
        process_tree.open_process(spec.command, cwd=spec.cwd, env=spec.env, stdin=True, eof_s=EOF_S) as process,
        anyio.create_task_group() as tasks,
    ):
        assert process.stdin is not None
        server = StdioServer(peer=peer, process=process, last_words=last_words, gone=anyio.Event())
        tasks.start_soon(outbox.write_all, process.stdin)
        tasks.start_soon(_read_messages, process.stdout, peer)
        tasks.start_soon(_keep_last_words, process.stderr, last_words)
        tasks.start_soon(_await_end, server, spec.name, on_gone)
        try:
            yield server
        finally:
            peer.lose(f"`{spec.name}` was stopped")
            tasks.cancel_scope.cancel()


async def _await_end(server: StdioServer, name: str, on_gone: Callable[[str], None]) -> None:
    """The exit of the process is its end, whoever may still hold its pipes."""
    code = await server.process.wait()
    # What it wrote before it left may still be on its way.
    await anyio.sleep(0.05)
    reason = f"`{name}` ended with exit code {code}"
    server.gone.set()
    server.peer.lose(reason)
    on_gone(reason)


async def _read_messages(stdout: ByteReceiveStream, peer: Peer) -> None:
    splitter = LineSplitter(MESSAGE_LIMIT)
    try:
        async for chunk in stdout:
            for line in splitter.feed(chunk):
                if isinstance(line, TooLong):
                    peer.lose(f"the server sent a message of over {MESSAGE_LIMIT} bytes")
                else:
                    peer.take(line)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
        event(_log, logging.DEBUG, "server output closed", reason=str(error))


async def _keep_last_words(stderr: ByteReceiveStream, last_words: deque[str]) -> None:
    splitter = LineSplitter(16_384)
    try:
        async for chunk in stderr:
            last_words.extend(line.decode(errors="replace").rstrip() for line in splitter.feed(chunk))
    except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
        event(_log, logging.DEBUG, "server errors closed", reason=str(error))


class _Outbox:
    """Messages on their way into a pipe, in order."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._news = anyio.Event()

    def put(self, raw: bytes) -> None:
        """Queue a message."""
        self._waiting.append(raw)
        self._news.set()

    async def write_all(self, stdin: ByteSendStream) -> None:
        """Write what comes, until the pipe breaks."""
        try:
            while True:
                await self._news.wait()
                self._news = anyio.Event()
                while self._waiting:
                    batch = b"".join(raw + b"\n" for raw in self._waiting)
                    self._waiting.clear()
                    await stdin.send(batch)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            event(_log, logging.DEBUG, "server input closed", reason=str(error))
