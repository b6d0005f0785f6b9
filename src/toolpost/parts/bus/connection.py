"""The way to a bus server: kept, found again when it is lost, and asked once more where asking twice does no harm."""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import msgspec

from toolpost.base.events import event
from toolpost.base.ids import META_KEY, Json, JsonObject
from toolpost.contracts import errors
from toolpost.contracts.errors import CallCancelled, ErrorCode, ToolpostError, UpstreamUnavailable
from toolpost.protocol.era import CLIENT_CAPABILITIES, CLIENT_INFO, MODERN, PROTOCOL_VERSION
from toolpost.upstreams.handshake import CLIENT
from toolpost.upstreams.http.client import HttpClient
from toolpost.upstreams.http.transport import HttpTransport
from toolpost.upstreams.transport import ConnectionLost, ServerRefused, encode

_log = logging.getLogger("toolpost.parts.bus")

RETRY_S: Final = 20.0
"""How long a server that is away is waited for: one that restarts is there again sooner."""

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
_GATEWAY_PREFIX: Final = "bus__"
_ERROR_TYPES: Final[dict[ErrorCode, type[ToolpostError]]] = {
    kind.code: kind
    for kind in (
        errors.InvalidRequest,
        errors.InvalidArguments,
        errors.NotFound,
        errors.Unauthorized,
        errors.Forbidden,
        errors.CallCancelled,
        errors.QueueOverloaded,
        errors.StaleLease,
        errors.ToolFailed,
        errors.InvalidResult,
        errors.CapabilityMissing,
    )
}


@dataclass(frozen=True, kw_only=True)
class ServerAddress:
    """Where a bus server is, and what lets us in."""

    url: str
    token: str | None = field(default=None, repr=False)


FindServer = Callable[[ServerAddress | None], Awaitable[ServerAddress]]
"""Says where the server is; is told the address that does not answer any more, if there was one."""


class _ServerLost(Exception):
    """No answer came."""

    def __init__(self, reason: str, *, was_sent: bool) -> None:
        super().__init__(reason)
        self.was_sent = was_sent


class BusConnection:
    """A way to wherever the server is now."""

    def __init__(self, find: FindServer, *, retry_s: float = RETRY_S) -> None:
        self.retry_s = retry_s
        self._find = find
        self._lock = anyio.Lock()
        self._address: ServerAddress | None = None
        self._client: HttpClient | None = None
        self._transport: HttpTransport | None = None
        self._retired: HttpClient | None = None
        self._prefix = ""

    @property
    def is_up(self) -> bool:
        """Whether there is a server that answered, or was just found."""
        return self._transport is not None

    async def connect_early(self) -> None:
        """Find the server, or have it started, before anybody asks; a failure is told to who asks."""
        try:
            await self._connect()
        except ToolpostError as error:
            event(_log, logging.WARNING, "no bus server yet", reason=error.message, hint=error.hint)

    async def aclose(self) -> None:
        """Close every connection; the server calls off what still waits."""
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
        """Run one of the tools; a server that is away is waited for, if asking again does no harm.

        `on_repeat` is called when it is asked again without anybody knowing what came of the first time.
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
                        "it may have done it all the same: `get_status` shows how things stand",
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
        transport = await self._connect()
        try:
            return _parse_answer(await self._send(transport, tool, arguments, meta))
        except ConnectionLost as lost:
            await self._drop(transport)
            raise _ServerLost(lost.message, was_sent=lost.was_sent) from lost
        except UpstreamUnavailable as error:
            raise _ServerLost(error.message, was_sent=True) from error
        except CallCancelled as error:
            # Nobody here gave up: the server ends.
            raise _ServerLost(error.message, was_sent=True) from error

    async def _send(self, transport: HttpTransport, tool: str, arguments: JsonObject, meta: JsonObject) -> bytes:
        for prefix in (self._prefix, "" if self._prefix else _GATEWAY_PREFIX):
            name = f"{prefix}{tool}"
            fields = b'"name":%b,"arguments":%b' % (encode(name), encode(arguments))
            try:
                raw = await transport.request("tools/call", fields, name=name, meta=meta)
            except ServerRefused as refusal:
                if not _is_unknown_tool(refusal):
                    raise _error_of(refusal) from refusal
            else:
                self._prefix = prefix
                return raw
        raise errors.InvalidRequest(
            f"The server at {self._url} has no bus, or an older one without `{tool}`.",
            hint="`toolpost bus serve` starts one that has",
        )

    async def _connect(self) -> HttpTransport:
        async with self._lock:
            if self._transport is None:
                self._address = await self._find(self._address)
                token = self._address.token
                headers = {"authorization": f"Bearer {token}"} if token else {}
                self._client = HttpClient(self._address.url, headers=headers)
                self._transport = HttpTransport("bus", self._client, on_notification=lambda *_: None)
                envelope = {PROTOCOL_VERSION: MODERN.version, CLIENT_INFO: CLIENT, CLIENT_CAPABILITIES: {}}
                self._transport.use(envelope=envelope, headers={"mcp-protocol-version": MODERN.version})
            return self._transport

    async def _drop(self, transport: HttpTransport) -> None:
        """Look for the server anew at the next question; others may still be answered on what there was."""
        if transport is not self._transport:
            return
        self._transport, client, before = None, self._client, self._retired
        self._client, self._retired = None, client
        if before is not None:
            await before.aclose()

    @property
    def _url(self) -> str:
        return self._address.url if self._address is not None else "its address"

    def _unavailable(self, what: str, hint: str) -> UpstreamUnavailable:
        return UpstreamUnavailable(f"The bus server at {self._url} {what}.", hint=hint)


def make_meta(**ours: Json) -> JsonObject:
    """Write what goes besides the arguments, in `_meta` under our key."""
    return {META_KEY: ours}


def _is_unknown_tool(refusal: ServerRefused) -> bool:
    return refusal.code == -32602 and isinstance(refusal.data, dict) and "tool" in (refusal.data.get("details") or {})


def _parse_answer(raw: bytes) -> JsonObject:
    """Take what a tool returned out of its result, or raise the error that it is."""
    try:
        result: Any = msgspec.json.decode(raw)
        if not result.get("isError"):
            structured = result["structuredContent"]
            assert isinstance(structured, dict)
            return structured
        shown = msgspec.json.decode(result["content"][0]["text"])
        code = ErrorCode(shown["code"])
    except (msgspec.DecodeError, AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise errors.ToolFailed("The bus server answered with something that is no result of a bus.") from error
    raise _make_error(code, shown)


def _error_of(refusal: ServerRefused) -> ToolpostError:
    data = refusal.data if isinstance(refusal.data, dict) else {}
    try:
        code = ErrorCode(str(data.get("code")))
    except ValueError:
        code = ErrorCode.HANDLER_ERROR
    hint = "its token goes into TOOLPOST_TOKEN" if code is ErrorCode.UNAUTHORIZED else data.get("hint")
    return _make_error(code, {"message": refusal.message, "hint": hint})


def _make_error(code: ErrorCode, shown: JsonObject) -> ToolpostError:
    """Make the error again that the server raised."""
    kind = _ERROR_TYPES.get(code, errors.ToolFailed)
    details = shown.get("details")
    return kind(str(shown.get("message")), hint=shown.get("hint"), **(details if isinstance(details, dict) else {}))
