"""Whether one schema takes every value that another takes, as the validator's own algebra sees it."""

from enum import StrEnum

from toolpost.contracts.compatibility.budget import Budget
from toolpost.contracts.compatibility.weighing import cost_s, is_draft_neutral, properties_cost_s
from toolpost.contracts.ids import Json
from toolpost.contracts.parts import draft_of
from toolpost.contracts.schema import CanonicalSchema, canonical_form


class Answer(StrEnum):
    """Whether it was proven. Only `YES` proves that every value is taken, only `NO` that one is not."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Comparison:
    """Two schemas in canonical form, or the reason why they are not: too costly, or not comparable."""

    def __init__(self, narrow: Json, wide: Json, budget: Budget) -> None:
        self._budget = budget
        self._cost_s = cost_s(narrow) + cost_s(wide) + properties_cost_s(narrow, wide)
        forms = _forms(narrow, wide) if budget.allows(self._cost_s) else None
        self.narrow = None if forms is None else forms[0]
        self.wide = None if forms is None else forms[1]

    @property
    def is_equal(self) -> bool:
        """Whether both take the very same values."""
        return self.narrow is not None and self.narrow == self.wide

    def answer(self) -> Answer:
        """Say whether `wide` takes all that `narrow` takes."""
        if self.narrow is None or self.wide is None or not self._budget.allows(self._cost_s):
            return Answer.UNKNOWN
        try:
            return Answer(str(self.wide.covers(self.narrow)))
        except ValueError:
            return Answer.UNKNOWN

    def lost(self) -> Json:
        """Return the schema of exactly those values that `narrow` takes and `wide` does not, None if there is none."""
        if self.narrow is None or self.wide is None or not self._budget.allows(self._cost_s):
            return None
        try:
            return self.narrow.subtract(self.wide).to_json_schema()
        except ValueError:
            return None


def _forms(narrow: Json, wide: Json) -> tuple[CanonicalSchema, CanonicalSchema] | None:
    drafts = _common_drafts(narrow, wide)
    if drafts is None:
        return None
    try:
        return canonical_form(narrow, draft=drafts), canonical_form(wide, draft=drafts)
    except ValueError:
        return None


def _common_drafts(narrow: Json, wide: Json) -> int | None:
    """Return the draft that both can be read in: their own, or the newest where nothing in them depends on it."""
    found = {draft_of(schema) for schema in (narrow, wide) if isinstance(schema, dict)}
    if len(found) <= 1:
        return found.pop() if found else 2020
    return 2020 if is_draft_neutral(narrow) and is_draft_neutral(wide) else None
