"""Loads the MCP SDK and Toolpost once, and runs each program that `start.py` asks for in a fork, as long as a pipe is open."""

import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

LOADED = (
    "mcp.server.lowlevel",
    "mcp.server.mcpserver",
    "mcp.server.stdio",
    "mcp.server.streamable_http_manager",
    "mcp.server.subscriptions",
    "toolpost.cli",
    "toolpost.cli.serve",
    "toolpost.app",
    "toolpost.endpoints.sdk.server",
)
"""No part: each loads what it needs, as it does in a gateway without its section."""


def main() -> None:
    path, alive = sys.argv[1], int(sys.argv[2])
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    if os.fork():
        os._exit(0)
    os.setsid()
    for name in LOADED:
        importlib.import_module(name)
    gc.freeze()
    # Each fork that keeps a program waits for it; nobody waits for them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while alive not in select.select([listener.fileno(), alive], [], [])[0]:
        asking, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            os.close(alive)
            run(keep(asking))
            return
        asking.close()
    shutil.rmtree(Path(path).parent, ignore_errors=True)


def keep(asking: socket.socket) -> list[str]:
    """Return, in a process of its own, the program to be run there; here its end is waited for, and told."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    length, pipes, _, _ = socket.recv_fds(asking, 4, 3)
    with asking.makefile("rb") as reader:
        wish = json.loads(reader.read(int.from_bytes(length, "big")))
    pid = os.fork()
    for number, pipe in enumerate(pipes):
        if pid == 0:
            os.dup2(pipe, number)
        os.close(pipe)
    if pid:
        with suppress(BrokenPipeError):  # the stand-in was killed
            asking.sendall(pid.to_bytes(4, "big"))
        _, status = os.waitpid(pid, 0)
        with suppress(BrokenPipeError):
            asking.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
        os._exit(0)
    # Not before its stand-in can pass signals on: one that comes earlier would be lost.
    if not asking.recv(1):
        os._exit(1)
    threading.Thread(target=end_with, args=(asking,), daemon=True).start()
    os.environ.clear()
    os.environ.update(wish["environment"])
    time.tzset()
    os.chdir(wish["folder"])
    return list(wish["program"])


def end_with(asking: socket.socket) -> None:
    """End like one that is killed when the process that stands for this one is gone."""
    asking.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)


def run(program: list[str]) -> None:
    """Do what `python` does with these arguments."""
    added = os.environ.get("PYTHONPATH", "")
    sys.path[1:1] = filter(None, added.split(os.pathsep))
    importlib.invalidate_caches()
    if program[0] == "-m":
        sys.argv = program[1:]
        sys.path[0] = str(Path.cwd())
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        sys.path[0] = str(Path(program[0]).parent)
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main()
