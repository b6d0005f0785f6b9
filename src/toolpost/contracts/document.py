"""One JSON Schema document: its draft, its inner schemas, its keywords without assertions, and its references.

A *place* is the JSON Pointer of a schema in its document; the root is the empty text. For example,

    {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}}

has schemas at the root, at `/properties/a` and at `/$defs/A`, and the reference of the second leads to the third. Nothing outside
the document is ever fetched.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from toolpost.base import Json, JsonObject, is_secret_name
from toolpost.base.urls import join_url, split_fragment
from toolpost.base.values import Path

# Keywords that hold schemas: one, a list, or a map by name. All others (`enum`, `const`, `default`, `examples`) hold values.
ONE_SUBSCHEMA = frozenset(
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
SUBSCHEMA_LIST = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
SUBSCHEMA_MAP = frozenset(
    {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)
SUBSCHEMA_KEYWORDS = ONE_SUBSCHEMA | SUBSCHEMA_LIST | SUBSCHEMA_MAP

_BOUNDS = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))

_NEWEST = "json-schema.org/schema"
_DRAFTS = {
    "json-schema.org/draft-04/schema": 4,
    "json-schema.org/draft-06/schema": 6,
    "json-schema.org/draft-07/schema": 7,
    "json-schema.org/draft/2019-09/schema": 2019,
    "json-schema.org/draft/2020-12/schema": 2020,
    _NEWEST: 2020,
}


def draft_of(raw: JsonObject) -> int | None:
    """Return the number or the year of the schema's draft (4 to 2020), None for an unknown one."""
    named = raw.get("$schema", _NEWEST)
    uri = named.removesuffix("#") if isinstance(named, str) else ""
    return _DRAFTS.get(uri.removeprefix("https://").removeprefix("http://"))


def rewrite_boolean_bounds(raw: JsonObject) -> JsonObject:
    """Write bounds of draft-04, `"minimum": 1, "exclusiveMinimum": true`, as later drafts do: `"exclusiveMinimum": 1`.

    Generators from OpenAPI write them so and name no draft. As 2020-12 such a schema is invalid, and the APIs of models reject it
    too, so reading it as draft-04 would not help. A schema that names its draft, or has no such bound, is returned as it is.
    """
    if "$schema" in raw or not _has_boolean_bound(raw):
        return raw
    try:
        rewritten: JsonObject = _rewrite_bounds(raw)
    except RecursionError:
        return raw
    return rewritten


def _has_boolean_bound(raw: JsonObject) -> bool:
    # Nearly no schema has one: a search in its text is ten times as fast as a walk.
    with suppress(UnicodeEncodeError, RecursionError, TypeError, ValueError):
        if b'"exclusiveM' not in msgspec.json.encode(raw):
            return False
    waiting = [raw]
    while waiting:
        schema = waiting.pop()
        if any(isinstance(schema.get(exclusive), bool) for exclusive, _ in _BOUNDS):
            return True
        for keyword, value in schema.items():
            waiting.extend(child for _, child in schemas_under(keyword, value))
    return False


def _rewrite_bounds(schema: Json) -> Json:
    if not isinstance(schema, dict):
        return schema
    copy = map_subschemas(schema, _rewrite_bounds)
    for exclusive, bound in _BOUNDS:
        if copy.get(exclusive) is False:
            del copy[exclusive]
        elif copy.get(exclusive) is True and bound in copy:
            copy[exclusive] = copy.pop(bound)
    return copy


def map_subschemas(schema: JsonObject, function: Callable[[Json], Json]) -> JsonObject:
    """Return a copy of a schema in which `function` has replaced each schema directly inside it."""
    copy: JsonObject = {}
    for keyword, value in schema.items():
        if isinstance(value, dict) and keyword in SUBSCHEMA_MAP:
            copy[keyword] = {name: function(child) for name, child in value.items()}
        elif isinstance(value, list) and keyword in SUBSCHEMA_LIST:
            copy[keyword] = [function(child) for child in value]
        else:
            copy[keyword] = function(value) if keyword in ONE_SUBSCHEMA else value
    return copy


class Subschema(NamedTuple):
    """A schema inside a schema; `depth` is the number of schemas above it."""

    place: str
    depth: int
    schema: JsonObject


def walk_subschemas(raw: JsonObject) -> Iterator[Subschema]:
    """Yield the schema and every object schema inside it, outer before inner, in document order."""
    waiting = [Subschema("", 0, raw)]
    while waiting:
        subschema = waiting.pop()
        yield subschema
        inner = [
            Subschema(subschema.place + place, subschema.depth + 1, child)
            for keyword, value in subschema.schema.items()
            for place, child in schemas_under(keyword, value)
        ]
        waiting.extend(reversed(inner))


def schemas_under(keyword: str, value: Json) -> Iterator[tuple[str, JsonObject]]:
    """Yield the object schemas that a keyword holds, with their places relative to the schema around them."""
    if keyword not in SUBSCHEMA_KEYWORDS:
        return
    if isinstance(value, dict) and keyword in ONE_SUBSCHEMA:
        yield f"/{keyword}", value
        return
    children: Iterable[tuple[str | int, Json]] = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = enumerate(value)
    for step, child in children:
        if isinstance(child, dict):
            yield to_pointer((keyword, step)), child


def declared_properties(place: str, schema: JsonObject) -> dict[str, tuple[str, Json]]:
    """Return the properties in the schema's own `properties`, each with its place and schema."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {name: (place + to_pointer(("properties", name)), child) for name, child in properties.items()}


def to_pointer(path: Iterable[str | int]) -> str:
    """Write a path as a JSON Pointer."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def resolve_pointer(raw: Json, place: str) -> Json:
    """Return the value that a JSON Pointer points at, None if there is none."""
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


# What a schema says without asserting it (JSON Schema's *annotations*)


TEXT_KEYWORDS = frozenset({"title", "description", "$comment"})
ANNOTATION_KEYWORDS = frozenset({"default", "examples", "example", "deprecated", "readOnly", "writeOnly"})
"""Annotations other than texts; `default` has rules of its own."""


def split_texts(schema: Json) -> tuple[Json, dict[str, str]]:
    """Return the schema without its texts, and the texts by place."""
    texts: dict[str, str] = {}
    return _strip_texts(schema, (), texts), texts


def strip_annotations(schema: Json) -> Json:
    """Return the schema without the keywords that a validator is known to ignore."""
    if not isinstance(schema, dict):
        return schema
    kept = {
        word: value
        for word, value in schema.items()
        if word not in TEXT_KEYWORDS | ANNOTATION_KEYWORDS and not word.startswith("x-")
    }
    if schema.get("x-reserved") is True:
        # Toolpost's own keyword, which does assert: a reserved argument is refused.
        kept["x-reserved"] = True
    return map_subschemas(kept, strip_annotations)


def _strip_texts(schema: Json, steps: Path, texts: dict[str, str]) -> Json:
    if not isinstance(schema, dict):
        return schema
    kept: JsonObject = {}
    for keyword, value in schema.items():
        if keyword in TEXT_KEYWORDS and isinstance(value, str):
            # The place is written out only here: names may be long, and every schema below would repeat them.
            texts[to_pointer((*steps, keyword))] = value
        else:
            here = (*steps, keyword)
            if isinstance(value, dict) and keyword in SUBSCHEMA_MAP:
                kept[keyword] = {name: _strip_texts(child, (*here, name), texts) for name, child in value.items()}
            elif isinstance(value, list) and keyword in SUBSCHEMA_LIST:
                kept[keyword] = [_strip_texts(child, (*here, number), texts) for number, child in enumerate(value)]
            else:
                kept[keyword] = _strip_texts(value, here, texts) if keyword in ONE_SUBSCHEMA else value
    return kept


# References


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
        # Any schema with the same dynamic anchor may be the one, depending on the path of the evaluation.
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
        # A reference may lead to where no schema is expected: what is there has the base of the schema around it.
        while place and place not in self._bases:
            place = place.rpartition("/")[0]
        base = self._bases[place]
        if address:
            base = _join_uri(base, address)
        resource = self._resources.get(base)
        if resource is None:
            return None
        if fragment and not fragment.startswith("/"):
            return self._anchors.get((base, fragment))
        target = resource + fragment
        return None if resolve_pointer(self._raw, target) is None else target


def _split_reference(reference: str) -> tuple[str, str]:
    try:
        address, fragment = split_fragment(reference)
    except ValueError:
        # Half an IPv6 address, for example: it resolves to nothing, and the caller reports that.
        return reference, ""
    return address, fragment


def _join_uri(base: str, address: str) -> str:
    try:
        return join_url(base, address)
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
            # Each place once: references may lead back to where they came from.
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
