"""Every weight of the ranking, in one place."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from toolpost.discovery.search.fields import Field


@dataclass(frozen=True, kw_only=True)
class FieldWeight:
    """How much a word counts in a field."""

    boost: float
    flatness: float
    """BM25's b: how much a long text weakens each of its words."""
    usual_words: float
    """How long the field usually is. A constant, so that no tool's score depends on tools that the caller may not see."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """What the ranking is made of."""

    fields: Mapping[Field, FieldWeight] = field(
        default_factory=lambda: MappingProxyType(
            {
                "name": FieldWeight(boost=3, flatness=0.3, usual_words=3),
                "title": FieldWeight(boost=1, flatness=0.3, usual_words=3),
                "server": FieldWeight(boost=3, flatness=0.3, usual_words=2),
                "description": FieldWeight(boost=1, flatness=0.9, usual_words=15),
                "argument names": FieldWeight(boost=0.5, flatness=0.75, usual_words=6),
                "argument descriptions": FieldWeight(boost=1, flatness=0.75, usual_words=20),
                "server description": FieldWeight(boost=0.5, flatness=0.75, usual_words=12),
            }
        )
    )
    saturation: float = 2.2
    """BM25's k1: how soon repeating a word stops to count."""
    synonym: float = 0.3
    clause: float = 0.5
    server_prior: float = 0.15
    shortlist: int = 300
    """How many documents, best by the whole request, are compared with each clause too."""
    meaning: float = 0.5
    """The share of the embedding's cosine in the score."""


WEIGHTS = Weights()
