"""The memory of servers over the last hour, measured once a minute in a thread. Kept in memory: it explains what happens now."""

from collections import deque
from typing import Final

import anyio

from toolpost.endpoints.http import HttpContext

EVERY_S: Final = 60.0
KEPT: Final = 60


class MemoryHistory:
    """The memory of each server, minute by minute."""

    def __init__(self) -> None:
        self.http: HttpContext | None = None
        """Set when HTTP begins to be served: before, there is nobody to look."""
        self._kept: dict[str, deque[int]] = {}

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            if self.http is not None:
                await self.measure(self.http)
            await anyio.sleep(EVERY_S)

    async def measure(self, http: HttpContext) -> None:
        """Note the memory of all servers; one that does not run has none."""
        found = await http.servers.measure_memory()
        names = http.servers.providers.keys()
        self._kept = {name: self._kept.get(name, deque(maxlen=KEPT)) for name in names}
        for name, kept in self._kept.items():
            kept.append(found.get(name, 0))

    def of(self, server: str) -> list[int]:
        """Return the bytes of each minute, the oldest first; at most `KEPT`."""
        return [*self._kept.get(server, ())]
