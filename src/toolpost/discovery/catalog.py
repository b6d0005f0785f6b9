"""The catalog: every tool by name, in one order; a name that is unknown is answered with similar ones.

A catalog never changes. When the tools of a provider do, the gateway makes another one.
"""

import heapq
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from toolpost.authoring.context import Context
from toolpost.base import JsonObject, PluginName, Scope, ToolName
from toolpost.base.method_caches import cache_method
from toolpost.base.nearest import nearest_name, nearest_names
from toolpost.contracts.errors import NotReadOnly, UnknownTool
from toolpost.discovery.views import EVERYTHING, FilteredProvider, View, is_complete, tags_of
from toolpost.providers import ProvidedTool, Provider, RawResult

VIEWS_LIMIT = 32
"""How many narrowed catalogs are cached: callers choose the tags of a path, and can combine them in many ways."""

SCOPES_LIMIT = 1_024
"""How many combinations of scopes are cached: more than callers are configured, in practice."""

_MAX_NAMED = 10
"""How many tools the refusal of an ambiguous name mentions."""

_MAX_COMPARED = 40
_MAX_SCANNED = 500
"""A server decides how many names there are, and a caller how often one is missed: 500 names take about 5 ms."""


class Catalog:
    """All tools that can be called, sorted by name, so that a listing does not depend on which provider loaded first."""

    def __init__(
        self,
        sources: Iterable[Provider],
        *,
        tags: Mapping[str, Iterable[str]] | None = None,
        is_bare: bool = False,
        for_everyone: Collection[str] = (),
    ) -> None:
        """Collect the tools of all providers; those of `for_everyone` are in every view.

        `tags` adds tags by the name of a provider, for plugins, which have none of their own. A bare catalog has one provider:
        its tools are listed under their own names, and found by `provider__tool` too.
        """
        providers = list(sources)
        self._is_bare = is_bare
        self._for_everyone = frozenset(provider.name for provider in providers if provider.name in for_everyone)
        # Before the tools are read: a server that lists them in between counts as incomplete, and another catalog follows.
        self._incomplete = frozenset(provider.name for provider in providers if not is_complete(provider))
        tools = {name: tool for provider in providers for name, tool in provider.tools.items()}
        self._tools: Mapping[ToolName, ProvidedTool] = {name: tools[name] for name in sorted(tools)}
        self._quarantined = {name: tool for provider in providers for name, tool in provider.quarantined.items()}
        self._nested = {nested.contract.name: nested for tool in self for nested in tool.runs}
        self._aliases = {alias: tool for tool in self for alias in tool.contract.aliases if alias not in tools}
        # Quarantined tools first, so that a listed one with the same name takes precedence.
        own = [*self._quarantined.values(), *self] if is_bare else []
        # A companion keeps its full name: the provider may have a tool of the same own name.
        own = [tool for tool in own if tool.provider not in self._for_everyone] if self._for_everyone else own
        self._own_aliases = {alias: tool for tool in own for alias in tool.contract.terms.aliases}
        self._own = {tool.contract.terms.name: tool for tool in own}
        self.tags = {
            provider.name: tags_of(provider) | frozenset((tags or {}).get(provider.name, ())) for provider in providers
        }
        self.descriptions = {provider.name: provider.description for provider in providers}
        """The untrusted `instructions` of each provider; indexed, and never shown."""
        self.servers = tuple(sorted({tool.provider for tool in tools.values()}))
        """The servers and plugins that have at least one tool."""
        self.make_for_owner: Callable[[str], Catalog] | None = None
        """Makes the catalog of one owner, where a server has credentials per caller; None where none has."""
        self._by_owner: dict[str, Catalog] = {}
        # Caches of this object, not of its class: they go with the catalog when it is replaced.
        self._narrow_cached = cache_method(self._narrow, VIEWS_LIMIT)
        self._limit_cached = cache_method(self._limit, SCOPES_LIMIT)

    def __iter__(self) -> Iterator[ProvidedTool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def is_complete(self) -> bool:
        """Whether all tools are known: not while a server is slow to start, or waits for a login."""
        return not self._incomplete

    def has_servers_of(self, other: "Catalog") -> bool:
        """Whether both have the same servers with the same tags; their tools may differ."""
        return self.servers == other.servers and self.tags == other.tags

    def find(self, name: str) -> ProvidedTool:
        """Return the tool of this name or alias; raise `UnknownTool` with similar names if there is none.

        Quarantined tools are found too: they answer with what changed.
        """
        wanted = ToolName(name)
        # The order is that of trust: a listed name first, then former names, then what is quarantined.
        tool = self._tools.get(wanted) if not self._is_bare else self._own.get(name) or self._tools.get(wanted)
        if tool is None:
            tool = self._aliases.get(wanted) or self._own_aliases.get(name) or self._quarantined.get(wanted)
        if tool is None and not self._is_bare:
            tool = self._find_for_app(name)
        if tool is not None:
            return tool
        server = PluginName(name.partition("__")[0])
        if server in self.tags and server not in self.servers:
            # Its server has not started yet, or cannot: similar names would be tools of other servers.
            hint = f"nothing is known of the tools of `{server}` yet; `toolpost servers` shows how it is doing"
            raise UnknownTool(
                f"No tool is called `{name[:128]}`.", hint=hint, tool=name[:128], nearest=[], server=server
            )
        # Preselected by shared trigrams: an edit distance to thousands of names would block the event loop.
        trigrams = _trigrams(name[:128])
        similar = heapq.nlargest(_MAX_COMPARED, self._neighbors(name), key=lambda n: len(trigrams & _trigrams(n)))
        near = nearest_names(name, similar, 3)
        hint = f"did you mean {' or '.join(f'`{n}`' for n in near)}?" if near else "`tools/list` names all of them"
        raise UnknownTool(f"Unknown tool `{name[:128]}`.", hint=hint, tool=name[:128], nearest=near)

    def _find_for_app(self, name: str) -> ProvidedTool | None:
        """Return the tool that an app calls by its own server's name for it; raise `UnknownTool` if several servers have it.

        Nothing in a call says which app sends it, so that only a name which one server with an app has is certain.
        """
        found = self._tools_of_apps.get(name, ())
        if len(found) <= 1:
            return found[0] if found else None
        names = sorted(tool.contract.name for tool in found)
        hint = f"call {' or '.join(f'`{one}`' for one in names[:_MAX_NAMED])}"
        raise UnknownTool(
            f"Several servers with apps have a tool `{name[:128]}`.",
            hint=hint,
            tool=name[:128],
            nearest=names[:_MAX_NAMED],
        )

    @cached_property
    def _tools_of_apps(self) -> Mapping[str, Sequence[ProvidedTool]]:
        """What apps may call, by the names that their servers have for it."""
        tools = [*self._tools.values(), *self._quarantined.values()]
        with_apps = {tool.provider for tool in tools if tool.contract.has_app}
        found: dict[str, list[ProvidedTool]] = {}
        for tool in tools:
            if tool.provider in with_apps and tool.contract.is_for_apps:
                found.setdefault(tool.contract.terms.name, []).append(tool)
        return found

    def has(self, name: str) -> bool:
        """Whether a tool has this name or alias, quarantined ones included."""
        return any(ToolName(name) in known for known in (self._tools, self._aliases, self._quarantined))

    def provides(self, tool: ProvidedTool) -> bool:
        """Whether a tool that was found before can be called, with the same contract: not gone, and not quarantined."""
        now = self._tools.get(tool.contract.name) or self._nested.get(tool.contract.name)
        return now is not None and now.contract.digest == tool.contract.digest

    def listed_name(self, tool: ProvidedTool) -> str:
        is_bare = self._is_bare and tool.provider not in self._for_everyone
        return tool.contract.terms.name if is_bare else tool.contract.name

    def listed_definition(self, tool: ProvidedTool) -> JsonObject:
        """Return the definition under the name that is listed here."""
        name, definition = self.listed_name(tool), tool.contract.definition
        return definition if definition["name"] == name else definition | {"name": name}

    def narrow(self, view: View) -> "Catalog":
        """Return the catalog that this view shows; cached.

        Raises `NotFound` if the path of the view names a provider or a tag that the caller does not see.
        """
        if view is EVERYTHING:
            return self
        return self.for_owner(view.owner).narrow(view.of_owner("")) if view.owner else self._narrow_cached(view)

    def for_owner(self, owner: str) -> "Catalog":
        """Return the catalog with the tools that servers list to this owner; made once."""
        if self.make_for_owner is None or owner == "":
            return self
        if (made := self._by_owner.get(owner)) is None:
            while len(self._by_owner) >= SCOPES_LIMIT:
                self._by_owner.pop(next(iter(self._by_owner)), None)
            made = self._by_owner[owner] = self.make_for_owner(owner)
        return made

    def is_ready_for(self, owner: str) -> bool:
        """Whether the catalog of this owner has been made."""
        return self.make_for_owner is None or owner in self._by_owner

    def forget_owner(self, owner: str) -> None:
        """Have the catalog of this owner made again: its tools have changed."""
        self._by_owner.pop(owner, None)

    def _narrow(self, view: View) -> "Catalog":
        if view.scopes:
            # Scopes first: a path to what the caller may not see has to fail exactly like one to what does not exist.
            limited = self._limit_cached(view.scopes)
            return limited if view.path == EVERYTHING else limited.narrow(view.path)
        return self._select(view, view.names(self.tags) | self._for_everyone)

    def _limit(self, scopes: tuple[Scope, ...]) -> "Catalog":
        view = View(scopes=scopes)
        with_tools = {
            tool.provider
            for name, tool in self._tools.items()
            if view.admits(*{name, tool.full_name}) and view.allows(tool)
        }
        # A provider of which no tool is left is hidden with its name, unless the caller sees all of it.
        visible = {
            name
            for name, tags in self.tags.items()
            if view.shows(name, tags) and (name in with_tools or view.shows_whole(name, tags))
        }
        return self._select(view, visible | self._for_everyone)

    def _select(self, view: View, providers: Iterable[PluginName]) -> "Catalog":
        tools: dict[PluginName, dict[ToolName, ProvidedTool]] = {name: {} for name in providers}
        quarantined: dict[PluginName, dict[ToolName, ProvidedTool]] = {name: {} for name in tools}
        for candidates, selected in ((self._tools, tools), (self._quarantined, quarantined)):
            for name, tool in candidates.items():
                is_admitted = tool.provider in self._for_everyone or view.admits(*{name, tool.full_name})
                if tool.provider in selected and is_admitted:
                    if view.allows(tool):
                        selected[tool.provider][name] = tool
                    else:
                        # Not listed, and answers every call with the reason, which a name that is unknown would hide.
                        quarantined[tool.provider][name] = _forbid(tool)
        return Catalog(
            (
                FilteredProvider(
                    name=name,
                    tools=selected,
                    quarantined=quarantined[name],
                    tags=self.tags[name],
                    description=self.descriptions[name],
                    is_complete=name not in self._incomplete,
                )
                for name, selected in tools.items()
            ),
            is_bare=view.is_bare,
            for_everyone=self._for_everyone,
        )

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
        # Suggestions are read by models.
        return sorted(self.listed_name(tool) for tool in self if tool.contract.is_for_models)


def _trigrams(name: str) -> frozenset[str]:
    folded = f"  {name.lower()} "
    return frozenset(folded[start : start + 3] for start in range(len(folded) - 2))


def _forbid(tool: ProvidedTool) -> ProvidedTool:
    """Make the form of a tool that is not annotated read-only, where only such tools may be called."""

    async def refuse(_arguments: JsonObject, _context: Context) -> RawResult:
        raise NotReadOnly(
            f"`{tool.contract.name}` is not marked as read-only, and only such tools may be called in the mode `readonly`.",
            hint="an operator can change `modes.mode`, the caller's `mode`, or name a server in `modes.confirmed`",
        )

    return replace(tool, invoke=refuse, is_refused=True, fast_request=None)
