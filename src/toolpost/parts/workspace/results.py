"""The results of a search: hits of one repository, and the merge of several.

Scores of two indexes cannot be compared, because how rare a word is differs between them. So in a merged list definitions
come first, then hits that contain more of the query, and among equals the repositories take turns, each with its best.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from toolpost.base import JsonObject
from toolpost.parts.workspace.engine import ChunkInfo, ScoredChunk

LINE_LIMIT = 500
"""Characters of a line that are shown."""

_RANK_CONSTANT = 60
"""The usual constant of reciprocal rank fusion."""


@dataclass(frozen=True, kw_only=True)
class SearchHit:
    """A chunk of a file, as it is on disk now."""

    repo: str
    file: str
    """The absolute path."""
    entry: ScoredChunk
    at: ChunkInfo
    """The chunk with its present lines, which differ from those of `entry` if the file has changed."""
    headline: str
    headline_line: int
    is_definition: bool
    coverage: float
    """The share of the query's words that the chunk contains."""
    is_stale: bool
    lines: list[tuple[int, str]]

    def as_object(self, score: float) -> JsonObject:
        encoded: JsonObject = {
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
            encoded["symbol"] = self.at.qualified_name
            encoded["signature"] = self.at.signature
        if self.lines:
            encoded["lines"] = [{"line": number, "text": text} for number, text in self.lines]
        return encoded


@dataclass(kw_only=True)
class SearchResult:
    """The hits of one repository."""

    repo: str
    hits: list[SearchHit] = field(default_factory=list)
    stale: dict[str, str] = field(default_factory=dict)
    """Files that have changed since they were indexed: the state of each by path."""
    is_cut: bool = False
    """Whether the search stopped before it had seen everything."""


def merge_hits(results: Sequence[SearchResult], top: int) -> list[tuple[SearchHit, float]]:
    """Return the best hits of all repositories with scores that fall from 1."""
    if len(results) == 1:
        return _normalize_scores([(hit, hit.entry.score) for hit in results[0].hits[:top]])
    ranked = [(hit, rank) for result in results for rank, hit in enumerate(result.hits)]
    # A repository may lie within another: the same lines of the same file are one hit, with its better rank.
    unique: dict[tuple[str, int, int], tuple[SearchHit, int]] = {}
    for hit, rank in sorted(ranked, key=lambda pair: pair[1]):
        unique.setdefault((hit.file, hit.at.start, hit.at.end), (hit, rank))
    merged = sorted(
        unique.values(),
        key=lambda pair: (not pair[0].is_definition, -round(pair[0].coverage, 1), pair[1], pair[0].repo),
    )
    return _normalize_scores([(hit, 1.0 / (_RANK_CONSTANT + place)) for place, (hit, _) in enumerate(merged[:top])])


def _normalize_scores(hits: list[tuple[SearchHit, float]]) -> list[tuple[SearchHit, float]]:
    best = max((score for _, score in hits), default=1.0) or 1.0
    return [(hit, score / best) for hit, score in hits]


def truncate_line(text: str) -> str:
    return text if len(text) <= LINE_LIMIT else f"{text[:LINE_LIMIT]}…"
