"""What a sentence model adds to the ranking: `.venv/bin/python -m bench.search.embedded FOLDER [--queries 400]`."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from bench.search.quality import Quality, quality
from bench.search.sets import Set, all_sets
from toolpost.discovery.embedder import EmbeddingModel, Vectors, score
from toolpost.discovery.search import SearchIndex
from toolpost.discovery.search.document import summarize
from toolpost.discovery.search.words import clauses_of

AT_ONCE = 16


class Embedded:
    """The ranking with the model beside it, or without."""

    def __init__(self, index: SearchIndex, vectors: dict[str, Vectors], model: EmbeddingModel | None) -> None:
        self._index, self._vectors, self._model = index, vectors, model

    def rank(self, query: str, limit: int) -> list[str]:
        hits = self._index.rank(query).hits
        if self._model is not None:
            known = {hit.name: self._vectors[hit.name] for hit in hits}
            hits = score(hits, known, self._model.embed(clauses_of(query) or [query]))
        return [hit.name for hit in hits][:limit]


def vectors_of(one: Set, model: EmbeddingModel) -> dict[str, Vectors]:
    tools = sorted(one.tools, key=lambda tool: len(summarize(tool)))
    found: dict[str, Vectors] = {}
    for start in range(0, len(tools), AT_ONCE):
        some = tools[start : start + AT_ONCE]
        found |= zip((tool.name for tool in some), model.embed([summarize(tool) for tool in some]), strict=True)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.search.embedded")
    parser.add_argument("folder", type=Path, help="a sentence model, as `discovery.embedder` takes it")
    parser.add_argument("--queries", type=int, default=400, help="at most so many of each half (400)")
    options = parser.parse_args(arguments)
    model = EmbeddingModel.load(options.folder)
    found: dict[tuple[bool, bool], list[Quality]] = {}
    for one in all_sets():
        began = time.perf_counter()
        vectors, index = vectors_of(one, model), SearchIndex.prepare(one.tools)
        each_ms = 1000 * (time.perf_counter() - began) / len(one.tools)
        print(f"{one.name}: {len(one.tools)} tools, {each_ms:.1f} ms each")
        for choosing in (True, False):
            for is_embedded in (False, True):
                ranker = Embedded(index, vectors, model if is_embedded else None)
                got = quality(ranker, one.half(choosing=choosing, most=options.queries))
                if one.is_unseen:
                    found.setdefault((choosing, is_embedded), []).append(got)
                _print(choosing, is_embedded, got)
    print("mean of the sets that the table was not trained on")
    for (choosing, is_embedded), some in found.items():
        _print(choosing, is_embedded, Quality.average(some))


def _print(choosing: bool, is_embedded: bool, got: Quality) -> None:
    half, what = "choosing" if choosing else "reporting", "with the model" if is_embedded else "without"
    numbers = f"recall@5 {got.recall_5:.3f}  recall@10 {got.recall_10:.3f}  nDCG@5 {got.ndcg_5:.3f}"
    print(f"  {half:9}  {what:14}  {numbers}", flush=True)


if __name__ == "__main__":
    main()
