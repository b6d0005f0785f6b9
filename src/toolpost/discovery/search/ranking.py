"""What a search answers: tools from best to worst, how sure it is, and how many of them to hand out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from toolpost.discovery.search.fields import Field


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """Words of the query that a field of the tool has too, as the tool writes them."""

    field: Field
    words: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    """One tool, and how well it fits."""

    name: str
    score: float
    """Between 0 and 1; to be compared within one ranking only."""
    why: Sequence[Match] = ()
    """Where which words matched; only if it was asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """The tools that fit, best first."""

    hits: Sequence[Hit]
    is_weak: bool
    """Whether the best may well be none that fits. A hint for people and models: nothing is left out because of it."""
    sureness: float
    """Between 0 and 1: how sure it is that a tool that fits is among the best."""


def cut(
    ranking: Ranking,
    *,
    sizes_in_tokens: Callable[[str], int],
    budget_tokens: int = 4000,
    least: int = 5,
    most: int = 15,
    share_of_best: float = 0.6,
) -> Sequence[Hit]:
    """Keep what is worth its tokens: near the best, at least `least`, at most `most`, within the budget but for the best."""
    kept: list[Hit] = []
    spent = 0
    best = ranking.hits[0].score if ranking.hits else 0.0
    for hit in ranking.hits[:most]:
        if len(kept) >= least and hit.score < share_of_best * best:
            break
        size = sizes_in_tokens(hit.name)
        if kept and spent + size > budget_tokens:
            continue
        kept.append(hit)
        spent += size
    return kept
