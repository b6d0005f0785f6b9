"""The API of conversations as OpenAPI describes it, made out of the list of what it serves."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import msgspec

from toolpost.base.ids import JsonObject
from toolpost.base.turns import TurnEvent
from toolpost.base.version import __version__

_REFERENCE: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"


@dataclass(frozen=True, kw_only=True)
class Described:
    """One thing that can be asked."""

    method: str
    path: str
    """`{thread}` stands for the id of one."""
    summary: str
    takes: type[msgspec.Struct] | None = None
    gives: type[msgspec.Struct] | None = None
    query: tuple[str, ...] = ()
    status: int = 200
    streams: bool = False
    refuses: tuple[int, ...] = ()
    """With which other status it may end; where something is given, that may be what says so."""


@cache
def description(routes: Sequence[Described]) -> JsonObject:
    """Describe what there is."""
    kinds = {kind for route in routes for kind in (route.takes, route.gives) if kind is not None}
    ordered = [*sorted(kinds, key=lambda kind: kind.__name__), TurnEvent]
    schemas, components = msgspec.json.schema_components(ordered, ref_template=_REFERENCE)
    *_, events = schemas
    paths: dict[str, JsonObject] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
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


def _operation(route: Described) -> JsonObject:
    parameters: list[JsonObject] = [{"name": name, "in": "query", "schema": {"type": "number"}} for name in route.query]
    if "{thread}" in route.path:
        parameters.append({"name": "thread", "in": "path", "required": True, "schema": {"type": "string"}})
    responses: JsonObject = {str(route.status): {"description": "as asked", "content": _content(route)}}
    for code in _codes(route):
        schema = _ref("Error")
        if route.streams and route.gives is not None and code in route.refuses:
            schema = {"anyOf": [_ref(route.gives.__name__), schema]}
        responses[str(code)] = {"description": "refused, or failed", "content": {_JSON: {"schema": schema}}}
    operation: JsonObject = {"summary": route.summary, "responses": responses}
    if parameters:
        operation["parameters"] = parameters
    if route.takes is not None:
        content = {_JSON: {"schema": _ref(route.takes.__name__)}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _codes(route: Described) -> list[int]:
    """Say with which status a request may be refused."""
    of_thread = (404,) if "{thread}" in route.path else ()
    of_body = (413, 415) if route.takes is not None else ()
    return sorted({400, 401, 403, 421, *of_thread, *of_body, *route.refuses})


def _content(route: Described) -> JsonObject:
    content: dict[str, Any] = {}
    if route.gives is not None:
        content[_JSON] = {"schema": _ref(route.gives.__name__)}
    elif not route.streams:
        content[_JSON] = {"schema": {"type": "object"}}
    if route.streams:
        content[_EVENTS] = {"schema": _ref("TurnEvent")}
    return content


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
