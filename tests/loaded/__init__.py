"""Python programs that start at once: in a fork of a process that has the MCP SDK loaded already.

Loading it takes a second of a processor, and the tests start hundreds of servers made with it. `loaded("server.py")` is a command
like any other: `start.py` is the process that a gateway starts and kills; `forks.py` runs the program for it, on its pipes, in
its folder and with its environment. Where one of the two ends, so does the other.
"""

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent


def loaded(*program: str) -> tuple[str, ...]:
    """Return a command that runs a Python program: a file or `-m` and a module, and its arguments."""
    if not hasattr(os, "fork"):
        return sys.executable, *program
    return sys.executable, "-S", "-E", str(_HERE / "start.py"), start_loading(), *program


def loaded_toml(*program: str) -> str:
    """Write the command as settings of a server in `toolpost.toml`."""
    command, *arguments = loaded(*program)
    return f"command = {json.dumps(command)}\nargs = {json.dumps(arguments)}\n"


@cache
def start_loading() -> str:
    """Start what forks, for as long as this process lives; returns where it listens."""
    folder = tempfile.mkdtemp(prefix="toolpost-forks-")
    its, mine = os.pipe()
    command = [sys.executable, str(_HERE / "forks.py"), f"{folder}/socket", str(its)]
    # It is nobody's child when this returns: tests look at what their own process has started.
    subprocess.run(command, pass_fds=(its,), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    os.close(its)
    _held.append(mine)
    return f"{folder}/socket"


_held: list[int] = []
"""The end of a pipe: once it is closed, nobody is here any more."""
