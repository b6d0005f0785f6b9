"""Whether one schema takes every value that another takes, as the validator's own algebra sees it."""

from enum import StrEnum

from toolpost.base.ids import Json, JsonObject
from toolpost.contracts.compatibility.cost import (
    Budget,
    comparison_cost_s,
    is_draft_neutral,
    iterate_schemas,
    properties_cost_s,
)
from toolpost.contracts.schema import CanonicalSchema, canonical_form, is_asserted_format
from toolpost.contracts.subschemas import ONE_SUBSCHEMA, SUBSCHEMA_LIST, SUBSCHEMA_MAP, draft_of


class Containment(StrEnum):
    """Whether it was proven. Only `YES` proves that every value is taken, only `NO` that one is not."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Comparison:
    """Two schemas in canonical form, or the reason why they are not: too costly, or not comparable."""

    def __init__(self, narrow: Json, wide: Json, budget: Budget) -> None:
        self._budget = budget
        self._cost_s = comparison_cost_s(narrow) + comparison_cost_s(wide) + properties_cost_s(narrow, wide)
        forms = _canonicalize_both(narrow, wide) if budget.spend(self._cost_s) else None
        self.narrow = None if forms is None else forms[0]
        self.wide = None if forms is None else forms[1]

    @property
    def is_equal(self) -> bool:
        """Whether both take the very same values."""
        return self.narrow is not None and self.narrow == self.wide

    def decide(self) -> Containment:
        """Say whether `wide` takes all that `narrow` takes."""
        if self.narrow is None or self.wide is None or not self._budget.spend(self._cost_s):
            return Containment.UNKNOWN
        try:
            return Containment(str(self.wide.covers(self.narrow)))
        except ValueError:
            return Containment.UNKNOWN

    def subtract(self) -> Json:
        """Return the schema of exactly those values that `narrow` takes and `wide` does not, None if there is none."""
        if self.narrow is None or self.wide is None or not self._budget.spend(self._cost_s):
            return None
        try:
            return self.narrow.subtract(self.wide).to_json_schema()
        except ValueError:
            return None


def _canonicalize_both(narrow: Json, wide: Json) -> tuple[CanonicalSchema, CanonicalSchema] | None:
    drafts = _find_common_draft(narrow, wide)
    if drafts is None:
        return None
    try:
        # A format that nobody knows keeps the algebra from an answer.
        some, others = (strip_unknown_formats(schema, drafts) for schema in (narrow, wide))
        return canonical_form(some, draft=drafts), canonical_form(others, draft=drafts)
    except ValueError:
        return None


def _find_common_draft(narrow: Json, wide: Json) -> int | None:
    """Return the draft that both can be read in: their own, or the newest where nothing in them depends on it."""
    found = {draft_of(schema) for schema in (narrow, wide) if isinstance(schema, dict)}
    if len(found) <= 1:
        return found.pop() if found else 2020
    return 2020 if is_draft_neutral(narrow) and is_draft_neutral(wide) else None


def strip_unknown_formats(schema: Json, draft: int) -> Json:
    """Return a schema without the formats that its validator ignores."""
    if any(_is_unknown(part, draft) for part in iterate_schemas(schema)):
        return _strip(schema, draft)
    return schema


def _is_unknown(schema: JsonObject, draft: int) -> bool:
    name = schema.get("format")
    return isinstance(name, str) and not is_asserted_format(name, draft)


def _strip(schema: Json, draft: int) -> Json:
    if not isinstance(schema, dict):
        return schema
    drops = _is_unknown(schema, draft)
    return {word: _below(word, value, draft) for word, value in schema.items() if not (drops and word == "format")}


def _below(word: str, value: Json, draft: int) -> Json:
    if word in SUBSCHEMA_MAP and isinstance(value, dict):
        return {name: _strip(child, draft) for name, child in value.items()}
    if word in SUBSCHEMA_LIST and isinstance(value, list):
        return [_strip(child, draft) for child in value]
    return _strip(value, draft) if word in ONE_SUBSCHEMA else value
