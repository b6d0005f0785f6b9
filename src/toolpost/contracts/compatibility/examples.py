"""Counterexamples: values that the narrow schema accepts and the wide one does not.

`Sampler` makes values that probably fit a schema. They are guesses, and prove nothing until the validator has confirmed
them, which `CounterexampleFinder` does. For example, `maximum` of the argument `n` fell from 20 to 10. The numbers around both
bounds (20, 21, 19, …) are put where `n` is, beside a sample of each required argument; `{"n": 20}` is the first that the old
schema accepts and the new one refuses.
"""

import itertools
from collections.abc import Iterable, Iterator

import msgspec

from toolpost.base.ids import Json, JsonObject
from toolpost.base.values import is_among
from toolpost.contracts.compatibility.containment import ComparedSchema, Node, as_object, branches_of, matches
from toolpost.contracts.compatibility.cost import Budget
from toolpost.contracts.compatibility.keywords import listed_values_of, types_of
from toolpost.contracts.compatibility.regex import SEARCH_COST_S, UnsupportedPattern, find_text
from toolpost.contracts.compatibility.walk import Difference, Step
from toolpost.contracts.document import to_pointer

DEPTH_LIMIT = 12
LENGTH_LIMIT = 20_000
ITEMS_LIMIT = 200
STEPS_LIMIT = 10_000
VALUE_STEPS_LIMIT = 2_500
"""For one value; a larger one is too long to be shown."""

TEXTS = (
    "text", "a", "", "A", "1", "z", "Z", "9", "-", "a b", "abc-123", "2026-01-31", "2026-01-31T12:00:00Z", "12:00:00Z", "P1D",
    "a@example.org", "example.org", "https://example.org/a", "192.0.2.1", "2001:db8::1", "/a", "#a1b2c3", "1.0.0", "en-US", "USD",
    "00000000-0000-4000-8000-000000000000", "0123456789abcdef", "0x" + "0" * 40, "0" * 24, "a" * 32, "a" * 40, "a" * 64,
)  # fmt: skip
ANY_VALUES: tuple[Json, ...] = (None, True, False, 0, 1, -1, 0.5, "", "text", [], {})
_FORMATS = {
    "date": "2026-01-31", "date-time": "2026-01-31T12:00:00Z", "time": "12:00:00Z", "duration": "P1D", "email": "a@example.org",
    "hostname": "example.org", "uri": "https://example.org/a", "uri-reference": "/a", "iri": "https://example.org/a",
    "ipv4": "192.0.2.1", "ipv6": "2001:db8::1", "uuid": "00000000-0000-4000-8000-000000000000", "json-pointer": "/a",
    "regex": "a",
}  # fmt: skip
_EXTENSIBLE_FORMATS = frozenset({"uri", "uri-reference", "iri", "json-pointer", "regex"})
_ORDER = ("object", "string", "integer", "number", "boolean", "array", "null")


class Sampler:
    """Makes values that probably fit the schemas of one document."""

    def __init__(self, schema: ComparedSchema, budget: Budget) -> None:
        self._schema = schema
        self._budget = budget
        self._texts: dict[str, str] = {}
        self._left = STEPS_LIMIT
        self._left_of_value = VALUE_STEPS_LIMIT

    def _spend(self) -> None:
        """Raise `ValueError` at the limit: 200 required properties in each of 200, twelve deep, would never end."""
        self._left -= 1
        self._left_of_value -= 1
        if self._left < 0 or self._left_of_value < 0:
            raise ValueError("the values of this schema are too large to be made")

    def embed(self, steps: tuple[Step, ...], value: Json, root: Node | None = None, depth: int = 0) -> Json:
        """Return a value for the root with `value` at the position that the steps lead to."""
        if root is None:
            self._left_of_value = VALUE_STEPS_LIMIT
        node = self._resolve(root or self._schema.root, steps, depth)
        rest = steps[1:] if steps and steps[0] == ("$ref",) else steps
        if not rest:
            return value
        (keyword, *below), inner = rest[0], rest[1:]
        under = node.schema.get(str(keyword), True)
        if below:
            is_declared = isinstance(under, dict) and below[0] in under
            under = under[below[0]] if is_declared else node.schema.get("additionalProperties", True)
        child = node.child(to_pointer((keyword, *below[:1])), under)
        made = self.embed(inner, value, child, depth + 1)
        if keyword == "items":
            return [made, *self._sample_items(node, depth)[1:]]
        if keyword == "patternProperties" and below:
            return self._sample_object(node, depth) | {self.sample_text({"pattern": below[0]}): made}
        if keyword in ("properties", "additionalProperties"):
            return self._sample_object(node, depth) | {str(below[0]) if below else "another": made}
        return made

    def sample(self, node: Node, depth: int = 0) -> Json:
        """Return one value that probably fits."""
        if depth == 0:
            self._left_of_value = VALUE_STEPS_LIMIT
        self._spend()
        node = self._resolve(node, (), depth)
        values = listed_values_of(node.schema, self._schema.draft)
        if values:
            return values[0]
        types = types_of(node.schema)
        return self._sample_type(next((kind for kind in _ORDER if kind in types), "null"), node, depth)

    def _sample_type(self, kind: str, node: Node, depth: int) -> Json:
        match kind:
            case "object":
                is_free = (
                    "type" not in node.schema and "properties" not in node.schema and "required" not in node.schema
                )
                return "text" if is_free else self._sample_object(node, depth)
            case "array":
                return self._sample_items(node, depth)
            case "string":
                return self.sample_text(node.schema)
            case "integer" | "number":
                return make_number(node.schema)
        return True if kind == "boolean" else None

    def sample_text(self, schema: JsonObject) -> str:
        """Return a text that probably fits; for a pattern it is searched once, if the budget allows."""
        if not isinstance(schema.get("pattern"), str):
            return make_text(schema)
        key = repr([schema.get(word) for word in ("pattern", "minLength", "maxLength", "format")])
        if key not in self._texts:
            self._texts[key] = make_text(schema) if self._budget.spend_optional(SEARCH_COST_S) else "text"
        return self._texts[key]

    def variants(self, node: Node) -> Iterator[Json]:
        """Yield one value for each type and each branch of a schema, simplest first."""
        yield self.sample(node)
        values = listed_values_of(self._resolve(node, (), 0).schema, self._schema.draft)
        yield from (values or ())[:ITEMS_LIMIT]
        for keyword in ("anyOf", "oneOf"):
            for branch in branches_of(node, keyword):
                yield self.sample(Node(branch.place, _merge([_without(node.schema, keyword), branch.schema])))
        # In a fixed order: that of a set differs from process to process, and a lock is checked again and again.
        types = types_of(node.schema)
        for kind in (kind for kind in _ORDER if kind in types):
            yield self._sample_type(kind, Node(node.place, node.schema | {"type": kind}), 0)

    def _resolve(self, node: Node, steps: tuple[Step, ...], depth: int) -> Node:
        """Return a schema with its reference followed and its branches merged: all of `allOf`, the first of a choice."""
        self._spend()
        if depth > DEPTH_LIMIT:
            return Node(node.place, {})
        for _ in range(DEPTH_LIMIT):
            target = self._schema.follow_reference(node) if "$ref" in node.schema else None
            if target is None:
                break
            node = Node(target.place, _merge([target.schema, _without(node.schema, "$ref")]))
        schema = node.schema
        for keyword in ("allOf", "anyOf", "oneOf"):
            branches = [as_object(branch) for branch in schema.get(keyword) or () if isinstance(branch, dict | bool)]
            if branches and not (steps and steps[0][0] == keyword):
                taken = branches if keyword == "allOf" else branches[:1]
                whole = [self._resolve(Node(node.place, branch), (), depth + 1).schema for branch in taken]
                schema = _merge([_without(schema, keyword), *whole])
        return Node(node.place, schema)

    def _sample_object(self, node: Node, depth: int) -> JsonObject:
        properties = node.schema.get("properties")
        declared = properties if isinstance(properties, dict) else {}
        names = [name for name in node.schema.get("required") or () if isinstance(name, str)]
        if (wanted := _whole_number(node.schema.get("minProperties"))) > len(names):
            spare = (*declared, *(f"key{number}" for number in range(ITEMS_LIMIT)))
            names += [name for name in spare if name not in names][: wanted - len(names)]
        others = node.schema.get("additionalProperties", True)
        return {
            name: self.sample(node.child(f"/properties/{name}", declared.get(name, others)), depth + 1)
            for name in names[:ITEMS_LIMIT]
        }

    def _sample_items(self, node: Node, depth: int, count: int | None = None) -> list[Json]:
        wanted = _whole_number(node.schema.get("minItems")) if count is None else count
        first = node.schema.get("prefixItems")
        items = node.schema.get("items", True)
        prefix = first if isinstance(first, list) else items if isinstance(items, list) else []
        rest = node.schema.get("additionalItems", True) if isinstance(items, list) else items
        made = [self.sample(node.child("/items", child), depth + 1) for child in [*prefix, *[rest] * wanted][:wanted]]
        if node.schema.get("uniqueItems") is True:
            # Equal samples would break `uniqueItems`: strings are numbered, and everything else becomes a number.
            made = [f"{value}{number}" if isinstance(value, str) else number for number, value in enumerate(made)]
        return made

    def sample_array(self, node: Node, count: int) -> list[Json]:
        """Return an array of `count` items."""
        return self._sample_items(self._resolve(node, (), 0), 0, min(count, ITEMS_LIMIT))


def make_text(schema: JsonObject) -> str:
    """Return a text that probably fits."""
    least, most = _whole_number(schema.get("minLength"), LENGTH_LIMIT), schema.get("maxLength")
    form = schema.get("format")
    guesses = [_FORMATS[form]] if form in _FORMATS else []
    guesses += [guess.ljust(least, "a") for guess in guesses if form in _EXTENSIBLE_FORMATS]
    pattern = schema.get("pattern")
    for guess in (*guesses, *TEXTS):
        is_short = not isinstance(most, int) or len(guess) <= most
        if len(guess) >= least and is_short and (not isinstance(pattern, str) or matches(pattern, guess)):
            return guess
    found = make_text_within(schema) if isinstance(pattern, str) else None
    return "a" * least if found is None else found


def make_text_within(schema: JsonObject, outside: str | None = None) -> str | None:
    """Return a text of the schema's pattern and lengths that the pattern `outside`, if given, does not match; None if unknown."""
    inside, most = schema.get("pattern"), schema.get("maxLength")
    try:
        return find_text(
            inside if isinstance(inside, str) else None,
            outside,
            _whole_number(schema.get("minLength"), LENGTH_LIMIT),
            most if isinstance(most, int) else None,
        )
    except UnsupportedPattern:
        return None


def make_number(schema: JsonObject) -> Json:
    """Return a number that probably fits."""
    bounds = [schema.get(word) for word in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")]
    numbers = [bound for bound in bounds if isinstance(bound, int | float) and not isinstance(bound, bool)]
    least, most = bounds[0], bounds[1]
    step = schema.get("multipleOf")
    candidates: Iterable[Json] = [1, 0, *numbers, *(n + 1 for n in numbers), *(n - 1 for n in numbers)]
    if isinstance(step, int | float) and not isinstance(step, bool) and step > 0:
        candidates = [*(n * step for n in (1, 0, 2, -1)), *candidates]
    if schema.get("type") == "integer":
        candidates = [int(number) for number in candidates]
    for number in candidates:
        fits_least = not isinstance(least, int | float) or number >= least
        fits_most = not isinstance(most, int | float) or number <= most
        if fits_least and fits_most:
            return number
    return 1


def _whole_number(value: Json, limit: int = ITEMS_LIMIT) -> int:
    return min(value, limit) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _without(schema: JsonObject, keyword: str) -> JsonObject:
    return {key: value for key, value in schema.items() if key != keyword}


def _merge(schemas: list[JsonObject]) -> JsonObject:
    """Merge schemas of one value: later ones win, properties and required names add up."""
    merged: JsonObject = {}
    for schema in schemas:
        both = {**merged, **schema}
        if isinstance(merged.get("properties"), dict) and isinstance(schema.get("properties"), dict):
            both["properties"] = {**merged["properties"], **schema["properties"]}
        if isinstance(merged.get("required"), list) and isinstance(schema.get("required"), list):
            both["required"] = [*merged["required"], *schema["required"]]
        merged = both
    return merged


TRIES = 60
SIZE_LIMIT_BYTES = 24_000
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

    def _first(self, values: Iterable[Json], *, is_lost: bool = True) -> Example:
        # Values are made lazily: making one may be as costly as validating it.
        tries = iter(values)
        for _ in range(TRIES):
            try:
                value = next(tries)
                size_bytes = len(msgspec.json.encode(value))
                if size_bytes > SIZE_LIMIT_BYTES:
                    continue
                share = self._narrow.quick_share(size_bytes) + self._wide.quick_share(size_bytes)
                if not self._budget.spend(_TRY_S + _QUICK_S * share):
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
