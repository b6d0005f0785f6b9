"""What two schema registries claim of pairs of schemas, and where Toolpost sees it otherwise."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from toolpost.contracts.compatibility.budget import Budget
from toolpost.contracts.compatibility.containment import Answer
from toolpost.contracts.compatibility.schemas import contains

CLAIMS = Path(__file__).parents[4] / "shared/data/compat/claims.jsonl"

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
    "Complex: anyOf 1|fwd": "`maxLength` says nothing of what is no text, and any text is allowed: both take everything.",
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
    answer: Answer

    @property
    def is_agreed(self) -> bool:
        return (self.answer is Answer.YES) == self.label


def judged_claims() -> Iterator[Judged]:
    """Yield every claim with our own answer: does the new schema take all that the old one takes?"""
    for line in CLAIMS.read_text().splitlines():
        claim = json.loads(line)
        dialect = _DIALECTS[claim["draft"]]
        old, new = (_in_dialect(claim[side], dialect) for side in ("old", "new"))
        yield Judged(claim["id"], claim["label"], contains(old, new, Budget(1.0)))


def _in_dialect(schema: Any, dialect: str) -> Any:
    return {"$schema": dialect} | schema if isinstance(schema, dict) else schema


def page() -> str:
    """Return the disagreements as a table."""
    rows = [f"| {name.replace('|', ' ')} | {reason} |" for name, reason in REASONS.items()]
    return "\n".join(["| claim | why we say otherwise |", "|---|---|", *rows])
