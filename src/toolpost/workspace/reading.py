"""A file's bytes as text: its encoding found out, its size bounded."""

import codecs
import re
from dataclasses import dataclass
from typing import Final

SNIFF_BYTES: Final = 8_192
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
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    # Where a part of a file is read, its last character may be cut in two.
    errors = "replace" if is_cut or encoding != "utf-8" else "strict"
    try:
        return Decoded(_lines_of(data.decode(encoding, errors)), encoding.removesuffix("-sig"))
    except UnicodeDecodeError:
        pass  # Said otherwise below.
    for name in (_declared(data), "latin-1"):
        try:
            return Decoded(_lines_of(data.decode(name)), name)
        except (UnicodeDecodeError, LookupError):
            continue
    raise AssertionError("Latin-1 takes any byte")


def _declared(data: bytes) -> str:
    found = _COOKIE.search(data[:200])
    try:
        return codecs.lookup(found[1].decode("ascii")).name if found else "latin-1"
    except LookupError:
        return "latin-1"


def _lines_of(text: str) -> str:
    """Let every line end the same way."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
