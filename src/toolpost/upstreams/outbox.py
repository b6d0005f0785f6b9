"""Messages on their way into a pipe, in order, and which of them never left."""

import logging
from collections import deque
from typing import Final

import anyio
from anyio.abc import ByteSendStream

from toolpost.contracts.events import event

_log = logging.getLogger("toolpost.upstreams")

_WHOLE_BYTES: Final = 512
"""What every POSIX pipe takes whole or not at all (`_POSIX_PIPE_BUF`)."""


class Outbox:
    """What is to be written. `write_all` must be running."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._writing: list[bytes] = []
        self._is_broken = False
        self._news = anyio.Event()

    def put(self, raw: bytes) -> None:
        """Queue a message."""
        self._waiting.append(raw)
        self._news.set()

    @property
    def unsent(self) -> list[bytes]:
        """The messages of which the other end cannot have read a byte."""
        is_untouched = self._is_broken and sum(map(len, self._writing)) < _WHOLE_BYTES
        return [*(self._writing if is_untouched else ()), *self._waiting]

    async def write_all(self, stdin: ByteSendStream) -> None:
        """Write what comes, until the pipe breaks."""
        try:
            while True:
                await self._news.wait()
                self._news = anyio.Event()
                while self._waiting:
                    await self._write(stdin)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            self._is_broken = True
            event(_log, logging.DEBUG, "server input closed", reason=str(error))

    async def _write(self, stdin: ByteSendStream) -> None:
        self._writing = list(self._waiting)
        self._waiting.clear()
        await stdin.send(b"".join(raw + b"\n" for raw in self._writing))
        self._writing = []
