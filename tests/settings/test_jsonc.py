"""A member of a JSON file set and removed in its text, with everything around it left alone."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolpost.settings.jsonc import NotAnObject, get_member, read_jsonc, remove_member, set_member

PATH = ("mcpServers", "toolpost")
ENTRY = {"command": "t", "args": ["a"]}

KEPT = [
    '{"mcpServers": {}}',
    '{\n  "mcpServers": {}\n}\n',
    '{"mcpServers": {"a": 1,}}',
    '{\r\n    "mcpServers": {\r\n        "a": {"command": "x"}\r\n    }\r\n}',
    '{\n\t"a": 1, // c\n\t/* b */ "mcpServers": {\n\t\t"x": {} // last, with a comma\n\t\t// more\n\t},\n}\n',
    '\ufeff{\n  "mcpServers": {\n    "a": {}\n  },\n  "z": [1, 2]\n}',
    '{ "mcpServers" : { "a" : "}{," } }',
]


@pytest.mark.parametrize("text", KEPT)
def test_what_is_added_can_be_taken_out_byte_for_byte(text: str) -> None:
    new = set_member(text, PATH, ENTRY)

    assert get_member(new, PATH) == ENTRY
    assert remove_member(new, PATH) == text


@pytest.mark.parametrize("text", ["", "  \n", "// only a remark\n", "{}", "{\n}", '{"a": 1}', '{\n  "a": 1 // x\n}\n'])
def test_place_that_is_missing_is_made(text: str) -> None:
    new = set_member(text, PATH, ENTRY)

    assert get_member(new, PATH) == ENTRY
    assert get_member(remove_member(new, PATH), PATH[:1]) == {}
    assert ("remark" in text) == ("remark" in new)


def test_new_member_is_laid_out_like_the_others() -> None:
    new = set_member('{\n\t"mcpServers": {\n\t\t"a": {}\n\t}\n}\n', PATH, ENTRY)

    assert new == (
        '{\n\t"mcpServers": {\n\t\t"a": {},\n\t\t"toolpost": {\n\t\t\t"command": "t",\n'
        '\t\t\t"args": [\n\t\t\t\t"a"\n\t\t\t]\n\t\t}\n\t}\n}\n'
    )


def test_member_that_is_there_is_replaced_in_its_place() -> None:
    text = '{"mcpServers": {"toolpost": {"old": 1}, /* next */ "b": 2}}'

    assert set_member(text, PATH, {"new": 2}) == '{"mcpServers": {"toolpost": {"new": 2}, /* next */ "b": 2}}'


@pytest.mark.parametrize("text", ["[]", "3", '{"mcpServers": []}', '{"mcpServers": null}'])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(NotAnObject):
        get_member(text, PATH)


_NAMES = st.text(max_size=4)
_VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_NAMES, inner, max_size=2),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(
    rest=st.dictionaries(_NAMES, _VALUES, max_size=3),
    others=st.none() | st.dictionaries(_NAMES, _VALUES, max_size=3),
    indent=st.sampled_from([None, 2, "\t"]),
)
def test_any_file_keeps_what_else_it_holds(rest: dict[str, Any], others: dict[str, Any] | None, indent: Any) -> None:
    value = rest | ({"mcpServers": others} if others is not None else {})
    text = json.dumps(value, indent=indent)
    new = set_member(text, PATH, ENTRY)

    assert read_jsonc(new) == value | {"mcpServers": (others or {}) | {"toolpost": ENTRY}}
    assert read_jsonc(remove_member(new, PATH)) == value | {"mcpServers": others or {}}
