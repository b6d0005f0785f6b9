"""How often the right tool is found, on queries of public sets that no weight was chosen on."""

import json
from hashlib import md5
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from toolpost.discovery.search import Document, SearchIndex

SETS = Path(__file__).parents[4] / "shared/data/search"

LEAST = {
    "bfcl": (0.84, 0.90),
    "mcpzero_hand": (0.74, 0.82),
    "metatool_single": (0.82, 0.90),
    "stabletoolbench": (0.70, 0.79),
}
"""Recall at 5 and at 10 that each set must reach: a little under what is measured, for only some are asked here."""

SOME = 160


@pytest.mark.skipif(not SETS.exists(), reason=f"{SETS} is not there")
def test_the_right_tool_is_among_the_first() -> None:
    found = {name: _recall(name) for name in LEAST}

    for name, (at_5, at_10) in found.items():
        assert at_5 >= LEAST[name][0], (name, found)
        assert at_10 >= LEAST[name][1], (name, found)
    assert mean(at_5 for at_5, _ in found.values()) >= 0.79
    assert mean(at_10 for _, at_10 in found.values()) >= 0.86


def _recall(name: str) -> tuple[float, float]:
    index = SearchIndex.prepare(
        Document(
            name=tool["id"],
            server=tool["server"],
            description=tool["description"],
            input_schema=tool["inputSchema"],
            server_description=tool.get("serverDescription") or "",
        )
        for tool in _lines(name, "tools")
    )
    asked = sorted(_lines(name, "queries"), key=lambda query: md5(query["query"].encode()).digest())
    # The half with an odd first byte is the one to report on; see bench/search.
    queries = [query for query in asked if md5(query["query"].encode()).digest()[0] % 2][:SOME]
    tops = [[hit.name for hit in index.rank(query["query"], limit=10).hits] for query in queries]
    return tuple(  # type: ignore[return-value]
        mean(
            len({*query["gold"]} & {*top[:depth]}) / len(query["gold"])
            for query, top in zip(queries, tops, strict=True)
        )
        for depth in (5, 10)
    )


def _lines(name: str, part: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SETS / name / f"{part}.jsonl").read_text(encoding="utf-8").splitlines()]
