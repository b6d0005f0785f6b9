"""Functions of a plugin as tools: asynchronous ones run on the event loop, synchronous ones in threads."""

import dataclasses
import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from anyio import CapacityLimiter, to_thread

from toolpost.authoring.context import Context
from toolpost.authoring.result import Result
from toolpost.authoring.tool import Tool
from toolpost.base.ids import TOOL_THREAD, JsonObject, PluginName, ToolName
from toolpost.contracts.contract import DEFAULT_TIMEOUT_S, check_plugin_name, contract_of
from toolpost.contracts.errors import ContractRefused, ToolFailed
from toolpost.providers.tool import ProvidedTool, ToolReturn
from toolpost.shares import FairQueue


class FunctionProvider:
    """The tools of one plugin."""

    def __init__(
        self,
        name: str,
        tools: Iterable[Tool],
        *,
        version: str = "",
        description: str = "",
        default_timeout_s: float = DEFAULT_TIMEOUT_S,
        threads: FairQueue | None = None,
        bare: bool = False,
    ) -> None:
        """Take the tools; those whose contract is refused are listed in `refused`.

        `threads` limits how many synchronous tools run at once, fairly between callers; without it, anyio's limit applies. With
        `bare`, the tools' names have no prefix.
        """
        self._bare = bare
        self.name: PluginName = check_plugin_name(name)
        self.description = description
        self._held: dict[ToolName, ProvidedTool] = {}
        self._refused: list[ContractRefused] = []
        for tool in tools:
            try:
                self._add(tool, version, default_timeout_s, threads)
            except ContractRefused as refusal:
                self._refused.append(refusal)

    @property
    def tools(self) -> Mapping[ToolName, ProvidedTool]:
        """The tools that can be called."""
        return self._held

    @property
    def quarantined(self) -> Mapping[ToolName, ProvidedTool]:
        """Always empty: functions are compared with the lock by `toolpost check`, not while they are served."""
        return {}

    @property
    def refused(self) -> Sequence[ContractRefused]:
        return self._refused

    def _add(self, tool: Tool, version: str, default_timeout_s: float, threads: FairQueue | None) -> None:
        terms = tool.terms if tool.terms.tooling_version else dataclasses.replace(tool.terms, tooling_version=version)
        contract = contract_of(terms, plugin=self.name, default_timeout_s=default_timeout_s, is_bare=self._bare)
        if contract.name in self._held:
            reason = "this plugin has a tool of that name already"
            raise ContractRefused(
                f"plugin `{self.name}`, tool `{terms.name}`, name: {reason}",
                plugin=self.name,
                tool=terms.name,
                place="name",
                reason=reason,
            )
        invoke = _make_async_invoke(tool) if tool.is_async else _make_thread_invoke(tool, threads)
        self._held[contract.name] = ProvidedTool(contract=contract, provider=self.name, invoke=invoke)


def _make_async_invoke(tool: Tool) -> Any:
    async def invoke(arguments: JsonObject, context: Context) -> ToolReturn:
        return to_tool_return(await tool.run(arguments, context))

    return invoke


def _make_thread_invoke(tool: Tool, threads: FairQueue | None) -> Any:
    # anyio's own limiter does not know callers: one of them could occupy every thread.
    limiter = CapacityLimiter(math.inf) if threads is not None else None

    def run(arguments: JsonObject, context: Context) -> Any:
        thread = threading.current_thread()
        before, thread.name = thread.name, f"{TOOL_THREAD}{tool.terms.name}"
        try:
            return tool.run(arguments, context)
        finally:
            thread.name = before

    async def invoke(arguments: JsonObject, context: Context) -> ToolReturn:
        # On cancellation the thread is abandoned: it cannot be stopped, and the caller must get an answer at the deadline.
        if threads is not None:
            await threads.enter(context.caller.id)
        try:
            value = await to_thread.run_sync(run, arguments, context, abandon_on_cancel=True, limiter=limiter)
        finally:
            if threads is not None:
                threads.leave(context.caller.id)
        return to_tool_return(value)

    return invoke


def to_tool_return(value: Any, content: Sequence[JsonObject] = ()) -> ToolReturn:
    """Turn what a function returned into plain JSON values; raise `ToolFailed` if there are none for it."""
    if isinstance(value, Result):
        value, content = value.data, value.content
    if content:
        content = [_check_block(block) for block in content]
    try:
        return ToolReturn(value=msgspec.to_builtins(value, str_keys=True), content=content)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolFailed(f"The tool returned something that is not JSON: {error}") from error


_REQUIRED_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri", "name"),
    "resource": ("resource",),
}


def _check_block(block: Any) -> JsonObject:
    """Return a copy of a content block; raises `ToolFailed` for one that clients reject, since it breaks the whole answer."""
    needed = _REQUIRED_KEYS.get(block["type"]) if isinstance(block, dict) and "type" in block else None
    if needed is None or not all(key in block for key in needed):
        raise ToolFailed(
            "The tool returned a content block that MCP does not know.",
            hint="; ".join(f"{kind}: {', '.join(keys)}" for kind, keys in _REQUIRED_KEYS.items()),
        )
    try:
        msgspec.json.encode(block)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolFailed(f"The tool returned a content block that is not JSON: {error}") from error
    return dict(block)
