"""What a search returns: hits, and what is said beside them."""

from dataclasses import dataclass, field

from toolpost.base.ids import JsonObject
from toolpost.parts.workspace.engine import Entry, Stored

LINE_LIMIT = 500
"""Characters of a line that are shown."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """A search, with its filters."""

    query: str
    mode: str = "all"
    top: int = 5
    context: int = 0
    path: str | None = None
    language: str | None = None
    kind: str | None = None
    symbol: str | None = None
    case: bool = False
    regex: bool = False


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A place in a file, as it is on disk now."""

    repo: str
    file: str
    """Where it is on disk."""
    entry: Entry
    at: Stored
    headline: str
    headline_line: int
    is_definition: bool
    coverage: float
    is_stale: bool
    lines: list[tuple[int, str]]

    def as_object(self, score: float) -> JsonObject:
        """Say it in JSON."""
        shown: JsonObject = {
            "repo": self.repo,
            "path": self.entry.path,
            "language": self.entry.language,
            "startLine": self.at.start,
            "endLine": self.at.end,
            "line": self.headline_line,
            "kind": self.at.kind,
            "headline": self.headline,
            "isDefinition": self.is_definition,
            "stale": self.is_stale,
            "score": round(score, 4),
        }
        if self.at.name:
            shown["symbol"] = f"{self.at.scope}.{self.at.name}" if self.at.scope else self.at.name
            shown["signature"] = self.at.signature
        if self.lines:
            shown["lines"] = [{"line": number, "text": text} for number, text in self.lines]
        return shown


@dataclass(kw_only=True)
class Found:
    """What one repository has."""

    repo: str
    hits: list[Hit] = field(default_factory=list)
    stale: dict[str, str] = field(default_factory=dict)
    """Files that have changed since they were indexed, by path."""
    is_cut: bool = False
    """Whether the search stopped before it had seen everything."""


def shown_line(text: str) -> str:
    """Bound a line."""
    return text if len(text) <= LINE_LIMIT else f"{text[:LINE_LIMIT]}…"
