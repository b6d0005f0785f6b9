"""How a value or a schema is shown to whoever sent it: short, and still JSON."""

import json
from collections.abc import Sequence

from toolpost.base.ids import Json, JsonObject
from toolpost.base.values import Path, type_of
from toolpost.contracts.subschemas import to_pointer

TEXT_LIMIT = 200
LIST_LIMIT = 20


def shorten(value: Json) -> Json:
    """Return a scalar, cut, or what there is to know of anything larger."""
    match value:
        case str():
            return truncate(value)
        case list():
            return {"type": "array", "items": len(value)}
        case dict():
            return {"type": "object", "keys": shorten_list(list(value))}
        case None | bool():
            return value
    return _shorten_number(value)


def _shorten_number(value: Json) -> Json:
    is_shown = isinstance(value, int | float) and abs(value) < 10**100
    # Infinity and NaN, and whatever is not JSON, are named by their type.
    return value if is_shown else {"type": type_of(value)}


def shorten_list(values: Sequence[Json]) -> list[Json]:
    """Return the first of many values, and how many more there are."""
    kept = [shorten(value) for value in values[:LIST_LIMIT]]
    return kept if len(values) <= LIST_LIMIT else [*kept, f"… {len(values) - LIST_LIMIT} more"]


def to_json_text(value: Json) -> str:
    """Write a value as JSON, in the letters it is made of."""
    return json.dumps(value, ensure_ascii=False)


def truncate(text: str) -> str:
    """Return a text that is no longer than the limit and whole Unicode."""
    whole = text.encode(errors="replace").decode()
    return whole if len(whole) <= TEXT_LIMIT else f"{whole[:TEXT_LIMIT]}…"


def display_pointer(path: Path) -> str:
    """Write a path as a JSON Pointer, its steps cut."""
    return to_pointer(truncate(step) if isinstance(step, str) else step for step in path)


def add_article(words: str) -> str:
    """Put `a` or `an` before the name of a type."""
    return words if words == "null" else f"{'an' if words[:1] in 'aeiou' else 'a'} {words}"


def fixed_values_of(schema: Json) -> list[Json] | None:
    """Return the fixed values that a schema takes, None when it fixes none."""
    if not isinstance(schema, dict):
        return None
    if "const" in schema:
        return [schema["const"]]
    options = schema.get("enum")
    return options if isinstance(options, list) else None


def summarize_schema(schema: Json) -> str:
    """Say in a few words what a schema takes."""
    if not isinstance(schema, dict):
        return "anything" if schema is not False else "nothing"
    if (options := fixed_values_of(schema)) is not None:
        return truncate(" or ".join(to_json_text(option) for option in shorten_list(options)))
    if isinstance(schema.get("type"), list):
        return " or ".join(schema["type"])
    return _summary_of_shape(schema)


def _summary_of_shape(schema: JsonObject) -> str:
    kind = schema.get("type", "object" if "required" in schema or "properties" in schema else "")
    if kind == "object" and schema.get("required"):
        return truncate(f"object with {', '.join(f'`{name}`' for name in schema['required'])}")
    if kind == "array" and isinstance(items := schema.get("items"), dict) and isinstance(items.get("type"), str):
        return f"array of {items['type']}"
    detail = schema.get("format") or schema.get("title")
    return f"{kind} ({truncate(str(detail))})" if kind and detail else str(kind or detail or "something else")
