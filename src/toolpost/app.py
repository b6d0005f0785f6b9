"""The parts put together: opened in order, closed in reverse. The only place that constructs."""

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anyio import CancelScope, create_task_group

from toolpost.authoring import Plugin
from toolpost.base.events import event
from toolpost.contracts.errors import BadConfiguration, CapabilityMissing
from toolpost.discovery import EVERYTHING
from toolpost.discovery.automatic import INSTRUCTIONS
from toolpost.discovery.automatic_mcp import AutomaticMcp
from toolpost.discovery.finder import Finder
from toolpost.discovery.preparation import Preparation
from toolpost.discovery.reranker import Reranker, RerankerSpec
from toolpost.endpoints.auth.access import Access
from toolpost.endpoints.auth.delegated_tokens import RosterDoors
from toolpost.endpoints.auth.roster import Roster
from toolpost.endpoints.calls import Lane, call_result
from toolpost.endpoints.http.admin import Admin
from toolpost.endpoints.http.app import HttpEndpoint
from toolpost.endpoints.http.connection_limits import ConnectionLimits, Connections, default_total
from toolpost.endpoints.http.descriptors import raise_descriptor_limit
from toolpost.endpoints.http.listener import bound_socket, open_http_server
from toolpost.endpoints.http.paths import MCP_PATH
from toolpost.endpoints.input_rounds import Rounds
from toolpost.endpoints.sdk.lazy import LateSdk
from toolpost.endpoints.stdio import Wire, serve_stdio
from toolpost.endpoints.tasks import TaskLane
from toolpost.gateway import Gateway
from toolpost.members import members_of, scopes_of
from toolpost.metrics import Metrics
from toolpost.middleware import Pipeline
from toolpost.parts.bus.beads import Beads, has_beads
from toolpost.parts.bus.plugin import bus_plugin
from toolpost.parts.bus.service import Bus
from toolpost.parts.bus.tasks import Times
from toolpost.parts.conversations import (
    Agent,
    AgentSpec,
    Crew,
    Harness,
    HarnessLimits,
    HistoryLimits,
    Hooks,
    PoolLimits,
    ReadyAgent,
)
from toolpost.parts.conversations.agent_kinds import LateAgent
from toolpost.parts.conversations.api.routes import TalkApi
from toolpost.parts.tasks.runner import DeferredCalls
from toolpost.parts.workspace.optional import EXTRA_HINT, missing_modules
from toolpost.parts.workspace.plugin import workspace_plugin
from toolpost.parts.workspace.service import Desk
from toolpost.parts.workspace.spec import Limits, WorkspaceSpec, spec_of
from toolpost.plugins import BUNDLED, FOR_CONVERSATIONS
from toolpost.plugins.time import plugin as time_plugin
from toolpost.protocol.era import MODERN
from toolpost.providers.plugin_host import (
    Candidate,
    PluginHost,
    candidates_made_by,
    candidates_of,
    installed_candidates,
)
from toolpost.providers.promises import Promises
from toolpost.providers.relay import Relay
from toolpost.providers.server_host import ServerHost
from toolpost.running import App, Changes, Hearsay, catalogue_of, listing_of
from toolpost.settings import Config
from toolpost.settings.lock import read_lock
from toolpost.settings.masking import concealing
from toolpost.settings.model import check_bundled
from toolpost.shares import Callers, EndpointShares, Shares
from toolpost.store import Store, open_store
from toolpost.upstreams.spec import ServerLimits, ServerSpec
from toolpost.upstreams.validation.pool import Validators

if TYPE_CHECKING:
    from toolpost.discovery.embedder import Embedder

_log = logging.getLogger("toolpost.app")

STATE_KEY: Final = "request state"
"""The name of the key that signs what clients carry from one round of a call to the next."""


@asynccontextmanager
async def open_app(
    config: Config,
    *,
    plugins: Sequence[Plugin] = (),
    bundled: bool = True,
    servers: Sequence[ServerSpec] | None = None,
    holds: bool = True,
    learn_limit_s: float | None = None,
    agents: Mapping[str, Agent] | None = None,
    on_wait: Callable[[Collection[str]], None] | None = None,
) -> AsyncIterator[App]:
    """Open a Toolpost: store, plugins, servers, gateway, conversations. Leaving it cancels what is in flight, and keeps it.

    Its servers' tools are held to the lock, unless whoever opens it compares them by itself. `learn_limit_s` is how long
    servers whose tools nobody has seen are waited for; later their tools come by themselves; `on_wait` is told their names
    when that takes longer than a moment. `agents` answer beside those that are configured.
    """
    changes, news = Changes(config), Hearsay()
    callers = Callers(config.limits.share)
    async with (
        open_store(config.store_url, pool=config.store.pool, retry_s=config.store.retry_s) as store,
        _open_reranker(config, metrics := Metrics()) as reranker,
    ):
        embedder = _embedder(config)
        bus = bus_of(config, store, metrics, callers)
        desk = Desk(workspace_of(config))
        has_agents = bool(agents) or bool(config.agents)
        ours = _bundled_candidates(config, bus, desk, callers) if bundled else None
        host = _loaded_host(config, plugins, callers, ours=ours, has_agents=has_agents)
        harness = _harness(config, store, host, metrics, agents or {}, callers)
        validators = Validators()
        behind = ServerHost(
            specs_of(config, host) if servers is None else servers,
            ServerLimits(callers=callers, instances=config.limits.instances, waiting=config.limits.waiting),
            known=store.known_tools,
            promises=Promises(
                pins=store.pins,
                locked=read_lock(config.lock_path) if holds else None,
                judge_slowly=lambda server, old, new: validators.judge(old, new, source=server),
            ),
            contracts=config.contracts,
            default_timeout_s=config.limits.timeout_s,
            on_change=changes.note,
            beside=[name for source in host.sources for name in source.tools],
            on_news=news.note,
            learn_limit_s=learn_limit_s,
            on_wait=on_wait,
        )
        sweeping = bus.open_sweeping() if bundled and _is_served("bus", host) else nullcontext()
        is_watched = bundled and config.workspace.watch and _is_served("workspace", host)
        if bundled and config.workspace.watch and not is_watched:
            hint = 'plugins.bundled = ["workspace"] loads the plugin'
            event(_log, logging.WARNING, "workspace.watch has no effect", hint=hint)
        watching = desk.open_watching() if is_watched else nullcontext()
        async with validators.open_running(), host.open_started(), behind.open_running(), sweeping, watching:
            rounds = Rounds(await store.keys.of(STATE_KEY))
            app = _assembled(
                config,
                store,
                host,
                behind,
                changes,
                metrics,
                reranker,
                embedder,
                bus,
                rounds,
                harness,
                callers,
                validators,
            )
            async with harness.open_running(), create_task_group() as tasks:
                tasks.start_soon(changes.follow, app)
                tasks.start_soon(news.follow, app)
                tasks.start_soon(app.finder.preparation.run)
                if embedder is not None:
                    tasks.start_soon(embedder.run)
                if config.discovery.mode != "all":
                    app.finder.preparation.start()
                await harness.hooks.notify("toolpost_conversations", conversations=harness)
                try:
                    async with app.deferred.open_carrying():
                        yield app
                finally:
                    tasks.cancel_scope.cancel()
                    await app.gateway.drain(0)
                    await app.lane.rounds.closed()


def specs_of(config: Config, host: PluginHost) -> list[ServerSpec]:
    """Read the servers out of the configuration; a name can be a plugin's or a server's, not both's."""
    if config.plugins.only is not None:
        return []
    specs = [_spec_of(config, name) for name, server in config.servers.items() if server.enabled]
    taken = {plugin.name for plugin in host.plugins if plugin.source is not None}
    if clashes := sorted(spec.name for spec in specs if spec.name in taken):
        raise BadConfiguration(
            f"servers.{clashes[0]}: a plugin has this name already.",
            hint=f'rename the server, or leave the plugin out: plugins.disable = ["{clashes[0]}"]',
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
    return ServerSpec(**vars(resolved), conceal=concealing(resolved))


@asynccontextmanager
async def _open_reranker(config: Config, metrics: Metrics) -> AsyncIterator[Reranker | None]:
    """Make what asks for a second opinion, where one is configured; leaving closes its connections."""
    settings = config.discovery.reranker
    if settings.url is None:
        yield None
        return
    spec = RerankerSpec(
        url=settings.url,
        model=settings.model,
        key=settings.key(),
        timeout_s=settings.timeout_s,
        candidates=settings.candidates,
    )
    reranker = Reranker(spec, metrics)
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
    config: Config,
    store: Store,
    host: PluginHost,
    servers: ServerHost,
    changes: "Changes",
    metrics: Metrics,
    reranker: Reranker | None,
    embedder: "Embedder | None",
    bus: Bus,
    rounds: Rounds,
    harness: Harness,
    callers: Callers,
    validators: Validators,
) -> App:
    shares = _shares(config, callers)
    pipeline = Pipeline(
        store.audit,
        shares.calls,
        callers,
        waiting_limit=config.limits.waiting,
        validators=validators,
        middleware=host.middleware,
    )
    catalogue = catalogue_of(config, host, servers)
    uses: Counter[str] = Counter()
    finder = Finder(Preparation(catalogue, metrics, embedder), uses=uses, reranker=reranker, embedder=embedder)
    finding = AutomaticMcp(finder, store.seen, metrics)
    gateway = Gateway(catalogue, pipeline, finding=finding, metrics=metrics, uses=uses)
    gateway.conversations = harness
    lane = Lane(gateway, listing_of(config, gateway.catalogue, config.discovery.mode), rounds)
    deferred = DeferredCalls(
        store,
        gateway,
        lambda answer: call_result(answer, MODERN),
        ttl_s=config.tasks.ttl_s,
        after_s=config.tasks.after_s,
        limit=config.limits.tasks,
        callers=callers,
    )
    lane.tasks = TaskLane(deferred)
    return App(
        config=config,
        store=store,
        host=host,
        servers=servers,
        gateway=gateway,
        lane=lane,
        sdk=LateSdk(
            Relay(servers.sources),
            store.audit,
            rounds,
            shares,
            INSTRUCTIONS if config.discovery.mode == "automatic" else None,
            lane.tasks,
        ),
        shares=shares,
        roster=Roster(callers=callers),
        changes=changes,
        finder=finder,
        bus=bus,
        deferred=deferred,
        harness=harness,
    )


def _shares(config: Config, callers: Callers) -> EndpointShares:
    limits = config.limits
    return EndpointShares(
        callers=callers,
        calls=Shares("calls in flight", limits.calls, callers),
        sessions=Shares("sessions", limits.sessions, callers),
        streams=Shares("event streams", limits.streams, callers, retry_s=5),
    )


def _harness(
    config: Config,
    store: Store,
    host: PluginHost,
    metrics: Metrics,
    given: Mapping[str, Agent],
    callers: Callers,
) -> Harness:
    settings = config.harness
    specs = [_agent_spec_of(config, name) for name, agent in config.agents.items() if agent.enabled]
    for spec in specs:
        concealing(ServerSpec(name=spec.name, command=spec.command or None, env=spec.env))
    ready = {spec.name: ReadyAgent(spec=spec, agent=LateAgent(spec)) for spec in specs}
    cwd = Path(config.project).absolute()
    ready |= {
        name: ReadyAgent(spec=AgentSpec(name=name, kind="given", cwd=cwd), agent=agent) for name, agent in given.items()
    }
    if settings.default is not None and settings.default not in ready:
        raise BadConfiguration(
            f"harness.default: no agent is called `{settings.default}`.",
            hint=f"known: {', '.join(ready)}" if ready else "add [agents.NAME]",
        )
    limits = HarnessLimits(
        pool=PoolLimits(
            size=settings.sessions, idle_s=settings.idle_s, open_s=settings.open_s, waiting=settings.waiting
        ),
        history=HistoryLimits(messages=settings.history_messages, tokens=settings.history_tokens),
        waiting=settings.waiting_in_thread,
        cancel_s=settings.cancel_s,
        kept=config.limits.conversations,
    )
    crew = Crew(ready, store.threads, settings.default)
    return Harness(
        store.threads,
        crew,
        Hooks(host),
        limits=limits,
        metrics=metrics,
        key_values=store.key_values,
        wakeups=store.wakeups,
        callers=callers,
    )


def _agent_spec_of(config: Config, name: str) -> AgentSpec:
    """Read one agent; one whose variables cannot be filled in is there too, and says so instead of starting."""
    try:
        return AgentSpec(**vars(config.resolve_agent(name)))
    except BadConfiguration as error:
        settings = config.agents[name]
        return AgentSpec(name=name, kind=settings.kind, problem=error.message.removesuffix("."), hint=error.hint)


def _bundled_candidates(config: Config, bus: Bus, desk: Desk, callers: Callers) -> list[Candidate]:
    """Return the plugins of ours that are configured; each is a candidate where one is to be served alone."""
    check_bundled(config.plugins.bundled, "plugins.bundled")
    makers: dict[str, Callable[[], Plugin]] = {
        "bus": lambda: bus_plugin(bus),
        "time": lambda: time_plugin,
        "workspace": lambda: _workspace_plugin(desk, callers),
    }
    chosen = BUNDLED if config.plugins.only is not None else config.plugins.bundled
    return [Candidate(name=name, load=makers[name]) for name in BUNDLED if name in chosen]


def _workspace_plugin(desk: Desk, callers: Callers) -> Plugin:
    """Make the plugin, unless what it is made of is not installed: tools that cannot run are not listed."""
    if missing := missing_modules():
        raise CapabilityMissing(f"{', '.join(missing)} is missing: {EXTRA_HINT} brings it")
    return workspace_plugin(desk, callers)


def _loaded_host(
    config: Config, plugins: Sequence[Plugin], callers: Callers, *, ours: Sequence[Candidate] | None, has_agents: bool
) -> PluginHost:
    """Load plugins; `ours` are those that come with Toolpost, None where neither they nor installed ones are served."""
    host = PluginHost(
        default_timeout_s=config.limits.timeout_s,
        threads=config.limits.threads,
        callers=callers,
        only=config.plugins.only,
    )
    # A plugin beside the configuration is found; last, so that it shadows nothing that is installed.
    if (folder := str(Path(config.project).resolve())) not in sys.path:
        sys.path.append(folder)
    host.load_middleware(config.middleware.load)
    given = [Candidate(name=plugin.name, load=lambda p=plugin: p) for plugin in plugins]  # type: ignore[misc]
    bundled, others = list(ours or ()), candidates_of(config.plugins.load)
    if ours is not None:
        bundled += candidates_made_by(FOR_CONVERSATIONS) if has_agents else []
        others = (installed_candidates() if config.plugins.installed else []) + others
    # A server that somebody has set up under the name of a plugin that we bring takes its place.
    taken = [] if config.plugins.only else [name for name, server in config.servers.items() if server.enabled]
    for candidate in given:
        host.load(candidate, disabled=config.plugins.disable)
    for candidate in bundled:
        host.load(candidate, disabled=[*config.plugins.disable, *taken])
    for candidate in others:
        host.load(candidate, disabled=config.plugins.disable)
    host.keep_chosen()
    return host


def bus_of(config: Config, store: Store, metrics: Metrics | None = None, callers: Callers | None = None) -> Bus:
    """Make the bus of a store, as it is configured."""
    chosen = config.bus
    times = Times(
        offer_s=chosen.offer_s,
        run_s=chosen.lease_s,
        stuck_s=chosen.stuck_s,
        retry_s=chosen.retry_s,
        retry_limit_s=chosen.retry_limit_s,
        attempts=chosen.attempts,
        age_s=chosen.age_s,
    )
    project = Path(config.project)
    is_tracked = chosen.beads == "on" or (chosen.beads == "auto" and has_beads(project))
    tracker = Beads(project) if is_tracked else None
    return Bus(store, times=times, capacity=chosen.capacity, tracker=tracker, metrics=metrics, callers=callers)


def workspace_of(config: Config) -> WorkspaceSpec:
    """Read the workspace out of the configuration."""
    settings = config.workspace
    return spec_of(
        Path(config.project),
        settings.roots or ["."],
        index_dir=settings.index_dir,
        limits=Limits(file_bytes=settings.file_limit_bytes, files=settings.files),
        build_limit_s=settings.build_timeout_s,
        settle_s=settings.settle_s,
        forbidden=frozenset(config.secret_files),
        allowed=settings.allow_secret_files,
    )


def _is_served(name: str, host: PluginHost) -> bool:
    return any(plugin.name == name and plugin.source is not None for plugin in host.plugins)


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
    app.changes.is_served = True
    access = Access(
        host=host,
        roster=app.roster,
        allowed_hosts=app.config.http.allowed_hosts,
        allowed_origins=app.config.http.allowed_origins,
    )
    body_limit = app.config.http.body_limit_bytes
    connections = Connections(limits_of(app.config), app.gateway.metrics)
    admin = Admin(access, lambda: app.servers.sources, app.servers.watch, concealing)
    talks = TalkApi(access, app.harness, app.shares.streams, body_limit=body_limit, health=app.health)
    endpoint = HttpEndpoint(
        app.lane,
        app.sdk,
        access,
        body_limit=body_limit,
        health=app.health,
        metrics=lambda: app.metrics(connections),
        admin=admin,
        talks=talks,
        shares=app.shares,
        loads_early=loads_early,
        bare_names=app.config.http.bare_names,
    )
    with bound_socket(host, port) as listener:
        async with open_http_server(endpoint, listener, connections):
            shown = f"[{host}]" if ":" in host else host
            url = f"http://{shown}:{listener.getsockname()[1]}{MCP_PATH}"
            app.harness.crew.keeper = RosterDoors(app.roster, url)
            try:
                yield url
            finally:
                app.harness.crew.keeper = None
                with CancelScope(shield=True):
                    await app.gateway.drain(app.config.limits.grace_s)


async def serve_on_stdio(app: App, wire: Wire, stop: asyncio.Event) -> None:
    """Serve the client that started this process, until it closes its end or `stop` is set."""
    limits = app.config.limits
    message_limit = app.config.http.body_limit_bytes
    view = EVERYTHING.within(scopes_of(app.config.stdio))
    await serve_stdio(
        app.lane, app.sdk, wire, message_limit=message_limit, stop=stop, grace_s=limits.grace_s, view=view
    )
