"""A running gateway without its endpoints: health and metrics, and the loops that follow changes of servers.

`CatalogRefresher` rebuilds catalog and listing when tools change; `ServerNotifications` forwards what servers send unasked.
`app.py` opens all this in order.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal, TypeVar

import psutil
from anyio import Event, sleep, to_thread

from toolpost.app.callers import mode_scope
from toolpost.base.ids import CallerId, JsonObject
from toolpost.base.version import __version__
from toolpost.contracts.errors import CapabilityMissing
from toolpost.discovery import EVERYTHING, Catalog
from toolpost.discovery.automatic import Mode
from toolpost.discovery.finder import Finder
from toolpost.endpoints.auth.delegated_tokens import DelegatedTokens
from toolpost.endpoints.auth.roster import Roster
from toolpost.endpoints.calls import CallHandler
from toolpost.endpoints.http.connection_limits import Connections
from toolpost.endpoints.listing import Listing
from toolpost.endpoints.sdk.lazy import LazySdk
from toolpost.fairness import EndpointShares
from toolpost.gateway import Gateway
from toolpost.host.contributions import Contributions, Service
from toolpost.metrics import Gauge, Gauges
from toolpost.providers import Provider, ProviderFilter
from toolpost.providers.plugin_host import Plugins
from toolpost.providers.servers import Servers
from toolpost.settings import Config
from toolpost.store import Store
from toolpost.upstreams.notifications import LOG_MESSAGE, TOOLS_CHANGED, Notification
from toolpost.upstreams.report import ServerState

T = TypeVar("T")

_SETTLE_S: Final = 0.05
_NOTIFICATION_LIMIT: Final = 1_000

EVERY_SERVER: Final = frozenset({"*"})
"""Stands for all servers and plugins: no server can have this name."""


@dataclass(frozen=True, kw_only=True)
class App:
    """A running gateway without its endpoints."""

    config: Config
    store: Store
    plugin_host: Plugins
    servers: Servers
    gateway: Gateway
    call_handler: CallHandler
    sdk: LazySdk
    shares: EndpointShares
    roster: Roster
    """The callers that HTTP admits; empty until HTTP is served."""
    changes: "CatalogRefresher"
    finder: Finder
    contributions: Contributions
    tokens: DelegatedTokens

    def service(self, kind: type[T]) -> T:
        """Return a service that an open part offers, by its type; raise `CapabilityMissing` if none does."""
        for service in self.contributions.all(Service):
            if isinstance(service.object, kind):
                return service.object
        raise CapabilityMissing(f"No part that is open offers a {kind.__name__}.")

    async def scrape(self, connections: Connections | None = None) -> str:
        """Return what `metrics` does, with the memory of servers, which takes a while to read."""
        pids: dict[tuple[str, ...], list[int]] = {
            (name,): [pid for supervisor in provider.supervisors for pid in supervisor.pids]
            for name, provider in self.servers.providers.items()
        }
        used = await to_thread.run_sync(_read_memory, pids)
        return self.metrics(connections, memory=used)

    def metrics(
        self, connections: Connections | None = None, *, memory: Mapping[tuple[str, ...], float] | None = None
    ) -> str:
        """Return counters and gauges in the text format of Prometheus."""
        servers = self.servers.providers
        supervisors = [each for server in servers.values() for each in server.supervisors]
        of_servers = {
            "toolpost_server_state": Gauge(
                "States of servers: 1 for the one that each is in.",
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
        return self.gateway.metrics.text(
            {
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
                    "Tools that are withheld for that.",
                    sum(len(each.quarantined) for each in self.servers.watched),
                ),
                "toolpost_tools_with_findings": (
                    "Tools of which something may be meant for the model.",
                    sum(len(self.servers.watched_tools.findings.of(each.name)) for each in self.servers.watched),
                ),
                "toolpost_index_tools": ("Tools that can be found by searching.", self.finder.preparation.size),
                **of_servers,
                **{name: value for each in self.contributions.all(Gauges) for name, value in each.read().items()},
            },
            {"toolpost_server_restarts_total": restarts, "toolpost_calls_lost_total": lost},
            self.store.commit_durations,
        )

    def health(self) -> JsonObject:
        """Return the state of plugins and servers, as `/health` answers it."""
        plugins = {plugin.name: plugin.as_object() for plugin in self.plugin_host.plugins}
        servers = {name: provider.state.value for name, provider in self.servers.providers.items()}
        is_whole = all(plugin.state in ("healthy", "disabled") for plugin in self.plugin_host.plugins)
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


def _read_memory(pids: dict[tuple[str, ...], list[int]]) -> dict[tuple[str, ...], float]:
    """Return the resident memory of processes and their descendants. One pass over all processes, in a thread."""
    children: dict[int, list[psutil.Process]] = {}
    if any(pids.values()):
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                children.setdefault(process.ppid(), []).append(process)

    def read(pid: int) -> float:
        with suppress(psutil.Error):
            own = float(psutil.Process(pid).memory_info().rss)
            return own + sum(read(child.pid) for child in children.get(pid, ()))
        return 0.0

    return {key: sum(map(read, of)) for key, of in pids.items() if of}


class CatalogRefresher:
    """Rebuilds catalog and listing after tools or callers have changed, and notifies subscribers."""

    def __init__(self, config: Config) -> None:
        self.config = config
        """The settings in force; replaced by a reload."""
        self.is_served = False
        """Whether HTTP is served."""
        self.app: App | None = None
        """Set when the gateway is assembled."""
        self._noted = Event()
        self._servers: set[str] = set()
        self._owners: dict[str, set[str]] = {}
        """Owners of credentials, and the servers that list them other tools now."""
        self._is_rebuild_needed = False

    def note(self, servers: Collection[str]) -> None:
        """Schedule a rebuild, and notifications about these servers; without a name no client is notified.

        Changes within 50 ms are one: a server that starts reports its tools several times.
        """
        self._servers.update(servers)
        self._is_rebuild_needed = True
        self._noted.set()

    def note_owner(self, owner: str, server: str) -> None:
        """Have the catalog of one owner made again, and its clients notified; nothing to do if it has none yet."""
        if self.app is not None and self.app.gateway.catalog.is_ready_for(owner):
            self.app.gateway.catalog.forget_owner(owner)
            self._owners.setdefault(owner, set()).add(server)
            self._noted.set()

    async def follow(self, app: App) -> None:
        """Swap catalog and listing whenever something has changed, until cancelled."""
        while True:
            await self._noted.wait()
            await sleep(_SETTLE_S)
            self._noted = Event()
            owners, self._owners = self._owners, {}
            for owner, changed in owners.items():
                if app.sdk.loaded is not None:
                    await app.sdk.loaded.subscribers.announce_to_owner(owner, changed)
            if not self._is_rebuild_needed:
                continue
            self._is_rebuild_needed = False
            servers, self._servers = self._servers, set()
            before, mode = app.gateway.catalog, app.config.discovery.mode
            providers: list[Provider] = [*app.plugin_host.providers, *app.servers.providers.values()]
            # In a thread: a server decides how many tools there are, and 20,000 take some tenths of a second.
            made = await to_thread.run_sync(self._make, app, providers, mode)
            app.gateway.catalog, app.call_handler.listing = made
            app.gateway.pipeline.forget_plans()
            app.finder.preparation.take(app.gateway.catalog)
            # In automatic mode the list names the servers only: a changed tool does not change it.
            is_same = (
                mode == "automatic" and not self.config.requires_token and before.has_servers_of(app.gateway.catalog)
            )
            if app.sdk.loaded is not None and not is_same:
                await app.sdk.loaded.subscribers.announce(TOOLS_CHANGED, servers)

    def _make(self, app: App, providers: Sequence[Provider], mode: Mode) -> tuple[Catalog, Listing]:
        catalog = _make_catalog(app.config, app.plugin_host, app.contributions, providers)
        _separate_owners(catalog, app.config, app.plugin_host, app.servers, app.contributions)
        return catalog, listing_of(self.config, catalog, mode)


class ServerNotifications:
    """Notifications that servers sent unasked, queued on their way to subscribers."""

    def __init__(self) -> None:
        self._noted = Event()
        self._logs: dict[tuple[str, CallerId | None], deque[Notification]] = {}
        """By server and caller: what is logged about one caller's calls pushes out nothing of another's."""
        self._changes: deque[Notification] = deque(maxlen=_NOTIFICATION_LIMIT)

    def note(self, notification: Notification) -> None:
        """Queue a notification; beyond the limit, the oldest ones are dropped."""
        if _is_message(notification):
            self._logs.setdefault((notification.server, notification.caller), deque(maxlen=_NOTIFICATION_LIMIT)).append(
                notification
            )
        else:
            self._changes.append(notification)
        self._noted.set()

    async def follow(self, app: App) -> None:
        """Forward what is queued until cancelled; of equal changes only one."""
        while True:
            await self._noted.wait()
            self._noted = Event()
            if not self._logs:
                await sleep(_SETTLE_S)
            waiting, forwarded = [*self._changes, *chain.from_iterable(self._logs.values())], set[Notification]()
            self._changes.clear()
            self._logs.clear()
            for notification in waiting:
                if app.sdk.loaded is not None and (_is_message(notification) or notification not in forwarded):
                    forwarded.add(notification)
                    await app.sdk.loaded.subscribers.forward(notification)


def _is_message(notification: Notification) -> bool:
    """Whether each such notification counts, in its order; of a change it is enough to be told once."""
    return notification.method == LOG_MESSAGE or notification.is_extension


def catalog_of(config: Config, host: Plugins, servers: Servers, contributions: Contributions) -> Catalog:
    """Return the catalog of all providers, limited by the gateway's mode."""
    catalog = _make_catalog(config, host, contributions, [*host.providers, *servers.providers.values()])
    _separate_owners(catalog, config, host, servers, contributions)
    return catalog


def _separate_owners(
    catalog: Catalog, config: Config, host: Plugins, servers: Servers, contributions: Contributions
) -> None:
    """Let a catalog make those of single owners, if a server has credentials per caller."""
    if servers.has_caller_credentials:
        catalog.make_for_owner = lambda owner: _make_catalog(
            config, host, contributions, [*host.providers, *servers.list_for(owner)]
        )


def _make_catalog(
    config: Config, host: Plugins, contributions: Contributions, providers: Sequence[Provider]
) -> Catalog:
    for each in contributions.all(ProviderFilter):
        providers = each.apply(providers)
    catalog = Catalog(providers, tags=config.plugins.tags, companions=host.companions)
    # Before any view: a mode holds for every caller, also for agents and for commands in this process.
    scope = mode_scope(config, config.modes.mode)
    return catalog.narrow(EVERYTHING.within((scope,))) if scope.is_limited else catalog


def listing_of(config: Config, catalog: Catalog, mode: Mode) -> Listing:
    """Return what `tools/list` answers from."""
    scope: Literal["private", "public"] = "private" if config.requires_token else "public"
    return Listing(catalog, page_size=config.limits.page_size, scope=scope, mode=mode)
