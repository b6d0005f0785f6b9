"""The schema of what is sent holds for what is sent, wherever the references of a tool's own schema stand."""

import pytest

from toolpost.contracts.envelope import ResultStyle, wrap_output_schema
from toolpost.contracts.schema import compile_schema


@pytest.mark.parametrize("name", ["value", "default", "const", "enum", "examples", "properties", "$defs"])
def test_references_lead_to_the_same_schemas_inside_the_envelope(name: str) -> None:
    own = {"type": "object", "properties": {name: {"$ref": "#/$defs/Count"}}, "$defs": {"Count": {"type": "integer"}}}

    sent = compile_schema(wrap_output_schema(own, ResultStyle.ENVELOPE), root_object=True)

    assert sent.is_valid({"ok": True, "data": {name: 1}})
    assert not sent.is_valid({"ok": True, "data": {name: "1"}})


def test_values_that_look_like_references_are_left_as_they_are() -> None:
    own = {"type": "object", "default": {"$ref": "#/x"}, "properties": {"a": {"const": {"$ref": "#/x"}}}}

    sent = wrap_output_schema(own, ResultStyle.ENVELOPE)

    assert isinstance(sent, dict)
    assert sent["properties"]["data"] == own
