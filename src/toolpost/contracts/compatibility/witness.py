"""The counter-example: a value that the narrow schema takes and the wide one does not, confirmed by the validator."""

import itertools
from collections.abc import Iterable, Iterator

import msgspec

from toolpost.base.ids import Json
from toolpost.base.values import is_among
from toolpost.contracts.compatibility.budget import Budget
from toolpost.contracts.compatibility.languages import FOLLOWED_S
from toolpost.contracts.compatibility.limits import types_of, values_of
from toolpost.contracts.compatibility.samples import ANYTHING, LENGTH_LIMIT, TEXTS, Sampler, text_within
from toolpost.contracts.compatibility.sides import Node, Side
from toolpost.contracts.compatibility.walk import Difference

TRIES = 60
SIZE_LIMIT_BYTES = 24_000
_TRY_S = 0.000_1
_QUICK_S = 0.05

Example = Json | msgspec.UnsetType


class Witnesses:
    """Looks for values that one side takes and the other does not."""

    def __init__(self, narrow: Side, wide: Side, budget: Budget, *, old_is_narrow: bool) -> None:
        self._narrow, self._wide = narrow, wide
        self._budget = budget
        self._old_is_narrow = old_is_narrow
        self._sampler = Sampler(narrow, budget)
        self._found: dict[int, Example] = {}

    def of_difference(self, difference: Difference) -> Example:
        """Return a value that shows what a difference does; looked for once."""
        if id(difference) not in self._found:
            values = (self._sampler.around(difference.steps, value) for value in self._candidates(difference))
            self._found[id(difference)] = self._first(values)
        return self._found[id(difference)]

    def of_schema(self, lost: Json) -> Example:
        """Return a value of the schema that holds just what was lost, or any other that does it."""
        guesses = [] if lost is None else [Sampler(Side(lost), self._budget).variants(Node("", lost))]
        return self._first(itertools.chain(*guesses, self._sampler.variants(self._narrow.root), ANYTHING))

    def of_use(self, difference: Difference) -> Example:
        """Return a value with the property that a difference is about, whether or not the wide schema still takes it."""
        narrow = difference.old if self._old_is_narrow else difference.new
        values = self._with_property(narrow, difference.name)
        return self._first((self._sampler.around(difference.steps, value) for value in values), is_lost=False)

    def _first(self, values: Iterable[Json], *, is_lost: bool = True) -> Example:
        tries = iter(values)
        for _ in range(TRIES):
            try:
                value = next(tries)
                size_bytes = len(msgspec.json.encode(value))
                if size_bytes > SIZE_LIMIT_BYTES:
                    continue
                share = self._narrow.share(size_bytes) + self._wide.share(size_bytes)
                if not self._budget.allows(_TRY_S + _QUICK_S * share):
                    break
                if self._narrow.admits(value) and (not is_lost or self._wide.admits(value) is False):
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
                yield from self._find_lost_values(narrow, wide)
            case "bounds":
                yield from self._at_bounds(narrow, wide)
            case "format":
                yield from self._of_other_form(narrow, wide)
        yield from self._sampler.variants(narrow)
        yield from ANYTHING

    def _object(self, node: Node) -> dict[str, Json]:
        made = self._sampler.sample(Node(node.place, node.schema | {"type": "object"}))
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
            yield self._sampler.sample(Node(narrow.place, narrow.schema | {"type": kind}))

    def _find_lost_values(self, narrow: Node, wide: Node) -> Iterator[Json]:
        some, others = values_of(narrow.schema, self._narrow.draft), values_of(wide.schema, self._wide.draft)
        yield from (value for value in some or () if not is_among(value, others or ()))

    def _of_other_form(self, narrow: Node, wide: Node) -> Iterator[Json]:
        outside = wide.schema.get("pattern")
        if isinstance(outside, str) and self._budget.has(FOLLOWED_S):
            text = text_within(narrow.schema, outside)
            yield from () if text is None else (text,)
        yield from TEXTS

    def _at_bounds(self, narrow: Node, wide: Node) -> Iterator[Json]:
        for bound in _bounds(narrow, wide, "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"):
            yield from (bound, bound + 1, bound - 1, bound + 0.5, bound - 0.5)
        for count in _bounds(narrow, wide, "minLength", "maxLength"):
            for length in (count, count + 1, count - 1):
                exact = max(0, min(int(length), LENGTH_LIMIT))
                yield self._sampler.text(narrow.schema | {"minLength": exact, "maxLength": exact})
        for count in _bounds(narrow, wide, "minItems", "maxItems"):
            yield from (
                self._sampler.sample_array(narrow, max(0, int(length))) for length in (count, count + 1, count - 1)
            )
        for count in _bounds(narrow, wide, "minProperties", "maxProperties"):
            wanted = [max(0, int(length)) for length in (count, count + 1, count - 1)]
            yield from (
                self._object(Node(narrow.place, narrow.schema | {"minProperties": number})) for number in wanted
            )
        if "uniqueItems" in wide.schema:
            yield self._sampler.sample_array(Node(narrow.place, narrow.schema), 2)


def _bounds(narrow: Node, wide: Node, *words: str) -> Iterator[int | float]:
    for node in (narrow, wide):
        for word in words:
            bound = node.schema.get(word)
            if isinstance(bound, int | float) and not isinstance(bound, bool):
                yield bound
