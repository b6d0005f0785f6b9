"""The two styles of an answer, and the schema of what is really sent.

`envelope`: `{"ok": true, "data": …}` or `{"ok": false, "error": {…}}`. `plain`: the tool's own value, or the bare error object.
"""

import json
from enum import StrEnum
from typing import Final

import msgspec

from toolpost.base.ids import Json, JsonObject
from toolpost.contracts.errors import ErrorCode

_encode = msgspec.json.Encoder(enc_hook=repr).encode

SERVER_CODES: Final = frozenset({ErrorCode.CREDENTIAL_REQUIRED, ErrorCode.LOGIN_REQUIRED})
"""Codes of calls to upstream servers, whose tools have schemas of their own. They are not in the schema of the envelope, so that
they change no contract of a plugin's tool."""

ERROR_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "enum": [code.value for code in ErrorCode if code not in SERVER_CODES]},
        "message": {"type": "string"},
        "hint": {"type": "string"},
        "details": {"type": "object"},
        "timeoutMs": {"type": "number"},
        "stdout": {"type": "string"},
        "stderr": {"type": "string"},
    },
    "required": ["code", "message"],
}
"""The error object as a client validates it. Open, so that fields can be added without breaking clients."""

_DATA_PLACE = "/properties/data"


class ResultStyle(StrEnum):
    """How a tool's answers look on the wire."""

    ENVELOPE = "envelope"
    PLAIN = "plain"


def wrap_output_schema(result_schema: JsonObject | bool, style: ResultStyle) -> JsonObject | bool:
    """Return the schema of what is sent, given the schema of what the tool returns."""
    if style is ResultStyle.PLAIN:
        return result_schema
    inner = _move_schema(result_schema) if isinstance(result_schema, dict) else result_schema
    dialect = {"$schema": inner.pop("$schema")} if isinstance(inner, dict) and "$schema" in inner else {}
    return dialect | {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}, "data": inner, "error": ERROR_SCHEMA},
        "required": ["ok"],
        "oneOf": [
            {"properties": {"ok": {"const": True}}, "required": ["data"]},
            {"properties": {"ok": {"const": False}}, "required": ["error"]},
        ],
        "additionalProperties": False,
    }


def success_payload(result: bytes, style: ResultStyle) -> bytes:
    """Wrap the JSON of a result in the style's envelope."""
    return b'{"ok":true,"data":%b}' % result if style is ResultStyle.ENVELOPE else result


def failure_payload(error: JsonObject, style: ResultStyle) -> bytes:
    """Wrap an error object in the style's envelope."""
    encoded = _encode_error(error)
    return b'{"ok":false,"error":%b}' % encoded if style is ResultStyle.ENVELOPE else encoded


def _encode_error(error: JsonObject) -> bytes:
    """Encode an error whatever values its author put into it: the caller needs an answer."""
    try:
        return _encode(error)
    except ValueError:
        # Half of a surrogate pair, as in a file name that is not UTF-8: parsers refuse it even escaped.
        return json.dumps(error, default=repr, ensure_ascii=False).encode("utf-8", "replace")


def _move_schema(schema: JsonObject) -> JsonObject:
    """Copy a schema for its place inside the envelope, with the references to its own root adjusted."""
    if "$id" in schema or "id" in schema:
        # A schema with an `$id` resolves its references against that, wherever it is.
        return dict(schema)
    moved = _move_references(schema)
    assert isinstance(moved, dict)
    return moved


def _move_references(node: Json) -> Json:
    if isinstance(node, list):
        return [_move_references(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {key: _move_reference(key, value) for key, value in node.items()}


def _move_reference(key: str, value: Json) -> Json:
    if key in ("const", "enum", "default", "examples"):
        return value
    if key in ("$ref", "$dynamicRef") and isinstance(value, str) and (value == "#" or value.startswith("#/")):
        return f"#{_DATA_PLACE}{value[1:]}"
    return _move_references(value)
