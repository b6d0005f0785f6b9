"""Look things up in one schema document: where its references lead, which schemas describe a value, what is secret.

Nothing outside the document is ever fetched. A *place* is the JSON Pointer of a schema in its document.
"""

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

# Keywords whose schemas describe the same value as the schema around them; `not` describes what the value is not.
_IN_PLACE = ("allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "dependencies")

_SCHEMAS_READ = 100


class References:
    """Resolves the references of one document: pointers, anchors and embedded resources (`$id`)."""

    def __init__(self, raw: JsonObject, subschemas: Iterable[Subschema] | None = None) -> None:
        """Index the document; pass the result of `walk_subschemas` if you have it, to save a second walk."""
        self._raw = raw
        self._id_keyword = "id" if draft_of(raw) == 4 else "$id"
        self._resources: dict[str, str] = {"": ""}
        """The place of each embedded resource, by its URI."""
        self._anchors: dict[tuple[str, str], str] = {}
        self._bases: dict[str, str] = {}
        """The base URI of every schema in the document, by its place."""
        self._dynamic: dict[str, list[str]] = {}
        above: list[str] = []
        for subschema in walk_subschemas(raw) if subschemas is None else subschemas:
            # Outer schemas come before inner ones: the base of the parent is the last one seen at each lesser depth.
            del above[subschema.depth :]
            above.append(self._index(subschema, above[-1] if above else ""))

    def _index(self, subschema: Subschema, base: str) -> str:
        """Note the ids and anchors of a schema; return the base URI for the schemas inside it."""
        schema, place = subschema.schema, subschema.place
        if isinstance(identity := schema.get(self._id_keyword), str):
            address, anchor = _split_reference(identity)
            if address:
                base = _join_uri(base, address)
                self._resources[base] = place
            if anchor:
                self._anchors[base, anchor] = place
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := schema.get(keyword), str):
                self._anchors[base, name] = place
        if isinstance(name := schema.get("$dynamicAnchor"), str):
            self._dynamic.setdefault(name, []).append(place)
        if schema.get("$recursiveAnchor") is True:
            self._dynamic.setdefault("", []).append(place)
        self._bases[place] = base
        return base

    def find_targets(self, place: str, schema: JsonObject, keyword: str) -> list[str]:
        """Return every place that a reference may lead to.

        Those of `$dynamicRef` and `$recursiveRef` depend on the path by which the validator gets there.
        """
        target = self.find_target(place, schema, keyword)
        found = [] if target is None else [target]
        if keyword != "$ref" and isinstance(reference := schema[keyword], str):
            found += [
                other for other in self._dynamic.get(unquote(_split_reference(reference)[1]), ()) if other != target
            ]
        return found

    def find_target(self, place: str, schema: JsonObject, keyword: str) -> str | None:
        """Return the place that a reference in the schema at `place` leads to, None if it leads nowhere."""
        reference = schema[keyword]
        if not isinstance(reference, str) or (keyword == "$recursiveRef" and reference != "#"):
            return None
        address, fragment = _split_reference(reference)
        fragment = unquote(fragment)
        base = self._base_at(place)
        if address:
            base = _join_uri(base, address)
        resource = self._resources.get(base)
        if resource is None:
            return None
        if fragment and not fragment.startswith("/"):
            return self._anchors.get((base, fragment))
        target = resource + fragment
        return None if resolve_pointer(self._raw, target) is None else target

    def _base_at(self, place: str) -> str:
        # A reference may lead to where no schema is expected: what is there has the base of the schema around it.
        while place and place not in self._bases:
            place = place.rpartition("/")[0]
        return self._bases[place]


def _split_reference(reference: str) -> tuple[str, str]:
    try:
        address, fragment = urldefrag(reference)
    except ValueError:
        # Half an IPv6 address, for example: it resolves to nothing, and the caller reports that.
        return reference, ""
    return address, fragment


def _join_uri(base: str, address: str) -> str:
    try:
        return urljoin(base, address)
    except ValueError:
        return address


class SchemaDocument:
    """One schema, from its root."""

    def __init__(self, raw: JsonObject) -> None:
        self.raw = raw

    @cached_property
    def _references(self) -> References:
        return References(self.raw)

    def follow(self, steps: Sequence[str | int]) -> list[tuple[str, Json]]:
        """Return the place and the schema at each step of an evaluation path, root first.

        The list is shorter than the path if the path leaves the document.
        """
        place = ""
        node: Json = self.raw
        passed: list[tuple[str, Json]] = [(place, node)]
        for step in steps:
            if step in REFERENCES and isinstance(node, dict) and isinstance(node.get(step), str):
                place, node = self._resolve(place, node, str(step))
            else:
                inner = to_pointer((step,))
                place, node = place + inner, resolve_pointer(node, inner)
            if node is None:
                break
            passed.append((place, node))
        return passed

    def _resolve(self, place: str, schema: JsonObject, keyword: str) -> tuple[str, Json]:
        target = self._references.find_target(place, schema, keyword)
        return ("", None) if target is None else (target, resolve_pointer(self.raw, target))

    def iterate_in_place(self, place: str, schema: JsonObject) -> Iterator[tuple[str, JsonObject]]:
        """Yield the schema and all that describe the same value: its branches and the targets of its references."""
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
        """Return the properties that a schema and its branches declare, each with its place and schema."""
        declared: dict[str, tuple[str, Json]] = {}
        for where, inner in self.iterate_in_place(place, schema):
            declared = declared_properties(where, inner) | declared
        return declared

    def merge_in_place(self, place: str, schema: JsonObject, *, limit: int) -> JsonObject:
        """Return the first `limit` schemas that describe the same value, merged; the outermost wins."""
        merged: JsonObject = {}
        for _, inner in itertools.islice(self.iterate_in_place(place, schema), limit):
            merged = inner | merged
        return merged

    def is_secret(self, path: Path) -> bool:
        """Return whether the value at a path must not be shown, judged by the property names on the path."""
        names = [step for step in path if isinstance(step, str)]
        return any(name in self._secret_names or is_secret_name(name) for name in names)

    @cached_property
    def _secret_names(self) -> frozenset[str]:
        """Properties that the schema marks as secret anywhere in the document."""
        return frozenset(
            name
            for subschema in walk_subschemas(self.raw)
            for name, (place, child) in declared_properties(subschema.place, subschema.schema).items()
            if isinstance(child, dict) and self._is_marked_secret(place, child)
        )

    def _is_marked_secret(self, place: str, schema: JsonObject) -> bool:
        for number, (_, inner) in enumerate(self.iterate_in_place(place, schema)):
            # Where so many schemas describe one property, hiding its value is cheaper than reading them all.
            if number >= _SCHEMAS_READ or is_write_only(inner) or is_write_only(inner.get("items")):
                return True
        return False


def is_write_only(schema: Json) -> bool:
    """Return whether a schema marks its value as a secret, by `writeOnly` or the format `password`."""
    return isinstance(schema, dict) and (schema.get("writeOnly") is True or schema.get("format") == "password")


def is_reserved(schema: Json) -> bool:
    """Return whether a property may never be set."""
    return schema is False or (isinstance(schema, dict) and schema.get("x-reserved") is True)
