"""Pairs of small schemas, each with several keywords beside each other, and values to contradict a proof about them.

`python -m tests.contracts.compatibility.fuzz SECONDS SEED` runs as many pairs as fit and prints how many there were.
"""

import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.contracts.compatibility.containment import decide_containment
from toolpost.contracts.compatibility.containment import ComparedSchema, Containment
from toolpost.contracts.compatibility.cost import Budget
from toolpost.contracts.compatibility.walk import SchemaWalk

DRAFTS = (
    *("https://json-schema.org/draft/2020-12/schema",) * 6,
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-04/schema#",
)
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
CONSTANTS: list[Any] = [None, True, False, 0, 1, 1.0, 2, 0.5, "", "a", "ab", "x", [], [1], ["a"], {}, {"a": 1}]
PATTERNS = ("a", "^a", "^a$", "b", "^[ab]+$", "^.{1,2}$", "^x")
FORMATS = ("date", "uri", "uri-reference", "email", "ipv4", "unheard-of", "uuid", "color")
TEXTS = ("", "a", "b", "x", "ab", "aab", "2026-01-31", "http://a.b/c", "/c", "a@b.org", "192.0.2.1")
SCALARS: list[Any] = [None, True, False, 0, 1, 2, 3, -1, 0.5, 1.0, 1.5, 4, *TEXTS]
FEW: list[Any] = [None, True, 0, 1, 2, 0.5, "", "a", "ab", [], {}]
VALUES: list[Any] = [
    *SCALARS,
    *([value] for value in [*SCALARS, [], {}, [1], {"a": 1}]),
    *([one, other] for one in FEW for other in FEW),
    [1, "a", 1],
    ["a", "b", "ab"],
    *(
        {name: value}
        for name in ("a", "b", "ab", "x")
        for value in [*SCALARS, [], {}, [1], ["a"], {"a": 1}, {"b": "a"}]
    ),
    *({one: 1, other: value} for one, other in itertools.combinations(("a", "b", "ab", "x"), 2) for value in FEW),
    *({one: "a", other: value} for one, other in itertools.permutations(("a", "b", "x"), 2) for value in FEW),
    {"a": 1, "b": "a", "x": None},
    {"a": "a", "b": 1, "ab": 1, "x": 0},
]


class Fuzzer:
    """Makes schemas and changes them, always the same ones for a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def pair(self) -> tuple[Any, Any]:
        rng = self.rng
        draft = rng.choice(DRAFTS)
        old = {"$schema": draft} | self._root(rng.choice((1, 1, 2, 2, 3)))
        new = old
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            new = self._changed(new)
        if rng.random() < 0.05:
            new = new | {"$schema": rng.choice(DRAFTS)}
        return old, {"$schema": draft} | new

    def _root(self, depth: int) -> dict[str, Any]:
        made = self._several(depth)
        definitions = {"A": self._schema(1), "B": self._schema(0)}
        return made | {"$defs": definitions} if self.rng.random() < 0.3 else made

    def _schema(self, depth: int) -> Any:
        roll = self.rng.random()
        if roll < 0.08:
            return roll < 0.05
        return self._several(depth)

    def _several(self, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for _ in range(self.rng.choice((1, 1, 2, 2, 3, 4))):
            made |= self._keyword(depth)
        return made

    def _keyword(self, depth: int) -> dict[str, Any]:
        kind = self.rng.choice(_LEAVES if depth <= 0 else _LEAVES + _NESTED)
        return kind(self, depth - 1)

    def _changed(self, schema: Any) -> Any:
        """Change one thing, here or somewhere below."""
        rng = self.rng
        if not isinstance(schema, dict) or not schema or rng.random() < 0.05:
            return self._schema(1) if not isinstance(schema, dict) or "$schema" not in schema else schema
        words = [word for word in schema if word != "$schema"]
        if not words or rng.random() < 0.2:
            return schema | self._keyword(1)
        word = rng.choice(words)
        if isinstance(schema[word], bool) or schema[word] is None or rng.random() < 0.2:
            return {key: inner for key, inner in schema.items() if key != word}
        return schema | self._changed_keyword(word, schema[word])

    def _changed_keyword(self, word: str, value: Any) -> dict[str, Any]:
        rng = self.rng
        if word in _NAMED:
            name = rng.choice([*value, "a"])
            if rng.random() < 0.3:
                return {word: {key: inner for key, inner in value.items() if key != name}}
            return {word: value | {name: self._changed(value.get(name, True))}}
        if word in _ONE:
            return {word: self._changed(value)}
        if word in _MANY:
            return {word: self._changed_list(value)}
        if isinstance(value, list) and word in ("enum", "type", "required"):
            return {word: [item for item in value if rng.random() < 0.8] or value}
        if isinstance(value, int | float) and word != "const":
            return {word: max(1, value + rng.choice((-1, 1)))}
        return self._keyword(1)

    def _changed_list(self, value: list[Any]) -> list[Any]:
        rng = self.rng
        number = rng.randrange(len(value))
        if len(value) > 1 and rng.random() < 0.3:
            return [*value[:number], *value[number + 1 :]]
        if rng.random() < 0.3:
            return [*value, self._schema(1)]
        return [*value[:number], self._changed(value[number]), *value[number + 1 :]]


_NAMED = ("properties", "patternProperties", "$defs", "dependentSchemas")
_ONE = (
    "items",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "additionalProperties",
    "propertyNames",
    "unevaluatedProperties",
)
_MANY = ("anyOf", "allOf", "oneOf", "prefixItems")

Kind = Callable[[Fuzzer, int], dict[str, Any]]


def _bound(word: str, *choices: Any) -> Kind:
    return lambda fuzzer, _: {word: fuzzer.rng.choice(choices)}


def _one(word: str) -> Kind:
    return lambda fuzzer, depth: {word: fuzzer._schema(depth)}


def _many(word: str) -> Kind:
    return lambda fuzzer, depth: {word: [fuzzer._schema(depth) for _ in range(fuzzer.rng.choice((1, 2, 2, 3)))]}


def _named(word: str, *names: str) -> Kind:
    return lambda fuzzer, depth: {
        word: {name: fuzzer._schema(depth) for name in fuzzer.rng.sample(names, fuzzer.rng.choice((1, 2, 2)))}
    }


def _some(word: str, choices: Any, most: int) -> Kind:
    return lambda fuzzer, _: {word: fuzzer.rng.sample(choices, fuzzer.rng.randint(1, most))}


_LEAVES: list[Kind] = [
    _bound("type", *TYPES),
    _bound("type", *TYPES),
    _some("type", TYPES, 3),
    _bound("const", *CONSTANTS),
    _some("enum", CONSTANTS, 5),
    _some("enum", CONSTANTS, 5),
    *(_bound(word, -1, 0, 1, 2, 0.5) for word in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
    _bound("multipleOf", 1, 2, 0.5, 4),
    *(_bound(word, 0, 1, 2) for word in ("minLength", "maxLength", "minItems", "maxItems")),
    *(_bound(word, 0, 1, 2) for word in ("minProperties", "maxProperties")),
    _bound("pattern", *PATTERNS),
    _bound("format", *FORMATS),
    _bound("uniqueItems", True, False),
    _some("required", ("a", "b", "x"), 2),
    lambda fuzzer, _: {"$ref": fuzzer.rng.choice(("#/$defs/A", "#/$defs/B"))},
    _bound("additionalProperties", False),
    lambda fuzzer, _: {"default": fuzzer.rng.choice(CONSTANTS)},
]
_NESTED: list[Kind] = [
    *(_named("properties", "a", "b", "x"),) * 4,
    _one("additionalProperties"),
    _one("items"),
    _one("items"),
    _many("anyOf"),
    _many("allOf"),
    _many("oneOf"),
    _one("not"),
    _named("patternProperties", "a", "^b", "^x$"),
    _one("propertyNames"),
    _one("contains"),
    _bound("minContains", 0, 1, 2),
    _bound("maxContains", 0, 1, 2),
    _many("prefixItems"),
    _one("unevaluatedProperties"),
    _named("dependentSchemas", "a", "b"),
    lambda fuzzer, _: {"dependentRequired": {"a": [fuzzer.rng.choice(("b", "x"))]}},
    lambda fuzzer, depth: {"if": fuzzer._schema(depth), "then": fuzzer._schema(depth)},
    lambda fuzzer, depth: {"if": fuzzer._schema(depth), "else": fuzzer._schema(depth)},
]


class Unsound(NamedTuple):
    """A proof that a value contradicts."""

    by: str
    narrow: Any
    wide: Any
    value: Any


def run(seed: int, *, pairs: float = float("inf"), seconds: float = float("inf")) -> tuple[Counter[str], list[Unsound]]:
    """Judge pairs until one of both limits; return how many there were of each kind, and each unsound proof."""
    fuzzer, counts, found = Fuzzer(seed), Counter[str](), list[Unsound]()
    ends = time.monotonic() + seconds
    while counts["pairs"] < pairs and (counts["tries"] % 100 or time.monotonic() < ends):
        counts["tries"] += 1
        old, new = fuzzer.pair()
        one, other = ComparedSchema(old), ComparedSchema(new)
        if one.compiled is None or other.compiled is None or old == new:
            continue
        counts["pairs"] += 1
        old_is_narrow = fuzzer.rng.random() < 0.5
        narrow, wide = (one, other) if old_is_narrow else (other, one)
        proofs = []
        if decide_containment(narrow.raw, wide.raw, Budget(60)) is Containment.YES:
            proofs.append("judge")
        if one.draft == other.draft and _walks(one, other, old_is_narrow=old_is_narrow):
            proofs.append("walk")
        if proofs:
            counts.update(proofs)
            lost = next((value for value in VALUES if narrow.admits(value) and wide.admits(value) is False), VALUES)
            if lost is not VALUES:
                found.extend(Unsound(by, narrow.raw, wide.raw, lost) for by in proofs)
    return counts, found


class _Alone(SchemaWalk):
    """A walk without the validator's algebra: its own proofs alone must be right."""

    def _ask_algebra(self, old: Any, new: Any, answer: Containment, first: int) -> Containment:
        return answer


assert hasattr(SchemaWalk, "_ask_algebra"), "what is overridden above has another name now"


def _walks(old: ComparedSchema, new: ComparedSchema, *, old_is_narrow: bool) -> bool:
    return _Alone(old, new, Budget(60), old_is_narrow=old_is_narrow).run() is Containment.YES


def main() -> None:
    counts, found = run(int(sys.argv[2]) if len(sys.argv) > 2 else 1, seconds=float(sys.argv[1]))
    print(dict(counts))
    for unsound in found[:20]:
        print(f"{unsound.by}\n  {unsound.narrow}\n  {unsound.wide}\n  {unsound.value!r}")
    print(f"{len(found)} unsound")


if __name__ == "__main__":
    main()
