"""What a terminal may be sent: colour where it is wanted, and never somebody else's control characters."""

import os
import re
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

import click

_STEERING: Final = re.compile(
    "["
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but for tab and newline, DEL, C1: many terminals take U+009B for ESC [
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction: the text reads in another order than it runs
    r"\u2028\u2029"  # line breaks that are none in JSON
    r"\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff"  # invisible: two names look the same
    r"\ud800-\udfff"  # half of a character
    "]"
)
"""What is spelled out. The joiners U+200C and U+200D and variation selectors are not: scripts and emoji need them."""


def printable(text: str) -> str:
    """Spell out the characters that steer a terminal or hide in it, as JSON does; whoever wrote a text does not get to do so.

    In JSON they stand in strings alone, so that JSON is the same JSON afterwards.
    """
    return text if text.isascii() and text.isprintable() else _STEERING.sub(_spelled, text)


def _spelled(found: re.Match[str]) -> str:
    return "".join(
        f"\\u{unit:04x}" for (unit,) in struct.iter_unpack(">H", found[0].encode("utf-16-be", "surrogatepass"))
    )


def has_colour(stream: TextIO) -> bool:
    """Say whether there is somebody to see colours who has not asked for none."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, colour: str, *, bold: bool = False) -> str:
    """Colour a text for stderr, if stderr shows colours."""
    return click.style(text, fg=colour, bold=bold) if has_colour(sys.stderr) else text


@contextmanager
def unechoed() -> Iterator[None]:
    """Keep what is typed ahead off the screen while something is drawn there; it is still read afterwards."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield
        return
    import termios

    before = termios.tcgetattr(sys.stdin)
    changed = [*before]
    changed[3] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, changed)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
