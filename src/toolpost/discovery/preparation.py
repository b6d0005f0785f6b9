"""Build the search index in the background after each change of the catalog, and replace the previous one when it is done.

Nothing is built before the first search (or `start`): a gateway in mode `all` may never be searched.
"""

import logging
import time
from typing import Final

import anyio
from anyio import to_thread

from toolpost.base.events import event
from toolpost.contracts.errors import NoIndex
from toolpost.discovery.catalog import Catalog
from toolpost.discovery.snapshot import Snapshot
from toolpost.metrics import Metrics

_log = logging.getLogger("toolpost.discovery")

FIRST_WAIT_S: Final = 30.0
"""How long a search waits for the first index."""

NEXT_WAIT_S: Final = 2.0
"""How long a search waits for the index of a changed catalog before it uses the previous one."""


class Preparation:
    """Owns the newest snapshot; `run` is its background task."""

    def __init__(self, catalog: Catalog, metrics: Metrics) -> None:
        self._catalog = catalog
        self._metrics = metrics
        self._snapshot: Snapshot | None = None
        self._is_wanted = anyio.Event()
        self._has_changed = anyio.Event()
        self._is_done = anyio.Event()
        self._tried: Catalog | None = None

    @property
    def size(self) -> int:
        """How many tools are indexed; 0 before the first index is ready."""
        return len(self._snapshot.entries) if self._snapshot is not None else 0

    def take(self, catalog: Catalog) -> None:
        """Replace the catalog; `run` indexes it if an index is wanted."""
        self._catalog = catalog
        self._has_changed.set()

    def start(self) -> None:
        """Ask for an index before the first search."""
        self._is_wanted.set()

    async def run(self) -> None:
        """Index the catalog once it is wanted, and again after each change, until cancelled."""
        await self._is_wanted.wait()
        while True:
            # Replaced before the work: a change during it sets the new event, and is indexed in the next round.
            self._has_changed = anyio.Event()
            await self._prepare(self._catalog)
            self._is_done.set()
            self._is_done = anyio.Event()
            await self._has_changed.wait()

    async def snapshot(self) -> Snapshot:
        """Return the snapshot of the current catalog, or the previous one if the current is not ready in `NEXT_WAIT_S`.

        Raises `NoIndex` if there is none after `FIRST_WAIT_S`.
        """
        self.start()
        if not self._is_current():
            with anyio.move_on_after(NEXT_WAIT_S if self._snapshot is not None else FIRST_WAIT_S):
                # In a loop: the index that is done may be that of a catalog that has been replaced since.
                while not self._is_current():
                    await self._is_done.wait()
        if self._snapshot is None:
            raise NoIndex(
                "The search index is not ready yet.",
                hint="try again in a moment; a tool whose name you know can be called already",
            )
        return self._snapshot

    def _is_current(self) -> bool:
        return self._tried is self._catalog

    async def _prepare(self, catalog: Catalog) -> None:
        began = time.perf_counter()
        try:
            # Abandoned on cancellation: a shutdown does not wait for an index.
            self._snapshot = await to_thread.run_sync(Snapshot.prepare, catalog, self._snapshot, abandon_on_cancel=True)
        except Exception as error:  # noqa: BLE001 (the previous index still answers; calls do not need one)
            event(_log, logging.ERROR, "search index not prepared", tools=len(catalog), exception=error)
        # Also after a failure: searches use the previous index instead of waiting for one that does not come.
        self._tried = catalog
        took_s = time.perf_counter() - began
        self._metrics.preparations.add()
        self._metrics.preparation_seconds.add(took_s)
        event(_log, logging.DEBUG, "search index prepared", tools=len(catalog), tookMs=round(took_s * 1000))
