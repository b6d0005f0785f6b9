"""Close a schema against properties that it does not name: how the schemas of native tools are published.

To close an object is to add `"additionalProperties": false`. That is only right where one schema describes the whole object: in

    {"properties": {"a": {}}, "anyOf": [{"properties": {"b": {}}}]}

it would refuse `b`, which a branch declares, and a definition that others extend by `allOf` would refuse what they add. So an
object is closed where nothing else describes it; the root by `unevaluatedProperties`, which sees branches too, where it has some.
"""

from collections import deque
from collections.abc import Iterator
from functools import cached_property

from toolpost.base.ids import Json, JsonObject
from toolpost.contracts.document import (
    ONE_SUBSCHEMA,
    REFERENCES,
    SUBSCHEMA_KEYWORDS,
    SUBSCHEMA_LIST,
    References,
    draft_of,
    resolve_pointer,
    schemas_under,
    to_pointer,
    walk_subschemas,
)

# A branch describes the same value as the schema around it: closing it would refuse the properties of its siblings.
_BRANCHES = frozenset({"allOf", "anyOf", "dependencies", "dependentSchemas", "else", "if", "not", "oneOf", "then"})
# These test a value. Closing them would change the result of the test, or even invert it.
_CONDITIONS = frozenset({"contains", "if", "not"})
_DEFINITIONS = frozenset({"$defs", "definitions"})
_CLOSERS = frozenset({"additionalProperties", "unevaluatedProperties"})
_SHAPES = SUBSCHEMA_KEYWORDS - _BRANCHES - _DEFINITIONS
# Keywords that describe the value's own parts, or refer to a schema that does.
_DESCRIBERS = (SUBSCHEMA_KEYWORDS - _DEFINITIONS) | {*REFERENCES}

# Before 2019-09 a `$ref` hides every assertion beside it; these are the keywords that still count.
_BESIDE_A_REFERENCE = _DEFINITIONS | {
    *("$schema", "$id", "id", "$comment", "title", "description", "default", "examples", "type")
}

_NULL = {"type": "null"}


def close_schema(raw: JsonObject) -> JsonObject:
    """Return the schema as native tools publish it: unknown and reserved properties are refused.

    - The root is closed unless it says itself what else it takes. With branches or references beside its
      properties it gets `unevaluatedProperties`. Drafts before 2019-09 lack that keyword: there the root gets
      `additionalProperties`, and declares every name of its branches too, as `{}`. It stays open where a branch
      takes names that it does not declare.
    - A nested object is closed when it declares properties, says nothing itself, has no branch, reference or
      `patternProperties` beside it, and no branch around it: a branch may describe the same value again.
    - A choice between one object and null is no branch in this sense: it is how a nested object is optional.
    - What a reference leads to is closed only when no reference to it comes from inside a branch or has more
      of the same value described beside it, be it by way of a definition that must itself stay open.
      So a shared base stays open, and schemas that extend it stay valid.
    - A property marked `x-reserved` gets `not: {}`.
    """
    first = _SchemaCloser(raw, frozenset())
    result = first.close_root()
    if not first.extended:
        return result
    kept_open: set[str] = set()
    while waiting := first.extended - kept_open:
        kept_open |= waiting
        for place in waiting:
            # A schema that stays open may extend others, which must stay open too. Only that schema is walked again, so that
            # the time is linear in a long chain of definitions.
            if (schema := first.walked.get(place)) is not None:
                first.note_open(schema, place)
    return _SchemaCloser(raw, frozenset(kept_open)).close_root()


class _SchemaCloser:
    """One pass over a schema, which also collects the places that are extended elsewhere (`extended`)."""

    def __init__(self, raw: JsonObject, kept_open: frozenset[str]) -> None:
        self._raw = raw
        self._kept_open = kept_open
        self._is_since_2019 = (draft_of(raw) or 0) >= 2019
        self.extended: set[str] = set()
        self.walked: dict[str, JsonObject] = {}

    @cached_property
    def _references(self) -> References:
        return References(self._raw)

    def close_root(self) -> JsonObject:
        result = self._close(self._raw, "", may_close=True)
        if not self._is_since_2019 and _is_combined(self._raw):
            return self._close_by_names(result)
        if not _CLOSERS.isdisjoint(self._raw):
            return result
        # `additionalProperties` already knows the patterns beside it.
        closer = "unevaluatedProperties" if _is_combined(self._raw) else "additionalProperties"
        return result | {closer: False}

    def _close_by_names(self, result: JsonObject) -> JsonObject:
        """Close a root that has branches or a reference, in a draft without `unevaluatedProperties`."""
        refers = "$ref" in self._raw
        # Beside a reference, and in a draft that does not know the keyword, `false` was ignored so far.
        ignored = _CLOSERS if refers else {"unevaluatedProperties"}
        if any(self._raw[word] is not False or word not in ignored for word in _CLOSERS & self._raw.keys()):
            return result
        known = self._collect_names()
        if known is None:
            return result
        if refers:
            # The reference hides its siblings. Moved into `allOf` it no longer would, and they must not begin to count:
            # they are dropped, unless a reference leads into them.
            hidden = {word for word in result if word not in _BESIDE_A_REFERENCE and not word.startswith("x-")}
            if self._refers_into(hidden):
                return result
            result = {word: value for word, value in result.items() if word not in hidden}
            result["allOf"] = [{"$ref": self._raw["$ref"]}]
        for keyword, names in known.items():
            if names:
                own = result.get(keyword, {})
                result[keyword] = own | {name: {} for name in names if name not in own}
        return result | {"additionalProperties": False}

    def _collect_names(self) -> dict[str, dict[str, None]] | None:
        """Return the names and patterns that the root and its branches declare; None if a branch accepts others too."""
        known: dict[str, dict[str, None]] = {"properties": {}, "patternProperties": {}}
        waiting = deque([("", self._raw)])
        seen: set[str] = set()
        while waiting:
            place, schema = waiting.popleft()
            if place in seen:
                continue
            seen.add(place)
            waiting.extend(self._branches_before_2019(place, schema))
            if place and "$ref" in schema:
                continue
            if place and schema.get("additionalProperties", False) is not False:
                return None
            for keyword, names in known.items():
                if isinstance(declared := schema.get(keyword), dict):
                    names.update(dict.fromkeys(declared))
        return known

    def _branches_before_2019(self, place: str, schema: JsonObject) -> Iterator[tuple[str, JsonObject]]:
        """Yield the schemas that describe the same value, with their places; beside a `$ref` only its target counts."""
        if "$ref" in schema:
            target = self._references.find_target(place, schema, "$ref")
            if target is not None and isinstance(found := resolve_pointer(self._raw, target), dict):
                yield target, found
            return
        for keyword, value in schema.items():
            # What `not` names is what a value must not be like.
            if keyword in _BRANCHES and keyword != "not":
                yield from ((place + step, child) for step, child in schemas_under(keyword, value))

    def _refers_into(self, keywords: set[str]) -> bool:
        """Return whether a reference leads to a schema under one of these keywords of the root."""
        places = {to_pointer((word,)) for word in keywords}
        for subschema in walk_subschemas(self._raw):
            if "$ref" in subschema.schema:
                target = self._references.find_target(subschema.place, subschema.schema, "$ref")
                if target and "/".join(target.split("/", 2)[:2]) in places:
                    return True
        return False

    def note_open(self, schema: JsonObject, place: str) -> None:
        """Collect the places that a schema extends if it is kept open."""
        self._close(schema, place, may_close=False)

    def _close(self, schema: JsonObject, place: str, *, may_close: bool) -> JsonObject:
        self.walked[place] = schema
        may_close = may_close and place not in self._kept_open
        self._note_references(schema, place, extends=not may_close or not _SHAPES.isdisjoint(schema))
        may_close_in_branch = may_close and _is_one_or_null(schema)
        may_close_inside = may_close and not _describes_inner_values_twice(schema)
        copy = {}
        for keyword, value in schema.items():
            may_close_here = may_close_in_branch if keyword in _BRANCHES else may_close_inside
            copy[keyword] = self._close_keyword(
                keyword, value, f"{place}/{keyword}", may_close=may_close_here or keyword in _DEFINITIONS
            )
        is_plain = _CLOSERS.isdisjoint(schema) and "patternProperties" not in schema and not _is_combined(schema)
        if place and may_close and schema.get("properties") and is_plain:
            copy["additionalProperties"] = False
        return copy

    def _close_keyword(self, keyword: str, value: Json, place: str, *, may_close: bool) -> Json:
        if keyword in _CONDITIONS:
            # Returned as it is, but what it refers to must stay open.
            if isinstance(value, dict):
                for inner in walk_subschemas(value):
                    self._note_references(inner.schema, place + inner.place, extends=True)
            return value
        if isinstance(value, dict) and keyword in ONE_SUBSCHEMA:
            return self._close(value, place, may_close=may_close)
        if isinstance(value, dict) and keyword in SUBSCHEMA_KEYWORDS:
            closed = {
                name: self._close_child(child, place + to_pointer((name,)), may_close=may_close)
                for name, child in value.items()
            }
            for name, child in closed.items() if keyword == "properties" else ():
                if isinstance(child, dict) and child.get("x-reserved") is True:
                    closed[name] = self._refuse_reserved(child)
            return closed
        if isinstance(value, list) and keyword in SUBSCHEMA_LIST:
            return [self._close_child(child, f"{place}/{n}", may_close=may_close) for n, child in enumerate(value)]
        return value

    def _close_child(self, child: Json, place: str, *, may_close: bool) -> Json:
        if child is True:
            # It means the same, and clients that take only objects for schemas take it too.
            return {}
        return self._close(child, place, may_close=may_close) if isinstance(child, dict) else child

    def _refuse_reserved(self, schema: JsonObject) -> JsonObject:
        # Before 2019-09 whatever stands beside `$ref` is ignored.
        if "$ref" in schema and not self._is_since_2019:
            reference = {"$ref": schema["$ref"]}
            schema = {"allOf": [reference]} | {k: v for k, v in schema.items() if k not in ("$ref", "allOf")}
        return schema | {"not": {}}

    def _note_references(self, schema: JsonObject, place: str, *, extends: bool) -> None:
        for keyword in REFERENCES:
            if extends and keyword in schema and (target := self._references.find_target(place, schema, keyword)):
                self.extended.add(target)


def _is_combined(schema: JsonObject) -> bool:
    # `dependencies` may also hold lists of required names, which describe nothing.
    if any(True for _ in schemas_under("dependencies", schema.get("dependencies"))):
        return True
    return not schema.keys().isdisjoint((_BRANCHES - {"dependencies"}) | {*REFERENCES})


def _is_one_or_null(schema: JsonObject) -> bool:
    """Return whether a schema is only the choice that pydantic writes for an optional model."""
    branches = schema.get("anyOf") or schema.get("oneOf")
    is_alone = len(schema.keys() & _DESCRIBERS) == 1
    if not is_alone or not isinstance(branches, list) or len(branches) != 2:
        return False
    others = [branch for branch in branches if branch != _NULL]
    return len(others) == 1 and isinstance(others[0], dict)


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
        yield from (child for _, child in schemas_under(keyword, schema[keyword]))
