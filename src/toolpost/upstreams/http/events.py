"""Server-sent events out of bytes, wherever the bytes were cut. No I/O.

Part of `http_client`, which is the one front door: only it and its other parts import this.
"""

from collections.abc import Callable
from typing import Final

EventListener = Callable[[bytes], bool | None]
"""Is told the data of an event, its lines joined, and says whether that was all that is waited for."""

_BOM: Final = b"\xef\xbb\xbf"
_LONGEST_RETRY_DIGITS: Final = 9


class EventTooLarge(Exception):
    """An event is larger than the limit."""


class EventReader:
    """Reads one stream of events, and never holds more than one event's limit."""

    def __init__(self, limit: int, tell: EventListener | None) -> None:
        self.last_id = b""
        self.retry_ms: int | None = None
        self.is_enough = False
        """Whether whoever listens has heard what they waited for."""
        self._limit = limit
        self._tell = tell
        self._data: list[bytes] = []
        self._line = bytearray()
        self._size = 0
        self._pending_id = b""
        self._is_after_cr = False
        self._is_first_line = True

    def feed(self, chunk: bytes) -> None:
        """Take a chunk, tell the events that it completes."""
        if not chunk:
            return  # it would stand between a CR and its LF, and make two line ends of them
        if self._is_after_cr or b"\r" in chunk:
            chunk = self._normalize_line_ends(chunk)
        *ended, rest = chunk.split(b"\n")
        for end in ended:
            self._end_line(end)
        if rest:
            self._count(rest)
            self._line += rest

    def _normalize_line_ends(self, chunk: bytes) -> bytes:
        """Make every line end a newline. A CR ends its line at once, so the LF that may follow it is nothing."""
        if self._is_after_cr:
            chunk = chunk.removeprefix(b"\n")
            self._is_after_cr = False
        self._is_after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _count(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            raise EventTooLarge

    def _end_line(self, end: bytes) -> None:
        if not self._line and not end:
            self._end_event()
            return
        self._count(end)
        line = end
        if self._line:
            line = bytes(self._line) + end
            self._line.clear()
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(_BOM)
        self._take(line)

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            return
        # What is not kept takes no room: a stream of comments may last for ever.
        self._size -= len(line)
        if name == b"id" and b"\0" not in value:
            self._pending_id = value.removeprefix(b" ")
        elif name == b"retry":
            self._take_retry(value.removeprefix(b" "))

    def _take_retry(self, value: bytes) -> None:
        if value.isdigit() and len(value) <= _LONGEST_RETRY_DIGITS:
            self.retry_ms = int(value)

    def _end_event(self) -> None:
        # An id counts from the end of its event: a half event is to be sent again.
        self.last_id = self._pending_id
        self._is_first_line = False
        self._size = 0
        if self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            self._data = []
            if self._tell is not None and self._tell(data):
                self.is_enough = True
