"""A schema to look things up in, through its references: what lies where, and what is secret."""

import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property

from toolpost.base.ids import Json, JsonObject
from toolpost.base.redaction import is_secret_name
from toolpost.base.values import Path
from toolpost.contracts.parts import own_properties, part_at, parts_of, pointer, schemas_under
from toolpost.contracts.references import REFERENCES, References

# What describes the same value as the schema that it stands in; `not` describes what the value is not.
_IN_PLACE = ("allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "dependencies")

_SCHEMAS_READ = 100


class Document:
    """One schema, from its root."""

    def __init__(self, raw: JsonObject) -> None:
        self.raw = raw

    @cached_property
    def _references(self) -> References:
        return References(self.raw)

    def trail(self, steps: Sequence[str | int]) -> list[tuple[str, Json]]:
        """Return what lies along an evaluation path, root first; less when the path leaves the document."""
        place, node = "", self.raw
        passed: list[tuple[str, Json]] = [(place, node)]
        for step in steps:
            place, node = self._next(place, node, step)
            if node is None:
                break
            passed.append((place, node))
        return passed

    def _next(self, place: str, node: Json, step: str | int) -> tuple[str, Json]:
        if step in REFERENCES and isinstance(node, dict) and isinstance(node.get(step), str):
            return self._resolve(place, node, str(step))
        inner = pointer((step,))
        return place + inner, part_at(node, inner)

    def _resolve(self, place: str, schema: JsonObject, keyword: str) -> tuple[str, Json]:
        target = self._references.target(place, schema, keyword)
        return ("", None) if target is None else (target, part_at(self.raw, target))

    def in_place(self, place: str, schema: JsonObject) -> Iterator[tuple[str, JsonObject]]:
        """Yield the schema and all that describe the same value: its branches and what it refers to."""
        waiting: list[tuple[str, Json]] = [(place, schema)]
        seen: set[str] = set()
        while waiting:
            place, found = waiting.pop(0)
            if place in seen or not isinstance(found, dict):
                continue
            seen.add(place)
            yield place, found
            waiting.extend(self._resolve(place, found, word) for word in REFERENCES if word in found)
            waiting.extend(
                (place + inner, branch)
                for word in _IN_PLACE
                if word in found
                for inner, branch in schemas_under(word, found[word])
            )

    def declarations(self, place: str, schema: JsonObject) -> dict[str, tuple[str, Json]]:
        """Return the properties that a schema and its branches declare, and where."""
        declared: dict[str, tuple[str, Json]] = {}
        for where, part in self.in_place(place, schema):
            declared = own_properties(where, part) | declared
        return declared

    def merged(self, place: str, schema: JsonObject, *, limit: int) -> JsonObject:
        """Return the first few schemas that describe the same value, as one."""
        merged: JsonObject = {}
        for _, part in itertools.islice(self.in_place(place, schema), limit):
            merged = part | merged
        return merged

    def is_secret(self, path: Path) -> bool:
        """Say whether what lies at a path must not be shown, by the names on the way to it."""
        names = [step for step in path if isinstance(step, str)]
        return any(name in self._secret_names or is_secret_name(name) for name in names)

    @cached_property
    def _secret_names(self) -> frozenset[str]:
        """The properties that are secret because the schema says so, wherever it does."""
        return frozenset(
            name
            for part in parts_of(self.raw)
            for name, (place, child) in own_properties(part.place, part.schema).items()
            if isinstance(child, dict) and self._is_marked(place, child)
        )

    def _is_marked(self, place: str, schema: JsonObject) -> bool:
        for number, (_, part) in enumerate(self.in_place(place, schema)):
            # Where so many schemas describe one property, it is cheaper to hide its value than to read them all.
            if number >= _SCHEMAS_READ or is_write_only(part) or is_write_only(part.get("items")):
                return True
        return False


def is_write_only(schema: Json) -> bool:
    """Say whether a schema marks its value as a secret."""
    return isinstance(schema, dict) and (schema.get("writeOnly") is True or schema.get("format") == "password")


def is_reserved(schema: Json) -> bool:
    """Say whether a property may never be set."""
    return schema is False or (isinstance(schema, dict) and schema.get("x-reserved") is True)
