"""The structure of a schema: its draft, the schemas inside it, and their places.

A *place* is the JSON Pointer of a schema in its document; the root is the empty text.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from toolpost.base.ids import Json, JsonObject

# Keywords that hold schemas: one, a list, or a map by name. All others (`enum`, `const`, `default`, `examples`) hold values.
ONE_SUBSCHEMA = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
SUBSCHEMA_LIST = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
SUBSCHEMA_MAP = frozenset(
    {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)
SUBSCHEMA_KEYWORDS = ONE_SUBSCHEMA | SUBSCHEMA_LIST | SUBSCHEMA_MAP

_BOUNDS = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))

_NEWEST = "json-schema.org/schema"
_DRAFTS = {
    "json-schema.org/draft-04/schema": 4,
    "json-schema.org/draft-06/schema": 6,
    "json-schema.org/draft-07/schema": 7,
    "json-schema.org/draft/2019-09/schema": 2019,
    "json-schema.org/draft/2020-12/schema": 2020,
    _NEWEST: 2020,
}


def draft_of(raw: JsonObject) -> int | None:
    """Return the number or the year of the schema's draft (4 to 2020), None for an unknown one."""
    named = raw.get("$schema", _NEWEST)
    uri = named.removesuffix("#") if isinstance(named, str) else ""
    return _DRAFTS.get(uri.removeprefix("https://").removeprefix("http://"))


def rewrite_boolean_bounds(raw: JsonObject) -> JsonObject:
    """Write bounds of draft-04, `"minimum": 1, "exclusiveMinimum": true`, as later drafts do: `"exclusiveMinimum": 1`.

    Generators from OpenAPI write them so and name no draft. As 2020-12 such a schema is invalid, and the APIs of models reject it
    too, so reading it as draft-04 would not help. A schema that names its draft, or has no such bound, is returned as it is.
    """
    if "$schema" in raw or not _has_boolean_bound(raw):
        return raw
    try:
        rewritten: JsonObject = _rewrite_bounds(raw)
    except RecursionError:
        return raw
    return rewritten


def _has_boolean_bound(raw: JsonObject) -> bool:
    waiting = [raw]
    while waiting:
        schema = waiting.pop()
        if any(isinstance(schema.get(exclusive), bool) for exclusive, _ in _BOUNDS):
            return True
        for keyword, value in schema.items():
            waiting.extend(child for _, child in schemas_under(keyword, value))
    return False


def _rewrite_bounds(schema: Json) -> Json:
    if not isinstance(schema, dict):
        return schema
    copy = map_subschemas(schema, _rewrite_bounds)
    for exclusive, bound in _BOUNDS:
        if copy.get(exclusive) is False:
            del copy[exclusive]
        elif copy.get(exclusive) is True and bound in copy:
            copy[exclusive] = copy.pop(bound)
    return copy


def map_subschemas(schema: JsonObject, function: Callable[[Json], Json]) -> JsonObject:
    """Return a copy of a schema in which `function` has replaced each schema directly inside it."""
    copy: JsonObject = {}
    for keyword, value in schema.items():
        if isinstance(value, dict) and keyword in SUBSCHEMA_MAP:
            copy[keyword] = {name: function(child) for name, child in value.items()}
        elif isinstance(value, list) and keyword in SUBSCHEMA_LIST:
            copy[keyword] = [function(child) for child in value]
        else:
            copy[keyword] = function(value) if keyword in ONE_SUBSCHEMA else value
    return copy


class Subschema(NamedTuple):
    """A schema inside a schema; `depth` is the number of schemas above it."""

    place: str
    depth: int
    schema: JsonObject


def walk_subschemas(raw: JsonObject) -> Iterator[Subschema]:
    """Yield the schema and every object schema inside it, outer before inner, in document order."""
    waiting = [Subschema("", 0, raw)]
    while waiting:
        subschema = waiting.pop()
        yield subschema
        inner = [
            Subschema(subschema.place + place, subschema.depth + 1, child)
            for keyword, value in subschema.schema.items()
            for place, child in schemas_under(keyword, value)
        ]
        waiting.extend(reversed(inner))


def schemas_under(keyword: str, value: Json) -> Iterator[tuple[str, JsonObject]]:
    """Yield the object schemas that a keyword holds, with their places relative to the schema around them."""
    if keyword not in SUBSCHEMA_KEYWORDS:
        return
    if isinstance(value, dict) and keyword in ONE_SUBSCHEMA:
        yield f"/{keyword}", value
        return
    children: Iterable[tuple[str | int, Json]] = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = enumerate(value)
    for step, child in children:
        if isinstance(child, dict):
            yield to_pointer((keyword, step)), child


def declared_properties(place: str, schema: JsonObject) -> dict[str, tuple[str, Json]]:
    """Return the properties in the schema's own `properties`, each with its place and schema."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {name: (place + to_pointer(("properties", name)), child) for name, child in properties.items()}


def to_pointer(path: Iterable[str | int]) -> str:
    """Write a path as a JSON Pointer."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def resolve_pointer(raw: Json, place: str) -> Json:
    """Return the value that a JSON Pointer points at, None if there is none."""
    found = raw
    for step in place.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found
