"""Export and retention of the audit as a part: its sections, its table, its loops."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from toolpost.contracts import BadConfiguration
from toolpost.parts.export.settings import EXPORTS, RETENTION
from toolpost.settings import make_idle

if TYPE_CHECKING:
    from toolpost.metrics import GaugeValues
    from toolpost.parts import Host
    from toolpost.settings import Config


def find_idle(config: "Config") -> Iterator[tuple[str, BadConfiguration]]:
    """Find an archive that nothing is moved into."""
    if RETENTION.of(config).archive is not None and not RETENTION.of(config).is_limited:
        yield make_idle("retention.archive", "no entries are removed", "set retention.days or retention.mb")


@asynccontextmanager
async def open_export(host: "Host") -> AsyncIterator[Sequence[object]]:
    """Start what is configured, once tools can be called."""
    exports, retention = EXPORTS.of(host.config), RETENTION.of(host.config)
    if host.for_one_command or not (exports or retention.is_limited):
        yield ()
        return
    import anyio

    from toolpost.metrics import Counter
    from toolpost.parts import Background, Gauges
    from toolpost.parts.export.destinations import open_destination
    from toolpost.parts.export.exporter import AuditExporter
    from toolpost.parts.export.retention import run_retention

    project, network = Path(host.config.project), host.config.resolve_network()
    failures = Counter("toolpost_export_failures_total", "Attempts to deliver the audit that failed.", label="export")
    host.metrics.add(failures)
    exporters = [
        AuditExporter(
            host.store, name, export, open_destination(name, export, project=project, network=network), failures
        )
        for name, export in exports.items()
    ]

    @asynccontextmanager
    async def run() -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            for exporter in exporters:
                tasks.start_soon(exporter.run)
            if retention.is_limited:
                tasks.start_soon(run_retention, host.store, retention, tuple(exports), project)
            yield
            tasks.cancel_scope.cancel()

    def read_gauges() -> "GaugeValues":
        return {
            "toolpost_export_waiting": (
                "Audit entries that a destination does not have yet, of the one that is most behind.",
                max((exporter.waiting for exporter in exporters), default=0),
            )
        }

    yield [Background(run), Gauges(read_gauges)]
