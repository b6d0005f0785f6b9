"""The errors of a value, explained so that its sender can repair it in one attempt: `find_issues`.

Issues have their own short messages, never the validator's dump of a value, and never a secret. Here errors are collected
within limits, sorted and deduplicated; where an error is, and which branch of a choice was meant, is found in `location`; its
wording, and how to repair the value, is left to `explanation`. For example, `{"nmae": "Ada"}` for a schema that requires `name`
has two errors, which become two issues: `nmae` is not known ("did you mean `name`?"), and `name` is missing ("rename `nmae`").
"""

from collections.abc import Iterable
from dataclasses import dataclass

from toolpost.base.ids import Json, JsonObject
from toolpost.base.values import ABSENT, Path
from toolpost.contracts.display import display_pointer
from toolpost.contracts.errors import ToolpostError
from toolpost.contracts.issues.explanation import Explainer, Explanation
from toolpost.contracts.schema import Schema, ValidationError

ISSUE_LIMIT = 20
ERROR_LIMIT = 5 * ISSUE_LIMIT
FULL_READ_LIMIT = 5_000
"""Values with more parts than this are validated up to their first error: each error costs 13 µs, and each part may have one."""


@dataclass(frozen=True, kw_only=True)
class Issue:
    """One thing wrong with a value; `path` is a JSON Pointer into the value."""

    path: str
    keyword: str
    message: str
    expected: Json = ABSENT
    received: Json = ABSENT
    suggestion: str | None = None

    def as_object(self) -> JsonObject:
        """Return the issue object of the wire; fields that do not apply are absent."""
        issue: JsonObject = {"path": self.path, "keyword": self.keyword, "message": self.message}
        if self.expected is not ABSENT:
            issue["expected"] = self.expected
        if self.received is not ABSENT:
            issue["received"] = self.received
        if self.suggestion is not None:
            issue["suggestion"] = self.suggestion
        return issue


def parse_issue(issue: JsonObject) -> Issue:
    """Read what `Issue.as_object` wrote."""
    return Issue(**issue)


def list_issues_for_log(error: ToolpostError) -> list[JsonObject] | None:
    """Return the issues of an error, None without any. What was received, and what is suggested, have values of the caller."""
    issues: list[JsonObject] = error.details.get("issues") or []
    known = ("path", "keyword", "message", "expected")
    return [{name: issue[name] for name in known if name in issue} for issue in issues] or None


def find_issues_quickly(schema: Schema, value: Json, size_bytes: int) -> list[Issue] | None:
    """Return the issues if finding them is certain to be quick, otherwise None: then use `upstreams.validation`.

    `size_bytes` is the size of the value as JSON text.
    """
    if size_bytes > schema.inline_limit_bytes:
        return None
    try:
        if schema.is_valid(value):
            return []
    except ValueError as problem:
        return issues_of_unencodable(problem)
    return find_issues(schema, value) if _has_at_most(value, schema.quick_parts) else None


def issues_of_unencodable(problem: Exception) -> list[Issue]:
    """Return the issue of a value that cannot be written as JSON, given the exception that says so."""
    if isinstance(problem, UnicodeError):
        message = "a text in the value holds half of a surrogate pair, which is not valid Unicode"
    else:
        message = "the value cannot be read: it is nested too deeply, or is not JSON"
    return [Issue(path="", keyword="json", message=message)]


def find_issues(schema: Schema, value: Json) -> list[Issue]:
    """Return what is wrong with a value, by path, at most `ISSUE_LIMIT` issues; an empty list if it is valid.

    The time is not bounded: for a schema or a value from outside use `find_issues_quickly`.
    """
    try:
        if schema.is_valid(value):
            return []
        errors = _collect_errors(schema, value)
    except ValueError as problem:
        return issues_of_unencodable(problem)
    explanations = _sort_and_deduplicate(Explainer(schema, value).explain(errors))
    issues = [
        Issue(
            path=display_pointer(each.path),
            keyword=each.keyword,
            message=each.wording.message,
            expected=each.wording.expected,
            received=each.received,
            suggestion=each.wording.suggestion,
        )
        for each in explanations
    ]
    return issues or [make_generic_issue()]


def make_generic_issue() -> Issue:
    """Return the issue for a value that is known to be invalid, where the reason is not."""
    return Issue(path="", keyword="schema", message="the value breaks the schema")


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
    """Return whether a value has at most `limit` parts, itself included; stops counting at the limit."""
    waiting, seen = [value], 0
    while waiting and seen <= limit:
        part = waiting.pop()
        seen += 1
        if isinstance(part, dict):
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
    return seen <= limit


def _sort_and_deduplicate(explanations: list[Explanation]) -> list[Explanation]:
    """Sort by path, and drop what repeats or follows from another explanation."""
    strong = [each for each in explanations if not each.is_weak] or explanations
    reserved = {each.path for each in strong if each.keyword == "x-reserved"}
    kept: dict[tuple[Path, str], Explanation] = {}
    for each in sorted(strong, key=lambda each: (_path_sort_key(each.path), each.keyword, each.wording.message)):
        # A reserved property must not be set at all: what else is wrong with its value does not matter.
        is_below_reserved = any(each.path[: len(path)] == path for path in reserved)
        if not is_below_reserved or each.keyword == "x-reserved":
            kept.setdefault((each.path, each.wording.message), each)
    return list(kept.values())[:ISSUE_LIMIT]


def _path_sort_key(path: Iterable[str | int]) -> list[tuple[int, str]]:
    # Names sort before numbers: a path may have either at the same position, and Python does not compare them.
    return [(step, "") if isinstance(step, int) else (-1, step) for step in path]
