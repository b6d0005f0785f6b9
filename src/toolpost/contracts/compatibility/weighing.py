"""What a schema would cost to compare. Native code cannot be interrupted, so it is weighed before it is called."""

import math

from toolpost.contracts.ids import Json, JsonObject
from toolpost.contracts.parts import Part, draft_of, parts_of
from toolpost.contracts.references import REFERENCES

NODES_LIMIT = 20_000
DEPTH_LIMIT = 100
REFERENCES_LIMIT = 200

# Measured on a slow machine with schemas made to be slow; see tests/contracts/compatibility/test_hostile.py.
_PART_S = 0.000_1
_CASE_S = 0.002
_VALUE_S = 0.000_005
_LETTER_S = 0.000_02
_CASES_LIMIT = 100_000

# What reads the same in every draft from 6 on; anything else keeps two drafts from being compared.
_NEUTRAL = frozenset(
    {
        "$comment", "$schema", "additionalProperties", "allOf", "anyOf", "const", "default", "deprecated", "description",
        "enum", "examples", "exclusiveMaximum", "exclusiveMinimum", "format", "items", "maxItems", "maxLength",
        "maxProperties", "maximum", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "not", "oneOf",
        "pattern", "properties", "readOnly", "required", "title", "type", "uniqueItems", "writeOnly",
    }
)  # fmt: skip
_NEUTRAL_FORMATS = frozenset({"date", "date-time", "email", "hostname", "ipv4", "ipv6", "time", "uri"})


def is_manageable(schema: Json) -> bool:
    """Say whether a schema is small enough to be walked at all."""
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


def cost_s(schema: Json) -> float:
    """Return how long comparing a schema may take at the worst, in seconds; generous on purpose."""
    if not isinstance(schema, dict):
        return 0.0
    return sum(_part_cost_s(part.schema) for part in parts_of(schema))


def _part_cost_s(schema: JsonObject) -> float:
    cost = _PART_S + _CASE_S * (_cases(schema) - 1)
    if isinstance(values := schema.get("enum"), list):
        compound = sum(isinstance(value, dict | list) for value in values)
        cost += _VALUE_S * len(values) + _VALUE_S * compound * compound / 100
    patterns = [schema.get("pattern"), *(schema.get("patternProperties") or ())]
    letters = sum(len(pattern) for pattern in patterns if isinstance(pattern, str))
    return cost + _LETTER_S * letters * max(1, len(patterns) - 1)


def _cases(schema: JsonObject, depth: int = 0) -> float:
    """Count the ways in which a value can satisfy a schema: branches add up, conditions beside each other multiply."""
    if depth > 8:
        return _CASES_LIMIT
    cases = 1.0
    for word in ("anyOf", "oneOf"):
        if isinstance(branches := schema.get(word), list):
            inner = sum(_cases(branch, depth + 1) for branch in branches if isinstance(branch, dict)) or 1
            cases *= inner if word == "anyOf" else inner * max(1, len(branches) / 2)
    for branch in schema.get("allOf") or ():
        if isinstance(branch, dict):
            cases *= _cases(branch, depth + 1)
    cases *= _conditional_cases(schema, depth)
    return min(cases, _CASES_LIMIT) if math.isfinite(cases) else _CASES_LIMIT


def _conditional_cases(schema: JsonObject, depth: int) -> float:
    cases = 1.0
    if "if" in schema:
        then, otherwise = schema.get("then", {}), schema.get("else", {})
        cases *= sum(_cases(branch, depth + 1) for branch in (then, otherwise) if isinstance(branch, dict)) or 1
    if isinstance(denied := schema.get("not"), dict) and denied:
        cases *= 1 + sum(1 for _ in parts_of(denied)) + len(denied)
    for word in ("dependencies", "dependentSchemas", "dependentRequired", "contains", "unevaluatedProperties"):
        held = schema.get(word)
        cases *= 1 + (len(held) if isinstance(held, dict) else 0)
    return cases


def is_draft_neutral(schema: Json) -> bool:
    """Say whether a schema reads the same in every draft from 6 on."""
    if not isinstance(schema, dict):
        return True
    return draft_of(schema) in (6, 7, 2019, 2020) and all(_is_neutral(part) for part in parts_of(schema))


def _is_neutral(part: Part) -> bool:
    schema = part.schema
    is_known = all(word in _NEUTRAL or word.startswith("x-") for word in schema)
    return is_known and not isinstance(schema.get("items"), list) and schema.get("format", "uri") in _NEUTRAL_FORMATS
