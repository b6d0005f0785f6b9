"""What a command line needs to know of an argument's schema. Validation is left to the contract."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from toolpost.base.ids import Json, JsonObject

_DEPTH: Final = 16
_PARTS: Final = 1_000
_ARRAYS: Final = 4
"""Nesting of arrays that is described: a schema may refer to itself."""

_ALTERNATIVES: Final = ("anyOf", "oneOf", "allOf")


def resolve(schema: Json, root: JsonObject) -> JsonObject:
    """Follow `$ref` within the document; keywords beside a `$ref` are kept."""
    for _ in range(_DEPTH):
        if not isinstance(schema, dict) or not isinstance(reference := schema.get("$ref"), str):
            break
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        target = _follow_pointer(reference, root)
        schema = {**target, **siblings} if isinstance(target, dict) else siblings
    return schema if isinstance(schema, dict) else {}


def properties_of(schema: Json, root: JsonObject) -> JsonObject:
    found: JsonObject = {}
    for part in _walk(schema, root):
        declared = part.get("properties")
        found |= declared if isinstance(declared, dict) else {}
    return found


def items_of(schema: Json, root: JsonObject) -> Json:
    """Return the schema of an array's items, `{}` if there is none."""
    return next((part["items"] for part in _walk(schema, root) if "items" in part), {})


def types_of(schema: Json, root: JsonObject) -> list[str]:
    """Return the types that a value may have, in declared order; empty if any."""
    found: dict[str, None] = {}
    for part in _walk(schema, root):
        declared = part.get("type", ())
        found |= dict.fromkeys([declared] if isinstance(declared, str) else declared)
        values = part.get("enum", [part["const"]] if "const" in part else [])
        found |= dict.fromkeys(_type_of(value) for value in values) if "type" not in part else {}
    return list(found)


def may_be_text(schema: Json, root: JsonObject, text: str) -> bool:
    """Whether a text may be the value as it is: some schemas take other types, and a few fixed strings besides."""
    for part in _walk(schema, root):
        values = part.get("enum", [part["const"]] if "const" in part else None)
        if isinstance(values, list):
            if text in values:
                return True
        elif "string" in str(part.get("type", "")) and len(text) <= _longest_of(part):
            return True
    return False


def _longest_of(part: JsonObject) -> float:
    longest = part.get("maxLength")
    return longest if isinstance(longest, int | float) else float("inf")


def describe_type(schema: Json, root: JsonObject) -> str:
    """Describe the type of an argument, such as `array of string or null`."""
    return _describe_type(schema, root, 0)


def _describe_type(schema: Json, root: JsonObject, depth: int) -> str:
    if depth > _ARRAYS:
        return "any"
    types = [
        f"array of {_describe_type(items_of(schema, root), root, depth + 1)}" if name == "array" else name
        for name in types_of(schema, root)
    ]
    return " or ".join(types) or "any"


def _walk(schema: Json, root: JsonObject) -> Iterator[JsonObject]:
    """Yield a schema and the schemas it is composed of, at most `_PARTS`."""
    return islice(_walk_unbounded(schema, root, 0), _PARTS)


def _walk_unbounded(schema: Json, root: JsonObject, depth: int) -> Iterator[JsonObject]:
    if depth > _DEPTH:
        return
    whole = resolve(schema, root)
    yield whole
    for keyword in _ALTERNATIVES:
        alternatives = whole.get(keyword, ())
        for alternative in alternatives if isinstance(alternatives, list) else ():
            yield from _walk_unbounded(alternative, root, depth + 1)


def _follow_pointer(reference: str, root: JsonObject) -> Json:
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
