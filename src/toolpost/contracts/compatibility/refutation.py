"""Guesses at values that one schema accepts and another does not: the keywords that differ are violated one by one.

Each keyword of the wide schema that the narrow one does not have in the same form is a way to be refused. A value of the narrow
schema is made that takes this way: for `propertyNames` an object with a name that does not fit, for `not` a value that fits what
is denied, for `then` a value that fits the condition and violates the consequence. Keywords about parts of a value lead to the
same question about the part. For example, the narrow schema is `{"items": {"type": "string"}}`, and the wide one
`{"items": {"type": "string", "not": {"const": "x"}}}`: `items` differs, so an item is wanted that violates `not`: `["x"]`.

Nothing here is a proof: the validator confirms each guess (`examples`).
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal

from toolpost.base.ids import Json, JsonObject
from toolpost.base.values import is_among, is_same_json
from toolpost.contracts.compatibility.containment import Node, as_object, is_never, matches
from toolpost.contracts.compatibility.keywords import NUMERIC, listed_values_of, types_of
from toolpost.contracts.compatibility.sampling import (
    ITEMS_LIMIT,
    TEXTS,
    TYPE_ORDER,
    Sampler,
    as_number,
    bounds_of,
    fits_bounds,
    item_schema,
    make_text_within,
    merge_schemas,
    prefix_of,
    property_schema,
    to_plain,
    without,
)

DEPTH_LIMIT = 8
NAMES_LIMIT = 40
_CHOICES = ("anyOf", "oneOf")
_LENGTHS = ("minLength", "maxLength")
_SIZES = ("minProperties", "maxProperties")
_DEPENDENCIES = ("dependentRequired", "dependentSchemas", "dependencies")
_CONDITIONS = ("if", "then", "else")

Violate = Callable[[Node, Node, int], Iterator[Json]]


class Refuter:
    """Makes values that a narrow schema probably accepts and a wide one probably does not."""

    def __init__(self, narrow: Sampler, wide: Sampler) -> None:
        self._narrow, self._wide = narrow, wide
        # Keywords that belong together, and how they are violated; those about the value itself before those about its parts.
        self._violations: tuple[tuple[tuple[str, ...], Violate], ...] = (
            (("type",), self._violate_type),
            (("enum", "const"), self._violate_values),
            (NUMERIC, self._violate_number),
            (("multipleOf",), self._violate_step),
            (_LENGTHS, self._violate_length),
            (("pattern", "format", "contentEncoding", "contentMediaType"), self._violate_form),
            (("minItems", "maxItems", "uniqueItems"), self._violate_count),
            (_SIZES, self._violate_size),
            (("required",), self._violate_required),
            (("contains", "minContains", "maxContains"), self._violate_contains),
            (("prefixItems", "items", "additionalItems", "unevaluatedItems"), self._violate_items),
            (("propertyNames",), self._violate_names),
            (
                ("properties", "patternProperties", "additionalProperties", "unevaluatedProperties"),
                self._violate_properties,
            ),
            (_DEPENDENCIES, self._violate_dependencies),
            (("not",), self._violate_not),
            (_CONDITIONS, self._violate_condition),
            (("allOf",), self._violate_all),
            (_CHOICES, self._violate_any),
        )

    def refute(self, narrow: Node, wide: Node, depth: int = 0) -> Iterator[Json]:
        """Yield guesses, those for the differences of the pair itself first."""
        if depth > DEPTH_LIMIT:
            return
        narrow, wide = self._narrow.flatten(narrow), self._wide.flatten(wide)
        if is_never(wide.schema):
            yield from self._narrow.variants(narrow)
            return
        for word in _CHOICES:
            if word in narrow.schema and not is_same_json(narrow.schema[word], wide.schema.get(word)):
                yield from self._refute_choice(word, narrow, wide, depth)
                return
        for words, violate in self._violations:
            is_asserted = any(word in wide.schema for word in words)
            if is_asserted and any(not is_same_json(wide.schema.get(w), narrow.schema.get(w)) for w in words):
                yield from guard(violate(narrow, wide, depth))

    def _refute_choice(self, word: str, narrow: Node, wide: Node, depth: int) -> Iterator[Json]:
        """Take the branches of the narrow schema one by one; a branch that the wide one has too is the last to be lost."""
        branches, others = _branches(narrow.schema, word), _branches(wide.schema, word)
        rest, wide_rest = without(narrow.schema, word), without(wide.schema, word)
        is_common = [any(is_same_json(branch, other) for other in others) for branch in branches]
        fresh = [other for other in others if not any(is_same_json(branch, other) for branch in branches)]
        for number in sorted(range(len(branches)), key=is_common.__getitem__):
            one = Node(narrow.place, merge_schemas([rest, branches[number]]))
            # The branch at the same position is most likely the one that this branch has become.
            same = others[number : number + 1]
            partners = [other for other in fresh if other in same] + [other for other in fresh if other not in same]
            if word == "oneOf":
                for other in partners[:4]:
                    # Two branches that a value fits refuse it.
                    yield from guard(self._narrow.variants(Node(narrow.place, merge_schemas([one.schema, other]))))
            for other in partners[:4]:
                yield from guard(self.refute(one, Node(wide.place, merge_schemas([wide_rest, other])), depth + 1))
            if not others:
                yield from guard(self.refute(one, wide, depth + 1))
            yield from guard(self._narrow.variants(one))

    # Keywords about the value itself

    def _violate_type(self, narrow: Node, wide: Node, _: int) -> Iterator[Json]:
        lost = types_of(narrow.schema) - types_of(wide.schema)
        if "number" in lost:
            yield from self._numbers(narrow.schema, (0.5, 1.5, 10.5, -0.5))
            yield from self._numbers_between(narrow.schema)
        for kind in (kind for kind in TYPE_ORDER if kind in lost):
            yield self._narrow.sample(Node(narrow.place, narrow.schema | {"type": kind}))

    def _violate_values(self, narrow: Node, wide: Node, _: int) -> Iterator[Json]:
        kept = listed_values_of(wide.schema, 0) or []
        listed = listed_values_of(narrow.schema, 0)
        if listed is not None:
            yield from (value for value in listed if not is_among(value, kept))
            return
        types = types_of(narrow.schema)
        if not types.isdisjoint({"integer", "number"}):
            # Beside the listed numbers and the bounds, in steps: some of them are not listed.
            starts = [*(value for value in kept if as_number(value) is not None), *bounds_of(narrow.schema), 0]
            yield from self._numbers(narrow.schema, (n + step for n in starts[:4] for step in (1, 2, -1, 7, 0.5)))
        if "string" in types:
            yield from (text for text in self._texts(narrow.schema) if text not in kept)
        yield from (value for value in self._narrow.variants(narrow) if not is_among(value, kept))

    def _violate_number(self, narrow: Node, wide: Node, _: int) -> Iterator[Json]:
        for bound in (*bounds_of(wide.schema), *bounds_of(narrow.schema)):
            yield from self._numbers(narrow.schema, (bound, bound + 1, bound - 1, bound + 0.5, bound - 0.5))
        yield from self._numbers_between(narrow.schema)
        step = as_number(narrow.schema.get("multipleOf"))
        for bound in bounds_of(wide.schema) if step else ():
            base = Decimal(str(bound)) // Decimal(str(step)) * Decimal(str(step))
            yield from self._numbers(
                narrow.schema, (to_plain(base + count * Decimal(str(step))) for count in (0, 1, -1))
            )

    def _violate_step(self, narrow: Node, wide: Node, _: int) -> Iterator[Json]:
        step, ours = as_number(wide.schema["multipleOf"]), as_number(narrow.schema.get("multipleOf"))
        if not step:
            return
        lower = next(iter(bounds_of(narrow.schema)), 0)
        if ours:
            size = Decimal(str(ours))
            base = Decimal(str(lower)) // size * size
            yield from self._numbers(
                narrow.schema, (to_plain(base + count * size) for count in (1, 2, 3, -1, -2, 5, 7))
            )
        if "number" in types_of(narrow.schema):
            half = Decimal(str(step)) / 2
            yield from self._numbers(
                narrow.schema, (to_plain(Decimal(str(lower)) + half * odd) for odd in (1, 3, -1, -3))
            )
            yield from self._numbers_between(narrow.schema)
        yield from self._numbers(narrow.schema, (lower + count for count in (1, 2, 3, -1, -2, 5, 7)))

    def _violate_length(self, narrow: Node, wide: Node, _: int) -> Iterator[Json]:
        for schema in (wide.schema, narrow.schema):
            for word in _LENGTHS:
                if (bound := as_number(schema.get(word))) is not None:
                    for length in (int(bound), int(bound) + 1, int(bound) - 1):
                        exact = {"minLength": max(0, length), "maxLength": max(0, length)}
                        yield self._narrow.sample_text(narrow.schema | exact)
        yield from self._texts(narrow.schema)

    def _violate_form(self, narrow: Node, wide: Node, _: int) -> Iterator[Json]:
        if isinstance(outside := wide.schema.get("pattern"), str) and self._narrow.may_search():
            found = make_text_within(narrow.schema, outside)
            yield from () if found is None else (found,)
        yield from self._texts(narrow.schema)

    def _texts(self, schema: JsonObject) -> Iterator[str]:
        """Yield texts of different shapes, as far as it is easy to see that they fit."""
        yield self._narrow.sample_text(schema)
        listed = listed_values_of(schema, 0)
        yield from (text for text in TEXTS if _fits_text(schema, text) and (listed is None or text in listed))

    def _numbers(self, schema: JsonObject, numbers: Iterable[Json]) -> Iterator[Json]:
        is_whole = "number" not in types_of(schema)
        for number in numbers:
            if isinstance(number, float) and number.is_integer():
                number = int(number)  # noqa: PLW2901
            if not (is_whole and isinstance(number, float)) and fits_bounds(schema, number):
                yield number

    def _numbers_between(self, schema: JsonObject) -> Iterator[Json]:
        """Yield numbers inside narrow bounds, such as those between 0 and 1."""
        bounds = sorted(bounds_of(schema))
        if len(bounds) > 1 and "number" in types_of(schema):
            low, high = Decimal(str(bounds[0])), Decimal(str(bounds[-1]))
            shares = ("0.5", "0.25", "0.75", "0.05", "0.95", "0.013")
            yield from self._numbers(schema, (to_plain(low + (high - low) * Decimal(share)) for share in shares))

    # Conditions

    def _violate_not(self, narrow: Node, wide: Node, depth: int) -> Iterator[Json]:
        denied = self._wide.flatten(wide.child("/not", wide.schema["not"]))
        both = Node(narrow.place, merge_schemas([without(narrow.schema, "not"), denied.schema]))
        if "not" in narrow.schema:
            yield from self.refute(both, Node(narrow.place, narrow.schema["not"]), depth + 1)
        yield from self._narrow.variants(both)
        if "type" not in denied.schema and _is_about_objects(denied.schema):
            yield self._narrow.sample(Node(narrow.place, both.schema | {"type": "object"}))

    def _violate_all(self, narrow: Node, wide: Node, depth: int) -> Iterator[Json]:
        for branch in _branches(wide.schema, "allOf"):
            yield from self.refute(narrow, Node(wide.place, branch), depth + 1)

    def _violate_any(self, narrow: Node, wide: Node, depth: int) -> Iterator[Json]:
        for word in _CHOICES:
            branches = _branches(wide.schema, word) if word in wide.schema else []
            yield from self._narrow.variants(narrow)
            for branch in branches[:NAMES_LIMIT]:
                yield from guard(self.refute(narrow, Node(wide.place, branch), depth + 1))
            if word == "oneOf":
                for one, other in itertools.islice(itertools.combinations(branches, 2), NAMES_LIMIT):
                    both = merge_schemas([narrow.schema, one, other])
                    yield from guard(self._narrow.variants(Node(narrow.place, both)))

    def _violate_condition(self, narrow: Node, wide: Node, depth: int) -> Iterator[Json]:
        condition = self._wide.flatten(wide.child("/if", wide.schema.get("if", True))).schema
        ours = (
            [narrow.schema["then"]]
            if is_same_json(narrow.schema.get("if"), wide.schema.get("if")) and "then" in narrow.schema
            else []
        )
        rest = {word: value for word, value in narrow.schema.items() if word not in _CONDITIONS}
        if "then" in wide.schema:
            fits = Node(narrow.place, merge_schemas([rest, condition, *map(as_object, ours)]))
            yield from self.refute(fits, Node(wide.place, wide.schema["then"]), depth + 1)
        if "else" in wide.schema:
            yield from self.refute(Node(narrow.place, rest), Node(wide.place, wide.schema["else"]), depth + 1)
            yield from self.refute(Node(narrow.place, rest), Node(wide.place, condition), depth + 1)

    # Keywords about items

    def _violate_count(self, narrow: Node, wide: Node, _: int) -> Iterator[Json]:
        for schema in (wide.schema, narrow.schema):
            for word in ("minItems", "maxItems"):
                if (bound := as_number(schema.get(word))) is not None:
                    for count in (int(bound), int(bound) + 1, int(bound) - 1):
                        yield self._narrow.sample_array(narrow, max(0, count))
        if wide.schema.get("uniqueItems") is True:
            least = as_number(narrow.schema.get("minItems")) or 0
            yield from (self._narrow.sample_array(narrow, count) for count in (2, int(least), int(least) + 1))

    def _violate_items(self, narrow: Node, wide: Node, depth: int) -> Iterator[Json]:
        prefixes = max(len(prefix_of(narrow.schema)), len(prefix_of(wide.schema)))
        for position in range(min(prefixes, NAMES_LIMIT) + 1):
            ours, theirs = item_schema(narrow.schema, position), item_schema(wide.schema, position)
            if not is_same_json(ours, theirs):
                pair = narrow.child("/items", ours), wide.child("/items", theirs)
                yield from self._embed_items(narrow, position, guard(self.refute(*pair, depth + 1)))

    def _embed_items(self, narrow: Node, position: int, values: Iterable[Json]) -> Iterator[Json]:
        least = max(position + 1, int(as_number(narrow.schema.get("minItems")) or 0))
        for value in values:
            made = self._narrow.sample_array(narrow, least)
            yield [*made[:position], value, *made[position + 1 :]]

    def _violate_contains(self, narrow: Node, wide: Node, depth: int) -> Iterator[Json]:
        wanted = self._wide.flatten(wide.child("/contains", wide.schema.get("contains", True))).schema
        item = as_object(item_schema(narrow.schema, 0))
        least = int(as_number(narrow.schema.get("minItems")) or 0)
        inside = as_object(narrow.schema.get("contains", True)) if "contains" in narrow.schema else None
        count = int(as_number(narrow.schema.get("minContains")) or 1) if inside is not None else 0
        yield [] if least == 0 and count == 0 else self._narrow.sample_array(narrow, max(least, count))
        ours = Node(narrow.place + "/items", item if inside is None else merge_schemas([item, inside]))
        for value in itertools.islice(guard(self.refute(ours, Node(wide.place, wanted), depth + 1)), 8):
            yield [value] * max(1, least, count)
        fitting = self._narrow.sample(
            Node(narrow.place, merge_schemas([item, wanted, *([] if inside is None else [inside])]))
        )
        for bound in (wide.schema.get("minContains"), wide.schema.get("maxContains")):
            if (number := as_number(bound)) is not None:
                for times in (int(number) - 1, int(number) + 1):
                    made = [fitting] * max(0, min(times, ITEMS_LIMIT))
                    yield [*made, *self._narrow.sample_array(narrow, least)[len(made) :]]

    # Keywords about properties

    def _violate_required(self, narrow: Node, wide: Node, _: int) -> Iterator[Json]:
        known = _names(narrow.schema.get("required"))
        for name in _names(wide.schema["required"]):
            if name not in known:
                yield without(self._object(narrow), name)

    def _violate_size(self, narrow: Node, wide: Node, _: int) -> Iterator[Json]:
        for schema in (wide.schema, narrow.schema):
            for word in _SIZES:
                if (bound := as_number(schema.get(word))) is not None:
                    for count in (int(bound), int(bound) + 1, int(bound) - 1):
                        yield self._object(Node(narrow.place, narrow.schema | {"minProperties": max(0, count)}))

    def _violate_properties(self, narrow: Node, wide: Node, depth: int) -> Iterator[Json]:
        for name in itertools.islice(self._interesting_names(narrow.schema, wide.schema), NAMES_LIMIT):
            ours, theirs = property_schema(narrow.schema, name), property_schema(wide.schema, name)
            if is_same_json(ours, theirs) or is_never(ours):
                continue
            pair = narrow.child(f"/properties/{name}", ours), wide.child(f"/properties/{name}", theirs)
            for value in guard(self.refute(*pair, depth + 1)):
                yield self._object(narrow) | {name: value}

    def _interesting_names(self, narrow: JsonObject, wide: JsonObject) -> Iterator[str]:
        """Yield names that the two schemas may treat differently; those that are declared first."""
        found: dict[str, None] = {}
        for schema in (wide, narrow):
            if isinstance(properties := schema.get("properties"), dict):
                found |= dict.fromkeys(properties)
        # Most names are the same on both sides, and are of no interest.
        yield from (
            name for name in found if not is_same_json(property_schema(narrow, name), property_schema(wide, name))
        )
        patterns = [*_patterns(narrow), *_patterns(wide)]
        for inside in patterns:
            for outside in patterns:
                if inside != outside and self._narrow.may_search():
                    text = make_text_within({"pattern": inside}, outside)
                    yield from () if text is None else (text,)
            yield self._narrow.sample_text({"pattern": inside})
        yield from ("another", "a", "A1", "x-a", "0")

    def _violate_names(self, narrow: Node, wide: Node, depth: int) -> Iterator[Json]:
        schema = narrow.schema
        texts = (
            {"type": "string"}
            if "propertyNames" not in schema
            else merge_schemas([{"type": "string"}, as_object(schema["propertyNames"])])
        )
        declared = schema.get("properties")
        guesses = self.refute(
            Node(narrow.place, texts), wide.child("/propertyNames", wide.schema["propertyNames"]), depth + 1
        )
        patterns = (self._narrow.sample_text({"pattern": pattern}) for pattern in _patterns(schema))
        for name in itertools.chain(declared if isinstance(declared, dict) else (), patterns, guard(guesses)):
            described = property_schema(schema, name) if isinstance(name, str) else False
            if isinstance(name, str) and not is_never(described):
                yield self._object(narrow) | {name: self._narrow.sample(narrow.child("/properties", described))}

    def _violate_dependencies(self, narrow: Node, wide: Node, depth: int) -> Iterator[Json]:
        for word in _DEPENDENCIES:
            depending = wide.schema.get(word)
            for name, needed in depending.items() if isinstance(depending, dict) else ():
                there = Node(narrow.place, merge_schemas([narrow.schema, {"type": "object", "required": [name]}]))
                if isinstance(needed, list):
                    yield from (without(self._object(there), other) for other in needed)
                else:
                    yield from guard(self.refute(there, Node(wide.place, needed), depth + 1))

    def _object(self, node: Node) -> JsonObject:
        made = self._narrow.sample(Node(node.place, node.schema | {"type": "object"}))
        return made if isinstance(made, dict) else {}


def guard(values: Iterable[Json]) -> Iterator[Json]:
    """Yield values until their maker fails: schemas may be nonsense in unexpected ways. Other ways are still tried."""
    try:
        yield from values
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return


def _branches(schema: JsonObject, word: str) -> list[JsonObject]:
    branches = schema.get(word)
    return [as_object(each) for each in branches if isinstance(each, dict | bool)] if isinstance(branches, list) else []


def _names(value: Json) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _patterns(schema: JsonObject) -> list[str]:
    patterns = schema.get("patternProperties")
    return list(patterns) if isinstance(patterns, dict) else []


def _fits_text(schema: JsonObject, text: str) -> bool:
    least, most = as_number(schema.get("minLength")), as_number(schema.get("maxLength"))
    pattern = schema.get("pattern")
    is_sized = (least is None or len(text) >= least) and (most is None or len(text) <= most)
    return is_sized and (not isinstance(pattern, str) or matches(pattern, text))


def _is_about_objects(schema: JsonObject) -> bool:
    return any(word in schema for word in ("required", "properties", "minProperties", "propertyNames"))
