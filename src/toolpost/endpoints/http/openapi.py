"""The OpenAPI description of JSON APIs, made of their routes."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from toolpost.base.ids import JsonObject
from toolpost.base.version import __version__

if TYPE_CHECKING:
    from toolpost.endpoints.http.routes import Route

_REFERENCE: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_TYPES: Final = {str: "string", int: "integer", float: "number"}

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


def describe_routes(routes: Iterable["Route"]) -> JsonObject:
    """Return the OpenAPI document of all routes; each is tagged with the first segment of its path below `/api`."""
    routes = list(routes)
    structs = {kind: kind.__name__ for route in routes for kind in (route.body, route.response) if kind is not None}
    ordered = sorted(structs, key=lambda kind: (kind.__name__, kind.__module__))
    streams = list({route.events.name: route.events for route in routes if route.events is not None}.values())
    found, components = msgspec.json.schema_components(
        [*ordered, *(each.type for each in streams)], ref_template=_REFERENCE
    )
    schemas: dict[Any, JsonObject] = dict(zip(ordered, found, strict=False))
    named = {each.name: schema for each, schema in zip(streams, found[len(ordered) :], strict=True)}
    paths: dict[str, JsonObject] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Toolpost", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**components, **named, "Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _describe(route: "Route", schemas: dict[Any, JsonObject]) -> JsonObject:
    parameters: list[JsonObject] = [
        *({"name": name, "in": "query", "schema": {"type": _TYPES[kind]}} for name, kind in route.query.items()),
        *({"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in route.parameters),
    ]
    content: dict[str, Any] = {}
    if route.response is not None:
        content[_JSON] = {"schema": schemas[route.response]}
    elif route.events is None:
        content[_JSON] = {"schema": {"type": "object"}}
    if route.events is not None:
        content[_EVENTS] = {"schema": _ref(route.events.name)}
    responses: JsonObject = {str(route.status): {"description": "success", "content": content}}

    of_path = (404,) if route.parameters else ()
    of_body = () if route.is_reading else (413, 415)
    for status in sorted({400, 401, 403, 421, *of_path, *of_body, *route.errors}):
        schema = _ref("Error")
        if route.events is not None and route.response is not None and status in route.errors:
            schema = {"anyOf": [schemas[route.response], schema]}
        responses[str(status)] = {"description": "refused, or failed", "content": {_JSON: {"schema": schema}}}
    responses["default"] = {"description": "failed", "content": {_JSON: {"schema": _ref("Error")}}}

    tag = route.path.removeprefix("/api").split("/")[1]
    described: JsonObject = {"summary": route.title, "tags": [tag], "responses": responses}
    if parameters:
        described["parameters"] = parameters
    if route.body is not None:
        described["requestBody"] = {"required": True, "content": {_JSON: {"schema": schemas[route.body]}}}
    elif route.method in ("POST", "PUT", "PATCH"):
        described["requestBody"] = {"content": {_JSON: {"schema": {"type": "object"}}}}
    return described


def _ref(name: str) -> JsonObject:
    return {"$ref": _REFERENCE.format(name=name)}
