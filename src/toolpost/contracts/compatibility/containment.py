"""Whether one schema accepts every value that another accepts: the two sides, and the validator's algebra of schemas.

A `ComparedSchema` is one side, a `Node` a schema inside it. `Comparison` asks the validator, which has both in a canonical form
and subtracts one from the other: `{"type": "integer"}` without `{"minimum": 0}` leaves the negative integers, so that the second
does not contain the first.
"""

import functools
import math
from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property

import msgspec

from toolpost.base.ids import Json, JsonObject
from toolpost.contracts.compatibility.cost import (
    Budget,
    comparison_cost_s,
    is_draft_neutral,
    iterate_schemas,
    properties_cost_s,
)
from toolpost.contracts.document import (
    REFERENCES,
    References,
    SchemaDocument,
    draft_of,
    map_subschemas,
    resolve_pointer,
)
from toolpost.contracts.schema import (
    CanonicalSchema,
    Schema,
    SchemaProblem,
    canonical_form,
    compile_schema,
    is_asserted_format,
)

_DEFINITIONS = ("$defs", "definitions")
_NEVER: JsonObject = {"not": {}}


class Node:
    """A schema inside a `ComparedSchema`, and its place there; `true` and `false` are written as objects."""

    __slots__ = ("place", "schema")

    def __init__(self, place: str, schema: Json) -> None:
        self.place = place
        self.schema: JsonObject = as_object(schema)

    def child(self, place: str, schema: Json) -> "Node":
        return Node(self.place + place, schema)


def as_object(schema: Json) -> JsonObject:
    """Return `true` and `false` as the object schemas that they stand for."""
    if isinstance(schema, dict):
        return schema
    return dict(_NEVER) if schema is False else {}


def is_never(schema: Json) -> bool:
    """Return whether a schema obviously accepts nothing."""
    return schema is False or (isinstance(schema, dict) and schema.get("not") in ({}, True))


class ComparedSchema:
    """A schema from its root; compiled and indexed on first use."""

    def __init__(self, raw: Json) -> None:
        self.raw: JsonObject | bool = raw
        self.root = Node("", raw)
        self.draft = draft_of(self.root.schema) or 0
        self.problem = ""
        """Why it cannot be compiled, once that has been tried."""

    @cached_property
    def _references(self) -> References:
        return References(self.root.schema)

    @cached_property
    def document(self) -> SchemaDocument:
        return SchemaDocument(self.root.schema)

    @cached_property
    def has_only_local_definitions(self) -> bool:
        """Whether every reference leads into `$defs` or `definitions`, so that a subschema can be extracted with them."""
        return all(
            str(inner.get(word, "#/$defs/")).startswith(("#/$defs/", "#/definitions/"))
            and "$id" not in inner
            and "id" not in inner
            for inner in iterate_schemas(self.root.schema)
            for word in REFERENCES
        )

    @cached_property
    def has_references(self) -> bool:
        return any(not inner.keys().isdisjoint(REFERENCES) for inner in iterate_schemas(self.root.schema))

    def follow_reference(self, node: Node) -> Node | None:
        """Return the target of a node's `$ref`, None if it has none."""
        if "$ref" not in node.schema:
            return None
        place = self._references.find_target(node.place, node.schema, "$ref")
        return None if place is None else Node(place, resolve_pointer(self.root.schema, place))

    def extract(self, node: Node) -> Json:
        """Return a subschema as a document of its own, None if its references do not allow that."""
        if not node.place:
            return self.raw
        if self.has_references and not self.has_only_local_definitions:
            return None
        root = self.root.schema
        kept = {word: root[word] for word in ("$schema", *_DEFINITIONS) if word in root}
        return {**kept, **node.schema}

    @cached_property
    def compiled(self) -> Schema | None:
        """The compiled schema; None if it cannot be compiled, with the reason in `problem`."""
        try:
            return compile_schema(self.raw, root_object=False)
        except SchemaProblem as problem:
            self.problem = str(problem)
            return None

    def quick_share(self, size_bytes: int) -> float:
        """Return the size of a value as a fraction of what is validated quickly; above 1 is not quick."""
        return math.inf if self.compiled is None else size_bytes / max(1, self.compiled.inline_limit_bytes)

    def admits(self, value: Json) -> bool | None:
        """Return whether a value is valid; None if that cannot be found out quickly."""
        if self.compiled is None:
            return None
        try:
            is_quick = self.quick_share(len(msgspec.json.encode(value))) <= 1
            return self.compiled.is_valid(value) if is_quick else None
        except (RecursionError, TypeError, ValueError):
            return None


@functools.lru_cache(maxsize=1024)
def _compile_pattern(pattern: str) -> Schema:
    return compile_schema({"pattern": pattern}, root_object=False)


def matches(pattern: str, text: str) -> bool:
    """Return whether a text matches a pattern, as the validator sees it; False for an invalid pattern."""
    try:
        return _compile_pattern(pattern).is_valid(text)
    except ValueError:
        return False


def branches_of(node: Node, keyword: str) -> Iterator[Node]:
    """Yield the branches under `anyOf`, `oneOf` or `allOf`."""
    branches = node.schema.get(keyword)
    for number, branch in enumerate(branches if isinstance(branches, list) else ()):
        yield node.child(f"/{keyword}/{number}", branch)


class Containment(StrEnum):
    """Whether the wide schema contains the narrow one. `YES` and `NO` are proven."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Comparison:
    """A narrow and a wide schema in canonical form; both forms are None if the comparison is too costly or impossible."""

    def __init__(self, narrow: Json, wide: Json, budget: Budget) -> None:
        self._budget = budget
        self._cost_s = comparison_cost_s(narrow) + comparison_cost_s(wide) + properties_cost_s(narrow, wide)
        forms = _canonicalize_both(narrow, wide) if budget.spend(self._cost_s) else None
        self.narrow = None if forms is None else forms[0]
        self.wide = None if forms is None else forms[1]

    @property
    def is_equal(self) -> bool:
        """Whether both accept exactly the same values."""
        return self.narrow is not None and self.narrow == self.wide

    def decide(self) -> Containment:
        """Return whether `wide` accepts everything that `narrow` accepts."""
        if self.narrow is None or self.wide is None or not self._budget.spend(self._cost_s):
            return Containment.UNKNOWN
        try:
            return Containment(str(self.wide.covers(self.narrow)))
        except ValueError:
            return Containment.UNKNOWN

    def subtract(self, *, is_optional: bool = False) -> Json:
        """Return a schema of the values that `narrow` accepts and `wide` does not; None if that cannot be computed."""
        spend = self._budget.spend_optional if is_optional else self._budget.spend
        if self.narrow is None or self.wide is None or not spend(self._cost_s):
            return None
        try:
            return self.narrow.subtract(self.wide).to_json_schema()
        except ValueError:
            return None


def _canonicalize_both(narrow: Json, wide: Json) -> tuple[CanonicalSchema, CanonicalSchema] | None:
    """Return both in canonical form; None if there is no draft in which both can be read, or the algebra cannot read one."""
    drafts = {draft_of(schema) for schema in (narrow, wide) if isinstance(schema, dict)}
    draft = drafts.pop() if len(drafts) == 1 else 2020
    if draft is None or (drafts and not (is_draft_neutral(narrow) and is_draft_neutral(wide))):
        return None
    try:
        # The algebra gives up on a format that it does not know.
        some, others = (strip_unknown_formats(schema, draft) for schema in (narrow, wide))
        return canonical_form(some, draft=draft), canonical_form(others, draft=draft)
    except ValueError:
        return None


def strip_unknown_formats(schema: Json, draft: int) -> Json:
    """Return a schema without the formats that its validator ignores."""
    if any(_is_unknown(inner, draft) for inner in iterate_schemas(schema)):
        return _strip(schema, draft)
    return schema


def _is_unknown(schema: JsonObject, draft: int) -> bool:
    name = schema.get("format")
    return isinstance(name, str) and not is_asserted_format(name, draft)


def _strip(schema: Json, draft: int) -> Json:
    if not isinstance(schema, dict):
        return schema
    kept = {word: schema[word] for word in schema if word != "format"} if _is_unknown(schema, draft) else schema
    return map_subschemas(kept, lambda child: _strip(child, draft))
