"""Decode the bytes of a file: by byte order mark, as UTF-8, by a declared encoding (PEP 263), else as Latin-1."""

import codecs
import io
import re
from dataclasses import dataclass
from typing import BinaryIO, Final

SNIFF_BYTES: Final = 8_192
_UNUSABLE_ENCODINGS: Final = frozenset({"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape"})
_BLOCK: Final = 1 << 18
_COOKIE: Final = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.MULTILINE)
_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True, slots=True)
class Decoded:
    """A text and its encoding."""

    text: str
    encoding: str


def is_binary(start: bytes) -> bool:
    """Whether the first bytes of a file contain NUL, and no byte order mark explains it."""
    if any(start.startswith(mark) for mark, _ in _BYTE_ORDER_MARKS):
        return False
    return b"\0" in start[:SNIFF_BYTES]


def decode(data: bytes, *, is_cut: bool = False) -> Decoded:
    """Decode, with `\\n` as the only line end; never fails. `is_cut` allows half a character at the end."""
    marked = next((name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), "utf-8")
    # The last character of a part of a file may be cut in two.
    first = marked, "replace" if is_cut or marked != "utf-8" else "strict"
    for name, errors in (first, (_declared_encoding(data), "strict"), ("latin-1", "strict")):
        try:
            text = data.decode(name, errors)
        except UnicodeError:
            continue
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        return Decoded(text, name.removesuffix("-sig"))
    raise AssertionError("Latin-1 decodes any byte")


def encoding_of(file: BinaryIO, limit: int) -> str:
    """Return the encoding that `decode` would use, without reading the whole file into memory; rewinds the file."""
    start = file.read(SNIFF_BYTES)
    marked = next((name for mark, name in _BYTE_ORDER_MARKS if start.startswith(mark)), None)
    candidates = [marked] if marked else ["utf-8", _declared_encoding(start)]
    found = next((name for name in candidates if marked or _is_valid(file, name, limit)), "latin-1")
    file.seek(0)
    return found


def _is_valid(file: BinaryIO, encoding: str, limit: int) -> bool:
    file.seek(0)
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    try:
        while limit > 0 and (block := file.read(min(_BLOCK, limit))):
            decoder.decode(block)
            limit -= len(block)
        # The last character of a part of a file may be cut in two.
        decoder.decode(b"", final=limit > 0)
    except UnicodeError:
        return False
    return True


def text_stream(file: BinaryIO, encoding: str, limit: int) -> io.TextIOWrapper:
    """Return a text stream of the first `limit` bytes of a file, with universal newlines."""
    return io.TextIOWrapper(io.BufferedReader(_LimitedReader(file, limit), _BLOCK), encoding, "replace", newline=None)


class _LimitedReader(io.RawIOBase):
    """A raw stream of the first bytes of another."""

    def __init__(self, file: BinaryIO, limit: int) -> None:
        super().__init__()
        self._file = file
        self._left = limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]  # a buffer, as io calls it
        found = self._file.read(min(len(buffer), self._left))
        self._left -= len(found)
        buffer[: len(found)] = found
        return len(found)


def _declared_encoding(data: bytes) -> str:
    found = _COOKIE.search(data[:200])
    try:
        name = codecs.lookup(found[1].decode("ascii")).name if found else "latin-1"
        # The declaration was read as ASCII, so an encoding that is not a superset of ASCII cannot be right.
        is_usable = name not in _UNUSABLE_ENCODINGS and b"abcd".decode(name) == "abcd"
    except (LookupError, UnicodeError):
        return "latin-1"
    return name if is_usable else "latin-1"
