"""Which gateways have written the records of a store: several share one, and the log of a call is where its gateway ran.

The id of a call begins with a text that its process has made up. Each gateway with a console stores under it where it runs.
"""

import os
import socket
import time
from typing import Final

from toolpost import CallerId, Item
from toolpost.base import JsonObject
from toolpost.store import Store

KEPT_S: Final = 180 * 86_400.0
_PLUGIN: Final = "console"
_OWNER: Final = CallerId("local")
_KIND: Final = "gateway "
"""Begins the ids of these items."""


async def register_gateway(store: Store, prefix: str) -> None:
    """Store where this process runs; `prefix` begins the ids of its calls. The start of a console removes expired items."""
    value = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "startedAt": time.time(),
        "expires": time.time() + KEPT_S,
    }
    await store.key_values.put(_PLUGIN, Item(owner=_OWNER, id=f"{_KIND}{prefix}", value=value))


async def find_gateway(store: Store, call_id: str, own_prefix: str) -> JsonObject | None:
    """Return where the gateway of a call runs, or ran; None if that is not known."""
    prefix = f"{call_id.partition('-')[0]}-"
    found = await store.key_values.find(_PLUGIN, _OWNER, f"{_KIND}{prefix}")
    if found is None:
        return None
    value = found.value
    return {
        "host": value["host"],
        "pid": value["pid"],
        "startedAt": value["startedAt"],
        "isThis": prefix == own_prefix,
        "isHere": value["host"] == socket.gethostname(),
    }
