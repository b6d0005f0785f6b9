"""Schemas changed anywhere inside, by every kind of keyword, so that they accept less: how many breaks get an example.

Unlike `mutations`, a place may be inside branches, items or definitions, and keywords that the schema does not have yet are put
on both sides. As arguments the pair is judged as it is; as results it is turned around. Whether a pair really loses a value
depends on its surroundings, so only pairs that are judged as breaking count.

`python -m tests.contracts.compatibility.narrowings COUNT [FILE]` prints the share with an example, by kind of edit, for a sample
of the collected definitions or for the schemas in a file, one in each line.
"""

import copy
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.contracts.compatibility.definitions import schemas
from toolpost.contracts import Change, Definition, Judgement, judge
from toolpost.contracts.compatibility.projection import close_arguments, open_results
from toolpost.contracts.schema import SchemaProblem, compile_schema

Schema = dict[str, Any]


class Narrowing(NamedTuple):
    kind: str
    old: Schema
    new: Schema


_SIMPLE = ("string", "integer", "number", "boolean")
_NAMES = {"type": "object", "additionalProperties": {"type": "string"}}
_TEXT, _NULL = {"type": "string"}, {"type": "null"}

# For values of each type: name, keywords on the old side, keywords on the new side.
_PLAIN: dict[str, list[tuple[str, Schema, Schema]]] = {
    "string": [
        ("maxLength", {}, {"maxLength": 100}),
        ("maxLength large", {"maxLength": 100_000}, {"maxLength": 50_000}),
        ("minLength", {}, {"minLength": 2}),
        ("minLength", {"minLength": 5}, {"minLength": 8}),
        ("pattern added", {}, {"pattern": "^[a-z0-9_-]+$"}),
        ("pattern changed", {"pattern": "^[A-Z]{2,4}-[0-9]+$"}, {"pattern": "^[A-Z]{3}-[0-9]+$"}),
        ("pattern changed", {"pattern": r"^\w+@\w+\.\w+$"}, {"pattern": r"^[a-z]+@\w+\.com$"}),
        ("pattern not regular", {}, {"pattern": r"^\p{Lu}+$"}),
        ("pattern inside", {"pattern": "^(?:[0-9]{4}-){3}[0-9]{4}$"}, {"pattern": "^[0-8]{4}(-[0-9]{4}){3}$"}),
        ("format added", {}, {"format": "date-time"}),
        ("format added", {}, {"format": "uuid"}),
        ("format changed", {"format": "uri-reference"}, {"format": "uri"}),
        ("format changed", {"format": "date"}, {"format": "email"}),
        ("enum added", {}, {"enum": ["alpha", "beta"]}),
        ("enum shrunk", {"enum": ["alpha", "beta", "gamma"]}, {"enum": ["alpha", "gamma"]}),
        ("const", {"enum": ["alpha", "beta"]}, {"const": "alpha"}),
        ("not", {}, {"not": {"const": "secret"}}),
        ("not", {}, {"not": {"enum": ["a", "b"]}}),
        ("not", {}, {"not": {"pattern": "^-"}}),
        ("not", {"not": {"pattern": "^--"}}, {"not": {"pattern": "^-"}}),
    ],
    "number": [
        ("minimum", {}, {"minimum": 0}),
        ("maximum", {"maximum": 1_000}, {"maximum": 100}),
        ("exclusiveMinimum", {"minimum": 0}, {"exclusiveMinimum": 0}),
        ("multipleOf 0.01", {}, {"multipleOf": 0.01}),
        ("multipleOf 0.01", {"multipleOf": 0.01}, {"multipleOf": 0.1}),
        ("multipleOf", {"multipleOf": 0.5}, {"multipleOf": 1}),
        ("multipleOf", {"multipleOf": 0.01, "minimum": 0, "maximum": 1}, {"multipleOf": 0.05, "minimum": 0, "maximum": 1}),
        ("number to integer", {}, {"type": "integer"}),
        ("bounds", {"minimum": 0.1, "maximum": 0.9}, {"minimum": 0.2, "maximum": 0.9}),
        ("bounds", {"exclusiveMinimum": 0, "exclusiveMaximum": 1}, {"exclusiveMinimum": 0, "exclusiveMaximum": 0.5}),
    ],
    "integer": [
        ("minimum", {"minimum": 1}, {"minimum": 10}),
        ("maximum", {}, {"maximum": 100}),
        ("multipleOf", {}, {"multipleOf": 5}),
        ("multipleOf", {"multipleOf": 3}, {"multipleOf": 6}),
        ("multipleOf", {"multipleOf": 3, "minimum": 100}, {"multipleOf": 12, "minimum": 100}),
        ("integer enum", {"minimum": 1, "maximum": 5}, {"minimum": 1, "maximum": 5, "enum": [1, 2, 3]}),
        ("not", {"minimum": 0}, {"minimum": 0, "not": {"const": 13}}),
    ],
    "array": [
        ("minItems", {}, {"minItems": 1}),
        ("minItems", {"minItems": 2}, {"minItems": 5}),
        ("maxItems", {}, {"maxItems": 10}),
        ("maxItems large", {"maxItems": 10_000}, {"maxItems": 1_000}),
        ("maxItems large", {}, {"maxItems": 2_000}),
        ("minItems large", {"minItems": 300}, {"minItems": 400}),
        ("uniqueItems", {}, {"uniqueItems": True}),
        ("unique maxItems", {"uniqueItems": True, "maxItems": 20}, {"uniqueItems": True, "maxItems": 10}),
        ("contains", {}, {"contains": {"type": "string"}}),
        ("contains", {"contains": _TEXT}, {"contains": _TEXT, "minContains": 2}),
        ("contains", {"contains": {}}, {"contains": {}, "maxContains": 3}),
    ],
    "object": [
        ("minProperties", {}, {"minProperties": 1}),
        ("maxProperties", {}, {"maxProperties": 1}),
        ("maxProperties", {"maxProperties": 20}, {"maxProperties": 10}),
        ("not required", {}, {"not": {"required": ["nothing_else"]}}),
    ],
}  # fmt: skip

# Whole schemas that take the place of a value.
_WHOLE: list[Narrowing] = [
    Narrowing("propertyNames", _NAMES, _NAMES | {"propertyNames": {"pattern": "^[a-z]+$"}}),
    Narrowing("propertyNames", _NAMES, _NAMES | {"propertyNames": {"maxLength": 20}}),
    Narrowing("propertyNames", _NAMES, _NAMES | {"propertyNames": {"minLength": 3}}),
    Narrowing("propertyNames", _NAMES, _NAMES | {"propertyNames": {"enum": ["one", "two"]}}),
    Narrowing(
        "propertyNames",
        _NAMES | {"propertyNames": {"pattern": "^[a-z0-9]{2,}$"}},
        _NAMES | {"propertyNames": {"pattern": "^[a-z]{2,}$"}},
    ),
    Narrowing("propertyNames", {"type": "object"}, {"type": "object", "propertyNames": {"pattern": "^x-"}}),
    Narrowing("patternProperties added", {"type": "object"}, {"type": "object", "patternProperties": {"^x-": _TEXT}}),
    Narrowing(
        "patternProperties narrowed",
        {"type": "object", "patternProperties": {"^x-": {}}},
        {"type": "object", "patternProperties": {"^x-": _TEXT}},
    ),
    Narrowing(
        "patternProperties narrowed",
        {"type": "object", "patternProperties": {"^[a-z]{2}(-[A-Z]{2})?$": _TEXT}, "additionalProperties": False},
        {
            "type": "object",
            "patternProperties": {"^[a-z]{2}(-[A-Z]{2})?$": _TEXT | {"maxLength": 10}},
            "additionalProperties": False,
        },
    ),
    Narrowing(
        "patternProperties key",
        {"type": "object", "patternProperties": {"^[a-z]+$": _TEXT}, "additionalProperties": False},
        {"type": "object", "patternProperties": {"^[a-z]{3,}$": _TEXT}, "additionalProperties": False},
    ),
    Narrowing(
        "patternProperties removed",
        {"type": "object", "patternProperties": {"^x-": _TEXT, "^y-": _TEXT}, "additionalProperties": False},
        {"type": "object", "patternProperties": {"^x-": _TEXT}, "additionalProperties": False},
    ),
    Narrowing("additionalProperties", {"type": "object"}, {"type": "object", "additionalProperties": False}),
    Narrowing(
        "additionalProperties", {"type": "object"}, {"type": "object", "additionalProperties": {"type": "number"}}
    ),
    Narrowing("additionalProperties", _NAMES, _NAMES | {"additionalProperties": _TEXT | {"maxLength": 50}}),
    Narrowing(
        "dependentRequired",
        {"type": "object", "properties": {"a": _TEXT, "b": _TEXT}},
        {"type": "object", "properties": {"a": _TEXT, "b": _TEXT}, "dependentRequired": {"a": ["b"]}},
    ),
    Narrowing(
        "dependentSchemas",
        {"type": "object", "properties": {"a": _TEXT, "b": {"type": "integer"}}},
        {
            "type": "object",
            "properties": {"a": _TEXT, "b": {"type": "integer"}},
            "dependentSchemas": {"a": {"properties": {"b": {"minimum": 5}}}},
        },
    ),
    Narrowing(
        "if",
        {"type": "object", "properties": {"kind": {"enum": ["x", "y"]}, "n": {"type": "integer"}}},
        {
            "type": "object",
            "properties": {"kind": {"enum": ["x", "y"]}, "n": {"type": "integer"}},
            "if": {"properties": {"kind": {"const": "y"}}, "required": ["kind"]},
            "then": {"required": ["n"]},
        },
    ),
    Narrowing(
        "if",
        {
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "if": {"required": ["n"]},
            "then": {"properties": {"n": {"minimum": 0}}},
        },
        {
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "if": {"required": ["n"]},
            "then": {"properties": {"n": {"minimum": 5}}},
        },
    ),
    Narrowing(
        "unevaluatedProperties",
        {"type": "object", "allOf": [{"properties": {"a": _TEXT}}]},
        {"type": "object", "allOf": [{"properties": {"a": _TEXT}}], "unevaluatedProperties": False},
    ),
    Narrowing(
        "unevaluatedProperties",
        {
            "type": "object",
            "allOf": [{"properties": {"a": _TEXT}}],
            "unevaluatedProperties": {"type": ["string", "integer"]},
        },
        {"type": "object", "allOf": [{"properties": {"a": _TEXT}}], "unevaluatedProperties": _TEXT},
    ),
    Narrowing(
        "unevaluatedProperties",
        {"type": "object", "properties": {"a": _TEXT, "b": _TEXT}, "unevaluatedProperties": False},
        {"type": "object", "properties": {"a": _TEXT}, "unevaluatedProperties": False},
    ),
    Narrowing(
        "unevaluatedItems",
        {"type": "array", "prefixItems": [_TEXT]},
        {"type": "array", "prefixItems": [_TEXT], "unevaluatedItems": False},
    ),
    Narrowing(
        "unevaluatedItems",
        {"type": "array", "prefixItems": [_TEXT], "unevaluatedItems": {"type": ["integer", "string"]}},
        {"type": "array", "prefixItems": [_TEXT], "unevaluatedItems": {"type": "integer"}},
    ),
    Narrowing(
        "unevaluatedItems minItems",
        {"type": "array", "prefixItems": [_TEXT], "unevaluatedItems": {"type": "integer"}, "minItems": 2},
        {"type": "array", "prefixItems": [_TEXT], "unevaluatedItems": {"type": "integer"}, "minItems": 3},
    ),
    Narrowing(
        "prefixItems", {"type": "array", "prefixItems": [_TEXT, {}]}, {"type": "array", "prefixItems": [_TEXT, _TEXT]}
    ),
    Narrowing(
        "prefixItems",
        {"type": "array", "prefixItems": [_TEXT]},
        {"type": "array", "prefixItems": [_TEXT], "items": False},
    ),
    Narrowing(
        "prefixItems",
        {"type": "array", "prefixItems": [_TEXT], "items": _TEXT},
        {"type": "array", "prefixItems": [_TEXT, {"const": "x"}], "items": _TEXT},
    ),
    Narrowing("any type", {}, _TEXT),
    Narrowing("any type", {}, {"type": ["string", "number"]}),
    Narrowing("integer multipleOf 1.5", {"type": "number", "multipleOf": 1.5}, {"type": "number", "multipleOf": 3}),
]

_OTHERS: tuple[Schema, ...] = (
    _NULL,
    {"type": "array", "items": _TEXT},
    {"type": "object", "properties": {"id": _TEXT}, "required": ["id"]},
)


def places(schema: Schema) -> Iterator[Schema]:
    """Yield every schema inside, to be changed in place; not the root."""
    for word in ("properties", "$defs", "definitions", "patternProperties"):
        if isinstance(named := schema.get(word), dict):
            yield from (child for child in named.values() if isinstance(child, dict))
            for child in named.values():
                yield from places(child) if isinstance(child, dict) else ()
    for word in ("items", "additionalProperties"):
        if isinstance(child := schema.get(word), dict):
            yield child
            yield from places(child)
    for word in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for child in schema.get(word) or ():
            if isinstance(child, dict):
                yield child
                yield from places(child)


def narrowed(
    schema: Schema, rng: random.Random, edit: Callable[[Schema, random.Random], Narrowing | None]
) -> Narrowing | None:
    """Return the schema with one place changed on both sides; None if there is no place for the edit."""
    old = copy.deepcopy(schema)
    found = list(places(old))
    rng.shuffle(found)
    for place in found[:20]:
        if (made := edit(place, rng)) is None:
            continue
        place.clear()
        place.update(made.new)
        new = copy.deepcopy(old)
        place.clear()
        place.update(made.old)
        return None if old == new else Narrowing(made.kind, old, new)
    return None


def keyword(place: Schema, rng: random.Random) -> Narrowing | None:
    kind = place.get("type")
    if not isinstance(kind, str) or kind not in _PLAIN:
        return None
    name, old, new = rng.choice(_PLAIN[kind])
    plain = {word: value for word, value in place.items() if word not in (*old, *new) or word == "type"}
    return Narrowing(name, plain | old, plain | new)


def whole(place: Schema, rng: random.Random) -> Narrowing | None:
    return rng.choice(_WHOLE)


def branch(place: Schema, rng: random.Random) -> Narrowing | None:
    """Put a value into a choice, and take a branch away, narrow one, or let two overlap."""
    if place.get("type") not in [*_SIMPLE]:
        return None
    word = rng.choice(("oneOf", "anyOf"))
    others = rng.sample(_OTHERS, rng.choice((1, 2)))
    old = {word: [place, *others]}
    match rng.randrange(4):
        case 0:
            return Narrowing(f"{word} branch removed", copy.deepcopy(old), {word: copy.deepcopy([place, *others[1:]])})
        case 1:
            return Narrowing(f"{word} branch removed", copy.deepcopy(old), {word: copy.deepcopy(others)})
        case 2:
            if (inner := keyword(place, rng)) is None:
                return None
            return Narrowing(
                f"{word} branch narrowed",
                {word: copy.deepcopy([*others, inner.old])},
                {word: copy.deepcopy([*others, inner.new])},
            )
    return Narrowing(
        "oneOf branches overlap",
        {"oneOf": copy.deepcopy([place, *others])},
        {"oneOf": copy.deepcopy([place, *others, {"type": place["type"]}])},
    )


def nested(place: Schema, rng: random.Random) -> Narrowing | None:
    """Narrow inside something around it."""
    made = keyword(place, rng) or whole(place, rng)
    if made is None:
        return None
    around = rng.choice(("allOf", "items", "additionalProperties", "patternProperties", "then", "tagged", "contains"))

    def wrapped(inner: Schema) -> Schema:
        inner = copy.deepcopy(inner)
        match around:
            case "allOf":
                return {"allOf": [inner, {"description": "more"}]}
            case "items":
                return {"type": "array", "items": inner, "minItems": 1}
            case "additionalProperties":
                return {"type": "object", "additionalProperties": inner}
            case "patternProperties":
                return {"type": "object", "patternProperties": {"^[a-z]{2}$": inner}, "additionalProperties": False}
            case "then":
                return {
                    "type": "object",
                    "properties": {"k": _TEXT, "v": {}},
                    "if": {"required": ["k"]},
                    "then": {"properties": {"v": inner}},
                }
            case "contains":
                return {"type": "array", "contains": inner}
        branches = [
            {"type": "object", "properties": {"kind": {"const": kind}, "value": value}, "required": ["kind", "value"]}
            for kind, value in (("a", _TEXT), ("b", inner))
        ]
        return {"oneOf": branches}

    return Narrowing(f"inside {around}", wrapped(made.old), wrapped(made.new))


def objects(place: Schema, rng: random.Random) -> Narrowing | None:
    properties = place.get("properties")
    if not isinstance(properties, dict) or not properties:
        return None
    name = rng.choice(sorted(properties))
    required = [each for each in place.get("required", ()) if each != name]
    match rng.randrange(3):
        case 0:
            return Narrowing(
                "required added",
                copy.deepcopy(place | {"required": required}),
                copy.deepcopy(place | {"required": [*required, name]}),
            )
        case 1:
            rest = {key: value for key, value in properties.items() if key != name}
            return Narrowing(
                "property removed",
                copy.deepcopy(place | {"required": required}),
                copy.deepcopy(place | {"properties": rest, "required": required}),
            )
    return Narrowing(
        "property closed",
        copy.deepcopy(place),
        copy.deepcopy(place | {"properties": properties | {name: {"type": "null"}}}),
    )


EDITS = (keyword, keyword, keyword, whole, branch, nested, objects)


class Judged(NamedTuple):
    kind: str
    role: str
    old: Schema
    new: Schema
    judgement: Judgement

    @property
    def breaks(self) -> list[Change]:
        return [
            change
            for change in self.judgement.changes
            if change.verdict == "breaking"
            and change.rule.startswith(("input.", "output."))
            and "default" not in change.rule
        ]

    @property
    def has_example(self) -> bool:
        return any(change.example is not msgspec.UNSET for change in self.breaks)

    def wrong_examples(self) -> Iterator[Change]:
        """Yield changes whose example is not what it claims to be, by the validator alone."""
        if self.role == "input":
            taken, refused = close_arguments(self.old, self.new), close_arguments(self.new, self.old)
        else:
            taken, refused = self.new, open_results(self.old)
        for change in self.judgement.changes:
            if change.example is msgspec.UNSET:
                continue
            is_ignored = change.message.endswith("it is ignored")
            if not _is_valid(taken, change.example) or (not is_ignored and _is_valid(refused, change.example)):
                yield change


def _is_valid(schema: Any, value: Any) -> bool:
    return compile_schema(schema, root_object=False).is_valid(value)


def judged(count: int, seed: int, sample: list[Schema] | None = None) -> Iterator[Judged]:
    """Yield narrowed schemas, judged as arguments and, turned around, as results."""
    rng = random.Random(seed)
    for schema in sample if sample is not None else schemas(count, rng):
        made = narrowed(schema, rng, rng.choice(EDITS))
        if made is None or not (_compiles(made.old) and _compiles(made.new)):
            continue
        one, other = (Definition(name="t", input_schema=each) for each in (made.old, made.new))
        yield Judged(made.kind, "input", made.old, made.new, judge(one, other))
        one, other = (Definition(name="t", output_schema=each) for each in (made.new, made.old))
        yield Judged(made.kind, "output", made.new, made.old, judge(one, other))


def _compiles(schema: Schema) -> bool:
    try:
        compile_schema(schema, root_object=False)
    except SchemaProblem:
        return False
    return True


def main() -> None:
    count = int(sys.argv[1])
    sample = None
    if len(sys.argv) > 2:
        lines = Path(sys.argv[2]).read_text().splitlines()
        sample = [json.loads(line) for line in random.Random(5).sample(lines, min(count, len(lines)))]
    breaking, shown = Counter[str](), Counter[str]()
    wrong = 0
    for each in judged(count, 11, sample):
        if each.breaks:
            breaking[each.kind] += 1
            shown[each.kind] += each.has_example
            wrong += len(list(each.wrong_examples()))
    for kind in sorted(breaking, key=lambda kind: shown[kind] - breaking[kind]):
        print(f"{kind:32} {shown[kind]:5} of {breaking[kind]:5}")
    share = shown.total() / breaking.total()
    print(f"{shown.total()} of {breaking.total()} have an example: {share:.2%}; {wrong} wrong")


if __name__ == "__main__":
    main()
