"""How a schema is built: its draft, the schemas inside it, and the places they are at."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from toolpost.contracts.ids import Json, JsonObject

# Where schemas sit in a schema. Everything else (`enum`, `const`, `default`, `examples`) holds values.
HOLDS_ONE = frozenset(
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
HOLDS_MANY = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
HOLDS_NAMED = frozenset({"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"})
HOLDS_SCHEMAS = HOLDS_ONE | HOLDS_MANY | HOLDS_NAMED

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


class Part(NamedTuple):
    """A schema inside a schema: where it is, how many schemas lie above it."""

    place: str
    depth: int
    schema: JsonObject


def parts_of(raw: JsonObject) -> Iterator[Part]:
    """Yield the schema and every object schema inside it, outer before inner, in document order."""
    waiting = [Part("", 0, raw)]
    while waiting:
        part = waiting.pop()
        yield part
        inner = [
            Part(part.place + place, part.depth + 1, child)
            for keyword, value in part.schema.items()
            for place, child in schemas_under(keyword, value)
        ]
        waiting.extend(reversed(inner))


def schemas_under(keyword: str, value: Json) -> Iterator[tuple[str, JsonObject]]:
    """Yield the object schemas that a keyword holds, and their places from the schema around them."""
    if keyword not in HOLDS_SCHEMAS:
        return
    if isinstance(value, dict) and keyword in HOLDS_ONE:
        yield f"/{keyword}", value
        return
    for step, child in _held(value):
        if isinstance(child, dict):
            yield pointer((keyword, step)), child


def _held(value: Json) -> Iterable[tuple[str | int, Json]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def own_properties(place: str, schema: JsonObject) -> dict[str, tuple[str, Json]]:
    """Return the properties that a schema itself declares, and where."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {name: (place + pointer(("properties", name)), child) for name, child in properties.items()}


def pointer(path: Iterable[str | int]) -> str:
    """Write a path as a JSON Pointer; the root is the empty text."""
    return "".join(f"/{_escaped(step)}" for step in path)


def _escaped(step: str | int) -> str:
    return step.replace("~", "~0").replace("/", "~1") if isinstance(step, str) else str(step)


def part_at(raw: Json, place: str) -> Json:
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
