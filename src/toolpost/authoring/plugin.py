"""A plugin: tools, resources and prompts under one name, started and stopped together."""

import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, TypeVar, Unpack, overload

from toolpost.authoring.app import AppOptions, make_app
from toolpost.authoring.dependencies import Dependencies
from toolpost.authoring.hookspecs import hookimpl
from toolpost.authoring.middleware import Middleware
from toolpost.authoring.resource import (
    Prompt,
    PromptOptions,
    Resource,
    ResourceOptions,
    make_prompt,
    make_resource,
)
from toolpost.authoring.skill import make_skills
from toolpost.authoring.tool import Function, Tool, ToolMethod, ToolOptions, uri_of_app
from toolpost.authoring.tool import tool as declare
from toolpost.contracts.contract import check_plugin_name
from toolpost.contracts.envelope import ResultStyle
from toolpost.contracts.errors import PluginFailed

Step = Callable[[], Awaitable[None] | None]
Hook = TypeVar("Hook", bound=Callable[..., Any])

Change = Literal["tools", "resources", "prompts", "updated"]
Watcher = Callable[[Change, str], None]
"""Called when a plugin has other tools, resources or prompts than before; `updated` comes with the URI of a resource."""

Kind = TypeVar("Kind")
Class = TypeVar("Class", bound=type)
Declared = TypeVar("Declared", Tool, Resource, Prompt)


class Plugin:
    """Tools, resources and prompts under one name; `description` adds words by which a search finds all of its tools.

    plugin = Plugin("greetings", version="1.2.0", description="Friendly words for guests and colleagues.")

    @plugin.tool
    async def greet(name: str) -> str:
        "Greet a person by name."
        return f"Hello {name}"
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "",
        description: str = "",
        tools: Iterable[Tool] = (),
        middleware: Iterable[Middleware] = (),
        style: ResultStyle | Literal["envelope", "plain"] = ResultStyle.ENVELOPE,
    ) -> None:
        """`middleware` runs around the calls of all tools, of other plugins and servers too, the outermost first.

        `style` is that of its tools which name none: `plain` answers with a tool's own value, and lists in a quarter of the text.
        """
        self.name = check_plugin_name(name)
        self.version = version
        self.description = description
        self._style = style
        self._tools = list(tools)
        self._resources: list[Resource] = []
        self._prompts: list[Prompt] = []
        self._watchers: list[Watcher] = []
        self._middleware = list(middleware)
        self._dependencies = Dependencies(name)
        self._starting: list[Step] = []
        self._stopping: list[Step] = []

    @overload
    def tool(self, function: Function, /) -> Tool: ...
    @overload
    def tool(self, /, **options: Unpack[ToolOptions]) -> Callable[[Function], Tool]: ...
    def tool(self, function: Function | None = None, /, **options: Any) -> Tool | Callable[[Function], Tool]:
        """Add a function as a tool; takes the options of `toolpost.tool`."""
        if function is None:
            return lambda decorated: self._add_tool(decorated, options)
        return self._add_tool(function, {})

    def _add_tool(self, function: Function, options: dict[str, Any], owner: type | None = None) -> Tool:
        app = uri_of_app(options.get("app"))
        if app is not None and all(resource.uri != app for resource in self._resources):
            raise TypeError(f"the plugin `{self.name}` has no app `{app}`; add it with `plugin.app`, before its tools")
        declared = declare(**({"style": self._style} | options))(self._dependencies.inject(function, owner))
        return self.add(declared if declared.function is function else dataclasses.replace(declared, function=function))

    def resource(self, uri: str, /, **options: Unpack[ResourceOptions]) -> Callable[[Function], Resource]:
        """Add a function as a resource, under a URI or a URI template (`notes://{title}`); a decorator.

        The function returns text, bytes, a `File`, or anything that is JSON. Options: `name`, `title`, `description`,
        `mime_type`, `size`, `annotations`, `icons`, `meta`, `timeout_s`.
        """
        return lambda decorated: self.add(make_resource(self._dependencies.inject(decorated), uri, **options))

    def app(self, uri: str, /, html: str | Path, **options: Unpack[AppOptions]) -> Resource:
        """Add an MCP App: a page that hosts show beside the results of tools with `app=` of it, and that may call tools.

        `html` is the page, or the path of its file. Options: `name`, `title`, `description`, `icons`, `meta`, and for the host
        `csp`, `permissions`, `domain` and `prefers_border`.
        """
        return self.add(make_app(uri, html, **options))

    def skills(self, folder: str | Path, /) -> None:
        """Add the agent skills in a folder: each is a folder of its own with a `SKILL.md`; the folder itself may be one."""
        for file in make_skills(self.name, Path(folder)):
            self.add(file)

    @overload
    def prompt(self, function: Function, /) -> Prompt: ...
    @overload
    def prompt(self, /, **options: Unpack[PromptOptions]) -> Callable[[Function], Prompt]: ...
    def prompt(self, function: Function | None = None, /, **options: Any) -> Prompt | Callable[[Function], Prompt]:
        """Add a function as a prompt; a decorator. Its parameters are the prompt's arguments.

        The function returns text, content, a `Message`, or a list of these. Options: `name`, `title`, `description`, `icons`,
        `meta`, `timeout_s`.
        """
        if function is not None:
            return self.add(make_prompt(self._dependencies.inject(function)))
        return lambda decorated: self.add(make_prompt(self._dependencies.inject(decorated), **options))

    def add(self, declared: Declared) -> Declared:
        """Add a tool, a resource or a prompt; while the plugin is served, clients are told that there is another one.

        Raises `ContractRefused` for a tool that a gateway which serves the plugin cannot list; it is not added then.
        """
        items, change = self._items_of(declared)
        items.append(declared)
        try:
            self._notify(change)
        except BaseException:
            items.remove(declared)
            raise
        return declared

    def remove(self, declared: Tool | Resource | Prompt) -> None:
        """Remove what was added; clients are told, and calls in flight go on. Raises ValueError if it is not there."""
        items, change = self._items_of(declared)
        items.remove(declared)
        self._notify(change)

    def resource_updated(self, uri: str) -> None:
        """Tell clients that follow a resource that it has changed; from any thread."""
        self._notify("updated", uri)

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` whenever something changes, until the function that is returned is called. Gateways do this."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def _items_of(self, declared: Any) -> tuple[list[Any], Change]:
        if isinstance(declared, Resource):
            return self._resources, "resources"
        if isinstance(declared, Prompt):
            return self._prompts, "prompts"
        return self._tools, "tools"

    def _notify(self, change: Change, uri: str = "") -> None:
        for watcher in tuple(self._watchers):
            watcher(change, uri)

    def middleware(self, function: Middleware) -> Middleware:
        """Run this around every call, of any plugin and server; decorates an `async def`. The first added is outermost."""
        self._middleware.append(function)
        return function

    def lifespan(self, function: Hook) -> Hook:
        """Provide what a function yields, while the plugin is served, to parameters of that type; a decorator.

        Write an `async def` that returns `AsyncIterator[Database]`: it opens before the first call, and what follows its `yield`
        runs after the last. Declare it before the tools that take it, and after the lifespans that it takes itself.
        """
        self._dependencies.add(function, is_per_call=False)
        return function

    def provide(self, function: Hook) -> Hook:
        """Provide what a function returns or yields, made for each call, to parameters of that type; a decorator.

        It may take the `Context` and other provided types. Of a call, it is called once at most.
        """
        self._dependencies.add(function, is_per_call=True)
        return function

    def tool_class(self, cls: Class) -> Class:
        """Make the methods of a class that have `@tool` the plugin's tools; a decorator.

        One instance is made when the plugin starts, with what its `__init__` takes by type; if it is a context manager, it is
        open while the plugin is served.
        """
        self._dependencies.add(cls, is_per_call=False)
        for _, member in inspect.getmembers_static(cls):
            if isinstance(member, ToolMethod):
                self._add_tool(member.function, member.options, owner=cls)
        return cls

    def override(self, kind: type[Kind], value: Kind) -> AbstractContextManager[None]:
        """Provide this value for a type while the context is open, as tests do; a lifespan for it is not started."""
        return self._dependencies.override(kind, value)

    def on_start(self, step: Step) -> Step:
        """Run a sync or async function before the first call; a decorator."""
        self._starting.append(step)
        return step

    def on_stop(self, step: Step) -> Step:
        """Run a function after the last call; a decorator. The last one registered runs first."""
        self._stopping.insert(0, step)
        return step

    def hook(self, function: Hook) -> Hook:
        """Implement the hook with the function's name, such as `toolpost_before_invoke`; a decorator.

        A gateway refuses a plugin with a hook that no part declares, unless it is marked with `hookimpl(optionalhook=True)`.
        """
        name = function.__name__
        if not name.startswith("toolpost_"):
            raise PluginFailed(f"unknown hook `{name}`", hint="the names of hooks begin with `toolpost_`")
        if hasattr(self, name):
            raise PluginFailed(f"plugin `{self.name}` already implements `{name}`")
        setattr(self, name, function if hasattr(function, "toolpost_impl") else hookimpl(function))
        return function

    @hookimpl
    def toolpost_tools(self) -> Iterable[Tool]:
        return tuple(self._tools)

    @hookimpl
    def toolpost_resources(self) -> Iterable[Resource]:
        return tuple(self._resources)

    @hookimpl
    def toolpost_prompts(self) -> Iterable[Prompt]:
        return tuple(self._prompts)

    @hookimpl
    def toolpost_middleware(self) -> Iterable[Middleware]:
        return tuple(self._middleware)

    @hookimpl
    async def toolpost_start(self) -> None:
        await self._dependencies.open()
        try:
            await _run_all(self._starting)
        except BaseException:
            await self._dependencies.close()
            raise

    @hookimpl
    async def toolpost_stop(self) -> None:
        try:
            await _run_all(self._stopping)
        finally:
            await self._dependencies.close()


async def _run_all(steps: Iterable[Step]) -> None:
    for step in steps:
        if (pending := step()) is not None:
            await pending
