"""Every weight of the ranking, in one place, and the measurement that chose it.

The boosts of the fields, k1 and b come from an earlier search over thirteen public sets. Then one weight at a time was changed,
on the half of the queries that is for choosing (mean of MCP-Zero, BFCL and StableToolBench, up to 200 queries each; recall@5
and @10):

    as they are   0.816 / 0.906
    meaning       0:   0.778 / 0.878   0.3: 0.807 / 0.898   0.6: 0.820 / 0.903    1: 0.732 / 0.835
    clause        0:   0.812 / 0.904   0.3: 0.818 / 0.907   0.7: 0.811 / 0.904
    synonym       0:   0.816 / 0.893   0.2: 0.814 / 0.906   0.4: 0.817 / 0.910
    server_prior  0:   0.818 / 0.909   0.1: 0.815 / 0.905   0.25: 0.819 / 0.909

The server description was measured separately, on the two sets that have one (recall@5 / @10 / nDCG@5, all queries of a half):

                      MCP-Zero, choosing      checking                StableToolBench, choosing   checking
    not indexed       0.774 / 0.868 / 0.649   0.794 / 0.838 / 0.639   0.766 / 0.858 / 0.722       0.739 / 0.828 / 0.710
    boost 0.5         0.755 / 0.868 / 0.650   0.807 / 0.864 / 0.648   0.771 / 0.860 / 0.725       0.739 / 0.833 / 0.709
    boost 1           0.774 / 0.868 / 0.656   0.807 / 0.864 / 0.661   0.769 / 0.861 / 0.724       0.737 / 0.836 / 0.708
    boost 3           0.783 / 0.868 / 0.651   0.807 / 0.859 / 0.671   0.768 / 0.858 / 0.725       0.743 / 0.834 / 0.710

It helps a little where it is a sentence or two (MCP-Zero) and does nothing where it is one word (StableToolBench). Embedded
with the tool it gives no steady gain, so it is not.

A tool whose verb does something else than the query's loses a share of its score. On the public sets, where few tools differ by
their verb alone, that changes no figure by more than 0.001 up to 0.15 (0.3 costs StableToolBench 0.004 of recall@5); on the
operations of a large API it decides between `list` and `delete`.

MCP-Zero has 53 queries in that half, so differences of 0.02 are noise. The figures show that both words and meaning are
needed; they do not show that exactly these values are best, and the server prior shows no gain. `scripts/bench search
--weights` measures it again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from toolpost.discovery.search.document import Field


@dataclass(frozen=True, kw_only=True)
class FieldWeight:
    """How much a word counts in one field."""

    boost: float
    length_penalty: float
    """BM25's b: how much a long text weakens each of its words."""
    usual_words: float
    """BM25's average length. A constant, so that no score depends on tools that the caller may not see."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The parameters of the score."""

    fields: Mapping[Field, FieldWeight] = field(
        default_factory=lambda: MappingProxyType(
            {
                "name": FieldWeight(boost=3, length_penalty=0.3, usual_words=3),
                "title": FieldWeight(boost=1, length_penalty=0.3, usual_words=3),
                "server": FieldWeight(boost=3, length_penalty=0.3, usual_words=2),
                "description": FieldWeight(boost=1, length_penalty=0.9, usual_words=15),
                "argument names": FieldWeight(boost=0.5, length_penalty=0.75, usual_words=6),
                "argument descriptions": FieldWeight(boost=1, length_penalty=0.75, usual_words=20),
                "server description": FieldWeight(boost=1, length_penalty=0.75, usual_words=12),
            }
        )
    )
    saturation: float = 2.2
    """BM25's k1: how soon repeating a word stops to matter."""
    synonym: float = 0.3
    clause: float = 0.5
    server_prior: float = 0.15
    other_action: float = 0.15
    """What a tool loses that creates, changes or deletes where the query asks to list, and so on."""
    shortlist: int = 300
    """How many documents, best by the whole query, are compared with each clause too."""
    meaning: float = 0.5
    """The share of the embedding's cosine in the score."""


WEIGHTS = Weights()
