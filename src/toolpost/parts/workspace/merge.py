"""Hits of several repositories as one list.

Scores of two indexes cannot be compared: how rare a word is differs between them. So definitions come first, then
what says more of the query, and among equals the repositories take turns, each with its best.
"""

from collections.abc import Sequence

from toolpost.parts.workspace.hits import Found, Hit

_RANK_CONSTANT = 60
"""Of reciprocal rank fusion, as everybody has it."""


def merged(found: Sequence[Found], top: int) -> list[tuple[Hit, float]]:
    """Return the best of all, with a score that falls down the list."""
    if len(found) == 1:
        return _scored([(hit, hit.entry.score) for hit in found[0].hits[:top]])
    ranked = [(hit, rank) for one in found for rank, hit in enumerate(one.hits)]
    ranked = _once(ranked)
    ranked.sort(key=lambda pair: (not pair[0].is_definition, -round(pair[0].coverage, 1), pair[1], pair[0].repo))
    return _scored([(hit, 1.0 / (_RANK_CONSTANT + place)) for place, (hit, _) in enumerate(ranked[:top])])


def _once(ranked: list[tuple[Hit, int]]) -> list[tuple[Hit, int]]:
    """Keep one hit of those that are one place: a repository may lie within another."""
    kept: dict[tuple[str, int, int], tuple[Hit, int]] = {}
    for hit, rank in sorted(ranked, key=lambda pair: pair[1]):
        kept.setdefault((hit.file, hit.at.start, hit.at.end), (hit, rank))
    return list(kept.values())


def _scored(hits: list[tuple[Hit, float]]) -> list[tuple[Hit, float]]:
    """Bring scores to at most 1, the best hit's."""
    best = max((score for _, score in hits), default=1.0) or 1.0
    return [(hit, score / best) for hit, score in hits]
