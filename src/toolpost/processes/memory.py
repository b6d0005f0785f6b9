"""The memory of several processes and their descendants, in one pass over all processes."""

from collections.abc import Iterable, Mapping
from contextlib import suppress

import psutil


def read_memory(pids: Mapping[str, Iterable[int]]) -> dict[str, int]:
    """Return the resident memory of processes and their descendants, in bytes; not of names without a process. Blocks."""
    running = {name: [*of] for name, of in pids.items() if of}
    children: dict[int, list[int]] = {}
    if running:
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                children.setdefault(process.ppid(), []).append(process.pid)

    def read(pid: int) -> int:
        with suppress(psutil.Error):
            own = int(psutil.Process(pid).memory_info().rss)
            return own + sum(read(child) for child in children.get(pid, ()))
        return 0

    return {name: sum(map(read, of)) for name, of in running.items()}
