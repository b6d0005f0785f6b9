"""What a schema says about one argument, as far as a command line needs to know. The contract alone decides what is valid."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from toolpost.base.ids import Json, JsonObject

_DEPTH: Final = 16
_PARTS: Final = 1_000
_ARRAYS: Final = 4
"""An array of arrays of arrays is shown so far: a schema may lead back to itself."""

_ALTERNATIVES: Final = ("anyOf", "oneOf", "allOf")


def resolved(schema: Json, root: JsonObject) -> JsonObject:
    """Follow references within the document; what is beside a reference stays."""
    for _ in range(_DEPTH):
        if not isinstance(schema, dict) or not isinstance(reference := schema.get("$ref"), str):
            break
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        target = _target(reference, root)
        schema = {**target, **beside} if isinstance(target, dict) else beside
    return schema if isinstance(schema, dict) else {}


def properties_of(schema: Json, root: JsonObject) -> JsonObject:
    """Return the declared properties of an object."""
    found: JsonObject = {}
    for part in _parts(schema, root):
        declared = part.get("properties")
        found |= declared if isinstance(declared, dict) else {}
    return found


def items_of(schema: Json, root: JsonObject) -> Json:
    """Return the schema of an array's items."""
    return next((part["items"] for part in _parts(schema, root) if "items" in part), {})


def types_of(schema: Json, root: JsonObject) -> list[str]:
    """Name the types that a value may have, in the order in which they are declared."""
    found: dict[str, None] = {}
    for part in _parts(schema, root):
        declared = part.get("type", ())
        found |= dict.fromkeys([declared] if isinstance(declared, str) else declared)
        values = part.get("enum", [part["const"]] if "const" in part else [])
        found |= dict.fromkeys(_type_of(value) for value in values) if "type" not in part else {}
    return list(found)


def declared_type(schema: Json, root: JsonObject) -> str:
    """Write the type of an argument in a few words."""
    return _declared_type(schema, root, 0)


def _declared_type(schema: Json, root: JsonObject, depth: int) -> str:
    if depth > _ARRAYS:
        return "any"
    types = [
        f"array of {_declared_type(items_of(schema, root), root, depth + 1)}" if name == "array" else name
        for name in types_of(schema, root)
    ]
    return " or ".join(types) or "any"


def _parts(schema: Json, root: JsonObject) -> Iterator[JsonObject]:
    """Walk a schema and what it is composed of, as far as anybody would read on."""
    return islice(_all_parts(schema, root, 0), _PARTS)


def _all_parts(schema: Json, root: JsonObject, depth: int) -> Iterator[JsonObject]:
    if depth > _DEPTH:
        return
    whole = resolved(schema, root)
    yield whole
    for keyword in _ALTERNATIVES:
        alternatives = whole.get(keyword, ())
        for alternative in alternatives if isinstance(alternatives, list) else ():
            yield from _all_parts(alternative, root, depth + 1)


def _target(reference: str, root: JsonObject) -> Json:
    if not reference.startswith("#"):
        return None
    found: Json = root
    for step in reference[1:].split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _type_of(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
    return "array" if isinstance(value, list) else "object"
