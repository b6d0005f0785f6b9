"""An incremental parser for server-sent events. No I/O. Part of `client`: only the modules of this package import it."""

from collections.abc import Callable
from typing import Final

EventListener = Callable[[bytes], bool | None]
"""Takes the data of an event, its lines joined; True says that no further event is needed."""

_BOM: Final = b"\xef\xbb\xbf"
_LONGEST_RETRY_DIGITS: Final = 9


class EventTooLarge(Exception):
    pass


class EventReader:
    """Parses one event stream; buffers at most `limit` bytes, and raises `EventTooLarge` beyond that."""

    def __init__(self, limit: int, on_event: EventListener | None) -> None:
        self.last_id = b""
        self.retry_ms: int | None = None
        self.is_enough = False
        """Whether the listener needs no further event."""
        self._limit = limit
        self._on_event = on_event
        self._data: list[bytes] = []
        self._line = bytearray()
        self._size = 0
        self._pending_id = b""
        self._is_after_cr = False
        self._is_first_line = True

    def feed(self, chunk: bytes) -> None:
        """Parse a chunk, and pass the events that it completes to the listener."""
        if not chunk:
            return  # An empty chunk between CR and LF would make two line ends of them.
        if self._is_after_cr or b"\r" in chunk:
            chunk = self._normalize_line_ends(chunk)
        *ended, rest = chunk.split(b"\n")
        for end in ended:
            self._end_line(end)
        if rest:
            self._count(rest)
            self._line += rest

    def _normalize_line_ends(self, chunk: bytes) -> bytes:
        """Replace CR and CRLF by LF. A CR ends its line at once, so an LF that follows it in the next chunk is dropped."""
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
        # Comments and fields that are not buffered do not count: a stream of keep-alive comments may last for hours.
        self._size -= len(line)
        if name == b"id" and b"\0" not in value:
            self._pending_id = value.removeprefix(b" ")
        elif name == b"retry":
            digits = value.removeprefix(b" ")
            if digits.isdigit() and len(digits) <= _LONGEST_RETRY_DIGITS:
                self.retry_ms = int(digits)

    def _end_event(self) -> None:
        # An id takes effect at the end of its event: an event that was cut off has to be sent again.
        self.last_id = self._pending_id
        self._is_first_line = False
        self._size = 0
        if self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            self._data = []
            if self._on_event is not None and self._on_event(data):
                self.is_enough = True
