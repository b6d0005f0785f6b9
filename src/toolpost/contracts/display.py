"""Values and schemas shortened for messages: short, valid Unicode, and still JSON."""

import json
from collections.abc import Sequence

from toolpost.base.ids import Json
from toolpost.base.values import Path, type_of
from toolpost.contracts.document import to_pointer

TEXT_LIMIT = 200
LIST_LIMIT = 20


def shorten(value: Json) -> Json:
    """Return a scalar, truncated, or a description of an array or object: its type and its size or keys."""
    match value:
        case str():
            return truncate(value)
        case list():
            return {"type": "array", "items": len(value)}
        case dict():
            return {"type": "object", "keys": shorten_list(list(value))}
        case None | bool():
            return value
    # Infinity, NaN and anything that is not JSON is shown by its type; so is a number with hundreds of digits.
    is_shown = isinstance(value, int | float) and abs(value) < 10**100
    return value if is_shown else {"type": type_of(value)}


def shorten_list(values: Sequence[Json]) -> list[Json]:
    """Return the first `LIST_LIMIT` values, shortened, and a text that says how many more there are."""
    kept = [shorten(value) for value in values[:LIST_LIMIT]]
    return kept if len(values) <= LIST_LIMIT else [*kept, f"… {len(values) - LIST_LIMIT} more"]


def to_json_text(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


def truncate(text: str) -> str:
    """Return a text of at most `TEXT_LIMIT` characters, with lone surrogates replaced."""
    valid = text.encode(errors="replace").decode()
    return valid if len(valid) <= TEXT_LIMIT else f"{valid[:TEXT_LIMIT]}…"


def display_pointer(path: Path) -> str:
    """Write a path as a JSON Pointer with each step truncated."""
    return to_pointer(truncate(step) if isinstance(step, str) else step for step in path)


def add_article(type_name: str) -> str:
    return type_name if type_name == "null" else f"{'an' if type_name[:1] in 'aeiou' else 'a'} {type_name}"


def fixed_values_of(schema: Json) -> list[Json] | None:
    """Return the values of `const` or `enum`, None if the schema has neither."""
    if not isinstance(schema, dict):
        return None
    if "const" in schema:
        return [schema["const"]]
    options = schema.get("enum")
    return options if isinstance(options, list) else None


def summarize_schema(schema: Json) -> str:
    """Describe in a few words which values a schema accepts: `array of string`, `object with `name``."""
    if not isinstance(schema, dict):
        return "anything" if schema is not False else "nothing"
    if (options := fixed_values_of(schema)) is not None:
        return truncate(" or ".join(to_json_text(option) for option in shorten_list(options)))
    if isinstance(schema.get("type"), list):
        return " or ".join(schema["type"])
    kind = schema.get("type", "object" if "required" in schema or "properties" in schema else "")
    if kind == "object" and schema.get("required"):
        return truncate(f"object with {', '.join(f'`{name}`' for name in schema['required'])}")
    if kind == "array" and isinstance(items := schema.get("items"), dict) and isinstance(items.get("type"), str):
        return f"array of {items['type']}"
    detail = schema.get("format") or schema.get("title")
    return f"{kind} ({truncate(str(detail))})" if kind and detail else str(kind or detail or "something else")
