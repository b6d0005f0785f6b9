"""Imports of modules that load slowly and are seldom needed: the MCP SDK takes a second, so it is loaded in a thread.

Two threads that import different parts of the SDK at the same time fail: its packages import each other, and Python gives one of
the threads a module that is not complete rather than have both wait for ever. So they take turns here.
"""

import importlib
import threading
from types import ModuleType
from typing import Final

from anyio import to_thread

_turn: Final = threading.RLock()


def import_late(name: str) -> ModuleType:
    """Import a module that needs the SDK; for threads other than that of the event loop."""
    with _turn:
        return importlib.import_module(name)


async def import_in_thread(name: str) -> ModuleType:
    """Import a module that needs the SDK, while the event loop goes on."""
    return await to_thread.run_sync(import_late, name)
