"""The framing of plain requests: `POST /mcp` with a small body, the same head again and again.

The head is parsed once and kept. Nearly every further request of a client starts with the same bytes, so that its head is found
by comparing them, and its end by the length that was read the first time. Anything else is left to uvicorn (`forwarding`).
"""

import re
from typing import Final, Protocol

from toolpost.endpoints.http.framing import HEAD_END, HEAD_LIMIT, LINE_LIMIT, head_too_long, line_too_long, malformed
from toolpost.endpoints.http.head import RequestHead

PLAIN_HEAD_LIMIT: Final = 16_384
PLAIN_BODY_LIMIT: Final = 262_144

_PLAIN_HEAD: Final = re.compile(
    rb"POST /mcp HTTP/1\.1(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*)+\r\n\r\n"
)


class HeadReader(Protocol):
    """The part of an endpoint that reads heads."""

    body_limit: int

    def read_head(self, raw: bytes) -> RequestHead | None:
        """Parse and authenticate the head of a request; None leaves it to uvicorn."""
        ...


class PlainRequests:
    """The plain requests of one connection: their head, and what has arrived of the next request."""

    __slots__ = ("_reader", "_start", "body_at", "buffer", "head", "size")

    def __init__(self, reader: HeadReader) -> None:
        self._reader = reader
        self.head: RequestHead | None = None
        """Of the last plain request; the next one is mostly the same."""
        self._start = b""
        """The bytes of that head."""
        self.body_at = self.size = 0
        """Where the body of such a request begins and ends."""
        self.buffer = bytearray()

    def is_same(self, data: bytes) -> bool:
        """Whether data starts with the head of the last plain request, whose caller may still call."""
        # The same bytes mean the same headers and the same caller, as long as its token has neither expired nor been removed.
        return self.head is not None and data.startswith(self._start) and self.head.admission.is_valid

    def find_head(self, data: bytes) -> int | None:
        """Return where the head ends with which data begins; None if more of it must come.

        Raises `Refused` for bytes that are not HTTP: an end of a head would never come.
        """
        if data and not data[:1].isalpha():
            raise malformed("The request is not HTTP/1.1")
        end = data.find(HEAD_END)
        return end + len(HEAD_END) if end >= 0 else None

    def add_to_head(self, data: bytes) -> int | None:
        """Buffer more of a head, and return where it ends; None if more must come. Raises `Refused` if it is too long."""
        # Only the new bytes are searched: a head may arrive byte by byte.
        buffer, seen = self.buffer, len(self.buffer)
        buffer += data
        end = buffer.find(HEAD_END, max(0, seen - len(HEAD_END) + 1))
        if end >= 0:
            return end + len(HEAD_END)
        if len(buffer) > HEAD_LIMIT:
            raise head_too_long()
        if seen <= LINE_LIMIT < len(buffer) and buffer.find(b"\r\n", 0, LINE_LIMIT + 2) < 0:
            raise line_too_long()
        return None

    def read_head(self, raw: bytes) -> RequestHead | None:
        """Read a complete head, and keep it for the requests to come; None if the request is not plain."""
        if len(raw) > PLAIN_HEAD_LIMIT or not _PLAIN_HEAD.fullmatch(raw):
            return None
        head = self._reader.read_head(raw[: -len(HEAD_END)])
        if head is None or head.length > min(PLAIN_BODY_LIMIT, self._reader.body_limit):
            return None
        self._start, self.head = raw, head
        self.body_at, self.size = len(raw), len(raw) + head.length
        return head

    @property
    def head_bytes(self) -> bytes:
        """The head as it was sent."""
        return self._start

    def take_buffer(self) -> bytes:
        """Return what is buffered, and empty the buffer."""
        data = bytes(self.buffer)
        self.buffer.clear()
        return data
