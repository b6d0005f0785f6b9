"""The bus as a part: its plugin, view, gauges, action items and the sweep. Imports are lazy, so that `--help` stays fast."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from toolpost.parts.bus.settings import BUS

if TYPE_CHECKING:
    from toolpost import Principal
    from toolpost.endpoints.http import HttpContext, Routes
    from toolpost.fairness import Callers
    from toolpost.metrics import GaugeValues
    from toolpost.parts import ActionItem, Host
    from toolpost.parts.bus.service import Bus, BusMetrics
    from toolpost.settings import Config
    from toolpost.store import Store


@asynccontextmanager
async def open_bus(host: "Host") -> AsyncIterator[Sequence[object]]:
    """Open the bus; expired leases are swept while its plugin serves."""
    if not host.wants_plugin("bus"):
        yield ()
        return
    from toolpost.parts import ActionItems, Api, Background, ConsoleView, Gauges, PluginCandidate, Service
    from toolpost.parts.bus.plugin import make_bus_plugin
    from toolpost.parts.bus.service import BusMetrics

    bus = make_bus(host.config, host.store, BusMetrics(host.metrics), host.callers)

    def make_routes(http: "HttpContext") -> "Sequence[Routes]":
        from toolpost.parts.bus.api import routes_of

        return routes_of(http, bus)

    yield [
        PluginCandidate(name="bus", load=lambda: make_bus_plugin(bus)),
        Api(make_routes),
        ConsoleView("Bus", "/bus", Path(__file__).parent / "view/bus.js"),
        Gauges(lambda: _gauges(bus)),
        ActionItems(lambda principal: _find_dead(bus, principal)),
        Service(bus),
        Background(bus.open_sweeping, while_plugin="bus"),
    ]


def make_bus(
    config: "Config", store: "Store", metrics: "BusMetrics | None" = None, callers: "Callers | None" = None
) -> "Bus":
    """Make the bus of a store, with the policy and the tracker of the section `[bus]`."""
    from toolpost.parts.bus.beads import Beads, has_beads
    from toolpost.parts.bus.service import Bus
    from toolpost.parts.bus.tasks import BusPolicy

    chosen = BUS.of(config)
    policy = BusPolicy(
        lease_s=chosen.lease_s, lease_without_renewal_s=chosen.lease_without_renewal_s, attempts=chosen.attempts
    )
    project = Path(config.project)
    is_tracked = chosen.beads == "on" or (chosen.beads == "auto" and has_beads(project))
    tracker = Beads(project) if is_tracked else None
    return Bus(store, policy=policy, capacity=chosen.capacity, tracker=tracker, metrics=metrics, callers=callers)


async def _find_dead(bus: "Bus", principal: "Principal") -> "Sequence[ActionItem]":
    from toolpost.parts import ActionItem

    if not principal.is_admin or not (count := bus.depth.dead):
        return ()
    title = (
        "A bus task has failed its last attempt" if count == 1 else f"{count} bus tasks have failed their last attempt"
    )
    return [
        ActionItem(
            kind="task",
            title=title,
            text="`toolpost bus retry TASK` hands one to a worker again.",
            since=bus.wall(since) if (since := bus.depth.dead_since) is not None else None,
            action="Look at them",
            path="/bus?state=dead",
            command="toolpost bus",
        )
    ]


def _gauges(bus: "Bus") -> "GaugeValues":
    depth = bus.depth
    return {
        "toolpost_bus_queued": ("Tasks that wait for a worker.", depth.queued),
        "toolpost_bus_waiting": ("Tasks that wait for other tasks.", depth.waiting),
        "toolpost_bus_held": ("Tasks that workers have.", depth.held),
        "toolpost_bus_dead": ("Tasks that failed their last attempt.", depth.dead),
        "toolpost_bus_oldest_seconds": ("Age of the oldest task that no worker has.", depth.oldest_s),
    }
