"""Servers that are started by a command and speak JSON-RPC on stdin and stdout; their last lines of stderr are kept."""

import logging
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio

from toolpost.base.events import OUTPUT_EVENT, SERVER_OUTPUT, event
from toolpost.processes import tree as process_tree
from toolpost.processes.tree import PipeReader
from toolpost.protocol.lines import OversizedLine
from toolpost.upstreams.mask import Mask
from toolpost.upstreams.notifications import NotificationListener
from toolpost.upstreams.outbox import Outbox
from toolpost.upstreams.peer import MESSAGE_LIMIT, Peer
from toolpost.upstreams.spec import ServerSpec

STDERR_LINES: Final = 50
EOF_S: Final = 0.5
"""How long a server may take to exit after the end of its stdin, before SIGTERM."""

POLL_BRIEFLY_S: Final = 0.000_15
"""How long the output of a quick server is polled before the loop sleeps: to sleep and be woken takes about half of that."""

LONGEST_SKIP: Final = 64
"""How many calls are answered without polling, at most, after polling was in vain."""

LOG_LINES_PER_S: Final = 200
"""How many lines of stderr are logged within a second; a server that floods it must not fill the disk."""

SETTLE_S: Final = 0.25
"""How long output may still arrive after the exit of a process, and how long its exit may follow a closed pipe."""


class ServerProcess:
    """A running server process, and the `Peer` that speaks with it."""

    def __init__(
        self,
        process: process_tree.Process,
        outbox: Outbox,
        peer: Peer,
        *,
        on_gone: Callable[[str], None],
        conceal: Callable[[str], str],
        name: str,
    ) -> None:
        self.process = process
        self._name = name
        self.peer = peer
        self.stderr_tail: deque[str] = deque(maxlen=STDERR_LINES)
        self.gone = anyio.Event()
        self._outbox = outbox
        self._on_gone = on_gone
        self._conceal = conceal
        # How many calls the last failure to poll has skipped, and how many of them are left.
        self._skip = self._left_to_skip = 0
        self._log_second = self._log_lines = 0
        self._stdout_ended = anyio.Event()
        self._stderr_ended = anyio.Event()

    async def write(self) -> None:
        """Write requests until stdin is closed, which ends the server: nothing could be asked of it."""
        assert self.process.stdin is not None
        await self._outbox.write_all(self.process.stdin)
        await self._note_loss("closed its input")

    async def read(self) -> None:
        """Read messages until stdout is closed, which ends the server: it could answer nothing."""
        await self.process.read_lines(MESSAGE_LIMIT, self._take)
        self._stdout_ended.set()
        await self._note_loss("closed its output")

    def spin(self) -> None:
        """Poll stdout for a moment instead of sleeping in the event loop, which pays off for servers that answer at once.

        Each time it was in vain, twice as many calls are skipped before the next attempt, up to `LONGEST_SKIP`.
        """
        if self._left_to_skip:
            self._left_to_skip -= 1
        elif isinstance(stdout := self.process.stdout, PipeReader) and stdout.spin(POLL_BRIEFLY_S):
            self._skip = 0
        else:
            self._left_to_skip = self._skip = min(2 * self._skip + 1, LONGEST_SKIP)

    async def read_stderr(self) -> None:
        """Keep the last lines of stderr."""
        await self.process.read_log_lines(self._take_log_line)
        self._stderr_ended.set()

    def _take_log_line(self, line: str) -> None:
        line = self._conceal(line)
        self.stderr_tail.append(line)
        if (second := int(time.monotonic())) != self._log_second:
            if self._log_lines > LOG_LINES_PER_S:
                event(
                    SERVER_OUTPUT,
                    logging.INFO,
                    "output left out",
                    server=self._name,
                    lines=self._log_lines - LOG_LINES_PER_S,
                )
            self._log_second, self._log_lines = second, 0
        self._log_lines += 1
        if self._log_lines <= LOG_LINES_PER_S:
            event(SERVER_OUTPUT, logging.INFO, OUTPUT_EVENT, server=self._name, line=line)

    async def watch(self) -> None:
        """Wait for the exit of the process, and report it; descendants may keep the pipes open for longer."""
        code = await self.process.wait()
        # What it wrote before its exit may still be in the pipes.
        with anyio.move_on_after(SETTLE_S):
            await self._stdout_ended.wait()
            await self._stderr_ended.wait()
        self._lose(_describe_exit(code))

    def _take(self, line: bytes) -> None:
        if isinstance(line, OversizedLine):
            self.peer.take_too_long(line, MESSAGE_LIMIT)
        else:
            self.peer.take(line)

    async def _note_loss(self, what: str) -> None:
        # A server that exits closes its pipes first, and its exit code says more.
        with anyio.move_on_after(SETTLE_S * 2):
            await self.gone.wait()
        self._lose(f"it {what}")

    def _lose(self, reason: str) -> None:
        # Pipes and process end in any order, and each of them reports it: the first one counts.
        if not self.gone.is_set():
            self.gone.set()
            self.peer.lose(reason, unsent=self._outbox.unsent)
            self._on_gone(reason)


@asynccontextmanager
async def open_stdio_server(
    spec: ServerSpec, *, on_notification: NotificationListener, on_gone: Callable[[str], None]
) -> AsyncIterator[ServerProcess]:
    """Start the server; leaving ends its whole process tree. `on_gone` is called once, if it ends before that."""
    assert spec.command is not None
    outbox = Outbox()
    peer = Peer(spec.name, outbox.put, on_notification=on_notification)
    peer.mask = Mask(spec.secrets)
    async with process_tree.open_process(spec.command, cwd=spec.cwd, env=spec.env, stdin=True, eof_s=EOF_S) as process:
        server = ServerProcess(process, outbox, peer, on_gone=on_gone, conceal=spec.conceal, name=spec.name)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.write)
            tasks.start_soon(server.read)
            tasks.start_soon(server.read_stderr)
            tasks.start_soon(server.watch)
            try:
                yield server
            finally:
                # Before the process tree is ended, which may take seconds: what is in flight fails at once.
                peer.lose("it was stopped")
                tasks.cancel_scope.cancel()


def _describe_exit(code: int | None) -> str:
    """Describe an exit code; a negative one is the signal that killed the process."""
    if code is not None and code < 0:
        with suppress(ValueError):
            return f"it was killed by {signal.Signals(-code).name}"
    return f"it ended with exit code {code}"
