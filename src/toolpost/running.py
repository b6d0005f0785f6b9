"""A running Toolpost, without its endpoints: how it is doing, and how it follows what changes behind it."""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal, TypeVar

from anyio import Event, sleep, to_thread

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
from toolpost.gateway import Gateway
from toolpost.host import OpenParts
from toolpost.members import mode_scope
from toolpost.providers import Provider
from toolpost.providers.plugin_host import PluginHost
from toolpost.providers.server_host import ServerHost
from toolpost.settings import Config
from toolpost.shares import EndpointShares
from toolpost.store import Store
from toolpost.upstreams.notifications import LOG_MESSAGE, TOOLS_CHANGED, Notification

Service = TypeVar("Service")

_SETTLE_S: Final = 0.05
_NEWS_LIMIT: Final = 1_000

EVERY_SERVER: Final = frozenset({"*"})
"""Stands for all of them, and the plugins: no server can have this name."""


@dataclass(frozen=True, kw_only=True)
class App:
    """A running Toolpost, without its endpoints."""

    config: Config
    store: Store
    host: PluginHost
    servers: ServerHost
    gateway: Gateway
    call_handler: CallHandler
    sdk: LazySdk
    shares: EndpointShares
    roster: Roster
    """Who may call over HTTP; nobody is asked who they are until HTTP is served."""
    changes: "Changes"
    finder: Finder
    parts: OpenParts
    tokens: DelegatedTokens

    def service(self, kind: type[Service]) -> Service:
        """Return what an open part offers to programs that open the gateway in their own process, by its type."""
        for provided in self.parts.provided.values():
            for service in provided.services:
                if isinstance(service, kind):
                    return service
        raise CapabilityMissing(f"No part that is open offers a {kind.__name__}.")

    def metrics(self, connections: Connections | None = None) -> str:
        """Say what has been counted since the start, and what holds now, as Prometheus reads it."""
        servers = self.servers.providers.values()
        return self.gateway.metrics.text(
            {
                "toolpost_tools": ("Tools that can be called.", len(self.gateway.catalog)),
                "toolpost_connections": ("HTTP connections that are open.", len(connections or ())),
                "toolpost_connections_unauthenticated": (
                    "Those of them on which no request was admitted yet.",
                    connections.unauthenticated if connections is not None else 0,
                ),
                "toolpost_calls_in_flight": ("Calls that have not been answered yet.", self.gateway.in_flight),
                "toolpost_tools_changed": ("Tools that are not as promised.", sum(len(s.statuses) for s in servers)),
                "toolpost_tools_withheld": (
                    "Tools that are withheld for that.",
                    sum(len(s.quarantined) for s in servers),
                ),
                "toolpost_tools_suspicious": (
                    "Tools of which something may be meant for the model.",
                    sum(len(self.servers.findings.of(s.name)) for s in servers),
                ),
                "toolpost_index_tools": ("Tools that can be found by searching.", self.finder.preparation.size),
                **self.parts.gauges(),
            }
        )

    def health(self) -> JsonObject:
        """Say how the server and its plugins are doing."""
        plugins = {plugin.name: plugin.as_object() for plugin in self.host.plugins}
        servers = {name: provider.supervisor.state.value for name, provider in self.servers.providers.items()}
        is_whole = all(plugin.state in ("healthy", "disabled") for plugin in self.host.plugins)
        is_whole = is_whole and not {"failed", "suspended"} & set(servers.values())
        return {
            "status": "ok" if is_whole else "degraded",
            "version": __version__,
            "tools": len(self.gateway.catalog),
            "inFlight": self.gateway.in_flight,
            "plugins": plugins,
            "servers": servers,
        }


class Changes:
    """Tools that came, went or changed, or are seen by others: taken over together, and then announced."""

    def __init__(self, config: Config) -> None:
        self.config = config
        """The one in force."""
        self.is_served = False
        """Whether HTTP is."""
        self._noted = Event()
        self._servers: set[str] = set()

    def note(self, servers: Collection[str]) -> None:
        """Take note of servers; many changes in a moment are one. Without a name, all is taken over and nobody is told."""
        self._servers.update(servers)
        self._noted.set()

    async def follow(self, app: App) -> None:
        """Swap catalog and listing whenever something has changed, until cancelled."""
        while True:
            await self._noted.wait()
            await sleep(_SETTLE_S)
            self._noted = Event()
            servers, self._servers = self._servers, set()
            before, mode = app.gateway.catalog, app.config.discovery.mode
            providers: list[Provider] = [*app.host.providers, *app.servers.providers.values()]
            # In a thread: a server decides how many tools there are, and 20,000 take some tenths of a second.
            made = await to_thread.run_sync(self._make, app.parts, providers, app.config, mode)
            app.gateway.catalog, app.call_handler.listing = made
            app.gateway.pipeline.forget_plans()
            app.finder.preparation.take(app.gateway.catalog)
            # Where two tools stand for all, the list says which servers there are, and nothing of their tools.
            is_same = (
                mode == "automatic" and not self.config.requires_token and before.has_servers_of(app.gateway.catalog)
            )
            if app.sdk.loaded is not None and not is_same:
                await app.sdk.loaded.subscribers.announce(TOOLS_CHANGED, servers)

    def _make(
        self, parts: OpenParts, providers: Sequence[Provider], config: Config, mode: Mode
    ) -> tuple[Catalog, Listing]:
        catalog = _make_catalog(config, parts.derive(providers))
        return catalog, listing_of(self.config, catalog, mode)


class Hearsay:
    """What servers say by themselves, on its way to whoever is to hear it."""

    def __init__(self) -> None:
        self._noted = Event()
        self._logs: dict[tuple[str, CallerId | None], deque[Notification]] = {}
        """By server and caller: what is logged about one caller's calls pushes out nothing of another's."""
        self._changes: deque[Notification] = deque(maxlen=_NEWS_LIMIT)

    def note(self, news: Notification) -> None:
        """Take note; a server that says more than anybody can hear loses the oldest of it."""
        if news.method == LOG_MESSAGE:
            self._logs.setdefault((news.server, news.caller), deque(maxlen=_NEWS_LIMIT)).append(news)
        else:
            self._changes.append(news)
        self._noted.set()

    async def follow(self, app: App) -> None:
        """Pass on what has been noted, the same thing once, until cancelled."""
        while True:
            await self._noted.wait()
            self._noted = Event()
            if not self._logs:
                await sleep(_SETTLE_S)
            waiting, said = [*self._changes, *chain.from_iterable(self._logs.values())], set[Notification]()
            self._changes.clear()
            self._logs.clear()
            for news in waiting:
                if app.sdk.loaded is not None and (news.method == LOG_MESSAGE or news not in said):
                    said.add(news)
                    await app.sdk.loaded.subscribers.forward(news)


def catalog_of(config: Config, host: PluginHost, servers: ServerHost, parts: OpenParts) -> Catalog:
    """Make the catalog of all that can be called."""
    return _make_catalog(config, parts.derive([*host.providers, *servers.providers.values()]))


def _make_catalog(config: Config, providers: Sequence[Provider]) -> Catalog:
    catalog = Catalog(providers, tags=config.plugins.tags)
    # Before any view: a mode holds for every caller, also for agents and for commands in this process.
    scope = mode_scope(config, config.modes.mode)
    return catalog.narrow(EVERYTHING.within((scope,))) if scope.is_limited else catalog


def listing_of(config: Config, catalog: Catalog, mode: Mode) -> Listing:
    """Make the list that clients are given."""
    scope: Literal["private", "public"] = "private" if config.requires_token else "public"
    return Listing(catalog, page_size=config.limits.page_size, scope=scope, mode=mode)
