"""What the walk proves holds: no value contradicts it, and neither does the validator's algebra."""

import random
from typing import Any

import pytest

from tests.contracts.compatibility.fuzz import run
from toolpost.contracts.compatibility.containment import ComparedSchema, Comparison, Containment
from toolpost.contracts.compatibility.cost import Budget
from toolpost.contracts.compatibility.sampling import ANY_VALUES
from toolpost.contracts.compatibility.walk import SchemaWalk

PAIRS = 250

SCALARS: list[Any] = [*ANY_VALUES, 2, 3, 4, 1.0, 2.5, "a", "b", "ab", "2026-01-31"]
FEW: list[Any] = [1, "a", None, {}]
VALUES: list[Any] = [
    *SCALARS,
    *([value] for value in SCALARS),
    *([one, other] for one in FEW for other in (1, "a", 2)),
    *({name: value} for name in "abc" for value in SCALARS),
    *({"a": one, name: other} for name in "bc" for one in SCALARS for other in SCALARS),
    *({"a": {"a": value}} for value in SCALARS),
    *({"a": [value]} for value in SCALARS),
]


class Maker:
    """Makes small schemas of every kind, and slightly different ones."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def leaf(self) -> Any:
        rng = self._rng
        bound = {rng.choice(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")): rng.randint(0, 3)}
        return rng.choice(
            (
                {"type": "integer"} | bound,
                {"type": "number"} | bound,
                bound,
                {"multipleOf": rng.choice((1, 2, 4, 0.5))},
                {"type": "string", rng.choice(("minLength", "maxLength")): rng.randint(0, 2)},
                {"enum": rng.sample([1, 2, True, False, "a", None, 1.5, "", [], {}], 3)},
                {"const": rng.choice((1, True, 0, False, "a", 1.0))},
                {"type": ["string", "null"]},
                {"type": "string", "pattern": rng.choice(("a", "^a$", "b"))},
                {"format": "date"},
                {"$ref": rng.choice(("#/$defs/A", "#/$defs/B", "#"))},
                True,
                False,
            )
        )

    def object_of(self, depth: int) -> dict[str, Any]:
        rng = self._rng
        closers: list[dict[str, Any]] = [{}, {"additionalProperties": False}, {"maxProperties": 1}]
        more = [*closers, {"additionalProperties": self.schema(depth - 1)}]
        properties = {name: self.schema(depth - 1) for name in rng.sample("ab", rng.randint(0, 2))}
        kind = {} if rng.random() < 0.3 else {"type": "object"}
        return kind | {"properties": properties, "required": rng.sample("ab", rng.randint(0, 1))} | rng.choice(more)

    def schema(self, depth: int) -> Any:
        if depth <= 0:
            return self.leaf()
        rng = self._rng

        def inner() -> Any:
            return self.schema(depth - 1)

        branches = {rng.choice(("anyOf", "allOf", "oneOf")): [inner() for _ in range(rng.randint(1, 2))]}
        return rng.choice(
            (
                self.leaf,
                lambda: self.object_of(depth),
                lambda: self.object_of(depth),
                lambda: {"items": inner()} | rng.choice(({}, {"minItems": 1}, {"maxItems": 1}, {"uniqueItems": True})),
                lambda: branches,
                lambda: self.object_of(depth) | branches,
                lambda: {"not": inner()},
                lambda: {"prefixItems": [inner()], "items": inner()},
                lambda: {"$ref": rng.choice(("#/$defs/A", "#/$defs/B")), "properties": {"a": inner()}},
                lambda: self.object_of(depth) | {"unevaluatedProperties": False, "anyOf": [inner(), inner()]},
                lambda: {"patternProperties": {rng.choice(("a", "^b")): inner()}, "additionalProperties": inner()},
                lambda: {"if": inner(), "then": inner(), "else": inner()},
                lambda: {"contains": inner()} | rng.choice(({}, {"minContains": 0}, {"maxContains": 1})),
            )
        )()

    def root(self) -> dict[str, Any]:
        made = self.schema(self._rng.choice((1, 2, 3)))
        return (made if isinstance(made, dict) else {}) | {"$defs": {"A": self.schema(1), "B": self.schema(2)}}

    def changed(self, value: Any) -> Any:
        rng = self._rng
        if isinstance(value, list):
            return [self.changed(inner) for inner in value if rng.random() < 0.9] or value
        if not isinstance(value, dict):
            return value
        kept = ("enum", "const", "$ref", "required")
        changed = {
            key: inner if key in kept else self.changed(inner) for key, inner in value.items() if rng.random() > 0.03
        }
        for key in ("minimum", "maximum", "minLength", "maxLength", "minItems"):
            if isinstance(changed.get(key), int) and rng.random() < 0.3:
                changed[key] = max(0, changed[key] + rng.choice((-1, 1)))
        return changed


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("asks_algebra", [True, False])
def test_a_proof_is_contradicted_by_nothing(seed: int, asks_algebra: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Maker(seed)
    algebra = Comparison.decide
    proofs = 0
    for _ in range(PAIRS):
        old = make.root()
        one, other = ComparedSchema(old), ComparedSchema(make.changed(old))
        if one.compiled is None or other.compiled is None:
            continue
        for old_is_narrow in (True, False):
            narrow, wide = (one, other) if old_is_narrow else (other, one)
            with monkeypatch.context() as patch:
                if not asks_algebra:
                    # The walk must be right by itself too.
                    patch.setattr(Comparison, "decide", lambda _: Containment.UNKNOWN)
                answer = SchemaWalk(one, other, Budget(60), old_is_narrow=old_is_narrow).run()
            if answer is Containment.YES:
                proofs += 1
                assert algebra(Comparison(narrow.raw, wide.raw, Budget(60))) is not Containment.NO
                assert not [value for value in VALUES if narrow.admits(value) and wide.admits(value) is False]
    assert proofs > PAIRS / 5


@pytest.mark.parametrize("asks_algebra", [True, False])
def test_a_list_of_values_beside_a_constant_counts(asks_algebra: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not asks_algebra:
        monkeypatch.setattr(Comparison, "decide", lambda _: Containment.UNKNOWN)
    only, never = ComparedSchema({"const": "x"}), ComparedSchema({"const": "x", "enum": ["y"]})

    assert SchemaWalk(only, never, Budget(60), old_is_narrow=True).run() is not Containment.YES
    assert SchemaWalk(never, only, Budget(60), old_is_narrow=True).run() is Containment.YES


def test_equal_numbers_are_one_value_however_they_are_written() -> None:
    old, new = ComparedSchema({"enum": [1, [2.0], {"a": 3}]}), ComparedSchema({"enum": [1.0, [2], {"a": 3.0}, "more"]})

    assert SchemaWalk(old, new, Budget(60), old_is_narrow=True).run() is Containment.YES


@pytest.mark.parametrize(
    "pairs", [pytest.param(500, id="some"), pytest.param(250_000, id="many", marks=pytest.mark.soak)]
)
def test_keywords_beside_each_other_are_judged_soundly(pairs: int) -> None:
    counts, unsound = run(pairs, pairs=pairs)

    assert not unsound
    assert counts["judge"] > pairs / 3
    assert counts["walk"] > pairs / 5
