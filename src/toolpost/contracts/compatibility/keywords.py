"""Keywords that can be compared one by one: types, listed values, bounds and forms of a single schema."""

import json
import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

from toolpost.base.ids import Json, JsonObject
from toolpost.base.values import is_among, is_same_json
from toolpost.contracts.compatibility.containment import Containment
from toolpost.contracts.compatibility.regex import UnsupportedPattern, find_text, is_pattern_within
from toolpost.contracts.schema import is_asserted_format

ALL_TYPES = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})

_LOWER = {"minLength": "string", "minItems": "array", "minProperties": "object"}
_UPPER = {"maxLength": "string", "maxItems": "array", "maxProperties": "object"}
_FORMS = ("pattern", "format", "contentEncoding", "contentMediaType")
_FORM_TYPES = dict.fromkeys(_FORMS, "string") | {"multipleOf": "number", "uniqueItems": "array"}
NUMERIC = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
BOUNDS = (*NUMERIC, *_LOWER, *_UPPER, "multipleOf", "uniqueItems")
# Every text in the first format is also in the others.
_WIDER_FORMATS = {
    "uri": frozenset({"uri-reference", "iri", "iri-reference"}),
    "uri-reference": frozenset({"iri-reference"}),
    "iri": frozenset({"iri-reference"}),
}
_EXACT = 1024
_LONGEST = 256
"""The largest bound on a length that is proven from a pattern: the time grows with it."""
SIMPLE_KEYWORDS = frozenset({"type", "enum", "const", *BOUNDS, *_FORMS})


class KeywordDifference(NamedTuple):
    """A keyword on which two schemas differ; `containment` is about this keyword alone."""

    kind: str
    keyword: str
    containment: Containment


def types_of(schema: JsonObject) -> frozenset[str]:
    """Return the types that a schema accepts; `number` includes `integer`."""
    named = schema.get("type")
    # Without `type` every type is accepted.
    names = {named} if isinstance(named, str) else set(named) if isinstance(named, list) else ALL_TYPES
    return frozenset(names | {"integer"} if "number" in names else names)


def compare_keywords(narrow: JsonObject, wide: JsonObject, *, draft: int) -> Iterator[KeywordDifference]:
    """Yield the keywords on which two schemas differ."""
    types = types_of(narrow)
    if types != types_of(wide):
        yield KeywordDifference("type", "type", _yes_or_no(types <= types_of(wide)))
    yield from _compare_values(narrow, wide, draft)
    yield from _compare_numeric(narrow, wide, types, draft)
    yield from _compare_counts(narrow, wide, types)
    yield from _compare_forms(narrow, wide, types, draft)


def _yes_or_no(is_proven: bool) -> Containment:
    return Containment.YES if is_proven else Containment.NO


def listed_values_of(schema: JsonObject, draft: int) -> list[Json] | None:
    """Return the values that `enum` and `const` allow together, None if the schema has neither."""
    values = schema.get("enum")
    listed = values if isinstance(values, list) else None
    # Draft 4 does not know `const`.
    if "const" not in schema or draft == 4:
        return listed
    const = schema["const"]
    return [const] if listed is None or _are_among([const], listed) else []


def _compare_values(narrow: JsonObject, wide: JsonObject, draft: int) -> Iterator[KeywordDifference]:
    narrow_values, wide_values = listed_values_of(narrow, draft), listed_values_of(wide, draft)
    if is_same_json(narrow_values, wide_values):
        return
    keyword = "const" if "const" in narrow or "const" in wide else "enum"
    if wide_values is None:
        yield KeywordDifference("values", keyword, Containment.YES)
    elif narrow_values is None:
        is_boolean = types_of(narrow) == {"boolean"}
        yield KeywordDifference(
            "values", keyword, _yes_or_no(is_boolean and is_among(True, wide_values) and is_among(False, wide_values))
        )
    else:
        yield KeywordDifference("values", keyword, _yes_or_no(_are_among(narrow_values, wide_values)))


def _are_among(narrow_values: Iterable[Json], wide_values: Iterable[Json]) -> bool:
    written = {_canonical_text(value) for value in wide_values}
    return all(_canonical_text(value) in written for value in narrow_values)


def _canonical_text(value: Json) -> str:
    """Write a value so that equal values are written alike: to a validator 1.0 is 1, and true is not."""
    return json.dumps(_normalize_numbers(value), sort_keys=True)


def _normalize_numbers(value: Json) -> Json:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_normalize_numbers(item) for item in value]
    return {key: _normalize_numbers(item) for key, item in value.items()} if isinstance(value, dict) else value


def _compare_numeric(
    narrow: JsonObject, wide: JsonObject, types: frozenset[str], draft: int
) -> Iterator[KeywordDifference]:
    applies = not types.isdisjoint({"integer", "number"})
    for lower, exclusive, sign in (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1)):
        # Upper bounds are compared as lower ones with the sign turned.
        if all(narrow.get(word) == wide.get(word) for word in (lower, exclusive)):
            continue
        narrow_bound, wide_bound = (_bound(schema, lower, exclusive, sign, draft) for schema in (narrow, wide))
        is_proven = not applies or (narrow_bound is not None and wide_bound is not None and narrow_bound >= wide_bound)
        changed = lower if narrow.get(lower) != wide.get(lower) else exclusive
        yield KeywordDifference("bounds", changed, _yes_or_no(is_proven))


def _bound(schema: JsonObject, inclusive: str, exclusive: str, sign: int, draft: int) -> tuple[float, bool] | None:
    """Return the tighter of both bounds as a lower one, and whether it is exclusive; None if it cannot be read."""
    bound, strict = schema.get(inclusive), schema.get(exclusive)
    found: list[tuple[float, bool]] = [(-math.inf, False)]
    # In draft 4 `exclusiveMinimum` is a flag of `minimum`; later it is a bound of its own.
    is_strict = draft == 4 and strict is True
    if draft == 4:
        strict = None
    for value, excludes in ((bound, is_strict), (strict, True)):
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        found.append((sign * value, excludes))
    return max(found)


def _compare_counts(narrow: JsonObject, wide: JsonObject, types: frozenset[str]) -> Iterator[KeywordDifference]:
    for words, sign, nothing in ((_LOWER, 1, 0.0), (_UPPER, -1, math.inf)):
        for word, kind in words.items():
            narrow_value, wide_value = narrow.get(word, nothing), wide.get(word, nothing)
            if narrow_value != wide_value:
                is_readable = all(isinstance(value, int | float) for value in (narrow_value, wide_value))
                is_proven = (
                    kind not in types
                    or (is_readable and sign * narrow_value >= sign * wide_value)
                    or (kind == "string" and _has_length(narrow, wide_value, is_least=sign > 0))
                )
                yield KeywordDifference("bounds", word, _yes_or_no(is_proven))


def _has_length(schema: JsonObject, bound: Json, *, is_least: bool) -> bool:
    """Return whether `pattern` alone proves a bound on the length: `.{2,}` matches no text of fewer than two characters."""
    pattern, most = schema.get("pattern"), schema.get("maxLength")
    if not isinstance(pattern, str) or not isinstance(bound, int) or bound > _LONGEST:
        return False
    try:
        if is_least:
            return find_text(pattern, None, 0, bound - 1) is None
        return find_text(pattern, None, bound + 1, most if isinstance(most, int) else None) is None
    except UnsupportedPattern:
        return False


def _compare_forms(
    narrow: JsonObject, wide: JsonObject, types: frozenset[str], draft: int
) -> Iterator[KeywordDifference]:
    for word, kind in _FORM_TYPES.items():
        some, others = narrow.get(word), wide.get(word)
        if some == others:
            continue
        is_free = (
            others is None or others is False or kind not in (types | ({"number"} if "integer" in types else set()))
        )
        is_proven = is_free or _is_form_within(word, narrow, others, draft)
        group = "format" if word in _FORMS else "bounds"
        yield KeywordDifference(group, word, Containment.YES if is_proven else Containment.UNKNOWN)


def _is_step_within(narrow: Json, wide: Json, *, is_whole: bool) -> bool:
    """Return whether every multiple of `narrow`, or every whole one, is a multiple of `wide`."""
    steps = [
        Fraction(step)
        for step in (narrow, wide)
        if isinstance(step, int | float) and not isinstance(step, bool) and math.isfinite(step) and step > 0
    ]
    # Only steps that are exact in binary: of others, such as 0.1, validators calculate multiples in different ways.
    if len(steps) != 2 or any(step.denominator > _EXACT for step in steps):
        return False
    # The whole multiples of 3/2 are the multiples of 3.
    step = Fraction(steps[0].numerator) if is_whole else steps[0]
    return (step / steps[1]).denominator == 1


def _is_form_within(word: str, narrow: JsonObject, others: Json, draft: int) -> bool:
    some = narrow.get(word)
    match word:
        case "multipleOf":
            return _is_step_within(some, others, is_whole=types_of(narrow) == {"integer"})
        case "format":
            # A format that no validator knows asserts nothing.
            return not is_asserted_format(others, draft) or others in _WIDER_FORMATS.get(str(some), ())
        case "pattern" if isinstance(others, str):
            least, most = narrow.get("minLength"), narrow.get("maxLength")
            return is_pattern_within(
                some if isinstance(some, str) else "",
                others,
                least=least if isinstance(least, int) else 0,
                most=most if isinstance(most, int) else None,
            )
    return False
