"""A catalog at one moment with its search index, and a view's part of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

import msgspec

from toolpost.base.ids import Json, JsonObject, PluginName, ToolName
from toolpost.base.method_caches import cache_method
from toolpost.contracts.digest import digest_of_bytes
from toolpost.discovery.catalog import SCOPES_LIMIT, Catalog
from toolpost.discovery.search import SearchIndex, ToolDocument, estimate_tokens
from toolpost.discovery.views import EVERYTHING, View
from toolpost.providers import ProvidedTool

_encode = msgspec.json.Encoder().encode
_DIGEST_PART = slice(7, 23)
"""16 hex digits after `sha256:`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolEntry:
    """One tool as a search returns it."""

    definition: JsonObject
    """The definition as `tools/list` has it: what a search returns is never a changed one."""
    server: PluginName
    digest: str
    """A part of the digest of the definition; enough to notice a change."""
    tokens: int
    """The estimated tokens of the definition."""

    @property
    def description(self) -> str:
        return _text(self.definition.get("description"))


class Snapshot:
    """A catalog with its search index; immutable."""

    def __init__(self, catalog: Catalog, entries: Mapping[ToolName, ToolEntry], index: SearchIndex) -> None:
        self.catalog = catalog
        self.entries = entries
        self.index = index
        self._by_owner: dict[str, Snapshot] = {}
        self._narrow_cached = cache_method(self._narrow, SCOPES_LIMIT)

    @classmethod
    def prepare(cls, catalog: Catalog, previous: "Snapshot | None" = None) -> "Snapshot":
        """Index a catalog; tools that `previous` has unchanged are not read again. Pure computation: run it in a thread."""
        known = previous.entries if previous else {}
        # Tools for apps alone are left out: all tools here are for models.
        tools = [tool for tool in catalog if tool.contract.is_for_models]
        entries = {tool.contract.name: _make_entry(tool, known.get(tool.contract.name)) for tool in tools}
        instructions = catalog.descriptions
        documents = [_make_document(name, entry, instructions.get(entry.server, "")) for name, entry in entries.items()]
        return cls(catalog, entries, SearchIndex.prepare(documents, previous.index if previous else None))

    def narrow(self, view: View) -> "VisibleTools":
        """Return what a view shows; cached."""
        return self._narrow_cached(view)

    def for_owner(self, owner: str) -> "Snapshot":
        """Return the snapshot of the tools that servers list to this owner; made once. Pure computation: run it in a thread."""
        catalog = self.catalog.for_owner(owner)
        if catalog is self.catalog:
            return self
        made = self._by_owner.get(owner)
        # The catalog of an owner is replaced when a server lists other tools to it.
        if made is None or made.catalog is not catalog:
            while len(self._by_owner) >= SCOPES_LIMIT:
                self._by_owner.pop(next(iter(self._by_owner)), None)
            made = self._by_owner[owner] = Snapshot.prepare(catalog, self)
        return made

    def _narrow(self, view: View) -> "VisibleTools":
        catalog = self.catalog.narrow(view)
        tools = [tool for tool in catalog if tool.contract.is_for_models]
        names = tuple(tool.contract.name for tool in tools)
        # On the path of one server its tools are listed under other names than everywhere else.
        listed = {tool.contract.name: catalog.listed_definition(tool) for tool in tools} if view.is_bare else {}
        return VisibleTools(self, names, among=None if view is EVERYTHING else frozenset[str](names), listed=listed)


class VisibleTools:
    """The part of a snapshot that one view shows. Answers to a caller are made from this alone, counts and etag included."""

    def __init__(
        self,
        snapshot: Snapshot,
        names: Sequence[ToolName],
        *,
        among: frozenset[str] | None,
        listed: Mapping[ToolName, JsonObject],
    ) -> None:
        """`listed` has the definitions that are listed under other names in this view."""
        self._entries = snapshot.entries
        self.index = snapshot.index
        self.names = names
        self.among = among
        self._listed = listed

    def __contains__(self, name: str) -> bool:
        return name in self._entries if self.among is None else name in self.among

    def __len__(self) -> int:
        return len(self.names)

    def entry(self, name: str) -> ToolEntry:
        return self._entries[ToolName(name)]

    def listed_definition(self, name: str) -> JsonObject:
        """Return the definition of a tool as `tools/list` has it in this view."""
        return self._listed.get(ToolName(name)) or self.entry(name).definition

    def listed_name(self, name: str) -> str:
        return str(self.listed_definition(name)["name"])

    @cached_property
    def servers(self) -> Sequence[PluginName]:
        """The servers and plugins that have a visible tool, sorted."""
        return sorted({self._entries[name].server for name in self.names})

    @cached_property
    def etag(self) -> str:
        """Changes when a visible definition is added, changed or removed, and only then."""
        lines = (f"{name} {self._entries[name].digest}" for name in self.names)
        return digest_of_bytes("\n".join(lines).encode()).removeprefix("sha256:")[:32]

    @cached_property
    def tokens(self) -> int:
        """The estimated tokens of listing all visible tools."""
        return sum(self._entries[name].tokens for name in self.names)

    @cached_property
    def round_robin(self) -> Sequence[ToolName]:
        """The tools, one of each server in turn, so that the first few include every server."""
        by_server: dict[PluginName, list[ToolName]] = {}
        for name in self.names:
            by_server.setdefault(self._entries[name].server, []).append(name)
        return tuple(name for turn in zip_longest(*by_server.values()) for name in turn if name is not None)


def _make_entry(tool: ProvidedTool, known: ToolEntry | None) -> ToolEntry:
    contract = tool.contract
    # By identity: a contract that did not change is the same object, and most of thousands did not.
    if known is not None and known.definition is contract.definition:
        return known
    return ToolEntry(
        definition=contract.definition,
        server=tool.provider,
        digest=contract.listing_digest[_DIGEST_PART],
        tokens=estimate_tokens(_encode(contract.definition)),
    )


def _make_document(name: ToolName, entry: ToolEntry, server_description: str) -> ToolDocument:
    definition = entry.definition
    annotations = definition.get("annotations")
    title = definition.get("title") or (annotations.get("title") if isinstance(annotations, dict) else None)
    schema = definition.get("inputSchema")
    return ToolDocument(
        name=name,
        server=entry.server,
        title=_text(title),
        description=entry.description,
        input_schema=schema if isinstance(schema, dict) else {},
        server_description=server_description,
        digest=entry.digest,
    )


def _text(value: Json) -> str:
    """Return the value if it is a string: a server may have sent anything."""
    return value if isinstance(value, str) else ""
