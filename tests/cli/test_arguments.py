"""How the text of `key=value` is parsed where a schema takes other types besides a few strings."""

from typing import Any

import pytest

from toolpost.cli.call.arguments import arguments_of, parse_words


@pytest.mark.parametrize(
    ("year", "text", "value"),
    [
        ({"anyOf": [{"type": "integer"}, {"const": ""}]}, "2026", 2026),
        ({"anyOf": [{"type": "integer"}, {"const": "", "type": "string"}]}, "2026", 2026),
        ({"anyOf": [{"type": "integer"}, {"enum": ["", "all"]}]}, "all", "all"),
        ({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 0}]}, "2026", 2026),
        ({"anyOf": [{"type": "integer"}, {"const": ""}]}, "", ""),
        ({"anyOf": [{"type": "integer"}, {"const": ""}]}, "soon", "soon"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "2026", "2026"),
        ({"type": ["integer", "string"]}, "2026", "2026"),
        ({"type": "string", "enum": ["2026"]}, "2026", "2026"),
    ],
)
def test_a_text_is_parsed_unless_it_may_be_the_value(year: dict[str, Any], text: str, value: object) -> None:
    schema = {"type": "object", "properties": {"year": year}}

    assert arguments_of(parse_words([f"year={text}"]), schema) == {"year": value}
