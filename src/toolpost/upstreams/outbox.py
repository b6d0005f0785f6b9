"""A queue of messages to a pipe, which knows the messages that were certainly not sent when the pipe breaks.

Requests that the server cannot have seen may be repeated on another instance; all others may not. A message is written at once
where the pipe takes it (no task is woken for it), and queued otherwise.
"""

import logging
from collections import deque
from typing import Final

import anyio
from anyio.abc import ByteSendStream

from toolpost.base.events import event
from toolpost.processes.tree import PipeWriter

_log = logging.getLogger("toolpost.upstreams")

_WHOLE_BYTES: Final = 512
"""A write up to this size is atomic on every POSIX pipe (`_POSIX_PIPE_BUF`)."""


class Outbox:
    """Messages to one pipe. `write_all` must be running."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        """Messages of which nothing was written."""
        self._writing: list[bytes] = []
        """Messages that are being written, as one piece of bytes, of which `_rest` is left."""
        self._rest = b""
        self._is_broken = False
        self._queued = anyio.Event()
        self._pipe: PipeWriter | None = None

    def put(self, raw: bytes) -> None:
        """Write a message at once if none is queued and the pipe takes it; queue it, or the rest of it, otherwise."""
        if self._pipe is not None and not self._waiting and not self._writing:
            line = raw + b"\n"
            written = self._pipe.send_now(line)
            if written == len(line):
                return
            if written:
                self._writing, self._rest = [raw], line[written:]
                self._queued.set()
                return
        self._waiting.append(raw)
        self._queued.set()

    @property
    def unsent(self) -> list[bytes]:
        """The messages of which the other end cannot have read a byte."""
        # A broken pipe has taken nothing of a write that is atomic, and an unknown part of a longer one.
        is_untouched = self._is_broken and sum(map(len, self._writing)) < _WHOLE_BYTES
        return [*(self._writing if is_untouched else ()), *self._waiting]

    async def write_all(self, stdin: ByteSendStream) -> None:
        """Write queued messages until the pipe breaks or is closed."""
        # On Windows a pipe has no non-blocking write.
        self._pipe = stdin if isinstance(stdin, PipeWriter) else None
        try:
            while True:
                await self._queued.wait()
                self._queued = anyio.Event()
                while self._waiting or self._writing:
                    if not self._writing:
                        self._writing = list(self._waiting)
                        self._waiting.clear()
                        self._rest = b"".join(raw + b"\n" for raw in self._writing)
                    await stdin.send(self._rest)
                    self._writing, self._rest = [], b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            self._is_broken = True
            event(_log, logging.DEBUG, "server input closed", reason=str(error))
