"""Stands for a program that a fork runs: its pipes are handed over, and it ends as the program ends."""

import json
import os
import socket
import sys


def main() -> int:
    forks = socket.socket(socket.AF_UNIX)
    forks.connect(sys.argv[1])
    folder = os.getcwd()  # noqa: PTH109 (pathlib takes longer to load than all the rest)
    wish = json.dumps({"program": sys.argv[2:], "folder": folder, "environment": dict(os.environ)}).encode()
    socket.send_fds(forks, [len(wish).to_bytes(4, "big")], [0, 1, 2])
    forks.sendall(wish)
    # The program alone has them now: who closes its output is seen to close it.
    os.closerange(0, 3)
    told = forks.recv(4)
    return int.from_bytes(told, "big") if told else 1


if __name__ == "__main__":
    os._exit(main())
