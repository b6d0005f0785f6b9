"""Which branch of a choice comes nearest to a value: its faults are told, those of the others are not."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from toolpost.base.ids import Json
from toolpost.base.values import Path, is_among, type_of, unique, value_at
from toolpost.contracts.document import Document
from toolpost.contracts.schema import ValidationError
from toolpost.contracts.schema import ValidationErrorKind as Kind
from toolpost.contracts.shown import options_of

# Below these, a step is the name of a property, and may spell a keyword by chance.
_NAMED_BY_THE_AUTHOR = [[word] for word in ("dependencies", "dependentSchemas", "patternProperties", "properties")]


@dataclass(frozen=True)
class Leaf:
    """An error worth telling. `joined` is what several branches would have taken in its place."""

    error: ValidationError
    joined: list[Json] | None = None

    @cached_property
    def path(self) -> Path:
        """Where in the value the error is."""
        return tuple(self.error.instance_path)

    @property
    def options(self) -> list[Json]:
        """The fixed values that would have been right; none for most errors."""
        return constants_of(self.error.kind) if self.joined is None else self.joined

    @property
    def unexpected(self) -> list[str]:
        """The names of the properties that nobody declared."""
        kind = self.error.kind
        if isinstance(kind, Kind.AdditionalProperties | Kind.UnevaluatedProperties):
            return kind.unexpected
        return []

    @property
    def takes_nothing(self) -> bool:
        """Whether this is a false `additionalProperties` without `properties` beside it.

        The validator tells it as a false schema of the whole object.
        """
        steps = self.error.evaluation_path
        is_last = steps[-1:] == ["additionalProperties"] and steps[-2:-1] not in _NAMED_BY_THE_AUTHOR
        return is_last and isinstance(self.error.kind, Kind.FalseSchema)


def constants_of(kind: Kind) -> list[Json]:
    """Return the values that a `const` or an `enum` would have taken."""
    match kind:
        case Kind.Constant(expected_value=option):
            return [option]
        case Kind.Enum(options=options):
            return list(options)
    return []


class Branches:
    """The choices of one schema, as one invalid value meets them."""

    def __init__(self, document: Document, value: Json) -> None:
        self._document = document
        self._value = value

    def leaves(self, error: ValidationError) -> list[Leaf]:
        """Return the error, or what is wrong in its nearest branch when one is nearest."""
        match error.kind:
            case Kind.AnyOf(context=context) | Kind.OneOfNotValid(context=context):
                return self._nearest(error, context) or [Leaf(error)]
        return [Leaf(error)]

    def _nearest(self, error: ValidationError, context: list[list[ValidationError]]) -> list[Leaf]:
        branches = [[leaf for inner in errors for leaf in self.leaves(inner)] for errors in context]
        base = tuple(error.instance_path)
        if joined := _join_branches(branches, [base]):
            return joined
        value = value_at(self._value, base)
        fitting = [number for number, branch in enumerate(branches) if not _misses_type(branch, base, value)]
        if not fitting:
            wanted = [branch for branch in branches if not _wants_null(branch)]
            return wanted[0] if len(wanted) == 1 else []
        children = [leaf.path for leaf in branches[fitting[0]] if len(leaf.path) == len(base) + 1]
        return _join_branches([branches[number] for number in fitting], children) or self._best(
            error, branches, fitting
        )

    def _best(self, error: ValidationError, branches: list[list[Leaf]], fitting: list[int]) -> list[Leaf]:
        ranked = sorted((self._remoteness(error, number, branches[number]), number) for number in fitting)
        best = branches[ranked[0][1]]
        is_tie = len(ranked) > 1 and ranked[0][0] == ranked[1][0]
        is_shallow = all(leaf.path == tuple(error.instance_path) for leaf in best)
        return [] if is_tie and is_shallow else best

    def _remoteness(self, error: ValidationError, number: int, branch: list[Leaf]) -> tuple[int, int, int, int]:
        hits, misses = self._count_constants(error, number)
        deepest = max((len(leaf.path) for leaf in branch), default=0)
        weight = sum(max(1, len(leaf.unexpected)) for leaf in branch)
        return (min(misses, 1), -hits, weight, -deepest)

    def _count_constants(self, error: ValidationError, number: int) -> tuple[int, int]:
        """Count the fixed values of a branch that the value has, and those that it has otherwise."""
        value = value_at(self._value, error.instance_path)
        steps = [*error.evaluation_path, number]
        trail = self._document.trail(steps)
        place, branch = trail[-1]
        if len(trail) <= len(steps) or not isinstance(branch, dict) or not isinstance(value, dict):
            return 0, 0
        verdicts = [
            is_among(value[name], options)
            for name, (_, child) in self._document.declarations(place, branch).items()
            if name in value and (options := options_of(child)) is not None
        ]
        return verdicts.count(True), verdicts.count(False)


def _join_branches(branches: list[list[Leaf]], paths: Iterable[Path]) -> list[Leaf]:
    """Join branches that differ in one fixed value: `kind` is a circle here, a square there."""
    for path in paths:
        told = [[leaf for leaf in branch if leaf.path == path and leaf.options] for branch in branches]
        if len(branches) > 1 and all(told):
            options = [option for leaves in told for option in leaves[0].options]
            return [Leaf(told[0][0].error, unique(options))]
    return []


def _wants_null(branch: list[Leaf]) -> bool:
    return any(isinstance(leaf.error.kind, Kind.Type) and leaf.error.kind.types == ["null"] for leaf in branch)


def _misses_type(branch: list[Leaf], base: Path, value: Json) -> bool:
    return any(leaf.path == base and _is_of_another_type(leaf, value) for leaf in branch)


def _is_of_another_type(leaf: Leaf, value: Json) -> bool:
    match leaf.error.kind:
        case Kind.Type(types=types):
            return not ("integer" in types and type_of(value) == "number")
        case Kind.FalseSchema():
            return not leaf.takes_nothing
        case Kind.Constant() | Kind.Enum():
            return all(type_of(option) != type_of(value) for option in leaf.options)
        case Kind.AnyOf(context=context) | Kind.OneOfNotValid(context=context):
            return all(any(_is_of_another_type(Leaf(inner), value) for inner in branch) for branch in context)
    return False
