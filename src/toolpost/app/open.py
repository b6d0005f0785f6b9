"""Opens a gateway from settings and parts, in order; closed in reverse. Knows no part by name."""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anyio import create_task_group

from toolpost.admin.specs import specs_of
from toolpost.app.app import App
from toolpost.app.assemble import list_login_targets, make_app, make_plugins, make_servers, principal_of, watch_options
from toolpost.app.callers import note_needs
from toolpost.app.loading import add_project_to_path, load_parts, load_plugins, open_background, open_parts
from toolpost.app.refresh import CatalogRefresher
from toolpost.authoring import Middleware, Plugin
from toolpost.base.caller import Caller, owner_of
from toolpost.base.state_folder import STATE_FOLDER
from toolpost.credentials.server_tokens import ServerTokens
from toolpost.credentials.subjects import SubjectTokens
from toolpost.credentials.vault import Vault
from toolpost.discovery.tool_groups import ToolGroup
from toolpost.discovery.views import SEPARATOR
from toolpost.endpoints.auth.delegated_tokens import DelegatedTokens
from toolpost.endpoints.auth.roster import Claims, Roster
from toolpost.endpoints.input_rounds import RoundsChannels
from toolpost.endpoints.sdk.server_notifications import ServerNotifications
from toolpost.fairness import Callers
from toolpost.host.contributions import Background, Contributions
from toolpost.host.host import Host
from toolpost.manifest import Part, bundled_parts
from toolpost.metrics import Metrics
from toolpost.providers.configured_middleware import name_middleware
from toolpost.providers.learning import StartWait
from toolpost.providers.plugins import Plugins
from toolpost.providers.server_context import ServerAccess
from toolpost.settings import Config
from toolpost.settings.key_place import key_place_of
from toolpost.settings.lock import read_lock
from toolpost.settings.model import check_bundled
from toolpost.store import Store, open_store, store_exists
from toolpost.upstreams.in_process import ServerObject
from toolpost.upstreams.spec import ServerSpec
from toolpost.upstreams.validation.pool import Validators

if TYPE_CHECKING:
    from toolpost.audit.upkeep import AuditUpkeep

STATE_KEY: Final = "request state"
"""The name of the key that signs what clients carry from one round of a call to the next."""

LOGIN_KEY: Final = "login"
"""The name of the key that signs the addresses of logins."""


@dataclass(frozen=True, kw_only=True)
class OpenOptions:
    """How a gateway is opened, where that is not a setting."""

    more_parts: Sequence[Part] = ()
    """Opened after the others."""
    middleware: Sequence[Middleware] = ()
    """Runs around every call, outside of what is configured."""
    enforces_lock: bool = True
    """Whether servers' tools are held to the lock."""
    learn_limit_s: float | None = None
    """How long servers whose tools are not known yet are waited for; later their tools come by themselves."""
    on_wait: Callable[[Collection[str]], None] = lambda _names: None
    """Called with their names when that takes longer than a moment."""
    for_one_command: bool = False
    """Whether it is open for a single command: nothing needs to be watched or prepared for later."""
    tool: str | None = None
    """The only tool that is used: servers that it does not need are left out."""
    credentials_of: Config | None = None
    """A configuration whose store has the credentials, if that exists."""
    config_path: Path | None = None
    """The file that the settings were read from, for parts that change it."""


@asynccontextmanager
async def open_app(
    config: Config,
    *,
    plugins: Sequence[Plugin | ServerObject] = (),
    servers: Sequence[ServerSpec] | None = None,
    parts: Sequence[Part] | None = None,
    bundled: bool = True,
    options: OpenOptions = OpenOptions(),  # noqa: B008 (it is frozen)
) -> AsyncIterator[App]:
    """Open a gateway: store, parts, plugins, servers; closed in reverse.

    Leaving it cancels calls in flight; the store keeps what they recorded. `servers` replace those of the configuration, and
    `parts` those that come with Toolpost and those that are installed. Without `bundled`, neither plugins that come with Toolpost
    nor installed ones are loaded.
    """
    check_bundled(config.plugins.bundled, "plugins.bundled")
    changes, notifications = CatalogRefresher(config), ServerNotifications()
    callers, subjects = Callers(config.limits.share), SubjectTokens()
    roster = Roster(callers=callers, on_verified=partial(_keep_token, subjects))
    tokens = DelegatedTokens(roster)
    contributions, validators = Contributions(), Validators()
    loaded = make_plugins(config, callers, contributions, changes, notifications)
    if parts is None:
        # Before the project's folder is on the path: what lies there is loaded only where it is configured.
        parts = load_parts(config, loaded, installed=bundled and config.plugins.installed)
    loaded.add_middleware(name_middleware(options.middleware))
    add_project_to_path(config)
    async with AsyncExitStack() as stack:
        host = Host(
            config=config,
            store=await stack.enter_async_context(_open_store(config)),
            plugins=loaded,
            metrics=Metrics(),
            callers=callers,
            token_for=tokens.lend,
            config_path=options.config_path,
            principal_of=partial(principal_of, roster, config),
            loads_bundled=bundled,
            for_one_command=options.for_one_command,
        )
        await open_parts([*parts, *options.more_parts], host, contributions, stack)
        load_plugins(host, plugins, contributions)
        specs = specs_of(config, loaded) if servers is None else servers
        specs = specs if options.tool is None else _select_servers(options.tool, specs, loaded, contributions)
        running = make_servers(
            specs,
            host,
            contributions,
            access=await _open_access(host, specs, contributions, subjects, options.credentials_of, stack),
            watch=watch_options(
                config, loaded, validators, locked=read_lock(config.lock_path) if options.enforces_lock else None
            ),
            wait=StartWait(limit_s=options.learn_limit_s, on_wait=options.on_wait),
            changes=changes,
            notifications=notifications,
        )
        for opening in (validators.open_running(), loaded.open_started(), running.open_running()):
            await stack.enter_async_context(opening)
        await loaded.pin_tools(running.watched_tools)
        app = make_app(
            host,
            contributions,
            running,
            roster=roster,
            tokens=tokens,
            changes=changes,
            rounds=RoundsChannels(await host.store.keys.of(STATE_KEY)),
            validators=validators,
            upkeep=(upkeep := _make_upkeep(host)),
        )
        note_needs(roster, running)
        host.set_gateway(app.gateway, running.logins)  # the one late assignment: from here on parts may call tools
        await stack.enter_async_context(_open_calls(app, notifications))
        await stack.enter_async_context(changes.refreshing(app))
        if upkeep is not None:
            await stack.enter_async_context(upkeep.open_running())
        for part, each in contributions.named(Background):
            if each.while_plugin is None or loaded.serves(each.while_plugin):
                await open_background(part, each, stack)
        # Last, so that it closes first: a task that is still running may need any part.
        await stack.enter_async_context(app.call_handler.tasks.runner.open_running(app.gateway))
        yield app


@asynccontextmanager
async def _open_calls(app: App, notifications: ServerNotifications) -> AsyncIterator[None]:
    """Run what goes on beside calls; leaving cancels those in flight."""
    preparation = app.finder.preparation
    async with create_task_group() as tasks:
        tasks.start_soon(notifications.follow, app.sdk)
        tasks.start_soon(preparation.run)
        if app.config.discovery.mode != "all":
            preparation.start()
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()
            await app.gateway.drain(0)
            await app.call_handler.rounds.close()


def _open_store(config: Config) -> AbstractAsyncContextManager[Store]:
    return open_store(
        config.store_url,
        pool=config.store.pool,
        journals=Path(config.project) / STATE_FOLDER,
    )


def _make_upkeep(host: Host) -> "AuditUpkeep | None":
    """Make what passes the audit on and removes its oldest entries; None without either, and for a single command."""
    config, project = host.config, Path(host.config.project)
    limits = config.audit.resolve_retention(project)
    if host.for_one_command or not (config.export or limits.is_limited):
        return None
    from toolpost.audit.upkeep import AuditUpkeep

    exports = [export.resolve(name, project) for name, export in config.export.items()]
    return AuditUpkeep(host.store, exports, limits, network=config.resolve_network(), metrics=host.metrics)


def _select_servers(
    tool: str, specs: Sequence[ServerSpec], plugins: Plugins, contributions: Contributions
) -> Sequence[ServerSpec]:
    """Select the servers that a call of this tool needs: all of them where its name does not tell."""
    bundled = {part.name for part in bundled_parts()}
    # A group has tools of several servers, and another package's part may call any tool.
    if contributions.all(ToolGroup) or not bundled.issuperset(part for part, _ in contributions.named(Background)):
        return specs
    owner = tool.partition(SEPARATOR)[0]
    if named := [spec for spec in specs if spec.name == owner]:
        return named
    return () if any(plugin.name == owner for plugin in plugins.plugins) else specs


async def _open_access(
    host: Host,
    specs: Sequence[ServerSpec],
    contributions: Contributions,
    subjects: SubjectTokens,
    other: Config | None,
    stack: AsyncExitStack,
) -> ServerAccess:
    """Open the credentials of servers: those of the store, or of the store that another configuration names."""
    config, store = host.config, host.store
    is_needed = other is not None and any(spec.caller_values or spec.url for spec in specs)
    if other is not None and is_needed and await store_exists(other.store_url):
        config, store = other, await stack.enter_async_context(open_store(other.store_url, pool=1))
    vault = Vault(store, key_place_of(config))
    server_tokens = ServerTokens(vault, subjects)
    stack.push_async_callback(server_tokens.aclose)
    return ServerAccess(
        vault=vault,
        server_tokens=server_tokens,
        login_key=await host.store.keys.of(LOGIN_KEY),
        other_logins=partial(list_login_targets, contributions),
    )


def _keep_token(subjects: SubjectTokens, caller: Caller, token: bytes, claims: Claims) -> None:
    subjects.keep(owner_of(caller), token, issuer=claims.issuer, expires_at=claims.expires_at)
