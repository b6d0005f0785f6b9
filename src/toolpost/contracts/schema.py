"""Schemas, compiled and closed. What is refused is named by place and reason.

The one place that knows the validator. What a broken value tells its sender is left to `faults`.
"""

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

import jsonschema_rs  # noqa: TID251  this is the one place
from jsonschema_rs import ValidationError, ValidationErrorKind  # noqa: TID251  this is the one place

from toolpost.contracts.ids import Json, JsonObject

__all__ = [
    "REFERENCES",
    "References",
    "Schema",
    "SchemaProblem",
    "ValidationError",
    "ValidationErrorKind",
    "closed",
    "compile_schema",
    "part_at",
    "parts_of",
    "pointer",
]

SIZE_LIMIT_BYTES = 256 * 1024
DEPTH_LIMIT = 64
PATTERN_LIMIT_BYTES = 10 * 1024 * 1024
PATTERN_CACHE_LIMIT_BYTES = 2 * 1024 * 1024
QUOTE_LIMIT = 120

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

# Where schemas sit in a schema. Everything else (`enum`, `const`, `default`, `examples`) holds values.
_ONE = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_MANY = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_NAMED = frozenset({"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"})
_NESTING = _ONE | _MANY | _NAMED

_NEWEST = 2020
_DRAFTS = {
    "json-schema.org/draft-04/schema": 4,
    "json-schema.org/draft-06/schema": 6,
    "json-schema.org/draft-07/schema": 7,
    "json-schema.org/draft/2019-09/schema": 2019,
    "json-schema.org/draft/2020-12/schema": _NEWEST,
    "json-schema.org/schema": _NEWEST,
}

_LINEAR = jsonschema_rs.RegexOptions(size_limit=PATTERN_LIMIT_BYTES, dfa_size_limit=PATTERN_CACHE_LIMIT_BYTES)
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
_BACK_REFERENCE = re.compile(r"\\(?:[1-9]|k<)")


class SchemaProblem(ValueError):
    """A schema cannot be used: `place` is a JSON Pointer into it, `reason` says why."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"at {place}: {reason}" if place else reason)
        self.place = place
        self.reason = reason


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """A schema that values can be held to.

    Its callables are the compiled validator's own methods: a check is one call into it. They raise
    `ValueError` for what is no JSON at all, such as half of a surrogate pair or a key that is not text.
    """

    raw: JsonObject | bool
    is_valid: Callable[[Json], bool]
    errors: Callable[[Json], Iterator[ValidationError]]
    check: Callable[[Json], None]
    """Raise the first `ValidationError`. `errors` collects all of them before it hands out the first."""


def compile_schema(raw: JsonObject | bool, *, root_object: bool) -> Schema:
    """Compile a schema, or raise the `SchemaProblem` that keeps it from being used."""
    _check_root(raw, root_object=root_object)
    _check_size(raw)
    parts = _bounded_parts(raw) if isinstance(raw, dict) else []
    compiled = _compiled(raw)
    _check_parts(parts)
    return Schema(raw=raw, is_valid=compiled.is_valid, errors=compiled.iter_errors, check=compiled.validate)


def _check_root(raw: Json, *, root_object: bool) -> None:
    if raw is None:
        nothing = '{"type": "object", "properties": {}}'
        raise SchemaProblem("", f"there is no schema; {nothing} is how a tool says that it takes nothing")
    if not isinstance(raw, dict | bool):
        raise SchemaProblem("", f"a schema is a JSON object, and this is not an object: {_quoted(raw)}")
    if isinstance(raw, dict):
        _draft_of(raw)
    if root_object:
        _check_root_object(raw)


def _check_root_object(raw: JsonObject | bool) -> None:
    if isinstance(raw, bool):
        raise SchemaProblem("", 'the root is not an object schema; write {"type": "object", …}')
    if "type" not in raw:
        raise SchemaProblem("", 'the root names no type; add "type": "object"')
    if raw["type"] != "object":
        raise SchemaProblem("/type", f'the root type must be exactly "object", not {_quoted(raw["type"])}')


def _check_size(raw: JsonObject | bool) -> None:
    try:
        size_bytes = len(json.dumps(raw, ensure_ascii=False, allow_nan=False).encode())
    except RecursionError:
        raise SchemaProblem("", "the schema is nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise SchemaProblem("", f"the schema is not JSON: {error}") from error
    if size_bytes > SIZE_LIMIT_BYTES:
        raise SchemaProblem("", f"the schema is {size_bytes} bytes of JSON; the limit is {SIZE_LIMIT_BYTES}")


def _draft_of(raw: JsonObject) -> int:
    named = raw.get("$schema", "json-schema.org/schema")
    uri = named.removesuffix("#") if isinstance(named, str) else ""
    draft = _DRAFTS.get(uri.removeprefix("https://").removeprefix("http://"))
    if draft is None:
        raise SchemaProblem("/$schema", f"{_quoted(named)} is no draft that is known (draft-04 to 2020-12)")
    return draft


def _bounded_parts(raw: JsonObject) -> list["Part"]:
    parts = []
    for part in parts_of(raw):
        if part.depth > DEPTH_LIMIT:
            raise SchemaProblem(part.place, f"schemas are nested more than {DEPTH_LIMIT} levels deep")
        parts.append(part)
    return parts


def _compiled(raw: JsonObject | bool) -> jsonschema_rs.Validator:
    try:
        return jsonschema_rs.validator_for(raw, offline=True, validate_formats=True, pattern_options=_LINEAR)
    except ValidationError as error:
        raise _problem(raw, error) from error
    except ValueError as error:
        raise SchemaProblem("", f"the schema is not JSON that can be read: {error}") from error


def _problem(raw: JsonObject | bool, error: ValidationError) -> SchemaProblem:
    place = pointer(error.instance_path)
    match error.kind:
        case ValidationErrorKind.Referencing() if isinstance(raw, dict):
            return _dangling(raw) or SchemaProblem(place, error.message)
        case ValidationErrorKind.Format(format="regex"):
            return SchemaProblem(place, _pattern_reason(str(error.instance)))
        case ValidationErrorKind.Type(types=types):
            return SchemaProblem(place, f"must be {' or '.join(types)}, not {_quoted(error.instance)}")
        case ValidationErrorKind.AnyOf() if error.instance_path[-1:] == ["type"]:
            return SchemaProblem(place, f"{_quoted(error.instance)} is no JSON Schema type")
    return SchemaProblem(place, f"breaks the rules of JSON Schema: {_cut(error.message)}")


def _check_parts(parts: list["Part"]) -> None:
    # The validator compiles what the root can reach; a definition that nobody uses is held to the same rules.
    for part in parts:
        _check_patterns(part)
    refers = any(not part.schema.keys().isdisjoint(REFERENCES) for part in parts)
    if refers and (problem := _dangling(parts[0].schema)):
        raise problem


def _check_patterns(part: "Part") -> None:
    if isinstance(pattern := part.schema.get("pattern"), str) and not _runs(pattern):
        raise SchemaProblem(f"{part.place}/pattern", _pattern_reason(pattern))
    for pattern in part.schema.get("patternProperties", ()):
        if not _runs(pattern):
            place = part.place + pointer(("patternProperties", pattern))
            raise SchemaProblem(place, _pattern_reason(pattern))


@functools.lru_cache(maxsize=1024)
def _runs(pattern: str) -> bool:
    try:
        jsonschema_rs.validator_for({"pattern": pattern}, offline=True, pattern_options=_LINEAR)
    except ValueError:
        return False
    return True


def _pattern_reason(pattern: str) -> str:
    shown = f"the pattern {_quoted(pattern)}"
    if _LOOK_AROUND.search(pattern):
        return f"{shown} uses look-around, which a linear-time engine cannot run"
    if _BACK_REFERENCE.search(pattern):
        return f"{shown} uses a back-reference, which a linear-time engine cannot run"
    return f"{shown} is malformed, or too large for a linear-time engine"


def _dangling(raw: JsonObject) -> SchemaProblem | None:
    references = References(raw)
    for part in parts_of(raw):
        for keyword in REFERENCES:
            if keyword in part.schema and references.target(part.place, part.schema, keyword) is None:
                return SchemaProblem(f"{part.place}/{keyword}", _dangling_reason(part.schema[keyword]))
    return None


def _dangling_reason(reference: Json) -> str:
    return f"{_quoted(reference)} leads to nothing in this document, and nothing outside it is ever fetched"


def _quoted(value: Json) -> str:
    return _cut(json.dumps(value, ensure_ascii=False, default=repr))


def _cut(text: str) -> str:
    return text if len(text) <= QUOTE_LIMIT else f"{text[:QUOTE_LIMIT]}…"


class Part(NamedTuple):
    """A schema inside a schema: where it is, how many schemas lie above it."""

    place: str
    depth: int
    schema: JsonObject


def parts_of(raw: JsonObject) -> Iterator[Part]:
    """Yield the schema and every object schema inside it, outer before inner, in document order."""
    waiting = [Part("", 0, raw)]
    while waiting:
        part = waiting.pop()
        yield part
        inner = [Part(part.place + place, part.depth + 1, child) for place, child in _children(part.schema)]
        waiting.extend(reversed(inner))


def _children(schema: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    for keyword, value in schema.items():
        if keyword in _NESTING:
            yield from _children_under(keyword, value)


def _children_under(keyword: str, value: Json) -> Iterator[tuple[str, JsonObject]]:
    if isinstance(value, dict) and keyword in _ONE:
        yield f"/{keyword}", value
    elif isinstance(value, dict):
        named = ((pointer((keyword, name)), child) for name, child in value.items())
        yield from ((place, child) for place, child in named if isinstance(child, dict))
    elif isinstance(value, list):
        numbered = ((f"/{keyword}/{number}", child) for number, child in enumerate(value))
        yield from ((place, child) for place, child in numbered if isinstance(child, dict))


def pointer(path: Iterable[str | int]) -> str:
    """Write a path as a JSON Pointer; the root is the empty text."""
    return "".join(f"/{_escaped(step)}" for step in path)


def _escaped(step: str | int) -> str:
    return step.replace("~", "~0").replace("/", "~1") if isinstance(step, str) else str(step)


def part_at(raw: Json, place: str) -> Json:
    """Return what a JSON Pointer points at, or None."""
    found = raw
    for step in place.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found


class References:
    """Where the references of one document lead, inside it: pointers, anchors and embedded resources."""

    def __init__(self, raw: JsonObject) -> None:
        self._raw = raw
        self._id_keyword = "id" if _draft_of(raw) == 4 else "$id"
        self._resources: dict[str, str] = {"": ""}
        self._anchors: dict[tuple[str, str], str] = {}
        self._bases: list[tuple[str, str]] = []
        for part in parts_of(raw):
            self._read(part)

    def _read(self, part: Part) -> None:
        base = self._base_at(part.place)
        if isinstance(identity := part.schema.get(self._id_keyword), str):
            address, anchor = urldefrag(identity)
            if address:
                base = urljoin(base, address)
                self._bases.append((part.place, base))
                self._resources[base] = part.place
            if anchor:
                self._anchors[base, anchor] = part.place
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := part.schema.get(keyword), str):
                self._anchors[base, name] = part.place

    def _base_at(self, place: str) -> str:
        around = [base for above, base in self._bases if place == above or place.startswith(f"{above}/")]
        # Outer schemas are read before inner ones, so the last is the nearest.
        return around[-1] if around else ""

    def target(self, place: str, schema: JsonObject, keyword: str) -> str | None:
        """Return the place that a reference in the schema at `place` leads to, or None."""
        reference = schema[keyword]
        if not isinstance(reference, str) or (keyword == "$recursiveRef" and reference != "#"):
            return None
        address, fragment = urldefrag(reference)
        base = self._base_at(place)
        if address:
            base = urljoin(base, address)
        resource = self._resources.get(base)
        return None if resource is None else self._inside(resource, base, unquote(fragment))

    def _inside(self, resource: str, base: str, fragment: str) -> str | None:
        if fragment and not fragment.startswith("/"):
            return self._anchors.get((base, fragment))
        place = resource + fragment
        return None if part_at(self._raw, place) is None else place


# A branch describes the same value as the schema that it stands in: closing it would shut out its siblings.
_BRANCHES = frozenset({"allOf", "anyOf", "dependencies", "dependentSchemas", "else", "if", "not", "oneOf", "then"})
# These ask a question of a value. To close them would change the answer, even turn it round.
_QUESTIONS = frozenset({"contains", "if", "not"})
_DEFINITIONS = frozenset({"$defs", "definitions"})
_CLOSERS = frozenset({"additionalProperties", "unevaluatedProperties"})
_SHAPES = _NESTING - _BRANCHES - _DEFINITIONS


def closed(raw: JsonObject) -> JsonObject:
    """Return the schema as native tools publish it: unknown and reserved properties are refused.

    - The root is closed unless it says itself what else it takes. With branches or references beside its
      properties it gets `unevaluatedProperties`; drafts before 2019-09 lack that keyword and stay open there.
    - A nested object is closed when it declares properties, says nothing itself, has no branch, reference or
      `patternProperties` beside it, and no branch around it: a branch may describe the same value again.
    - What a reference leads to is closed only when no reference to it comes from inside a branch or has more
      of the same value described beside it, be it by way of a definition that must itself stay open.
      So a shared base stays open, and whoever extends it stays valid.
    - A property marked `x-reserved` gets `not: {}`.
    """
    kept_open: set[str] = set()
    while True:
        closing = _Closing(raw, frozenset(kept_open))
        result = closing.root()
        if closing.extended <= kept_open:
            return result
        kept_open |= closing.extended


class _Closing:
    """One pass over a schema, which also notes the places that turn out to be extended elsewhere."""

    def __init__(self, raw: JsonObject, kept_open: frozenset[str]) -> None:
        self._raw = raw
        self._kept_open = kept_open
        self._draft = _draft_of(raw)
        self.extended: set[str] = set()

    @functools.cached_property
    def _references(self) -> References:
        return References(self._raw)

    def root(self) -> JsonObject:
        result = self._copied(self._raw, "", may_close=True)
        if not _CLOSERS.isdisjoint(self._raw):
            return result
        # `additionalProperties` already knows the patterns beside it.
        if not _is_combined(self._raw):
            result["additionalProperties"] = False
        elif self._draft >= 2019:
            result["unevaluatedProperties"] = False
        return result

    def _copied(self, schema: JsonObject, place: str, *, may_close: bool) -> JsonObject:
        may_close = may_close and place not in self._kept_open
        self._note_references(schema, place, extends=not may_close or not _SHAPES.isdisjoint(schema))
        inner_may_close = may_close and not _describes_inner_values_twice(schema)
        copy = {
            keyword: self._keyword(keyword, value, f"{place}/{keyword}", may_close=inner_may_close)
            if keyword in _NESTING
            else value
            for keyword, value in schema.items()
        }
        if place and may_close and _is_closable(schema):
            copy["additionalProperties"] = False
        return copy

    def _keyword(self, keyword: str, value: Json, place: str, *, may_close: bool) -> Json:
        if keyword in _QUESTIONS:
            self._note_references_under(value, place)
            return value
        if keyword in _DEFINITIONS:
            may_close = True
        elif keyword in _BRANCHES:
            may_close = False
        if isinstance(value, dict) and keyword in _ONE:
            return self._copied(value, place, may_close=may_close)
        if isinstance(value, dict):
            return {
                name: self._named(keyword, child, place + pointer((name,)), may_close=may_close)
                for name, child in value.items()
            }
        if isinstance(value, list) and keyword in _MANY:
            return [self._child(child, f"{place}/{n}", may_close=may_close) for n, child in enumerate(value)]
        return value

    def _named(self, keyword: str, child: Json, place: str, *, may_close: bool) -> Json:
        copy = self._child(child, place, may_close=may_close)
        if keyword == "properties" and isinstance(copy, dict) and copy.get("x-reserved") is True:
            return self._reserved(copy)
        return copy

    def _child(self, child: Json, place: str, *, may_close: bool) -> Json:
        return self._copied(child, place, may_close=may_close) if isinstance(child, dict) else child

    def _reserved(self, schema: JsonObject) -> JsonObject:
        # Before 2019-09 whatever stands beside `$ref` is ignored.
        if "$ref" in schema and self._draft < 2019:
            reference = {"$ref": schema["$ref"]}
            schema = {"allOf": [reference]} | {k: v for k, v in schema.items() if k not in ("$ref", "allOf")}
        return schema | {"not": {}}

    def _note_references(self, schema: JsonObject, place: str, *, extends: bool) -> None:
        for keyword in REFERENCES:
            if extends and keyword in schema and (target := self._references.target(place, schema, keyword)):
                self.extended.add(target)

    def _note_references_under(self, value: Json, place: str) -> None:
        if isinstance(value, dict):
            for part in parts_of(value):
                self._note_references(part.schema, place + part.place, extends=True)


def _is_combined(schema: JsonObject) -> bool:
    return any(_combines(keyword, value) for keyword, value in schema.items())


def _combines(keyword: str, value: Json) -> bool:
    if keyword == "dependencies":
        # This one may also hold lists of required names, which describe nothing.
        return any(True for _ in _children_under(keyword, value))
    return keyword in _BRANCHES or keyword in REFERENCES


def _is_closable(schema: JsonObject) -> bool:
    if not schema.get("properties") or not _CLOSERS.isdisjoint(schema):
        return False
    return "patternProperties" not in schema and not _is_combined(schema)


def _describes_inner_values_twice(schema: JsonObject) -> bool:
    if not schema.keys().isdisjoint((*REFERENCES, "contains", "patternProperties")):
        return True
    return any(_describes_inner_values(branch) for branch in _branches(schema))


def _describes_inner_values(schema: JsonObject) -> bool:
    if not schema.keys().isdisjoint((*REFERENCES, *_SHAPES)):
        return True
    return any(_describes_inner_values(branch) for branch in _branches(schema))


def _branches(schema: JsonObject) -> Iterator[JsonObject]:
    for keyword in schema.keys() & _BRANCHES:
        yield from (child for _, child in _children_under(keyword, schema[keyword]))
