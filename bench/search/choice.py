"""What other weights would give, on the half of the queries that is for choosing: one is changed at a time."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bench.search.quality import Quality, quality
from bench.search.sets import all_sets
from toolpost.discovery.search import SearchIndex
from toolpost.discovery.search.document import Field
from toolpost.discovery.search.engine import Engine
from toolpost.discovery.search.weights import WEIGHTS, Weights


class _Weighed:
    def __init__(self, index: SearchIndex) -> None:
        self._index = index

    def rank(self, query: str, limit: int) -> list[str]:
        return [hit.name for hit in self._index.rank(query, limit=limit).hits]


def alternatives() -> Iterator[tuple[str, Weights]]:
    yield "as they are", WEIGHTS
    values_of: dict[str, tuple[Any, ...]] = {
        "meaning": (0.0, 0.3, 0.4, 0.6, 0.7, 1.0),
        "clause": (0.0, 0.3, 0.7),
        "synonym": (0.0, 0.2, 0.4),
        "server_prior": (0.0, 0.1, 0.25),
        "saturation": (1.2, 3.5),
        "shortlist": (100, 1000),
    }
    for name, values in values_of.items():
        for value in values:
            yield f"{name} {value:g}", replace(WEIGHTS, **{name: value})
    for field in WEIGHTS.fields:
        if field != "title":  # no set has titles
            for factor in (0.5, 2):
                yield f"{field} x {factor:g}", _boosted(field, factor)


def _boosted(field: Field, factor: float) -> Weights:
    weight = WEIGHTS.fields[field]
    return replace(WEIGHTS, fields={**WEIGHTS.fields, field: replace(weight, boost=weight.boost * factor)})


def chosen(most: int) -> list[tuple[str, list[Quality]]]:
    """Return for each alternative what every set gives."""
    found = []
    for name, weights in alternatives():
        per_set = []
        for one in all_sets():
            index = SearchIndex(Engine.of(one.tools, weights))
            per_set.append(quality(_Weighed(index), one.half(choosing=True, most=most)))
        found.append((name, per_set))
    return found
