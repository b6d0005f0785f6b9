"""The echo of the terminal: off while an answer is drawn."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def suppress_echo() -> Iterator[None]:
    """Turn off the terminal's echo while something is drawn; what is typed stays readable on stdin."""
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
