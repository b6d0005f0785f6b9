"""Output that is safe on a terminal: color where it is supported, and no control characters of others."""

import os
import re
import struct
import sys
from typing import Final, TextIO

import click

_UNSAFE: Final = re.compile(
    "["
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but for tab and newline, DEL, C1: many terminals take U+009B for ESC [
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction: the text reads in another order than it runs
    r"\u2028\u2029"  # line breaks that are none in JSON
    r"\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff"  # invisible: two names look the same
    r"\ud800-\udfff"  # half of a character
    "]"
)
"""What is escaped. The joiners U+200C and U+200D and variation selectors are not: scripts and emoji need them."""


def printable(text: str) -> str:
    """Escape characters that control a terminal or are invisible, as JSON does.

    In JSON they occur in strings only, so that escaped JSON decodes to the same value.
    """
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return "".join(
        f"\\u{unit:04x}" for (unit,) in struct.iter_unpack(">H", found[0].encode("utf-16-be", "surrogatepass"))
    )


def has_color(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colors, and NO_COLOR is not set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def style_stderr(text: str, color: str, *, bold: bool = False) -> str:
    return click.style(text, fg=color, bold=bold) if has_color(sys.stderr) else text
