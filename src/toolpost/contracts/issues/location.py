"""Where a validation error is: which branch of a choice it belongs to, and the value and the schema at that location.

An error of `anyOf` or `oneOf` has the errors of all branches inside it. The sender meant one of them: `BranchSelector` picks the
branch that comes nearest to the value, and only its errors are reported. For example, of the forms

    {"kind": "circle", "radius": 1}    {"kind": "square", "side": 1}

the value `{"kind": "square", "sied": 2}` has the `kind` of the second: what is wrong with it as a circle is not reported.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from toolpost.base.ids import Json, JsonObject
from toolpost.base.values import Path, is_among, type_of, unique, value_at
from toolpost.contracts.display import fixed_values_of, shorten, to_json_text, truncate
from toolpost.contracts.document import SchemaDocument, is_write_only, to_pointer
from toolpost.contracts.schema import ValidationError
from toolpost.contracts.schema import ValidationErrorKind as Kind

# Below these keywords a step is a property's name, which may be spelled like a keyword.
_MAPS_BY_NAME = [[word] for word in ("dependencies", "dependentSchemas", "patternProperties", "properties")]


@dataclass(frozen=True)
class LeafError:
    """An error to report; `merged_options` are the values that several branches would have accepted in its place."""

    error: ValidationError
    merged_options: list[Json] | None = None

    @cached_property
    def path(self) -> Path:
        return tuple(self.error.instance_path)

    @property
    def options(self) -> list[Json]:
        """The fixed values that would have been accepted; empty for most errors."""
        return fixed_values_of_error(self.error.kind) if self.merged_options is None else self.merged_options

    @property
    def unexpected(self) -> list[str]:
        """The names of undeclared properties."""
        kind = self.error.kind
        if isinstance(kind, Kind.AdditionalProperties | Kind.UnevaluatedProperties):
            return kind.unexpected
        return []

    @property
    def is_closed_object(self) -> bool:
        """Whether this is `additionalProperties: false` without `properties` beside it.

        The validator reports it as a false schema of the whole object.
        """
        steps = self.error.evaluation_path
        is_last = steps[-1:] == ["additionalProperties"] and steps[-2:-1] not in _MAPS_BY_NAME
        return is_last and isinstance(self.error.kind, Kind.FalseSchema)


def fixed_values_of_error(kind: Kind) -> list[Json]:
    """Return the values that a broken `const` or `enum` accepts."""
    match kind:
        case Kind.Constant(expected_value=option):
            return [option]
        case Kind.Enum(options=options):
            return list(options)
    return []


class BranchSelector:
    """Picks branches of `anyOf` and `oneOf` for one invalid value."""

    def __init__(self, document: SchemaDocument, value: Json) -> None:
        self._document = document
        self._value = value

    def select(self, error: ValidationError) -> list[LeafError]:
        """Return the errors of the nearest branch; the error itself if it is no choice, or no branch is nearest."""
        match error.kind:
            case Kind.AnyOf(context=context) | Kind.OneOfNotValid(context=context):
                return self._nearest(error, context) or [LeafError(error)]
        return [LeafError(error)]

    def _nearest(self, error: ValidationError, context: list[list[ValidationError]]) -> list[LeafError]:
        branches = [[leaf for inner in errors for leaf in self.select(inner)] for errors in context]
        base = tuple(error.instance_path)
        if joined := _merge_discriminators(branches, [base]):
            return joined
        value = value_at(self._value, base)
        fitting = [
            number
            for number, branch in enumerate(branches)
            if not any(leaf.path == base and _is_type_mismatch(leaf, value) for leaf in branch)
        ]
        if not fitting:
            # `null` is how a branch says "optional": with one other branch, that one was meant.
            others = [branch for branch in branches if not _accepts_null(branch)]
            return others[0] if len(others) == 1 else []
        if self._is_only_fixed(branches, fitting, base):
            return []
        children = [leaf.path for leaf in branches[fitting[0]] if len(leaf.path) == len(base) + 1]
        return _merge_discriminators([branches[number] for number in fitting], children) or self._best(
            error, branches, fitting
        )

    def _is_only_fixed(self, branches: list[list[LeafError]], fitting: list[int], base: Path) -> bool:
        """Whether the branches of the value's type are fixed values beside other types, as in `anyOf: [integer, ""]`.

        A text is then not nearer to `""` than to an integer: all forms are listed.
        """
        others = [
            branch for number, branch in enumerate(branches) if number not in fitting and not _accepts_null(branch)
        ]
        return bool(others) and all(
            leaf.path == base and leaf.options for number in fitting for leaf in branches[number]
        )

    def _best(self, error: ValidationError, branches: list[list[LeafError]], fitting: list[int]) -> list[LeafError]:
        ranked: list[tuple[tuple[int, int, int, int], int]] = []
        for number in fitting:
            right, wrong = self._count_constants(error, number)
            weight = sum(max(1, len(leaf.unexpected)) for leaf in branches[number])
            deepest = max((len(leaf.path) for leaf in branches[number]), default=0)
            # A wrong discriminator counts most, then right ones, then fewer errors, then errors deeper inside.
            ranked.append(((min(wrong, 1), -right, weight, -deepest), number))
        ranked.sort()
        best = branches[ranked[0][1]]
        # Two branches equally near, wrong at the root: neither was clearly meant, and all forms are listed instead.
        is_tie = len(ranked) > 1 and ranked[0][0] == ranked[1][0]
        is_shallow = all(leaf.path == tuple(error.instance_path) for leaf in best)
        return [] if is_tie and is_shallow else best

    def _count_constants(self, error: ValidationError, number: int) -> tuple[int, int]:
        """Count the `const` and `enum` properties of a branch that the value has right, and those that it has wrong."""
        value = value_at(self._value, error.instance_path)
        steps = [*error.evaluation_path, number]
        trail = self._document.follow(steps)
        place, branch = trail[-1]
        if len(trail) <= len(steps) or not isinstance(branch, dict) or not isinstance(value, dict):
            return 0, 0
        verdicts = [
            is_among(value[name], options)
            for name, (_, child) in self._document.find_declarations(place, branch).items()
            if name in value and (options := fixed_values_of(child)) is not None
        ]
        return verdicts.count(True), verdicts.count(False)


def _merge_discriminators(branches: list[list[LeafError]], paths: Iterable[Path]) -> list[LeafError]:
    """Merge branches that differ in one fixed value into one error with the values of all: `kind` is `circle` or `square`."""
    for path in paths:
        fixed = [[leaf for leaf in branch if leaf.path == path and leaf.options] for branch in branches]
        if len(branches) > 1 and all(fixed):
            options = [option for leaves in fixed for option in leaves[0].options]
            return [LeafError(fixed[0][0].error, unique(options))]
    return []


def _accepts_null(branch: list[LeafError]) -> bool:
    return any(isinstance(leaf.error.kind, Kind.Type) and leaf.error.kind.types == ["null"] for leaf in branch)


def _is_type_mismatch(leaf: LeafError, value: Json) -> bool:
    match leaf.error.kind:
        case Kind.Type(types=types):
            return not ("integer" in types and type_of(value) == "number")
        case Kind.FalseSchema():
            return not leaf.is_closed_object
        case Kind.Constant() | Kind.Enum():
            return all(type_of(option) != type_of(value) for option in leaf.options)
        case Kind.AnyOf(context=context) | Kind.OneOfNotValid(context=context):
            return all(any(_is_type_mismatch(LeafError(inner), value) for inner in branch) for branch in context)
    return False


@dataclass(frozen=True, kw_only=True)
class Location:
    """An error with the value and the schema that its wording needs."""

    kind: Kind
    keyword: str
    path: Path
    steps: Path
    """The evaluation path: the steps through the schema to the broken keyword, through its references."""
    value: Json
    unexpected: list[str]
    place: str
    schema: JsonObject
    """The schema that holds the broken keyword, at `place`."""
    merged_options: list[Json] | None
    is_secret: bool
    is_optional: bool

    @property
    def where(self) -> str:
        """The location as a sentence names it."""
        return f"`{truncate(to_pointer(self.path))}`" if self.path else "the value"

    @property
    def is_undecided(self) -> bool:
        """Whether this is a choice of which no branch came nearest."""
        return self.merged_options is None and isinstance(self.kind, Kind.AnyOf | Kind.OneOfNotValid)

    def quote(self, value: Json) -> str | None:
        """Return a scalar as JSON text, None if it is secret, too long, or no scalar."""
        if self.is_secret or isinstance(value, dict | list):
            return None
        text = to_json_text(shorten(value))
        return text if len(text) <= 80 else None


def locate(leaf: LeafError, document: SchemaDocument, root: Json) -> Location:
    """Look up an error in the schema and in the value."""
    error = leaf.error
    trail = document.follow(error.evaluation_path)
    is_whole = len(trail) > len(error.evaluation_path)
    place, schema = trail[-2:][0]
    value = value_at(root, leaf.path)
    return Location(
        kind=error.kind,
        keyword="additionalProperties" if leaf.is_closed_object else error.kind.name,
        path=leaf.path,
        steps=tuple(error.evaluation_path),
        value=value,
        unexpected=list(value or ()) if leaf.is_closed_object else leaf.unexpected,
        place=place,
        schema=schema if is_whole and isinstance(schema, dict) else {},
        merged_options=leaf.merged_options,
        is_secret=document.is_secret(leaf.path) or any(is_write_only(node) for _, node in trail),
        is_optional=_is_optional(leaf, trail),
    )


def _is_optional(leaf: LeafError, trail: list[tuple[str, Json]]) -> bool:
    """Return whether the object around the property declares it without requiring it."""
    steps, path = leaf.error.evaluation_path, leaf.path
    for number in reversed(range(len(steps) - 1)):
        if steps[number] == "properties" and path and steps[number + 1] == path[-1] and number < len(trail):
            around = trail[number][1]
            return isinstance(around, dict) and path[-1] not in around.get("required", ())
    return False
