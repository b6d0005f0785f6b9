"""Which tools a caller sees: everything, or the selection of the request's path, within the scopes of caller and endpoint.

A provider without tags is selected by no tag, so that nothing is shown by accident. What a view does not show does not exist
for its caller: no list, no search and no "did you mean" names it.

Example: `/tags/dev` with a caller limited to `github__get_*` shows the tools of `github` that start with `get_`, if the
server `github` carries the tag `dev`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from toolpost.base import PluginName, Scope, ToolName, nearest_name
from toolpost.contracts.errors import ContractRefused, NotFound
from toolpost.providers import ProvidedTool, Provider

Tags = frozenset[str]

SEPARATOR: Final = "__"


@dataclass(frozen=True, kw_only=True)
class View:
    """Which providers and tools are visible. With nothing set, all are."""

    source: str | None = None
    """The provider that the path names."""
    is_bare: bool = False
    """Whether its tools and prompts are listed under their own names, without `provider__`."""
    tags: Tags | None = None
    """The tags that the path names; a provider needs one of them."""
    scopes: tuple[Scope, ...] = ()
    """The scopes of caller and endpoint; all of them apply."""
    owner: str = ""
    """Whose tools of servers with credentials per caller are shown; empty where no server has them."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Computed once: every call of a limited caller looks its view up in a cache.
        object.__setattr__(self, "_hash", hash((self.source, self.is_bare, self.tags, self.scopes, self.owner)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def path(self) -> "View":
        """This view without scopes and owner."""
        return replace(self, scopes=(), owner="") if self.scopes or self.owner else self

    def of_owner(self, owner: str) -> "View":
        """Return this view of another owner's tools; `EVERYTHING` itself if nothing else is limited."""
        if owner == self.owner:
            return self
        view = replace(self, owner=owner)
        return EVERYTHING if view == EVERYTHING else view

    def within(self, scopes: tuple[Scope, ...]) -> "View":
        """Return this view limited to `scopes`, which replace its own."""
        return replace(self, scopes=scopes) if scopes else self

    def shows(self, name: str, tags: Tags) -> bool:
        """Whether a provider with this name and these tags is visible; some of its tools may not be."""
        on_path = (self.source is None or self.source == name) and (self.tags is None or bool(self.tags & tags))
        return on_path and all(scope.carries(tags) for scope in self.scopes)

    def admits(self, *names: str) -> bool:
        """Whether a tool or prompt with these names is visible, provided that its provider is."""
        return all(scope.admits(*names) for scope in self.scopes)

    def allows(self, tool: ProvidedTool) -> bool:
        """Whether a tool that is visible by its name may be called by what it is annotated with."""
        return all(_allows(scope, tool) for scope in self.scopes)

    def own_name(self, name: str) -> str:
        """Return the name under which the prompt `provider__name` is listed."""
        return name.removeprefix(f"{self.source}{SEPARATOR}") if self.is_bare else name

    def full_name(self, name: str) -> str:
        """Return the `provider__name` of a prompt from the name that it is listed under."""
        return f"{self.source}{SEPARATOR}{name}" if self.is_bare else name

    def shows_whole(self, name: str, tags: Tags) -> bool:
        """Whether the resources of a provider are visible too.

        They have no name to match: `server__*` shows them, `server__get_*` does not.
        """
        return self.shows(name, tags) and self.admits(f"{name}{SEPARATOR}")

    def names(self, known: Mapping[PluginName, Tags]) -> frozenset[PluginName]:
        """Return the visible providers among `known`; raise `NotFound` if the path names one, or a tag, that is not known."""
        if self.source is not None and self.source not in known:
            hint = _hint(self.source, known, "servers and plugins")
            raise NotFound(f"Unknown server or plugin `{self.source[:128]}`.", hint=hint, source=self.source[:128])
        if self.tags is not None:
            if not self.tags:
                raise NotFound("The path has no tag.", hint="name one or more, with commas between them")
            all_tags = frozenset[str]().union(*known.values())
            for tag in sorted(self.tags - all_tags):
                raise NotFound(
                    f"No server has the tag `{tag[:128]}`.", hint=_hint(tag, all_tags, "tags"), tag=tag[:128]
                )
        return frozenset(name for name, tags in known.items() if self.shows(name, tags))


EVERYTHING: Final = View()
NOTHING: Final = View(tags=frozenset())


@dataclass(frozen=True, kw_only=True)
class FilteredProvider:
    """Some tools of a provider; itself a provider, so that a catalog can be made of it."""

    name: PluginName
    tools: Mapping[ToolName, ProvidedTool]
    quarantined: Mapping[ToolName, ProvidedTool]
    tags: Tags = frozenset()
    refused: Sequence[ContractRefused] = ()
    description: str = ""
    is_complete: bool = True


def tags_of(provider: object) -> Tags:
    """Return the tags of a provider, or of what a plugin offers besides tools; the tools of a plugin have none."""
    spec = getattr(provider, "spec", provider)
    return frozenset(getattr(spec, "tags", ()))


def is_complete(provider: Provider) -> bool:
    """Whether all tools of a provider are known; those of a server are not before it has listed them."""
    return bool(getattr(provider, "is_complete", True))


def _allows(scope: Scope, tool: ProvidedTool) -> bool:
    contract = tool.contract
    if scope.allows(tool.provider, contract.annotations, is_upstream=contract.is_upstream):
        return True
    # A group is no server that anyone could have confirmed: its tool may be called if those that it stands for may.
    return bool(tool.runs) and all(_allows(scope, each) for each in tool.runs)


def _hint(name: str, known: Iterable[str], what: str) -> str | None:
    names: Collection[str] = sorted(known)
    if near := nearest_name(name[:128], names):
        return f"did you mean `{near}`?"
    return f"the {what} here: {', '.join(names)[:500]}" if names else None
