"""Values that probably fit a schema: guesses, which prove nothing until the validator has confirmed them.

`Sampler` follows references, merges `allOf`, takes the first branch of a choice, and makes the simplest value of the rest.
For `{"type": "object", "properties": {"n": {"minimum": 5}}, "required": ["n"]}` that is `{"n": 5}`.
"""

from collections.abc import Iterator
from decimal import Decimal

from toolpost.base.ids import Json, JsonObject
from toolpost.base.values import is_among
from toolpost.contracts.compatibility.containment import (
    ComparedSchema,
    Node,
    as_object,
    branches_of,
    is_never,
    matches,
)
from toolpost.contracts.compatibility.cost import Budget
from toolpost.contracts.compatibility.keywords import NUMERIC, listed_values_of, types_of
from toolpost.contracts.compatibility.regex import SEARCH_COST_S, UnsupportedPattern, find_text
from toolpost.contracts.compatibility.walk import Step
from toolpost.contracts.document import to_pointer

DEPTH_LIMIT = 12
LENGTH_LIMIT = 60_000
ITEMS_LIMIT = 10_050
NAMES_LIMIT = 200
STEPS_LIMIT = 10_000
VALUE_LIMIT = 12_500
"""The weight of one value (`_weigh`); a heavier one is too long to be shown."""

TEXTS = (
    "text", "a", "", "A", "1", "z", "Z", "9", "-", "a b", "abc-123", "2026-01-31", "2026-01-31T12:00:00Z", "12:00:00Z", "P1D",
    "a@example.org", "example.org", "https://example.org/a", "192.0.2.1", "2001:db8::1", "/a", "#a1b2c3", "1.0.0", "en-US", "USD",
    "00000000-0000-4000-8000-000000000000", "0123456789abcdef", "0x" + "0" * 40, "0" * 24, "a" * 32, "a" * 40, "a" * 64,
    # More values of formats: shorter, longer and different ones, for bounds and patterns beside a format.
    "b@c.de", "a" * 60 + "@example.org", "é@example.org", "c.de", "a" * 60 + ".example.org", "é.example.org", "ftp://c.de", "http://c.de/b?c=d#e",
    "1999-12-01", "1999-12-01T09:30:00+02:00", "09:30:00+02:00", "P2W", "10.0.0.7", "::1", "ffffffff-ffff-4fff-bfff-ffffffffffff",
)  # fmt: skip
ANY_VALUES: tuple[Json, ...] = (None, True, False, 0, 1, -1, 0.5, "", "text", [], {})
_FORMATS = {
    "date": "2026-01-31", "date-time": "2026-01-31T12:00:00Z", "time": "12:00:00Z", "duration": "P1D", "email": "a@example.org",
    "hostname": "example.org", "uri": "https://example.org/a", "uri-reference": "/a", "iri": "https://example.org/a",
    "ipv4": "192.0.2.1", "ipv6": "2001:db8::1", "uuid": "00000000-0000-4000-8000-000000000000", "json-pointer": "/a",
    "regex": "a",
}  # fmt: skip
_EXTENSIBLE_FORMATS = frozenset({"uri", "uri-reference", "iri", "json-pointer", "regex"})
TYPE_ORDER = ("object", "string", "integer", "number", "boolean", "array", "null")


class Sampler:
    """Makes values that probably fit the schemas of one document."""

    def __init__(self, schema: ComparedSchema, budget: Budget) -> None:
        self._schema = schema
        self._budget = budget
        self._texts: dict[str, str] = {}
        self._left = STEPS_LIMIT
        self._left_of_value = VALUE_LIMIT

    def _spend(self, weight: int = 5) -> None:
        """Raise `ValueError` at the limit: 200 required properties in each of 200, twelve deep, would never end."""
        self._left -= 1
        self._left_of_value -= weight
        if self._left < 0 or self._left_of_value < 0:
            raise ValueError("the values of this schema are too large to be made")

    def may_search(self) -> bool:
        """Return whether the budget allows one more search for a text."""
        return self._budget.spend_optional(SEARCH_COST_S)

    def embed(self, steps: tuple[Step, ...], value: Json, root: Node | None = None, depth: int = 0) -> Json:
        """Return a value for the root with `value` at the position that the steps lead to."""
        if root is None:
            self._left_of_value = VALUE_LIMIT
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
        if keyword == "unevaluatedItems":
            prefix = node.schema.get("prefixItems")
            count = len(prefix) if isinstance(prefix, list) else 0
            return [*self._sample_items(node, depth, count), made, *self._sample_items(node, depth)[count + 1 :]]
        if keyword == "patternProperties" and below:
            return self._sample_object(node, depth) | {self.sample_text({"pattern": below[0]}): made}
        if keyword in ("properties", "additionalProperties", "unevaluatedProperties"):
            return self._sample_object(node, depth) | {str(below[0]) if below else "another": made}
        return made

    def sample(self, node: Node, depth: int = 0) -> Json:
        """Return one value that probably fits."""
        if depth == 0:
            self._left_of_value = VALUE_LIMIT
        self._spend()
        node = self._resolve(node, (), depth)
        values = listed_values_of(node.schema, self._schema.draft)
        if values:
            return values[0]
        types = types_of(node.schema)
        return self._sample_type(next((kind for kind in TYPE_ORDER if kind in types), "null"), node, depth)

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
                text = self.sample_text(node.schema)
                self._spend(_weigh(text))
                return text
            case "integer" | "number":
                return make_number(node.schema)
        return True if kind == "boolean" else None

    def sample_text(self, schema: JsonObject) -> str:
        """Return a text that probably fits; for a pattern it is searched once, if the budget allows."""
        if not isinstance(schema.get("pattern"), str):
            return make_text(schema)
        key = repr([schema.get(word) for word in ("pattern", "minLength", "maxLength", "format")])
        if key not in self._texts:
            self._texts[key] = make_text(schema) if self.may_search() else "text"
        return self._texts[key]

    def variants(self, node: Node) -> Iterator[Json]:
        """Yield one value for each type and each branch of a schema, simplest first."""
        yield self.sample(node)
        values = listed_values_of(self._resolve(node, (), 0).schema, self._schema.draft)
        yield from (values or ())[:ITEMS_LIMIT]
        for keyword in ("anyOf", "oneOf"):
            for branch in branches_of(node, keyword):
                yield self.sample(Node(branch.place, merge_schemas([without(node.schema, keyword), branch.schema])))
        # In a fixed order: that of a set differs from process to process, and a lock is checked again and again.
        types = types_of(node.schema)
        for kind in (kind for kind in TYPE_ORDER if kind in types):
            self._left_of_value = VALUE_LIMIT
            yield self._sample_type(kind, Node(node.place, node.schema | {"type": kind}), 0)

    def flatten(self, node: Node, depth: int = 0) -> Node:
        """Return a schema with its reference followed and `allOf` merged; choices stay."""
        self._spend(0)
        node = self._follow(node)
        if depth > DEPTH_LIMIT or not isinstance(branches := node.schema.get("allOf"), list):
            return node
        parts = [self.flatten(Node(node.place, branch), depth + 1).schema for branch in branches]
        return Node(node.place, merge_schemas([without(node.schema, "allOf"), *parts]))

    def _follow(self, node: Node) -> Node:
        for _ in range(DEPTH_LIMIT):
            target = self._schema.follow_reference(node) if "$ref" in node.schema else None
            if target is None:
                break
            node = Node(target.place, merge_schemas([target.schema, without(node.schema, "$ref")]))
        return node

    def _resolve(self, node: Node, steps: tuple[Step, ...], depth: int) -> Node:
        """Return a schema with its reference followed and its branches merged: all of `allOf`, the first of a choice."""
        self._spend()
        if depth > DEPTH_LIMIT:
            return Node(node.place, {})
        node = self._follow(node)
        schema = node.schema
        for keyword in ("allOf", "anyOf", "oneOf"):
            branches = [as_object(branch) for branch in schema.get(keyword) or () if isinstance(branch, dict | bool)]
            if branches and not (steps and steps[0][0] == keyword):
                taken = branches if keyword == "allOf" else branches[:1]
                whole = [self._resolve(Node(node.place, branch), (), depth + 1).schema for branch in taken]
                schema = merge_schemas([without(schema, keyword), *whole])
        return Node(node.place, schema)

    def _sample_object(self, node: Node, depth: int) -> JsonObject:
        names = [name for name in node.schema.get("required") or () if isinstance(name, str)]
        if isinstance(depending := node.schema.get("dependentRequired"), dict):
            for name in names[:NAMES_LIMIT]:
                names += [other for other in depending.get(name) or () if other not in names]
        if (wanted := _whole_number(node.schema.get("minProperties"), NAMES_LIMIT)) > len(names):
            names += [name for name in self._spare_names(node.schema) if name not in names][: wanted - len(names)]
        return {
            name: self.sample(node.child(f"/properties/{name}", property_schema(node.schema, name)), depth + 1)
            for name in names[:NAMES_LIMIT]
        }

    def _spare_names(self, schema: JsonObject) -> Iterator[str]:
        """Yield names that an object may have beside the required ones."""
        properties, patterns = schema.get("properties"), schema.get("patternProperties")
        if isinstance(properties, dict):
            yield from (name for name, described in properties.items() if not is_never(described))
        if isinstance(named := schema.get("propertyNames"), dict):
            yield from (name for name in listed_values_of(named, 0) or () if isinstance(name, str))
        patterns = [*patterns] if isinstance(patterns, dict) else []
        if isinstance(named, dict) and isinstance(pattern := named.get("pattern"), str):
            patterns.append(pattern)
        for pattern in patterns:
            for length in range(_whole_number(schema.get("minProperties"), 20)):
                yield self.sample_text({"pattern": pattern, "minLength": length})
        if not is_never(schema.get("additionalProperties", True)):
            yield from (f"key{number}" for number in range(NAMES_LIMIT))

    def _sample_items(self, node: Node, depth: int, count: int | None = None) -> list[Json]:
        wanted = _whole_number(node.schema.get("minItems")) if count is None else count
        if count is None and "contains" in node.schema:
            wanted = max(wanted, _whole_number(node.schema.get("minContains", 1)))
        prefix = prefix_of(node.schema)[:wanted]
        made = [self.sample(node.child("/items", child), depth + 1) for child in prefix]
        if (rest := wanted - len(made)) > 0:
            made += self._repeat_item(node, depth, rest, len(prefix))
        if node.schema.get("uniqueItems") is True:
            made = self._make_distinct(node, made)
        return made

    def _repeat_item(self, node: Node, depth: int, count: int, position: int) -> list[Json]:
        described = item_schema(node.schema, position)
        if isinstance(inside := node.schema.get("contains"), dict):
            described = merge_schemas([as_object(described), inside])
        item = self.sample(node.child("/items", described), depth + 1)
        # A long array is made of short items, where they fit: it must not be too long to be shown.
        if count > NAMES_LIMIT and isinstance(item, str) and item == "text":
            item = "a" if as_number(as_object(described).get("minLength")) is None else item
        self._spend(_weigh(item) * count)
        return [item] * count

    def _make_distinct(self, node: Node, made: list[Json]) -> list[Json]:
        """Return items of which no two are equal: other values of the list, numbered texts, numbers that rise."""
        found: list[Json] = []
        for number, value in enumerate(made):
            described = as_object(item_schema(node.schema, number))
            listed = listed_values_of(described, self._schema.draft)
            if listed is not None:
                value = next((other for other in listed if not is_among(other, found)), value)  # noqa: PLW2901
            elif isinstance(value, str):
                value = f"{value}{number}"  # noqa: PLW2901
            elif isinstance(value, dict) and value:
                first = next((key for key in value if isinstance(value[key], str)), None)
                value = value if first is None else value | {first: f"{value[first]}{number}"}  # noqa: PLW2901
            elif isinstance(value, bool | None | list | dict):
                value = value if number == 0 else number  # noqa: PLW2901
            else:
                value = value + number * (as_number(described.get("multipleOf")) or 1)  # noqa: PLW2901
            found.append(value)
        return found

    def sample_array(self, node: Node, count: int) -> list[Json]:
        """Return an array of `count` items."""
        self._left_of_value = VALUE_LIMIT
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
    bounds = bounds_of(schema)
    candidates: list[int | float] = [1, 0, *bounds, *(n + 1 for n in bounds), *(n - 1 for n in bounds)]
    if len(bounds) > 1:
        candidates.append((min(bounds) + max(bounds)) / 2)
    step = as_number(schema.get("multipleOf"))
    if step is not None and step > 0:
        size = Decimal(str(step))
        bases = [Decimal(str(bound)) // size * size for bound in bounds]
        steps = [count * size for count in (1, 0, 2, -1)]
        candidates = [*map(to_plain, steps), *(to_plain(base + each) for base in bases for each in steps), *candidates]
    if schema.get("type") == "integer":
        candidates = [int(number) for number in candidates]
    return next((number for number in candidates if fits_bounds(schema, number)), 1)


def as_number(value: Json) -> int | float | None:
    """Return a number as it is, None for everything else."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def to_plain(number: Decimal) -> int | float:
    return int(number) if number == number.to_integral_value() else float(number)


def bounds_of(schema: JsonObject) -> list[int | float]:
    """Return the numbers that a schema names as bounds, the lower ones first."""
    return [bound for word in NUMERIC if (bound := as_number(schema.get(word))) is not None]


def fits_bounds(schema: JsonObject, number: int | float) -> bool:
    least, most, above, below = (as_number(schema.get(word)) for word in NUMERIC)
    return (
        (least is None or number >= least)
        and (most is None or number <= most)
        and (above is None or number > above)
        and (below is None or number < below)
    )


def prefix_of(schema: JsonObject) -> list[Json]:
    """Return the schemas of the first items that have their own."""
    for word in ("prefixItems", "items"):
        if isinstance(found := schema.get(word), list):
            return found
    return []


def item_schema(schema: JsonObject, position: int) -> Json:
    """Return the schema of the item at a position."""
    prefix = prefix_of(schema)
    if position < len(prefix):
        return prefix[position]
    word = "additionalItems" if isinstance(schema.get("items"), list) else "items"
    return schema.get(word, schema.get("unevaluatedItems", True))


def property_schema(schema: JsonObject, name: str) -> Json:
    """Return the schema of a property, whether it is declared, matched by patterns, or one of the others."""
    properties, patterns = schema.get("properties"), schema.get("patternProperties")
    found = [properties[name]] if isinstance(properties, dict) and name in properties else []
    if isinstance(patterns, dict):
        found += [described for pattern, described in patterns.items() if matches(pattern, name)]
    if not found:
        return schema.get("additionalProperties", schema.get("unevaluatedProperties", True))
    if len(found) == 1 or any(is_never(each) for each in found):
        return next((each for each in found if is_never(each)), found[0])
    return merge_schemas([as_object(each) for each in found])


def _weigh(value: Json) -> int:
    """Return about how much there is to write: 5 bytes weigh one."""
    if isinstance(value, str):
        return 1 + len(value) // 5
    if isinstance(value, list):
        return 1 + sum(map(_weigh, value))
    return 1 + sum(len(key) // 5 + _weigh(inner) for key, inner in value.items()) if isinstance(value, dict) else 1


def _whole_number(value: Json, limit: int = ITEMS_LIMIT) -> int:
    return min(value, limit) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def without(schema: JsonObject, keyword: str) -> JsonObject:
    return {key: value for key, value in schema.items() if key != keyword}


def merge_schemas(schemas: list[JsonObject]) -> JsonObject:
    """Merge schemas of one value: bounds, types and values are narrowed, names add up; of other keywords the later one wins."""
    merged: JsonObject = {}
    for schema in schemas:
        both = {**merged, **schema}
        for word in merged.keys() & schema.keys():
            both[word] = _merge_keyword(word, merged[word], schema[word])
        merged = both
    return merged


def _merge_keyword(word: str, one: Json, other: Json) -> Json:
    if word == "type":
        common = types_of({"type": one}) & types_of({"type": other})
        kept = [kind for kind in TYPE_ORDER if kind in common and not (kind == "integer" and "number" in common)]
        return (kept[0] if len(kept) == 1 else kept) if kept else other
    if isinstance(one, dict) and isinstance(other, dict):
        return _merge_objects(word, one, other)
    if isinstance(one, list) and isinstance(other, list):
        if word == "enum":
            return [value for value in one if is_among(value, other)] or other
        return [*one, *(name for name in other if name not in one)] if word == "required" else other
    if as_number(one) is not None and as_number(other) is not None and word.startswith(("m", "exclusive")):
        is_lower = word.startswith(("min", "exclusiveMin"))
        return max(one, other) if is_lower else min(one, other) if word != "multipleOf" else other
    return other


def _merge_objects(word: str, one: JsonObject, other: JsonObject) -> Json:
    if word in ("items", "additionalProperties", "propertyNames"):
        return merge_schemas([one, other])
    if word != "properties":
        return other
    both = {**one, **other}
    for name in one.keys() & other.keys():
        if isinstance(one[name], dict) and isinstance(other[name], dict):
            both[name] = merge_schemas([one[name], other[name]])
    return both
