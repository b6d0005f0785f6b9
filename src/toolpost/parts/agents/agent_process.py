"""The process of an agent: JSON messages in lines on its stdin and stdout, the end of its stderr for errors.

Lines on stdout that are no JSON objects are ignored up to a limit, since some agents print banners. Four tasks write, read,
collect stderr and wait for the exit; the first that finds the process gone sets `reason`, and later reasons are ignored.
"""

import asyncio
import logging
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from toolpost.base import JsonObject, conceal_known, event
from toolpost.parts.agents.agent import AgentGone, AgentOutputTooLong, unwrap_group
from toolpost.processes import Process, open_process
from toolpost.protocol import BadShape, OversizedLine, check_shape

_log = logging.getLogger("toolpost.parts.agents")

LINE_LIMIT: Final = 8 * 1024 * 1024
STDERR_LINES: Final = 20
INVALID_LINES_LIMIT: Final = 1_000
"""Lines in a row that may be no messages; a program that prints more is not an agent."""

EOF_S: Final = 0.5
SETTLE_S: Final = 0.25
"""How long the rest of the output may take to arrive after the exit, in seconds."""

_decode = msgspec.json.Decoder().decode


class AgentProcess:
    """A running agent: messages to and from it, and why it is gone."""

    def __init__(self, name: str, process: Process, on_gone: Callable[[str], None]) -> None:
        self.name = name
        self.process = process
        self.reason: str | None = None
        """Why it is gone; None while it runs."""
        self._on_gone = on_gone
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._inbox: asyncio.Queue[JsonObject | None] = asyncio.Queue()
        self._stderr_tail: deque[str] = deque(maxlen=STDERR_LINES)
        self._invalid_lines = 0
        self._has_oversized_line = False
        self._is_read = anyio.Event()

    def send(self, raw: bytes) -> None:
        """Queue a message; raises `AgentGone` if the process is gone."""
        if self.reason is not None:
            raise self.make_error()
        self._outbox.put_nowait(raw)

    async def receive(self) -> JsonObject | None:
        """Return the next message; None once the process is gone and all of its messages were returned."""
        return await self._inbox.get()

    def make_error(self) -> AgentGone:
        """Return the error for a process that is gone, with the end of its stderr."""
        if self._has_oversized_line:
            return AgentOutputTooLong(
                f"The agent `{self.name}` failed: {self.reason}.",
                hint="ask for less at once, or have it write to a file",
            )
        stderr = "\n".join(self._stderr_tail) or None
        hint = None if stderr else "it wrote nothing to stderr; run its command in a shell to see more"
        message = f"The agent `{self.name}` is gone: {self.reason or 'it was closed'}."
        return AgentGone(message, hint=hint, stderr=stderr)

    async def write(self) -> None:
        """Write queued messages until the process closes its stdin."""
        assert self.process.stdin is not None
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                await self.process.stdin.send(await self._outbox.get() + b"\n")
        await self._mark_gone_unless_exiting("it closed its input")

    async def read(self) -> None:
        """Read messages until the process closes its stdout."""
        await self.process.read_lines(LINE_LIMIT, self._handle_line)
        self._is_read.set()
        await self._mark_gone_unless_exiting("it closed its output")

    async def collect_stderr(self) -> None:
        """Keep the last lines of stderr, without secrets."""
        await self.process.read_log_lines(lambda line: self._stderr_tail.append(conceal_known(line)))

    async def wait_exit(self) -> None:
        """Wait for the exit. It counts even if the pipes stay open, because a child of the agent may have inherited them."""
        code = await self.process.wait()
        with anyio.move_on_after(SETTLE_S):
            await self._is_read.wait()
        self.mark_gone(
            f"it ended with exit code {code}" if code >= 0 else f"it was ended by {signal.Signals(-code).name}"
        )

    def mark_gone(self, reason: str) -> None:
        """Set `reason` and call `on_gone`; does nothing if it is gone already."""
        if self.reason is None:
            self.reason = reason
            self._inbox.put_nowait(None)
            self._on_gone(reason)

    async def _mark_gone_unless_exiting(self, reason: str) -> None:
        # A process that exits closes its pipes first, and its exit code says more: `wait_exit` gets time to report it.
        await anyio.sleep(SETTLE_S * 2)
        self.mark_gone(reason)

    def _handle_line(self, line: bytes) -> None:
        if isinstance(line, OversizedLine) and self.reason is None:
            # It may have been the answer: without it the turn would wait for its time limit, or end with a part missing.
            self._has_oversized_line = True
            self.mark_gone(f"it wrote a line of more than {LINE_LIMIT:,} bytes, the limit")
            return
        message = _parse_message(line)
        if message is not None:
            self._invalid_lines = 0
            self._inbox.put_nowait(message)
            return
        self._invalid_lines += 1
        event(_log, logging.DEBUG, "agent printed a line that is no message", agent=self.name, line=line[:200])
        if self._invalid_lines > INVALID_LINES_LIMIT:
            self.mark_gone("it printed too many lines that are no messages")


@asynccontextmanager
async def open_agent_process(
    name: str,
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    on_gone: Callable[[str], None],
) -> AsyncIterator[AgentProcess]:
    """Start an agent; leaving ends its whole process tree. Errors are raised as they are, not in an `ExceptionGroup`."""
    async with open_process(command, cwd=cwd, env=env, stdin=True, eof_s=EOF_S) as process:
        agent = AgentProcess(name, process, on_gone)
        try:
            async with anyio.create_task_group() as tasks:
                for task in (agent.write, agent.read, agent.collect_stderr, agent.wait_exit):
                    tasks.start_soon(task)
                try:
                    yield agent
                finally:
                    tasks.cancel_scope.cancel()
        except ExceptionGroup as group:
            error = unwrap_group(group)
            raise error from error.__cause__


def _parse_message(line: bytes) -> JsonObject | None:
    try:
        check_shape(line)
        message: Any = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, BadShape):
        return None
    return message if isinstance(message, dict) else None
