"""Where the references of a schema lead. Nothing outside the document is ever fetched."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from urllib.parse import unquote, urldefrag, urljoin

from toolpost.base.ids import Json, JsonObject
from toolpost.base.redaction import is_secret_name
from toolpost.base.values import Path
from toolpost.contracts.subschemas import (
    Subschema,
    declared_properties,
    draft_of,
    resolve_pointer,
    schemas_under,
    to_pointer,
    walk_subschemas,
)

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class References:
    """Where the references of one document lead, inside it: pointers, anchors and embedded resources."""

    def __init__(self, raw: JsonObject, parts: Iterable[Subschema] | None = None) -> None:
        """Read the document; whoever has its parts already saves the time to find them again."""
        self._raw = raw
        self._id_keyword = "id" if draft_of(raw) == 4 else "$id"
        self._resources: dict[str, str] = {"": ""}
        self._anchors: dict[tuple[str, str], str] = {}
        self._bases: dict[str, str] = {}
        """The base of every schema in the document, by its place."""
        self._dynamic: dict[str, list[str]] = {}
        above: list[str] = []
        for part in walk_subschemas(raw) if parts is None else parts:
            # Outer schemas come before inner ones, so what is above this one is the last that was read at each lesser depth.
            del above[part.depth :]
            above.append(self._index(part, above[-1] if above else ""))

    def _index(self, part: Subschema, base: str) -> str:
        if isinstance(identity := part.schema.get(self._id_keyword), str):
            address, anchor = _split_reference(identity)
            if address:
                base = _join_uri(base, address)
                self._resources[base] = part.place
            if anchor:
                self._anchors[base, anchor] = part.place
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := part.schema.get(keyword), str):
                self._anchors[base, name] = part.place
        if isinstance(name := part.schema.get("$dynamicAnchor"), str):
            self._dynamic.setdefault(name, []).append(part.place)
        if part.schema.get("$recursiveAnchor") is True:
            self._dynamic.setdefault("", []).append(part.place)
        self._bases[part.place] = base
        return base

    def _base_at(self, place: str) -> str:
        # A reference may lead to where no schema is expected: what is there has the base of whatever is around it.
        while place and place not in self._bases:
            place = place.rpartition("/")[0]
        return self._bases[place]

    def find_targets(self, place: str, schema: JsonObject, keyword: str) -> list[str]:
        """Return every place that a reference may lead to: a dynamic one depends on the way by which it is reached."""
        target = self.find_target(place, schema, keyword)
        found = [] if target is None else [target]
        if keyword != "$ref" and isinstance(reference := schema[keyword], str):
            found += [
                other for other in self._dynamic.get(unquote(_split_reference(reference)[1]), ()) if other != target
            ]
        return found

    def find_target(self, place: str, schema: JsonObject, keyword: str) -> str | None:
        """Return the place that a reference in the schema at `place` leads to, or None."""
        reference = schema[keyword]
        if not isinstance(reference, str) or (keyword == "$recursiveRef" and reference != "#"):
            return None
        address, fragment = _split_reference(reference)
        base = self._base_at(place)
        if address:
            base = _join_uri(base, address)
        resource = self._resources.get(base)
        return None if resource is None else self._resolve_fragment(resource, base, unquote(fragment))

    def _resolve_fragment(self, resource: str, base: str, fragment: str) -> str | None:
        if fragment and not fragment.startswith("/"):
            return self._anchors.get((base, fragment))
        place = resource + fragment
        return None if resolve_pointer(self._raw, place) is None else place


def _split_reference(reference: str) -> tuple[str, str]:
    try:
        address, fragment = urldefrag(reference)
    except ValueError:
        # Half an IPv6 address, say: it leads nowhere, and whoever sent it decides what else we do.
        return reference, ""
    return address, fragment


def _join_uri(base: str, address: str) -> str:
    try:
        return urljoin(base, address)
    except ValueError:
        return address


# What describes the same value as the schema that it stands in; `not` describes what the value is not.
_IN_PLACE = ("allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "dependencies")

_SCHEMAS_READ = 100


class SchemaDocument:
    """One schema, from its root."""

    def __init__(self, raw: JsonObject) -> None:
        self.raw = raw

    @cached_property
    def _references(self) -> References:
        return References(self.raw)

    def follow(self, steps: Sequence[str | int]) -> list[tuple[str, Json]]:
        """Return what lies along an evaluation path, root first; less when the path leaves the document."""
        place, node = "", self.raw
        passed: list[tuple[str, Json]] = [(place, node)]
        for step in steps:
            place, node = self._step(place, node, step)
            if node is None:
                break
            passed.append((place, node))
        return passed

    def _step(self, place: str, node: Json, step: str | int) -> tuple[str, Json]:
        if step in REFERENCES and isinstance(node, dict) and isinstance(node.get(step), str):
            return self._resolve(place, node, str(step))
        inner = to_pointer((step,))
        return place + inner, resolve_pointer(node, inner)

    def _resolve(self, place: str, schema: JsonObject, keyword: str) -> tuple[str, Json]:
        target = self._references.find_target(place, schema, keyword)
        return ("", None) if target is None else (target, resolve_pointer(self.raw, target))

    def iterate_in_place(self, place: str, schema: JsonObject) -> Iterator[tuple[str, JsonObject]]:
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

    def find_declarations(self, place: str, schema: JsonObject) -> dict[str, tuple[str, Json]]:
        """Return the properties that a schema and its branches declare, and where."""
        declared: dict[str, tuple[str, Json]] = {}
        for where, part in self.iterate_in_place(place, schema):
            declared = declared_properties(where, part) | declared
        return declared

    def merge_in_place(self, place: str, schema: JsonObject, *, limit: int) -> JsonObject:
        """Return the first few schemas that describe the same value, as one."""
        merged: JsonObject = {}
        for _, part in itertools.islice(self.iterate_in_place(place, schema), limit):
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
            for part in walk_subschemas(self.raw)
            for name, (place, child) in declared_properties(part.place, part.schema).items()
            if isinstance(child, dict) and self._is_marked_secret(place, child)
        )

    def _is_marked_secret(self, place: str, schema: JsonObject) -> bool:
        for number, (_, part) in enumerate(self.iterate_in_place(place, schema)):
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
