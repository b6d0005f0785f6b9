"""Finds, loads, starts and stops plugins. One that fails is reported, and the others are served."""

import importlib
import inspect
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Final

import anyio
import pluggy

from toolpost.authoring import Middleware, Plugin, hookspecs
from toolpost.authoring.middleware import NamedMiddleware
from toolpost.base.events import event
from toolpost.base.ids import JsonObject
from toolpost.base.nearest import nearest_name
from toolpost.contracts.contract import DEFAULT_TIMEOUT_S
from toolpost.contracts.errors import BadConfiguration, PluginFailed, ToolpostError
from toolpost.providers.functions import FunctionProvider
from toolpost.shares import Callers, FairQueue

_log = logging.getLogger("toolpost.plugins")

STEP_LIMIT_S = 30.0
PROBLEMS_LIMIT = 20
"""How many different problems are kept for each plugin."""


@dataclass(kw_only=True)
class LoadedPlugin:
    """A plugin and its state."""

    name: str
    version: str = ""
    state: str = "healthy"
    """`healthy`; `degraded` when some of its tools were refused; `failed` when none of it serves; `disabled`."""
    problems: list[str]
    provider: FunctionProvider | None = None
    middleware: tuple[Middleware, ...] = ()

    def as_object(self) -> JsonObject:
        tools = len(self.provider.tools) if self.provider else 0
        report: JsonObject = {"state": self.state, "version": self.version, "tools": tools}
        return report | ({"problems": self.problems} if self.problems else {})


@dataclass(frozen=True, kw_only=True)
class PluginCandidate:
    """A plugin that is not loaded yet."""

    name: str
    load: Callable[[], Any]
    version: str = ""


def candidates_from(references: Iterable[str]) -> list[PluginCandidate]:
    """Make candidates from references: `package.module:attribute`, or `package.module` for a module that is a plugin."""
    return [PluginCandidate(name=reference, load=lambda r=reference: _resolve(r)) for reference in references]  # type: ignore[misc]


def candidates_from_factories(references: Iterable[str]) -> list[PluginCandidate]:
    """Make candidates from references to functions that make a plugin, so that each gateway has its own."""
    return [PluginCandidate(name=reference, load=lambda r=reference: _resolve(r)()) for reference in references]  # type: ignore[misc]


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
class Implementation:
    """The implementation of a hook by one plugin."""

    plugin: LoadedPlugin
    function: Callable[..., Any]
    takes: tuple[str, ...]
    """The names of its parameters; a hook may offer more."""


class PluginHost:
    """All plugins of one gateway."""

    def __init__(
        self,
        *,
        default_timeout_s: float = DEFAULT_TIMEOUT_S,
        threads: int = 40,
        callers: Callers | None = None,
        only: str | None = None,
    ) -> None:
        """Take limits for all tools; `only` serves a single plugin, whose tools have no prefix."""
        self._only = only
        self.plugins: list[LoadedPlugin] = []
        self._configured: list[NamedMiddleware] = []
        self._manager = pluggy.PluginManager("toolpost")
        self._manager.add_hookspecs(hookspecs)
        self._default_timeout_s = default_timeout_s
        # The limit on calls in flight already limits how many wait here.
        self._threads = FairQueue("synchronous tools", callers or Callers(), at_once=threads, waiting=sys.maxsize)

    @property
    def providers(self) -> list[FunctionProvider]:
        """The providers of the plugins that have not failed."""
        return [plugin.provider for plugin in self.plugins if plugin.provider is not None and plugin.state != "failed"]

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
                found = _resolve(reference)
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

    def load(self, candidate: PluginCandidate, *, disabled: Sequence[str] = ()) -> None:
        """Load one plugin, unless it is disabled; a failure is recorded on it, and not raised."""
        loaded = LoadedPlugin(name=candidate.name, version=candidate.version, problems=[])
        self.plugins.append(loaded)
        try:
            found = candidate.load()
            loaded.name = _name_of(found, candidate)
            if loaded.name in disabled or self._only not in (None, loaded.name):
                loaded.state = "disabled"
            else:
                self._register(found, loaded)
        except Exception as error:  # noqa: BLE001 (a plugin may raise anything)
            self._fail(loaded, "could not be loaded", error)

    def keep_chosen(self) -> None:
        """Drop all plugins but the one in `only`, if that is set; raises `BadConfiguration` if it is missing or disabled."""
        if self._only is None:
            return
        names = [plugin.name for plugin in self.plugins]
        kept = [plugin for plugin in self.plugins if plugin.name == self._only]
        if not kept:
            near = nearest_name(self._only, names)
            raise BadConfiguration(
                f"Unknown plugin `{self._only}`.",
                hint=f"did you mean `{near}`?" if near else f"the plugins here: {', '.join(sorted(names))}",
            )
        if kept[0].state == "disabled":
            raise BadConfiguration(
                f"The plugin `{self._only}` is to be served alone, and is disabled.", hint="check plugins.disable"
            )
        self.plugins = kept

    def implementations(self, hook: str) -> list[Implementation]:
        """Return the implementations of a hook by plugins that are served, in the order of their calls."""
        by_name = {plugin.name: plugin for plugin in self.plugins if plugin.state in ("healthy", "degraded")}
        found = reversed(getattr(self._manager.hook, hook).get_hookimpls())
        return [
            Implementation(plugin=by_name[impl.plugin_name], function=impl.function, takes=tuple(impl.argnames))
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
        started: list[LoadedPlugin] = []
        try:
            for plugin in self.plugins:
                if plugin.provider is None or plugin.state == "failed":
                    continue
                if await self._run_hook(plugin, "toolpost_start", "could not be started"):
                    started.append(plugin)
            yield
        finally:
            with anyio.CancelScope(shield=True):
                for plugin in reversed(started):
                    await self._run_hook(plugin, "toolpost_stop", "could not be stopped")

    def note_failure(self, name: str, what: str, error: Exception) -> None:
        """Keep what went wrong with something that would have brought plugins, to be shown among them."""
        loaded = LoadedPlugin(name=name, problems=[])
        self.plugins.append(loaded)
        self._fail(loaded, what, error)

    def _register(self, found: Any, loaded: LoadedPlugin) -> None:
        loaded.version = getattr(found, "version", "") or getattr(found, "__version__", "") or loaded.version
        if self._manager.has_plugin(loaded.name):
            raise PluginFailed(f"another plugin is already named `{loaded.name}`")
        self._manager.register(found, loaded.name)
        tools = list(self._hook(loaded, "toolpost_tools")() or ())
        loaded.middleware = tuple(self._hook(loaded, "toolpost_middleware")() or ())
        for function in loaded.middleware:
            if problem := problem_of_middleware(function):
                raise PluginFailed(f"middleware {function!r} {problem}", hint=MIDDLEWARE_SIGNATURE)
        loaded.provider = FunctionProvider(
            loaded.name,
            tools,
            version=loaded.version,
            description=_description_of(found),
            default_timeout_s=self._default_timeout_s,
            threads=self._threads,
            bare=self._only is not None,
        )
        for refusal in loaded.provider.refused:
            loaded.state = "degraded"
            loaded.problems.append(refusal.message)
            event(_log, logging.ERROR, "tool refused", plugin=loaded.name, reason=refusal.message)

    def _hook(self, plugin: LoadedPlugin, name: str) -> Callable[[], Any]:
        """Return one plugin's implementation of a hook. Not called through pluggy: the failure of one must not affect others."""
        registered = self._manager.get_plugin(plugin.name)
        is_implemented = self._manager.parse_hookimpl_opts(registered, name) is not None
        return getattr(registered, name) if is_implemented else lambda: None

    async def _run_hook(self, plugin: LoadedPlugin, step: str, failure: str) -> bool:
        try:
            with anyio.fail_after(STEP_LIMIT_S):
                pending = self._hook(plugin, step)()
                if inspect.isawaitable(pending):
                    await pending
        except Exception as error:  # noqa: BLE001 (a plugin may raise anything)
            self._fail(plugin, failure, error)
            return False
        return True

    def _fail(self, plugin: LoadedPlugin, what: str, error: Exception) -> None:
        plugin.state = "failed"
        why = error.message if isinstance(error, ToolpostError) else f"{type(error).__name__}: {error}"
        plugin.problems.append(f"plugin `{plugin.name}` {what}: {why}")
        event(_log, logging.ERROR, f"plugin {what}", plugin=plugin.name, reason=why, exception=error)


def _name_of(found: Any, candidate: PluginCandidate) -> str:
    """Return the plugin's own name, else the last part of its reference."""
    return found.name if isinstance(found, Plugin) else candidate.name.rsplit(":", 1)[-1].rsplit(".", 1)[-1]


def _description_of(found: Any) -> str:
    """Return the plugin's description; empty unless it is text, since a module may have anything under that name."""
    description = getattr(found, "description", "")
    return description if isinstance(description, str) else ""


def _resolve(reference: str) -> Any:
    module_name, _, attribute = reference.partition(":")
    found: Any = importlib.import_module(module_name)
    for part in attribute.split(".") if attribute else ():
        found = getattr(found, part)
    return found
