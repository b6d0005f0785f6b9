"""HTTP/1.1 framing: the grammar of a request's head, and where its body ends.

This is the only place that decides where a request ends. uvicorn parses the head again, but is handed the body as it was
delimited here, so that no second interpretation exists for a smuggled request to exploit. Everything is bounded, and every
byte is looked at once.
"""

import re
from typing import Final

from toolpost.contracts.errors import ErrorCode
from toolpost.endpoints.http.refusal import Refused

HEAD_LIMIT: Final = 65_536
LINE_LIMIT: Final = 8_192
HEADER_LIMIT: Final = 128
CHUNK_LINE_LIMIT: Final = 1_024
TRAILER_LIMIT: Final = 8_192
SMALL_CHUNKS: Final = 4_096
"""How many chunks of one body may be smaller than `SMALL_CHUNK` bytes: each costs the event loop as much as a large one."""
SMALL_CHUNK: Final = 16

HEAD_END: Final = b"\r\n\r\n"

_CRLF: Final = b"\r\n"
_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_HEAD: Final = re.compile(_TOKEN + rb" [\x21-\x7e]+ HTTP/1\.[01](?:\r\n" + _TOKEN + rb":[^\r\n\x00]*)*\r\n\r\n")
_LENGTH: Final = re.compile(rb"\r\ncontent-length:([^\r]*)", re.IGNORECASE)
_ENCODING: Final = re.compile(rb"\r\ntransfer-encoding:([^\r]*)", re.IGNORECASE)
_CHUNK_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;[^\r\n\x00]*)?\r\n")
_TRAILER: Final = re.compile(_TOKEN + rb":[^\r\n\x00]*\r\n")


class CountedBody:
    """A body with a Content-Length, or none."""

    def __init__(self, length: int) -> None:
        self._left = length

    @property
    def is_complete(self) -> bool:
        """Whether all of it has arrived."""
        return not self._left

    def feed(self, data: bytes) -> tuple[bytes, bytes | None]:
        """Return the part of `data` that belongs to the body, and the bytes after the body; None while it is incomplete."""
        left = self._left
        if len(data) < left:
            self._left = left - len(data)
            return data, None
        self._left = 0
        return data[:left], data[left:]


class ChunkedBody:
    """A chunked body. Trailers are checked and dropped."""

    def __init__(self) -> None:
        self.is_complete = False
        self._rest = b""
        self._left = 0
        self._is_after_data = False
        self._is_in_trailers = False
        self._trailers = 0
        self._small = 0

    def feed(self, data: bytes) -> tuple[bytes, bytes | None]:
        """Return the decoded part of the body, and the bytes after the body; None while it is incomplete.

        Raises `Refused` for malformed chunks.
        """
        if self._rest:
            data, self._rest = self._rest + data, b""
        at, parts = 0, list[bytes]()
        while not self.is_complete:
            if self._left:
                part = data[at : at + self._left]
                parts.append(part)
                self._left -= len(part)
                at += len(part)
                if self._left or not part:
                    break
                self._is_after_data = True
            end = data.find(_CRLF, at, at + CHUNK_LINE_LIMIT)
            if end < 0:
                # Shorter than one line: a client that sends byte by byte cannot make the concatenation quadratic.
                if len(data) - at >= CHUNK_LINE_LIMIT:
                    raise malformed("The size of a chunk, or a trailer, is too long")
                self._rest, at = data[at:], len(data)
                break
            self._read_line(data, at, end + 2)
            at = end + 2
        return b"".join(parts), data[at:] if self.is_complete else None

    def _read_line(self, data: bytes, start: int, end: int) -> None:
        if self._is_after_data:
            if end - start != len(_CRLF):
                raise malformed("A chunk is longer than its size says")
            self._is_after_data = False
        elif self._is_in_trailers:
            self._read_trailer(data, start, end)
        else:
            found = _CHUNK_LINE.fullmatch(data, start, end)
            if found is None:
                raise malformed("The size of a chunk is not a hexadecimal number")
            self._left = int(found[1], 16)
            self._is_in_trailers = not self._left
            self._small += self._left < SMALL_CHUNK
            if self._small > SMALL_CHUNKS:
                raise malformed("The chunks of the body are too small: send larger ones, or a Content-Length")

    def _read_trailer(self, data: bytes, start: int, end: int) -> None:
        self._trailers += end - start
        if self._trailers > TRAILER_LIMIT:
            raise Refused(431, ErrorCode.INVALID_REQUEST, f"Trailers have at most {TRAILER_LIMIT} bytes")
        if end - start == len(_CRLF):
            self.is_complete = True
        elif _TRAILER.fullmatch(data, start, end) is None:
            raise malformed("A trailer is malformed")


Framing = CountedBody | ChunkedBody


def read_framing(head: bytes) -> Framing:
    """Check the grammar of a complete head, and return how its body is framed; raise `Refused` if it is malformed."""
    if head.find(_CRLF) > LINE_LIMIT:
        raise line_too_long()
    if head.count(_CRLF) - 2 > HEADER_LIMIT:
        raise Refused(431, ErrorCode.INVALID_REQUEST, f"A request has at most {HEADER_LIMIT} header lines")
    if _HEAD.fullmatch(head) is None:
        raise malformed("The request is not HTTP/1.1")
    lengths, encodings = _LENGTH.findall(head), _ENCODING.findall(head)
    if len(lengths) + len(encodings) > 1:
        raise malformed("Send one Content-Length or `Transfer-Encoding: chunked`, not both and none of them twice")
    if encodings:
        if encodings[0].strip(b" \t").lower() != b"chunked" or b" HTTP/1.0\r\n" in head[: LINE_LIMIT + 12]:
            raise malformed("The only supported transfer encoding is `chunked`, over HTTP/1.1")
        return ChunkedBody()
    length = lengths[0].strip(b" \t") if lengths else b"0"
    if not length.isdigit() or len(length) > 18:
        raise malformed("Content-Length is not a number")
    return CountedBody(int(length))


def malformed(message: str) -> Refused:
    """Make a 400."""
    return Refused(400, ErrorCode.INVALID_REQUEST, message)


def line_too_long() -> Refused:
    """Make a 414."""
    return Refused(414, ErrorCode.INVALID_REQUEST, f"The first line of a request has at most {LINE_LIMIT} bytes")


def head_too_long() -> Refused:
    """Make a 431."""
    return Refused(431, ErrorCode.INVALID_REQUEST, f"The headers of a request have at most {HEAD_LIMIT} bytes")
