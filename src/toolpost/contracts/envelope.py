"""The two styles of an answer, and the schema of each.

`envelope`: `{"ok": true, "data": …}` or `{"ok": false, "error": {…}}`. `plain`: the tool's own value, or the bare error object.
"""

import json
from enum import StrEnum
from typing import Final

import msgspec

from toolpost.base.ids import Json, JsonObject
from toolpost.contracts.document import SUBSCHEMA_MAP
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


class ResultStyle(StrEnum):
    """How a tool's answers look on the wire."""

    ENVELOPE = "envelope"
    PLAIN = "plain"


def wrap_output_schema(result_schema: JsonObject | bool, style: ResultStyle) -> JsonObject | bool:
    """Return the schema of the envelope for the schema of a tool's value."""
    if style is ResultStyle.PLAIN:
        return result_schema
    inner: Json = result_schema
    dialect: JsonObject = {}
    if isinstance(result_schema, dict):
        # A schema with an `$id` resolves its references against that, wherever it is.
        has_id = "$id" in result_schema or "id" in result_schema
        inner = dict(result_schema) if has_id else _move_references(result_schema)
        dialect = {"$schema": inner.pop("$schema")} if "$schema" in inner else {}
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
    """Wrap an error object in the style's envelope, whatever values its author put into it: the caller needs an answer."""
    try:
        encoded = _encode(error)
    except ValueError:
        # Half of a surrogate pair, as in a file name that is not UTF-8: parsers refuse it even escaped.
        encoded = json.dumps(error, default=repr, ensure_ascii=False).encode("utf-8", "replace")
    return b'{"ok":false,"error":%b}' % encoded if style is ResultStyle.ENVELOPE else encoded


def _move_references(node: Json, *, is_map: bool = False) -> Json:
    """Copy a schema for its place inside the envelope, with the references to its own root adjusted: `#/$defs/A` is at
    `#/properties/data/$defs/A` there. The keys of a map are names, not keywords.
    """
    if isinstance(node, list):
        return [_move_references(item) for item in node]
    if not isinstance(node, dict):
        return node
    moved: JsonObject = {}
    for key, value in node.items():
        is_local = isinstance(value, str) and (value == "#" or value.startswith("#/"))
        if key in ("$ref", "$dynamicRef") and is_local:
            moved[key] = f"#/properties/data{value[1:]}"
        elif not is_map and key in ("const", "enum", "default", "examples"):
            moved[key] = value  # It may look like a schema.
        else:
            moved[key] = _move_references(value, is_map=not is_map and key in SUBSCHEMA_MAP)
    return moved
