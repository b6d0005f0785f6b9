"""Changes that harm nobody are not called breaks, and the breaks right beside them are."""

from typing import Any

import pytest

from toolpost.contracts import Definition, Verdict, judge

Schema = dict[str, Any]

DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}
TEXT: Schema = {"type": "string"}
EITHER = {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
BY_KIND = {
    "oneOf": [
        {"properties": {"kind": {"const": "x"}, "x": TEXT}, "required": ["kind"]},
        {"properties": {"kind": {"const": "y"}, "y": TEXT}, "required": ["kind"]},
    ]
}
PREFIXED = {"patternProperties": {"^x-": TEXT}}


def of(**properties: Any) -> Schema:
    return {"type": "object", "properties": properties}


def form(**said: Any) -> Schema:
    return of(a=TEXT | said)


SAFE: dict[str, tuple[Schema, Schema]] = {
    "another draft, names ruled": (
        of(a={"propertyNames": {"maxLength": 3}}) | DRAFT_7,
        of(a={"propertyNames": {"maxLength": 4}}),
    ),
    "another draft, names by pattern": (of(a=PREFIXED) | DRAFT_7, of(a=PREFIXED, b=TEXT)),
    "another draft, an item": (of(a={"contains": TEXT}) | DRAFT_7, of(a={"contains": TEXT}, b=TEXT)),
    "another draft, a reference": (
        of(a={"$ref": "#/definitions/A"}) | DRAFT_7 | {"definitions": {"A": TEXT}},
        of(a={"$ref": "#/$defs/A"}, b=TEXT) | {"$defs": {"A": TEXT}},
    ),
    "another draft, a condition": (
        of(a=TEXT) | DRAFT_7 | {"if": {"required": ["a"]}, "then": {"maxProperties": 1}},
        of(a=TEXT) | {"if": {"required": ["a"]}, "then": {"maxProperties": 1}},
    ),
    "a looser pattern": (form(pattern="^[a-z]{3}$"), form(pattern="^[a-z]{2,4}$")),
    "a pattern rewritten": (form(pattern="^[0-9]{4}$"), form(pattern=r"^\d\d\d\d$")),
    "a pattern that the length implies": (form(pattern="^[a-z]*$", maxLength=3), form(pattern="^[a-z]{0,3}$")),
    "a looser pattern in a branch": (
        of(a={"anyOf": [TEXT | {"pattern": "^a"}, {"type": "null"}]}),
        of(a={"anyOf": [TEXT | {"pattern": "^[ab]"}, {"type": "null"}]}),
    ),
    "a length that the pattern implies": (form(pattern=".{2,}"), form(minLength=2)),
    "a greatest length that the pattern implies": (form(pattern="^[a-z]{1,3}$"), form(maxLength=3)),
    "a new property beside what is not evaluated": (
        of(a=TEXT) | {"unevaluatedProperties": TEXT},
        of(a=TEXT, b=TEXT) | {"unevaluatedProperties": TEXT},
    ),
    "more of what is not evaluated": (
        of(o=of(a=TEXT) | {"unevaluatedProperties": TEXT}),
        of(o=of(a=TEXT) | {"unevaluatedProperties": {"type": ["string", "null"]}}),
    ),
    "a format that nobody knows": (form(), form(format="iso-country")),
    "another such format": (form(format="iso-country"), form(format="country")),
    "such a format in a choice": (
        of(a={"oneOf": [TEXT, {"type": "null"}]}),
        of(a={"oneOf": [TEXT | {"format": "country"}, {"type": "integer"}, {"type": "null"}]}),
    ),
    "such a format beside a number": (of(a={"type": "integer"}), of(a={"type": "integer", "format": "int64"})),
    "an address, then also a relative one": (form(format="uri"), form(format="uri-reference")),
    "a new argument beside a choice of required ones": (of(a=TEXT, b=TEXT) | EITHER, of(a=TEXT, b=TEXT, c=TEXT) | EITHER),
    "the same in an older draft": (
        of(a=TEXT, b=TEXT) | EITHER | DRAFT_7,
        of(a=TEXT, b=TEXT, c=TEXT) | EITHER | DRAFT_7,
    ),
    "the same in an object": (of(o=of(a=TEXT, b=TEXT) | EITHER), of(o=of(a=TEXT, b=TEXT, c=TEXT) | EITHER)),
    "the same in objects of a list": (
        of(o={"type": "array", "items": of(a=TEXT, b=TEXT) | EITHER | DRAFT_7}),
        of(o={"type": "array", "items": of(a=TEXT, b=TEXT, c=TEXT) | EITHER | DRAFT_7}),
    ),
    "a new argument beside branches with their own": (of(kind=TEXT) | BY_KIND, of(kind=TEXT, c=TEXT) | BY_KIND),
    "the same, in an older draft": (of(kind=TEXT) | BY_KIND | DRAFT_7, of(kind=TEXT, c=TEXT) | BY_KIND | DRAFT_7),
    "a looser property beside patterns": (of(o=of(a=TEXT) | PREFIXED), of(o=of(a={}) | PREFIXED)),
    "a property that a pattern described": (of(o=of() | PREFIXED), of(o=of(**{"x-a": TEXT}) | PREFIXED)),
    "the same, with nothing else allowed": (
        of(o=of() | PREFIXED | {"additionalProperties": False}),
        of(o=of(**{"x-a": TEXT}) | PREFIXED | {"additionalProperties": False}),
    ),
    "a property that two patterns described": (
        of(o=of() | {"patternProperties": {"^x-": TEXT, "a$": {"maxLength": 3}}}),
        of(o=of(**{"x-a": TEXT | {"maxLength": 3}}) | {"patternProperties": {"^x-": TEXT, "a$": {"maxLength": 3}}}),
    ),
    "looser patterns": (of(o=PREFIXED), of(o={"patternProperties": {"^x-": {}}})),
}  # fmt: skip

BREAKING: dict[str, tuple[Schema, Schema]] = {
    "a property beside patterns is gone": (of(o=of(a=TEXT, b=TEXT) | PREFIXED), of(o=of(a=TEXT) | PREFIXED)),
    "a property beside other patterns is gone": (
        of(o=of(a=TEXT, b=TEXT) | PREFIXED),
        of(o=of(a=TEXT) | PREFIXED | {"patternProperties": {"^y-": {}}}),
    ),
    "a property beside patterns takes less": (of(o=of(a={}) | PREFIXED), of(o=of(a=TEXT) | PREFIXED)),
    "a property is new to a pattern": (of(o=of(a={}) | PREFIXED), of(o={"type": "object", **PREFIXED} | of(**{"x-a": False}))),
    "a property takes less than its pattern": (of(o=of() | PREFIXED), of(o=of(**{"x-a": TEXT | {"maxLength": 3}}) | PREFIXED)),
    "a length that the pattern does not imply": (form(pattern=".{2,}"), form(minLength=3)),
    "a greatest length that the pattern does not imply": (form(pattern="[a-z]{1,3}"), form(maxLength=3)),
    "a new property beside what is not evaluated takes less": (
        of(a=TEXT) | {"unevaluatedProperties": TEXT},
        of(a=TEXT, b=TEXT | {"maxLength": 3}) | {"unevaluatedProperties": TEXT},
    ),
    "what is not evaluated beside a branch": (
        of(a=TEXT) | {"allOf": [of(b={})], "unevaluatedProperties": TEXT},
        of(a=TEXT) | {"unevaluatedProperties": TEXT},
    ),
    "an older draft does not know what is not evaluated": (
        of(o=of(a=TEXT) | {"unevaluatedProperties": TEXT}) | DRAFT_7,
        of(o=of(a=TEXT, b=TEXT) | {"unevaluatedProperties": TEXT}) | DRAFT_7,
    ),
    "a keyword that only the new draft knows, beside a bound that is gone": (
        of(a={"contains": TEXT, "maxLength": 1}) | {"$schema": "http://json-schema.org/draft-04/schema#"},
        of(a={"contains": TEXT}),
    ),
    "a tighter pattern": (form(pattern="^[a-z]{2,4}$"), form(pattern="^[a-z]{3}$")),
    "a relative address, then no more": (form(format="uri-reference"), form(format="uri")),
    "a format that is known": (form(format="country"), form(format="uuid")),
    "a reference with a limit beside it, which only the new draft sees": (
        of(a={"$ref": "#/definitions/A", "maxLength": 3}) | DRAFT_7 | {"definitions": {"A": TEXT}},
        of(a={"$ref": "#/definitions/A", "maxLength": 3}) | {"definitions": {"A": TEXT}},
    ),
    "an argument beside a choice is gone": (of(a=TEXT, b=TEXT, c=TEXT) | EITHER, of(a=TEXT, b=TEXT) | EITHER),
    "the same in an object": (of(o=of(a=TEXT, b=TEXT, c=TEXT) | EITHER), of(o=of(a=TEXT, b=TEXT) | EITHER)),
    "a branch loses an argument": (
        of(kind=TEXT) | BY_KIND | DRAFT_7,
        of(kind=TEXT) | DRAFT_7 | {"oneOf": [BY_KIND["oneOf"][0], of(kind={"const": "y"}) | {"required": ["kind"]}]},
    ),
}  # fmt: skip


def verdict(old: Schema, new: Schema) -> Verdict:
    return judge(Definition(name="t", input_schema=old), Definition(name="t", input_schema=new)).verdict


@pytest.mark.parametrize("name", SAFE)
def test_what_harms_nobody_is_compatible(name: str) -> None:
    assert verdict(*SAFE[name]) is Verdict.COMPATIBLE


@pytest.mark.parametrize("name", BREAKING)
def test_what_breaks_callers_is_breaking(name: str) -> None:
    assert verdict(*BREAKING[name]) is Verdict.BREAKING
