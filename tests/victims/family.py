"""A command with five processes that ignore SIGTERM: child, grandchild, setsid, daemon, wiped daemon.

Each writes its pid to a file of its name in the folder given. With `leave`, the child itself exits at once.
"""

import os
import signal
import sys
import time
from pathlib import Path

NAMES = ("child", "grandchild", "setsid", "daemon", "wiped")


def live(folder: Path, name: str) -> None:
    draft = folder / f".{name}"
    draft.write_text(str(os.getpid()))
    draft.rename(folder / name)
    time.sleep(60)
    os._exit(0)


def start(folder: Path, name: str) -> None:
    if os.fork():
        return
    if name != "grandchild":
        os.setsid()
    if name in {"daemon", "wiped"} and os.fork():
        os._exit(0)
    if name == "wiped":
        os.execve(sys.executable, [sys.executable, "-S", __file__, str(folder), "wiped"], {})
    live(folder, name)


def main(folder: Path, wish: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if wish == "wiped":
        live(folder, wish)
    for name in NAMES[1:]:
        start(folder, name)
    while not all((folder / name).exists() for name in NAMES[1:]):
        time.sleep(0.01)
    print("ready", flush=True)
    if wish != "leave":
        live(folder, "child")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
