"""Keeps full garbage collections short: they stop every thread, for tenths of a second with 20,000 tools in memory.

Python makes one whenever its objects have grown by a quarter, so that a server with a long list of tools would decide when all
calls wait. Here it makes none by itself. While such a list is taken over, what there is gets frozen instead, which takes no time:
the collector does not look at it again, and tools are freed by their reference counts when they are replaced. At any other time a
full collection follows when objects have grown, and has only these to look at. Young objects are collected as ever.
"""

import gc
from collections.abc import Callable
from typing import Final

import anyio

LOOK_S: Final = 1.0

GROWN: Final = 10
"""So many collections of middle-aged objects have left up to 77,000 behind, among which a full one takes some 10 ms."""

_NEVER: Final = 1_000_000_000


def spare_collector() -> None:
    """Leave what is loaded now out of all collections, since it lives as long as the process; from now on none is a full one."""
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)


async def collect_now_and_then(has_learned_many: Callable[[], bool]) -> None:
    """Freeze while there are many new tools, else make the full collections, until cancelled."""
    while True:
        await anyio.sleep(LOOK_S)
        if gc.get_count()[2] < GROWN:
            continue
        if has_learned_many():
            # What is garbage already is not kept for ever, as far as it is young.
            gc.collect(1)
            gc.freeze()
        else:
            gc.collect()
