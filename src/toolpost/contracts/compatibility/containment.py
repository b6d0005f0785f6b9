"""Whether one schema accepts every value that another accepts, decided by the validator's algebra of schemas."""

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
from toolpost.contracts.subschemas import draft_of, map_subschemas


class Containment(StrEnum):
    """Whether the wide schema contains the narrow one. `YES` and `NO` are proven."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Comparison:
    """A narrow and a wide schema in canonical form; both forms are None if the comparison is too costly or impossible."""

    def __init__(self, narrow: Json, wide: Json, budget: Budget) -> None:
        self._budget = budget
        self._cost_s = comparison_cost_s(narrow) + comparison_cost_s(wide) + properties_cost_s(narrow, wide)
        forms = _canonicalize_both(narrow, wide) if budget.spend(self._cost_s) else None
        self.narrow = None if forms is None else forms[0]
        self.wide = None if forms is None else forms[1]

    @property
    def is_equal(self) -> bool:
        """Whether both accept exactly the same values."""
        return self.narrow is not None and self.narrow == self.wide

    def decide(self) -> Containment:
        """Return whether `wide` accepts everything that `narrow` accepts."""
        if self.narrow is None or self.wide is None or not self._budget.spend(self._cost_s):
            return Containment.UNKNOWN
        try:
            return Containment(str(self.wide.covers(self.narrow)))
        except ValueError:
            return Containment.UNKNOWN

    def subtract(self) -> Json:
        """Return a schema of the values that `narrow` accepts and `wide` does not; None if that cannot be computed."""
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
        # The algebra gives up on a format that it does not know.
        some, others = (strip_unknown_formats(schema, drafts) for schema in (narrow, wide))
        return canonical_form(some, draft=drafts), canonical_form(others, draft=drafts)
    except ValueError:
        return None


def _find_common_draft(narrow: Json, wide: Json) -> int | None:
    """Return the draft in which both can be read: their own, or the newest if nothing in them depends on it; otherwise None."""
    found = {draft_of(schema) for schema in (narrow, wide) if isinstance(schema, dict)}
    if len(found) <= 1:
        return found.pop() if found else 2020
    return 2020 if is_draft_neutral(narrow) and is_draft_neutral(wide) else None


def strip_unknown_formats(schema: Json, draft: int) -> Json:
    """Return a schema without the formats that its validator ignores."""
    if any(_is_unknown(inner, draft) for inner in iterate_schemas(schema)):
        return _strip(schema, draft)
    return schema


def _is_unknown(schema: JsonObject, draft: int) -> bool:
    name = schema.get("format")
    return isinstance(name, str) and not is_asserted_format(name, draft)


def _strip(schema: Json, draft: int) -> Json:
    if not isinstance(schema, dict):
        return schema
    kept = {word: schema[word] for word in schema if word != "format"} if _is_unknown(schema, draft) else schema
    return map_subschemas(kept, lambda child: _strip(child, draft))
