"""The public sets: tools, queries and the tools that each query needs; one half to choose weights on, one to report on."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import md5
from pathlib import Path
from typing import Any

from bench.load import BenchError
from toolpost.discovery.search import ToolDocument

FOLDER = Path(__file__).parents[3] / "shared" / "data"
NAMES = ("mcpzero_hand", "bfcl", "stabletoolbench", "metatool_single")
TRAINED_ON = frozenset({"metatool_single", "toollens"})
"""Sets whose queries the table of meanings was trained on: they flatter it, and are left out of every mean."""


@dataclass(frozen=True)
class Query:
    text: str
    gold: frozenset[str]

    @property
    def is_for_choosing(self) -> bool:
        """Whether it belongs to the half on which weights are chosen; the words alone decide."""
        return md5(self.text.encode()).digest()[0] % 2 == 0


@dataclass(frozen=True)
class Set:
    name: str
    tools: Sequence[ToolDocument]
    queries: Sequence[Query]

    @property
    def is_unseen(self) -> bool:
        """Whether it may count in a mean."""
        return self.name not in TRAINED_ON

    def half(self, *, choosing: bool, most: int | None = None) -> list[Query]:
        """Return one half of the queries, or as many of them as are wanted, evenly spread."""
        some = [query for query in self.queries if query.is_for_choosing is choosing]
        return some[:: max(1, len(some) // most)][:most] if most else some


@cache
def all_sets() -> tuple[Set, ...]:
    return tuple(_read(name) for name in NAMES)


def _read(name: str) -> Set:
    tools = [
        ToolDocument(
            name=line["id"],
            server=line["server"],
            description=line["description"],
            input_schema=line["inputSchema"],
            server_description=line.get("serverDescription") or "",
            digest=f"{name}/{line['id']}",
        )
        for line in _lines(FOLDER / "search" / name / "tools.jsonl")
    ]
    lines = _lines(FOLDER / "search" / name / "queries.jsonl")
    return Set(name, tools, [Query(line["query"], frozenset(line["gold"])) for line in lines])


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        raise BenchError(f"{path} is not there: the search is measured on public sets that are not part of the project")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def mixed(count: int) -> list[ToolDocument]:
    """Return as many tools as wanted, of all sets; beyond what there is, further ones are put together of the parts of two."""
    known = [replace(tool, name=f"{one.name}/{tool.name}") for one in all_sets() for tool in one.tools]
    dice = random.Random(7)
    dice.shuffle(known)
    made = known[:count]
    while len(made) < count:
        first, second = dice.choices(known, k=2)
        number = len(made)
        made.append(
            replace(
                first,
                name=f"{first.name}-{number}",
                server=f"{first.server} {number // 12}",
                description=f"{first.description} {second.description}",
                digest=f"mixed/{number}",
            )
        )
    return made


def mixed_queries(each: int) -> list[str]:
    """Return as many queries of each set."""
    return [query.text for one in all_sets() for query in one.half(choosing=False, most=each)]
