"""Compile JSON Schemas, or refuse them with place and reason. The only module that knows the validator (jsonschema-rs).

The validator cannot be interrupted, so everything that could make it slow is bounded before it is called: size, depth,
patterns (linear-time engine only) and the number of paths (`expansion`). How an invalid value is explained is left to `issues`.

A compiled schema has a cost: a schema of cost 1 validates a value of a megabyte on the event loop
(`inline_limit_bytes`), one whose references make 100 paths to a part of a value about a hundredth of that; anything larger is
validated in a process that a deadline can end.
"""

import functools
import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

import jsonschema_rs  # noqa: TID251  this is the one place
import msgspec
from jsonschema_rs import CanonicalSchema, ValidationError, ValidationErrorKind  # noqa: TID251  this is the one place

from toolpost.base.ids import Json, JsonObject
from toolpost.contracts.document import REFERENCES, References, Subschema, draft_of, to_pointer, walk_subschemas
from toolpost.contracts.expansion import (
    PATHS_LIMIT,
    PLACES_LIMIT,
    Expansion,
    InPlaceCycle,
    PlacesTooLong,
    estimate_pattern_size,
    measure_expansion,
    patterns_of,
)

__all__ = [
    "CanonicalSchema",
    "Schema",
    "SchemaLimits",
    "SchemaProblem",
    "ValidationError",
    "ValidationErrorKind",
    "as_object_schema",
    "canonical_form",
    "check_bounds",
    "check_places",
    "compile_schema",
    "is_asserted_format",
]

SIZE_LIMIT_BYTES = 256 * 1024
SMALL_BYTES = 16 * 1024
"""A schema of this size is walked quickly, whatever it contains."""
DEPTH_LIMIT = 64
PLACE_LIMIT = 4_096
"""The longest place of a schema: each schema inside it repeats it."""
PATTERN_LIMIT_BYTES = 10 * 1024 * 1024
PATTERN_CACHE_LIMIT_BYTES = 2 * 1024 * 1024
PATTERN_STATES_LIMIT = 50_000
"""The size of all patterns of a schema together, about 25 ms to compile; of 6,000 real tools none has 1,500."""
QUOTE_LIMIT = 120

QUICK_COST = 1_000_000
"""Bytes of a value times cost of a schema: up to 50 ms on a slow machine for values that were made to be slow."""
QUICK_READ_COST = 3_000
"""Parts of a value times paths of a schema: how many errors are explained on the event loop, at 13 µs each."""
QUICK_SCHEMA_BYTES = 64 * 1024
"""Explaining an error reads the schema too."""

_LINEAR = jsonschema_rs.RegexOptions(size_limit=PATTERN_LIMIT_BYTES, dfa_size_limit=PATTERN_CACHE_LIMIT_BYTES)
_NATIVE_DRAFTS = {
    4: jsonschema_rs.Draft4,
    6: jsonschema_rs.Draft6,
    7: jsonschema_rs.Draft7,
    2019: jsonschema_rs.Draft201909,
    2020: jsonschema_rs.Draft202012,
}
# Keywords that apply to objects, and those that apply to other values only.
_OBJECT_KEYWORDS = frozenset(
    {
        "additionalProperties",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "maxProperties",
        "minProperties",
        "patternProperties",
        "properties",
        "propertyNames",
        "required",
        "unevaluatedProperties",
    }
)
_NON_OBJECT_KEYWORDS = frozenset(
    {
        *("const", "enum"),
        *("additionalItems", "contains", "items", "maxItems", "minItems", "prefixItems", "uniqueItems"),
        *("contentEncoding", "format", "maxLength", "minLength", "pattern"),
        *("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"),
    }
)
_VALIDATORS = {
    4: jsonschema_rs.Draft4Validator,
    6: jsonschema_rs.Draft6Validator,
    7: jsonschema_rs.Draft7Validator,
    2019: jsonschema_rs.Draft201909Validator,
    2020: jsonschema_rs.Draft202012Validator,
}
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
_BACK_REFERENCE = re.compile(r"\\(?:[1-9]|k<)")


class SchemaProblem(ValueError):
    """A schema cannot be used: `place` is a JSON Pointer into it, `reason` says why."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"at {place}: {reason}" if place else reason)
        self.place = place
        self.reason = reason


class SchemaLimits(NamedTuple):
    """What a schema can do at once. Found out when it is checked, and all that has to be remembered of the checks."""

    inline_bytes: int
    """JSON text up to this size is validated within a few milliseconds, whatever it contains.

    Larger values belong in a process that can be killed (`upstreams.validation`): the validator cannot be interrupted.
    """
    quick_parts: int
    """Values with at most so many parts are explained within a few milliseconds."""


class Schema:
    """A compiled schema, or one that was checked at an earlier start and is compiled when it is first used.

    Its callables are the validator's own methods, so that a check is a single native call. They raise `ValueError` for values
    that are not JSON, such as half of a surrogate pair or a key that is not a string.
    """

    def __init__(
        self, raw: JsonObject | bool, limits: SchemaLimits, validator: jsonschema_rs.Validator | None = None
    ) -> None:
        self.raw = raw
        self.limits = limits
        self.inline_limit_bytes, self.quick_parts = limits
        self._validator = validator

    @cached_property
    def is_valid(self) -> Callable[[Json], bool]:
        return self._find_validator().is_valid

    @cached_property
    def errors(self) -> Callable[[Json], Iterator[ValidationError]]:
        return self._find_validator().iter_errors

    @cached_property
    def check(self) -> Callable[[Json], None]:
        """Raise the first `ValidationError`. `errors` collects all of them before it hands out the first."""
        return self._find_validator().validate

    def _find_validator(self) -> jsonschema_rs.Validator:
        if self._validator is None:
            self._validator = _make_validator(self.raw)
        return self._validator


def compile_schema(raw: JsonObject | bool, *, root_object: bool, known: SchemaLimits | None = None) -> Schema:
    """Compile a schema, or raise `SchemaProblem`. With the limits that were found out before, nothing is checked again."""
    if known is not None:
        return Schema(raw, known)
    _check_root(raw, root_object=root_object)
    # From the cheapest check to the dearest: each one bounds what the next one walks.
    size_bytes = _check_size(raw)
    subschemas = _collect_subschemas(raw) if isinstance(raw, dict) else []
    _check_patterns_size(subschemas)
    # Before compiling: the validator would already walk all paths then, and cannot be interrupted.
    has_references = any(not subschema.schema.keys().isdisjoint(REFERENCES) for subschema in subschemas)
    references = References(subschemas[0].schema, subschemas) if has_references else None
    expansion = _check_expansion(raw, subschemas, references) if isinstance(raw, dict) else Expansion(1.0, "", 1.0)
    try:
        validator = _make_validator(raw)
    except ValidationError as error:
        raise _explain_compile_error(raw, error) from error
    except ValueError as error:
        raise SchemaProblem("", f"the schema is not JSON that can be read: {error}") from error
    _check_subschemas(subschemas, references)
    is_short = size_bytes <= QUICK_SCHEMA_BYTES
    limits = SchemaLimits(
        inline_bytes=int(QUICK_COST / expansion.cost),
        quick_parts=int(QUICK_READ_COST / expansion.paths) if is_short else 0,
    )
    return Schema(raw, limits, validator)


def _make_validator(raw: JsonObject | bool) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(raw, offline=True, validate_formats=True, pattern_options=_LINEAR)


def as_object_schema(raw: JsonObject) -> JsonObject:
    """Add `"type": "object"` to the schema of a root object that leaves it out: clients insist on it."""
    if "type" in raw or (raw.keys().isdisjoint(_OBJECT_KEYWORDS) and not raw.keys().isdisjoint(_NON_OBJECT_KEYWORDS)):
        return raw
    return {"type": "object"} | raw


def check_bounds(raw: JsonObject | bool) -> None:
    """Raise `SchemaProblem` if a schema is too large to be walked before it is compiled."""
    # Nearly every schema is small, which this finds out in a tenth of the time: written with spaces, JSON is not twice as long.
    with suppress(RecursionError, TypeError, ValueError):
        if 2 * len(msgspec.json.encode(raw)) <= SMALL_BYTES:
            return
    if _check_size(raw) > SMALL_BYTES:
        check_places(raw)


def check_places(raw: JsonObject | bool) -> None:
    """Raise `SchemaProblem` if schemas are nested too deeply, or under names so long that their places take megabytes."""
    if isinstance(raw, dict):
        _collect_subschemas(raw)


def canonical_form(raw: JsonObject | bool, *, draft: int) -> CanonicalSchema:
    """Return the form in which schemas are compared as sets of values; raises `ValueError`.

    Not bounded in time: estimate its cost first (`compatibility.cost`).
    """
    return jsonschema_rs.canonicalize(
        raw, draft=_NATIVE_DRAFTS[draft], offline=True, validate_formats=True, pattern_options=_LINEAR
    )


@functools.lru_cache(maxsize=1024)
def is_asserted_format(name: str, draft: int) -> bool:
    """Return whether the validator checks a format; a format unknown to the draft asserts nothing."""
    try:
        _VALIDATORS[draft]({"format": name}, validate_formats=True, ignore_unknown_formats=False)
    except ValueError:
        return False
    return True


def _check_root(raw: Json, *, root_object: bool) -> None:
    if raw is None:
        nothing = '{"type": "object", "properties": {}}'
        raise SchemaProblem("", f"the schema is missing; write {nothing} for a tool without arguments")
    if not isinstance(raw, dict | bool):
        raise SchemaProblem("", f"a schema is a JSON object, and this is not an object: {_quote(raw)}")
    if isinstance(raw, dict) and draft_of(raw) is None:
        reason = f"{_quote(raw['$schema'])} is not a known draft (draft-04 to 2020-12)"
        raise SchemaProblem("/$schema", reason)
    if not root_object:
        return
    if isinstance(raw, bool):
        raise SchemaProblem("", 'the root is not an object schema; write {"type": "object", …}')
    if "type" not in raw:
        raise SchemaProblem("", 'the root names no type, and does not describe an object; add "type": "object"')
    if raw["type"] != "object":
        raise SchemaProblem("/type", f'the root type must be exactly "object", not {_quote(raw["type"])}')


def _check_size(raw: JsonObject | bool) -> int:
    try:
        size_bytes = len(json.dumps(raw, ensure_ascii=False, allow_nan=False).encode())
    except RecursionError:
        raise SchemaProblem("", "the schema is nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise SchemaProblem("", f"the schema is not JSON: {error}") from error
    if size_bytes > SIZE_LIMIT_BYTES:
        raise SchemaProblem("", f"the schema is {size_bytes} bytes of JSON; the limit is {SIZE_LIMIT_BYTES}")
    return size_bytes


def _collect_subschemas(raw: JsonObject) -> list[Subschema]:
    subschemas, places_length = [], 0
    for subschema in walk_subschemas(raw):
        if subschema.depth > DEPTH_LIMIT:
            raise SchemaProblem(subschema.place, f"schemas are nested more than {DEPTH_LIMIT} levels deep")
        if len(subschema.place) > PLACE_LIMIT or (places_length := places_length + len(subschema.place)) > PLACES_LIMIT:
            raise _make_places_too_long()
        subschemas.append(subschema)
    return subschemas


def _make_places_too_long() -> SchemaProblem:
    return SchemaProblem("", "names that are so long are nested too deeply: their places alone take megabytes")


def _check_expansion(raw: JsonObject, subschemas: list[Subschema], references: References | None) -> Expansion:
    try:
        expansion = measure_expansion(raw, subschemas, references)
    except InPlaceCycle as cycle:
        reason = "it leads back to itself without going any deeper into the value, so that it has no end"
        raise SchemaProblem(cycle.place, reason) from cycle
    except PlacesTooLong:
        raise _make_places_too_long() from None
    if PATHS_LIMIT < expansion.paths < math.inf:
        reason = (
            f"its references and branches apply over {PATHS_LIMIT:,} schemas to one part of a value"
            " (they multiply); the time that takes to validate is not bounded"
        )
        raise SchemaProblem(expansion.place, reason)
    return expansion


def _check_patterns_size(subschemas: list[Subschema]) -> None:
    left = PATTERN_STATES_LIMIT
    for subschema in subschemas:
        for place, pattern in patterns_of(subschema.schema):
            left -= estimate_pattern_size(pattern)
            if left < 0:
                reason = (
                    f"with the pattern {_quote(pattern)} those of this schema are too large for a linear-time engine"
                )
                raise SchemaProblem(subschema.place + place, reason)


def _explain_compile_error(raw: JsonObject | bool, error: ValidationError) -> SchemaProblem:
    place = to_pointer(error.instance_path)
    match error.kind:
        case ValidationErrorKind.Referencing() if isinstance(raw, dict):
            subschemas = list(walk_subschemas(raw))
            return _find_dangling_reference(subschemas, References(raw, subschemas)) or SchemaProblem(
                place, error.message
            )
        case ValidationErrorKind.Format(format="regex"):
            return SchemaProblem(place, _explain_pattern(str(error.instance)))
        case ValidationErrorKind.Type(types=types):
            return SchemaProblem(place, f"must be {' or '.join(types)}, not {_quote(error.instance)}")
        case ValidationErrorKind.AnyOf() if error.instance_path[-1:] == ["type"]:
            return SchemaProblem(place, f"{_quote(error.instance)} is not a JSON Schema type")
    return SchemaProblem(place, f"breaks the rules of JSON Schema: {_cut(error.message)}")


def _check_subschemas(subschemas: list[Subschema], references: References | None) -> None:
    # The validator compiles only what the root can reach; unused definitions must be valid too.
    for subschema in subschemas:
        for place, pattern in patterns_of(subschema.schema):
            if not _is_compilable(pattern):
                raise SchemaProblem(subschema.place + place, _explain_pattern(pattern))
    if references is not None and (problem := _find_dangling_reference(subschemas, references)):
        raise problem


@functools.lru_cache(maxsize=1024)
def _is_compilable(pattern: str) -> bool:
    try:
        jsonschema_rs.validator_for({"pattern": pattern}, offline=True, pattern_options=_LINEAR)
    except ValueError:
        return False
    return True


def _explain_pattern(pattern: str) -> str:
    shown = f"the pattern {_quote(pattern)}"
    if _LOOK_AROUND.search(pattern):
        return f"{shown} uses look-around, which a linear-time engine cannot run"
    if _BACK_REFERENCE.search(pattern):
        return f"{shown} uses a back-reference, which a linear-time engine cannot run"
    return f"{shown} is malformed, or too large for a linear-time engine"


def _find_dangling_reference(subschemas: list[Subschema], references: References) -> SchemaProblem | None:
    for subschema in subschemas:
        for keyword in REFERENCES:
            if (
                keyword in subschema.schema
                and references.find_target(subschema.place, subschema.schema, keyword) is None
            ):
                reference = _quote(subschema.schema[keyword])
                reason = f"{reference} leads to nothing in this document, and nothing outside it is ever fetched"
                return SchemaProblem(f"{subschema.place}/{keyword}", reason)
    return None


def _quote(value: Json) -> str:
    return _cut(json.dumps(value, ensure_ascii=False, default=repr))


def _cut(text: str) -> str:
    return text if len(text) <= QUOTE_LIMIT else f"{text[:QUOTE_LIMIT]}…"
