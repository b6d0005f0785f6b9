"""Preparing the search in the background: once for every change of the catalogue, swapped in when it is done."""

import logging
import time
from typing import TYPE_CHECKING, Final

import anyio
from anyio import to_thread

from toolpost.base.events import event
from toolpost.contracts.errors import NoIndex
from toolpost.discovery.catalog import Catalogue
from toolpost.discovery.snapshot import Snapshot
from toolpost.metrics import Metrics

if TYPE_CHECKING:
    from toolpost.discovery.embedder import Embedder

_log = logging.getLogger("toolpost.discovery")

FIRST_WAIT_S: Final = 30.0
"""How long a search waits for the first index of all."""

NEXT_WAIT_S: Final = 2.0
"""How long it waits for the index of a catalogue that has just changed; after that it asks the one before."""


class Preparation:
    """Has the newest snapshot. Nothing is prepared before somebody wants to search."""

    def __init__(self, catalogue: Catalogue, metrics: Metrics, embedder: "Embedder | None" = None) -> None:
        self._catalogue = catalogue
        self._metrics = metrics
        self._embedder = embedder
        self._snapshot: Snapshot | None = None
        self._is_wanted = anyio.Event()
        self._has_changed = anyio.Event()
        self._is_done = anyio.Event()
        self._tried: Catalogue | None = None

    @property
    def size(self) -> int:
        """How many tools can be found at this moment."""
        return len(self._snapshot.entries) if self._snapshot is not None else 0

    def take(self, catalogue: Catalogue) -> None:
        """Prepare another catalogue from now on."""
        self._catalogue = catalogue
        self._has_changed.set()

    def start(self) -> None:
        """Begin now, before the first search has to wait for it."""
        self._is_wanted.set()

    async def run(self) -> None:
        """Prepare what is wanted, until cancelled."""
        await self._is_wanted.wait()
        while True:
            self._has_changed = anyio.Event()
            await self._prepare(self._catalogue)
            self._is_done.set()
            self._is_done = anyio.Event()
            await self._has_changed.wait()

    async def snapshot(self) -> Snapshot:
        """Return the snapshot of what is served now; for a while, if it takes long to prepare, the one before."""
        self.start()
        if not self._is_current():
            with anyio.move_on_after(NEXT_WAIT_S if self._snapshot is not None else FIRST_WAIT_S):
                while not self._is_current():
                    await self._is_done.wait()
        if self._snapshot is None:
            raise NoIndex(
                "The tools are still being prepared for searching.",
                hint="try again in a moment; a tool whose name you know can be called already",
            )
        return self._snapshot

    def _is_current(self) -> bool:
        return self._tried is self._catalogue

    async def _prepare(self, catalogue: Catalogue) -> None:
        began = time.perf_counter()
        try:
            # Abandoned, not awaited: whoever ends the server does not wait for an index.
            self._snapshot = await to_thread.run_sync(
                Snapshot.prepare, catalogue, self._snapshot, abandon_on_cancel=True
            )
            if self._embedder is not None:
                self._embedder.take(self._snapshot)
        except Exception as error:  # noqa: BLE001 (the one before goes on, and calls by name are not concerned)
            event(_log, logging.ERROR, "search index not prepared", tools=len(catalogue), exception=error)
        self._tried = catalogue
        took_s = time.perf_counter() - began
        self._metrics.preparations.add()
        self._metrics.preparation_seconds.add(took_s)
        event(_log, logging.DEBUG, "search index prepared", tools=len(catalogue), tookMs=round(took_s * 1000))
