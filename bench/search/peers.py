"""Everybody who ranks, behind one method. The peers get the same words that we do."""

import logging
import re
from collections.abc import Callable, Sequence
from typing import Protocol

import anyio
import bm25s
from fastmcp.server.transforms.search import BM25SearchTransform
from fastmcp.tools.base import Tool

from toolpost.discovery.search import SearchIndex, ToolDocument
from toolpost.discovery.search.document import fields_of

logging.getLogger("bm25s").setLevel(logging.WARNING)


class Ranker(Protocol):
    def rank(self, query: str, limit: int) -> list[str]: ...


class Toolpost:
    def __init__(self, tools: Sequence[ToolDocument]) -> None:
        self._index = SearchIndex.prepare(tools)

    def rank(self, query: str, limit: int) -> list[str]:
        return [hit.name for hit in self._index.rank(query, limit=limit).hits]


class FastMcp:
    """FastMCP's search transform as its search tool uses it: names as a mounted server has them, descriptions, arguments."""

    def __init__(self, tools: Sequence[ToolDocument]) -> None:
        self._ids = {}
        self._tools = []
        for number, tool in enumerate(tools):
            name = f"{tool.server} {tool.name}" if not tool.name.startswith(tool.server) else tool.name
            made = Tool(
                name=f"{re.sub(r'[^A-Za-z0-9]+', '_', name)}_{number}",
                description=tool.description,
                parameters=tool.input_schema,
            )
            self._ids[made.name] = tool.name
            self._tools.append(made)
        self._search = BM25SearchTransform(max_results=10)._search  # noqa: SLF001 (its tool needs a server around it)
        self.rank("anything", 1)

    def rank(self, query: str, limit: int) -> list[str]:
        return anyio.run(self._rank, query)[:limit]

    async def _rank(self, query: str) -> list[str]:
        return [self._ids[tool.name] for tool in await self._search(self._tools, query)]

    async def ranks(self, queries: Sequence[str], note: Callable[[list[str]], None]) -> None:
        """Ask many times on one event loop, so that starting a loop is not measured."""
        for query in queries:
            note(await self._rank(query))


class Bm25s:
    """bm25s with its defaults, over the words of all fields."""

    def __init__(self, tools: Sequence[ToolDocument]) -> None:
        self._names = [tool.name for tool in tools]
        texts = [" ".join(fields_of(tool).values()) for tool in tools]
        self._index = bm25s.BM25()
        self._index.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)

    def rank(self, query: str, limit: int) -> list[str]:
        words = bm25s.tokenize([query], show_progress=False)
        found, _ = self._index.retrieve(words, k=min(limit, len(self._names)), show_progress=False)
        return [self._names[number] for number in found[0]]


EVERYBODY: dict[str, Callable[[Sequence[ToolDocument]], Ranker]] = {
    "Toolpost": Toolpost,
    "FastMCP": FastMcp,
    "bm25s": Bm25s,
}
