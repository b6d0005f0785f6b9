"""What is wrong with a value, wording so that whoever sent it can mend it in one go.

Faults carry our own short words, never the validator's dump of a value, and never a secret.
On the way from an error to a fault: `branches` picks it, `locations` looks it up, `wording` finds the words and
`suggestions` the repair, `reading` leads it through them all.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from toolpost.base.ids import Json, JsonObject
from toolpost.base.values import ABSENT, Path
from toolpost.contracts.display import display_pointer
from toolpost.contracts.issues.explanation import Explainer, Explanation
from toolpost.contracts.schema import Schema, ValidationError

ISSUE_LIMIT = 20
ERROR_LIMIT = 5 * ISSUE_LIMIT
FULL_READ_LIMIT = 5_000
"""Values of more parts than this are read up to their first fault: finding each costs 13 µs, one per part."""


@dataclass(frozen=True, kw_only=True)
class Issue:
    """One thing that is wrong, where, and what would be right."""

    path: str
    keyword: str
    message: str
    expected: Json = ABSENT
    received: Json = ABSENT
    suggestion: str | None = None

    def as_object(self) -> JsonObject:
        """Return the issue object of the wire; what does not apply is absent."""
        issue: JsonObject = {"path": self.path, "keyword": self.keyword, "message": self.message}
        if self.expected is not ABSENT:
            issue["expected"] = self.expected
        if self.received is not ABSENT:
            issue["received"] = self.received
        if self.suggestion is not None:
            issue["suggestion"] = self.suggestion
        return issue


def parse_issue(issue: JsonObject) -> Issue:
    """Read what `as_object` wrote."""
    return Issue(**issue)


def find_issues_quickly(schema: Schema, value: Json, size_bytes: int) -> list[Issue] | None:
    """List what is wrong with a value if that is quickly done, whatever is in it; None if it might not be.

    `size_bytes` is the size of the value as JSON text. For None there is `upstreams.validation`.
    """
    if size_bytes > schema.quick_bytes:
        return None
    try:
        if schema.is_valid(value):
            return []
    except ValueError as problem:
        return [_make_unreadable_issue(problem)]
    return find_issues(schema, value) if _has_at_most(value, schema.quick_parts) else None


def issues_of_unencodable(problem: Exception) -> list[Issue]:
    """Say what is wrong with a value that cannot even be written as JSON."""
    return [_make_unreadable_issue(problem)]


def find_issues(schema: Schema, value: Json) -> list[Issue]:
    """List what is wrong with a value, by path, at most `ISSUE_LIMIT` faults; none when it is valid.

    Takes as long as it takes: for a value and a schema of strangers see `find_issues_quickly`.
    """
    try:
        if schema.is_valid(value):
            return []
        errors = _collect_errors(schema, value)
    except ValueError as problem:
        return [_make_unreadable_issue(problem)]
    told = Explainer(schema, value).told(errors)
    return [_fault(each) for each in _sort_and_deduplicate(told)] or [make_generic_issue()]


def _collect_errors(schema: Schema, value: Json) -> list[ValidationError]:
    if _has_at_most(value, FULL_READ_LIMIT):
        errors = sorted(schema.errors(value), key=lambda error: _path_sort_key(error.instance_path))
        return errors[:ERROR_LIMIT]
    try:
        schema.check(value)
    except ValidationError as first:
        return [first]
    return []


def _has_at_most(value: Json, limit: int) -> bool:
    """Say whether a value has at most so many parts, itself included."""
    waiting, seen = [value], 0
    while waiting and seen <= limit:
        part = waiting.pop()
        seen += 1
        if isinstance(part, dict):
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
    return seen <= limit


def _make_unreadable_issue(problem: Exception) -> Issue:
    if isinstance(problem, UnicodeError):
        message = "a text in the value holds half of a surrogate pair, which is no Unicode"
    else:
        message = "the value cannot be read: it is nested too deeply, or is not JSON"
    return Issue(path="", keyword="json", message=message)


def make_generic_issue() -> Issue:
    """Say no more than that a value is wrong."""
    return Issue(path="", keyword="schema", message="the value breaks the schema")


def _sort_and_deduplicate(told: list[Explanation]) -> list[Explanation]:
    """Put what is told into order, without what only repeats or follows from something else."""
    strong = [each for each in told if not each.is_weak] or told
    reserved = {each.path for each in strong if each.keyword == "x-reserved"}
    kept: dict[tuple[Path, str], Explanation] = {}
    for each in sorted(strong, key=_order):
        is_shadowed = any(each.path[: len(path)] == path for path in reserved)
        if not is_shadowed or each.keyword == "x-reserved":
            kept.setdefault((each.path, each.wording.message), each)
    return list(kept.values())[:ISSUE_LIMIT]


def _order(told: Explanation) -> tuple[list[tuple[int, str]], str, str]:
    return _path_sort_key(told.path), told.keyword, told.wording.message


def _path_sort_key(path: Iterable[str | int]) -> list[tuple[int, str]]:
    return [(step, "") if isinstance(step, int) else (-1, step) for step in path]


def _fault(told: Explanation) -> Issue:
    return Issue(
        path=display_pointer(told.path),
        keyword=told.keyword,
        message=told.wording.message,
        expected=told.wording.expected,
        received=told.received,
        suggestion=told.wording.suggestion,
    )
