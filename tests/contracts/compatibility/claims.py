"""What two schema registries claim of pairs of schemas, and where Toolpost sees it otherwise."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.collected import SHARED
from tests.contracts.compatibility.containment import decide_containment
from toolpost.contracts.compatibility.containment import Containment
from toolpost.contracts.compatibility.cost import Budget

CLAIMS = SHARED / "compat/claims.jsonl"

_DIALECTS = {"4": "http://json-schema.org/draft-04/schema#", "7": "http://json-schema.org/draft-07/schema#"}
_NOT_DRAFT_4 = (
    "A number under `exclusiveMinimum` or `exclusiveMaximum` is no valid draft-04 schema, so nothing is claimed of it."
)
_UNANCHORED = "`[a-z]*` and `[A-Z]*` are not anchored: each matches every text, so both schemas take the same."
_UNANCHORED_ONE = "`[a-z]*` is not anchored: it matches every text, so it refuses nothing."

REASONS = {
    "Number: exclusiveMinimum 5|bwd": _NOT_DRAFT_4,
    "Number: exclusiveMinimum 5|fwd": _NOT_DRAFT_4,
    "Number: exclusiveMaximum 5|bwd": _NOT_DRAFT_4,
    "Number: exclusiveMaximum 5|fwd": _NOT_DRAFT_4,
    "String: pattern 1|fwd": _UNANCHORED_ONE,
    "String: pattern 2|bwd": _UNANCHORED,
    "String: pattern 2|fwd": _UNANCHORED,
    "Const|bwd": "No text is a list: the old schema takes nothing, and nothing is lost.",
    "Const|fwd": "No text is a list: the old schema takes nothing, and nothing is lost.",
    "Complex: anyOf 1|fwd": "`maxLength` applies only to text, and any text is allowed: both accept every value.",
    "Complex: oneOf 1|bwd": 'The label is wrong: `"aaaaaa"` fits one branch of the old schema and both of the new one.',
    "Complex: oneOf 1|fwd": "Texts over 10 characters are over 5 too, and all that is no text is taken by both.",
    "Complex: oneOf 3|bwd": 'The label is wrong: `""` fits one branch of the old schema and both of the new one.',
    "Conditional: if|bwd": _UNANCHORED,
    "Conditional: if|fwd": _UNANCHORED,
    "any_of/number_1.json": "At most 10 or at least 1 is every number; so is at most 3 or at least 2.",
    "any_of/objects_3.json": "A boolean is no object, and `properties` says nothing of it: the last branch takes it.",
    "range/redundant_minimum_3.json": "From 1 is above 0.4.",
}
"""Why each claim that Toolpost contradicts is contradicted."""


class Judged(NamedTuple):
    id: str
    label: bool
    containment: Containment

    @property
    def is_agreed(self) -> bool:
        return (self.containment is Containment.YES) == self.label


WRITTEN: list[tuple[str, Any, Any, bool]] = [
    ("everything takes a text", {"type": "string"}, {}, True),
    ("a text does not take everything", {}, {"type": "string"}, False),
    ("every integer is a number", {"type": "integer"}, {"type": "number"}, True),
    ("not every number is an integer", {"type": "number"}, {"type": "integer"}, False),
    ("a wider range", {"type": "integer", "minimum": 2}, {"type": "integer", "minimum": 1}, True),
    ("a narrower range", {"type": "integer", "maximum": 9}, {"type": "integer", "maximum": 8}, False),
    ("a bound that is excluded", {"type": "number", "minimum": 1}, {"type": "number", "exclusiveMinimum": 1}, False),
    ("one value more", {"enum": ["a", "b"]}, {"enum": ["a", "b", "c"]}, True),
    ("one value less", {"enum": ["a", "b"]}, {"enum": ["a"]}, False),
    ("null is allowed too", {"type": "string"}, {"type": ["string", "null"]}, True),
    ("shorter texts", {"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 4}, False),
    (
        "a property that is optional now",
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "string"}}},
        True,
    ),
    ("a property that is required now", {"type": "object"}, {"type": "object", "required": ["a"]}, False),
    ("closed for what was open", {"type": "object"}, {"type": "object", "additionalProperties": False}, False),
    ("one branch of two", {"type": "string"}, {"anyOf": [{"type": "string"}, {"type": "boolean"}]}, True),
    ("longer lists", {"type": "array", "maxItems": 2}, {"type": "array", "maxItems": 3}, True),
    (
        "other items",
        {"type": "array", "items": {"type": "string"}},
        {"type": "array", "items": {"type": "null"}},
        False,
    ),
]
"""Claims of our own: name, old schema, new schema, and whether the new one takes all that the old one takes."""


def written_claims() -> Iterator[Judged]:
    """Yield our own claims with the answer to each."""
    for name, old, new, label in WRITTEN:
        old, new = (_in_dialect(schema, _DIALECTS["7"]) for schema in (old, new))  # noqa: PLW2901
        yield Judged(name, label, decide_containment(old, new, Budget(1.0)))


def judged_claims() -> Iterator[Judged]:
    """Yield every claim of the registries with our own answer: does the new schema take all that the old one takes?"""
    for line in CLAIMS.read_text().splitlines():
        claim = json.loads(line)
        dialect = _DIALECTS[claim["draft"]]
        old, new = (_in_dialect(claim[side], dialect) for side in ("old", "new"))
        yield Judged(claim["id"], claim["label"], decide_containment(old, new, Budget(1.0)))


def _in_dialect(schema: Any, dialect: str) -> Any:
    return {"$schema": dialect} | schema if isinstance(schema, dict) else schema


def page() -> str:
    """Return the disagreements as a table."""
    rows = [f"| {name.replace('|', ' ')} | {reason} |" for name, reason in REASONS.items()]
    return "\n".join(["| claim | why we say otherwise |", "|---|---|", *rows])
