"""A server as a process of ours, on its stdin and stdout; what it writes to stderr is kept for when it fails."""

import signal
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio

from toolpost.protocol.lines import TooLong
from toolpost.upstreams.notifications import NotificationListener
from toolpost.upstreams.outbox import Outbox
from toolpost.upstreams.peer import Peer
from toolpost.upstreams.process import tree as process_tree
from toolpost.upstreams.process.lines import each_line, each_log_line
from toolpost.upstreams.process.tree import PipeReader
from toolpost.upstreams.spec import ServerSpec

MESSAGE_LIMIT: Final = 16 * 1024 * 1024
"""Copying and digesting a result takes the event loop 3 ms for each MiB: this much stays below 50 ms."""

STDERR_LINES: Final = 50
EOF_S: Final = 0.5
"""How long a server may take to leave by itself once its stdin has ended."""

LINGER_S: Final = 0.000_15
"""How long a quick server is watched before the loop sleeps: to fall asleep and be woken takes about half of that."""

LONGEST_SKIP: Final = 64
"""Of how many calls one is lingered for, where that was in vain again and again."""

SETTLE_S: Final = 0.25
"""How long the last words of a process may be on their way, and how long the exit of one that closed a pipe."""


class ServerProcess:
    """A running server process and the way to it."""

    def __init__(
        self,
        process: process_tree.Process,
        outbox: Outbox,
        peer: Peer,
        *,
        on_gone: Callable[[str], None],
        conceal: Callable[[str], str],
    ) -> None:
        self.process = process
        self.peer = peer
        self.last_words: deque[str] = deque(maxlen=STDERR_LINES)
        self.gone = anyio.Event()
        self._outbox = outbox
        self._on_gone = on_gone
        self._conceal = conceal
        self._spared = self._to_spare = 0
        self._is_read = anyio.Event()
        self._is_heard = anyio.Event()

    async def write(self) -> None:
        """Write to it until it reads no more, which is its end: nothing could be asked of it."""
        assert self.process.stdin is not None
        await self._outbox.write_all(self.process.stdin)
        await self._note_loss("closed its input")

    async def read(self) -> None:
        """Read its messages until it writes no more, which is its end: it could answer nothing."""
        await each_line(self.process.stdout, MESSAGE_LIMIT, self._take)
        self._is_read.set()
        await self._note_loss("closed its output")

    def linger(self) -> None:
        """Read what it says at once, if it is a server that does; of one that takes its time this is asked ever more rarely."""
        if self._to_spare:
            self._to_spare -= 1
        elif isinstance(stdout := self.process.stdout, PipeReader) and stdout.linger(LINGER_S):
            self._spared = 0
        else:
            self._to_spare = self._spared = min(2 * self._spared + 1, LONGEST_SKIP)

    async def listen(self) -> None:
        """Keep the last lines of its stderr."""
        await each_log_line(self.process.stderr, lambda line: self.last_words.append(self._conceal(line)))
        self._is_heard.set()

    async def watch(self) -> None:
        """See it end: the exit of the process is its end, whoever may still hold its pipes."""
        code = await self.process.wait()
        # What it wrote before it left may still be on its way.
        with anyio.move_on_after(SETTLE_S):
            await self._is_read.wait()
            await self._is_heard.wait()
        self._lose(_describe_exit(code))

    def _take(self, line: bytes) -> None:
        if isinstance(line, TooLong):
            self.peer.take_too_long(line, MESSAGE_LIMIT)
        else:
            self.peer.take(line)

    async def _note_loss(self, what: str) -> None:
        # If it is just leaving, its exit code says more.
        with anyio.move_on_after(SETTLE_S * 2):
            await self.gone.wait()
        self._lose(f"it {what}")

    def _lose(self, reason: str) -> None:
        if not self.gone.is_set():
            self.gone.set()
            self.peer.lose(reason, unsent=self._outbox.unsent)
            self._on_gone(reason)


@asynccontextmanager
async def open_stdio_server(
    spec: ServerSpec, *, on_notification: NotificationListener, on_gone: Callable[[str], None]
) -> AsyncIterator[ServerProcess]:
    """Start the server; leaving ends its whole process tree."""
    assert spec.command is not None
    outbox = Outbox()
    peer = Peer(spec.name, outbox.put, on_notification=on_notification)
    async with process_tree.open_process(spec.command, cwd=spec.cwd, env=spec.env, stdin=True, eof_s=EOF_S) as process:
        server = ServerProcess(process, outbox, peer, on_gone=on_gone, conceal=spec.conceal)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.write)
            tasks.start_soon(server.read)
            tasks.start_soon(server.listen)
            tasks.start_soon(server.watch)
            try:
                yield server
            finally:
                peer.lose("it was stopped")
                tasks.cancel_scope.cancel()


def _describe_exit(code: int | None) -> str:
    """Say how it ended; a negative code is the signal that it was killed by."""
    if code is not None and code < 0:
        with suppress(ValueError):
            return f"it was killed by {signal.Signals(-code).name}"
    return f"it ended with exit code {code}"
