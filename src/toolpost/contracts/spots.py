"""The spot where an error is: the value there, the schema that it breaks, and what may be said of them."""

from dataclasses import dataclass

from toolpost.base.ids import Json, JsonObject
from toolpost.base.values import Path, value_at
from toolpost.contracts.branches import Leaf
from toolpost.contracts.document import Document, is_write_only
from toolpost.contracts.parts import pointer
from toolpost.contracts.schema import ValidationErrorKind as Kind
from toolpost.contracts.shown import as_json, cut, shorten


@dataclass(frozen=True, kw_only=True)
class Spot:
    """One error, with all that its words need."""

    kind: Kind
    keyword: str
    path: Path
    steps: Path
    """The way through the schema that led to the broken keyword."""
    value: Json
    unexpected: list[str]
    place: str
    schema: JsonObject
    """The schema that holds the broken keyword, at `place`."""
    joined: list[Json] | None
    is_secret: bool
    may_leave_out: bool

    @property
    def where(self) -> str:
        """The spot as a sentence names it."""
        return f"`{cut(pointer(self.path))}`" if self.path else "the value"

    @property
    def is_undecided(self) -> bool:
        """Whether no branch of a choice came nearest."""
        return self.joined is None and isinstance(self.kind, Kind.AnyOf | Kind.OneOfNotValid)

    def shown(self, value: Json) -> str | None:
        """Return a scalar as JSON text, or None when it must not or cannot be repeated."""
        if self.is_secret or isinstance(value, dict | list):
            return None
        text = as_json(shorten(value))
        return text if len(text) <= 80 else None


def spot_of(leaf: Leaf, document: Document, root: Json) -> Spot:
    """Look up where an error is, in the schema and in the value."""
    error = leaf.error
    trail = document.trail(error.evaluation_path)
    is_whole = len(trail) > len(error.evaluation_path)
    place, schema = trail[-2:][0]
    value = value_at(root, leaf.path)
    return Spot(
        kind=error.kind,
        keyword="additionalProperties" if leaf.takes_nothing else error.kind.name,
        path=leaf.path,
        steps=tuple(error.evaluation_path),
        value=value,
        unexpected=list(value or ()) if leaf.takes_nothing else leaf.unexpected,
        place=place,
        schema=schema if is_whole and isinstance(schema, dict) else {},
        joined=leaf.joined,
        is_secret=document.is_secret(leaf.path) or any(is_write_only(node) for _, node in trail),
        may_leave_out=_may_leave_out(leaf, trail),
    )


def _may_leave_out(leaf: Leaf, trail: list[tuple[str, Json]]) -> bool:
    """Say whether the object around the property that is wrong declares it without requiring it."""
    steps, path = leaf.error.evaluation_path, leaf.path
    for number in reversed(range(len(steps) - 1)):
        if steps[number] == "properties" and path and steps[number + 1] == path[-1] and number < len(trail):
            around = trail[number][1]
            return isinstance(around, dict) and path[-1] not in around.get("required", ())
    return False
