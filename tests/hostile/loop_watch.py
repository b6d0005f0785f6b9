"""A plugin that watches the event loop of the gateway that it is loaded into: the longest time for which it did nothing else.

A timer is due every millisecond. What passes between two turns of it is a stretch: `cpu` is the CPU time of the loop's thread in
it, `wall` the time on the clock, which also grows when another thread keeps the interpreter lock or the machine is busy. A second
thread notes where the loop is while the timer is late.
"""

import asyncio
import gc
import sys
import threading
import time
import traceback
from typing import Any

from toolpost import Plugin

plugin = Plugin("watch", version="1.0.0")

TURN_S = 0.001
LATE_S = 0.03
NOTED = 400


class Watch:
    """The stretches since the last look."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.reset()
        gc.callbacks.append(self._note_collection)
        threading.Thread(target=self._look, daemon=True).start()
        self._turn()

    def reset(self) -> None:
        self.cpu = self.wall = self.collected = 0.0
        self.stacks: list[tuple[float, str]] = []
        self.collections: list[tuple[int, float, bool]] = []
        self.seen_cpu, self.seen_wall = time.thread_time(), time.perf_counter()

    def _turn(self) -> None:
        cpu, wall = time.thread_time(), time.perf_counter()
        self.cpu, self.wall = max(self.cpu, cpu - self.seen_cpu), max(self.wall, wall - self.seen_wall)
        self.seen_cpu, self.seen_wall = cpu, wall
        self.loop.call_later(TURN_S, self._turn)

    def _note_collection(self, phase: str, facts: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.thread_time()
        else:
            took = time.thread_time() - self._began
            self.collected = max(self.collected, took)
            if took > 0.01:
                self.collections.append((facts["generation"], round(took, 3), threading.get_ident() == self.thread))

    def _look(self) -> None:
        while True:
            time.sleep(0.01)
            late = time.perf_counter() - self.seen_wall
            if late > LATE_S and len(self.stacks) < NOTED and (frame := sys._current_frames().get(self.thread)):
                lines = traceback.extract_stack(frame)[-7:]
                self.stacks.append(
                    (
                        late,
                        " < ".join(
                            f"{line.filename.rsplit('/', 1)[-1]}:{line.lineno} {line.name}" for line in lines[::-1]
                        ),
                    )
                )


_watch: Watch | None = None


@plugin.tool
async def stretches(reset: bool = True) -> dict[str, Any]:
    """Return the longest stretches since the last look, in seconds; the first look begins."""
    global _watch  # noqa: PLW0603
    if _watch is None:
        _watch = Watch()
    watch = _watch
    found = {
        "cpu": watch.cpu,
        "wall": watch.wall,
        "collected": watch.collected,
        "collections": [list(each) for each in watch.collections],
        "stacks": [f"{late * 1000:.0f} ms {where}" for late, where in watch.stacks],
    }
    if reset:
        watch.reset()
    return found
