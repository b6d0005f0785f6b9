"""The objects of a gateway, and their dependencies. Opens nothing, reads nothing, waits for nothing."""

import sys
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from toolpost.app.app import App
from toolpost.app.callers import mode_scope, scopes_of
from toolpost.app.refresh import CatalogRefresher, catalog_of, listing_of
from toolpost.authoring.middleware import NamedMiddleware
from toolpost.base.caller import Caller, Principal
from toolpost.contracts.lockfile import LockedTools
from toolpost.discovery.automatic import INSTRUCTIONS, AutomaticMcp
from toolpost.discovery.finder import Finder
from toolpost.discovery.preparation import Preparation
from toolpost.discovery.reranker import Reranker, RerankingModel
from toolpost.endpoints.auth.delegated_tokens import DelegatedTokens
from toolpost.endpoints.auth.roster import Roster
from toolpost.endpoints.calls import CallHandler, ObservedCallHandler, write_call_result
from toolpost.endpoints.input_rounds import RoundsChannels
from toolpost.endpoints.observer import Observer
from toolpost.endpoints.sdk.lazy import LazySdk, SdkParts
from toolpost.endpoints.sdk.observed import ObservedRequests
from toolpost.endpoints.sdk.server_notifications import ServerNotifications
from toolpost.endpoints.tasks.endpoint import TaskEndpoint
from toolpost.endpoints.tasks.runner import TaskRunner
from toolpost.fairness import Callers, EndpointShares, Shares
from toolpost.gateway import AgentCallObserver, Gateway, ObservedGateway
from toolpost.host.contributions import Contributions
from toolpost.host.host import Host
from toolpost.middleware.extensions import ExtensionSteps
from toolpost.middleware.interface import CallMiddleware, Guard, RecordListener, ResultLimiter
from toolpost.middleware.pipeline import Pipeline
from toolpost.providers.learning import StartWait
from toolpost.providers.plugin_maker import PluginLimits
from toolpost.providers.plugins import Plugins
from toolpost.providers.relay import AllProviders, Relay
from toolpost.providers.server_context import ServerAccess, ServerListeners
from toolpost.providers.servers import LoginTargets, Servers
from toolpost.providers.watched import WatchOptions
from toolpost.settings import Config
from toolpost.upstreams.server_requests import Sampler, SamplingModel
from toolpost.upstreams.spec import ServerLimits, ServerSpec
from toolpost.upstreams.validation.pool import Validators

if TYPE_CHECKING:
    from toolpost.audit.upkeep import AuditUpkeep


def find_sampler(contributions: Contributions) -> Sampler | None:
    model = contributions.first(SamplingModel)
    return None if model is None else model.answer


def list_login_targets(contributions: Contributions) -> dict[str, ServerSpec]:
    return {name: spec for targets in contributions.all(LoginTargets) for name, spec in targets.list().items()}


def principal_of(roster: Roster, config: Config, caller: Caller) -> Principal | None:
    """Return a caller with the limits that hold for it now; None if it may no longer call."""
    if caller.transport == "http" or caller.is_agent:
        scopes = roster.scopes_of(caller)
        return None if scopes is None else Principal(caller=caller, scopes=scopes, is_admin=caller.is_admin)
    scopes = scopes_of(config.stdio) if caller.transport == "stdio" else ()
    return Principal(caller=caller, scopes=scopes, is_admin=caller.is_admin)


def make_plugins(
    config: Config,
    callers: Callers,
    contributions: Contributions,
    changes: CatalogRefresher,
    notifications: ServerNotifications,
) -> Plugins:
    """Make the place for plugins; they are loaded once parts have contributed theirs."""
    return Plugins(
        limits=PluginLimits(default_timeout_s=config.limits.timeout_s, threads=config.limits.threads, callers=callers),
        chosen=config.plugins.chosen,
        tags=config.plugins.tags,
        notify=notifications.note,
        on_change=changes.note,
        find_sampler=partial(find_sampler, contributions),
    )


def make_servers(
    specs: Iterable[ServerSpec],
    host: Host,
    contributions: Contributions,
    *,
    access: ServerAccess,
    watch: WatchOptions,
    wait: StartWait,
    changes: CatalogRefresher,
    notifications: ServerNotifications,
) -> Servers:
    """Make the servers; none of them runs yet."""
    limits, observer = host.config.limits, contributions.first(Observer)
    return Servers(
        specs,
        limits=ServerLimits(
            callers=host.callers,
            instances=limits.instances,
            waiting=limits.waiting,
            observe=None if observer is None else observer.observe_server,
        ),
        default_timeout_s=limits.timeout_s,
        store=host.store,
        watch=watch,
        access=access,
        listeners=ServerListeners(
            on_change=changes.note,
            on_owner_change=changes.note_owner,
            on_notification=notifications.note,
            sampler=find_sampler(contributions),
        ),
        wait=wait,
    )


def watch_options(
    config: Config, plugins: Plugins, validators: Validators, *, locked: LockedTools | None
) -> WatchOptions:
    """Return what servers' tools are compared with."""
    trusted = [
        plugin.provider for plugin in plugins.plugins if plugin.provider is not None and plugin.contracts == "trusted"
    ]
    return WatchOptions(
        locked=locked,
        mode=config.contracts,
        judge_slowly=lambda server, old, new: validators.judge(old, new, provider=server),
        other_tool_names=[name for provider in trusted for name in provider.tools],
    )


def make_app(
    host: Host,
    contributions: Contributions,
    servers: Servers,
    *,
    roster: Roster,
    tokens: DelegatedTokens,
    changes: CatalogRefresher,
    rounds: RoundsChannels,
    validators: Validators,
    upkeep: "AuditUpkeep | None",
) -> App:
    """Make the gateway and what serves it, with what parts contribute."""
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
        on_recorded=[each.function for each in contributions.all(RecordListener)],
        small_bytes=sys.maxsize if limiter is None else limiter.small_bytes,
    )
    catalog = catalog_of(host, servers, contributions)
    uses: Counter[str] = Counter()
    model, reranking = contributions.first(RerankingModel), config.discovery.reranker
    reranker = (
        Reranker(model.complete, metrics, timeout_s=reranking.timeout_s)
        if model is not None and reranking.models
        else None
    )
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
            write_call_result,
            ttl_s=config.tasks.ttl_s,
            after_s=config.tasks.after_s,
            callers=host.callers,
        )
    )
    handler_type = CallHandler if observer is None else partial(ObservedCallHandler, observer=observer)
    return App(
        upkeep=upkeep,
        config=config,
        store=store,
        plugins=host.plugins,
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
            SdkParts(
                relay=Relay(
                    AllProviders(lambda: host.plugins.contents, servers.providers),
                    for_everyone=host.plugins.for_everyone,
                    refusals=gateway.refusals,
                ),
                audit=store.audit,
                rounds=rounds,
                shares=shares,
                tasks=tasks,
                instructions=INSTRUCTIONS if config.discovery.mode == "automatic" else None,
                instructions_limit=config.limits.instructions,
                middleware=() if observer is None else [ObservedRequests(observer)],
                mode=mode_scope(config, config.modes.mode),
                steps=ExtensionSteps(middleware, guards),
            )
        ),
        shares=shares,
        roster=roster,
        tokens=tokens,
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
