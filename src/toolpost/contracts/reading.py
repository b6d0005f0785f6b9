"""One invalid value, read against its schema: the validator's errors in, what is told of them out."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from toolpost.base.ids import Json
from toolpost.base.nearest import match_names, slip_of
from toolpost.base.redaction import REDACTED
from toolpost.base.values import ABSENT, Path, value_at
from toolpost.contracts.branches import Branches, Leaf
from toolpost.contracts.document import Document, is_reserved
from toolpost.contracts.parts import own_properties
from toolpost.contracts.schema import Schema, ValidationError
from toolpost.contracts.schema import ValidationErrorKind as Kind
from toolpost.contracts.shown import LIST_LIMIT, cut, shorten, shorten_list, summary
from toolpost.contracts.spots import Spot, spot_of
from toolpost.contracts.wording import Said, wording_of

_SCHEMAS_MERGED = 8
"""A branch is told in a few words: more schemas that describe the same value would not change them."""


@dataclass(frozen=True)
class Told:
    """What is told of one error, before it is cut to size."""

    path: Path
    keyword: str
    said: Said
    received: Json = ABSENT
    is_weak: bool = False
    """A declared property that counts as unknown only because the branch that declares it failed."""


class Reading:
    """The value, its schema, and what they have to do with each other."""

    def __init__(self, schema: Schema, value: Json) -> None:
        self._document = Document(schema.raw if isinstance(schema.raw, dict) else {})
        self._value = value
        self._branches = Branches(self._document, value)

    def told(self, errors: Iterable[ValidationError]) -> list[Told]:
        """Put all errors into words; those of one object are matched with each other first."""
        spots = [self._spot(leaf) for error in errors for leaf in self._branches.leaves(error)]
        renames = self._renames(spots)
        return [told for spot in spots for told in self._explain(spot, renames.get(spot.path, {}))]

    def _spot(self, leaf: Leaf) -> Spot:
        return spot_of(leaf, self._document, self._value)

    def _explain(self, spot: Spot, renames: dict[str, str]) -> Iterator[Told]:
        if spot.unexpected:
            yield from self._unknown(spot, renames)
        elif isinstance(spot.kind, Kind.Required):
            yield Told(spot.path, spot.keyword, _missing(spot, spot.kind.property, renames))
        else:
            said = self._name_forms(spot) if spot.is_undecided else wording_of(spot)
            yield Told(spot.path, said.keyword or spot.keyword, said, _what_was_received(spot))

    def _renames(self, spots: list[Spot]) -> dict[Path, dict[str, str]]:
        """Say for each object which of its unknown names was probably meant to be which known one."""
        renames = {}
        for path in {spot.path for spot in spots if spot.unexpected}:
            here = [spot for spot in spots if spot.path == path]
            unknown = [name for spot in here for name in spot.unexpected]
            missing = [spot.kind.property for spot in here if isinstance(spot.kind, Kind.Required)]
            known = [name for spot in here if spot.unexpected for name in self._allowed_names(spot)]
            present = value_at(self._value, path)
            free = [name for name in known if name not in present]
            renames[path] = match_names(unknown[:LIST_LIMIT], free, missing)
        return renames

    def _allowed_names(self, spot: Spot) -> list[str]:
        if isinstance(spot.kind, Kind.UnevaluatedProperties):
            declared = self._document.declarations(spot.place, spot.schema)
        else:
            declared = own_properties(spot.place, spot.schema)
        return [name for name, (_, child) in declared.items() if not is_reserved(child)]

    def _unknown(self, spot: Spot, renames: dict[str, str]) -> Iterator[Told]:
        allowed = self._allowed_names(spot)
        strangers = set(spot.unexpected).difference(allowed)
        # Of thousands of names only the first are told: only they are worth a comparison with the known ones.
        for name in sorted(strangers or spot.unexpected)[:LIST_LIMIT]:
            meant = renames.get(name)
            suggestion = f"did you mean `{cut(meant)}`?" if meant else None
            said = Said(_unknown_message(spot, name, allowed), shorten_list(allowed), suggestion)
            received = self._what_was_received(spot, name, allowed)
            yield Told((*spot.path, name), spot.keyword, said, received, is_weak=not strangers)

    def _what_was_received(self, spot: Spot, name: str, allowed: list[str]) -> Json:
        path = (*spot.path, name)
        # A slip in the name of a secret does not make its value less of one.
        near = slip_of(name, allowed)
        is_secret = spot.is_secret or self._document.is_secret(path if near is None else (*path, near))
        return REDACTED if is_secret else shorten(value_at(self._value, path))

    def _name_forms(self, spot: Spot) -> Said:
        """Name all the forms that a value may have, and the first repair that any of them suggests."""
        expected = cut(" or ".join(self._forms(spot)))
        context: list[list[ValidationError]] = getattr(spot.kind, "context", [])
        leaves = [leaf for branch in context for inner in branch for leaf in self._branches.leaves(inner)]
        spots = [self._spot(leaf) for leaf in leaves if leaf.path == spot.path]
        suggestions = [wording_of(inner).suggestion for inner in spots if not inner.is_undecided]
        suggestion = next((words for words in suggestions if words), None)
        return Said(f"{spot.where} must be {expected}", expected, suggestion)

    def _forms(self, spot: Spot) -> Iterable[str]:
        branches = spot.schema.get(spot.keyword)
        if not isinstance(branches, list):
            return ["another form"]
        place = f"{spot.place}/{spot.keyword}"
        told = [self._form(f"{place}/{number}", branch) for number, branch in enumerate(branches[:LIST_LIMIT])]
        return dict.fromkeys(told)

    def _form(self, place: str, branch: Json) -> str:
        if isinstance(branch, dict):
            branch = self._document.merged(place, branch, limit=_SCHEMAS_MERGED)
        return summary(branch)


def _missing(spot: Spot, name: str, renames: dict[str, str]) -> Said:
    sent = next((unknown for unknown, known in renames.items() if known == name), None)
    suggestion = f"rename `{cut(sent)}` to `{cut(name)}`" if sent else None
    return Said(f"{spot.where} needs `{cut(name)}`", cut(name), suggestion)


def _unknown_message(spot: Spot, name: str, allowed: list[str]) -> str:
    if isinstance(spot.schema.get(spot.keyword), dict):
        return f"`{cut(name)}` is not a declared property of {spot.where}, and does not fit the others"
    if not allowed:
        return f"`{cut(name)}` is not a known property: {spot.where} takes none by name"
    return f"`{cut(name)}` is not a known property of {spot.where}"


def _what_was_received(spot: Spot) -> Json:
    if spot.is_secret:
        return REDACTED
    # A text that holds an object may hold a secret of any name.
    if isinstance(spot.value, str) and spot.value.lstrip()[:1] in ("{", "["):
        return {"type": "string", "length": len(spot.value)}
    return shorten(spot.value)
