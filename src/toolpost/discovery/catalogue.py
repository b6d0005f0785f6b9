"""The catalogue: every tool by name, in one order, with the nearest name for a miss."""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from toolpost.contracts.errors import UnknownTool
from toolpost.contracts.ids import ToolName
from toolpost.contracts.nearest import nearest_names
from toolpost.sources import HeldTool, Source

_COMPARED = 40


class Catalogue:
    """All tools that can be called, sorted by name, so that a listing never depends on who loaded first."""

    def __init__(self, sources: Iterable[Source]) -> None:
        held = {name: tool for source in sources for name, tool in source.tools.items()}
        self._tools: Mapping[ToolName, HeldTool] = {name: held[name] for name in sorted(held)}
        self._aliases = {alias: tool for tool in self for alias in tool.contract.aliases if alias not in held}

    def __iter__(self) -> Iterator[HeldTool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def find(self, name: str) -> HeldTool:
        """Return the tool of this name, or of this former name, or say which names come near."""
        tool = self._tools.get(ToolName(name)) or self._aliases.get(ToolName(name))
        if tool is not None:
            return tool
        near = nearest_names(name, self._alike(name), 3)
        hint = f"did you mean {' or '.join(f'`{n}`' for n in near)}?" if near else "`tools/list` names all of them"
        raise UnknownTool(f"No tool is called `{name[:128]}`.", hint=hint, tool=name[:128], nearest=near)

    def _alike(self, name: str) -> list[ToolName]:
        """Pick the names that share most with this one: comparing thousands letter by letter would hold everybody up."""
        wanted = _trigrams(name[:128])
        return heapq.nlargest(_COMPARED, self._trigrams, key=lambda known: len(wanted & self._trigrams[known]))

    @cached_property
    def _trigrams(self) -> dict[ToolName, frozenset[str]]:
        return {name: _trigrams(name) for name in self._tools}


def _trigrams(name: str) -> frozenset[str]:
    folded = f"  {name.lower()} "
    return frozenset(folded[start : start + 3] for start in range(len(folded) - 2))
