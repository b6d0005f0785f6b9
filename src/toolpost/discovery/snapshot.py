"""The tools of one moment, ready to be searched: what is listed of each, what it costs, and the index of all."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import zip_longest

import msgspec

from toolpost.base.ids import META_KEY, Json, JsonObject, PluginName, ToolName
from toolpost.contracts.contract import Contract
from toolpost.contracts.digest import digest_of_bytes
from toolpost.contracts.envelope import ResultStyle
from toolpost.discovery.catalog import SCOPES_LIMIT, Catalogue
from toolpost.discovery.search import Document, SearchIndex, tokens
from toolpost.discovery.search.fields import described
from toolpost.discovery.views import EVERYTHING, View
from toolpost.providers import ProvidedTool

_encode = msgspec.json.Encoder().encode
_SHORT = slice(7, 23)


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One tool, as a search hands it out."""

    listed: JsonObject
    """The definition as it is listed."""
    definition: JsonObject
    """The same without what only programs read: each of hundreds of definitions costs a model its tokens."""
    server: PluginName
    digest: str
    """Enough of the digest of the definition to see that it has changed."""
    tokens: int
    """What the definition costs where it is handed out."""
    listed_tokens: int
    """What it costs where it is listed."""

    @property
    def description(self) -> str:
        """What it says of itself."""
        return _text(self.definition.get("description"))


class Snapshot:
    """A catalogue with its index. Never changes."""

    def __init__(self, catalogue: Catalogue, entries: Mapping[ToolName, Entry], index: SearchIndex) -> None:
        self.catalogue = catalogue
        self.entries = entries
        self.index = index
        self._visible = lru_cache(maxsize=SCOPES_LIMIT)(self._made_visible)

    @classmethod
    def prepare(cls, catalogue: Catalogue, previous: "Snapshot | None" = None) -> "Snapshot":
        """Make everything that a search needs. Pure computing, for a thread; what has not changed is not read again."""
        known = previous.entries if previous else {}
        entries = {tool.contract.name: _entry(tool, known.get(tool.contract.name)) for tool in catalogue}
        about = catalogue.descriptions
        documents = [_document(name, entry, about.get(entry.server, "")) for name, entry in entries.items()]
        return cls(catalogue, entries, SearchIndex.prepare(documents, previous.index if previous else None))

    def text_of(self, name: ToolName) -> str:
        """Return the sentence that a tool's meaning is taken from."""
        return described(_document(name, self.entries[name], ""))

    def seen_through(self, view: View) -> "Visible":
        """Return what a view shows of it, made once."""
        return self._visible(view)

    def _made_visible(self, view: View) -> "Visible":
        names = tuple(tool.contract.name for tool in self.catalogue.seen_through(view))
        return Visible(self, names, among=None if view is EVERYTHING else frozenset[str](names))


class Visible:
    """What somebody sees of a snapshot: everything that they are told is made of this alone."""

    def __init__(self, snapshot: Snapshot, names: Sequence[ToolName], *, among: frozenset[str] | None) -> None:
        self._entries = snapshot.entries
        self.index = snapshot.index
        self.names = names
        self.among = among

    def __contains__(self, name: str) -> bool:
        return name in self._entries if self.among is None else name in self.among

    def __len__(self) -> int:
        return len(self.names)

    def entry(self, name: str) -> Entry:
        """Return what is known of a tool."""
        return self._entries[ToolName(name)]

    @cached_property
    def servers(self) -> Sequence[PluginName]:
        """The servers and plugins that have any of it."""
        return sorted({self._entries[name].server for name in self.names})

    @cached_property
    def etag(self) -> str:
        """Name these very definitions: another one when any of them changes, comes or goes, and only then."""
        lines = (f"{name} {self._entries[name].digest}" for name in self.names)
        return digest_of_bytes("\n".join(lines).encode()).removeprefix("sha256:")[:32]

    @cached_property
    def tokens(self) -> int:
        """What it would cost to list all of it."""
        return sum(self._entries[name].listed_tokens for name in self.names)

    @cached_property
    def in_turn(self) -> Sequence[ToolName]:
        """The tools, one of each server after the other: the first few show something of every server."""
        by_server: dict[PluginName, list[ToolName]] = {}
        for name in self.names:
            by_server.setdefault(self._entries[name].server, []).append(name)
        return tuple(_dealt(list(by_server.values())))


def _entry(tool: ProvidedTool, known: Entry | None) -> Entry:
    contract = tool.contract
    if known is not None and known.listed is contract.definition:
        return known
    definition = _without_boilerplate(contract)
    return Entry(
        listed=contract.definition,
        definition=definition,
        server=tool.provider,
        digest=contract.listing_digest[_SHORT],
        tokens=tokens(_encode(definition)),
        listed_tokens=tokens(_encode(contract.definition)),
    )


def _without_boilerplate(contract: Contract) -> JsonObject:
    """Leave out our own facts, and the envelope that is around every result of a plugin's tool."""
    kept = dict(contract.definition)
    meta = {key: value for key, value in (kept.pop("_meta", None) or {}).items() if key != META_KEY}
    if meta:
        kept["_meta"] = meta
    if contract.terms.style is ResultStyle.ENVELOPE:
        kept.pop("outputSchema", None)
    return kept


def _dealt(groups: Sequence[Sequence[ToolName]]) -> Iterator[ToolName]:
    for round_ in zip_longest(*groups):
        yield from (name for name in round_ if name is not None)


def _document(name: ToolName, entry: Entry, server_description: str) -> Document:
    definition = entry.definition
    annotations = definition.get("annotations")
    title = definition.get("title") or (annotations.get("title") if isinstance(annotations, dict) else None)
    schema = definition.get("inputSchema")
    return Document(
        name=name,
        server=entry.server,
        title=_text(title),
        description=entry.description,
        input_schema=schema if isinstance(schema, dict) else {},
        server_description=server_description,
        digest=entry.digest,
    )


def _text(value: Json) -> str:
    """Take a text; a server may have sent anything in its place."""
    return value if isinstance(value, str) else ""
