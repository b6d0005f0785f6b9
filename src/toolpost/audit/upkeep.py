"""Passes the record on and removes its oldest entries while a gateway serves."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

import anyio

from toolpost.audit.destinations import open_destination
from toolpost.audit.exporter import AuditExporter, read_backlog
from toolpost.audit.retention import run_retention
from toolpost.audit.spec import ExportSpec, RetentionLimits
from toolpost.base.action_items import ActionItem
from toolpost.metrics import Counter, GaugeValues, Metrics
from toolpost.net.network import Network
from toolpost.store.base import Store

LATE_S: Final = 300.0
"""How long a record may wait for a destination before a person is told."""


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

    async def list_late(self, now: float) -> list[ActionItem]:
        """Return an item for each destination that does not have records older than `LATE_S`."""
        found: list[ActionItem] = []
        for exporter in self._exporters:
            name = exporter.name
            backlog = await self._store.scripts.read(lambda name=name: read_backlog(name))  # type: ignore[misc]
            if backlog is None or (since := datetime.fromisoformat(backlog[1]).timestamp()) > now - LATE_S:
                continue
            found.append(
                ActionItem(
                    kind="export",
                    title=f"The export {name} is {backlog[0]:,} records behind",
                    text=exporter.problem or "Its destination takes them slower than calls come.",
                    since=since,
                    action="Show what the log has about it",
                    path="/logs?level=warning",
                    command="toolpost logs --level warning",
                )
            )
        return found

    def read_gauges(self) -> GaugeValues:
        """Return how far the destinations are behind."""
        return {
            "toolpost_export_waiting": (
                "Audit entries that the slowest destination does not have yet.",
                max((exporter.waiting for exporter in self._exporters), default=0),
            )
        }
