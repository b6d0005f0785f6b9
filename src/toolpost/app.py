"""A gateway from settings and parts: opened in order, closed in reverse. Knows no part by name."""

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anyio import CancelScope, create_task_group

from toolpost.authoring import Middleware, Plugin
from toolpost.base.caller import Caller, Principal
from toolpost.base.events import event
from toolpost.base.own_folder import OWN_FOLDER
from toolpost.contracts.errors import BadConfiguration
from toolpost.discovery import EVERYTHING
from toolpost.discovery.automatic import INSTRUCTIONS
from toolpost.discovery.automatic_mcp import AutomaticMcp
from toolpost.discovery.finder import Finder
from toolpost.discovery.preparation import Preparation
from toolpost.discovery.reranker import Complete, Reranker, RerankerSpec
from toolpost.endpoints.auth.access import Access
from toolpost.endpoints.auth.delegated_tokens import DelegatedTokens
from toolpost.endpoints.auth.roster import Roster
from toolpost.endpoints.calls import CallHandler
from toolpost.endpoints.http.admin import Admin
from toolpost.endpoints.http.app import HttpEndpoint
from toolpost.endpoints.http.connection_limits import ConnectionLimits, Connections, default_total
from toolpost.endpoints.http.descriptors import raise_descriptor_limit
from toolpost.endpoints.http.listener import bind_socket, open_http_server
from toolpost.endpoints.http.paths import MCP_PATH
from toolpost.endpoints.http.routes import HttpContext
from toolpost.endpoints.input_rounds import MultiRoundRequests
from toolpost.endpoints.sdk.lazy import LazySdk
from toolpost.endpoints.stdio import StdioStreams, serve_stdio
from toolpost.gateway import Gateway
from toolpost.host import Host, Notifications, OpenParts, Provided
from toolpost.members import TEST_TAG, members_of, scopes_of
from toolpost.metrics import Metrics
from toolpost.middleware import Pipeline
from toolpost.part_base import Part
from toolpost.plugins import BUNDLED
from toolpost.plugins.time import plugin as time_plugin
from toolpost.providers.plugin_host import (
    PluginCandidate,
    PluginHost,
    candidates_from,
    find_installed,
)
from toolpost.providers.promises import Promises
from toolpost.providers.relay import Relay
from toolpost.providers.server_host import ServerHost
from toolpost.registry import BUNDLED as BUNDLED_PARTS
from toolpost.registry import installed_parts
from toolpost.running import App, Changes, Hearsay, catalog_of, listing_of
from toolpost.settings import Config
from toolpost.settings.lock import read_lock
from toolpost.settings.masking import make_concealer
from toolpost.settings.model import check_bundled
from toolpost.shares import Callers, EndpointShares, Shares
from toolpost.store import open_store
from toolpost.store.part_migrations import migrate_part
from toolpost.upstreams.spec import ServerLimits, ServerSpec
from toolpost.upstreams.validation.pool import Validators

if TYPE_CHECKING:
    from toolpost.discovery.embedder import Embedder

_log = logging.getLogger("toolpost.app")

STATE_KEY: Final = "request state"
"""The name of the key that signs what clients carry from one round of a call to the next."""

_TIME: Final = PluginCandidate(name="time", load=lambda: time_plugin)


@asynccontextmanager
async def open_app(
    config: Config,
    *,
    plugins: Sequence[Plugin] = (),
    parts: Sequence[Part] | None = None,
    more_parts: Sequence[Part] = (),
    middleware: Sequence[Middleware] = (),
    bundled: bool = True,
    servers: Sequence[ServerSpec] | None = None,
    enforces_lock: bool = True,
    learn_limit_s: float | None = None,
    on_wait: Callable[[Collection[str]], None] | None = None,
    is_brief: bool = False,
) -> AsyncIterator[App]:
    """Open a gateway: store, parts, plugins, servers. Leaving it cancels what is in flight, and keeps it.

    `parts` are those that come with Toolpost and those that are installed, unless given; `more_parts` are opened after them.
    `middleware` runs around every call, outside of what is configured. Without `bundled`, neither plugins
    that come with Toolpost nor installed ones are loaded. Servers' tools are held to the lock, unless `enforces_lock` is false.
    `learn_limit_s` is how long servers whose tools are not known yet are waited for; later their tools come by themselves;
    `on_wait` is told their names when that takes longer than a moment. `is_brief` is for a single command.
    """
    changes, news = Changes(config), Hearsay()
    callers = Callers(config.limits.share)
    roster = Roster(callers=callers)
    tokens = DelegatedTokens(roster)
    plugin_host = PluginHost(
        default_timeout_s=config.limits.timeout_s,
        threads=config.limits.threads,
        callers=callers,
        only=config.plugins.only,
    )
    check_bundled(config.plugins.bundled, "plugins.bundled")
    if parts is None:
        # Before the project's folder is on the path: what lies there is loaded only where it is configured.
        parts = _load_parts(config, plugin_host, installed=bundled and config.plugins.installed)
    parts = [*parts, *more_parts]
    plugin_host.add_middleware(middleware)
    _find_beside(config)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(
            open_store(
                config.store_url,
                pool=config.store.pool,
                retry_s=config.store.retry_s,
                journals=Path(config.project) / OWN_FOLDER,
            )
        )
        host = Host(
            config=config,
            store=store,
            plugins=plugin_host,
            metrics=(metrics := Metrics()),
            callers=callers,
            tokens=tokens,
            notifications=Notifications(news.note, config.plugins.tags),
            principal_of=partial(_principal_of, roster, config),
            loads_bundled=bundled,
            is_brief=is_brief,
        )
        embedder = _embedder(config)
        provided = await _open_parts(parts, host, stack)
        reranker = await stack.enter_async_context(_open_reranker(config, metrics, provided.complete))
        _load_plugins(host, plugins, provided)
        validators = Validators()
        behind = ServerHost(
            specs_of(config, plugin_host) if servers is None else servers,
            ServerLimits(callers=callers, instances=config.limits.instances, waiting=config.limits.waiting),
            known=store.known_tools,
            promises=Promises(
                pins=store.pins,
                locked=read_lock(config.lock_path) if enforces_lock else None,
                judge_slowly=lambda server, old, new: validators.judge(old, new, provider=server),
            ),
            contracts=config.contracts,
            default_timeout_s=config.limits.timeout_s,
            on_change=changes.note,
            beside=[name for provider in plugin_host.providers for name in provider.tools],
            on_notification=news.note,
            learn_limit_s=learn_limit_s,
            on_wait=on_wait,
            sampler=provided.sampler,
        )
        for opening in (validators.open_running(), plugin_host.open_started(), behind.open_running()):
            await stack.enter_async_context(opening)
        rounds = MultiRoundRequests(await store.keys.of(STATE_KEY))
        app = _assembled(host, provided, roster, behind, changes, reranker, embedder, rounds, validators)
        async with create_task_group() as tasks:
            tasks.start_soon(changes.follow, app)
            tasks.start_soon(news.follow, app)
            tasks.start_soon(app.finder.preparation.run)
            if embedder is not None:
                tasks.start_soon(embedder.run)
            if config.discovery.mode != "all":
                app.finder.preparation.start()
            try:
                async with AsyncExitStack() as running:
                    for each in provided.provided.values():
                        if each.run is not None:
                            await running.enter_async_context(each.run(app.gateway))
                    yield app
            finally:
                tasks.cancel_scope.cancel()
                await app.gateway.drain(0)
                await app.call_handler.rounds.close()


def _principal_of(roster: Roster, config: Config, caller: Caller) -> Principal | None:
    """Return a caller with the limits that hold for it now; None if it may no longer call."""
    if caller.transport == "http":
        scopes = roster.scopes_of(caller.id)
        return None if scopes is None else Principal(caller=caller, scopes=scopes, is_admin=caller.is_admin)
    scopes = scopes_of(config.stdio) if caller.transport == "stdio" else ()
    return Principal(caller=caller, scopes=scopes, is_admin=caller.is_admin)


def _load_parts(config: Config, plugins: PluginHost, *, installed: bool) -> list[Part]:
    """Load the parts that come with Toolpost, and installed ones; one of these that fails is named, and the rest serves."""
    parts: list[Part] = [entry.load() for entry in BUNDLED_PARTS]
    for entry in installed_parts() if installed else ():
        if entry.name in config.plugins.disable:
            continue
        try:
            parts.append(entry.load())
        except Exception as error:  # noqa: BLE001 (a part may raise anything)
            plugins.note_failure(entry.name, "could not be loaded", error)
    return parts


async def _open_parts(parts: Sequence[Part], host: Host, stack: AsyncExitStack) -> OpenParts:
    """Open parts in order; one that fails is named among the plugins, and the rest serves. Bad settings are an error."""
    provided: dict[str, Provided] = {}
    for part in parts:
        try:
            if part.migrations is not None:
                await migrate_part(host.store, host.config.store_url, part.name, part.migrations)
            provided[part.name] = await stack.enter_async_context(part.open(host))
        except BadConfiguration:
            raise
        except Exception as error:
            if part.must_open(host.config):
                raise BadConfiguration(f"[{part.name}] cannot be enforced: {error}") from error
            host.plugins.note_failure(part.name, "could not be opened", error)
    return OpenParts(provided=provided)


def specs_of(config: Config, host: PluginHost) -> list[ServerSpec]:
    """Read the servers out of the configuration; a name can be a plugin's or a server's, not both's."""
    if config.plugins.only is not None:
        return []
    is_test = config.modes.mode == "test"
    specs = [
        _spec_of(config, name)
        for name, server in config.servers.items()
        # A server that the mode does not use is not started either.
        if server.enabled and (not is_test or TEST_TAG in server.tags)
    ]
    taken = {plugin.name for plugin in host.plugins if plugin.provider is not None}
    if clashes := sorted(spec.name for spec in specs if spec.name in taken):
        raise BadConfiguration(
            f"servers.{clashes[0]}: a plugin has this name already.",
            hint=f'rename the server, or disable the plugin: plugins.disable = ["{clashes[0]}"]',
        )
    return specs


def _spec_of(config: Config, name: str) -> ServerSpec:
    """Read one server; one whose variables cannot be filled in is there too, and says so instead of starting."""
    try:
        resolved = config.resolve_server(name)
    except BadConfiguration as error:
        settings = config.servers[name]
        return ServerSpec(
            name=name,
            command=(settings.command,) if settings.command is not None else None,
            url=settings.url,
            transport=settings.transport,
            tags=frozenset(settings.tags),
            problem=error.message.removesuffix("."),
            hint=error.hint,
        )
    return ServerSpec(**vars(resolved), conceal=make_concealer(resolved))


@asynccontextmanager
async def _open_reranker(config: Config, metrics: Metrics, complete: Complete | None) -> AsyncIterator[Reranker | None]:
    """Make what asks for a second opinion, where one is configured; leaving closes its connections."""
    settings = config.discovery.reranker
    if settings.url is None and (not settings.models or complete is None):
        yield None
        return
    spec = RerankerSpec(
        url=settings.url or "",
        model=settings.model,
        key=settings.key(),
        timeout_s=settings.timeout_s,
        candidates=settings.candidates,
    )
    reranker = Reranker(spec, metrics, complete if settings.url is None else None)
    try:
        yield reranker
    finally:
        await reranker.aclose()


def _embedder(config: Config) -> "Embedder | None":
    """Make what scores by a sentence model, where one is configured. What it needs is loaded when somebody searches."""
    if config.embedder_path is None:
        return None
    from toolpost.discovery.embedder import Embedder

    return Embedder(config.embedder_path)


def _assembled(
    host: Host,
    parts: OpenParts,
    roster: Roster,
    servers: ServerHost,
    changes: Changes,
    reranker: Reranker | None,
    embedder: "Embedder | None",
    rounds: MultiRoundRequests,
    validators: Validators,
) -> App:
    config, store, metrics = host.config, host.store, host.metrics
    shares = _shares(config, host.callers)
    pipeline = Pipeline(
        store.audit,
        shares.calls,
        host.callers,
        waiting_limit=config.limits.waiting,
        validators=validators,
        middleware=host.plugins.all_middleware(parts.middleware),
        guards=parts.guards,
    )
    catalog = catalog_of(config, host.plugins, servers, parts)
    uses: Counter[str] = Counter()
    finder = Finder(Preparation(catalog, metrics, embedder), uses=uses, reranker=reranker, embedder=embedder)
    finding = AutomaticMcp(finder, store.seen, metrics)
    gateway = Gateway(catalog, pipeline, finding=finding, metrics=metrics, uses=uses, conversations=parts.conversations)
    instructions = INSTRUCTIONS if config.discovery.mode == "automatic" else None
    return App(
        config=config,
        store=store,
        host=host.plugins,
        parts=parts,
        servers=servers,
        gateway=gateway,
        call_handler=CallHandler(
            gateway, listing_of(config, gateway.catalog, config.discovery.mode), rounds, parts.tasks
        ),
        sdk=LazySdk(Relay(servers.providers), store.audit, rounds, shares, instructions, parts.tasks),
        shares=shares,
        roster=roster,
        tokens=host.tokens,
        changes=changes,
        finder=finder,
    )


def _shares(config: Config, callers: Callers) -> EndpointShares:
    limits = config.limits
    return EndpointShares(
        callers=callers,
        calls=Shares("calls in flight", limits.calls, callers),
        sessions=Shares("sessions", limits.sessions, callers),
        streams=Shares("event streams", limits.streams, callers, retry_s=5),
    )


def _find_beside(config: Config) -> None:
    """Have plugins beside the configuration found; last, so that they shadow nothing that is installed."""
    if (folder := str(Path(config.project).resolve())) not in sys.path:
        sys.path.append(folder)


def _load_plugins(host: Host, given: Sequence[Plugin], parts: OpenParts) -> None:
    """Load the plugins that are given, those of parts, those that are installed and those that are configured."""
    settings, plugins = host.config.plugins, host.plugins
    plugins.load_middleware(host.config.middleware.load)
    bundled = {entry.name for entry in BUNDLED_PARTS}
    ours = [_TIME] if host.wants_plugin("time") else []
    others: list[PluginCandidate] = []
    for name, provided in parts.provided.items():
        (ours if name in bundled else others).extend(map(_candidate, provided.plugins))
    if host.loads_bundled and settings.installed:
        others += find_installed()
    others += candidates_from(settings.load)
    # A server that somebody has set up under the name of a plugin that we bring takes its place.
    taken = [] if settings.only else [name for name, server in host.config.servers.items() if server.enabled]
    for candidate in map(_candidate, given):
        plugins.load(candidate, disabled=settings.disable)
    for candidate in sorted(ours, key=_rank):
        plugins.load(candidate, disabled=[*settings.disable, *taken])
    for candidate in others:
        plugins.load(candidate, disabled=settings.disable)
    plugins.keep_chosen()


def _candidate(plugin: Plugin | PluginCandidate) -> PluginCandidate:
    return plugin if isinstance(plugin, PluginCandidate) else PluginCandidate(name=plugin.name, load=lambda: plugin)


def _rank(candidate: PluginCandidate) -> int:
    """Return where a plugin of ours stands: those that may be named first, in the order of their names."""
    return BUNDLED.index(candidate.name) if candidate.name in BUNDLED else len(BUNDLED)


def limits_of(config: Config) -> ConnectionLimits:
    """Read the limits on connections; what is not set follows from the limit on descriptors, which is raised first."""
    settings, descriptors = config.http, raise_descriptor_limit()
    total = settings.connections or default_total(descriptors)
    if total > default_total(descriptors):
        hint = "raise the limit (ulimit -n), or lower http.connections"
        event(_log, logging.WARNING, "few descriptors", connections=total, descriptors=descriptors, hint=hint)
    return ConnectionLimits(
        total=total,
        per_address=settings.connections_per_address or max(1, total // 4),
        trusted=settings.trusted_networks,
        head_timeout_s=settings.head_timeout_s,
        body_timeout_s=settings.body_timeout_s,
    )


@asynccontextmanager
async def open_http(app: App, *, loads_early: bool = True) -> AsyncIterator[str]:
    """Serve HTTP as configured; yields the URL. Leaving it gives calls in flight their grace, then `CANCELLED`.

    A server that is not there for long may leave the SDK unloaded until somebody needs it.
    """
    host, port = app.config.address
    app.roster.replace(members_of(app.config))
    connections = Connections(limits_of(app.config), app.gateway.metrics)
    endpoint = _make_endpoint(app, host, connections, loads_early=loads_early)
    with bind_socket(host, port) as listener:
        async with open_http_server(endpoint, listener, connections):
            shown = f"[{host}]" if ":" in host else host
            url = f"http://{shown}:{listener.getsockname()[1]}{MCP_PATH}"
            try:
                with app.tokens.open_at(url):
                    yield url
            finally:
                with CancelScope(shield=True):
                    await app.gateway.drain(app.config.limits.grace_s)


@asynccontextmanager
async def open_asgi(app: App) -> AsyncIterator[HttpEndpoint]:
    """Open the ASGI application for a server that is not ours; leaving it gives calls in flight their grace.

    Which names that server goes by is not known here. Where every request shows a token they do not matter, as for a listener
    of ours off localhost; otherwise only local names and `http.allowed_hosts` are accepted.
    """
    app.roster.replace(members_of(app.config))
    endpoint = _make_endpoint(app, "127.0.0.1" if app.roster.members.is_open else "0.0.0.0")  # noqa: S104 (nothing is bound)
    async with create_task_group() as tasks:
        await tasks.start(endpoint.run)
        try:
            yield endpoint
        finally:
            with CancelScope(shield=True):
                await app.gateway.drain(app.config.limits.grace_s)
            tasks.cancel_scope.cancel()


def _make_endpoint(
    app: App, host: str, connections: Connections | None = None, *, loads_early: bool = True
) -> HttpEndpoint:
    app.changes.is_served = True
    access = Access(
        host=host,
        roster=app.roster,
        allowed_hosts=app.config.http.allowed_hosts,
        allowed_origins=app.config.http.allowed_origins,
    )
    body_limit = app.config.http.body_limit_bytes
    http = HttpContext(access=access, streams=app.shares.streams, body_limit=body_limit, health=app.health)
    return HttpEndpoint(
        app.call_handler,
        app.sdk,
        access,
        body_limit=body_limit,
        health=app.health,
        metrics=lambda: app.metrics(connections),
        admin=Admin(access, lambda: app.servers.providers, app.servers.findings, make_concealer),
        routes=app.parts.routes(http),
        shares=app.shares,
        loads_early=loads_early,
        bare_names=app.config.http.bare_names,
    )


async def serve_on_stdio(app: App, wire: StdioStreams, stop: asyncio.Event) -> None:
    """Serve the client that started this process, until it closes its end or `stop` is set."""
    limits = app.config.limits
    message_limit = app.config.http.body_limit_bytes
    view = EVERYTHING.within(scopes_of(app.config.stdio))
    await serve_stdio(
        app.call_handler, app.sdk, wire, message_limit=message_limit, stop=stop, grace_s=limits.grace_s, view=view
    )
