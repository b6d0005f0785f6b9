"""A issue says what is wrong, where, and how to put it right."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis_jsonschema import from_schema

from toolpost.contracts.closing import close_schema
from toolpost.contracts.issues import ISSUE_LIMIT, Issue, find_issues
from toolpost.contracts.schema import SchemaProblem, compile_schema


def issues(raw: Any, value: Any) -> list[Issue]:
    return find_issues(compile_schema(raw, root_object=False), value)


def only_issue(raw: Any, value: Any) -> Issue:
    found = issues(raw, value)
    assert len(found) == 1, [issue.as_object() for issue in found]
    return found[0]


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


SEARCH = close_schema(
    {
        **an_object(
            query={"type": "string"},
            max_results={"type": "integer", "minimum": 1},
            filter=an_object(limit={"type": "integer"}, order={"enum": ["asc", "desc"]}),
            trace={"type": "string", "x-reserved": True},
        ),
        "required": ["query"],
    }
)


def test_a_valid_value_has_no_issues() -> None:
    assert issues(SEARCH, {"query": "x"}) == []


def test_all_issues_are_told_at_once_in_the_order_of_their_paths() -> None:
    found = issues(SEARCH, {"max_results": 0, "filter": {"limit": "5", "order": "ASC"}})

    assert [(issue.path, issue.keyword) for issue in found] == [
        ("", "required"),
        ("/filter/limit", "type"),
        ("/filter/order", "enum"),
        ("/max_results", "minimum"),
    ]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"type": "integer"}, "the value needs `x`, an integer"),
        ({"type": ["string", "null"]}, "the value needs `x`, a string or null"),
        ({"type": "string", "enum": ["fast", "slow"]}, 'the value needs `x`, one of "fast", "slow"'),
        ({"$ref": "#/$defs/a"}, "the value needs `x`"),
        (True, "the value needs `x`"),
    ],
)
def test_a_missing_property_is_named_with_what_it_must_be(declared: Any, message: str) -> None:
    schema = an_object(x=declared) | {"required": ["x"], "$defs": {"a": {"type": "string"}}}

    assert only_issue(schema, {}).message == message


def test_a_issue_is_an_object_without_what_does_not_apply() -> None:
    missing = only_issue(SEARCH, {}).as_object()
    wrong = only_issue(SEARCH, {"query": "x", "filter": {"limit": "5"}}).as_object()

    assert missing == {
        "path": "",
        "keyword": "required",
        "message": "the value needs `query`, a string",
        "expected": "query",
    }
    assert wrong == {
        "path": "/filter/limit",
        "keyword": "type",
        "message": "`/filter/limit` must be an integer",
        "expected": "integer",
        "received": "5",
        "suggestion": "send 5 without quotes",
    }


def test_null_is_told_apart_from_nothing() -> None:
    issue = only_issue({"const": None}, 1).as_object()

    assert issue["expected"] is None
    assert only_issue({"type": "string"}, None).as_object()["received"] is None


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ("maxResults", "max_results"),
        ("max-results", "max_results"),
        ("MAX_RESULTS", "max_results"),
        ("max_reslts", "max_results"),
        ("mxa_results", "max_results"),
        ("results", "max_results"),
        ("fliter", "filter"),
        ("zebra", None),
    ],
)
def test_an_unknown_property_is_refused_with_the_nearest_known_name(sent: str, meant: str | None) -> None:
    issue = only_issue(SEARCH, {"query": "x", sent: 1})

    assert (issue.path, issue.keyword) == (f"/{sent}", "additionalProperties")
    assert issue.expected == ["query", "max_results", "filter"]
    assert issue.suggestion == (f"did you mean `{meant}`?" if meant else None)


def test_each_unknown_property_is_a_issue_of_its_own() -> None:
    found = issues(SEARCH, {"query": "x", "one": 1, "two": 2})

    assert [issue.path for issue in found] == ["/one", "/two"]


def test_a_missing_name_and_a_misspelt_one_are_matched() -> None:
    raw = {**an_object(name={}, game={}), "required": ["name"], "additionalProperties": False}

    missing, unknown = issues(raw, {"nmae": 1})

    assert missing.suggestion == "rename `nmae` to `name`"
    assert unknown.suggestion == "did you mean `name`?"


def test_two_misspelt_names_are_never_told_the_same_name() -> None:
    raw = {**an_object(limit={}), "additionalProperties": False}

    suggestions = {issue.suggestion for issue in issues(raw, {"limt": 1, "limits": 2})}

    assert suggestions == {"did you mean `limit`?", None}


def test_unevaluated_properties_know_the_names_in_branches() -> None:
    raw = close_schema({**an_object(a={}), "allOf": [{"$ref": "#/$defs/page"}], "$defs": {"page": an_object(size={})}})

    issue = only_issue(raw, {"a": 1, "sizee": 2})

    assert issue.keyword == "unevaluatedProperties"
    assert set(issue.expected) == {"a", "size"}
    assert issue.suggestion == "did you mean `size`?"


def test_a_declared_property_is_not_called_unknown_when_its_branch_fails() -> None:
    raw = close_schema({"type": "object", "allOf": [an_object(a={"type": "string"}, b={})]})

    assert [issue.path for issue in issues(raw, {"a": 1, "b": 2})] == ["/a"]


def test_a_reserved_property_says_so_and_nothing_else() -> None:
    issue = only_issue(SEARCH, {"query": "x", "trace": 5})

    assert (issue.path, issue.keyword) == ("/trace", "x-reserved")
    assert issue.message == "`trace` is reserved and must not be set"


@pytest.mark.parametrize(
    ("schema", "value", "suggestion"),
    [
        ({"type": "integer"}, "42", "send 42 without quotes"),
        ({"type": "number"}, "4.5", "send 4.5 without quotes"),
        ({"type": "boolean"}, "True", "send true without quotes"),
        ({"type": "boolean"}, 1, "send true"),
        ({"type": "string"}, 42, 'send it as a string: "42"'),
        ({"type": "string"}, True, 'send it as a string: "true"'),
        ({"type": "object"}, '{"a": 1}', "send the object itself, not a string that holds JSON"),
        ({"type": "array"}, "[1]", "send the array itself, not a string that holds JSON"),
        ({"type": "array"}, "x", 'wrap it in an array: ["x"]'),
        ({"type": "array"}, {"a": 1}, "wrap it in an array"),
        ({"type": "string"}, ["x"], 'send "x" itself, not an array'),
        ({"type": "integer"}, None, "leave it out"),
        ({"type": "integer"}, 5.5, "send a whole number, such as 6"),
        ({"type": "integer"}, "many", None),
        ({"type": "number"}, "NaN", None),
        ({"type": ["integer", "null"]}, "7", "send 7 without quotes"),
        ({"enum": ["asc", "desc"]}, "ASC", 'did you mean "asc"?'),
        ({"enum": ["asc", "desc"]}, "decs", 'did you mean "desc"?'),
        ({"enum": [1, 2]}, "1", "send 1 without quotes"),
        ({"enum": ["1", "2"]}, 1, 'send it as a string: "1"'),
        ({"enum": ["a"]}, None, "leave it out"),
        ({"const": "exact"}, "Exact", 'did you mean "exact"?'),
        ({"format": "date-time"}, "2026-01-31", "add a time and a zone: 2026-01-31T00:00:00Z"),
        ({"format": "date-time"}, "2026-01-31 10:00", "write it as 2026-01-31T10:00:00Z"),
        ({"format": "date"}, "2026-01-31T10:00:00Z", "send only the date: 2026-01-31"),
        ({"format": "date"}, "soon", "for example 2026-01-31"),
        ({"format": "email"}, "me", "for example name@example.com"),
        ({"format": "uri"}, "example.com/a", "add the scheme: https://example.com/a"),
        ({"format": "uuid"}, "1", "for example 123e4567-e89b-12d3-a456-426614174000"),
    ],
)
def test_a_slip_gets_its_repair(schema: Any, value: Any, suggestion: str | None) -> None:
    assert only_issue(an_object(x=schema), {"x": value}).suggestion == suggestion


def test_null_for_a_required_property_cannot_be_left_out() -> None:
    assert only_issue({**an_object(x={"type": "integer"}), "required": ["x"]}, {"x": None}).suggestion is None


@pytest.mark.parametrize(
    ("schema", "value", "message", "expected"),
    [
        ({"minimum": 1}, 0, "`/x` must be at least 1", "at least 1"),
        ({"exclusiveMaximum": 1}, 1, "`/x` must be less than 1", "less than 1"),
        ({"multipleOf": 5}, 3, "`/x` must be a multiple of 5", "a multiple of 5"),
        ({"minLength": 3}, "ab", "`/x` must have at least 3 characters, and has 2", "at least 3 characters"),
        ({"maxItems": 1}, [1, 2], "`/x` must have at most 1 item, and has 2", "at most 1 item"),
        ({"minProperties": 2}, {}, "`/x` must have at least 2 properties, and has 0", "at least 2 properties"),
        ({"uniqueItems": True}, [1, 2, 1], "`/x` must not repeat an item: 0 and 2 are the same", "unique items"),
        ({"pattern": "^a+$"}, "b", "`/x` must match the pattern `^a+$`", "^a+$"),
        ({"enum": ["a", 1]}, 2, '`/x` must be one of "a", 1', ["a", 1]),
        ({"type": ["string", "null"]}, 2, "`/x` must be a string or null", "string or null"),
        ({"not": {"type": "string"}}, "a", "`/x` must be anything but string", "anything but string"),
    ],
)
def test_a_bound_is_told_in_few_words(schema: Any, value: Any, message: str, expected: Any) -> None:
    issue = only_issue(an_object(x=schema), {"x": value})

    assert (issue.message, issue.expected) == (message, expected)


def closed_shape(kind: str, side: str) -> dict[str, Any]:
    shape = an_object(kind={"const": kind}, **{side: {"type": "number"}})
    return {**shape, "required": ["kind", side], "additionalProperties": False}


SHAPES = {"oneOf": [closed_shape("circle", "radius"), closed_shape("square", "side"), {"type": "null"}]}


@pytest.mark.parametrize(
    ("value", "path", "keyword"),
    [
        ({"kind": "circle", "radius": "5"}, "/radius", "type"),
        ({"kind": "square", "side": "5"}, "/side", "type"),
        ({"kind": "square"}, "", "required"),
        ({"kind": "sqare", "side": 5}, "/kind", "enum"),
        ("circle", "", "oneOf"),
    ],
)
def test_only_the_nearest_branch_is_told(value: Any, path: str, keyword: str) -> None:
    issue = only_issue(SHAPES, value)

    assert (issue.path, issue.keyword) == (path, keyword)


def test_the_nearest_branch_is_found_through_references_and_nesting() -> None:
    raw = an_object(shapes={"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/s"}, {"type": "string"}]}})

    issue = only_issue({**raw, "$defs": {"s": SHAPES}}, {"shapes": ["x", {"kind": "square", "side": []}]})

    assert issue.path == "/shapes/1/side"


@pytest.mark.parametrize(
    ("raw", "value", "expected", "suggestion"),
    [
        ({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, "4", "integer or boolean", "send 4 without quotes"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "4", "integer", "send 4 without quotes"),
        ({"oneOf": [{"const": "one"}, {"const": "two"}]}, "tow", ["one", "two"], 'did you mean "two"?'),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {}, "object with `a` or object with `b`", None),
        ({"anyOf": [{"type": "integer"}, {"const": ""}]}, "abc", 'integer or ""', None),
    ],
)
def test_branches_that_are_equally_near_are_told_as_one(
    raw: Any, value: Any, expected: Any, suggestion: str | None
) -> None:
    issue = only_issue(raw, value)

    assert (issue.expected, issue.suggestion) == (expected, suggestion)


def test_a_value_that_fits_two_forms_is_told_so() -> None:
    issue = only_issue({"oneOf": [{"type": "string"}, {"minLength": 1}]}, "x")

    assert "more than one" in issue.message


SECRET = "hunter2-hunter2"


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (an_object(password={"type": "integer"}), {"password": SECRET}),
        (an_object(pin={"type": "array", "writeOnly": True}), {"pin": SECRET}),
        (an_object(pin={"format": "password", "maxLength": 2}), {"pin": SECRET}),
        (an_object(pin={"anyOf": [{"type": "null"}, {"$ref": "#/$defs/s"}]}), {"pin": SECRET}),
        ({**an_object(pin={"writeOnly": True}), "allOf": [an_object(pin={"maxLength": 2})]}, {"pin": SECRET}),
        (an_object(api={"type": "integer"}), {"api": json.dumps({"password": SECRET})}),
        (an_object(auth=an_object(value={"type": "integer"})), {"auth": {"value": SECRET}}),
        (close_schema(an_object(password={})), {"pasword": SECRET}),
        (close_schema(an_object(password={})), {"password": "x", "pasword": SECRET}),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"password": SECRET}),
        ({"const": 1}, [{"password": SECRET}]),
    ],
)
def test_a_secret_is_never_repeated(raw: Any, value: Any) -> None:
    schema = {**raw, "$defs": {"s": {"type": "integer", "format": "password"}}}

    found = issues(schema, value)

    assert found
    assert SECRET not in json.dumps([issue.as_object() for issue in found])


def test_what_was_received_is_shown_in_short() -> None:
    raw = an_object(x={"const": 1})

    assert only_issue(raw, {"x": "y" * 500}).received == "y" * 200 + "…"
    assert only_issue(raw, {"x": [0] * 1234}).received == {"type": "array", "items": 1234}
    assert only_issue(raw, {"x": {"a": 1}}).received == {"type": "object", "keys": ["a"]}
    assert only_issue(raw, {"x": 10**5000}).received == {"type": "integer"}


def test_there_are_never_more_issues_than_the_limit() -> None:
    assert len(issues({"items": {"type": "string"}}, list(range(100)))) == ISSUE_LIMIT
    assert len(issues({"additionalProperties": False}, {str(n): n for n in range(1000)})) == ISSUE_LIMIT


@pytest.mark.parametrize("raw", [{"type": "object"}, {"type": "object", "properties": {}}])
def test_whatever_is_sent_to_a_tool_that_takes_nothing_is_unknown(raw: Any) -> None:
    found = issues(close_schema(raw), {"a": 1, "b": 2})

    assert [(issue.path, issue.keyword, issue.expected) for issue in found] == [
        ("/a", "additionalProperties", []),
        ("/b", "additionalProperties", []),
    ]


@pytest.mark.parametrize("keyword", ["properties", "patternProperties", "dependentSchemas"])
def test_a_property_may_be_named_like_a_keyword(keyword: str) -> None:
    assert len(issues({keyword: {"additionalProperties": False}}, {"additionalProperties": 1})) == 1
    assert only_issue(an_object(**{"$ref": {"type": "string"}}), {"$ref": 1}).path == "/$ref"


def test_a_very_large_value_is_read_up_to_its_first_issue() -> None:
    assert only_issue({"items": {"type": "string"}}, list(range(100_000))).path == "/0"


@pytest.mark.parametrize("value", ["\ud800", {1: 2}, {"a": {"\ud800"}}])
def test_what_is_no_json_is_a_issue_too(value: Any) -> None:
    raw = {"type": ["string", "object"], "properties": {"a": {"type": "object"}}}

    assert issues(raw, value)


def test_a_path_is_a_json_pointer() -> None:
    assert only_issue(an_object(**{"a/b~c": {"type": "integer"}}), {"a/b~c": "x"}).path == "/a~1b~0c"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=8,
)
names = st.sampled_from("abcd")
leaf_schemas = st.sampled_from(
    [
        True, False, {}, {"type": "string"}, {"type": "integer"}, {"type": ["null", "boolean"]}, {"const": 1},
        {"enum": ["a", "b", 2]}, {"minimum": 3}, {"maxLength": 2}, {"pattern": "^a"}, {"format": "date"},
        {"uniqueItems": True}, {"minItems": 1}, {"required": ["a", "b"]}, {"multipleOf": 2}, {"maxProperties": 1},
        {"type": "string", "writeOnly": True}, {"$ref": "#/$defs/r"}, {"propertyNames": {"enum": ["a"]}},
        {"dependentRequired": {"a": ["b"]}}, {"type": "integer", "x-reserved": True},
    ]
)  # fmt: skip


def combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(names, inner, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array"]),
            "properties": named,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$"]), inner, max_size=1),
            "additionalProperties": inner,
            "unevaluatedProperties": inner,
            "items": inner,
            "prefixItems": several,
            "unevaluatedItems": inner,
            "contains": inner,
            "allOf": several,
            "anyOf": several,
            "oneOf": several,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "dependentSchemas": named,
        },
    )


schemas = st.recursive(leaf_schemas, combined, max_leaves=6)
unhurried = settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))


def check_agreement(raw: Any, value: Any) -> None:
    try:
        schema = compile_schema(raw, root_object=False)
    except SchemaProblem as problem:
        if "leads back to itself" in problem.reason:
            return
        raise

    found = find_issues(schema, value)

    assert (found == []) is schema.is_valid(value)
    assert len(found) <= ISSUE_LIMIT
    told = json.dumps([issue.as_object() for issue in found], allow_nan=False)
    assert told == json.dumps([issue.as_object() for issue in find_issues(schema, value)])
    assert len({(issue.path, issue.message) for issue in found}) == len(found)


@unhurried
@given(schemas, schemas, json_values)
def test_issues_are_found_exactly_in_what_is_invalid(raw: Any, referred: Any, value: Any) -> None:
    whole = {"allOf": [raw], "$defs": {"r": referred}}

    check_agreement(whole, value)
    check_agreement(close_schema(whole), value)


@unhurried
@given(schemas, json_values)
def test_closing_only_ever_refuses_more(raw: Any, value: Any) -> None:
    # Inside `oneOf`, refusing more means taking more. Nothing there is closed but the one thing that is not null;
    # a reserved property still counts.
    optional = {"oneOf": [raw, {"type": "null"}]}
    whole = {
        **an_object(a=raw, b={"items": raw}, c=optional, d={"items": optional}),
        "$defs": {"r": an_object(a={"type": "string"})},
    }
    before, after = (compile_schema(each, root_object=True) for each in (whole, close_schema(whole)))

    for call in ({"a": value}, {"c": value}):
        assert before.is_valid(call) or not after.is_valid(call) or "x-reserved" in json.dumps(raw)


CALLS = st.fixed_dictionaries(
    {"query": from_schema({"type": "string"})},
    optional={
        "max_results": from_schema({"type": "integer", "minimum": 1}),
        "filter": st.fixed_dictionaries({}, optional={"order": from_schema({"enum": ["asc", "desc"]})}),
    },
)


@unhurried
@given(CALLS, st.sampled_from(["query", "filter", "max_result", "limit", "trace"]), json_values)
def test_issues_of_generated_calls_agree_with_the_validator(call: Any, name: str, value: Any) -> None:
    assert issues(SEARCH, call) == []

    check_agreement(SEARCH, {**call, name: value})
