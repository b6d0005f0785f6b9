"""Rebuilds catalog and listing after tools, servers or callers have changed."""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from anyio import Event, create_task_group, sleep, to_thread

from toolpost.app.callers import mode_scope
from toolpost.discovery import EVERYTHING
from toolpost.discovery.automatic import Mode
from toolpost.discovery.catalog import Catalog
from toolpost.discovery.tool_groups import ToolGroup, add_groups
from toolpost.endpoints.listing import Listing
from toolpost.gateway import Gateway
from toolpost.host.contributions import Contributions
from toolpost.host.host import Host
from toolpost.providers import Provider
from toolpost.providers.plugins import Plugins
from toolpost.providers.servers import Servers
from toolpost.providers.tool import ProvidedTool
from toolpost.settings import Config
from toolpost.upstreams.lists import Slices
from toolpost.upstreams.notifications import TOOLS_CHANGED

if TYPE_CHECKING:
    from toolpost.app.app import App

_SETTLE_S: Final = 0.05

EVERY_SERVER: Final = frozenset({"*"})
"""Stands for all servers and plugins: no server can have this name."""


class CatalogRefresher:
    """Rebuilds catalog and listing after tools or callers have changed, and notifies subscribers; within `refreshing`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        """The settings in force; replaced by a reload."""
        self.is_served = False
        """Whether HTTP is served."""
        self._app: App | None = None
        self._noted = Event()
        self._servers: set[str] = set()
        self._owners: dict[str, set[str]] = {}
        """Owners of credentials, and the servers that list them other tools now."""
        self._is_rebuild_needed = False
        self._may_rebuild = Event()
        self._may_rebuild.set()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Hold rebuilds back: several replaced plugins are listed together, or not yet."""
        self._may_rebuild = Event()
        try:
            yield
        finally:
            self._may_rebuild.set()

    def note(self, servers: Collection[str]) -> None:
        """Schedule a rebuild, and notifications about these servers; without a name no client is notified.

        Changes within 50 ms are one: a server that starts reports its tools several times.
        """
        self._servers.update(servers)
        self._is_rebuild_needed = True
        self._noted.set()

    def note_owner(self, owner: str, server: str) -> None:
        """Have the catalog of one owner made again, and its clients notified; nothing to do if it has none yet."""
        if self._app is not None and self._app.gateway.catalog.is_ready_for(owner):
            self._app.gateway.catalog.forget_owner(owner)
            self._owners.setdefault(owner, set()).add(server)
            self._noted.set()

    @asynccontextmanager
    async def refreshing(self, app: "App") -> AsyncIterator[None]:
        """Keep catalog and listing of a gateway as its servers and plugins are."""
        self._app = app
        async with create_task_group() as tasks:
            tasks.start_soon(self._follow, app)
            yield
            tasks.cancel_scope.cancel()

    async def _follow(self, app: "App") -> None:
        providers = _list_providers(app)
        while True:
            await self._noted.wait()
            await sleep(_SETTLE_S)
            await self._may_rebuild.wait()
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
            former = [*before, *_list_tools(providers)]
            providers = _list_providers(app)
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
            del before
            await _free(former)

    def _make(self, app: "App", providers: Sequence[Provider], mode: Mode) -> tuple[Catalog, Listing]:
        make = partial(_make_catalog, app.config, app.plugins, app.contributions, lambda: app.gateway)
        catalog = make(providers)
        _separate_owners(catalog, app.plugins, app.servers, make)
        return catalog, listing_of(self.config, catalog, mode)


def _list_providers(app: "App") -> list[Provider]:
    return [*app.plugins.providers, *app.servers.providers.values()]


def _list_tools(providers: Iterable[Provider]) -> Iterator[ProvidedTool]:
    for provider in providers:
        yield from provider.tools.values()
        yield from provider.quarantined.values()


async def _free(tools: list[ProvidedTool]) -> None:
    """Empty a list that may have the last references to its tools: to free 20,000 at once takes half a second."""
    slices = Slices()
    while tools:
        tools.pop()
        await slices.give_way()


def catalog_of(host: Host, servers: Servers, contributions: Contributions) -> Catalog:
    """Return the catalog of all providers, limited by the gateway's mode. The gateway itself is made with the catalog."""
    make = partial(_make_catalog, host.config, host.plugins, contributions, lambda: host.gateway)
    catalog = make([*host.plugins.providers, *servers.providers.values()])
    _separate_owners(catalog, host.plugins, servers, make)
    return catalog


def _separate_owners(
    catalog: Catalog, plugins: Plugins, servers: Servers, make: Callable[[Sequence[Provider]], Catalog]
) -> None:
    """Let a catalog make those of single owners, if a server has credentials per caller."""
    if servers.has_caller_credentials:
        catalog.make_for_owner = lambda owner: make([*plugins.providers, *servers.list_for(owner)])


def _make_catalog(
    config: Config,
    plugins: Plugins,
    contributions: Contributions,
    find_gateway: Callable[[], Gateway],
    providers: Sequence[Provider],
) -> Catalog:
    groups = contributions.all(ToolGroup)
    providers = add_groups(groups, providers, lambda *nested: find_gateway().call_nested(*nested))
    catalog = Catalog(providers, tags=config.plugins.tags, for_everyone=plugins.for_everyone)
    # Before any view: a mode holds for every caller, also for agents and for commands in this process.
    scope = mode_scope(config, config.modes.mode)
    return catalog.narrow(EVERYTHING.within((scope,))) if scope.is_limited else catalog


def listing_of(config: Config, catalog: Catalog, mode: Mode) -> Listing:
    """Return what `tools/list` answers from."""
    scope: Literal["private", "public"] = "private" if config.requires_token else "public"
    return Listing(catalog, scope=scope, mode=mode)
