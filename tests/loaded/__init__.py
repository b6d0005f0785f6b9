"""Python programs that start at once: in a fork of a process that has the MCP SDK and Toolpost loaded already.

Loading them takes a second of a processor, and the tests start hundreds of servers and gateways. `loaded("server.py")` is a
command like any other: `start.py` is the process that is started, signaled and killed; `forks.py` runs the program for it, on its
pipes, in its folder and with its environment. Where one of the two ends, so does the other. `loaded_toolpost("serve")` is
`toolpost serve`.

That is for commands that run to their end, and for servers that a client ends: of a stand-in that was killed, the fork ends a
moment later. A process that a test signals or kills is started with `forked.start`, which gives the fork itself. One of which the
test looks at the start, memory, parent or terminal is started as it is.
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
    if not can_fork():
        return sys.executable, *program
    return sys.executable, "-S", "-E", str(_HERE / "start.py"), start_loading(), *program


def can_fork() -> bool:
    """Whether programs run in forks; coverage is measured in whole processes."""
    return hasattr(os, "fork") and "COVERAGE_PROCESS_CONFIG" not in os.environ


def loaded_toolpost(*arguments: str) -> tuple[str, ...]:
    """Return a command that runs `toolpost` with these arguments."""
    return loaded(str(Path(sys.executable).with_name("toolpost")), *arguments)


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
