"""JSON-RPC messages as values: bytes in, messages out. No sockets."""

import asyncio
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Literal

import msgspec

from toolpost.base import Json, JsonObject, event
from toolpost.contracts.errors import GatewayError, StoreUnavailable, ToolpostError
from toolpost.protocol.shape import SMALL_BYTES, VALUE_LIMIT, BadShape, check_shape

_log = logging.getLogger("toolpost.endpoints")

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

ID_LIMIT_BYTES: Final = 256

OFF_LOOP_BYTES: Final = 256 * 1024
"""Larger messages are parsed in a thread; a smaller one takes less than 50 ms, whatever it contains."""

_ABSENT: Final = msgspec.Raw(b"")
# One thread: parsing holds the interpreter lock most of the time, so more threads would not be faster.
_parser_thread: Final = ThreadPoolExecutor(1, thread_name_prefix="toolpost-parser")

encode = msgspec.json.Encoder().encode


class ProtocolError(Exception):
    """A request that breaks the protocol: answered with a JSON-RPC error, never with a tool's result."""

    def __init__(self, code: int, message: str, *, data: Json = None, request_id: bytes = b"null") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.request_id = request_id

    def as_response(self) -> bytes:
        error: JsonObject = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (self.request_id, encode(error))


class _Wire(msgspec.Struct):
    jsonrpc: Any = None
    id: msgspec.Raw = _ABSENT
    method: str | None = None
    params: msgspec.Raw = _ABSENT


class RpcMessage:
    """A request, a notification, or a client's response to a server request."""

    __slots__ = ("_params", "id", "method", "raw")

    def __init__(self, raw: bytes, request_id: bytes | None, method: str | None, params: "bytes | _CallParams") -> None:
        self.raw = raw
        self.id = request_id
        """The id as it was written, so that it is returned unchanged; None for a notification."""
        self.method = method
        """None for a response."""
        self._params = params

    @property
    def params(self) -> bytes:
        """The parameters as JSON."""
        return self._params if isinstance(self._params, bytes) else bytes(_wire.decode(self.raw).params)

    @property
    def key(self) -> str:
        """The id as a string: `7` and `"7"` are the same request."""
        assert self.id is not None
        return id_key(msgspec.json.decode(self.id))


class Resumption(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a client of the stateless era to a result that asked for input."""

    responses: dict[str, Any]
    state: str | None


class _CallParams(msgspec.Struct):
    name: str
    arguments: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")
    responses: dict[str, Any] | None = msgspec.field(default=None, name="inputResponses")
    state: str | None = msgspec.field(default=None, name="requestState")


class _Call(msgspec.Struct):
    jsonrpc: Literal["2.0"]
    id: msgspec.Raw
    method: Literal["tools/call"]
    params: _CallParams


class _ListParams(msgspec.Struct):
    cursor: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


_wire = msgspec.json.Decoder(_Wire)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_call = msgspec.json.Decoder(_Call)
_call_params = msgspec.json.Decoder(_CallParams)
_list_params = msgspec.json.Decoder(_ListParams)

_FAILURES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


async def parse_off_loop(raw: bytes) -> RpcMessage:
    """Parse in a thread, for messages of more than `OFF_LOOP_BYTES`."""
    return await asyncio.get_running_loop().run_in_executor(_parser_thread, parse, raw)


def parse(raw: bytes) -> RpcMessage:
    """Parse one message; raises `ProtocolError`."""
    if len(raw) >= SMALL_BYTES:
        refuse_bad_shape(raw)
    if not raw.isascii():
        # msgspec does not check the id, which is returned as it came, nor members that it skips.
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            reason = f"The message is not JSON: {error}"
            raise ProtocolError(PARSE_ERROR, reason, request_id=find_request_id(raw)) from error
    if (call := _parse_call(raw)) is not None:
        return call
    try:
        wire = _wire.decode(raw)
    except msgspec.ValidationError as error:
        reason = f"The message is not a JSON-RPC request: {error}"
        if raw.lstrip()[:1] == b"[":
            reason = "Batches are part of no revision that is served: send one message at a time"
        raise ProtocolError(INVALID_REQUEST, reason) from error
    except _FAILURES as error:
        if _SURROGATE.search(raw) is not None and (found_id := find_request_id(raw)) != b"null":
            # JSON's grammar allows half of a pair, so this is a request, and its client waits for an answer to it.
            reason = "The message has half of a surrogate pair, which is no text"
            raise ProtocolError(INVALID_REQUEST, reason, request_id=found_id) from error
        raise ProtocolError(PARSE_ERROR, f"The message is not JSON: {error}") from error
    request_id = _check_id(bytes(wire.id))
    if wire.jsonrpc != "2.0":
        raise ProtocolError(INVALID_REQUEST, 'A message says "jsonrpc": "2.0"', request_id=request_id or b"null")
    return RpcMessage(raw, request_id, wire.method, bytes(wire.params))


def parse_outgoing(raw: bytes) -> RpcMessage:
    """Parse a message to a client; written by Toolpost, so no limits are checked."""
    wire = _wire.decode(raw)
    return RpcMessage(raw, bytes(wire.id) or None, wire.method, bytes(wire.params))


def refuse_bad_shape(raw: bytes, *, value_limit: int = VALUE_LIMIT) -> None:
    """Raise `ProtocolError` for a message that would block the event loop if it were decoded."""
    try:
        check_shape(raw, value_limit=value_limit)
    except BadShape as error:
        raise ProtocolError(INVALID_REQUEST, f"The message {error}", request_id=find_request_id(raw)) from error


_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")

# The members of a request besides its parameters. An id with other characters, or with escapes, is not found.
_MEMBER = rb'\s*"(?:jsonrpc|id|method)"\s*:\s*(?:-?(?:0|[1-9][0-9]{0,63})|"[ !#-\[\]-~]{0,254}")\s*'
_MEMBERS_BEFORE: Final = re.compile(rb"\s*\{((?:%b,){1,3})" % _MEMBER)
_MEMBERS_AFTER: Final = re.compile(rb"[\]}\"0-9el]\s*,((?:%b,){0,2}%b)\}\s*\Z" % (_MEMBER, _MEMBER))
_FIELD_BYTES: Final = 1_024


def find_request_id(raw: bytes) -> bytes:
    """Return the id of a request that is refused without being parsed, as it was written; `null` if it is not easily found.

    Parameters are what makes a request large, so the id is before or after them: only a few bytes at both ends are read. A
    response has no method, and its id is that of a server request: for it, `null` is returned.
    """
    members: dict[str, msgspec.Raw] = {}
    before = _MEMBERS_BEFORE.match(raw[:_FIELD_BYTES])
    after = _MEMBERS_AFTER.search(raw[-_FIELD_BYTES:])
    for found in (before, after):
        if found is not None:
            members |= _fields.decode(b"{%b}" % found[1].strip().rstrip(b","))
    return bytes(members["id"]) if "id" in members and "method" in members else b"null"


def _parse_call(raw: bytes) -> RpcMessage | None:
    """Decode a well-formed `tools/call` in one pass; return None to let `parse` report what is wrong."""
    try:
        call = _call.decode(raw)
    except _FAILURES:
        return None
    return RpcMessage(raw, _check_id(bytes(call.id)), call.method, call.params)


def call_params(message: RpcMessage) -> tuple[str, JsonObject, JsonObject, Resumption | None]:
    """Return name, arguments and `_meta` of a `tools/call`, and the answers with which a client resumes it."""
    decoded = message._params  # noqa: SLF001 (defined above)
    params: _CallParams = _decode(_call_params, message) if isinstance(decoded, bytes) else decoded
    resumption = None
    if params.state is not None or params.responses is not None:
        resumption = Resumption(responses=params.responses or {}, state=params.state)
    return params.name, params.arguments or {}, params.meta or {}, resumption


def list_params(message: RpcMessage) -> tuple[str | None, JsonObject]:
    """Return cursor and `_meta` of a `tools/list`."""
    params = _decode(_list_params, message)
    return params.cursor, params.meta or {}


def params_object(message: RpcMessage) -> JsonObject:
    """Return the parameters if they are an object, otherwise an empty one."""
    try:
        params = msgspec.json.decode(message.params or b"{}")
    except _FAILURES:
        return {}
    return params if isinstance(params, dict) else {}


def id_key(request_id: Json) -> str:
    """Return the key of a request while it is in flight."""
    return str(request_id)


def result_response(request_id: bytes, result: bytes) -> bytes:
    """Wrap the JSON of a result in a response."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (request_id, result)


def conceal_cause(error: ToolpostError) -> ToolpostError:
    """Return what a caller is sent for an error. One inside Toolpost is logged: its text may have the address of the store, or
    values of other callers.
    """
    kind = StoreUnavailable if isinstance(error, StoreUnavailable) else GatewayError
    if not isinstance(error, GatewayError) or error.message == kind().message:
        return error
    event(_log, logging.ERROR, "internal error", reason=error.message, exception=error)
    return kind()


def internal_error(error: Exception) -> ProtocolError:
    """Log a bug in Toolpost, and return the error for the client, without details."""
    event(_log, logging.ERROR, "internal error", exception=error)
    return ProtocolError(INTERNAL_ERROR, "Internal error")


def _decode(decoder: msgspec.json.Decoder[Any], message: RpcMessage) -> Any:
    try:
        return decoder.decode(message.params or b"{}")
    except (UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(
            PARSE_ERROR, f"The message is not JSON: {error}", request_id=message.id or b"null"
        ) from error
    except msgspec.DecodeError as error:
        text = str(error).replace("`$.", "`params.").replace("`$`", "`params`")
        raise ProtocolError(INVALID_PARAMS, f"Invalid parameters: {text}", request_id=message.id or b"null") from error


def _check_id(raw: bytes) -> bytes | None:
    """Return an id if it is a string or an integer of at most `ID_LIMIT_BYTES`, None if there is none."""
    if not raw:
        return None
    if len(raw) > ID_LIMIT_BYTES:
        raise ProtocolError(INVALID_REQUEST, f"A request id has at most {ID_LIMIT_BYTES} bytes")
    if raw[:1] == b'"' or raw.lstrip(b"-").isdigit():
        return raw
    raise ProtocolError(INVALID_REQUEST, "A request id is a string or a whole number")
