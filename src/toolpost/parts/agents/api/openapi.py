"""The OpenAPI description of the conversations API, generated from its routes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import msgspec

from toolpost import __version__
from toolpost.base import JsonObject
from toolpost.parts.agents.turn_events import TurnEvent

_REFERENCE: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"


@dataclass(frozen=True, kw_only=True)
class ApiOperation:
    """A method of a path, as OpenAPI calls it, with what its description needs."""

    method: str
    path: str
    """`{thread}` stands for the id of a thread."""
    summary: str
    body: type[msgspec.Struct] | None = None
    response: type[msgspec.Struct] | None = None
    query: tuple[str, ...] = ()
    """Parameters of the query; all are numbers."""
    status: int = 200
    streams: bool = False
    """Whether it responds with server-sent events to clients that accept them."""
    errors: tuple[int, ...] = ()
    """Further status codes. An operation that streams may send them with its `response`: the failed turn."""


@cache
def describe_api(operations: Sequence[ApiOperation]) -> JsonObject:
    """Return the OpenAPI document."""
    structs = {struct for each in operations for struct in (each.body, each.response) if struct is not None}
    ordered = [*sorted(structs, key=lambda struct: struct.__name__), TurnEvent]
    schemas, components = msgspec.json.schema_components(ordered, ref_template=_REFERENCE)
    *_, events = schemas
    paths: dict[str, JsonObject] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Toolpost: conversations", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**components, "TurnEvent": events, "Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _describe(operation: ApiOperation) -> JsonObject:
    has_thread = "{thread}" in operation.path
    parameters: list[JsonObject] = [
        {"name": name, "in": "query", "schema": {"type": "number"}} for name in operation.query
    ]
    if has_thread:
        parameters.append({"name": "thread", "in": "path", "required": True, "schema": {"type": "string"}})

    content: dict[str, Any] = {}
    if operation.response is not None:
        content[_JSON] = {"schema": _ref(operation.response.__name__)}
    elif not operation.streams:
        content[_JSON] = {"schema": {"type": "object"}}
    if operation.streams:
        content[_EVENTS] = {"schema": _ref("TurnEvent")}
    responses: JsonObject = {str(operation.status): {"description": "success", "content": content}}

    of_thread = (404,) if has_thread else ()
    of_body = (413, 415) if operation.body is not None else ()
    for status in sorted({400, 401, 403, 421, *of_thread, *of_body, *operation.errors}):
        schema = _ref("Error")
        if operation.streams and operation.response is not None and status in operation.errors:
            schema = {"anyOf": [_ref(operation.response.__name__), schema]}
        responses[str(status)] = {"description": "refused, or failed", "content": {_JSON: {"schema": schema}}}

    described: JsonObject = {"summary": operation.summary, "responses": responses}
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        body = {_JSON: {"schema": _ref(operation.body.__name__)}}
        described["requestBody"] = {"required": True, "content": body}
    return described


def _ref(name: str) -> JsonObject:
    return {"$ref": _REFERENCE.format(name=name)}


_ERROR: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"code": {"type": "string"}, "message": {"type": "string"}, "hint": {"type": "string"}},
            "required": ["code", "message"],
        }
    },
    "required": ["error"],
}
