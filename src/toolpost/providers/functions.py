"""Functions of a plugin as tools: asynchronous ones run on the event loop, synchronous ones in threads."""

import dataclasses
import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from anyio import CapacityLimiter, to_thread

from toolpost.authoring.content import Content
from toolpost.authoring.context import Context, PluginServices
from toolpost.authoring.result import Result
from toolpost.authoring.tool import Tool
from toolpost.base.ids import TOOL_THREAD, JsonObject, PluginName, ToolName
from toolpost.contracts.contract import DEFAULT_TIMEOUT_S, check_plugin_name, contract_of
from toolpost.contracts.errors import ContractRefused, ToolFailed
from toolpost.fairness import FairQueue
from toolpost.providers.tool import ProvidedTool, RawResult


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
        services: PluginServices | None = None,
    ) -> None:
        """Take the tools; those whose contract is refused are listed in `refused`.

        `threads` limits how many synchronous tools run at once, fairly between callers; without it, anyio's limit applies. With
        `bare`, the tools' names have no prefix. `services` are for functions that take a context.
        """
        self._bare = bare
        self._version = version
        self._default_timeout_s = default_timeout_s
        self._threads = threads
        self._services = services
        self.name: PluginName = check_plugin_name(name)
        self.description = description
        self._listed: dict[ToolName, ProvidedTool] = {}
        self._refused: list[ContractRefused] = []
        self.refused_tools: list[Tool] = []
        """The tools that `refused` is about, in the same order."""
        self._declared: dict[int, tuple[Tool, ProvidedTool]] = {}
        """What was made of each tool, by its id: a contract is compiled once."""
        for tool in tools:
            try:
                self._add(tool, self._listed)
            except ContractRefused as refusal:
                self._refused.append(refusal)
                self.refused_tools.append(tool)

    def replace(self, tools: Iterable[Tool]) -> None:
        """Serve these tools from now on; raise `ContractRefused`, and change nothing, if a new one cannot be served."""
        refused = {refusal.details.get("tool") for refusal in self._refused}
        listed: dict[ToolName, ProvidedTool] = {}
        for tool in tools:
            if tool.terms.name not in refused:
                self._add(tool, listed)
        self._listed = listed

    @property
    def tools(self) -> Mapping[ToolName, ProvidedTool]:
        """The tools that can be called."""
        return self._listed

    @property
    def quarantined(self) -> Mapping[ToolName, ProvidedTool]:
        """Always empty: functions are compared with the lock by `toolpost check`, not while they are served."""
        return {}

    @property
    def refused(self) -> Sequence[ContractRefused]:
        return self._refused

    def _add(self, tool: Tool, listed: dict[ToolName, ProvidedTool]) -> None:
        provided = self._declared[id(tool)][1] if id(tool) in self._declared else self._provide(tool)
        contract, terms = provided.contract, provided.contract.terms
        if contract.name in listed:
            reason = "this plugin has a tool of that name already"
            raise ContractRefused(
                f"plugin `{self.name}`, tool `{terms.name}`, name: {reason}",
                plugin=self.name,
                tool=terms.name,
                place="name",
                reason=reason,
            )
        listed[contract.name] = provided
        self._declared[id(tool)] = (tool, provided)

    def _provide(self, tool: Tool) -> ProvidedTool:
        terms = tool.terms
        if not terms.tooling_version:
            terms = dataclasses.replace(terms, tooling_version=self._version)
        contract = contract_of(terms, plugin=self.name, default_timeout_s=self._default_timeout_s, is_bare=self._bare)
        invoke = _make_async_invoke(tool) if tool.is_async else _make_thread_invoke(tool, self._threads)
        if tool.takes_context and self._services is not None:
            invoke = _with_services(invoke, self._services)
        return ProvidedTool(contract=contract, provider=self.name, invoke=invoke)


def _with_services(invoke: Any, services: PluginServices) -> Any:
    """Let the context reach the client in the name of the plugin; only for functions that take a context."""

    def invoke_with_services(arguments: JsonObject, context: Context) -> Any:
        context.services = services
        return invoke(arguments, context)

    return invoke_with_services


def _make_async_invoke(tool: Tool) -> Any:
    async def invoke(arguments: JsonObject, context: Context) -> RawResult:
        return to_raw_result(await tool.run(arguments, context))

    return invoke


def _make_thread_invoke(tool: Tool, threads: FairQueue | None) -> Any:
    # anyio's own limiter does not know callers: one of them could occupy every thread.
    limiter = CapacityLimiter(math.inf) if threads is not None else None

    def run(arguments: JsonObject, context: Context) -> RawResult:
        thread = threading.current_thread()
        before, thread.name = thread.name, f"{TOOL_THREAD}{tool.terms.name}"
        try:
            # Converted here, in the thread: content may be a file that has to be read.
            return to_raw_result(tool.run(arguments, context))
        finally:
            thread.name = before

    async def invoke(arguments: JsonObject, context: Context) -> RawResult:
        # On cancellation the thread is abandoned: it cannot be stopped, and the caller must get an answer at the deadline.
        if threads is not None:
            await threads.enter(context.caller.id)
        try:
            return await to_thread.run_sync(run, arguments, context, abandon_on_cancel=True, limiter=limiter)
        finally:
            if threads is not None:
                threads.leave(context.caller.id)

    return invoke


def to_raw_result(value: Any, content: Sequence[Content | str | JsonObject] = ()) -> RawResult:
    """Turn what a function returned into plain JSON values and content blocks; raise `ToolFailed` if it is neither."""
    is_custom, is_error, meta = False, False, None
    if isinstance(value, Result):
        is_custom, is_error, meta = value.is_custom, value.is_error, value.meta or None
        value, content = value.data, value.content
    blocks: Sequence[JsonObject] = [_make_block(block) for block in content] if content else ()
    try:
        is_ready = value is msgspec.UNSET or isinstance(
            value, msgspec.Raw
        )  # JSON text is not made an object for nothing
        plain = value if is_ready else msgspec.to_builtins(value, str_keys=True)
        if meta:
            meta = msgspec.to_builtins(meta, str_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        # Content is recognized here, where data has failed, so that results of data alone are not searched for it.
        if not is_custom and not content and is_content(value):
            blocks = [_make_block(block) for block in (value if isinstance(value, list | tuple) else (value,))]
            return RawResult(value=msgspec.UNSET, content=blocks, is_custom=True)
        raise ToolFailed(f"The tool returned something that is not JSON: {error}") from error
    return RawResult(value=plain, content=blocks, is_custom=is_custom, is_error=is_error, meta=meta)


def is_content(value: Any) -> bool:
    """Whether a value is content rather than data: a block, or a list with at least one."""
    if isinstance(value, list | tuple):
        return any(isinstance(item, Content) for item in value)
    return isinstance(value, Content)


_REQUIRED_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri", "name"),
    "resource": ("resource",),
}


def _make_block(item: Any) -> JsonObject:
    """Make a content block of what an author gives: a `Content`, text, or a block; anything else becomes JSON text."""
    if isinstance(item, str):
        return {"type": "text", "text": item}
    try:
        if isinstance(item, Content):
            return _check_block(item.as_block())
        if isinstance(item, dict):
            return _check_block(item)
        return {"type": "text", "text": msgspec.json.encode(item).decode()}
    except OSError as error:
        raise ToolFailed(f"The tool returned a file that cannot be read: {error.strerror or error}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolFailed(f"The tool returned content that is not JSON: {error}") from error


def _check_block(block: JsonObject) -> JsonObject:
    """Return a copy of a content block; raises `ToolFailed` for one that clients reject, since it breaks the whole answer."""
    needed = _REQUIRED_KEYS.get(block.get("type", ""))
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
