"""The catalogue: every tool by name, in one order, with the nearest name for a miss."""

import difflib
from collections.abc import Iterable, Iterator, Mapping

from toolpost.contracts.errors import UnknownTool
from toolpost.contracts.ids import ToolName
from toolpost.sources import HeldTool, Source


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
        near = difflib.get_close_matches(name, self._tools, n=3, cutoff=0.6)
        hint = f"did you mean {' or '.join(f'`{n}`' for n in near)}?" if near else "`tools/list` names all of them"
        raise UnknownTool(f"No tool is called `{name[:128]}`.", hint=hint, tool=name[:128], nearest=near)
