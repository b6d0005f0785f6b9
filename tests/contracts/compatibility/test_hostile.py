"""No pair of definitions takes more than its budget, and what was not looked at is never called compatible."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.hostile.attacks import slowness
from toolpost.contracts import Definition, judge

Schema = dict[str, Any]


def shape(number: int) -> Schema:
    text, count = {"type": "string", "minLength": number}, {"type": "integer", "minimum": number}
    return {"type": "object", "properties": {f"a{number}": text, "b": count}, "required": [f"a{number}"]}


def choices(number: int) -> Schema:
    return {"anyOf": [shape(10 * number + other) for other in range(3)]}


def with_definitions(inner: Callable[[int], Schema], count: int, **properties: Schema) -> Schema:
    return {"$defs": {f"d{n}": inner(n) for n in range(count)}, "type": "object", "properties": properties}


def a_tool(role: str, schema: Any) -> Definition:
    return (
        Definition(name="t", input_schema=schema)
        if role == "input_schema"
        else Definition(name="t", output_schema=schema)
    )


def reference(number: int) -> Schema:
    return {"$ref": f"#/$defs/d{number}"}


def taking(schema: Schema) -> Schema:
    return {"type": "object", "properties": {"x": schema}}


def deep(levels: int, wrapped: Callable[[Schema], Schema]) -> Schema:
    schema: Schema = {"type": "integer", "minimum": 3}
    for _ in range(levels):
        schema = wrapped(schema)
    return schema


HOSTILE = {
    "every combination of choices": taking({"allOf": [choices(number) for number in range(9)]}),
    "choices behind references": with_definitions(choices, 8, x={"allOf": [reference(n) for n in range(8)]}),
    "many of them": with_definitions(
        choices, 6, **{f"x{p}": {"allOf": [reference(n) for n in range(6)]} for p in range(12)}
    ),
    "one of many shapes": taking({"oneOf": [shape(number) for number in range(40)]}),
    "none of many shapes": taking({"allOf": [{"not": shape(number)} for number in range(40)]}),
    "a chain of references": with_definitions(
        lambda n: (
            {"properties": {"a": reference(n + 1), "b": {"anyOf": [reference(n + 1), {"minimum": 3}]}}}
            if n < 59
            else {}
        ),
        60,
        x=reference(0),
    ),
    "references that double": with_definitions(
        lambda n: {"properties": {"l": reference(n + 1), "r": reference(n + 1)}} if n < 59 else {"minimum": 3},
        60,
        x=reference(0),
    ),
    "references that extend each other": with_definitions(
        lambda n: {"allOf": [reference(n + 1)], "properties": {"q": reference(n + 1)}} if n < 149 else {"minimum": 3},
        150,
        x=reference(0),
    ),
    "a loop": with_definitions(lambda n: {"allOf": [reference((n + 1) % 3)], "minimum": 3}, 3, x=reference(0)),
    "deep branches": taking(deep(40, lambda inner: {"anyOf": [{"properties": {"x": inner}}, {"type": "string"}]})),
    "deep denials": taking(deep(60, lambda inner: {"not": inner})),
    "too deep to walk": taking(deep(2_000, lambda inner: {"items": inner})),
    "doubling branches": taking(deep(12, lambda inner: {"anyOf": [{"properties": {"x": inner}}, {"items": inner}]})),
    "many properties": {
        "type": "object",
        "properties": {f"p{n}": {"type": "integer", "minimum": n} for n in range(3_000)},
    },
    "hundreds of properties that differ": {
        "type": "object",
        "properties": {f"p{n}": {"type": "integer", "minimum": 3, "maximum": 1_000 + n} for n in range(600)},
    },
    "branches of many properties": taking(
        {"anyOf": [{"properties": {f"p{n}": {"minimum": n + m} for n in range(400)}} for m in range(3)], "minimum": 3}
    ),
    "a huge list of values": taking({"enum": [*range(15_000)], "minimum": 3}),
    "a list of objects": taking({"enum": [{"a": n} for n in range(4_000)], "minimum": 3}),
    "patterns that explode": {
        "type": "object",
        "properties": {f"x{n}": {"pattern": f"(((a{{1,100}}){{1,100}}){{1,10}}{n})", "minimum": 3} for n in range(50)},
    },
    "patterns of all letters": {
        "type": "object",
        "properties": {f"x{n}": {"pattern": rf"\p{{L}}{{200}}{n}", "minimum": 3} for n in range(50)},
    },
    "patterns beside each other": taking(
        {"patternProperties": {f"^a{{1,{n + 1}}}.*b{n}": {"minLength": n} for n in range(100)}, "minimum": 3}
    ),
    "dependencies": taking({"dependentRequired": {f"a{n}": [f"a{n + 1}", f"b{n}"] for n in range(60)}, "minimum": 3}),
    "conditions": taking({"allOf": [{"if": shape(n), "then": shape(n + 1), "else": shape(n + 2)} for n in range(12)]}),
    "what was not evaluated": taking({"allOf": [choices(n) for n in range(6)], "unevaluatedProperties": False}),
    "arrays that contain": taking({"allOf": [{"contains": shape(n)} for n in range(12)]}),
    "primes": taking({"type": "integer", "allOf": [{"multipleOf": n} for n in range(2, 60)], "minimum": 3}),
    "counts beyond reason": taking({"type": "array", "minItems": 10**9, "items": {"minimum": 3}, "uniqueItems": True}),
}


def changed(schema: Schema) -> Schema:
    """Return the schema with its smallest numbers raised, which is a change wherever it is reached."""
    if "minimum" not in repr(schema)[:100_000] and "minLength" not in repr(schema)[:100_000]:
        raise AssertionError("nothing would change")
    raised = json.dumps(schema).replace('"minimum": 3', '"minimum": 4').replace('"minLength": 3', '"minLength": 4')
    found = json.loads(raised)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("role", ["input_schema", "output_schema"])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pair_keeps_to_its_budget(name: str, role: str) -> None:
    old = HOSTILE[name]
    new = (
        old | {"properties": old["properties"] | {"one_more": {"minimum": 3}}}
        if name == "too deep to walk"
        else changed(old)
    )
    if name in ("many properties", "one of many shapes"):
        new = json.loads(
            json.dumps(new).replace('"minimum": 7,', '"minimum": 8,').replace('"minimum": 7}', '"minimum": 8}')
        )
    started = time.process_time()

    judgement = judge(a_tool(role, old), a_tool(role, new))

    # Of the processor, not of the clock: others may be using it too. Without a budget it would take hours.
    assert time.process_time() - started < 10.0 * slowness()
    assert judgement.changes
    assert not judgement.is_cut_short or judgement.verdict != "compatible"


def test_a_budget_of_nothing_gives_a_review() -> None:
    old = Definition(name="t", input_schema=taking({"type": "string"}))
    new = Definition(name="t", input_schema=taking({"anyOf": [{"type": "string"}, {"type": "null"}]}))

    judgement = judge(old, new, budget_s=0)

    assert (judgement.verdict, judgement.is_cut_short, judgement.needs_bump) == ("review", True, True)
    assert [change.rule for change in judgement.changes] == ["budget.spent"]


def test_words_without_end_are_told_in_time() -> None:
    words = " ".join("the" if number % 2 else "a" for number in range(200_000))
    texts = {f"p{n}": {"description": f"{words[:600]} {n}"} for n in range(500)}
    others = {f"p{n}": {"description": f"{words[1:300]} x {words[:300]} {n}"} for n in range(500)}
    old = Definition(name="t", description=words, input_schema={"type": "object", "properties": texts})
    new = Definition(name="t", description=f"x {words[::-1]}", input_schema={"type": "object", "properties": others})
    started = time.process_time()

    judgement = judge(old, new)

    assert time.process_time() - started < 10.0 * slowness()
    assert judgement.verdict == "review"
    assert len(judgement.changes) == 501


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": 7},
        {"type": "object", "properties": {"a": {"type": "nonsense"}}},
        {"type": "object", "required": "a"},
        {"type": "object", "properties": {"a": {"$ref": "https://example.org/elsewhere"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}},
        {"type": "object", "properties": {"a": {"pattern": "(?=a)"}}},
        {"$schema": "https://example.org/a-dialect-of-my-own", "type": "object"},
        {"type": "object", "$id": "http://[", "properties": {"a": {"$ref": "x", "default": 1}}},
        {"type": "object", "allOf": 3, "patternProperties": [], "enum": {}},
    ],
)
@pytest.mark.parametrize("role", ["input_schema", "output_schema"])
def test_a_schema_that_cannot_be_used_is_never_compatible(schema: Schema, role: str) -> None:
    usable = a_tool(role, taking({"type": "string"}))
    broken = a_tool(role, schema)

    for judgement in (judge(usable, broken), judge(broken, usable)):
        assert judgement.verdict == "breaking"
        assert "cannot be used" in judgement.changes[0].message


def test_a_small_schema_of_large_values_takes_little_time() -> None:
    inner: Schema = {"type": "string", "minLength": 3}
    for _ in range(8):
        inner = {"type": "array", "minItems": 10**6, "items": inner}
    old = taking(inner)
    started = time.process_time()

    judgement = judge(a_tool("input_schema", old), a_tool("input_schema", changed(old)))

    assert time.process_time() - started < 5.0 * slowness()
    assert judgement.verdict == "breaking"


def test_many_patterns_made_to_be_slow_keep_to_the_budget() -> None:
    def schema(least: int) -> Schema:
        slow = {f"p{n}": {"type": "string", "pattern": f"^(a|b)*a(a|b){{{least},{n + 30}}}$"} for n in range(200)}
        return {"type": "object", "properties": slow, "required": [*slow]}

    started = time.process_time()

    judgement = judge(a_tool("input_schema", schema(20)), a_tool("input_schema", schema(21)))

    assert time.process_time() - started < 10.0 * slowness()
    assert judgement.verdict != "compatible"


@pytest.mark.parametrize("role", ["input_schema", "output_schema"])
def test_no_budget_makes_a_break_compatible_or_the_same(role: str) -> None:
    def schema(least: int) -> Schema:
        return taking({"anyOf": [{"type": "null"}, {"items": {"$ref": "#/$defs/A"}}]}) | {"$defs": {"A": shape(least)}}

    for micros in (0, 50, 100, 150, 200, 300, 400, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 1_000_000):
        old, new = a_tool(role, schema(3)), a_tool(role, schema(4 if role == "input_schema" else 2))
        judgement = judge(old, new, budget_s=micros / 1e6)
        assert judgement.verdict != "compatible", micros
        assert not [change for change in judgement.changes if change.rule.endswith("rewritten")], micros


def test_a_judgement_is_the_same_however_busy_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (taking({"allOf": [choices(1), choices(2)], "minProperties": least}) for least in (1, 2))
    calm = judge(a_tool("input_schema", old), a_tool("input_schema", new))
    passed = iter(range(10**9))
    for clock in ("monotonic", "perf_counter", "time"):
        # An hour passes whenever somebody looks.
        monkeypatch.setattr(time, clock, lambda: 3_600.0 * next(passed))

    assert judge(a_tool("input_schema", old), a_tool("input_schema", new)) == calm
    assert not calm.is_cut_short
