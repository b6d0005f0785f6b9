"""The page of the rules by which changes are judged, made from the rules themselves."""

from collections.abc import Iterator

from tests.contracts.compatibility import claims
from toolpost.contracts import RULES, Rule

_SUBJECTS = {
    "input": "Arguments",
    "output": "Results",
    "tool": "The tool itself",
    "wording": "Wording",
    "annotations": "Annotations",
    "errors": "Error codes",
    "limits": "Time limits, cancellation, concurrency",
    "version": "Versions",
    "budget": "The budget",
}


def rules_page(command: str) -> str:
    """Return the page."""
    return "\n".join([*_head(command), *_tables(), *_disagreements()]) + "\n"


def _head(command: str) -> Iterator[str]:
    yield "# Rules for changes\n"
    yield f"<!-- Made by `{command}`; a test compares the two. -->\n"
    yield "Each change between two definitions of a tool falls under one of these rules. [Changes](compatibility.md) explains"
    yield "their use. *Bump* shows whether `schemaVersion` must rise.\n"


def _tables() -> Iterator[str]:
    for prefix, title in _SUBJECTS.items():
        yield f"## {title}\n"
        yield "| rule | verdict | bump | change and effect | source |"
        yield "|---|---|---|---|---|"
        yield from (_row(rule) for rule in RULES.values() if rule.id.startswith(f"{prefix}."))
        yield ""


def _row(rule: Rule) -> str:
    bump = "must rise" if rule.needs_bump else ""
    return f"| `{rule.id}` | {rule.verdict.value} | {bump} | {rule.summary.capitalize()}. {rule.explanation} | {rule.reference} |"


def _disagreements() -> Iterator[str]:
    yield "## Differences from other tools\n"
    yield "The tests of two schema registries contain 375 claims that one schema accepts every value of another."
    yield f"Toolpost agrees with all but {len(claims.REASONS)}:\n"
    yield claims.page()
