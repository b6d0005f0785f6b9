"""Schemas that cost far more than they weigh, for whoever validates, compares, searches or lists them."""

from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]

_LEAF: Schema = {"type": "string"}


def chain(length: int, step: Callable[[Schema], Schema], leaf: Schema = _LEAF) -> Schema:
    """Return definitions that each make something of the next one; `a` is held to the first."""
    definitions = {f"d{n}": step({"$ref": f"#/$defs/d{n + 1}"}) for n in range(length)}
    return holding({"$ref": "#/$defs/d0"}, **definitions, **{f"d{length}": leaf})


def holding(schema: Schema, **definitions: Schema) -> Schema:
    return {"type": "object", "properties": {"a": schema}, "$defs": definitions}


def nested(depth: int, step: Callable[[Schema], Schema]) -> Schema:
    schema = dict(_LEAF)
    for _ in range(depth):
        schema = step(schema)
    return holding(schema)


_AGAIN: Schema = {"$ref": "#/$defs/t"}

REFUSED: dict[str, Schema] = {
    "ref-doubling": chain(20, lambda next_: {"allOf": [next_, next_]}),
    "any-of-all-of": chain(20, lambda next_: {"anyOf": [{"allOf": [next_, {"minLength": 1}]}, next_]}),
    "one-of": chain(20, lambda next_: {"oneOf": [next_, {"allOf": [next_, {"type": "number"}]}]}),
    "not": chain(20, lambda next_: {"not": next_, "allOf": [{"not": next_}]}),
    "if-then-else": chain(13, lambda next_: {"if": next_, "then": next_, "else": next_}),
    "dependent-schemas": chain(20, lambda next_: {"dependentSchemas": {"k": next_, "l": next_}}),
    "one-level-down-each": chain(20, lambda next_: {"allOf": [{"items": next_}, {"items": next_}]}),
    "by-pattern": chain(20, lambda next_: {"patternProperties": {"^a": next_, "a$": next_}}),
    "contains-and-items": chain(20, lambda next_: {"contains": next_, "items": next_}),
    "unevaluated": nested(20, lambda inner: {"allOf": [inner], "unevaluatedProperties": False}),
    "unevaluated-items": nested(20, lambda inner: {"anyOf": [inner], "unevaluatedItems": False}),
    "anchors": {
        "type": "object",
        "properties": {"a": {"$ref": "#d0"}},
        "$defs": {
            f"d{n}": {"$anchor": f"d{n}", "allOf": [{"$ref": f"#d{n + 1}"}] * 2} if n < 20 else {"$anchor": "d20"}
            for n in range(21)
        },
    },
    "dynamic-refs": {
        "type": "object",
        "properties": {"a": {"$dynamicRef": "#d0"}},
        "$defs": {
            f"d{n}": {"$dynamicAnchor": f"d{n}", "allOf": [{"$dynamicRef": f"#d{n + 1}"}] * 2}
            if n < 20
            else {"$dynamicAnchor": "d20"}
            for n in range(21)
        },
    },
    "unknown-keyword": {
        "type": "object",
        "properties": {"a": {"$ref": "#/x-hidden/d0"}},
        "x-hidden": {
            f"d{n}": {"allOf": [{"$ref": f"#/x-hidden/d{n + 1}"}] * 2} if n < 20 else {"type": "string"}
            for n in range(21)
        },
    },
    "itself": holding({"$ref": "#/properties/a"}),
    "round-in-place": holding(
        _AGAIN, t={"anyOf": [{"$ref": "#/$defs/u"}, _AGAIN]}, u={"anyOf": [_AGAIN, {"$ref": "#/$defs/u"}]}
    ),
    "patterns": {"type": "object", "patternProperties": {rf"\p{{L}}{{90}}{n}": {} for n in range(1_000)}},
    "long-names": {
        "type": "object",
        "properties": {"n" * 5_000: {"properties": {f"c{n}": {"type": "string"} for n in range(2_000)}}},
    },
}
"""Refused when the server's definitions are learnt."""

_OBJECTS: Schema = {"enum": [{"a": n} for n in range(5_000)]}

SLOW: dict[str, Schema] = {
    "objects-listed": holding({"items": _OBJECTS}),
    "objects-denied": holding({"items": {"allOf": [{"not": {"const": {"a": n}}} for n in range(900)]}}),
}
"""Taken: bounded, and quick for an ordinary value. For `SLOW_VALUES` they take minutes."""

SLOW_VALUES: dict[str, Any] = {
    "objects-listed": {"a": [{"a": 4_999}] * 24_000},
    "objects-denied": {"a": [{"a": -1}] * 24_000},
}

RECURSIVE: dict[str, Schema] = {
    "twice-at-each-level": holding(
        _AGAIN,
        t={"anyOf": [{"properties": {"c": _AGAIN}, "required": ["x"]}, {"properties": {"c": _AGAIN, "z": False}}]},
    ),
    "unevaluated-at-each-level": holding(
        _AGAIN, t={"anyOf": [{"properties": {"c": _AGAIN}}], "unevaluatedProperties": False}
    ),
}
"""Taken, and validated in a process of its own: the cost grows with the depth of the value."""


def deep(depth: int) -> Any:
    value: Any = {"z": 1}
    for _ in range(depth):
        value = {"c": value}
    return {"a": value}
