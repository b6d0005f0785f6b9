"""Breaks anywhere in a schema, of every kind of keyword: nearly all are shown by an example, and every example is right."""

from typing import Any

import msgspec
import pytest

from tests.contracts.compatibility.narrowings import judged
from toolpost.contracts import Change, Definition, Verdict, judge
from toolpost.contracts.compatibility.projection import close_arguments
from toolpost.contracts.schema import compile_schema

SAMPLE = 700

TEXT = {"type": "string"}


def taking(schema: dict[str, Any]) -> Definition:
    return Definition(name="t", input_schema={"type": "object", "properties": {"v": schema}})


def test_nearly_every_break_has_an_example_and_none_is_wrong() -> None:
    breaking = [each for each in judged(SAMPLE, 3) if each.breaks]

    silent = [each for each in breaking if not each.has_example]
    assert len(breaking) > SAMPLE / 2
    assert [each.old for each in breaking if list(each.wrong_examples())] == []
    assert len(silent) <= 0.05 * len(breaking), [each.kind for each in silent]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"type": "object"}, {"type": "object", "propertyNames": {"pattern": "^x-"}}),
        ({"type": "object"}, {"type": "object", "patternProperties": {"^x-": TEXT}}),
        ({"oneOf": [TEXT, {"type": "null"}]}, {"oneOf": [TEXT | {"not": {"const": "secret"}}, {"type": "null"}]}),
        ({"oneOf": [TEXT, {"type": "null"}]}, {"oneOf": [TEXT, {"type": "null"}, {"minLength": 9, "type": "string"}]}),
        ({"allOf": [{"properties": {"a": TEXT}}]}, {"allOf": [{"properties": {"a": TEXT}}], "unevaluatedProperties": False}),
        ({"prefixItems": [TEXT]}, {"prefixItems": [TEXT], "unevaluatedItems": False}),
        ({"type": "number"}, {"type": "number", "multipleOf": 0.01}),
        ({"type": "array"}, {"type": "array", "maxItems": 5_000}),
        ({"type": "array", "items": TEXT}, {"type": "array", "items": TEXT, "maxItems": 5_000}),
        (TEXT, TEXT | {"maxLength": 50_000}),
        (TEXT | {"format": "uri"}, TEXT | {"format": "uri", "minLength": 20}),
        (TEXT | {"format": "uri"}, TEXT | {"format": "uri", "pattern": "^https://"}),
        (TEXT | {"format": "email"}, TEXT | {"format": "email", "maxLength": 50}),
        (TEXT | {"format": "date"}, TEXT | {"format": "date", "pattern": "^2"}),
        (TEXT | {"format": "idn-email"}, TEXT | {"format": "email"}),
        (TEXT, TEXT | {"not": {"pattern": "^-"}}),
        ({"type": "array", "contains": TEXT}, {"type": "array", "contains": TEXT, "minContains": 2}),
        ({"type": "integer", "minimum": 1, "maximum": 5}, {"type": "integer", "enum": [1, 2, 3]}),
        ({}, {"if": {"required": ["a"]}, "then": {"required": ["b"]}}),
    ],
)  # fmt: skip
def test_a_break_of_this_kind_has_an_example(old: dict[str, Any], new: dict[str, Any]) -> None:
    one, other = taking(old), taking(new)

    broken = [each for each in judge(one, other).changes if each.verdict is Verdict.BREAKING]

    assert broken
    for change in broken:
        check_shown(change, one.input_schema, other.input_schema)


def check_shown(change: Change, old: Any, new: Any) -> None:
    assert change.rule != "input.unproven"
    assert change.example is not msgspec.UNSET
    assert compile_schema(close_arguments(old, new), root_object=False).is_valid(change.example)
    assert not compile_schema(close_arguments(new, old), root_object=False).is_valid(change.example)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"type": "integer", "multipleOf": 1.5}, {"type": "integer", "multipleOf": 3}),
        ({"type": "number", "multipleOf": 3}, {"type": "number", "multipleOf": 1.5}),
    ],
)
def test_steps_that_lose_nothing_are_compatible(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert judge(taking(old), taking(new)).verdict is Verdict.COMPATIBLE


def test_a_new_list_of_values_is_told_as_a_limit() -> None:
    old, new = taking({"type": "integer", "minimum": 1, "maximum": 5}), taking({"enum": [1, 2, 3]})

    (change,) = [each for each in judge(old, new).changes if each.verdict is Verdict.BREAKING]

    assert (change.message, change.example) == ("`v` must now be one of 1, 2, 3", {"v": 4})


def test_a_bound_beside_unevaluated_items_is_the_only_change() -> None:
    items = {"type": "array", "prefixItems": [TEXT], "unevaluatedItems": TEXT}
    old, new = taking(items | {"minItems": 2}), taking(items | {"minItems": 3})

    assert [change.place for change in judge(old, new).changes] == ["/inputSchema/properties/v/minItems"]
