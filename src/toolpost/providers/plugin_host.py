"""Finds, loads, starts and stops plugins. A failed plugin is reported, and the others are served."""

import asyncio
import inspect
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
import pluggy

from toolpost.authoring import Middleware, Plugin, hookspecs
from toolpost.authoring.context import PluginServices
from toolpost.authoring.middleware import NamedMiddleware
from toolpost.authoring.plugin import Change
from toolpost.base.author_code import place_of_error, place_of_function
from toolpost.base.events import event
from toolpost.base.ids import JsonObject
from toolpost.base.nearest import nearest_name
from toolpost.base.server_name import usable_name
from toolpost.contracts.contract import DEFAULT_TIMEOUT_S
from toolpost.contracts.errors import BadConfiguration, PluginFailed, ToolpostError
from toolpost.fairness import Callers, FairQueue
from toolpost.protocol.rpc import encode
from toolpost.providers.contract_watch import Mode
from toolpost.providers.functions import FunctionProvider
from toolpost.providers.plugin_contents import PluginContents, takes_contexts
from toolpost.providers.quarantine import PinnedPlugin
from toolpost.providers.references import list_plugins, resolve, split_reference
from toolpost.upstreams.in_process import InProcessServer, find_given_name, find_in_process_server
from toolpost.upstreams.notifications import PROMPTS_CHANGED, RESOURCE_UPDATED, RESOURCES_CHANGED, Notification
from toolpost.upstreams.server_requests import Sampler

if TYPE_CHECKING:
    from toolpost.providers.watched import WatchedTools

_log = logging.getLogger("toolpost.plugins")

STEP_LIMIT_S = 30.0
_OTHER_KIND_HINT: Final = "start `toolpost serve --reload` again"

PROBLEMS_LIMIT = 20
"""How many different problems are kept for each plugin."""


@dataclass(kw_only=True)
class LoadedPlugin:
    """A plugin and its state."""

    name: str
    reference: str = ""
    """What it was loaded by: `package.module:attribute`, or the name of an entry point."""
    version: str = ""
    state: str = "healthy"
    """`healthy`; `degraded` when some of its tools were refused; `failed` when none of it serves; `disabled`."""
    problems: list[str]
    provider: FunctionProvider | PinnedPlugin | None = None
    contents: PluginContents | None = None
    """Its resources and prompts."""
    unwatch: Callable[[], None] | None = None
    """Ends that its changes are followed."""
    middleware: tuple[Middleware, ...] = ()
    contracts: Mode | Literal["trusted"] = "trusted"
    """As that of its candidate."""
    for_everyone: bool = False
    """As that of its candidate."""

    def as_object(self) -> JsonObject:
        tools = len(self.provider.tools) if self.provider else 0
        report: JsonObject = {"state": self.state, "version": self.version, "tools": tools}
        if self.contents is not None:
            resources, prompts = self.contents.counts
            report |= {"resources": resources} if resources else {}
            report |= {"prompts": prompts} if prompts else {}
        return report | ({"problems": self.problems} if self.problems else {})


@dataclass(frozen=True, kw_only=True)
class PluginCandidate:
    """A plugin that is not loaded yet."""

    name: str
    load: Callable[[], Any]
    version: str = ""
    contracts: Mode | Literal["trusted"] = "trusted"
    """The definitions of a plugin are as trusted as its code. Where others write them, as the document of an API is, its tools
    are held to their lock or pin as those of servers are: `observe` reports changes, `enforce` quarantines changed tools."""
    for_everyone: bool = False
    """Whether every caller sees it, on every path and in every scope: it must show a caller nothing but its own. Annotations as
    read-only hold all the same."""


@dataclass(frozen=True)
class HookSpecs:
    """Hooks that plugins may implement, beside those of the kernel. A part calls them, with `Host.find_hooks`."""

    module: ModuleType
    """Its functions that are marked with `hookspec`."""


def candidates_from(references: Iterable[str]) -> list[PluginCandidate]:
    """Make candidates from references: `package.module:attribute`, `package.module` for a module that is a plugin, or a path."""
    return [PluginCandidate(name=reference, load=lambda r=reference: resolve(r)) for reference in references]  # type: ignore[misc]


MIDDLEWARE_SIGNATURE: Final = "write `async def name(call: CallRequest, proceed: Next) -> CallResult`"


def problem_of_middleware(middleware: Any) -> str | None:
    """Describe why an object is no middleware; None if it may be one."""
    if not callable(middleware):
        return "is not a function"
    if not inspect.iscoroutinefunction(middleware) and not inspect.iscoroutinefunction(type(middleware).__call__):
        return "is not an `async def`"
    try:
        inspect.signature(middleware).bind(object(), object())
    except TypeError:
        return "does not take a call and what comes next"
    return None


def find_installed() -> list[PluginCandidate]:
    """Find the plugins that installed packages declare under the entry point group `toolpost`."""
    return [
        PluginCandidate(name=point.name, load=point.load, version=point.dist.version if point.dist else "")
        for point in sorted(entry_points(group=hookspecs.ENTRY_POINT_GROUP))
    ]


@dataclass(frozen=True, kw_only=True)
class HookImplementation:
    """The implementation of a hook by one plugin."""

    plugin: str
    """The name of the plugin."""
    function: Callable[..., Any]
    takes: tuple[str, ...]
    """The names of its parameters; a hook may offer more."""
    degrade: Callable[[str, BaseException], None]
    """Records a problem of the plugin, which is served all the same."""


class Plugins:
    """All plugins of one gateway."""

    def __init__(
        self,
        *,
        default_timeout_s: float = DEFAULT_TIMEOUT_S,
        threads: int = 40,
        callers: Callers | None = None,
        chosen: Sequence[str] = (),
        tags: Mapping[str, Iterable[str]] = MappingProxyType({}),
        notify: Callable[[Notification], None] = lambda _: None,
        on_change: Callable[[Collection[str]], None] = lambda _: None,
        find_sampler: Callable[[], Sampler | None] = lambda: None,
    ) -> None:
        """Take limits for all tools; `chosen` are plugins that are served alone, whose tools have no prefix.

        `tags` are those of plugins, by name. `notify` sends notifications to clients; `on_change` is called with the name of a
        plugin whose tools have changed. `find_sampler` is asked, when a plugin is loaded, for what answers sampling for plugins
        whose client does not.
        """
        self._tags = tags
        self._notify = notify
        self._on_change = on_change
        self._find_sampler = find_sampler
        self._holder: WatchedTools | None = None
        self._chosen = chosen
        self.plugins: list[LoadedPlugin] = []
        self._started: list[LoadedPlugin] = []
        self.servers: dict[str, InProcessServer] = {}
        """The objects among the candidates that are MCP servers, by name: they are served as servers, not as plugins."""
        self._server_names: dict[str, str] = {}
        """Which name each reference to a server object stands for."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._contents: dict[str, PluginContents] | None = None
        """What `contents` returned last; None after a change."""
        self._configured: list[NamedMiddleware] = []
        self._manager = pluggy.PluginManager("toolpost")
        self._manager.add_hookspecs(hookspecs)
        self._default_timeout_s = default_timeout_s
        # The limit on calls in flight already limits how many wait here.
        self._threads = FairQueue("synchronous tools", callers or Callers(), at_once=threads, waiting=sys.maxsize)

    @property
    def providers(self) -> list[FunctionProvider | PinnedPlugin]:
        """The providers of the plugins that have not failed."""
        return [plugin.provider for plugin in self.plugins if plugin.provider is not None and plugin.state != "failed"]

    @property
    def contents(self) -> Mapping[str, PluginContents]:
        """The plugins that offer more than tools, by name."""
        # Kept: every notification looks into it, once for each session.
        if self._contents is None:
            self._contents = {
                plugin.name: plugin.contents
                for plugin in self.plugins
                if plugin.contents is not None and plugin.state != "failed" and plugin.contents.capabilities
            }
        return self._contents

    def all_middleware(self, of_parts: Sequence[NamedMiddleware] = ()) -> list[NamedMiddleware]:
        """Return the middleware of users, the outermost first: the configured ones, those of parts, those of plugins."""
        return [*self._configured, *of_parts] + [
            NamedMiddleware(f"{plugin.name}:{getattr(function, '__name__', type(function).__name__)}", function)
            for plugin in self.plugins
            if plugin.state in ("healthy", "degraded")
            for function in plugin.middleware
        ]

    def load_middleware(self, references: Iterable[str]) -> None:
        """Load middleware by `package.module:function`; raise `BadConfiguration` if one is missing.

        A plugin that cannot be loaded is left out. Middleware may restrict what callers can do, so nothing is served without it.
        """
        for reference in references:
            try:
                found = resolve(reference)
            except Exception as error:
                raise BadConfiguration(
                    f"middleware.load: `{reference}` cannot be loaded: {type(error).__name__}: {error}",
                    hint="write package.module:function, of a module beside the configuration or an installed one",
                ) from error
            if problem := problem_of_middleware(found):
                raise BadConfiguration(f"middleware.load: `{reference}` {problem}.", hint=MIDDLEWARE_SIGNATURE)
            self._configured.append(NamedMiddleware(reference, found))

    def add_middleware(self, middleware: Iterable[Middleware]) -> None:
        """Take middleware that a program gives, inside what was added or loaded before."""
        self._configured += [
            NamedMiddleware(getattr(function, "__name__", type(function).__name__), function) for function in middleware
        ]

    def serves(self, name: str) -> bool:
        """Whether a plugin of this name was loaded, and has tools."""
        return any(plugin.name == name and plugin.provider is not None for plugin in self.plugins)

    @property
    def companions(self) -> frozenset[str]:
        """Names of the plugins that every caller sees; not of other plugins that were loaded under such a name."""
        return frozenset(
            plugin.name for plugin in self.plugins if plugin.for_everyone and plugin.state in ("healthy", "degraded")
        )

    def load(self, candidate: PluginCandidate, *, disabled: Sequence[str] = ()) -> None:
        """Load one plugin, unless it is disabled; a failure is recorded on it, and not raised."""
        loaded = _unloaded(candidate)
        self.plugins.append(loaded)
        try:
            found = candidate.load()
            server = find_in_process_server(found)
            loaded.name = _name_of(found, candidate) if server is None else _name_of_server(found, candidate)
            if loaded.name in disabled or (self._chosen and loaded.name not in self._chosen):
                loaded.state = "disabled"
            elif server is not None:
                self._add_server(loaded, server)
            else:
                self._register(found, loaded)
        except Exception as error:  # noqa: BLE001 (a plugin may raise anything)
            self._fail(loaded, "could not be loaded", error)

    def keep_chosen(self) -> None:
        """Drop all plugins but the chosen ones, if some are chosen.

        Raises `BadConfiguration` if one is missing or disabled, or if two of them have a tool or a prompt of the same name.
        """
        if not self._chosen:
            return
        for chosen in self._chosen:
            self._check_chosen(chosen)
        self.plugins = [plugin for plugin in self.plugins if plugin.name in self._chosen]
        self._contents = None
        owners: dict[tuple[str, str], str] = {}
        for plugin in self.plugins:
            tools = [] if plugin.provider is None else [t.contract.terms.name for t in plugin.provider.tools.values()]
            prompts = [] if plugin.contents is None else plugin.contents.prompt_names
            for kind, name in (*(("tool", tool) for tool in tools), *(("prompt", prompt) for prompt in prompts)):
                if (owner := owners.setdefault((kind, name), plugin.name)) != plugin.name:
                    raise BadConfiguration(
                        f"The plugins `{owner}` and `{plugin.name}` both have a {kind} `{name}`.",
                        hint="plugins that are served alone have no prefix: serve one of the two, or both without `only`",
                    )

    def _check_chosen(self, chosen: str) -> None:
        if chosen in self.servers:
            return
        names = [plugin.name for plugin in self.plugins]
        found = next((plugin for plugin in self.plugins if plugin.name == chosen), None)
        if found is None:
            near = nearest_name(chosen, names)
            raise BadConfiguration(
                f"Unknown plugin `{chosen}`.",
                hint=f"did you mean `{near}`?" if near else f"the plugins here: {', '.join(sorted(names))}",
            )
        if found.state == "disabled":
            raise BadConfiguration(
                f"The plugin `{chosen}` is to be served alone, and is disabled.", hint="check plugins.disable"
            )

    def add_hooks(self, hooks: HookSpecs) -> None:
        """Let plugins implement these hooks; before plugins are loaded."""
        self._manager.add_hookspecs(hooks.module)

    def implementations(self, hook: str) -> list[HookImplementation]:
        """Return the implementations of a hook by plugins that are served, in the order of their calls."""
        by_name = {plugin.name: plugin for plugin in self.plugins if plugin.state in ("healthy", "degraded")}
        found = reversed(getattr(self._manager.hook, hook).get_hookimpls())
        return [
            HookImplementation(
                plugin=impl.plugin_name,
                function=impl.function,
                takes=tuple(impl.argnames),
                degrade=partial(self.degrade, by_name[impl.plugin_name]),
            )
            for impl in found
            if impl.plugin_name in by_name
        ]

    def degrade(self, plugin: LoadedPlugin, what: str, error: BaseException) -> None:
        """Record a problem of a plugin that is served all the same."""
        why = error.message if isinstance(error, ToolpostError) else f"{type(error).__name__}: {error}"
        problem = f"plugin `{plugin.name}` {what}: {why}"
        if plugin.state == "healthy":
            plugin.state = "degraded"
        if problem not in plugin.problems and len(plugin.problems) < PROBLEMS_LIMIT:
            plugin.problems.append(problem)

    @asynccontextmanager
    async def open_started(self) -> AsyncIterator[None]:
        """Run the start hooks of the loaded plugins; leaving runs the stop hooks in reverse."""
        self._loop = asyncio.get_running_loop()
        try:
            for plugin in self.plugins:
                if plugin.provider is None or plugin.state == "failed":
                    continue
                if await self._run_hook(plugin, "toolpost_start", "could not be started"):
                    self._started.append(plugin)
            yield
        finally:
            with anyio.CancelScope(shield=True):
                for plugin in self.plugins:
                    if plugin.unwatch is not None:
                        plugin.unwatch()
                        plugin.unwatch = None
                for plugin in reversed(self._started):
                    await self._run_hook(plugin, "toolpost_stop", "could not be stopped")

    async def pin_tools(self, holder: "WatchedTools") -> None:
        """Have the tools of plugins whose definitions others write held to their lock or pin, now and after a reload."""
        self._holder = holder
        for plugin in self.plugins:
            await self._hold(plugin)

    async def _hold(self, plugin: LoadedPlugin) -> None:
        if plugin.contracts != "trusted" and self._holder is not None and isinstance(plugin.provider, FunctionProvider):
            plugin.provider = held = await self._holder.hold(plugin.provider, plugin.contracts)
            if held.degraded is not None:
                plugin.state = "degraded"
                plugin.problems.append(f"plugin `{plugin.name}` is degraded: {held.degraded}")

    async def reload(
        self, candidate: PluginCandidate, *, apply_servers: Callable[[], Awaitable[None]] | None = None
    ) -> LoadedPlugin | str:
        """Load a plugin, and serve it in place of the one that was loaded by the same reference, if there is one.

        Raises what the plugin raises, or `PluginFailed` for tools that cannot be listed; the former one is served on then. The
        new one starts before the old one stops, so that there is always one that answers. A server object is started by
        `apply_servers`, which takes `servers` over or raises; its name is returned.
        """
        found = candidate.load()
        if apply_servers is not None and (server := find_in_process_server(found)) is not None:
            name = _name_of_server(found, candidate)
            await self._replace_server(candidate.name, name, server, apply_servers)
            return name
        if candidate.name in self._server_names:
            raise PluginFailed("it was a server object and is a plugin now", hint=_OTHER_KIND_HINT)
        return await self._replace_plugin(candidate, found)

    async def _replace_plugin(self, candidate: PluginCandidate, found: Any) -> LoadedPlugin:
        index = next((i for i, plugin in enumerate(self.plugins) if plugin.reference == candidate.name), None)
        old = self.plugins[index] if index is not None else _unloaded(candidate)
        new = _unloaded(candidate)
        new.name = _name_of(found, candidate)
        stop_old: Callable[[], Any] = lambda: None  # noqa: E731 (one that did not load has nothing to stop)
        old_object = self._manager.get_plugin(old.name) if index is not None else None
        if old_object is not None:
            stop_old = self._hook(old, "toolpost_stop")
            self._manager.unregister(name=old.name)
        try:
            self._register(found, new)
            if new.problems:
                raise PluginFailed("; ".join(new.problems))
            with anyio.fail_after(STEP_LIMIT_S):
                await _call_step(self._hook(new, "toolpost_start"))
            await self._hold(new)
        except BaseException:
            if new.unwatch is not None:
                new.unwatch()
            if self._manager.get_plugin(new.name) is found:
                self._manager.unregister(name=new.name)
            if old_object is not None:
                self._manager.register(old_object, old.name)
            raise
        if index is None:
            self.plugins.append(new)
        else:
            self.plugins[index] = new
        await self._retire(old, new, stop_old)
        return new

    async def remove(self, reference: str) -> None:
        """Serve a plugin no longer, and stop it; nothing to do if none was loaded by this reference."""
        for old in [plugin for plugin in self.plugins if plugin.reference == reference]:
            self.plugins.remove(old)
            stop: Callable[[], Any] = lambda: None  # noqa: E731 (one that did not load has nothing to stop)
            if old.provider is not None and self._manager.has_plugin(old.name):
                stop = self._hook(old, "toolpost_stop")
                self._manager.unregister(name=old.name)
            if self._holder is not None:
                self._holder.release(old.name)
            await self._retire(old, None, stop)

    async def _retire(self, old: LoadedPlugin, new: LoadedPlugin | None, stop: Callable[[], Any]) -> None:
        """Stop a plugin that is no longer among those that are served, after clients were told of what is there now."""
        self._contents = None
        if old.unwatch is not None:
            old.unwatch()
        self._tell_of(old, new or old)
        was_started = old in self._started
        self._started = [plugin for plugin in self._started if plugin is not old] + ([new] if new is not None else [])
        if was_started:
            try:
                with anyio.fail_after(STEP_LIMIT_S):
                    await _call_step(stop)
            except Exception as error:  # noqa: BLE001 (a plugin may raise anything)
                event(_log, logging.ERROR, "plugin could not be stopped", plugin=old.name, exception=error)

    async def _replace_server(
        self, reference: str, name: str, server: InProcessServer, apply_servers: Callable[[], Awaitable[None]]
    ) -> None:
        loaded = [plugin for plugin in self.plugins if plugin.reference == reference]
        if any(plugin.provider is not None for plugin in loaded):
            raise PluginFailed("it was a plugin and is a server object now", hint=_OTHER_KIND_HINT)
        former_name = self._server_names.get(reference)
        former_servers = self.servers
        others = {other: kept for other, kept in former_servers.items() if other != former_name}
        if name in others or self.serves(name):
            raise PluginFailed(self._explain_taken(name, reference))
        self.servers = {**others, name: server}
        try:
            await apply_servers()
        except BaseException:
            self.servers = former_servers
            raise
        self._server_names[reference] = name
        # What could not be loaded at the start was kept as a failed plugin.
        self.plugins = [plugin for plugin in self.plugins if plugin.reference != reference]

    def _tell_of(self, old: LoadedPlugin, new: LoadedPlugin) -> None:
        """Have the tools of a plugin listed again, and clients told of its resources and prompts."""
        self._on_change({old.name, new.name})
        counts = [plugin.contents.counts if plugin.contents is not None else (0, 0) for plugin in (old, new)]
        for position, method in enumerate((RESOURCES_CHANGED, PROMPTS_CHANGED)):
            if any(count[position] for count in counts):
                tags = frozenset(self._tags.get(new.name, ()))
                self._notify(Notification(server=new.name, key="", method=method, params=b"{}", tags=tags))

    def note_failure(self, name: str, what: str, error: Exception) -> None:
        """Keep what went wrong with something that would have brought plugins, to be shown among them."""
        loaded = LoadedPlugin(name=name, problems=[])
        self.plugins.append(loaded)
        self._fail(loaded, what, error)

    def _add_server(self, loaded: LoadedPlugin, server: InProcessServer) -> None:
        others = {plugin.name for plugin in self.plugins if plugin is not loaded}
        if loaded.name in others or loaded.name in self.servers:
            raise PluginFailed(self._explain_taken(loaded.name, loaded.reference))
        self.plugins.remove(loaded)
        self.servers[loaded.name] = server
        self._server_names[loaded.reference] = loaded.name

    def _explain_taken(self, name: str, reference: str) -> str:
        by_name = {server: held for held, server in self._server_names.items()}
        by_name |= {plugin.name: plugin.reference for plugin in reversed(self.plugins)}
        first = by_name.get(name) or name
        both = "another plugin is already" if name in (first, reference) else f"`{first}` and `{reference}` are both"
        return f"{both} named `{name}`; load one of them, or give one another name"

    def tags_of(self, name: str) -> frozenset[str]:
        """Return the tags that are configured for a plugin."""
        return frozenset(self._tags.get(name, ()))

    def _register(self, found: Any, loaded: LoadedPlugin) -> None:
        loaded.version = getattr(found, "version", "") or getattr(found, "__version__", "") or loaded.version
        if self._manager.has_plugin(loaded.name) or loaded.name in self.servers:
            raise PluginFailed(self._explain_taken(loaded.name, loaded.reference))
        self._manager.register(found, loaded.name)
        if inspect.isclass(found) or not self._manager.get_hookcallers(found):
            self._manager.unregister(name=loaded.name)
            raise PluginFailed(_explain_no_plugin(found, loaded.reference))
        self._check_hooks(found)
        tools = list(self._hook(loaded, "toolpost_tools")() or ())
        loaded.middleware = tuple(self._hook(loaded, "toolpost_middleware")() or ())
        for function in loaded.middleware:
            if problem := problem_of_middleware(function):
                raise PluginFailed(f"middleware {function!r} {problem}", hint=MIDDLEWARE_SIGNATURE)
        services = PluginServices(
            plugin=loaded.name,
            notify=self._notify,
            tags=self.tags_of(loaded.name),
            sampler=self._find_sampler(),
        )
        loaded.contents = PluginContents(
            loaded.name,
            resources=self._hook(loaded, "toolpost_resources")() or (),
            prompts=self._hook(loaded, "toolpost_prompts")() or (),
            services=services,
            default_timeout_s=self._default_timeout_s,
            threads=self._threads,
            has_logging=takes_contexts(tools),
            is_bare=bool(self._chosen),
        )
        loaded.provider = provider = FunctionProvider(
            loaded.name,
            tools,
            version=loaded.version,
            # A module may have anything under that name.
            description=description if isinstance(description := getattr(found, "description", ""), str) else "",
            default_timeout_s=self._default_timeout_s,
            threads=self._threads,
            bare=bool(self._chosen),
            services=services,
        )
        self._contents = None
        if isinstance(found, Plugin):
            self._follow(found, loaded, provider, services)
        for refusal, tool in zip(provider.refused, provider.refused_tools, strict=True):
            loaded.state = "degraded"
            place = place_of_function(tool.function)
            reason = f"{refusal.message} ({place})" if place else refusal.message
            loaded.problems.append(reason)
            event(_log, logging.ERROR, "tool refused", plugin=loaded.name, reason=reason)

    def _check_hooks(self, found: Any) -> None:
        known = [name for name, caller in vars(self._manager.hook).items() if getattr(caller, "spec", None) is not None]
        for caller in self._manager.get_hookcallers(found) or ():
            mine = next(each for each in caller.get_hookimpls() if each.plugin is found)
            if caller.has_spec() or mine.optionalhook:
                continue
            near = nearest_name(caller.name, known)
            raise PluginFailed(
                f"unknown hook `{caller.name}`",
                hint=f"did you mean `{near}`?" if near else f"known: {', '.join(sorted(known))}",
            )

    def _follow(
        self, plugin: Plugin, loaded: LoadedPlugin, provider: FunctionProvider, services: PluginServices
    ) -> None:
        """Serve what a plugin adds and removes from now on, and notify clients."""
        changed = {"resources": RESOURCES_CHANGED, "prompts": PROMPTS_CHANGED, "updated": RESOURCE_UPDATED}

        def on_change(change: Change, uri: str) -> None:
            assert loaded.contents is not None
            if change == "tools":
                provider.replace(plugin.toolpost_tools())
                self._call_on_loop(lambda: self._on_change([loaded.name]))
                return
            loaded.contents.replace(plugin.toolpost_resources(), plugin.toolpost_prompts())
            self._contents = None
            notification = Notification(
                server=loaded.name,
                key="",
                method=changed[change],
                params=encode({"uri": uri}) if uri else b"{}",
                tags=services.tags,
            )
            self._call_on_loop(lambda: self._notify(notification))

        loaded.unwatch = plugin.watch(on_change)

    def _call_on_loop(self, function: Callable[[], None]) -> None:
        """Call a function on the event loop of the gateway; a plugin may change in any thread, and before there is a loop."""
        if self._loop is None:
            function()
        else:
            self._loop.call_soon_threadsafe(function)

    def _hook(self, plugin: LoadedPlugin, name: str) -> Callable[[], Any]:
        """Return one plugin's implementation of a hook. Not called through pluggy: the failure of one must not affect others."""
        registered = self._manager.get_plugin(plugin.name)
        is_implemented = self._manager.parse_hookimpl_opts(registered, name) is not None
        return getattr(registered, name) if is_implemented else lambda: None

    async def _run_hook(self, plugin: LoadedPlugin, step: str, failure: str) -> bool:
        try:
            with anyio.fail_after(STEP_LIMIT_S):
                await _call_step(self._hook(plugin, step))
        except Exception as error:  # noqa: BLE001 (a plugin may raise anything)
            self._fail(plugin, failure, error)
            return False
        return True

    def _fail(self, plugin: LoadedPlugin, what: str, error: Exception) -> None:
        plugin.state = "failed"
        self._contents = None
        why = error.message if isinstance(error, ToolpostError) else f"{type(error).__name__}: {error}"
        if (place := place_of_error(error)) is not None:
            why = f"{why} ({place})"
        if isinstance(error, ToolpostError) and error.hint:
            why = f"{why.rstrip('.')}; {error.hint}"
        plugin.problems.append(f"plugin `{plugin.name}` {what}: {why}")
        event(_log, logging.ERROR, f"plugin {what}", plugin=plugin.name, reason=why, exception=error)


def _unloaded(candidate: PluginCandidate) -> LoadedPlugin:
    return LoadedPlugin(
        name=candidate.name,
        reference=candidate.name,
        version=candidate.version,
        contracts=candidate.contracts,
        for_everyone=candidate.for_everyone,
        problems=[],
    )


async def _call_step(step: Callable[[], Any]) -> None:
    pending = step()
    if inspect.isawaitable(pending):
        await pending


def _explain_no_plugin(found: Any, reference: str) -> str:
    """Say what a reference leads to that is not a plugin, and what was probably meant."""
    if inspect.ismodule(found):
        meant = " or ".join(f"`{reference}:{name}`" for name in list_plugins(found))
        return "the module is no plugin" + (f"; did you mean {meant}?" if meant else " and has none in it")
    if inspect.isclass(found):
        return f"`{reference}` is a class; name an object of it: `plugin = {found.__name__}()`"
    return f"`{reference}` is neither a plugin nor a server, but of the type `{type(found).__name__}`"


def _name_of(found: Any, candidate: PluginCandidate) -> str:
    """Return the plugin's own name, else the last part of its reference."""
    if isinstance(found, Plugin):
        return found.name
    module, attribute = split_reference(candidate.name)
    return (attribute or module).rsplit(".", 1)[-1]


def _name_of_server(found: Any, candidate: PluginCandidate) -> str:
    """Return the name of a server object as a prefix of tools; of one without a name, the name of its module."""
    return usable_name(find_given_name(found) or split_reference(candidate.name)[0].rsplit(".", 1)[-1])
