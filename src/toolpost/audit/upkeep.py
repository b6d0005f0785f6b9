"""Passes the record on and removes its oldest entries while a gateway serves."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio

from toolpost.audit.destinations import open_destination
from toolpost.audit.exporter import AuditExporter
from toolpost.audit.retention import run_retention
from toolpost.audit.spec import ExportSpec, RetentionLimits
from toolpost.metrics import Counter, GaugeValues, Metrics
from toolpost.net.network import Network
from toolpost.store.base import Store


class AuditUpkeep:
    """The exports and the retention of one gateway."""

    def __init__(
        self,
        store: Store,
        exports: Sequence[ExportSpec],
        limits: RetentionLimits,
        *,
        network: Network,
        metrics: Metrics,
    ) -> None:
        failures = Counter(
            "toolpost_export_failures_total", "Attempts to deliver the audit that failed.", label="export"
        )
        metrics.add(failures)
        self._store = store
        self._limits = limits
        self._exporters = [
            AuditExporter(store, export, open_destination(export, network=network), failures) for export in exports
        ]

    @asynccontextmanager
    async def open_running(self) -> AsyncIterator[None]:
        """Export and remove until the block is left."""
        async with anyio.create_task_group() as tasks:
            for exporter in self._exporters:
                tasks.start_soon(exporter.run)
            if self._limits.is_limited:
                names = tuple(exporter.name for exporter in self._exporters)
                tasks.start_soon(run_retention, self._store, self._limits, names)
            yield
            tasks.cancel_scope.cancel()

    def read_gauges(self) -> GaugeValues:
        """Return how far the destinations are behind."""
        return {
            "toolpost_export_waiting": (
                "Audit entries that the slowest destination does not have yet.",
                max((exporter.waiting for exporter in self._exporters), default=0),
            )
        }
