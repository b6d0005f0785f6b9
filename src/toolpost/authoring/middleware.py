"""Middleware: a function around every call, which may change its arguments, refuse it, answer it, or look at its result.

    async def forbid_deletes(call: CallRequest, proceed: Next) -> CallResult:
        if call.tool.endswith("__delete"):
            raise Forbidden("Nothing is deleted here.")
        return await proceed(call)

`docs/guides/write-middleware.md` is the guide, `middleware/user.py` runs them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from toolpost.base.caller import Caller
from toolpost.base.ids import CallId, Json, JsonObject, PluginName, ToolName, TraceId


class CallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A call as a middleware sees it."""

    id: CallId
    """The id under which the audit log and the answer's `_meta` have the call."""
    trace_id: TraceId
    caller: Caller
    tool: ToolName
    """The name that is listed, `github__create_issue`, whatever former name the client used."""
    provider: PluginName
    """The plugin or the server that brings the tool."""
    arguments: JsonObject
    """As the client sent them, and not validated yet: a policy must expect any JSON here."""
    via: ToolName | None = None
    """`automatic_eval` if the client named the tool in a call of that one."""
    annotations: Mapping[str, Any] = {}
    """The tool's own hints, such as `readOnlyHint`. A server's are its own claims, not facts."""

    def with_arguments(self, arguments: JsonObject) -> "CallRequest":
        """Return the same call with other arguments, to be handed to `proceed`."""
        return msgspec.structs.replace(self, arguments=arguments)


class CallResult:
    """What a call gave back; returned as it is, it reaches the client byte for byte.

    `CallResult(data={"cached": True})` answers in the tool's place. `data` is what a tool would return; it is checked
    against the tool's output schema, however it came about.
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
        """Whether a server asks for input before it answers; the client comes back with it in a call of its own."""
        self.replaced: frozenset[str] = frozenset({"content", "data"})
        """What is not as the tool gave it."""

    @classmethod
    def of(
        cls,
        origin: object,
        read: Callable[[], tuple[Json, Sequence[JsonObject]]],
        *,
        is_error: bool,
        needs_input: bool,
    ) -> "CallResult":
        """Show a result that `read` decodes once somebody looks at it; for the middleware's runner."""
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
        """The content blocks: all of a server's, those beside the data of a function's."""
        self._decode()
        return self._content

    def replace(self, *, data: Any = ..., content: Sequence[JsonObject] | None = None) -> "CallResult":
        """Return the same result with other data, or other content blocks, or both.

        A server's tool says the same thing in both, so that with other data alone its content is written anew from them.
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
"""Lets a call go on. May be called again, for a second attempt; raises the `ToolpostError` that the client would see."""

Middleware = Callable[[CallRequest, Next], Awaitable[CallResult]]


class NamedMiddleware(NamedTuple):
    """A middleware, and the name that logs and errors give it."""

    name: str
    function: Middleware
