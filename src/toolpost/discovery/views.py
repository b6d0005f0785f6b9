"""What somebody sees of all tools: everything, or what a path shows, within what caller and endpoint are limited to.

A source without tags is seen through no tag: what nobody has labelled is not shown by accident. What is not seen does not
exist: no list, no search and no "did you mean" names it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from toolpost.base.caller import Scope
from toolpost.base.ids import PluginName, ToolName
from toolpost.base.nearest import nearest_name
from toolpost.contracts.errors import ContractRefused, NotFound
from toolpost.providers import ProvidedTool, Provider

Tags = frozenset[str]

SEPARATOR: Final = "__"


@dataclass(frozen=True, kw_only=True)
class View:
    """Which sources and tools are seen. With nothing set, all are."""

    source: str | None = None
    """The one source that a path names."""
    is_bare: bool = False
    """Whether the one source's tools and prompts go by their own names, without `source__`."""
    tags: Tags | None = None
    """The tags that a path names."""
    scopes: tuple[Scope, ...] = ()
    """What the caller and the endpoint are limited to; all of them hold."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Every call of a limited caller looks its view up.
        object.__setattr__(self, "_hash", hash((self.source, self.is_bare, self.tags, self.scopes)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def path(self) -> "View":
        """What the path alone shows."""
        return replace(self, scopes=()) if self.scopes else self

    def within(self, scopes: tuple[Scope, ...]) -> "View":
        """Return the same, seen by somebody who is limited to these scopes."""
        return replace(self, scopes=scopes) if scopes else self

    def shows(self, name: str, tags: Tags) -> bool:
        """Whether a source of this name and with these tags is seen; some of its tools may not be."""
        on_path = (self.source is None or self.source == name) and (self.tags is None or bool(self.tags & tags))
        return on_path and all(scope.carries(tags) for scope in self.scopes)

    def admits(self, name: str) -> bool:
        """Whether a tool or a prompt of this name is seen, if its source is."""
        return all(scope.admits(name) for scope in self.scopes)

    def own_name(self, name: str) -> str:
        """Return the name under which a prompt called `source__name` is listed here."""
        return name.removeprefix(f"{self.source}{SEPARATOR}") if self.is_bare else name

    def full_name(self, name: str) -> str:
        """Return the `source__name` of a prompt that a client names here."""
        return f"{self.source}{SEPARATOR}{name}" if self.is_bare else name

    def shows_whole(self, name: str, tags: Tags) -> bool:
        """Whether a source is seen with what has no name to match, its resources: `server__*` shows them, `server__get_*` not."""
        return self.shows(name, tags) and self.admits(f"{name}{SEPARATOR}")

    def names(self, known: Mapping[PluginName, Tags]) -> frozenset[PluginName]:
        """Choose among the sources that there are; a path to what nobody has is an error."""
        if self.source is not None:
            _check_name(self.source, known)
        if self.tags is not None:
            _check_tags(self.tags, frozenset[str]().union(*known.values()))
        return frozenset(name for name, tags in known.items() if self.shows(name, tags))


EVERYTHING: Final = View()
NOTHING: Final = View(tags=frozenset())


@dataclass(frozen=True, kw_only=True)
class Excerpt:
    """The tools of one source as a catalogue held them; a source itself."""

    name: PluginName
    tools: Mapping[ToolName, ProvidedTool]
    quarantined: Mapping[ToolName, ProvidedTool]
    tags: Tags = frozenset()
    refused: Sequence[ContractRefused] = ()
    description: str = ""


def tags_of(source: Provider) -> Tags:
    """Return the tags that a source carries itself; a plugin has none."""
    if isinstance(source, Excerpt):
        return source.tags
    spec = getattr(source, "spec", None)
    return frozenset(spec.tags) if spec is not None else frozenset()


def _check_name(name: str, known: Collection[str]) -> None:
    if name not in known:
        hint = _hint(name, known, "sources")
        raise NotFound(f"No server or plugin is called `{name[:128]}`.", hint=hint, source=name[:128])


def _check_tags(tags: Tags, known: Tags) -> None:
    if not tags:
        raise NotFound("No tag is named.", hint="name one or more, with commas between them")
    for tag in sorted(tags - known):
        raise NotFound(f"No server carries the tag `{tag[:128]}`.", hint=_hint(tag, known, "tags"), tag=tag[:128])


def _hint(name: str, known: Iterable[str], what: str) -> str | None:
    there: Collection[str] = sorted(known)
    if near := nearest_name(name[:128], there):
        return f"did you mean `{near}`?"
    return f"the {what} here: {', '.join(there)[:500]}" if there else None
