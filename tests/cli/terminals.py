"""A real terminal for a command under test."""

import os
import pty
import subprocess
from pathlib import Path

from tests.cli.conftest import TOOLPOST


def on_a_terminal(arguments: list[str], folder: Path, environment: dict[str, str]) -> str:
    """Run the command with a terminal for all three streams, and return what a person would see."""
    ours, its = pty.openpty()
    shown = b""
    with subprocess.Popen(
        [TOOLPOST, *arguments], cwd=folder, env=environment, stdin=its, stdout=its, stderr=its
    ) as process:
        os.close(its)
        while chunk := _read(ours):
            shown += chunk
        process.wait(20)
    os.close(ours)
    return shown.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:
        # How Linux says that the other end of a terminal is closed.
        return b""
