"""Large results as a part: its section, its tables, its plugin, and the limiter."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from toolpost.contracts import BadConfiguration
from toolpost.parts.results.settings import RESULTS, LimitTable, check_results

if TYPE_CHECKING:
    from toolpost.parts import Host
    from toolpost.settings import Config


def works_without_plugin(config: "Config") -> bool:
    """Where there is a limit, the plugin is loaded unasked."""
    return RESULTS.of(config).is_limited


@asynccontextmanager
async def open_results(host: "Host") -> AsyncIterator[Sequence[object]]:
    """Bring the limiter where there is a limit, and the plugin that reads what it keeps."""
    settings = RESULTS.of(host.config)
    check_results(settings)
    # A gateway that serves one plugin alone serves nothing to read the rest with.
    is_limited = settings.is_limited and not host.config.plugins.chosen
    if is_limited and (server := host.config.servers.get("results")) is not None and server.enabled:
        raise BadConfiguration(
            "servers.results takes the place of the plugin that reads the rest of large results.",
            hint="rename the server, or remove the limits from [results]",
        )
    if not is_limited and not host.wants_plugin("results"):
        yield ()
        return
    from toolpost.parts import Background, Gauges, PluginCandidate
    from toolpost.parts.results.kept import KeptResults
    from toolpost.parts.results.limiter import Limiter, ResultMetrics
    from toolpost.parts.results.plugin import results_plugin
    from toolpost.parts.results.reader import ResultReader

    kept = KeptResults(host.store, keep_s=settings.keep_s, limit_bytes=settings.keep_mb * 1_000_000)
    plugin = results_plugin(ResultReader(kept))
    contributions: list[object] = [
        # A caller with a shortened result must be able to read the rest.
        PluginCandidate(name=plugin.name, load=lambda: plugin, for_everyone=is_limited),
        Gauges(
            lambda: {
                "toolpost_results_kept": ("Large results that are kept, as of the last minute.", kept.count),
                "toolpost_results_kept_bytes": ("Their bytes.", kept.total_bytes),
            }
        ),
    ]
    if is_limited:
        metrics = ResultMetrics(host.metrics)
        contributions.append(Limiter(kept, LimitTable(settings), metrics, small_bytes=settings.smallest))
    if not host.for_one_command:
        contributions.append(Background(kept.open_sweeping))
    yield contributions
