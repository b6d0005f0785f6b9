"""The catalog: every tool by name, in one order; a name that is unknown is answered with similar ones.

A catalog never changes. When the tools of a provider do, the gateway makes another one.
"""

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache

from toolpost.base.caller import Scope
from toolpost.base.ids import PluginName, ToolName
from toolpost.base.nearest import nearest_name, nearest_names
from toolpost.contracts.errors import UnknownTool
from toolpost.discovery.views import EVERYTHING, FilteredProvider, View, tags_of
from toolpost.providers import ProvidedTool, Provider
from toolpost.providers.quarantine import forbid

VIEWS_LIMIT = 32
"""How many narrowed catalogs are cached: callers choose the tags of a path, and can combine them in many ways."""

SCOPES_LIMIT = 1_024
"""How many combinations of scopes are cached: more than callers are configured, in practice."""

_MAX_COMPARED = 40
_MAX_SCANNED = 500
"""A server decides how many names there are, and a caller how often one is missed: 500 names take about 5 ms."""


class Catalog:
    """All tools that can be called, sorted by name, so that a listing does not depend on which provider loaded first."""

    def __init__(
        self, sources: Iterable[Provider], *, tags: Mapping[str, Iterable[str]] | None = None, is_bare: bool = False
    ) -> None:
        """Collect the tools of all providers.

        `tags` adds tags by the name of a provider, for plugins, which have none of their own. A bare catalog has one provider:
        its tools are listed under their own names, and found by `provider__tool` too.
        """
        providers = list(sources)
        self._is_bare = is_bare
        tools = {name: tool for provider in providers for name, tool in provider.tools.items()}
        self._tools: Mapping[ToolName, ProvidedTool] = {name: tools[name] for name in sorted(tools)}
        self._quarantined = {name: tool for provider in providers for name, tool in provider.quarantined.items()}
        self._aliases = {alias: tool for tool in self for alias in tool.contract.aliases if alias not in tools}
        # Quarantined tools first, so that a listed one with the same name takes precedence.
        own = [*self._quarantined.values(), *self] if is_bare else []
        self._own_aliases = {alias: tool for tool in own for alias in tool.contract.terms.aliases}
        self._own = {tool.contract.terms.name: tool for tool in own}
        self.tags = {
            provider.name: tags_of(provider) | frozenset((tags or {}).get(provider.name, ())) for provider in providers
        }
        self.descriptions = {provider.name: provider.description for provider in providers}
        """The untrusted `instructions` of each provider; indexed, and never shown."""
        self.servers = tuple(sorted({tool.provider for tool in tools.values()}))
        """The servers and plugins that have at least one tool."""
        self._narrow_cached = lru_cache(maxsize=VIEWS_LIMIT)(self._narrow)
        self._limit_cached = lru_cache(maxsize=SCOPES_LIMIT)(self._limit)

    def __iter__(self) -> Iterator[ProvidedTool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def has_servers_of(self, other: "Catalog") -> bool:
        """Whether both have the same servers with the same tags; their tools may differ."""
        return self.servers == other.servers and self.tags == other.tags

    def find(self, name: str) -> ProvidedTool:
        """Return the tool of this name or alias; raise `UnknownTool` with similar names if there is none.

        Quarantined tools are found too: they answer with what changed.
        """
        wanted = ToolName(name)
        tool = self._tools.get(wanted) if not self._is_bare else self._own.get(name) or self._tools.get(wanted)
        if tool is None:
            tool = self._aliases.get(wanted) or self._own_aliases.get(name) or self._quarantined.get(wanted)
        if tool is not None:
            return tool
        server = PluginName(name.partition("__")[0])
        if server in self.tags and server not in self.servers:
            # Its server has not started yet, or cannot: similar names would be tools of other servers.
            hint = f"nothing is known of the tools of `{server}` yet; `toolpost servers` shows how it is doing"
            raise UnknownTool(
                f"No tool is called `{name[:128]}`.", hint=hint, tool=name[:128], nearest=[], server=server
            )
        near = nearest_names(name, self._similar_names(name), 3)
        hint = f"did you mean {' or '.join(f'`{n}`' for n in near)}?" if near else "`tools/list` names all of them"
        raise UnknownTool(f"Unknown tool `{name[:128]}`.", hint=hint, tool=name[:128], nearest=near)

    def listed_name(self, tool: ProvidedTool) -> str:
        return tool.contract.terms.name if self._is_bare else tool.contract.name

    def narrow(self, view: View) -> "Catalog":
        """Return the catalog that this view shows; cached.

        Raises `NotFound` if the path of the view names a provider or a tag that the caller does not see.
        """
        return self if view is EVERYTHING else self._narrow_cached(view)

    def _narrow(self, view: View) -> "Catalog":
        if view.scopes:
            # Scopes first: a path to what the caller may not see has to fail exactly like one to what does not exist.
            limited = self._limit_cached(view.scopes)
            return limited if view.path == EVERYTHING else limited.narrow(view.path)
        return self._select(view, view.names(self.tags))

    def _limit(self, scopes: tuple[Scope, ...]) -> "Catalog":
        view = View(scopes=scopes)
        with_tools = {tool.provider for name, tool in self._tools.items() if view.admits(name) and view.allows(tool)}
        visible = {
            name
            for name, tags in self.tags.items()
            if view.shows(name, tags) and (name in with_tools or view.shows_whole(name, tags))
        }
        return self._select(view, visible)

    def _select(self, view: View, providers: Iterable[PluginName]) -> "Catalog":
        tools: dict[PluginName, dict[ToolName, ProvidedTool]] = {name: {} for name in providers}
        quarantined: dict[PluginName, dict[ToolName, ProvidedTool]] = {name: {} for name in tools}
        for candidates, selected in ((self._tools, tools), (self._quarantined, quarantined)):
            for name, tool in candidates.items():
                if tool.provider in selected and view.admits(name):
                    if view.allows(tool):
                        selected[tool.provider][name] = tool
                    else:
                        # Not listed, and answers every call with the reason, which a name that is unknown would hide.
                        quarantined[tool.provider][name] = forbid(tool)
        return Catalog(
            (
                FilteredProvider(
                    name=name,
                    tools=selected,
                    quarantined=quarantined[name],
                    tags=self.tags[name],
                    description=self.descriptions[name],
                )
                for name, selected in tools.items()
            ),
            is_bare=view.is_bare,
        )

    def _similar_names(self, name: str) -> list[str]:
        """Preselect by shared trigrams: an edit distance to thousands of names would block the event loop."""
        wanted = _trigrams(name[:128])
        return heapq.nlargest(_MAX_COMPARED, self._neighbors(name), key=lambda other: len(wanted & _trigrams(other)))

    def _neighbors(self, name: str) -> Sequence[str]:
        """Return all names, or where there are too many those next to this one in alphabetical order."""
        if len(self._names) <= _MAX_SCANNED:
            return self._names
        server, separator, tool = name.partition("__")
        if (
            separator
            and server not in self.tags
            and (near := nearest_name(server, self.servers[:_MAX_SCANNED])) is not None
        ):
            name = f"{near}{separator}{tool}"
        start = max(0, bisect_left(self._names, name) - _MAX_SCANNED // 2)
        return self._names[start : start + _MAX_SCANNED]

    @cached_property
    def _names(self) -> Sequence[str]:
        return sorted(map(self.listed_name, self))


def _trigrams(name: str) -> frozenset[str]:
    folded = f"  {name.lower()} "
    return frozenset(folded[start : start + 3] for start in range(len(folded) - 2))
