"""The names of all settings, read from the JSON Schema of `toolpost.toml`."""

from collections.abc import Iterator
from typing import Any


def settings_in(schema: dict[str, Any], definitions: dict[str, Any], place: str = "") -> Iterator[str]:
    """Yield the settings that a schema knows, as `table.*.key`."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    for choice in schema.get("anyOf", []):
        yield from settings_in(choice, definitions, place)
    for key, inner in schema.get("properties", {}).items():
        yield place + key
        yield from settings_in(inner, definitions, f"{place}{key}.")
    if isinstance(entry := schema.get("additionalProperties"), dict):
        yield from settings_in(entry, definitions, f"{place}*.")
