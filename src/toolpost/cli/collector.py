"""Keeps full garbage collections short: they stop every thread, for tenths of a second with 20,000 tools in memory.

Python runs one whenever its objects have grown by a quarter, so that a server with a long list of tools would decide when all
calls wait. Here automatic full collections are off. While a long list is loaded, the existing objects are frozen instead, which
takes no time: the collector skips them from then on, and tools are freed by their reference counts when they are replaced. At
any other time a full collection follows when objects have grown, and has only the unfrozen ones to look at. Young objects are
collected as usual.
"""

import gc
from collections.abc import Callable
from typing import Final

import anyio

LOOK_S: Final = 1.0

GROWN: Final = 10
"""After so many middle-generation collections up to 77,000 objects are new, and a full one takes some 10 ms."""

_NEVER: Final = 1_000_000_000


def freeze_loaded_objects() -> None:
    """Exclude all current objects from collections, as they live as long as the process, and turn automatic full ones off."""
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)


async def run_collections(has_learned_many: Callable[[], bool]) -> None:
    """Freeze objects while many new tools are loaded, else run full collections when due; until cancelled."""
    while True:
        await anyio.sleep(LOOK_S)
        if gc.get_count()[2] < GROWN:
            continue
        if has_learned_many():
            # Garbage that is frozen is never freed: collect what is young first.
            gc.collect(1)
            gc.freeze()
        else:
            gc.collect()
