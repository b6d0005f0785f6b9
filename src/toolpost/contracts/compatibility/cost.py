"""The estimated cost of comparing two schemas, and the budget for it.

Native code cannot be interrupted, so its cost is estimated before it is called. Estimates are in seconds of a slow machine,
generous on purpose, and never measured at run time: the same pair gets the same verdict on every machine. For example, `allOf`
of three `anyOf` with ten branches each is a kilobyte of JSON, and 10 * 10 * 10 combinations to compare. At 2 ms each that is 2 s,
over the budget of 1 s: the pair is not compared as a whole, and the judgement says so.
"""

from collections.abc import Iterator

from toolpost.base.ids import Json, JsonObject
from toolpost.contracts.document import (
    ANNOTATION_KEYWORDS,
    ONE_SUBSCHEMA,
    REFERENCES,
    SUBSCHEMA_LIST,
    SUBSCHEMA_MAP,
    TEXT_KEYWORDS,
    draft_of,
    resolve_pointer,
)
from toolpost.contracts.expansion import estimate_pattern_size, patterns_of
from toolpost.contracts.schema import is_asserted_format


class Budget:
    """Estimated seconds that judging one pair of definitions may spend.

    `is_cut_short` is set once a step that mattered did not fit in.
    """

    def __init__(self, budget_s: float) -> None:
        self._left_s = budget_s
        self.is_cut_short = False

    def spend_optional(self, cost_s: float) -> bool:
        """Spend on a step that can be skipped without harm; return False if it does not fit in."""
        is_left = cost_s <= self._left_s
        self._left_s -= cost_s if is_left else 0.0
        return is_left

    def spend(self, cost_s: float) -> bool:
        """Spend on a step; return False and set `is_cut_short` if it does not fit in."""
        is_allowed = self.spend_optional(cost_s)
        self.is_cut_short |= not is_allowed
        return is_allowed


NODES_LIMIT = 20_000
DEPTH_LIMIT = 100
REFERENCES_LIMIT = 200

# Measured on a slow machine with schemas made to be slow; see tests/contracts/compatibility/test_hostile.py.
_SCHEMA_S = 0.000_1
_CASE_S = 0.002
_TEXT_PAIR_S = 0.000_000_004
_VALUE_PAIR_S = 0.000_000_5
_PROPERTY_S = 0.000_000_2
_STATE_S = 0.000_002
_PATTERN_LIMIT_S = 0.3
_CASES_LIMIT = 100_000.0

_MULTIPLIERS = frozenset(
    {
        "$dynamicRef", "$recursiveRef", "$ref", "allOf", "anyOf", "contains", "dependencies", "dependentRequired",
        "dependentSchemas", "if", "not", "oneOf", "unevaluatedProperties",
    }
)  # fmt: skip
_HOLDS_DEFINITIONS = frozenset({"$defs", "definitions"})
# Keywords that drafts from 6 on read differently; all others mean the same in each of them, or assert nothing.
_DRAFT_BOUND = frozenset(
    {
        "$anchor", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef", "$vocabulary",
        "additionalItems", "contentEncoding", "contentMediaType", "contentSchema", "dependencies", "dependentRequired",
        "dependentSchemas", "id", "maxContains", "minContains", "prefixItems", "unevaluatedItems", "unevaluatedProperties",
    }
)  # fmt: skip
_CONDITIONS = frozenset({"if", "then", "else"})
_BESIDE_REFERENCE = TEXT_KEYWORDS | ANNOTATION_KEYWORDS | {"$ref", "$schema", *_HOLDS_DEFINITIONS}


def is_small_enough(schema: Json) -> bool:
    """Return whether a schema is small enough to be walked at all."""
    waiting: list[tuple[Json, int]] = [(schema, 0)]
    nodes = references = 0
    while waiting:
        value, depth = waiting.pop()
        nodes += 1
        if nodes > NODES_LIMIT or depth > DEPTH_LIMIT or references > REFERENCES_LIMIT:
            return False
        if isinstance(value, dict):
            references += sum(word in value for word in (*REFERENCES, "$id", "id"))
            waiting.extend((inner, depth + 1) for inner in value.values())
        elif isinstance(value, list):
            waiting.extend((inner, depth + 1) for inner in value if isinstance(inner, dict | list))
            nodes += len(value)
    return True


def iterate_schemas(schema: Json) -> Iterator[JsonObject]:
    """Yield every object schema inside a schema. Faster than `walk_subschemas`, because it makes no places."""
    waiting = [schema]
    while waiting:
        here = waiting.pop()
        if not isinstance(here, dict):
            continue
        yield here
        for keyword, value in here.items():
            if keyword in SUBSCHEMA_MAP and isinstance(value, dict):
                waiting.extend(value.values())
            elif keyword in SUBSCHEMA_LIST and isinstance(value, list):
                waiting.extend(value)
            elif keyword in ONE_SUBSCHEMA:
                waiting.append(value)


def compile_cost_s(schema: Json) -> float:
    """Estimate the seconds to compile a schema; only its patterns matter."""
    return sum(_patterns_cost_s(inner) for inner in iterate_schemas(schema))


def _patterns_cost_s(schema: JsonObject) -> float:
    return sum(min(_STATE_S * estimate_pattern_size(pattern), _PATTERN_LIMIT_S) for _, pattern in patterns_of(schema))


def comparison_cost_s(schema: Json) -> float:
    """Estimate the seconds to compare a schema."""
    if not isinstance(schema, dict):
        return 0.0
    count = _CaseCounter(schema).count
    cost = 0.0
    values: list[Json] = []
    for inner in iterate_schemas(schema):
        cost += _SCHEMA_S + 4 * _patterns_cost_s(inner)
        if isinstance(patterns := inner.get("patternProperties"), dict):
            # Each pattern is compared with each other one.
            cost += _SCHEMA_S * len(patterns) ** 2
        if not inner.keys().isdisjoint(_MULTIPLIERS):
            cost += _CASE_S * (count(inner) - 1)
        if isinstance(listed := inner.get("enum"), list):
            values += listed
    # Each listed value may be compared with each, and numbers are slow.
    texts = sum(isinstance(value, str) for value in values)
    return cost + _TEXT_PAIR_S * texts**2 + _VALUE_PAIR_S * (len(values) - texts) ** 2


def properties_cost_s(one: Json, other: Json) -> float:
    """Estimate the seconds to compare objects with many properties: each that differs is compared with all pairs."""
    if one == other:
        return 0.0
    if isinstance(one, list) and isinstance(other, list):
        return sum(map(_cross_cost_s, (*one, *other)))
    if not isinstance(one, dict) or not isinstance(other, dict):
        return 0.0
    cost = 0.0
    if isinstance(ours := one.get("properties"), dict) and isinstance(theirs := other.get("properties"), dict):
        differing = sum(ours.get(name) != theirs.get(name) for name in ours.keys() | theirs.keys())
        cost += _PROPERTY_S * differing * max(len(ours), len(theirs)) ** 2
    for word in one.keys() & other.keys():
        if word in _MULTIPLIERS or word in _HOLDS_DEFINITIONS:
            cost += _cross_cost_s(one[word]) + _cross_cost_s(other[word])
        else:
            cost += properties_cost_s(one[word], other[word])
    return cost


def _cross_cost_s(value: Json) -> float:
    """Estimate objects that may be compared with any other: all their properties may differ."""
    found = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    cost = sum(map(_cross_cost_s, found))
    if isinstance(value, dict) and isinstance(properties := value.get("properties"), dict):
        cost += _PROPERTY_S * len(properties) ** 3
    return cost


class _CaseCounter:
    """Counts the combinations of branches that can accept a value: alternatives add up, conditions side by side multiply."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._counted: dict[str, float] = {}

    def count(self, schema: Json, depth: int = 0) -> float:
        """Return the number of combinations, or `_CASES_LIMIT`."""
        if not isinstance(schema, dict):
            return 1.0
        if depth > 8:
            return _CASES_LIMIT
        cases = self._count_reference(schema.get("$ref"), depth)
        if "$dynamicRef" in schema or "$recursiveRef" in schema:
            return _CASES_LIMIT
        for word in ("anyOf", "oneOf"):
            if isinstance(branches := schema.get(word), list) and branches:
                inner = sum(self.count(branch, depth + 1) for branch in branches)
                cases *= inner if word == "anyOf" else inner * max(1, len(branches) / 2)
        for branch in schema.get("allOf") or ():
            cases *= self.count(branch, depth + 1)
        return min(cases * self._count_conditions(schema, depth), _CASES_LIMIT)

    def _count_conditions(self, schema: JsonObject, depth: int) -> float:
        cases = 1.0
        if "if" in schema:
            cases *= self.count(schema.get("then"), depth + 1) + self.count(schema.get("else"), depth + 1)
        if isinstance(denied := schema.get("not"), dict) and denied:
            # What is denied is turned around, keyword by keyword: each may be the one that fails.
            inner = sum(1 for _ in iterate_schemas(denied)) + self._count_reference(denied.get("$ref"), depth)
            cases *= 1 + len(denied) + inner
        for word in ("dependencies", "dependentSchemas", "dependentRequired"):
            if isinstance(conditions := schema.get(word), dict):
                # Each property may be there or not.
                cases *= 2.0 ** min(len(conditions), 20)
        return cases * (2 if "contains" in schema else 1) * (2 if "unevaluatedProperties" in schema else 1)

    def _count_reference(self, reference: Json, depth: int) -> float:
        if not isinstance(reference, str):
            return 1.0
        if not reference.startswith("#/"):
            # An anchor, or the document itself, is not resolved here: assume the worst.
            return _CASES_LIMIT
        if reference not in self._counted:
            # A recursive schema counts once.
            self._counted[reference] = 1.0
            self._counted[reference] = self.count(resolve_pointer(self._root, reference[1:]), depth + 1)
        return self._counted[reference]


def is_draft_neutral(schema: Json) -> bool:
    """Return whether a schema means the same in every draft from 6 on."""
    if not isinstance(schema, dict):
        return True
    draft = draft_of(schema)
    return draft in (6, 7, 2019, 2020) and all(_is_neutral(inner, draft) for inner in iterate_schemas(schema))


def _is_neutral(schema: JsonObject, draft: int) -> bool:
    if not schema.keys().isdisjoint(_DRAFT_BOUND) or isinstance(schema.get("items"), list):
        return False
    # Before 2019-09 keywords beside a `$ref` are ignored.
    if "$ref" in schema and schema.keys() - _BESIDE_REFERENCE:
        return False
    if draft == 6 and not schema.keys().isdisjoint(_CONDITIONS):
        return False
    name = schema.get("format")
    return not isinstance(name, str) or len({is_asserted_format(name, each) for each in (6, 7, 2019, 2020)}) == 1
