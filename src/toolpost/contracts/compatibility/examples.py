"""Counterexamples: values that the narrow schema accepts and the wide one does not, confirmed by the validator.

Values are guessed by `sampling` and `refutation`. For example, `maximum` of the argument `n` fell from 20 to 10. The numbers
around both bounds (20, 21, 19, …) are put where `n` is, beside a sample of each required argument; `{"n": 20}` is the first that
the old schema accepts and the new one refuses.
"""

import itertools
from collections.abc import Iterable, Iterator
from functools import cached_property

import msgspec

from toolpost.base.ids import Json
from toolpost.base.values import is_among
from toolpost.contracts.compatibility.containment import ComparedSchema, Node
from toolpost.contracts.compatibility.cost import Budget
from toolpost.contracts.compatibility.keywords import listed_values_of, types_of
from toolpost.contracts.compatibility.refutation import Refuter, guard
from toolpost.contracts.compatibility.regex import SEARCH_COST_S
from toolpost.contracts.compatibility.sampling import ANY_VALUES, LENGTH_LIMIT, TEXTS, Sampler, make_text_within
from toolpost.contracts.compatibility.walk import Difference

TRIES = 60
SEARCH_TRIES = 150
SIZE_LIMIT_BYTES = 64_000
_TRY_S = 0.000_1
_QUICK_S = 0.05

Example = Json | msgspec.UnsetType


class CounterexampleFinder:
    """Looks for values that one schema accepts and the other does not; `UNSET` if none was found."""

    def __init__(self, narrow: ComparedSchema, wide: ComparedSchema, budget: Budget, *, old_is_narrow: bool) -> None:
        self._narrow, self._wide = narrow, wide
        self._budget = budget
        self._old_is_narrow = old_is_narrow
        self._sampler = Sampler(narrow, budget)
        self._found: dict[int, Example] = {}

    @cached_property
    def _refuter(self) -> Refuter:
        # With samplers of its own, whose limits bound all searches together.
        return Refuter(Sampler(self._narrow, self._budget), Sampler(self._wide, self._budget))

    def find_for_difference(self, difference: Difference) -> Example:
        """Return a value that shows the effect of a difference; searched once."""
        if id(difference) not in self._found:
            values = (self._sampler.embed(difference.steps, value) for value in self._candidates(difference))
            self._found[id(difference)] = self._first(values)
        return self._found[id(difference)]

    def find_for_schema(self, lost: Json) -> Example:
        """Return a value of `lost` (what the algebra says is no longer accepted), or any other counterexample."""
        guesses = [] if lost is None else [Sampler(ComparedSchema(lost), self._budget).variants(Node("", lost))]
        return self._first(itertools.chain(*guesses, self._sampler.variants(self._narrow.root), ANY_VALUES))

    def find_value_with_property(self, difference: Difference) -> Example:
        """Return a value with the property of a difference, whether or not the wide schema still accepts it."""
        narrow = difference.old if self._old_is_narrow else difference.new
        values = self._with_property(narrow, difference.name)
        return self._first((self._sampler.embed(difference.steps, value) for value in values), is_lost=False)

    def search_for_difference(self, difference: Difference) -> Example:
        """Search harder for a value that shows a difference, with the rest of the budget."""
        narrow, wide = (difference.old, difference.new) if self._old_is_narrow else (difference.new, difference.old)
        guesses = self._refuter.refute(narrow, wide)
        values = (self._sampler.embed(difference.steps, value) for value in guesses)
        return self._first(values, tries=SEARCH_TRIES, is_optional=True)

    def search_for_schema(self, lost: Json) -> Example:
        """Search harder for any value that shows that the narrow schema is not contained, as `search_for_difference` does."""
        parts = [self._refuter.refute(self._narrow.root, self._wide.root)]
        if lost is not None:
            parts.insert(0, Sampler(ComparedSchema(lost), self._budget).variants(Node("", lost)))
        return self._first(itertools.chain(*map(guard, parts)), tries=SEARCH_TRIES, is_optional=True)

    def _first(
        self, values: Iterable[Json], *, is_lost: bool = True, tries: int = TRIES, is_optional: bool = False
    ) -> Example:
        spend = self._budget.spend_optional if is_optional else self._budget.spend
        # Values are made lazily: making one may be as costly as validating it.
        guesses = iter(values)
        for _ in range(tries):
            try:
                value = next(guesses)
                size_bytes = len(msgspec.json.encode(value))
                if size_bytes > SIZE_LIMIT_BYTES:
                    continue
                share = self._narrow.quick_share(size_bytes) + self._wide.quick_share(size_bytes)
                if not spend(_TRY_S + _QUICK_S * share):
                    break
                if self._narrow.admits(value) and (not is_lost or self._wide.admits(value) is False):
                    return value
            except StopIteration:
                break
            except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
                # A schema may be nonsense in ways that the sampler does not expect; then there is no example.
                break
        return msgspec.UNSET

    def _candidates(self, difference: Difference) -> Iterator[Json]:
        narrow, wide = (difference.old, difference.new) if self._old_is_narrow else (difference.new, difference.old)
        match difference.kind:
            case "property-added" | "property-removed":
                if difference.kind == "property-removed" and not self._old_is_narrow:
                    yield self._sample_object(narrow)
                yield from self._with_property(narrow, difference.name)
            case "required-added" | "required-dropped":
                yield {key: value for key, value in self._sample_object(narrow).items() if key != difference.name}
            case "type":
                lost = types_of(narrow.schema) - types_of(wide.schema)
                yield from (0.5, 1.5, 10.5, -0.5) if "number" in lost else ()
                for kind in sorted(lost):
                    yield self._sampler.sample(Node(narrow.place, narrow.schema | {"type": kind}))
            case "values":
                kept = listed_values_of(wide.schema, self._wide.draft) or ()
                listed = listed_values_of(narrow.schema, self._narrow.draft) or ()
                yield from (value for value in listed if not is_among(value, kept))
            case "bounds":
                yield from self._at_bounds(narrow, wide)
            case "format":
                outside = wide.schema.get("pattern")
                if isinstance(outside, str) and self._budget.spend_optional(SEARCH_COST_S):
                    text = make_text_within(narrow.schema, outside)
                    yield from () if text is None else (text,)
                yield from TEXTS
        yield from self._sampler.variants(narrow)
        yield from ANY_VALUES

    def _sample_object(self, node: Node) -> dict[str, Json]:
        made = self._sampler.sample(Node(node.place, node.schema | {"type": "object"}))
        return made if isinstance(made, dict) else {}

    def _with_property(self, node: Node, name: str) -> Iterator[Json]:
        declared = node.schema.get("properties")
        schema = declared.get(name, True) if isinstance(declared, dict) else True
        inner = node.child(f"/properties/{name}", schema)
        for value in itertools.chain(self._sampler.variants(inner), ANY_VALUES):
            yield self._sample_object(node) | {name: value}

    def _at_bounds(self, narrow: Node, wide: Node) -> Iterator[Json]:
        for bound in _numbers_of(
            narrow, wide, "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"
        ):
            yield from (bound, bound + 1, bound - 1, bound + 0.5, bound - 0.5)
        for count in _numbers_of(narrow, wide, "minLength", "maxLength"):
            for length in (count, count + 1, count - 1):
                exact = max(0, min(int(length), LENGTH_LIMIT))
                yield self._sampler.sample_text(narrow.schema | {"minLength": exact, "maxLength": exact})
        for count in _numbers_of(narrow, wide, "minItems", "maxItems"):
            yield from (
                self._sampler.sample_array(narrow, max(0, int(length))) for length in (count, count + 1, count - 1)
            )
        for count in _numbers_of(narrow, wide, "minProperties", "maxProperties"):
            wanted = [max(0, int(length)) for length in (count, count + 1, count - 1)]
            yield from (
                self._sample_object(Node(narrow.place, narrow.schema | {"minProperties": number})) for number in wanted
            )
        if "uniqueItems" in wide.schema:
            yield self._sampler.sample_array(Node(narrow.place, narrow.schema), 2)


def _numbers_of(narrow: Node, wide: Node, *words: str) -> Iterator[int | float]:
    for node in (narrow, wide):
        for word in words:
            bound = node.schema.get(word)
            if isinstance(bound, int | float) and not isinstance(bound, bool):
                yield bound
