"""Roots with branches in drafts that have no `unevaluatedProperties`; what else is closed is in `test_schema.py`."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contracts.test_schema import DRAFT_4, DRAFT_6, DRAFT_7, an_object, compiled
from toolpost.contracts.closing import close_schema
from toolpost.contracts.schema import compile_schema

OLDER: dict[str, dict[str, Any]] = {
    "allOf": {"allOf": [an_object(b={"type": "integer"})]},
    "anyOf": {"anyOf": [an_object(b={"type": "integer"}), {"required": ["z"]}]},
    "oneOf": {"oneOf": [an_object(b={"type": "integer"})]},
    "dependencies": {"dependencies": {"a": an_object(b={"type": "integer"})}},
    "a branch in a branch": {"allOf": [{"anyOf": [an_object(b={"type": "integer"})]}]},
    "a reference": {"allOf": [{"$ref": "#/definitions/B"}], "definitions": {"B": an_object(b={"type": "integer"})}},
    "references in a ring": {
        "anyOf": [{"$ref": "#/definitions/B"}],
        "definitions": {
            "B": {**an_object(b={"type": "integer"}), "anyOf": [{}, {"not": {"$ref": "#/definitions/C"}}]},
            "C": {},
        },
    },
}


@pytest.mark.parametrize("draft", [DRAFT_4, DRAFT_6, DRAFT_7])
@pytest.mark.parametrize("case", OLDER)
def test_a_root_with_branches_is_closed_in_drafts_without_the_keyword_for_it(case: str, draft: str) -> None:
    schema = compile_schema(close_schema({"$schema": draft, **an_object(a={}), **OLDER[case]}), root_object=True)

    assert schema.is_valid({"a": 1, "b": 2})
    assert not schema.is_valid({"a": 1, "b": "2"})
    assert not schema.is_valid({"a": 1, "c": 2})


def test_conditions_patterns_and_a_root_that_only_refers_are_closed_in_draft_7() -> None:
    conditional = compiled(
        close_schema(
            {
                "$schema": DRAFT_7,
                **an_object(a={}),
                "if": an_object(i={"const": 1}),
                "then": an_object(t={}),
                "else": {"patternProperties": {"^x-": {}}},
                "unevaluatedProperties": False,
            }
        )
    )
    definitions = {"B": an_object(b={"type": "integer"})}
    # Nothing beside the reference counts in this draft: it must not begin to, nor may its names be refused.
    refers = {"type": "object", "$ref": "#/definitions/B", "required": ["z"], "properties": {"z": {"type": "integer"}}}
    referring = compiled(close_schema({"$schema": DRAFT_7, **refers, "definitions": definitions}))

    assert all(conditional.is_valid({"a": 1, "i": 2, name: 3}) for name in ("t", "x-y"))
    assert not conditional.is_valid({"a": 1, "u": 2})
    assert referring.is_valid({"b": 1})
    assert referring.is_valid({"b": 1, "z": "1"})
    assert not referring.is_valid({"b": "1"})
    assert not referring.is_valid({"b": 1, "c": 1})


@pytest.mark.parametrize(
    "raw",
    [
        {"anyOf": [{**an_object(b={}), "additionalProperties": True}]},
        {"anyOf": [{**an_object(b={}), "additionalProperties": {"type": "string"}}]},
        {"anyOf": [{"$ref": "#/definitions/B"}], "definitions": {"B": {"additionalProperties": {}}}},
        {"anyOf": [an_object(b={})], "additionalProperties": True},
        {"$ref": "#/definitions/B", "additionalProperties": True, "definitions": {"B": an_object(b={})}},
        {"$ref": "#/definitions/B", "definitions": {"B": an_object(b={"$ref": "#/properties/a"})}},
    ],
)
def test_a_root_in_draft_7_stays_open_where_names_are_taken_that_nobody_declares(raw: dict[str, Any]) -> None:
    whole = {"$schema": DRAFT_7, **an_object(a={}), **raw}

    assert close_schema(whole).get("additionalProperties", True) is not False
    assert compiled(close_schema(whole)).is_valid({"a": "1", "c": "d"})


NAMES_IN_BRANCHES = st.sampled_from(["a", "b", "c", "d"])
TYPES_IN_BRANCHES = st.sampled_from([{}, {"type": "integer"}, {"enum": [1, "x"]}])
LEAVES_OF_BRANCHES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"properties": st.dictionaries(NAMES_IN_BRANCHES, TYPES_IN_BRANCHES, max_size=2)},
    optional={
        "required": st.lists(NAMES_IN_BRANCHES, unique=True, min_size=1, max_size=1),
        "patternProperties": st.sampled_from([{"^e": {"type": "integer"}}, {"^f": {}}]),
        "additionalProperties": st.sampled_from([False, False, True, {"type": "integer"}]),
    },
) | st.sampled_from([{"$ref": "#/definitions/A"}, {"$ref": "#/definitions/B", "properties": {"ignored": {}}}, {}])
BRANCHES_OF_ROOTS: st.SearchStrategy[dict[str, Any]] = st.recursive(
    LEAVES_OF_BRANCHES,
    lambda inner: (
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)})
        | st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=2)})
        | st.fixed_dictionaries({"not": inner, "dependencies": st.dictionaries(NAMES_IN_BRANCHES, inner, max_size=1)})
        | st.fixed_dictionaries({"if": inner, "then": inner, "else": inner})
    ),
    max_leaves=4,
)


def names_told(raw: dict[str, Any], schema: Any) -> tuple[set[str], bool]:
    """Return the names and patterns that a schema tells of, branches and references included, and whether it takes others."""
    if "$ref" in schema and schema is not raw:
        return names_told(raw, raw["definitions"][schema["$ref"].removeprefix("#/definitions/")])
    names = {*schema.get("properties", ()), *schema.get("patternProperties", ())}
    takes_others = schema is not raw and schema.get("additionalProperties", False) is not False
    branches = [*schema.get("anyOf", ()), *schema.get("allOf", ()), *schema.get("dependencies", {}).values()]
    branches += [schema[word] for word in ("if", "then", "else") if word in schema]
    if "$ref" in schema:
        branches = [{"$ref": schema["$ref"]}]
    for more, others in (names_told(raw, branch) for branch in branches):
        names, takes_others = names | more, takes_others or others
    return names, takes_others


@given(
    root=BRANCHES_OF_ROOTS,
    own=st.dictionaries(NAMES_IN_BRANCHES, TYPES_IN_BRANCHES, max_size=2),
    definitions=st.fixed_dictionaries({"A": LEAVES_OF_BRANCHES.filter(lambda one: "$ref" not in one)}),
    values=st.lists(
        st.dictionaries(
            st.sampled_from(["a", "b", "c", "d", "e", "f", "g", "ignored"]), st.sampled_from([1, "x", None]), max_size=4
        ),
        min_size=4,
        max_size=8,
    ),
)
def test_closing_in_draft_7_refuses_unknown_names_and_nothing_else(
    root: dict[str, Any], own: dict[str, Any], definitions: dict[str, Any], values: list[dict[str, Any]]
) -> None:
    base = {"B": {"allOf": [{"$ref": "#/definitions/A"}]}, **definitions}
    raw = {"$schema": DRAFT_7, "type": "object", **root, "definitions": base}
    raw.pop("additionalProperties", None)
    raw["properties"] = own | raw.get("properties", {})
    names, takes_others = names_told(raw, raw)
    before, after = compiled(raw), compiled(close_schema(raw))
    for value in values:
        is_known = all(name in names or f"^{name}" in names for name in value)
        assert after.is_valid(value) is (before.is_valid(value) and (is_known or takes_others)), value
