"""A schema is compiled, or refused by place and reason; native schemas are closed."""

import copy
import json
from typing import Any

import pytest
from pydantic import BaseModel

from tests.collected import DEFINITION_SETS, load_definitions
from tests.hostile.attacks import attack
from toolpost.contracts.closing import close_schema
from toolpost.contracts.document import rewrite_boolean_bounds
from toolpost.contracts.schema import DEPTH_LIMIT, Schema, SchemaProblem, as_object_schema, compile_schema

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_6 = "http://json-schema.org/draft-06/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"

EXTERNAL = "leads to nothing in this document"


def compiled(raw: Any) -> Schema:
    return compile_schema(raw, root_object=False)


def refusal(raw: Any, *, root_object: bool = False) -> SchemaProblem:
    with pytest.raises(SchemaProblem) as caught:
        compile_schema(raw, root_object=root_object)
    return caught.value


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = an_object(a=schema)
    return schema


# The mapping that one seed asks for is what JSON Schema says anyway.
MAPPED = {
    "type": "object",
    "properties": {
        "s": {"type": "string"},
        "n": {"type": "number"},
        "i": {"type": "integer"},
        "b": {"type": "boolean"},
        "any": {},
    },
    "required": ["s"],
}


@pytest.mark.parametrize(
    ("arguments", "is_taken"),
    [
        ({"s": "x"}, True),
        ({}, False),
        ({"s": 1}, False),
        ({"s": "x", "n": 1.5, "i": 2, "b": True}, True),
        ({"s": "x", "n": "1.5"}, False),
        ({"s": "x", "i": 1.5}, False),
        ({"s": "x", "i": 2.0}, True),
        ({"s": "x", "b": 1}, False),
        ({"s": "x", "any": None}, True),
        ({"s": "x", "any": [{"deep": 1}]}, True),
    ],
)
def test_simple_types_and_optional_properties_mean_what_they_say(arguments: Any, is_taken: bool) -> None:
    schema = compile_schema(close_schema(MAPPED), root_object=True)

    assert schema.is_valid(arguments) is is_taken


@pytest.mark.parametrize("raw", [{"type": "object"}, {"type": "object", "properties": {}}])
def test_a_tool_without_properties_takes_nothing(raw: Any) -> None:
    schema = compile_schema(close_schema(raw), root_object=True)

    assert schema.is_valid({})
    assert not schema.is_valid({"a": 1})


@pytest.mark.parametrize(
    ("raw", "place", "reason"),
    [
        (None, "", "schema is missing"),
        ([], "", "not an object"),
        ("object", "", "not an object"),
        ({"type": "strin"}, "/type", '"strin" is not a JSON Schema type'),
        (an_object(a={"type": "any"}), "/properties/a/type", '"any" is not a JSON Schema type'),
        (an_object(**{"a/b": "string"}), "/properties/a~1b", "must be boolean or object"),
        ({"required": "a"}, "/required", "must be array"),
        ({"minimum": "1"}, "/minimum", "must be number"),
        ({"minLength": -1}, "/minLength", "breaks the rules"),
        ({"$schema": DRAFT_7, "items": 5}, "/items", ""),
        ({"$schema": "http://example.com/mine"}, "/$schema", "is not a known draft"),
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, "/$schema", "is not a known draft"),
        ({"$schema": 7}, "/$schema", "is not a known draft"),
        ({"default": float("nan")}, "", "not JSON"),
        ({"enum": [{1, 2}]}, "", "not JSON"),
        ({"default": "x" * 300_000}, "", "the limit is 262144"),
    ],
)
def test_a_bad_schema_is_refused_by_place_and_reason(raw: Any, place: str, reason: str) -> None:
    problem = refusal(raw)

    assert problem.place == place
    assert reason in problem.reason


@pytest.mark.parametrize(
    ("raw", "place", "reason"),
    [
        ({}, "", 'add "type": "object"'),
        ({"properties": {}}, "", 'add "type": "object"'),
        ({"type": "array"}, "/type", 'exactly "object"'),
        ({"type": ["object"]}, "/type", 'exactly "object"'),
        (True, "", "not an object schema"),
    ],
)
def test_a_root_that_must_be_an_object_says_so_exactly(raw: Any, place: str, reason: str) -> None:
    problem = refusal(raw, root_object=True)

    assert (problem.place, reason in problem.reason) == (place, True)
    if raw != {"type": "array"}:
        compiled(raw)


@attack(
    "server",
    "refers to files and URLs from a schema",
    "nothing is ever fetched: the schema is refused",
)
@pytest.mark.parametrize(
    ("raw", "place"),
    [
        (an_object(a={"$ref": "http://example.com/a.json"}), "/properties/a/$ref"),
        (an_object(a={"$ref": "https://example.com/a.json#/x"}), "/properties/a/$ref"),
        (an_object(a={"$ref": "file:///etc/passwd"}), "/properties/a/$ref"),
        (an_object(a={"$ref": "other.json"}), "/properties/a/$ref"),
        (an_object(a={"$ref": "#/$defs/nope"}), "/properties/a/$ref"),
        (an_object(a={"$ref": "#nope"}), "/properties/a/$ref"),
        (an_object(a={"$dynamicRef": "http://example.com/#n"}), "/properties/a/$dynamicRef"),
        ({"$schema": DRAFT_2019, **an_object(a={"$recursiveRef": "http://x/"})}, "/properties/a/$recursiveRef"),
        ({"$defs": {"unused": {"$ref": "http://example.com/"}}}, "/$defs/unused/$ref"),
        ({"$defs": {"unused": {"$ref": "#/nope"}}}, "/$defs/unused/$ref"),
        (an_object(a={"$ref": DRAFT_7}), "/properties/a/$ref"),
    ],
)
def test_a_reference_that_leaves_the_document_is_refused(raw: Any, place: str) -> None:
    problem = refusal(raw)

    assert problem.place == place
    assert EXTERNAL in problem.reason


@pytest.mark.parametrize(
    "raw",
    [
        {**an_object(a={"$ref": "#/$defs/t"}), "$defs": {"t": {"type": "string"}}},
        {**an_object(a={"$ref": "#/$defs/a~1b%20c"}), "$defs": {"a/b c": {"type": "string"}}},
        {**an_object(a={"$ref": "#t"}), "$defs": {"t": {"$anchor": "t", "type": "string"}}},
        {**an_object(a={"$dynamicRef": "#t"}), "$defs": {"t": {"$dynamicAnchor": "t", "type": "string"}}},
        {**an_object(a={"$ref": "http://e/t"}), "$defs": {"t": {"$id": "http://e/t", "type": "string"}}},
        {"$id": "http://e/root", **an_object(a={"$ref": "t"}), "$defs": {"t": {"$id": "t", "type": "string"}}},
        {"$schema": DRAFT_7, **an_object(a={"$ref": "#t"}), "definitions": {"t": {"$id": "#t", "type": "string"}}},
        {"$schema": DRAFT_4, **an_object(a={"$ref": "#t"}), "definitions": {"t": {"id": "#t", "type": "string"}}},
    ],
)
def test_a_reference_inside_the_document_is_followed(raw: Any) -> None:
    schema = compiled(raw)

    assert schema.is_valid({"a": "x"})
    assert not schema.is_valid({"a": 1})


def test_a_recursive_schema_is_followed() -> None:
    for reference, draft in (("$ref", DRAFT_7), ("$recursiveRef", DRAFT_2019), ("$ref", DRAFT_2020)):
        schema = compiled({"$schema": draft, **an_object(n={"type": "integer"}, inner={reference: "#"})})

        assert schema.is_valid({"inner": {"inner": {"n": 1}}})
        assert not schema.is_valid({"inner": {"inner": {"n": "1"}}})


@pytest.mark.parametrize(
    ("raw", "place", "reason"),
    [
        (an_object(a={"pattern": "^(?!x)y"}), "/properties/a/pattern", "look-around"),
        (an_object(a={"pattern": "(?<=x)y"}), "/properties/a/pattern", "look-around"),
        (an_object(a={"pattern": r"(a)\1"}), "/properties/a/pattern", "back-reference"),
        (an_object(a={"pattern": "(a"}), "/properties/a/pattern", "malformed"),
        ({"pattern": "(a{1000}){1000}"}, "/pattern", "too large"),
        ({"patternProperties": {"^(?=a/b)": {}}}, "/patternProperties/^(?=a~1b)", "look-around"),
        ({"$defs": {"unused": {"pattern": "(?=a)"}}}, "/$defs/unused/pattern", "look-around"),
    ],
)
def test_a_pattern_that_cannot_run_in_linear_time_is_refused(raw: Any, place: str, reason: str) -> None:
    problem = refusal(raw)

    assert problem.place == place
    assert reason in problem.reason


@attack(
    "server",
    "puts patterns of exponential cost into a schema",
    "patterns run in linear time, or are refused",
)
@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(a*)*b$", "(x+x+)+y", "^([a-z]+)*[0-9]$"])
def test_a_hostile_pattern_does_not_hang(pattern: str) -> None:
    compiled({"pattern": pattern}).is_valid("a" * 50_000 + "x" * 50_000 + "!")


@pytest.mark.parametrize("name", ["enum", "default", "examples", "const"])
def test_values_inside_a_schema_are_not_read_as_schemas(name: str) -> None:
    value = {"$ref": "http://example.com/", "pattern": "(?=a)", "x-reserved": True, "properties": {"a": {}}}
    raw = an_object(items={"type": "string"}, a={name: value if name in ("default", "const") else [value]})

    compiled(raw)

    assert close_schema(raw)["properties"]["a"] == raw["properties"]["a"]


def test_schemas_may_be_nested_to_the_limit_and_no_deeper() -> None:
    compiled(nested(DEPTH_LIMIT))

    problem = refusal(nested(DEPTH_LIMIT + 1))

    assert problem.place == "/properties/a" * (DEPTH_LIMIT + 1)
    assert "64 levels" in problem.reason


def test_a_schema_nested_without_end_is_refused() -> None:
    endless: dict[str, Any] = {"type": "object"}
    endless["properties"] = {"a": endless}

    assert refusal(endless).reason
    assert refusal(nested(5_000)).reason
    assert refusal({"default": json.loads("[" * 500 + "]" * 500)}).reason


@pytest.mark.parametrize(
    ("draft", "raw", "value", "is_taken"),
    [
        (DRAFT_4, {"minimum": 1, "exclusiveMinimum": True}, 1, False),
        (DRAFT_6, {"exclusiveMinimum": 1}, 1, False),
        (DRAFT_7, {"items": [{"type": "string"}], "additionalItems": False}, ["a", "b"], False),
        (DRAFT_7, {"if": {"const": 1}, "then": False}, 1, False),
        (DRAFT_7, {"unevaluatedProperties": False}, {"a": 1}, True),
        (DRAFT_7, {"$ref": "#/definitions/t", "minLength": 9, "definitions": {"t": {}}}, "a", True),
        (DRAFT_2019, {"$ref": "#/$defs/t", "minLength": 9, "$defs": {"t": {}}}, "a", False),
        (DRAFT_2019, {"unevaluatedProperties": False}, {"a": 1}, False),
        (DRAFT_2020, {"prefixItems": [{"type": "string"}], "items": False}, ["a", "b"], False),
        (DRAFT_2020, {"dependentRequired": {"a": ["b"]}}, {"a": 1}, False),
        (None, {"prefixItems": [{"type": "string"}], "items": False}, ["a", "b"], False),
    ],
)
def test_the_named_draft_decides(draft: str | None, raw: Any, value: Any, is_taken: bool) -> None:
    schema = compiled({"$schema": draft, **raw} if draft else raw)

    assert schema.is_valid(value) is is_taken


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", "2026-01-31", "2026-02-31"),
        ("date-time", "2026-01-31T12:00:00Z", "2026-01-31"),
        ("email", "a@example.com", "a"),
        ("ipv4", "192.0.2.1", "192.0.2.256"),
        ("uri", "https://example.com/", "example"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
    ],
)
def test_formats_are_checked(name: str, good: str, bad: str) -> None:
    for draft in (DRAFT_7, DRAFT_2019, DRAFT_2020):
        schema = compiled({"$schema": draft, "format": name})

        assert schema.is_valid(good) or name == "uuid"
        assert not schema.is_valid(bad) or (name, draft) == ("uuid", DRAFT_7)


def test_an_unknown_format_is_ignored() -> None:
    assert compiled({"format": "colour-of-mood"}).is_valid("blue")


def test_errors_are_given_one_by_one() -> None:
    errors = compiled(an_object(a={"type": "string"}, b={"type": "string"})).errors({"a": 1, "b": 2})

    assert [error.instance_path for error in errors] == [["a"], ["b"]]


def open_at(raw: dict[str, Any], *path: Any) -> bool:
    found: Any = close_schema(raw)
    for step in path:
        found = found[step]
    return "additionalProperties" not in found and "unevaluatedProperties" not in found


@pytest.mark.parametrize("keyword", ["additionalProperties", "unevaluatedProperties"])
@pytest.mark.parametrize("said", [True, False, {"type": "string"}])
def test_a_root_that_says_what_else_it_takes_is_left_alone(keyword: str, said: Any) -> None:
    raw = {**an_object(a={}), keyword: said}

    assert close_schema(raw) == raw


def test_closing_keeps_order_and_never_changes_what_it_was_given() -> None:
    raw = {"title": "T", **an_object(b=an_object(c={"x-reserved": True}), a={"items": an_object(d={})})}
    before = copy.deepcopy(raw)

    result = close_schema(raw)

    assert raw == before
    assert list(result) == ["title", "type", "properties", "additionalProperties"]
    assert list(result["properties"]) == ["b", "a"]


@pytest.mark.parametrize(
    "keyword",
    ["allOf", "anyOf", "oneOf"],
)
def test_a_root_with_branches_is_closed_over_all_of_them(keyword: str) -> None:
    raw = {**an_object(a={}), keyword: [an_object(b={})]}
    schema = compile_schema(close_schema(raw), root_object=True)

    assert schema.is_valid({"a": 1, "b": 2})
    assert not schema.is_valid({"a": 1, "c": 2})


def test_a_root_with_patterns_is_closed_around_them_in_any_draft() -> None:
    for draft in (DRAFT_7, DRAFT_2020):
        schema = compiled(close_schema({"$schema": draft, **an_object(a={}), "patternProperties": {"^x-": {}}}))

        assert schema.is_valid({"a": 1, "x-b": 2})
        assert not schema.is_valid({"b": 2})


INNER = an_object(a={})


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (an_object(o=INNER), ("properties", "o")),
        (an_object(o=an_object(p=INNER)), ("properties", "o", "properties", "p")),
        (an_object(o={"type": "array", "items": INNER}), ("properties", "o", "items")),
        (an_object(o={"prefixItems": [INNER]}), ("properties", "o", "prefixItems", 0)),
        (an_object(o={"additionalProperties": INNER}), ("properties", "o", "additionalProperties")),
        ({**an_object(o={"$ref": "#/$defs/o"}), "$defs": {"o": INNER}}, ("$defs", "o")),
        (
            {"$schema": DRAFT_7, **an_object(o={"$ref": "#/definitions/o"}), "definitions": {"o": INNER}},
            ("definitions", "o"),
        ),
        (an_object(items=INNER), ("properties", "items")),
        ({**an_object(o=INNER), "anyOf": [{"required": ["o"]}]}, ("properties", "o")),
    ],
)
def test_a_nested_object_that_declares_properties_is_closed(raw: Any, path: Any) -> None:
    assert not open_at(raw, *path)


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (an_object(o={"type": "object", "properties": {}}), ("properties", "o")),
        (an_object(o={"type": "object"}), ("properties", "o")),
        (an_object(o={**INNER, "allOf": [{}]}), ("properties", "o")),
        (an_object(o={**INNER, "patternProperties": {"^x": {}}}), ("properties", "o")),
        (an_object(o={"anyOf": [INNER, {"type": "string"}]}), ("properties", "o", "anyOf", 0)),
        (an_object(o={"not": INNER}), ("properties", "o", "not")),
        (an_object(o={"if": INNER, "then": INNER}), ("properties", "o", "if")),
        (an_object(o={"if": INNER, "then": INNER}), ("properties", "o", "then")),
        (an_object(o={"contains": INNER, "items": INNER}), ("properties", "o", "items")),
        ({"allOf": [an_object(o=INNER)]}, ("allOf", 0, "properties", "o")),
        ({**an_object(o=INNER), "allOf": [an_object(o=an_object(b={}))]}, ("properties", "o")),
    ],
)
def test_an_object_is_left_open_where_closing_would_change_its_siblings(raw: Any, path: Any) -> None:
    assert open_at(raw, *path)


NULL = {"type": "null"}


@pytest.mark.parametrize(
    ("optional", "path"),
    [
        ({"anyOf": [INNER, NULL], "default": None, "title": "O"}, ("anyOf", 0)),
        ({"oneOf": [NULL, INNER]}, ("oneOf", 1)),
        ({"anyOf": [an_object(p=INNER), NULL]}, ("anyOf", 0, "properties", "p")),
        ({"anyOf": [an_object(p={"anyOf": [INNER, NULL]}), NULL]}, ("anyOf", 0, "properties", "p", "anyOf", 0)),
    ],
)
def test_an_optional_object_is_closed_like_any_other(optional: Any, path: Any) -> None:
    raw = an_object(o=optional)
    schema = compiled(close_schema(raw))

    assert not open_at(raw, "properties", "o", *path)
    assert schema.is_valid({"o": None})
    assert schema.is_valid({"o": {}})
    assert not schema.is_valid({"o": {"unknown": 1}})


@pytest.mark.parametrize(
    "choice",
    [
        {"anyOf": [INNER, an_object(b={}), NULL]},
        {"anyOf": [INNER, {"type": ["null", "string"]}]},
        {"anyOf": [INNER]},
        {"allOf": [INNER, NULL]},
        {"anyOf": [INNER, NULL], "properties": {"b": {}}},
        {"anyOf": [INNER, NULL], "oneOf": [INNER, NULL]},
        {"anyOf": [INNER, NULL], "$ref": "#/$defs/o"},
        {"anyOf": [{**INNER, "allOf": [{}]}, NULL]},
        {"anyOf": [{**INNER, "additionalProperties": True}, NULL]},
        {"allOf": [{"anyOf": [INNER, NULL]}, an_object(b={})]},
    ],
)
def test_any_other_choice_is_left_as_it_is(choice: Any) -> None:
    raw = {**an_object(o=choice), "$defs": {"o": {}}}

    assert close_schema(raw)["properties"]["o"] == choice


MODEL = {"$ref": "#/$defs/Model"}
OPTIONAL = {"anyOf": [MODEL, NULL]}


@pytest.mark.parametrize(
    ("properties", "is_open"),
    [
        ({"o": OPTIONAL}, False),
        ({"o": OPTIONAL, "p": MODEL, "q": {"oneOf": [MODEL, NULL]}}, False),
        ({"o": OPTIONAL, "p": {"allOf": [MODEL, an_object(b={})]}}, True),
        ({"o": {**OPTIONAL, "properties": {"b": {}}}}, True),
        ({"o": {"anyOf": [MODEL, {"$ref": "#/$defs/Other"}, NULL]}}, True),
        ({"o": {"allOf": [{"$ref": "#/$defs/Optional"}, an_object(b={})]}}, True),
    ],
)
def test_a_definition_is_closed_when_all_who_refer_to_it_take_it_plain_or_optional(
    properties: Any, is_open: bool
) -> None:
    definitions = {"Model": INNER, "Other": an_object(c={}), "Optional": OPTIONAL}
    raw = {**an_object(**properties), "$defs": definitions}

    assert open_at(raw, "$defs", "Model") is is_open
    compiled(close_schema(raw))


def test_an_optional_pydantic_model_refuses_what_it_does_not_know() -> None:
    class Filter(BaseModel):
        limit: int = 1

    class Arguments(BaseModel):
        filter: Filter | None = None
        must: Filter = Filter()

    schema = compiled(close_schema(Arguments.model_json_schema()))

    assert schema.is_valid({"filter": None})
    assert schema.is_valid({"filter": {"limit": 2}})
    assert not schema.is_valid({"filter": {"limt": 2}})


BASE = {"Base": INNER}


@pytest.mark.parametrize(
    "extended",
    [
        {"allOf": [{"$ref": "#/$defs/Base"}, an_object(b={})]},
        {"$ref": "#/$defs/Base", "properties": {"b": {}}},
        {"not": {"$ref": "#/$defs/Base"}},
        {"anyOf": [{"$ref": "#base"}]},
        {"allOf": [{"$ref": "#/$defs/Middle"}]},
    ],
)
def test_a_definition_that_is_extended_somewhere_stays_open(extended: Any) -> None:
    definitions = {"Base": {"$anchor": "base", **INNER}, "Middle": an_object(base={"$ref": "#/$defs/Base"})}
    raw = {**an_object(plain={"$ref": "#/$defs/Base"}, more=extended), "$defs": definitions}

    assert open_at(raw, "$defs", "Base")
    compiled(close_schema(raw))


def test_an_extended_definition_still_takes_what_its_extension_adds() -> None:
    more = {"allOf": [{"$ref": "#/$defs/Base"}, an_object(b={})]}
    schema = compiled(close_schema({**an_object(o=more), "$defs": BASE}))

    assert schema.is_valid({"o": {"a": 1, "b": 2}})


@pytest.mark.parametrize("draft", [DRAFT_7, DRAFT_2020])
def test_a_reserved_property_cannot_be_set(draft: str) -> None:
    raw = {
        "$schema": draft,
        **an_object(
            a={"type": "string", "x-reserved": True},
            b=an_object(c={"$ref": "#/definitions/t", "x-reserved": True}),
        ),
        "definitions": {"t": {"type": "string"}},
    }
    schema = compiled(close_schema(raw))

    assert close_schema(raw)["properties"]["a"] == {"type": "string", "x-reserved": True, "not": {}}
    assert schema.is_valid({"b": {}})
    assert not schema.is_valid({"a": "x"})
    assert not schema.is_valid({"b": {"c": "x"}})


def problem_of(raw: Any) -> SchemaProblem | None:
    raw = rewrite_boolean_bounds(raw)
    try:
        compile_schema(raw, root_object=True)
    except SchemaProblem as problem:
        return problem
    compile_schema(close_schema(raw), root_object=True)
    return None


@pytest.mark.parametrize("name", DEFINITION_SETS)
def test_every_real_definition_compiles_or_is_refused_by_place_and_reason(name: str) -> None:
    definitions = load_definitions(name)

    problems = [problem for one in definitions.listed if (problem := problem_of(one["inputSchema"]))]

    assert len(problems) == definitions.wrong
    assert all(problem.place.startswith("/") and problem.reason for problem in problems)


@pytest.mark.parametrize("name", DEFINITION_SETS)
def test_every_real_definition_that_is_valid_is_validated_at_once(name: str) -> None:
    definitions = [rewrite_boolean_bounds(one["inputSchema"]) for one in load_definitions(name).listed]

    quick = [compile_schema(raw, root_object=True).inline_limit_bytes for raw in definitions if problem_of(raw) is None]

    assert min(quick) > 30_000
    assert sum(bytes_ > 100_000 for bytes_ in quick) > 0.99 * len(quick)


@pytest.mark.parametrize(
    "raw", [{}, {"properties": {"a": {}}}, {"required": ["a"]}, {"anyOf": [an_object(a={})]}, {"title": "T"}]
)
def test_a_root_that_leaves_its_type_out_is_an_object(raw: dict[str, Any]) -> None:
    assert as_object_schema(raw) == {"type": "object", **raw}
    assert compile_schema(as_object_schema(raw), root_object=True).is_valid({"a": 1})


@pytest.mark.parametrize("raw", [{"type": "array"}, {"type": ["object", "null"]}, {"items": {}}, {"enum": ["a"]}])
def test_a_root_that_is_something_else_stays_refused(raw: dict[str, Any]) -> None:
    assert as_object_schema(raw) is raw
    assert "object" in refusal(raw, root_object=True).reason


def test_bounds_of_draft_4_are_numbers_where_no_draft_is_named() -> None:
    bounded = {"minimum": 1, "exclusiveMinimum": True, "maximum": 5, "exclusiveMaximum": False}
    raw = {**an_object(n=bounded), "anyOf": [{"required": []}, {"items": bounded}]}
    before = copy.deepcopy(raw)
    listed = rewrite_boolean_bounds(raw)
    schema = compiled(close_schema(listed))

    assert raw == before
    assert listed["properties"]["n"] == listed["anyOf"][1]["items"] == {"exclusiveMinimum": 1, "maximum": 5}
    assert [schema.is_valid({"n": n}) for n in (1, 2, 5, 6)] == [False, True, True, False]
    assert (
        refusal(rewrite_boolean_bounds(an_object(n={"exclusiveMinimum": True}))).place
        == "/properties/n/exclusiveMinimum"
    )


@pytest.mark.parametrize(
    "raw",
    [
        an_object(n={"exclusiveMinimum": 1}),
        an_object(exclusiveMinimum={"default": {"minimum": 1, "exclusiveMinimum": True}}),
        {"$schema": DRAFT_4, **an_object(n={"minimum": 1, "exclusiveMinimum": True})},
    ],
)
def test_a_schema_without_such_bounds_or_with_a_draft_is_left_as_it_is(raw: dict[str, Any]) -> None:
    assert rewrite_boolean_bounds(raw) is raw
    assert compiled(raw).is_valid({})


@pytest.mark.parametrize(("kind", "is_taken"), [("boolean", False), (["boolean", "null"], True)])
def test_null_is_a_boolean_only_where_the_schema_says_so(kind: object, is_taken: bool) -> None:
    schema = compile_schema({"type": "object", "properties": {"b": {"type": kind}}}, root_object=True)
    assert schema.is_valid({"b": None}) == is_taken
    assert schema.is_valid({})
