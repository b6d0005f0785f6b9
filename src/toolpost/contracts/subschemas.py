"""How a schema is built: its draft, the schemas inside it, and the places they are at."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from toolpost.base.ids import Json, JsonObject

# Where schemas sit in a schema. Everything else (`enum`, `const`, `default`, `examples`) holds values.
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
    """Return the number or the year of the schema's draft, None for one that nobody knows."""
    named = raw.get("$schema", _NEWEST)
    uri = named.removesuffix("#") if isinstance(named, str) else ""
    return _DRAFTS.get(uri.removeprefix("https://").removeprefix("http://"))


def rewrite_boolean_bounds(raw: JsonObject) -> JsonObject:
    """Write bounds of draft-04, `"minimum": 1, "exclusiveMinimum": true`, as later drafts do: `"exclusiveMinimum": 1`.

    Generators from OpenAPI write them so and name no draft. As 2020-12 such a schema is invalid; models' APIs reject it
    too, so it is not merely read as draft-04. A schema that names its draft, or has no such bound, is returned as it is.
    """
    if "$schema" in raw or not _has_boolean_bound(raw):
        return raw
    try:
        rewritten: JsonObject = _with_numeric_bounds(raw)
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


def _with_numeric_bounds(schema: Json) -> Json:
    if not isinstance(schema, dict):
        return schema
    copy = {keyword: _with_numeric_bounds_under(keyword, value) for keyword, value in schema.items()}
    for exclusive, bound in _BOUNDS:
        if copy.get(exclusive) is False:
            del copy[exclusive]
        elif copy.get(exclusive) is True and bound in copy:
            copy[exclusive] = copy.pop(bound)
    return copy


def _with_numeric_bounds_under(keyword: str, value: Json) -> Json:
    if isinstance(value, dict) and keyword in ONE_SUBSCHEMA:
        return _with_numeric_bounds(value)
    if isinstance(value, dict) and keyword in SUBSCHEMA_MAP:
        return {name: _with_numeric_bounds(child) for name, child in value.items()}
    if isinstance(value, list) and keyword in SUBSCHEMA_LIST:
        return [_with_numeric_bounds(child) for child in value]
    return value


class Subschema(NamedTuple):
    """A schema inside a schema: where it is, how many schemas lie above it."""

    place: str
    depth: int
    schema: JsonObject


def walk_subschemas(raw: JsonObject) -> Iterator[Subschema]:
    """Yield the schema and every object schema inside it, outer before inner, in document order."""
    waiting = [Subschema("", 0, raw)]
    while waiting:
        part = waiting.pop()
        yield part
        inner = [
            Subschema(part.place + place, part.depth + 1, child)
            for keyword, value in part.schema.items()
            for place, child in schemas_under(keyword, value)
        ]
        waiting.extend(reversed(inner))


def schemas_under(keyword: str, value: Json) -> Iterator[tuple[str, JsonObject]]:
    """Yield the object schemas that a keyword holds, and their places from the schema around them."""
    if keyword not in SUBSCHEMA_KEYWORDS:
        return
    if isinstance(value, dict) and keyword in ONE_SUBSCHEMA:
        yield f"/{keyword}", value
        return
    for step, child in _children_of(value):
        if isinstance(child, dict):
            yield to_pointer((keyword, step)), child


def _children_of(value: Json) -> Iterable[tuple[str | int, Json]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def declared_properties(place: str, schema: JsonObject) -> dict[str, tuple[str, Json]]:
    """Return the properties that a schema itself declares, and where."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {name: (place + to_pointer(("properties", name)), child) for name, child in properties.items()}


def to_pointer(path: Iterable[str | int]) -> str:
    """Write a path as a JSON Pointer; the root is the empty text."""
    return "".join(f"/{_escape(step)}" for step in path)


def _escape(step: str | int) -> str:
    return step.replace("~", "~0").replace("/", "~1") if isinstance(step, str) else str(step)


def resolve_pointer(raw: Json, place: str) -> Json:
    """Return what a JSON Pointer points at, or None."""
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
