"""The catalogue: every tool by name, in one order, with the nearest name for a miss."""

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache

from toolpost.base.caller import Scope
from toolpost.base.ids import PluginName, ToolName
from toolpost.base.nearest import nearest_name, nearest_names
from toolpost.contracts.errors import UnknownTool
from toolpost.discovery.views import EVERYTHING, Excerpt, View, tags_of
from toolpost.providers import ProvidedTool, Provider

VIEWS_LIMIT = 32
"""How many views are kept: callers choose the tags, and there are many ways to combine them."""

SCOPES_LIMIT = 1_024
"""How many callers' shares are kept: as many as are configured, in practice."""

_COMPARED = 40
_LOOKED_AT = 500
"""A server decides how many names there are, and a caller how often one is missed: so many take some 5 ms."""


class Catalogue:
    """All tools that can be called, sorted by name, so that a listing never depends on who loaded first."""

    def __init__(
        self, sources: Iterable[Provider], *, tags: Mapping[str, Iterable[str]] | None = None, is_bare: bool = False
    ) -> None:
        """Take all sources; `tags` adds some by name, for those that carry none themselves.

        A bare catalogue is one source's: its tools are listed and found by their own names, and found by `source__tool` too.
        """
        known = list(sources)
        self._is_bare = is_bare
        held = {name: tool for source in known for name, tool in source.tools.items()}
        self._tools: Mapping[ToolName, ProvidedTool] = {name: held[name] for name in sorted(held)}
        self._quarantined = {name: tool for source in known for name, tool in source.quarantined.items()}
        self._aliases = {alias: tool for tool in self for alias in tool.contract.aliases if alias not in held}
        own = [*self._quarantined.values(), *self] if is_bare else []
        self._own_aliases = {alias: tool for tool in own for alias in tool.contract.terms.aliases}
        self._own = {tool.contract.terms.name: tool for tool in own}
        self.tags = {source.name: tags_of(source) | frozenset((tags or {}).get(source.name, ())) for source in known}
        self.descriptions = {source.name: source.description for source in known}
        """What each source says of itself, for the index alone."""
        self.servers = tuple(sorted({tool.provider for tool in held.values()}))
        """The servers and plugins that have any of the tools."""
        self._seen = lru_cache(maxsize=VIEWS_LIMIT)(self._narrowed)
        self._shared = lru_cache(maxsize=SCOPES_LIMIT)(self._share_of)

    def __iter__(self) -> Iterator[ProvidedTool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def has_servers_of(self, other: "Catalogue") -> bool:
        """Whether the servers are the same, whatever their tools are."""
        return self.servers == other.servers and self.tags == other.tags

    def find(self, name: str) -> ProvidedTool:
        """Return the tool of this name, or of this former name, or say which names come near."""
        wanted = ToolName(name)
        tool = self._tools.get(wanted) if not self._is_bare else self._own.get(name) or self._tools.get(wanted)
        if tool is None:
            tool = self._aliases.get(wanted) or self._own_aliases.get(name) or self._quarantined.get(wanted)
        if tool is not None:
            return tool
        server = PluginName(name.partition("__")[0])
        if server in self.tags and server not in self.servers:
            # It has not started yet, or cannot: names that come near are others' tools, and no help.
            hint = f"nothing is known of the tools of `{server}` yet; `toolpost servers` shows how it is doing"
            raise UnknownTool(
                f"No tool is called `{name[:128]}`.", hint=hint, tool=name[:128], nearest=[], server=server
            )
        near = nearest_names(name, self._alike(name), 3)
        hint = f"did you mean {' or '.join(f'`{n}`' for n in near)}?" if near else "`tools/list` names all of them"
        raise UnknownTool(f"No tool is called `{name[:128]}`.", hint=hint, tool=name[:128], nearest=near)

    def listed_name(self, tool: ProvidedTool) -> str:
        """Return the name under which a tool is listed."""
        return tool.contract.terms.name if self._is_bare else tool.contract.name

    def seen_through(self, view: View) -> "Catalogue":
        """Return what this view shows, made once; a path to what nobody has, or to what is not seen, is an error."""
        return self if view is EVERYTHING else self._seen(view)

    def _narrowed(self, view: View) -> "Catalogue":
        if view.scopes:
            # First what the caller may see: within it a path finds, or misses, what there is for them.
            share = self._shared(view.scopes)
            return share if view.path == EVERYTHING else share.seen_through(view.path)
        return self._excerpts(view, view.names(self.tags))

    def _share_of(self, scopes: tuple[Scope, ...]) -> "Catalogue":
        view = View(scopes=scopes)
        held = {tool.provider for name, tool in self._tools.items() if view.admits(name)}
        shown = {
            name
            for name, tags in self.tags.items()
            if view.shows(name, tags) and (name in held or view.shows_whole(name, tags))
        }
        return self._excerpts(view, shown)

    def _excerpts(self, view: View, sources: Iterable[PluginName]) -> "Catalogue":
        tools: dict[PluginName, dict[ToolName, ProvidedTool]] = {name: {} for name in sources}
        back: dict[PluginName, dict[ToolName, ProvidedTool]] = {name: {} for name in tools}
        for known, kept in ((self._tools, tools), (self._quarantined, back)):
            for name, tool in known.items():
                if tool.provider in kept and view.admits(name):
                    kept[tool.provider][name] = tool
        return Catalogue(
            (
                Excerpt(name=name, tools=held, quarantined=back[name], tags=self.tags[name])
                for name, held in tools.items()
            ),
            is_bare=view.is_bare,
        )

    def _alike(self, name: str) -> list[str]:
        """Pick the names that share most with this one: comparing thousands letter by letter would hold everybody up."""
        wanted = _trigrams(name[:128])
        return heapq.nlargest(_COMPARED, self._around(name), key=lambda known: len(wanted & _trigrams(known)))

    def _around(self, name: str) -> Sequence[str]:
        """Return the names that stand near this one in their order, where there are too many to look at each."""
        if len(self._names) <= _LOOKED_AT:
            return self._names
        server, mark, tool = name.partition("__")
        if mark and server not in self.tags and (near := nearest_name(server, self.servers[:_LOOKED_AT])) is not None:
            name = f"{near}{mark}{tool}"
        start = max(0, bisect_left(self._names, name) - _LOOKED_AT // 2)
        return self._names[start : start + _LOOKED_AT]

    @cached_property
    def _names(self) -> Sequence[str]:
        return sorted(map(self.listed_name, self))


def _trigrams(name: str) -> frozenset[str]:
    folded = f"  {name.lower()} "
    return frozenset(folded[start : start + 3] for start in range(len(folded) - 2))
