"""A connection to a bus server: found again when it is lost, and calls repeated where that is safe.

A call that was lost before it was sent is always repeated. One that may have reached the server is repeated only if the caller
says that a repetition does no harm.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import msgspec

from toolpost import (
    CapabilityMissing,
    ErrorCode,
    Forbidden,
    InvalidArguments,
    NotFound,
    QueueOverloaded,
    ToolFailed,
    ToolpostError,
    Unauthorized,
    UpstreamUnavailable,
)
from toolpost.base import META_KEY, Json, JsonObject, event
from toolpost.contracts import CallCancelled, InvalidRequest, InvalidResult
from toolpost.net import DIRECT, Network
from toolpost.parts.bus.errors import StaleLease
from toolpost.upstreams import ConnectionLost, McpClient, ServerRefused

_log = logging.getLogger("toolpost.parts.bus")

RETRY_S: Final = 20.0
"""How long a call waits for a server that does not answer; a restart takes less."""

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
_GATEWAY_PREFIX: Final = "bus__"
_ERROR_TYPES: Final[dict[ErrorCode, type[ToolpostError]]] = {
    kind.code: kind
    for kind in (
        InvalidRequest,
        InvalidArguments,
        NotFound,
        Unauthorized,
        Forbidden,
        CallCancelled,
        QueueOverloaded,
        StaleLease,
        ToolFailed,
        InvalidResult,
        CapabilityMissing,
    )
}


@dataclass(frozen=True, kw_only=True)
class ServerAddress:
    """The URL of a bus server, and its bearer token."""

    url: str
    token: str | None = field(default=None, repr=False)


FindServer = Callable[[ServerAddress | None], Awaitable[ServerAddress]]
"""Returns the address of the server; takes the one that has stopped answering, None at first."""


class _ServerLost(Exception):
    """The server did not answer; `was_sent` says whether it may have received the call."""

    def __init__(self, reason: str, *, was_sent: bool) -> None:
        super().__init__(reason)
        self.was_sent = was_sent


class BusConnection:
    """A connection to one bus server, wherever it is at the time."""

    def __init__(self, find: FindServer, network: Network = DIRECT, *, retry_s: float = RETRY_S) -> None:
        self.retry_s = retry_s
        self._find = find
        self._network = network
        self._lock = anyio.Lock()
        self._address: ServerAddress | None = None
        self._client: McpClient | None = None
        self._retired: McpClient | None = None
        self._prefix = ""

    @property
    def is_up(self) -> bool:
        """Whether there is a server that answered, or was just found."""
        return self._client is not None

    async def connect_early(self) -> None:
        """Find or start the server before the first call; a failure is logged, and raised by the first call."""
        try:
            await self._connect()
        except ToolpostError as error:
            event(_log, logging.WARNING, "no bus server yet", reason=error.message, hint=error.hint)

    async def aclose(self) -> None:
        """Close every connection; the server cancels the calls on them."""
        for client in (self._client, self._retired):
            if client is not None:
                await client.aclose()

    async def call_tool(
        self,
        tool: str,
        arguments: JsonObject,
        *,
        meta: JsonObject | None = None,
        may_repeat: bool,
        retry_s: float | None = None,
        on_repeat: Callable[[], None] = lambda: None,
    ) -> JsonObject:
        """Call a tool of the bus; raises the error of the server, `UpstreamUnavailable` if none answers within `retry_s`.

        `on_repeat` is called before a call is repeated that the server may have run already.
        """
        until = time.monotonic() + (self.retry_s if retry_s is None else retry_s)
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await self._call_once(tool, arguments, meta or {})
            except _ServerLost as lost:
                if lost.was_sent and not may_repeat:
                    raise self._unavailable(
                        f"was lost before it answered: {lost}",
                        "the call may have had its effect: check with `get_status` before you repeat it",
                    ) from lost
                if time.monotonic() + pause_s > until:
                    raise self._unavailable(
                        f"does not answer: {lost}", "`toolpost bus status` says whether one runs"
                    ) from lost
                event(_log, logging.DEBUG, "bus server lost", tool=tool, reason=str(lost))
                if lost.was_sent:
                    on_repeat()
            await anyio.sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)

    async def _call_once(self, tool: str, arguments: JsonObject, meta: JsonObject) -> JsonObject:
        client = await self._connect()
        try:
            return _parse_answer(await self._send(client, tool, arguments, meta))
        except ConnectionLost as lost:
            await self._drop(client)
            raise _ServerLost(lost.message, was_sent=lost.was_sent) from lost
        except UpstreamUnavailable as error:
            raise _ServerLost(error.message, was_sent=True) from error
        except CallCancelled as error:
            # The server cancels calls when it stops; this side has cancelled nothing.
            raise _ServerLost(error.message, was_sent=True) from error

    async def _send(self, client: McpClient, tool: str, arguments: JsonObject, meta: JsonObject) -> bytes:
        for prefix in (self._prefix, "" if self._prefix else _GATEWAY_PREFIX):
            try:
                raw = await client.call_tool(f"{prefix}{tool}", arguments, meta=meta)
            except ServerRefused as refusal:
                details = refusal.data.get("details") if isinstance(refusal.data, dict) else None
                # An unknown tool names itself in the details: then it may be served with the other prefix.
                if refusal.code != -32602 or "tool" not in (details or {}):
                    raise _error_of(refusal) from refusal
            else:
                self._prefix = prefix
                return raw
        raise InvalidRequest(
            f"The server at {self._url} has no bus, or an older one without `{tool}`.",
            hint="`toolpost bus serve` starts one that has",
        )

    async def _connect(self) -> McpClient:
        async with self._lock:
            if self._client is None:
                self._address = await self._find(self._address)
                self._client = McpClient("bus", self._address.url, token=self._address.token, network=self._network)
            return self._client

    async def _drop(self, client: McpClient) -> None:
        """Have the next call find the server again. The old client stays open until the next loss: other calls may use it."""
        if client is not self._client:
            return
        older, self._client, self._retired = self._retired, None, client
        if older is not None:
            await older.aclose()

    @property
    def _url(self) -> str:
        return self._address.url if self._address is not None else "its address"

    def _unavailable(self, what: str, hint: str) -> UpstreamUnavailable:
        return UpstreamUnavailable(f"The bus server at {self._url} {what}.", hint=hint)


def make_meta(**ours: Json) -> JsonObject:
    """Return `_meta` of a call with these values under the key of Toolpost."""
    return {META_KEY: ours}


def _parse_answer(raw: bytes) -> JsonObject:
    """Return the structured content of a result, or raise the error that it contains."""
    try:
        result: Any = msgspec.json.decode(raw)
        if not result.get("isError"):
            structured = result["structuredContent"]
            assert isinstance(structured, dict)
            return structured
        failure = msgspec.json.decode(result["content"][0]["text"])
        code = ErrorCode(failure["code"])
    except (msgspec.DecodeError, AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ToolFailed("The answer of the bus server is not a result of a bus tool.") from error
    raise _make_error(code, failure)


def _error_of(refusal: ServerRefused) -> ToolpostError:
    data = refusal.data if isinstance(refusal.data, dict) else {}
    try:
        code = ErrorCode(str(data.get("code")))
    except ValueError:
        code = ErrorCode.HANDLER_ERROR
    hint = "set TOOLPOST_TOKEN to the token of the server" if code is ErrorCode.UNAUTHORIZED else data.get("hint")
    return _make_error(code, {"message": refusal.message, "hint": hint})


def _make_error(code: ErrorCode, failure: JsonObject) -> ToolpostError:
    kind = _ERROR_TYPES.get(code, ToolFailed)
    details = failure.get("details")
    return kind(str(failure.get("message")), hint=failure.get("hint"), **(details if isinstance(details, dict) else {}))
