"""What a terminal may be sent: colour where it is wanted, and never somebody else's control characters."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

import click

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def printable(text: str) -> str:
    """Spell out control characters, as JSON does: text that others wrote does not get to steer the terminal."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


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
