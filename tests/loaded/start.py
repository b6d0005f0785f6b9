"""Stands for a program that a fork runs: its pipes are handed over, signals are passed on, and it ends as the program ends."""

import json
import os
import signal
import socket
import sys

FORWARDED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""SIGKILL needs no forwarding: the fork ends with the connection. SIGSTOP cannot be forwarded."""


def main() -> int:
    forks = socket.socket(socket.AF_UNIX)
    forks.connect(sys.argv[1])
    folder = os.getcwd()  # noqa: PTH109 (pathlib takes longer to load than all the rest)
    wish = json.dumps({"program": sys.argv[2:], "folder": folder, "environment": dict(os.environ)}).encode()
    socket.send_fds(forks, [len(wish).to_bytes(4, "big")], [0, 1, 2])
    forks.sendall(wish)
    # The program alone has them now: who closes its output is seen to close it.
    os.closerange(0, 3)
    pid = int.from_bytes(forks.recv(4), "big")
    if not pid:
        return 1
    for number in FORWARDED:
        signal.signal(number, lambda number, _: os.kill(pid, number))
    forks.sendall(b"\1")
    told = forks.recv(4)
    code = int.from_bytes(told, "big", signed=True) if told else 1
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    os._exit(main())
