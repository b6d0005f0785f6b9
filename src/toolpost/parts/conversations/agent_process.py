"""An agent as a process of ours: lines of JSON in, lines of JSON out. What else it prints is counted, and passed over."""

import asyncio
import logging
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from toolpost.base.events import event
from toolpost.base.ids import JsonObject
from toolpost.base.redaction import conceal_known
from toolpost.parts.conversations.agent import AgentGone, AgentOutputTooLong
from toolpost.protocol.lines import OversizedLine
from toolpost.protocol.shape import BadShape, check_shape
from toolpost.upstreams.outbox import Outbox
from toolpost.upstreams.process import tree as process_tree
from toolpost.upstreams.process.lines import each_line, each_log_line

_log = logging.getLogger("toolpost.parts.conversations")

LINE_LIMIT: Final = 8 * 1024 * 1024
STDERR_LINES: Final = 20
ODD_LIMIT: Final = 1_000
"""How many lines that are no messages are passed over in a row; one who prints more is no agent."""

EOF_S: Final = 0.5
SETTLE_S: Final = 0.25

_decode = msgspec.json.Decoder().decode


class AgentProcess:
    """A running agent, and the way to it."""

    def __init__(self, name: str, process: process_tree.Process, on_gone: Callable[[str], None]) -> None:
        self.name = name
        self.process = process
        self.reason: str | None = None
        """Why it is gone, once it is."""
        self._on_gone = on_gone
        self._outbox = Outbox()
        self._inbox: asyncio.Queue[JsonObject | None] = asyncio.Queue()
        self._last_words: deque[str] = deque(maxlen=STDERR_LINES)
        self._odd = 0
        self._wrote_too_much = False
        self._is_read = anyio.Event()

    def send(self, raw: bytes) -> None:
        """Write a message, or queue it."""
        if self.reason is not None:
            raise self.error()
        self._outbox.put(raw)

    async def receive(self) -> JsonObject | None:
        """Return the next message, None once there are no more."""
        return await self._inbox.get()

    def error(self) -> AgentGone:
        """Say that it is gone, with its last words."""
        if self._wrote_too_much:
            return AgentOutputTooLong(
                f"The agent `{self.name}` failed: {self.reason}.",
                hint="ask for less at once, or have it write to a file",
            )
        words = "\n".join(self._last_words) or None
        hint = None if words else "it has said nothing on stderr; its command, tried in a shell, may say more"
        return AgentGone(f"The agent `{self.name}` is gone: {self.reason or 'it was closed'}.", hint=hint, stderr=words)

    async def write(self) -> None:
        """Write to it until it reads no more."""
        assert self.process.stdin is not None
        await self._outbox.write_all(self.process.stdin)
        await self._lost("it closed its input")

    async def read(self) -> None:
        """Read its messages until it writes no more."""
        await each_line(self.process.stdout, LINE_LIMIT, self._take)
        self._is_read.set()
        await self._lost("it closed its output")

    async def listen(self) -> None:
        """Keep the last lines of its stderr."""
        await each_log_line(self.process.stderr, lambda line: self._last_words.append(conceal_known(line)))

    async def watch(self) -> None:
        """See it end: its exit is its end, whoever may still hold its pipes."""
        code = await self.process.wait()
        with anyio.move_on_after(SETTLE_S):
            await self._is_read.wait()
        self.lose(f"it ended with exit code {code}" if code >= 0 else f"it was ended by {signal.Signals(-code).name}")

    def lose(self, reason: str) -> None:
        """Be gone; a second reason changes nothing."""
        if self.reason is None:
            self.reason = reason
            self._inbox.put_nowait(None)
            self._on_gone(reason)

    async def _lost(self, reason: str) -> None:
        # If it is just leaving, its exit code says more.
        await anyio.sleep(SETTLE_S * 2)
        self.lose(reason)

    def _take(self, line: bytes) -> None:
        if isinstance(line, OversizedLine) and self.reason is None:
            # It may have been the answer itself: without it the turn would wait for its time limit, or end without a part of it.
            self._wrote_too_much = True
            self.lose(f"it wrote a line of more than {LINE_LIMIT:,} bytes, the limit")
            return
        message = _message(line)
        if message is not None:
            self._odd = 0
            self._inbox.put_nowait(message)
            return
        self._odd += 1
        event(_log, logging.DEBUG, "agent printed what is no message", agent=self.name, line=line[:200])
        if self._odd > ODD_LIMIT:
            self.lose("it prints what is no message")


@asynccontextmanager
async def open_agent_process(
    name: str,
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    on_gone: Callable[[str], None],
) -> AsyncIterator[AgentProcess]:
    """Start an agent; leaving ends its whole process tree."""
    async with process_tree.open_process(command, cwd=cwd, env=env, stdin=True, eof_s=EOF_S) as process:
        agent = AgentProcess(name, process, on_gone)
        async with first_error_alone(), anyio.create_task_group() as tasks:
            for task in (agent.write, agent.read, agent.listen, agent.watch):
                tasks.start_soon(task)
            try:
                yield agent
            finally:
                tasks.cancel_scope.cancel()


@asynccontextmanager
async def first_error_alone() -> AsyncIterator[None]:
    """Raise what went wrong as it is, not as a group of one."""
    try:
        yield
    except ExceptionGroup as group:
        error: Exception = group
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        raise error from error.__cause__


def _message(line: bytes) -> JsonObject | None:
    try:
        check_shape(line)
        found: Any = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, BadShape):
        return None
    return found if isinstance(found, dict) else None
