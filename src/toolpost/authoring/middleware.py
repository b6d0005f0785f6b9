"""Middleware: a function around every call, which may change its arguments, refuse it, answer it, or look at its result.

    async def forbid_deletes(call: CallRequest, proceed: Next) -> CallResult:
        if call.tool.endswith("__delete"):
            raise Forbidden("Nothing is deleted here.")
        return await proceed(call)

`docs/guides/write-middleware.md` is the guide, `middleware/user.py` runs them.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from toolpost.base.caller import Caller, Scope
from toolpost.base.events import event
from toolpost.base.ids import CallId, Json, JsonObject, PluginName, ToolName, TraceId, make_full_name
from toolpost.contracts.errors import ErrorCode, ToolpostError

_log = logging.getLogger("toolpost.middleware")


class ToolInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A tool, as far as a middleware can decide by it that it has nothing to do with its calls."""

    name: ToolName
    """The name that is listed, `github__create_issue`."""
    provider: PluginName
    """The plugin or the server that brings the tool."""
    aliases: Sequence[ToolName] = ()
    """Former names that still answer. Those of a group's tools are not among them: the calls behind have these names."""
    is_upstream: bool
    """Whether it is a server's tool, whose annotations are claims of that server."""
    servers: Sequence[PluginName] = ()
    """The servers behind it: its provider, or those of a group; none for the tool of a plugin."""
    annotations: Mapping[str, Any] = {}

    def is_in(self, scope: Scope) -> bool:
        """Whether patterns admit the tool by one of its names, former ones and those without its provider's among them."""
        return any(scope.admits(name, make_full_name(self.provider, name)) for name in (self.name, *self.aliases))


OutcomeOf = Callable[[BaseException], tuple[str, ErrorCode]]


def _unknown_outcome(error: BaseException) -> tuple[str, ErrorCode]:
    return "error", error.code if isinstance(error, ToolpostError) else ErrorCode.INTERNAL


class CallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A call as a middleware sees it."""

    id: CallId
    """The id of the call in the audit log and in the answer's `_meta`."""
    trace_id: TraceId
    caller: Caller
    tool: ToolName
    """The name that is listed, such as `github__create_issue`, even if the client used an alias."""
    provider: PluginName
    """The plugin or server of the tool."""
    arguments: JsonObject
    """As the client sent them, not validated yet: a policy must expect any JSON."""
    via: ToolName | None = None
    """`automatic_eval` if the client named the tool in a call of that one."""
    annotations: Mapping[str, Any] = {}
    """The tool's hints, such as `readOnlyHint`. Those of a server are claims, and may be wrong."""
    meta: Mapping[str, Any] = {}
    """The `_meta` of the request."""
    outcome_of: OutcomeOf = _unknown_outcome
    """Returns the outcome and the code that the audit has for this call, if it ends with an error that `proceed` raised: a call
    that never reached its tool is `refused`, one that was stopped at its deadline has timed out.
    """

    def with_arguments(self, arguments: JsonObject) -> "CallRequest":
        """Return the same call with other arguments, to be handed to `proceed`."""
        return msgspec.structs.replace(self, arguments=arguments)


class CallResult:
    """The result of a call; returned unchanged, it reaches the client byte for byte.

    `CallResult(data={"cached": True})` answers instead of the tool. `data` is what the tool would return, and is validated
    against its output schema like the tool's own.
    """

    __slots__ = ("_content", "_data", "_is_read", "_origin", "_read", "is_error", "needs_input", "replaced")

    def __init__(self, data: Any = None, *, content: Sequence[JsonObject] = (), is_error: bool = False) -> None:
        self._data: Any = data
        self._content = content
        self._is_read = True
        self._read: Callable[[], tuple[Json, Sequence[JsonObject]]] | None = None
        self._origin: object | None = None
        self.is_error = is_error
        """Whether a server's own result says that its tool failed. Errors of other kinds are raised by `proceed`."""
        self.needs_input = False
        """Whether the server requests input before it answers (`input_required`); the client sends it with another call."""
        self.replaced: frozenset[str] = frozenset({"content", "data"})
        """Which of `data` and `content` a middleware has replaced."""

    @classmethod
    def of(
        cls,
        origin: object,
        read: Callable[[], tuple[Json, Sequence[JsonObject]]],
        *,
        is_error: bool,
        needs_input: bool,
    ) -> "CallResult":
        """Wrap a result that `read` decodes when `data` or `content` is first read; for the runner of middleware."""
        result = cls(is_error=is_error)
        result._origin, result._read, result._is_read = origin, read, False
        result.needs_input = needs_input
        result.replaced = frozenset()
        return result

    @property
    def origin(self) -> object | None:
        """The result in the runner's own form that this one was made from; None for one that a middleware made."""
        return self._origin

    @property
    def data(self) -> Any:
        """The structured result: what a function returned, or a server's `structuredContent` (None without any)."""
        self._decode()
        return self._data

    @property
    def content(self) -> Sequence[JsonObject]:
        """The content blocks: all of a server's result, those besides the data of a function's."""
        self._decode()
        return self._content

    def replace(self, *, data: Any = ..., content: Sequence[JsonObject] | None = None) -> "CallResult":
        """Return the same result with other data, or other content blocks, or both.

        A server sends the same data in both. If only `data` is replaced, the content is generated from it again.
        """
        self._decode()
        result = CallResult(
            self._data if data is ... else data,
            content=self._content if content is None else content,
            is_error=self.is_error,
        )
        result._origin = self._origin
        changed = {"data"} if data is not ... else set()
        result.replaced = self.replaced | changed | ({"content"} if content is not None else set())
        return result

    def _decode(self) -> None:
        if not self._is_read:
            assert self._read is not None
            self._data, self._content = self._read()
            self._is_read = True

    def __repr__(self) -> str:
        return f"CallResult(data={self.data!r}, content={list(self.content)!r}, is_error={self.is_error})"


Next = Callable[[CallRequest], Awaitable[CallResult]]
"""Runs the rest of a call. May be called again, for a second attempt; raises the `ToolpostError` that the client would see."""

Middleware = Callable[[CallRequest, Next], Awaitable[CallResult]]
"""May have an attribute `may_apply`, a function from `ToolInfo` to bool: False promises that the middleware does nothing for this
tool. It is then left out of the tool's calls, which costs them nothing. Evaluated once for each tool, and again when the
catalog changes.

May also have an attribute `applies_to_call`, an `Applies`: calls that it does not apply to pass as if it were not there.
"""

Applies = Callable[[Caller, ToolName, Mapping[str, Any]], bool]
"""Whether a call of this caller, of this tool, with this `_meta`, is to pass a middleware. Every call waits for it."""


class NamedMiddleware(NamedTuple):
    """A middleware, and its name in logs and errors."""

    name: str
    function: Middleware

    def may_apply(self, tool: ToolInfo) -> bool:
        """Whether the middleware has to run around calls of this tool."""
        return may_apply(getattr(self.function, "may_apply", None), tool, name=self.name)


def may_apply(predicate: Callable[[ToolInfo], bool] | None, tool: ToolInfo, *, name: str) -> bool:
    """Evaluate a predicate; True without one, and for one that fails or returns None: a bug must not switch a policy off."""
    if predicate is None:
        return True
    try:
        found: bool | None = predicate(tool)
    except Exception as error:  # noqa: BLE001 (a predicate may raise anything)
        event(_log, logging.ERROR, "may_apply failed", middleware=name, tool=tool.name, exception=error)
        return True
    return found is None or bool(found)
