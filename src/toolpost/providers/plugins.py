"""The plugins of one gateway: loaded, started, replaced and stopped. A failed plugin is reported, and the others are served.

`plugin_maker` makes their tools, `plugin_hooks` has their hooks, `plugin_candidates` what is not loaded yet.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio import to_thread

from toolpost.authoring import Plugin
from toolpost.authoring.middleware import NamedMiddleware
from toolpost.authoring.plugin import Change
from toolpost.base import event, nearest_name
from toolpost.contracts.errors import BadConfiguration, PluginFailed
from toolpost.protocol.rpc import encode
from toolpost.providers.configured_middleware import name_middleware
from toolpost.providers.functions import FunctionProvider
from toolpost.providers.loaded_plugin import LoadedPlugin
from toolpost.providers.plugin_candidates import PluginCandidate, explain_no_plugin, name_of, name_of_server
from toolpost.providers.plugin_contents import PluginContents
from toolpost.providers.plugin_hooks import HookSpecs, PluginHooks, call_step
from toolpost.providers.plugin_maker import OfferedTools, PluginLimits, PluginMaker
from toolpost.providers.quarantine import PinnedPlugin
from toolpost.upstreams.in_process import InProcessServer, find_in_process_server
from toolpost.upstreams.notifications import PROMPTS_CHANGED, RESOURCE_UPDATED, RESOURCES_CHANGED, Notification
from toolpost.upstreams.server_requests import Sampler

if TYPE_CHECKING:
    from toolpost.providers.watched import WatchedTools

_log = logging.getLogger("toolpost.plugins")

MANY_S: Final = 300.0
"""How long many new tools may cause work after they came, as each changed one is judged."""

_OTHER_KIND_HINT: Final = "start `toolpost serve --reload` again"


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
        limits: PluginLimits = PluginLimits(),  # noqa: B008 (it is frozen)
        chosen: Sequence[str] = (),
        tags: Mapping[str, Iterable[str]] = MappingProxyType({}),
        notify: Callable[[Notification], None] = lambda _: None,
        on_change: Callable[[Collection[str]], None] = lambda _: None,
        find_sampler: Callable[[], Sampler | None] = lambda: None,
    ) -> None:
        """`chosen` are plugins that are served alone, whose tools have no prefix; `tags` are those of plugins, by name.

        `notify` sends notifications to clients; `on_change` is called with the name of a plugin whose tools have changed.
        `find_sampler` is asked, when a plugin is loaded, for what answers sampling for plugins whose client does not.
        """
        self._tags = tags
        self._notify = notify
        self._on_change = on_change
        self._chosen = chosen
        self._hooks = PluginHooks()
        self._maker = PluginMaker(
            self._hooks, limits, is_bare=bool(chosen), tags=tags, notify=notify, find_sampler=find_sampler
        )
        self._watched: WatchedTools | None = None
        self.plugins: list[LoadedPlugin] = []
        self._started: list[LoadedPlugin] = []
        self.servers: dict[str, InProcessServer] = {}
        """The objects among the candidates that are MCP servers, by name: they are served as servers, not as plugins."""
        self._server_names: dict[str, str] = {}
        """Which name each reference to a server object stands for."""
        self._made_many_at = -math.inf
        self._loop: asyncio.AbstractEventLoop | None = None
        self._contents: dict[str, PluginContents] | None = None
        """What `contents` returned last; None after a change."""
        self._configured: list[NamedMiddleware] = []

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
        of_plugins = [
            named
            for plugin in self.plugins
            if plugin.is_served
            for named in name_middleware(plugin.middleware, prefix=f"{plugin.name}:")
        ]
        return [*self._configured, *of_parts, *of_plugins]

    def add_middleware(self, middleware: Iterable[NamedMiddleware]) -> None:
        """Take middleware of the configuration or a program, inside what was added before."""
        self._configured += middleware

    def serves(self, name: str) -> bool:
        """Whether a plugin of this name was loaded, and has tools."""
        return any(plugin.name == name and plugin.provider is not None for plugin in self.plugins)

    @property
    def for_everyone(self) -> frozenset[str]:
        """Names of the plugins that every caller sees; not of other plugins that were loaded under such a name."""
        return frozenset(plugin.name for plugin in self.plugins if plugin.for_everyone and plugin.is_served)

    def load(self, candidate: PluginCandidate, *, disabled: Sequence[str] = ()) -> None:
        """Load one plugin, unless it is disabled; a failure is recorded on it, and not raised."""
        loaded = LoadedPlugin.of(candidate)
        self.plugins.append(loaded)
        try:
            found = candidate.load()
            server = find_in_process_server(found)
            loaded.name = name_of(found, candidate) if server is None else name_of_server(found, candidate)
            if loaded.name in disabled or (self._chosen and loaded.name not in self._chosen):
                loaded.state = "disabled"
            elif server is not None:
                self._add_server(loaded, server)
            else:
                self._finish(found, loaded, self._maker.make_tools(loaded, self._begin(found, loaded)))
        except Exception as error:  # noqa: BLE001 (a plugin may raise anything)
            loaded.fail("could not be loaded", error)
            self._contents = None

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
        self._hooks.add(hooks)

    def implementations(self, hook: str) -> list[HookImplementation]:
        """Return the implementations of a hook by plugins that are served, in the order of their calls."""
        by_name = {plugin.name: plugin for plugin in self.plugins if plugin.is_served}
        return [
            HookImplementation(plugin=name, function=function, takes=takes, degrade=by_name[name].degrade)
            for name, function, takes in self._hooks.list_implementations(hook)
            if name in by_name
        ]

    @asynccontextmanager
    async def open_started(self) -> AsyncIterator[None]:
        """Run the start hooks of the loaded plugins; leaving runs the stop hooks in reverse."""
        self._loop = asyncio.get_running_loop()
        try:
            await self._start_all()
            yield
        finally:
            with anyio.CancelScope(shield=True):
                for plugin in self.plugins:
                    if plugin.unwatch is not None:
                        plugin.unwatch()
                        plugin.unwatch = None
                for plugin in reversed(self._started):
                    await self._run_hook(plugin, "toolpost_stop", "could not be stopped")

    async def _start_all(self) -> None:
        # Not in `open_started`, whose variables live as long as the gateway: a plugin in one could never be freed.
        for plugin in self.plugins:
            if plugin.provider is None or plugin.state == "failed":
                continue
            if await self._run_hook(plugin, "toolpost_start", "could not be started"):
                self._started.append(plugin)

    async def pin_tools(self, watched: "WatchedTools") -> None:
        """Have the tools of plugins whose definitions others write compared with their lock or pin, now and after a reload."""
        self._watched = watched
        for plugin in self.plugins:
            await self._pin(plugin)

    async def _pin(self, plugin: LoadedPlugin) -> None:
        if (
            plugin.contracts != "trusted"
            and self._watched is not None
            and isinstance(plugin.provider, FunctionProvider)
        ):
            plugin.provider = pinned = await self._watched.pin(plugin.provider, plugin.contracts)
            if pinned.degraded is not None:
                plugin.state = "degraded"
                plugin.problems.append(f"plugin `{plugin.name}` is degraded: {pinned.degraded}")

    def note_many(self) -> None:
        """Note that very many objects are made from here on, as for the tools of a large document."""
        self._made_many_at = time.monotonic()

    def has_made_many(self) -> bool:
        """Whether very many objects were made within `MANY_S`."""
        return time.monotonic() - self._made_many_at < MANY_S

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
            name = name_of_server(found, candidate)
            await self._replace_server(candidate.name, name, server, apply_servers)
            return name
        if candidate.name in self._server_names:
            raise PluginFailed("it was a server object and is a plugin now", hint=_OTHER_KIND_HINT)
        return await self._replace_plugin(candidate, found)

    async def _replace_plugin(self, candidate: PluginCandidate, found: Any) -> LoadedPlugin:
        index = next((i for i, plugin in enumerate(self.plugins) if plugin.reference == candidate.name), None)
        old = self.plugins[index] if index is not None else LoadedPlugin.of(candidate)
        new = LoadedPlugin.of(candidate)
        new.name = name_of(found, candidate)
        stop_old: Callable[[], Any] = lambda: None  # noqa: E731 (one that did not load has nothing to stop)
        old_object = self._hooks.find(old.name) if index is not None else None
        if old_object is not None:
            stop_old = self._hooks.hook_of(old.name, "toolpost_stop")
            self._hooks.remove(old.name)
        try:
            offered = self._begin(found, new)
            # In a thread: the document of an API decides how many tools there are, and 20,000 take seconds.
            provider = await to_thread.run_sync(self._maker.make_tools, new, offered)
            self._finish(found, new, provider)
            if isinstance(found, Plugin) and [*found.toolpost_tools()] != offered.tools:
                provider.replace(found.toolpost_tools())  # What it has added or removed in the meantime.
            if new.problems:
                raise PluginFailed("; ".join(new.problems))
            await call_step(self._hooks.hook_of(new.name, "toolpost_start"))
            await self._pin(new)
        except BaseException:
            if new.unwatch is not None:
                new.unwatch()
            if self._hooks.find(new.name) is found:
                self._hooks.remove(new.name)
            if old_object is not None:
                self._hooks.restore(old.name, old_object)
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
            if old.provider is not None and self._hooks.find(old.name) is not None:
                stop = self._hooks.hook_of(old.name, "toolpost_stop")
                self._hooks.remove(old.name)
            if self._watched is not None:
                self._watched.unpin(old.name)
            await self._retire(old, None, stop)

    async def _retire(self, old: LoadedPlugin, new: LoadedPlugin | None, stop: Callable[[], Any]) -> None:
        """Stop a plugin that is no longer among those that are served, after clients were told of what is there now."""
        self._contents = None
        if old.unwatch is not None:
            old.unwatch()
            # It refers back to the plugin: without this, thousands of tools would wait for a collection of garbage, if one comes.
            old.unwatch = None
        self._tell_of(old, new or old)
        was_started = old in self._started
        self._started = [plugin for plugin in self._started if plugin is not old] + ([new] if new is not None else [])
        if was_started:
            try:
                await call_step(stop)
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

    def note_part_failure(self, name: str, what: str, error: Exception) -> None:
        """Keep what went wrong with a part, to be shown among the plugins that it would have brought."""
        loaded = LoadedPlugin(name=name, kind="part", problems=[])
        self.plugins.append(loaded)
        loaded.fail(what, error)

    def _add_server(self, loaded: LoadedPlugin, server: InProcessServer) -> None:
        others = {plugin.name for plugin in self.plugins if plugin is not loaded}
        if loaded.name in others or loaded.name in self.servers:
            raise PluginFailed(self._explain_taken(loaded.name, loaded.reference))
        self.plugins.remove(loaded)
        self.servers[loaded.name] = server
        self._server_names[loaded.reference] = loaded.name

    def _explain_taken(self, name: str, reference: str) -> str:
        by_name = {server: name for name, server in self._server_names.items()}
        by_name |= {plugin.name: plugin.reference for plugin in reversed(self.plugins)}
        first = by_name.get(name) or name
        both = "another plugin is already" if name in (first, reference) else f"`{first}` and `{reference}` are both"
        return f"{both} named `{name}`; load one of them, or give one another name"

    def tags_of(self, name: str) -> frozenset[str]:
        """Return the tags that are configured for a plugin."""
        return frozenset(self._tags.get(name, ()))

    def _begin(self, found: Any, loaded: LoadedPlugin) -> OfferedTools:
        """Register a plugin and call its hooks; raises `PluginFailed` for what is none, or for a name that is taken."""
        loaded.version = getattr(found, "version", "") or getattr(found, "__version__", "") or loaded.version
        if self._hooks.find(loaded.name) is not None or loaded.name in self.servers:
            raise PluginFailed(self._explain_taken(loaded.name, loaded.reference))
        if not self._hooks.register(loaded.name, found):
            raise PluginFailed(explain_no_plugin(found, loaded.reference))
        self._hooks.check(found)
        return self._maker.read(found, loaded)

    def _finish(self, found: Any, loaded: LoadedPlugin, provider: FunctionProvider) -> None:
        loaded.provider = provider
        self._contents = None
        loaded.refuse_tools(provider)
        if isinstance(found, Plugin):
            self._follow(found, loaded, provider)

    def _follow(self, plugin: Plugin, loaded: LoadedPlugin, provider: FunctionProvider) -> None:
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
                tags=self.tags_of(loaded.name),
            )
            self._call_on_loop(lambda: self._notify(notification))

        loaded.unwatch = plugin.watch(on_change)

    def _call_on_loop(self, function: Callable[[], None]) -> None:
        """Call a function on the event loop of the gateway; a plugin may change in any thread, and before there is a loop."""
        if self._loop is None:
            function()
        else:
            self._loop.call_soon_threadsafe(function)

    async def _run_hook(self, plugin: LoadedPlugin, step: str, failure: str) -> bool:
        try:
            await call_step(self._hooks.hook_of(plugin.name, step))
        except Exception as error:  # noqa: BLE001 (a plugin may raise anything)
            plugin.fail(failure, error)
            self._contents = None
            return False
        return True
