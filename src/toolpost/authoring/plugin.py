"""A plugin: tools under one name, started and stopped together."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar, overload

from toolpost.authoring.hookspecs import hookimpl
from toolpost.authoring.middleware import Middleware
from toolpost.authoring.tool import Function, Tool
from toolpost.authoring.tool import tool as declare
from toolpost.contracts.errors import PluginFailed

Step = Callable[[], Awaitable[None] | None]
Hook = TypeVar("Hook", bound=Callable[..., Any])

CONVERSATION_HOOKS: Final = (
    "toolpost_conversations",
    "toolpost_on_message",
    "toolpost_classify",
    "toolpost_before_invoke",
    "toolpost_after_invoke",
    "toolpost_on_complete",
    "toolpost_on_tool_call",
    "toolpost_summarize",
    "toolpost_summarise",
)


class Plugin:
    """Tools under one name; `description` adds words by which a search finds all of them.

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
    ) -> None:
        """`middleware` runs around the calls of all tools, of other plugins and servers too, the outermost first."""
        self.name = name
        self.version = version
        self.description = description
        self._tools = list(tools)
        self._middleware = list(middleware)
        self._starting: list[Step] = []
        self._stopping: list[Step] = []

    @overload
    def tool(self, function: Function, /) -> Tool: ...
    @overload
    def tool(self, function: None = None, /, **options: Any) -> Callable[[Function], Tool]: ...
    def tool(self, function: Function | None = None, /, **options: Any) -> Tool | Callable[[Function], Tool]:
        """Add a function as a tool; takes the options of `toolpost.tool`."""
        if function is not None:
            return self.add(declare(function))
        return lambda decorated: self.add(declare(**options)(decorated))

    def add(self, tool: Tool) -> Tool:
        """Add a tool that is already declared."""
        self._tools.append(tool)
        return tool

    def middleware(self, function: Middleware) -> Middleware:
        """Run this around every call, of any plugin and server; decorates an `async def`. The first added is outermost."""
        self._middleware.append(function)
        return function

    def on_start(self, step: Step) -> Step:
        """Run a sync or async function before the first call; a decorator."""
        self._starting.append(step)
        return step

    def on_stop(self, step: Step) -> Step:
        """Run a function after the last call; a decorator. The last one registered runs first."""
        self._stopping.insert(0, step)
        return step

    def hook(self, function: Hook) -> Hook:
        """Implement the hook with the function's name, such as `toolpost_before_invoke`; a decorator."""
        name = function.__name__
        if name not in CONVERSATION_HOOKS:
            raise PluginFailed(
                f"unknown hook `{name}`", hint=f"name the function after one of: {', '.join(CONVERSATION_HOOKS)}"
            )
        if name in vars(self):
            raise PluginFailed(f"plugin `{self.name}` already implements `{name}`")
        setattr(self, name, hookimpl(function))
        return function

    @hookimpl
    def toolpost_tools(self) -> Iterable[Tool]:
        return tuple(self._tools)

    @hookimpl
    def toolpost_middleware(self) -> Iterable[Middleware]:
        return tuple(self._middleware)

    @hookimpl
    async def toolpost_start(self) -> None:
        await _run_all(self._starting)

    @hookimpl
    async def toolpost_stop(self) -> None:
        await _run_all(self._stopping)


async def _run_all(steps: Iterable[Step]) -> None:
    for step in steps:
        if (pending := step()) is not None:
            await pending
