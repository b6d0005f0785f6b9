"""Every weight of the ranking, in one place, and the measurement that chose it.

recall@5 / recall@10 on the half of the queries that is for choosing, mean of MCP-Zero, BFCL and StableToolBench, one weight
changed at a time; as they are: 0.796 / 0.881. The standard error of such a mean is about 0.02: no reason to leave round values.

    meaning       0.3: 0.789 / 0.881   0.4: 0.798 / 0.888   0.6: 0.800 / 0.879    0.7: 0.794 / 0.867
    clause        0:   0.786 / 0.875   0.3: 0.798 / 0.881   0.7: 0.792 / 0.880
    synonym       0:   0.794 / 0.872   0.2: 0.795 / 0.882   0.4: 0.798 / 0.887
    server_prior  0:   0.800 / 0.886   0.1: 0.796 / 0.881   0.25: 0.800 / 0.884
    shortlist     100: 0.796 / 0.882   1000: 0.797 / 0.882

The boosts of the fields and k1 come from a wider search over thirteen public sets; halved or doubled, they move the mean by
about 0.01. `scripts/bench search --weights` measures all of it anew.
"""

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
