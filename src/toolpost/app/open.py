"""A gateway from settings and parts: opened in order, closed in reverse. Knows no part by name."""

import asyncio
import logging
import math
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from anyio import CancelScope, create_task_group

from toolpost.admin.api import make_server_api
from toolpost.app.callers import TEST_TAG, mode_scope, read_callers, scopes_of
from toolpost.app.running import App, CatalogRefresher, ServerNotifications, catalog_of, listing_of
from toolpost.authoring import Middleware, Plugin
from toolpost.authoring.middleware import NamedMiddleware
from toolpost.base.attention import ActionItem, ActionItems
from toolpost.base.caller import Caller, Principal, owner_of
from toolpost.base.events import event
from toolpost.base.state_folder import STATE_FOLDER
from toolpost.contracts.errors import BadConfiguration
from toolpost.credentials.oauth import Authorizations
from toolpost.credentials.vault import Vault
from toolpost.discovery import EVERYTHING
from toolpost.discovery.automatic import INSTRUCTIONS, AutomaticMcp
from toolpost.discovery.finder import Finder
from toolpost.discovery.preparation import Preparation
from toolpost.discovery.reranker import Reranker, RerankerSpec, RerankingModel
from toolpost.discovery.views import SEPARATOR
from toolpost.endpoints.auth.access import Access, find_proxy_setting
from toolpost.endpoints.auth.delegated_tokens import DelegatedTokens
from toolpost.endpoints.auth.rejected import RejectedTokens
from toolpost.endpoints.auth.roster import Admission, Claims, Roster, TokenIssuer
from toolpost.endpoints.calls import CallHandler, ObservedCallHandler, write_call_result
from toolpost.endpoints.http.app import HttpEndpoint
from toolpost.endpoints.http.connection_limits import ConnectionLimits, Connections, default_total
from toolpost.endpoints.http.descriptors import raise_descriptor_limit
from toolpost.endpoints.http.listener import bind_socket, open_http_server
from toolpost.endpoints.http.page_kit import make_page_kit
from toolpost.endpoints.http.paths import MCP_PATH
from toolpost.endpoints.http.request import HttpRequest
from toolpost.endpoints.http.routes import Api, HttpContext, Page, Routes, WriteCheck, make_openapi
from toolpost.endpoints.http.server_login_pages import LoginPages
from toolpost.endpoints.input_rounds import MultiRoundRequests
from toolpost.endpoints.observer import Observer
from toolpost.endpoints.sdk.lazy import LazySdk
from toolpost.endpoints.stdio import StdioStreams, serve_stdio
from toolpost.endpoints.tasks.api import TASKS_PATH, make_task_routes
from toolpost.endpoints.tasks.endpoint import TaskEndpoint
from toolpost.endpoints.tasks.runner import TaskRunner
from toolpost.fairness import Callers, EndpointShares, Shares
from toolpost.gateway import AgentCallObserver, Gateway, ObservedGateway
from toolpost.host.contributions import Background, Contributions
from toolpost.host.host import Host, Notifications
from toolpost.manifest import Part, bundled_parts, bundled_plugins, installed_parts, resolve
from toolpost.metrics import Metrics
from toolpost.middleware.extensions import ExtensionSteps
from toolpost.middleware.interface import CallMiddleware, Guard, RecordListener, ResultLimiter
from toolpost.middleware.pipeline import Pipeline
from toolpost.protocol.era import STATELESS
from toolpost.providers import ProviderFilter
from toolpost.providers.learning import StartWait
from toolpost.providers.plugin_host import (
    HookSpecs,
    PluginCandidate,
    Plugins,
    candidates_from,
    find_installed,
)
from toolpost.providers.relay import AllProviders, Relay
from toolpost.providers.server_context import ServerAccess, ServerListeners
from toolpost.providers.servers import LoginTargets, Servers
from toolpost.providers.watched import WatchOptions
from toolpost.settings import Config
from toolpost.settings.credentials import key_place_of
from toolpost.settings.lock import read_lock
from toolpost.settings.masking import find_secrets, make_concealer
from toolpost.settings.model import check_bundled
from toolpost.settings.section import check_effects
from toolpost.settings.variables import read_secret
from toolpost.store import Store, open_store, store_exists
from toolpost.store.part_migrations import migrate_part
from toolpost.upstreams.in_process import ServerObject
from toolpost.upstreams.server_requests import Sampler, SamplingModel
from toolpost.upstreams.spec import ServerLimits, ServerSpec
from toolpost.upstreams.transport import ObserveTransport
from toolpost.upstreams.validation.pool import Validators

_log = logging.getLogger("toolpost.app")

STATE_KEY: Final = "request state"
"""The name of the key that signs what clients carry from one round of a call to the next."""

LOGIN_KEY: Final = "login"
"""The name of the key that signs the addresses of logins."""

_ANSWER_S: Final = 6.0
"""How long a cancelled call may take to answer at shutdown: ending its processes takes up to 5 s (`processes.tree`)."""


@asynccontextmanager
async def open_app(
    config: Config,
    *,
    plugins: Sequence[Plugin | ServerObject] = (),
    parts: Sequence[Part] | None = None,
    more_parts: Sequence[Part] = (),
    middleware: Sequence[Middleware] = (),
    bundled: bool = True,
    servers: Sequence[ServerSpec] | None = None,
    enforces_lock: bool = True,
    learn_limit_s: float | None = None,
    on_wait: Callable[[Collection[str]], None] | None = None,
    for_one_command: bool = False,
    tool: str | None = None,
    credentials_of: Config | None = None,
    config_path: Path | None = None,
) -> AsyncIterator[App]:
    """Open a gateway: store, parts, plugins, servers. Leaving it cancels calls in flight; the store keeps what they recorded.

    `parts` are those that come with Toolpost and those that are installed, unless given; `more_parts` are opened after them.
    `middleware` runs around every call, outside of what is configured. Without `bundled`, neither plugins
    that come with Toolpost nor installed ones are loaded. Servers' tools are held to the lock, unless `enforces_lock` is false.
    `learn_limit_s` is how long servers whose tools are not known yet are waited for; later their tools come by themselves;
    `on_wait` is told their names when that takes longer than a moment. `for_one_command` is for a single command, and `tool` for
    one that uses this tool alone: servers that it does not need are left out. Credentials are those of the store, or with
    `credentials_of` of the store that another configuration names, if it exists. `config_path` is the file that the settings
    were read from, for parts that change it.
    """
    changes, notifications = CatalogRefresher(config), ServerNotifications()
    callers = Callers(config.limits.share)
    roster = Roster(callers=callers)
    tokens = DelegatedTokens(roster)
    plugin_host = Plugins(
        default_timeout_s=config.limits.timeout_s,
        threads=config.limits.threads,
        callers=callers,
        chosen=config.plugins.chosen,
        tags=config.plugins.tags,
        notify=notifications.note,
        on_change=changes.note,
    )
    check_bundled(config.plugins.bundled, "plugins.bundled")
    if parts is None:
        # Before the project's folder is on the path: what lies there is loaded only where it is configured.
        parts = _load_parts(config, plugin_host, installed=bundled and config.plugins.installed)
    parts = [*parts, *more_parts]
    plugin_host.add_middleware(middleware)
    _add_project_to_path(config)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(
            open_store(
                config.store_url,
                pool=config.store.pool,
                retry_s=config.store.retry_s,
                journals=Path(config.project) / STATE_FOLDER,
            )
        )
        host = Host(
            config=config,
            store=store,
            plugins=plugin_host,
            metrics=(metrics := Metrics()),
            callers=callers,
            tokens=tokens,
            notifications=Notifications(notifications.note, config.plugins.tags),
            config_path=config_path,
            principal_of=partial(_principal_of, roster, config),
            loads_bundled=bundled,
            for_one_command=for_one_command,
        )
        contributions = await _open_parts(parts, host, stack)
        reranker = await stack.enter_async_context(_open_reranker(config, metrics, contributions.first(RerankingModel)))
        for hooks in contributions.all(HookSpecs):
            plugin_host.add_hooks(hooks)
        _load_plugins(host, plugins, contributions)
        validators = Validators()
        specs = _servers_for(
            tool, specs_of(config, plugin_host) if servers is None else servers, plugin_host, contributions
        )
        vault = await _open_vault(store, config, specs, credentials_of, stack)
        authorizations = Authorizations(vault)
        stack.push_async_callback(authorizations.aclose)
        behind = Servers(
            specs,
            limits=ServerLimits(
                callers=callers,
                instances=config.limits.instances,
                waiting=config.limits.waiting,
                observe=_find_transport_observer(contributions),
            ),
            default_timeout_s=config.limits.timeout_s,
            store=store,
            watch=WatchOptions(
                locked=read_lock(config.lock_path) if enforces_lock else None,
                mode=config.contracts,
                judge_slowly=lambda server, old, new: validators.judge(old, new, provider=server),
                beside=[
                    name
                    for plugin in plugin_host.plugins
                    if plugin.provider is not None and plugin.contracts == "trusted"
                    for name in plugin.provider.tools
                ],
            ),
            access=ServerAccess(
                vault=vault,
                authorizations=authorizations,
                login_key=await store.keys.of(LOGIN_KEY),
                other_logins=lambda: _list_login_targets(contributions),
            ),
            listeners=ServerListeners(
                on_change=changes.note,
                on_owner_change=changes.note_owner,
                on_notification=notifications.note,
                sampler=_find_sampler(contributions),
            ),
            wait=StartWait(limit_s=learn_limit_s, on_wait=on_wait or (lambda _names: None)),
        )
        for opening in (validators.open_running(), plugin_host.open_started(), behind.open_running()):
            await stack.enter_async_context(opening)
        await plugin_host.pin_tools(behind.watched_tools)
        rounds = MultiRoundRequests(await store.keys.of(STATE_KEY))
        app = _assemble(host, contributions, roster, behind, changes, reranker, rounds, validators)
        host.set_gateway(app.gateway)
        changes.app = app
        roster.has_caller_credentials, roster.keeps_tokens = (
            behind.has_caller_credentials,
            behind.exchanges_callers_tokens,
        )
        roster.on_verified = partial(_keep_token, authorizations)
        async with create_task_group() as tasks:
            tasks.start_soon(changes.follow, app)
            tasks.start_soon(notifications.follow, app)
            tasks.start_soon(app.finder.preparation.run)
            if config.discovery.mode != "all":
                app.finder.preparation.start()
            try:
                async with AsyncExitStack() as running:
                    await _run_in_background(contributions, plugin_host, running)
                    # Last, so that it closes first: a task that is still running may need any part.
                    await running.enter_async_context(app.call_handler.tasks.runner.open_running(app.gateway))
                    yield app
            finally:
                tasks.cancel_scope.cancel()
                await app.gateway.drain(0)
                await app.call_handler.rounds.close()


async def _open_vault(
    store: Store, config: Config, specs: Sequence[ServerSpec], other: Config | None, stack: AsyncExitStack
) -> Vault:
    is_needed = other is not None and any(spec.caller_values or spec.url for spec in specs)
    if other is not None and is_needed and await store_exists(other.store_url):
        store = await stack.enter_async_context(open_store(other.store_url, pool=1))
        return Vault(store, key_place_of(other))
    return Vault(store, key_place_of(config))


def _keep_token(authorizations: Authorizations, caller: Caller, token: bytes, claims: Claims) -> None:
    authorizations.subjects.keep(owner_of(caller), token, issuer=claims.issuer, expires_at=claims.expires_at)


def _principal_of(roster: Roster, config: Config, caller: Caller) -> Principal | None:
    """Return a caller with the limits that hold for it now; None if it may no longer call."""
    if caller.transport == "http" or caller.is_agent:
        scopes = roster.scopes_of(caller)
        return None if scopes is None else Principal(caller=caller, scopes=scopes, is_admin=caller.is_admin)
    scopes = scopes_of(config.stdio) if caller.transport == "stdio" else ()
    return Principal(caller=caller, scopes=scopes, is_admin=caller.is_admin)


def _load_parts(config: Config, plugins: Plugins, *, installed: bool) -> list[Part]:
    """Load the parts that come with Toolpost, and installed ones; one of these that fails is named, and the rest serves."""
    parts = [*bundled_parts()]
    for entry in installed_parts() if installed else ():
        if entry.name in config.plugins.disable:
            continue
        try:
            parts.append(entry.load())
        except Exception as error:  # noqa: BLE001 (a part may raise anything)
            plugins.note_failure(entry.name, "could not be loaded", error)
    return parts


async def _open_parts(parts: Sequence[Part], host: Host, stack: AsyncExitStack) -> Contributions:
    """Open parts in order; one that fails is named among the plugins, and the rest serves. Bad settings are an error."""
    if host.loads_bundled:
        check_effects(host.config)
    contributions = Contributions()
    for part in parts:
        try:
            if part.migrations is not None:
                await migrate_part(host.store, host.config.store_url, part.name, part.migrations)
            contributions.add(part.name, await stack.enter_async_context(resolve(part.opens)(host)))
        except BadConfiguration:
            raise
        except Exception as error:
            if part.is_required is not None and resolve(part.is_required)(host.config):
                raise BadConfiguration(f"the part `{part.name}` cannot be enforced: {error}") from error
            host.plugins.note_failure(part.name, "could not be opened", error)
    return contributions


def _find_transport_observer(contributions: Contributions) -> ObserveTransport | None:
    observer = contributions.first(Observer)
    return None if observer is None else observer.observe_transport


def _find_sampler(contributions: Contributions) -> Sampler | None:
    model = contributions.first(SamplingModel)
    return None if model is None else model.answer


async def _run_in_background(contributions: Contributions, plugins: Plugins, stack: AsyncExitStack) -> None:
    for each in contributions.all(Background):
        if each.while_plugin is None or plugins.serves(each.while_plugin):
            await stack.enter_async_context(each.open())


def _list_login_targets(contributions: Contributions) -> dict[str, ServerSpec]:
    return {name: spec for targets in contributions.all(LoginTargets) for name, spec in targets.list().items()}


def specs_of(config: Config, host: Plugins) -> list[ServerSpec]:
    """Read the servers out of the configuration; a name can be a plugin's or a server's, not both's."""
    is_test = config.modes.mode == "test"
    # Started with the gateway and never idle, as a plugin is: its author's lifespan is that of the process.
    in_process = [
        ServerSpec(name=name, in_process=server, tags=host.tags_of(name), min_ready=1, idle_s=math.inf)
        for name, server in host.servers.items()
        if not is_test or TEST_TAG in host.tags_of(name)
    ]
    if config.plugins.chosen:
        return in_process
    specs = [
        _spec_of(config, name)
        for name, server in config.servers.items()
        # A server that the mode does not use is not started either.
        if server.enabled and (not is_test or TEST_TAG in server.tags)
    ]
    taken = {plugin.name for plugin in host.plugins if plugin.provider is not None} | host.servers.keys()
    if clashes := sorted(spec.name for spec in specs if spec.name in taken):
        raise BadConfiguration(
            f"servers.{clashes[0]}: a plugin has this name already.",
            hint=f'rename the server, or disable the plugin: plugins.disable = ["{clashes[0]}"]',
        )
    return [*in_process, *specs]


def _servers_for(
    tool: str | None, specs: Sequence[ServerSpec], plugins: Plugins, contributions: Contributions
) -> Sequence[ServerSpec]:
    """Select the servers that a call of this tool needs: all of them without a tool, or where its name does not tell."""
    if tool is None:
        return specs
    bundled = {part.name for part in bundled_parts()}
    # A group has tools of several servers, and another package's part may call any tool.
    if contributions.all(ProviderFilter) or not bundled.issuperset(part for part, _ in contributions.named(Background)):
        return specs
    owner = tool.partition(SEPARATOR)[0]
    if named := [spec for spec in specs if spec.name == owner]:
        return named
    return () if any(plugin.name == owner for plugin in plugins.plugins) else specs


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
    return ServerSpec(**vars(resolved), conceal=make_concealer(resolved), secrets=tuple(find_secrets(resolved)))


@asynccontextmanager
async def _open_reranker(
    config: Config, metrics: Metrics, model: RerankingModel | None
) -> AsyncIterator[Reranker | None]:
    """Open the reranker, if one is configured; leaving closes its connections."""
    settings = config.discovery.reranker
    if settings.url is None and (not settings.models or model is None):
        yield None
        return
    spec = RerankerSpec(
        url=settings.url or "",
        model=settings.model,
        key=read_secret(settings.key, project=Path(config.project), place="discovery.reranker.key")
        if settings.key is not None
        else None,
        timeout_s=settings.timeout_s,
        candidates=settings.candidates,
        network=config.resolve_network(),
    )
    reranker = Reranker(spec, metrics, None if model is None or settings.url is not None else model.complete)
    try:
        yield reranker
    finally:
        await reranker.aclose()


def _assemble(
    host: Host,
    contributions: Contributions,
    roster: Roster,
    servers: Servers,
    changes: CatalogRefresher,
    reranker: Reranker | None,
    rounds: MultiRoundRequests,
    validators: Validators,
) -> App:
    config, store, metrics = host.config, host.store, host.metrics
    shares = _shares(config, host.callers)
    limiter, observer = contributions.first(ResultLimiter), contributions.first(Observer)
    guards = contributions.all(Guard)
    middleware = host.plugins.all_middleware(
        [
            NamedMiddleware(f"{part}:{getattr(each.function, '__name__', type(each.function).__name__)}", each.function)
            for part, each in contributions.named(CallMiddleware)
        ]
    )
    pipeline = Pipeline(
        store.audit,
        shares.calls,
        host.callers,
        waiting_limit=config.limits.waiting,
        validators=validators,
        middleware=middleware,
        guards=guards,
        unjournaled=None if config.store.journal_read_only else mode_scope(config, "readonly"),
        on_recorded=[each.function for each in contributions.all(RecordListener)],
        small_bytes=sys.maxsize if limiter is None else limiter.small_bytes,
    )
    catalog = catalog_of(config, host.plugins, servers, contributions)
    host.plugins.logins = servers.logins
    uses: Counter[str] = Counter()
    finder = Finder(Preparation(catalog, metrics), uses=uses, reranker=reranker)
    automatic_mcp = AutomaticMcp(finder, store.seen, metrics)
    gateway_type = Gateway if observer is None else partial(ObservedGateway, observer=observer)
    gateway = gateway_type(
        catalog,
        pipeline,
        automatic_mcp=automatic_mcp,
        metrics=metrics,
        uses=uses,
        conversations=contributions.first(AgentCallObserver),
        limiter=limiter,
    )
    tasks = TaskEndpoint(
        TaskRunner(
            store,
            partial(write_call_result, revision=STATELESS),
            ttl_s=config.tasks.ttl_s,
            after_s=config.tasks.after_s,
            limit=config.limits.tasks,
            callers=host.callers,
        )
    )
    handler_type = CallHandler if observer is None else partial(ObservedCallHandler, observer=observer)
    instructions = INSTRUCTIONS if config.discovery.mode == "automatic" else None
    return App(
        config=config,
        store=store,
        plugin_host=host.plugins,
        contributions=contributions,
        servers=servers,
        gateway=gateway,
        call_handler=handler_type(
            gateway,
            listing_of(config, gateway.catalog, config.discovery.mode),
            rounds,
            tasks,
            open_owner=servers.open_for,
        ),
        sdk=LazySdk(
            Relay(
                AllProviders(lambda: host.plugins.contents, servers.providers),
                companions=host.plugins.companions,
                refusals=gateway.refusals,
            ),
            store.audit,
            rounds,
            shares,
            tasks,
            instructions,
            middleware=() if observer is None else [observer.observe_sdk],
            mode=mode_scope(config, config.modes.mode),
            instructions_limit=config.limits.instructions,
            steps=ExtensionSteps(middleware, guards),
        ),
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


def _add_project_to_path(config: Config) -> None:
    """Put the project's folder on the path, so that its plugins are found; last, so that they shadow no installed module."""
    if (folder := str(Path(config.project).resolve())) not in sys.path:
        sys.path.append(folder)


def _load_plugins(host: Host, given: Sequence[Plugin | ServerObject], contributions: Contributions) -> None:
    """Load the plugins that are given, those of parts, those that are installed and those that are configured."""
    settings, plugins = host.config.plugins, host.plugins
    plugins.sampler = _find_sampler(contributions)
    plugins.load_middleware(host.config.middleware.load)
    bundled = {part.name for part in bundled_parts()}
    ours: list[PluginCandidate] = []
    others: list[PluginCandidate] = []
    for part, plugin in contributions.named(Plugin):
        (ours if part in bundled else others).append(_candidate(plugin))
    for part, candidate in contributions.named(PluginCandidate):
        (ours if part in bundled else others).append(candidate)
    others += candidates_from(settings.load)
    # A configured server with the name of a bundled plugin replaces that plugin.
    taken = [] if settings.chosen else [name for name, server in host.config.servers.items() if server.enabled]
    for candidate in map(_candidate, given):
        plugins.load(candidate, disabled=settings.disable)
    for candidate in sorted(ours, key=_rank):
        plugins.load(candidate, disabled=[*settings.disable, *taken])
    for candidate in others:
        plugins.load(candidate, disabled=settings.disable)
    # Last: a plugin that is named wins over an installed one of that name.
    named = [plugin.name for plugin in plugins.plugins if plugin.reference in settings.load] + [*plugins.servers]
    for candidate in find_installed() if host.loads_bundled and settings.installed else ():
        plugins.load(candidate, disabled=[*settings.disable, *named])
    known = {plugin.name for plugin in plugins.plugins}.union(
        bundled, bundled_plugins(), host.config.parts.get("apis", ())
    )
    if host.loads_bundled and settings.installed:
        # Perhaps of a package that is not installed here; perhaps mistyped, and then the plugin is on, or has no tags.
        for name in (name for name in settings.disable if name not in known):
            event(_log, logging.WARNING, "no plugin to disable", plugin=name, setting="plugins.disable")
        for name in (name for name in settings.tags if name not in known):
            event(_log, logging.WARNING, "no plugin to tag", plugin=name, setting="plugins.tags")
    plugins.keep_chosen()


def _candidate(plugin: Plugin | ServerObject | PluginCandidate) -> PluginCandidate:
    return plugin if isinstance(plugin, PluginCandidate) else PluginCandidate(name=plugin.name, load=lambda: plugin)


def _rank(candidate: PluginCandidate) -> int:
    """Return the position of a bundled plugin: the documented ones first, in their documented order."""
    return bundled_plugins().index(candidate.name) if candidate.name in bundled_plugins() else len(bundled_plugins())


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
async def open_http(app: App, *, preload_sdk: bool = True) -> AsyncIterator[str]:
    """Serve HTTP as configured; yields the URL. Leaving it gives calls in flight their grace, then `CANCELLED`.

    A short-lived server may leave the SDK unloaded until a request needs it (`preload_sdk`).
    """
    host, port = app.config.address
    app.roster.replace(read_callers(app.config, login=app.contributions.first(TokenIssuer)))
    connections = Connections(limits_of(app.config), app.gateway.metrics)
    endpoint = _make_endpoint(app, host, connections, preload_sdk=preload_sdk)
    http = app.config.http
    setting = find_proxy_setting(allowed_hosts=http.allowed_hosts, trusted_proxies=http.trusted_proxies)
    if app.roster.members.is_open and setting is not None:
        hint = "set TOOLPOST_TOKEN: everyone who can reach the proxy may call every tool"
        event(_log, logging.WARNING, "a proxy, and no token", setting=setting, hint=hint)
    with bind_socket(host, port) as listener:
        async with open_http_server(endpoint, listener, connections):
            shown = f"[{host}]" if ":" in host else host
            url = f"http://{shown}:{listener.getsockname()[1]}{MCP_PATH}"
            _set_base_url(app, None if host in ("0.0.0.0", "::") else url)  # noqa: S104 (compared, not bound)
            try:
                with app.tokens.open_at(url):
                    yield url
            finally:
                with CancelScope(shield=True):
                    await app.gateway.drain(app.config.limits.grace_s, answer_s=_ANSWER_S)


def _set_base_url(app: App, listening: str | None) -> None:
    app.servers.logins.base_url = app.config.http.base_url(listening)


@asynccontextmanager
async def open_asgi(app: App, *, is_guarded: bool = False) -> AsyncIterator[HttpEndpoint]:
    """Open the ASGI application for a server that is not ours; leaving it gives calls in flight their grace.

    Which names that server goes by is not known here. Where every request shows a token they do not matter, as for a listener
    of Toolpost's off localhost; otherwise only local names and `http.allowed_hosts` are accepted.
    `is_guarded`: the application checks callers itself.
    """
    app.roster.replace(read_callers(app.config, login=app.contributions.first(TokenIssuer)))
    _set_base_url(app, None)
    host = "127.0.0.1" if app.roster.members.is_open else "0.0.0.0"  # noqa: S104 (nothing is bound)
    endpoint = _make_endpoint(app, host, is_guarded=is_guarded)
    async with create_task_group() as tasks:
        await tasks.start(endpoint.run)
        try:
            yield endpoint
        finally:
            with CancelScope(shield=True):
                await app.gateway.drain(app.config.limits.grace_s, answer_s=_ANSWER_S)
            tasks.cancel_scope.cancel()


def _make_endpoint(
    app: App,
    host: str,
    connections: Connections | None = None,
    *,
    preload_sdk: bool = True,
    is_guarded: bool = False,
) -> HttpEndpoint:
    app.changes.is_served = True
    access = Access(
        host=host,
        roster=app.roster,
        allowed_hosts=app.config.http.allowed_hosts,
        allowed_origins=app.config.http.allowed_origins,
        is_guarded=is_guarded,
        rejected=RejectedTokens(app.gateway.metrics.tokens_rejected),
    )
    body_limit = app.config.http.body_limit_bytes
    contributions, observer = app.contributions, app.contributions.first(Observer)
    http = HttpContext(
        access=access,
        streams=app.shares.streams,
        body_limit=body_limit,
        gateway=app.gateway,
        servers=app.servers,
        finder=app.finder,
        attention=partial(_find_action_items, contributions.all(ActionItems)),
        pages=_list_pages(contributions),
        # An application in front of the endpoint knows its people itself.
        **({} if is_guarded else {"check_browser_write": partial(_check_write, contributions.all(WriteCheck))}),
    )
    own_routes: list[Routes] = [
        make_server_api(http),
        *make_page_kit(http),
        *make_task_routes(http, app.store),
        LoginPages(access, app.servers.logins),
    ]
    # Parts that opened later come first: those of packages before ours.
    part_routes = [routes for api in reversed(contributions.all(Api)) for routes in api.make_routes(http)]
    return HttpEndpoint(
        app.call_handler,
        app.sdk,
        access,
        body_limit=body_limit,
        health=app.health,
        metrics=lambda: app.scrape(connections),
        # Last: it answers all that is left of `/api`.
        routes=[*own_routes, *part_routes, make_openapi(http, [*own_routes, *part_routes], app.health)],
        shares=app.shares,
        preload_sdk=preload_sdk,
        bare_names=app.config.http.bare_names,
        continues_traces=observer is not None,
        on_session_end=observer.end_session if observer is not None else None,
    )


def _list_pages(contributions: Contributions) -> dict[str, str]:
    """Return the paths of all pages for people, by title: first those of the part that has `/`, last that of MCP tasks."""
    pages = contributions.named(Page)
    home = next((part for part, page in pages if page.path == "/"), None)
    of_parts = {page.title: page.path for _, page in sorted(pages, key=lambda each: each[0] != home)}
    return {**of_parts, "Tasks": TASKS_PATH}


def _check_write(checks: Sequence[WriteCheck], request: HttpRequest, admission: Admission) -> None:
    for each in checks:
        each.check(request, admission)


async def _find_action_items(found: Sequence[ActionItems], principal: Principal) -> list[ActionItem]:
    return [item for each in found for item in await each.find(principal)]


async def serve_on_stdio(app: App, wire: StdioStreams, stop: asyncio.Event) -> None:
    """Serve the client that started this process, until it closes its end or `stop` is set."""
    limits = app.config.limits
    message_limit = app.config.http.body_limit_bytes
    view = EVERYTHING.within(scopes_of(app.config.stdio))
    await serve_stdio(
        app.call_handler, app.sdk, wire, message_limit=message_limit, stop=stop, grace_s=limits.grace_s, view=view
    )
