"""A file's bytes as text: its encoding found out, its size bounded."""

import codecs
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

SNIFF_BYTES: Final = 8_192
_NO_FILES_ARE_IN: Final = frozenset({"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape"})
_BLOCK: Final = 1 << 18
_COOKIE: Final = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.MULTILINE)
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True, slots=True)
class Decoded:
    """A text, and how it was written."""

    text: str
    encoding: str


def is_binary(start: bytes) -> bool:
    """Tell by its first bytes whether a file is no text."""
    if any(start.startswith(mark) for mark, _ in _MARKS):
        return False
    return b"\0" in start[:SNIFF_BYTES]


def decoded(data: bytes, *, is_cut: bool = False) -> Decoded:
    """Read bytes as text: by their mark, as UTF-8, by what the file says of itself, else as Latin-1, which takes any."""
    for name, errors in _ways_to_read(data, is_cut=is_cut):
        try:
            return Decoded(_lines_of(data.decode(name, errors)), name.removesuffix("-sig"))
        except UnicodeError:
            continue
    raise AssertionError("Latin-1 takes any byte")


def _ways_to_read(data: bytes, *, is_cut: bool) -> Iterator[tuple[str, str]]:
    """Give the encodings to try, with what is done about bytes that do not fit."""
    marked = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    # Where a part of a file is read, its last character may be cut in two.
    yield marked, "replace" if is_cut or marked != "utf-8" else "strict"
    yield _declared(data), "strict"
    yield "latin-1", "strict"


def encoding_of(file: BinaryIO, limit: int) -> str:
    """Find out how a file is written, as `decoded` does, without holding all of it; it is left where it began."""
    start = file.read(SNIFF_BYTES)
    marked = next((name for mark, name in _MARKS if start.startswith(mark)), None)
    candidates = [marked] if marked else ["utf-8", _declared(start)]
    found = next((name for name in candidates if marked or _fits(file, name, limit)), "latin-1")
    file.seek(0)
    return found


def _fits(file: BinaryIO, encoding: str, limit: int) -> bool:
    file.seek(0)
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    try:
        while limit > 0 and (block := file.read(min(_BLOCK, limit))):
            decoder.decode(block)
            limit -= len(block)
        # Where a part of a file is read, its last character may be cut in two.
        decoder.decode(b"", final=limit > 0)
    except UnicodeError:
        return False
    return True


def text_stream(file: BinaryIO, encoding: str, limit: int) -> io.TextIOWrapper:
    """Read a file's first bytes as text, piece by piece; every line ends the same way."""
    return io.TextIOWrapper(io.BufferedReader(_Head(file, limit), _BLOCK), encoding, "replace", newline=None)


class _Head(io.RawIOBase):
    """The first bytes of a file."""

    def __init__(self, file: BinaryIO, limit: int) -> None:
        super().__init__()
        self._file = file
        self._left = limit

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]  # a buffer, as io calls it
        """Read some of what is left."""
        found = self._file.read(min(len(buffer), self._left))
        self._left -= len(found)
        buffer[: len(found)] = found
        return len(found)


def _declared(data: bytes) -> str:
    found = _COOKIE.search(data[:200])
    try:
        name = codecs.lookup(found[1].decode("ascii")).name if found else "latin-1"
        # What says so in ASCII is not written in anything that ASCII is not part of.
        is_sound = name not in _NO_FILES_ARE_IN and b"abcd".decode(name) == "abcd"
    except (LookupError, UnicodeError):
        return "latin-1"
    return name if is_sound else "latin-1"


def _lines_of(text: str) -> str:
    """Let every line end the same way."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
