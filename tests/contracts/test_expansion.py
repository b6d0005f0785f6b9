"""The paths on which a schema reaches one place of a value are counted, in time proportional to the schema."""

import math
from typing import Any

import pytest

from tests.hostile.attacks import assert_linear, thread_cpu_s
from tests.hostile.schemas import RECURSIVE, chain, holding
from toolpost.contracts.closing import close_schema
from toolpost.contracts.document import References, walk_subschemas
from toolpost.contracts.expansion import PATHS_LIMIT, InPlaceCycle, estimate_pattern_size, measure_expansion
from toolpost.contracts.schema import QUICK_COST, SchemaProblem, compile_schema

TEXT = {"type": "string"}
T = {"$ref": "#/$defs/t"}


def paths(raw: Any) -> float:
    parts = list(walk_subschemas(raw))
    return measure_expansion(raw, parts, References(raw, parts)).paths


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"type": "object", "properties": {"a": TEXT, "b": TEXT}}, 1),
        ({"anyOf": [TEXT, {"type": "null"}]}, 3),
        ({"anyOf": [{"allOf": [TEXT, TEXT]}, TEXT]}, 5),
        # Other names lead to other places; the same name twice is the same place twice.
        ({"allOf": [{"properties": {"a": TEXT}}, {"properties": {"b": TEXT}}]}, 3),
        ({"allOf": [{"properties": {"a": {"allOf": [TEXT] * 4}}}] * 2}, 10),
        ({"properties": {"ab": TEXT}, "patternProperties": {"a": TEXT, "b": TEXT}}, 3),
        ({"prefixItems": [TEXT, TEXT], "contains": TEXT}, 2),
        ({"items": {"allOf": [T, T]}, "$defs": {"t": {"anyOf": [TEXT, TEXT]}}}, 9),
        ({"if": TEXT, "then": TEXT, "else": TEXT, "not": TEXT, "dependentSchemas": {"a": TEXT}}, 6),
        # What is left unevaluated is found out by evaluating the rest again.
        ({"allOf": [TEXT], "unevaluatedProperties": False}, 4),
        # A definition that nothing leads to is never applied.
        ({"$defs": {"t": {"allOf": [TEXT] * 50}}, "enum": [1]}, 1),
        ({"$ref": "#/x-own/t", "x-own": {"t": {"allOf": [TEXT] * 3}}}, 5),
    ],
)
def test_paths_to_one_place_are_counted(raw: Any, expected: int) -> None:
    assert paths(raw) == expected


def test_each_doubling_doubles_the_paths() -> None:
    counts = [paths(chain(length, lambda next_: {"allOf": [next_, next_]})) for length in (4, 5, 6)]

    assert 1.9 < counts[1] / counts[0] < 2.3
    assert 1.9 < counts[2] / counts[1] < 2.3


RECURSIVE_ONCE: dict[str, Any] = {
    "any JSON": holding(
        T, t={"anyOf": [TEXT, {"type": "array", "items": T}, {"type": "object", "additionalProperties": T}]}
    ),
    "filters": holding(
        T, t={"anyOf": [{"properties": {"and": {"items": T}}}, {"properties": {"or": {"items": T}}}, TEXT]}
    ),
    "tree": holding(T, t={"type": "object", "properties": {"left": T, "right": T, "value": TEXT}}),
    "two kinds": holding(
        T, t={"properties": {"u": {"$ref": "#/$defs/u"}}}, u={"properties": {"t": {"anyOf": [T, {"type": "null"}]}}}
    ),
    "with something beside it": holding(
        T, t={"allOf": [{"properties": {"c": T}}, {"properties": {"c": {"items": TEXT}}}]}
    ),
}


@pytest.mark.parametrize("name", RECURSIVE_ONCE)
def test_recursion_with_one_way_back_has_a_bound(name: str) -> None:
    assert paths(RECURSIVE_ONCE[name]) < 20
    assert compile_schema(RECURSIVE_ONCE[name], root_object=True).inline_limit_bytes > 10_000


@pytest.mark.parametrize(
    "raw",
    [
        *RECURSIVE.values(),
        holding(T, t={"items": {"anyOf": [T, T]}}),
        holding(T, t={"additionalProperties": T, "patternProperties": {"a": T}}),
        {"type": "object", "$dynamicAnchor": "t", "properties": {"c": {"allOf": [{"$dynamicRef": "#t"}] * 2}}},
        # Each level starts another recursion beside its own: as many paths as the level is deep, for each kind.
        holding(
            T,
            t={"allOf": [{"properties": {"c": T}}, {"properties": {"c": {"$ref": "#/$defs/u"}}}]},
            u={"properties": {"c": {"$ref": "#/$defs/u"}}},
        ),
    ],
)
def test_recursion_with_two_ways_back_has_no_bound_and_is_not_refused(raw: Any) -> None:
    assert math.isinf(paths(raw))
    assert compile_schema(raw, root_object=True).inline_limit_bytes == 0


@pytest.mark.parametrize(
    "raw",
    [
        {"$ref": "#"},
        {"allOf": [{"anyOf": [T]}], "$defs": {"t": {"not": T}}},
        {"$defs": {"t": {"$ref": "#/$defs/u"}, "u": {"if": T}}, "properties": {"a": T}},
    ],
)
def test_a_schema_that_never_gets_deeper_is_refused(raw: Any) -> None:
    with pytest.raises(InPlaceCycle):
        paths(raw)
    with pytest.raises(SchemaProblem, match="leads back to itself"):
        compile_schema(raw, root_object=False)


def test_the_refusal_names_where_it_begins() -> None:
    with pytest.raises(SchemaProblem, match=f"over {PATHS_LIMIT:,} schemas") as refusal:
        compile_schema(chain(30, lambda next_: {"oneOf": [next_, next_]}), root_object=True)

    assert refusal.value.place.startswith("/$defs/d2")


def test_what_is_quick_depends_on_the_cost() -> None:
    plain = compile_schema({"type": "object"}, root_object=True)
    unions = compile_schema(holding({"items": {"anyOf": [TEXT] * 99}}), root_object=True)
    listed = compile_schema(holding({"items": {"enum": [{"n": n} for n in range(1_000)]}}), root_object=True)

    assert plain.inline_limit_bytes == QUICK_COST
    assert plain.quick_parts > 10 * unions.quick_parts > 0
    assert plain.inline_limit_bytes > 50 * unions.inline_limit_bytes > 20 * listed.inline_limit_bytes


LARGE = {
    "chain": lambda size: chain(size, lambda next_: {"properties": {"a": next_}}),
    "properties": lambda size: holding(T, t={"properties": {f"p{n}": {"anyOf": [TEXT, T]} for n in range(size)}}),
    "identities": lambda size: holding(TEXT, **{f"d{n}": {"$id": f"http://a/{n}", "items": TEXT} for n in range(size)}),
    "extended": lambda size: chain(size, lambda next_: {"properties": {"a": TEXT}, "items": {"allOf": [next_]}}),
}


@pytest.mark.parametrize("name", LARGE)
def test_counting_and_closing_take_time_in_proportion_to_the_schema(name: str) -> None:
    def cost_s(size: int) -> float:
        raw = LARGE[name](size)

        def work() -> None:
            paths(raw)
            close_schema(raw)

        return thread_cpu_s(work)

    assert_linear(cost_s, small=150)


@pytest.mark.parametrize("pattern", ["[", "[[\\]", "\\p{", "(", "a{999999}", "{2}", "[^"])
def test_patterns_are_measured_in_time_in_proportion_to_their_length(pattern: str) -> None:
    assert_linear(lambda size: thread_cpu_s(lambda: estimate_pattern_size(pattern * size)), small=2_000)
