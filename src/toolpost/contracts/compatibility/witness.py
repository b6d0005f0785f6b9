"""The counter-example: a value that the narrow schema takes and the wide one does not, confirmed by the validator."""

import itertools
from collections.abc import Iterable, Iterator

import msgspec

from toolpost.contracts.compatibility.budget import Budget
from toolpost.contracts.compatibility.limits import types_of, values_of
from toolpost.contracts.compatibility.samples import ANYTHING, LENGTH_LIMIT, TEXTS, Sampler
from toolpost.contracts.compatibility.sides import Node, Side
from toolpost.contracts.compatibility.walk import Difference
from toolpost.contracts.ids import Json
from toolpost.contracts.values import is_among

TRIES = 60
SIZE_LIMIT_BYTES = 4_096

Example = Json | msgspec.UnsetType


class Witnesses:
    """Looks for values that one side takes and the other does not."""

    def __init__(self, narrow: Side, wide: Side, budget: Budget, *, old_is_narrow: bool) -> None:
        self._narrow, self._wide = narrow, wide
        self._budget = budget
        self._old_is_narrow = old_is_narrow
        self._sampler = Sampler(narrow)

    def of_difference(self, difference: Difference) -> Example:
        """Return a value that shows what a difference does."""
        return self._first(self._sampler.around(difference.steps, value) for value in self._candidates(difference))

    def of_schema(self, lost: Json) -> Example:
        """Return a value of the schema that holds just what was lost, or any other that does it."""
        guesses = [] if lost is None else [Sampler(Side(lost)).variants(Node("", lost))]
        return self._first(itertools.chain(*guesses, self._sampler.variants(self._narrow.root), ANYTHING))

    def _first(self, values: Iterable[Json]) -> Example:
        tries = iter(values)
        for _ in range(TRIES):
            if self._budget.is_spent():
                break
            try:
                value = next(tries)
                if self._narrow.admits(value) and self._wide.admits(value) is False and _is_small(value):
                    return value
            except StopIteration:
                break
            except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
                # A schema may be nonsense in ways that no guess foresees; then there is no example.
                break
        return msgspec.UNSET

    def _candidates(self, difference: Difference) -> Iterator[Json]:
        narrow, wide = (difference.old, difference.new) if self._old_is_narrow else (difference.new, difference.old)
        match difference.kind:
            case "property-added" | "property-removed":
                if difference.kind == "property-removed" and not self._old_is_narrow:
                    yield self._object(narrow)
                yield from self._with_property(narrow, difference.name)
            case "required-added" | "required-dropped":
                yield {key: value for key, value in self._object(narrow).items() if key != difference.name}
            case "type":
                yield from self._of_lost_types(narrow, wide)
            case "values":
                yield from self._lost_values(narrow, wide)
            case "bounds":
                yield from self._at_bounds(narrow, wide)
            case "format":
                yield from TEXTS
        yield from self._sampler.variants(narrow)
        yield from ANYTHING

    def _object(self, node: Node) -> dict[str, Json]:
        made = self._sampler.made(Node(node.place, node.schema | {"type": "object"}))
        return made if isinstance(made, dict) else {}

    def _with_property(self, node: Node, name: str) -> Iterator[Json]:
        declared = node.schema.get("properties")
        schema = declared.get(name, True) if isinstance(declared, dict) else True
        inner = node.child(f"/properties/{name}", schema)
        for value in itertools.chain(self._sampler.variants(inner), ANYTHING):
            yield self._object(node) | {name: value}

    def _of_lost_types(self, narrow: Node, wide: Node) -> Iterator[Json]:
        lost = types_of(narrow.schema) - types_of(wide.schema)
        if "number" in lost:
            yield from (0.5, 1.5, 10.5, -0.5)
        for kind in sorted(lost):
            yield self._sampler.made(Node(narrow.place, narrow.schema | {"type": kind}))

    def _lost_values(self, narrow: Node, wide: Node) -> Iterator[Json]:
        some, others = values_of(narrow.schema, self._narrow.draft), values_of(wide.schema, self._wide.draft)
        yield from (value for value in some or () if not is_among(value, others or ()))

    def _at_bounds(self, narrow: Node, wide: Node) -> Iterator[Json]:
        for bound in _bounds(narrow, wide, "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"):
            yield from (bound, bound + 1, bound - 1, bound + 0.5, bound - 0.5)
        for count in _bounds(narrow, wide, "minLength", "maxLength"):
            yield from ("a" * min(int(length), LENGTH_LIMIT) for length in (count, count + 1, count - 1))
        for count in _bounds(narrow, wide, "minItems", "maxItems"):
            yield from (self._sampler.counted(narrow, max(0, int(length))) for length in (count, count + 1, count - 1))
        for count in _bounds(narrow, wide, "minProperties", "maxProperties"):
            wanted = [max(0, int(length)) for length in (count, count + 1, count - 1)]
            yield from (
                self._object(Node(narrow.place, narrow.schema | {"minProperties": number})) for number in wanted
            )
        if "uniqueItems" in wide.schema:
            yield self._sampler.counted(Node(narrow.place, narrow.schema), 2)


def _bounds(narrow: Node, wide: Node, *words: str) -> Iterator[int | float]:
    for node in (narrow, wide):
        for word in words:
            bound = node.schema.get(word)
            if isinstance(bound, int | float) and not isinstance(bound, bool):
                yield bound


def _is_small(value: Json) -> bool:
    return len(msgspec.json.encode(value)) <= SIZE_LIMIT_BYTES
