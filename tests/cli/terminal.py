"""A pseudo-terminal, as a person sits at one: what is on the screen is waited for, and keys are typed."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")

_SEATED = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
"""Makes the terminal the one whose Ctrl-C reaches the program, and becomes the program."""


class Terminal:
    """A program at a terminal."""

    def __init__(self, process: "subprocess.Popen[bytes]", descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self._raw = b""
        self._read_to = 0

    @property
    def text(self) -> str:
        """All that was ever on the screen, without colours and cursor movements."""
        return _ESCAPES.sub(b"", self._raw).decode(errors="replace")

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def type_until_shown(self, text: str) -> None:
        """Type what is to be seen; keys that come in the moment in which a prompt takes the terminal over are lost."""
        for _ in range(10):
            self.type(text)
            with contextlib.suppress(AssertionError):
                self.wait_for(text, within_s=3)
                return
        raise AssertionError(f"`{text}` cannot be typed: {self.text[self._read_to :]!r}")

    def enter(self, line: str) -> None:
        self.type(f"{line}\r")

    def wait_for(self, text: str, within_s: float = 90) -> str:
        """Wait until something is shown that was not there before; returns what was shown up to and with it."""
        until = time.monotonic() + within_s
        while (at := self.text.find(text, self._read_to)) < 0:
            assert time.monotonic() < until, f"`{text}` is not shown: {self.text[self._read_to :]!r}"
            self.read(0.1)
        shown, self._read_to = self.text[self._read_to : at + len(text)], at + len(text)
        return shown

    def wait_for_end(self, within_s: float = 90) -> int:
        until = time.monotonic() + within_s
        while self.process.poll() is None:
            assert time.monotonic() < until, f"it does not end: {self.text[self._read_to :]!r}"
            self.read(0.1)
        self.read(0.1)
        return self.process.returncode

    def read(self, within_s: float) -> None:
        if not select.select([self._descriptor], [], [], within_s)[0]:
            return
        try:
            self._raw += os.read(self._descriptor, 65536)
        except OSError:
            # The other end is closed: the program has ended.
            time.sleep(within_s)


@contextmanager
def open_terminal(
    command: list[str], *, cwd: Path, env: dict[str, str], columns: int | None = None
) -> Iterator[Terminal]:
    """Start a program whose input and output are a terminal of 100 columns; with `columns`, programs cannot but know them."""
    ours, theirs = pty.openpty()
    if columns is not None:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    size = {"COLUMNS": str(columns or 100), "LINES": "40", "TERM": "xterm-256color"}
    with subprocess.Popen(
        [sys.executable, "-c", _SEATED, *command],
        cwd=cwd,
        env=env | size,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        try:
            yield Terminal(process, ours)
        finally:
            process.kill()
            os.close(ours)
