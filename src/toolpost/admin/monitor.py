"""The health of a gateway and its metrics: plain values, and the text format of Prometheus."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toolpost.base.ids import JsonObject
from toolpost.base.version import __version__
from toolpost.discovery.finder import Finder
from toolpost.endpoints.http.connection_limits import Connections
from toolpost.gateway import Gateway
from toolpost.metrics import Gauge, Gauges, MetricValues, read_gauges
from toolpost.providers.plugins import Plugins
from toolpost.providers.servers import Servers
from toolpost.store import Store
from toolpost.upstreams.report import ServerState


@dataclass(frozen=True, kw_only=True)
class Monitor:
    """Reads the state of a running gateway."""

    store: Store
    plugins: Plugins
    servers: Servers
    gateway: Gateway
    finder: Finder
    gauges: Sequence[tuple[str, Gauges]]
    """Those of parts, each after the name of its part."""

    async def scrape(self, connections: Connections | None = None) -> str:
        """Return what `metrics` does, with the memory of servers, which takes a while to read."""
        used = await self.servers.measure_memory()
        return self.metrics(connections, memory={(name,): float(size) for name, size in used.items()})

    def metrics(
        self, connections: Connections | None = None, *, memory: Mapping[tuple[str, ...], float] | None = None
    ) -> str:
        """Return counters and gauges in the text format of Prometheus."""
        servers = self.servers.providers
        supervisors = [each for server in servers.values() for each in server.supervisors]
        of_servers = {
            "toolpost_server_state": Gauge(
                "States of servers: 1 for the current state of each.",
                ("server", "state"),
                {
                    (name, state.value): float(server.state is state)
                    for name, server in servers.items()
                    for state in ServerState
                },
            ),
            "toolpost_server_calls_in_flight": Gauge(
                "Requests that servers have not answered yet.",
                ("server",),
                {(name,): sum(each.in_flight for each in server.supervisors) for name, server in servers.items()},
            ),
            "toolpost_server_memory_bytes": Gauge(
                "Resident memory of the processes of servers.", ("server",), memory or {}
            ),
            "toolpost_logins": Gauge(
                "Logins at servers that need one, by state.",
                ("state",),
                {(state,): count for state, count in self.servers.count_logins().items()},
            ),
        }
        lost = Gauge(
            "Calls that a killed gateway had in flight, found at the start.", (), {(): float(self.store.lost_calls)}
        )
        restarts = Gauge(
            "Times that servers were started again.",
            ("server",),
            {(name,): sum(each.restarts for each in server.supervisors) for name, server in servers.items()},
        )
        own: MetricValues = {
            "toolpost_tools": ("Tools that can be called.", len(self.gateway.catalog)),
            "toolpost_connections": ("HTTP connections that are open.", len(connections or ())),
            "toolpost_connections_unauthenticated": (
                "Those of them on which no request was admitted yet.",
                connections.unauthenticated if connections is not None else 0,
            ),
            "toolpost_calls_in_flight": ("Calls that have not been answered yet.", self.gateway.in_flight),
            "toolpost_calls_waiting": (
                "Those of them that wait for the lock of a tool, or for a server that takes one at a time.",
                self.gateway.pipeline.waiting + sum(each.waiting for each in supervisors),
            ),
            "toolpost_tools_changed": (
                "Tools that are not as promised.",
                sum(len(each.statuses) for each in self.servers.watched),
            ),
            "toolpost_tools_quarantined": (
                "Tools that are quarantined for that.",
                sum(len(each.quarantined) for each in self.servers.watched),
            ),
            "toolpost_tools_with_findings": (
                "Tools of which something may be meant for the model.",
                sum(len(self.servers.watched_tools.findings.of(each.name)) for each in self.servers.watched),
            ),
            "toolpost_index_tools": ("Tools that can be found by searching.", self.finder.preparation.size),
            **of_servers,
        }
        return self.gateway.metrics.text(
            {**own, **read_gauges(self.gauges, own)},
            {"toolpost_server_restarts_total": restarts, "toolpost_calls_lost_total": lost},
            self.store.commit_durations,
        )

    def health(self) -> JsonObject:
        """Return the state of plugins and servers, as `/health` answers it."""
        plugins = {plugin.name: plugin.as_object() for plugin in self.plugins.plugins}
        servers = {name: provider.state.value for name, provider in self.servers.providers.items()}
        is_whole = all(plugin.state in ("healthy", "disabled") for plugin in self.plugins.plugins)
        is_whole = is_whole and not {"failed", "suspended"} & set(servers.values())
        is_whole = is_whole and not any(provider.degraded for provider in self.servers.providers.values())
        return {
            "status": "ok" if is_whole else "degraded",
            "version": __version__,
            "tools": len(self.gateway.catalog),
            "inFlight": self.gateway.in_flight,
            "plugins": plugins,
            "servers": servers,
        }
