"""JSON values compared and typed as JSON does, where Python differs."""

import json
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from toolpost.base.ids import Json

Path = tuple[str | int, ...]
"""The path to a part of a value: property names and item numbers."""


class _Absent:
    """No value at all, where null would be a value."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()

_TYPES: dict[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def type_of(value: Json) -> str:
    """Return JSON Schema's name for the type of a value."""
    return _TYPES.get(type(value), type(value).__name__)


def is_of_type(value: Json, types: Sequence[str]) -> bool:
    """Return whether a value is of one of these types; 1.0 is an integer."""
    kind = type_of(value)
    is_whole = isinstance(value, float) and value.is_integer()
    return kind in types or (kind == "integer" and "number" in types) or (is_whole and "integer" in types)


def is_among(value: Json, options: Iterable[Json]) -> bool:
    # True equals 1 in Python, but not in JSON.
    return any(value == option and isinstance(value, bool) == isinstance(option, bool) for option in options)


def is_same_json(one: Json, other: Json) -> bool:
    """Return whether two values are the same JSON at every depth: true is not 1, and 1.0 is not 1."""
    return one is other or (bool(one == other) and json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True))


def unique(values: Iterable[Json]) -> list[Json]:
    """Return the values without duplicates, in order."""
    kept: dict[Hashable, Json] = {}
    for value in values:
        kept.setdefault((isinstance(value, bool), _hashable(value)), value)
    return list(kept.values())


def _hashable(value: Json) -> Any:
    """Return a key that is equal for equal values only."""
    if isinstance(value, dict):
        return dict, frozenset((name, _hashable(inner)) for name, inner in value.items())
    if isinstance(value, list):
        return list, tuple(_hashable(item) for item in value)
    return value


def value_at(value: Json, path: Iterable[str | int]) -> Json:
    """Return the value at a path, None if there is none."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value
