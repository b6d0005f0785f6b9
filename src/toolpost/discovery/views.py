"""What somebody sees of all tools: everything, one source's, or those of the servers that carry a tag.

A source without tags is seen through no tag: what nobody has labelled is not shown by accident.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from toolpost.contracts.errors import ContractRefused, NotFound
from toolpost.contracts.ids import PluginName, ToolName
from toolpost.contracts.nearest import nearest_name
from toolpost.sources import HeldTool, Source

Tags = frozenset[str]


@dataclass(frozen=True, kw_only=True)
class View:
    """Which sources are seen. With neither of both, all are."""

    source: str | None = None
    tags: Tags | None = None

    def names(self, known: Mapping[PluginName, Tags]) -> frozenset[PluginName]:
        """Choose among the sources that there are; one that looks for what nobody has is an error."""
        if self.source is not None:
            return frozenset({_known(self.source, known)})
        if self.tags is not None:
            return _tagged(self.tags, known)
        return frozenset(known)


EVERYTHING: Final = View()


@dataclass(frozen=True, kw_only=True)
class Excerpt:
    """The tools of one source as a catalogue held them; a source itself."""

    name: PluginName
    tools: Mapping[ToolName, HeldTool]
    refused: Sequence[ContractRefused] = ()


def tags_of(source: Source) -> Tags:
    """Return the tags of a source; a plugin has none."""
    spec = getattr(source, "spec", None)
    return frozenset(spec.tags) if spec is not None else frozenset()


def _known(name: str, known: Mapping[PluginName, Tags]) -> PluginName:
    if name in known:
        return PluginName(name)
    raise NotFound(
        f"No server or plugin is called `{name[:128]}`.", hint=_hint(name, known, "sources"), source=name[:128]
    )


def _tagged(tags: Tags, known: Mapping[PluginName, Tags]) -> frozenset[PluginName]:
    if not tags:
        raise NotFound("No tag is named.", hint="name one or more, with commas between them")
    there = frozenset[str]().union(*known.values())
    for tag in sorted(tags - there):
        raise NotFound(f"No server carries the tag `{tag[:128]}`.", hint=_hint(tag, there, "tags"), tag=tag[:128])
    return frozenset(name for name, own in known.items() if own & tags)


def _hint(name: str, known: Iterable[str], what: str) -> str | None:
    there: Collection[str] = sorted(known)
    if near := nearest_name(name[:128], there):
        return f"did you mean `{near}`?"
    return f"the {what} here: {', '.join(there)[:500]}" if there else None
