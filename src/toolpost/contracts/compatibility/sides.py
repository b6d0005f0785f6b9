"""One of two schemas that are compared: its root, its draft, where its references lead, and its validator."""

import functools
import math
from collections.abc import Iterator
from functools import cached_property

import msgspec

from toolpost.base.ids import Json, JsonObject
from toolpost.contracts.compatibility.weighing import schemas_in
from toolpost.contracts.document import Document
from toolpost.contracts.parts import draft_of, part_at
from toolpost.contracts.references import REFERENCES, References
from toolpost.contracts.schema import Schema, SchemaProblem, compile_schema

_DEFINITIONS = ("$defs", "definitions")
_NEVER: JsonObject = {"not": {}}


class Node:
    """A schema inside a side, and where it stands there."""

    __slots__ = ("place", "schema")

    def __init__(self, place: str, schema: Json) -> None:
        self.place = place
        self.schema: JsonObject = as_object(schema)

    def child(self, place: str, schema: Json) -> "Node":
        """Return a schema below this one."""
        return Node(self.place + place, schema)


def as_object(schema: Json) -> JsonObject:
    """Write `true` and `false` as the object schemas that they stand for."""
    if isinstance(schema, dict):
        return schema
    return dict(_NEVER) if schema is False else {}


def is_never(schema: Json) -> bool:
    """Say whether a schema plainly takes nothing."""
    return schema is False or (isinstance(schema, dict) and schema.get("not") in ({}, True))


class Side:
    """One of the two schemas, from its root."""

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
    def document(self) -> Document:
        """The schema to look things up in."""
        return Document(self.root.schema)

    @cached_property
    def has_local_definitions_alone(self) -> bool:
        """Whether every reference leads into `$defs` or `definitions`, so that a part can be cut out with them."""
        return all(
            str(part.get(word, "#/$defs/")).startswith(("#/$defs/", "#/definitions/"))
            and "$id" not in part
            and "id" not in part
            for part in schemas_in(self.root.schema)
            for word in REFERENCES
        )

    @cached_property
    def refers(self) -> bool:
        """Whether there is any reference at all."""
        return any(not part.keys().isdisjoint(REFERENCES) for part in schemas_in(self.root.schema))

    def target(self, node: Node) -> Node | None:
        """Return what the `$ref` of a node leads to, None if it has none."""
        if "$ref" not in node.schema:
            return None
        place = self._references.target(node.place, node.schema, "$ref")
        return None if place is None else Node(place, part_at(self.root.schema, place))

    def cut_out(self, node: Node) -> Json:
        """Return a part as a schema of its own, None if that cannot be done."""
        if not node.place:
            return self.raw
        if self.refers and not self.has_local_definitions_alone:
            return None
        root = self.root.schema
        kept = {word: root[word] for word in ("$schema", *_DEFINITIONS) if word in root}
        return {**kept, **node.schema}

    @cached_property
    def accepts(self) -> Schema | None:
        """The compiled schema, None if it cannot be compiled."""
        try:
            return compile_schema(self.raw, root_object=False)
        except SchemaProblem as problem:
            self.problem = str(problem)
            return None

    def share(self, size_bytes: int) -> float:
        """Return how much of what is quick a value of this size takes: more than 1 is not quick."""
        return math.inf if self.accepts is None else size_bytes / max(1, self.accepts.quick_bytes)

    def admits(self, value: Json) -> bool | None:
        """Say whether a value is valid, None if nobody can say, or not quickly: the validator cannot be interrupted."""
        if self.accepts is None:
            return None
        try:
            is_quick = self.share(len(msgspec.json.encode(value))) <= 1
            return self.accepts.is_valid(value) if is_quick else None
        except (RecursionError, TypeError, ValueError):
            return None


@functools.lru_cache(maxsize=1024)
def _compile_side(pattern: str) -> Schema:
    return compile_schema({"pattern": pattern}, root_object=False)


def is_match(pattern: str, text: str) -> bool:
    """Say whether a text matches a pattern, as the validator sees it; a pattern that cannot be used matches nothing."""
    try:
        return _compile_side(pattern).is_valid(text)
    except ValueError:
        return False


def branches_of(node: Node, keyword: str) -> Iterator[Node]:
    """Yield the branches under `anyOf`, `oneOf` or `allOf`."""
    branches = node.schema.get(keyword)
    for number, branch in enumerate(branches if isinstance(branches, list) else ()):
        yield node.child(f"/{keyword}/{number}", branch)
