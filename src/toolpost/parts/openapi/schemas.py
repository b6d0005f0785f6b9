"""Converts the schemas of a document to JSON Schema 2020-12.

Each tool's schema is complete, with all that it refers to under `$defs`. Documents are large and full of cycles, so
a schema that is referred to is converted once for requests and once for answers, and each tool takes those that it needs, up
to a size. What exceeds it becomes `{}`, which accepts anything: the API is the judge of what it is sent.

Real documents are imperfect. A keyword whose value JSON Schema does not allow is left out, where a strict reader would refuse
the operation. `oneOf` becomes `anyOf`: alternatives overlap often, and are told apart by a discriminator that JSON Schema lacks.
"""

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from toolpost.base import Json, JsonObject
from toolpost.contracts import compile_schema
from toolpost.parts.openapi.document import Document, Unusable, check_reference

Direction = Literal["request", "upload", "answer"]
"""What a schema describes: a request, a request of several parts whose binary ones are files, or an answer."""

DESCRIPTION_LIMIT: Final = 400
NEST_LIMIT: Final = 24
"""How deep schemas may be written inside each other; deeper ones accept anything."""

FILE: Final[JsonObject] = {
    "type": "object",
    "description": "A file: its content as text, or as base64.",
    "properties": {
        "text": {"type": "string"},
        "base64": {"type": "string", "contentEncoding": "base64"},
        "filename": {"type": "string"},
    },
    "anyOf": [{"required": ["text"]}, {"required": ["base64"]}],
    "additionalProperties": False,
}
"""What a tool takes where the API takes a file."""

_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_MISNAMED: Final = {
    **dict.fromkeys(("int", "int32", "int64", "long"), "integer"),
    **dict.fromkeys(("float", "double", "decimal"), "number"),
    **dict.fromkeys(("date", "datetime", "date-time", "file", "uuid", "text", "byte", "binary"), "string"),
    **dict.fromkeys(("bool",), "boolean"),
    **dict.fromkeys(("list",), "array"),
    **dict.fromkeys(("map", "dict"), "object"),
}
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_IN_PLACE: Final = ("allOf", "anyOf")


def _is_count(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_KEPT: Final[dict[str, Callable[[Json], bool]]] = {
    "minLength": _is_count,
    "maxLength": _is_count,
    "minItems": _is_count,
    "maxItems": _is_count,
    "minProperties": _is_count,
    "maxProperties": _is_count,
    "uniqueItems": lambda value: isinstance(value, bool),
    "minimum": _is_number,
    "maximum": _is_number,
    "multipleOf": lambda value: _is_number(value) and isinstance(value, int | float) and value > 0,
    "const": lambda _: True,
    "contentEncoding": lambda value: isinstance(value, str),
    "contentMediaType": lambda value: isinstance(value, str),
    "deprecated": lambda value: value is True,
}
"""Keywords that are kept as they are if their value is allowed."""


@dataclass(frozen=True)
class _Definition:
    """A converted schema, and the pointers of those that it refers to."""

    schema: JsonObject
    pointers: tuple[str, ...]
    size: int


@dataclass
class Converter:
    """Converts the schemas of one document, for requests or for answers."""

    document: Document
    direction: Direction
    _definitions: dict[str, _Definition] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _pointers: dict[str, str] = field(default_factory=dict)

    def convert(self, schema: Json) -> JsonObject:
        """Convert a schema; what it refers to is named under `#/$defs`, which `complete` adds. Raises `Unusable`."""
        return self._convert(schema, 0)

    def complete(self, schema: JsonObject, limit_bytes: int) -> JsonObject:
        """Add `$defs` with everything that a converted schema refers to, the nearest first, up to a size; raises `Unusable`."""
        waiting = list(self._find_pointers(schema))
        found: dict[str, _Definition] = {}
        left = limit_bytes - len(msgspec.json.encode(schema))
        while waiting:
            pointer = waiting.pop(0)
            if pointer in found:
                continue
            definition = self._define(pointer)
            if definition.size > left:
                found[pointer] = _Definition(schema={}, pointers=(), size=2)
                continue
            left -= definition.size
            found[pointer] = definition
            waiting.extend(definition.pointers)
        if not found:
            return schema
        definitions = {self._name(pointer): definition.schema for pointer, definition in found.items()}
        return {**schema, "$defs": _cut_cycles(definitions)}

    def _define(self, pointer: str) -> _Definition:
        if (known := self._definitions.get(pointer)) is None:
            schema = self._convert(self.document.find(pointer), 0)
            pointers = tuple(self._find_pointers(schema))
            known = _Definition(schema=schema, pointers=pointers, size=len(msgspec.json.encode(schema)))
            self._definitions[pointer] = known
        return known

    def _name(self, pointer: str) -> str:
        """Return the name under `$defs`: the last word of its place, with a digest unless it is among those that have names."""
        if (known := self._names.get(pointer)) is None:
            parent, _, last = pointer.rpartition("/")
            known = _UNSAFE.sub("_", last)
            if parent not in ("/components/schemas", "/definitions") or known != last:
                known = f"{known}_{hashlib.sha256(pointer.encode()).hexdigest()[:6]}"
            self._names[pointer] = known
            self._pointers[f"#/$defs/{known}"] = pointer
        return known

    def _find_pointers(self, schema: Json) -> Iterable[str]:
        if isinstance(schema, list):
            for item in schema:
                yield from self._find_pointers(item)
        elif isinstance(schema, dict):
            for key, value in schema.items():
                if key == "$ref" and isinstance(value, str) and value in self._pointers:
                    yield self._pointers[value]
                elif key not in ("enum", "const", "default"):
                    yield from self._find_pointers(value)

    def _convert(self, schema: Json, depth: int) -> JsonObject:
        if schema is False:
            return {"not": {}}
        if not isinstance(schema, dict) or depth > NEST_LIMIT:
            return {}
        if isinstance(reference := schema.get("$ref"), str):
            return self._convert_reference(schema, check_reference(reference))
        if self.direction == "upload" and _is_file(schema):
            return {**FILE, **_describe(schema)}
        found = _describe(schema)
        types = _read_types(schema.get("type"))
        if types:
            found["type"] = types[0] if len(types) == 1 else types
        self._add_values(schema, found)
        self._add_properties(schema, found, depth)
        self._add_items(schema, found, depth)
        self._add_branches(schema, found, depth)
        is_nullable = schema.get("nullable") is True or schema.get("x-nullable") is True
        return _allow_null(found) if is_nullable else found

    def _convert_reference(self, schema: JsonObject, pointer: str) -> JsonObject:
        self.document.find(pointer)  # One that leads nowhere is a reason to refuse, not a schema.
        found: JsonObject = {**_describe(schema), "$ref": f"#/$defs/{self._name(pointer)}"}
        return _allow_null(found) if schema.get("nullable") is True else found

    def _add_values(self, schema: JsonObject, found: JsonObject) -> None:
        for keyword, is_allowed in _KEPT.items():
            if keyword in schema and is_allowed(schema[keyword]):
                found[keyword] = schema[keyword]
        _add_exclusive_bounds(schema, found)
        if isinstance(options := schema.get("enum"), list) and options:
            # JSON Schema wants each value once; by its JSON, since 1 and true are equal in Python.
            found["enum"] = list({msgspec.json.encode(option): option for option in options}.values())
        if self.direction != "answer":
            # Of answers they are not asked for: formats are remarks in OpenAPI, and APIs take them lightly.
            if isinstance(schema.get("format"), str):
                found["format"] = schema["format"]
            if "default" in schema:
                found["default"] = schema["default"]
        if isinstance(pattern := schema.get("pattern"), str) and is_usable_pattern(pattern):
            found["pattern"] = pattern

    def _add_properties(self, schema: JsonObject, found: JsonObject, depth: int) -> None:
        properties = schema.get("properties")
        kept = {}
        left_out = set()
        for name, inner in properties.items() if isinstance(properties, dict) else ():
            if self._is_hidden(inner):
                left_out.add(name)
            else:
                kept[str(name)] = self._convert(inner, depth + 1)
        if kept or isinstance(properties, dict):
            found["properties"] = kept
        if isinstance(required := schema.get("required"), list):
            names = [name for name in dict.fromkeys(map(str, required)) if name not in left_out]
            if names:
                found["required"] = names
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            found["additionalProperties"] = self._convert(extra, depth + 1)
        elif isinstance(extra, bool):
            # Answers may have more than was written down when the document was.
            if extra or self.direction != "answer":
                found["additionalProperties"] = extra
        elif "object" in _read_types(schema.get("type")) and properties is None and self.direction != "answer":
            found["additionalProperties"] = True

    def _is_hidden(self, schema: Json) -> bool:
        """Whether a property is of the other direction alone, by itself or by what it refers to."""
        if not isinstance(schema, dict):
            return False
        try:
            target, _ = self.document.follow(schema)
        except Unusable:
            target = schema
        keyword = "writeOnly" if self.direction == "answer" else "readOnly"
        return schema.get(keyword) is True or target.get(keyword) is True

    def _add_items(self, schema: JsonObject, found: JsonObject, depth: int) -> None:
        items = schema.get("items")
        if isinstance(items, dict):
            found["items"] = self._convert(items, depth + 1)
        first = schema.get("prefixItems", items)
        if isinstance(first, list) and first:
            found["prefixItems"] = [self._convert(item, depth + 1) for item in first]

    def _add_branches(self, schema: JsonObject, found: JsonObject, depth: int) -> None:
        def convert_all(keyword: str) -> list[Json]:
            listed = schema.get(keyword)
            return [self._convert(item, depth + 1) for item in listed] if isinstance(listed, list) else []

        if every := convert_all("allOf"):
            found["allOf"] = every
        choices = [alternatives for keyword in ("anyOf", "oneOf") if (alternatives := convert_all(keyword))]
        if choices:
            found["anyOf"] = choices[0]
        if len(choices) > 1:
            found["allOf"] = [*every, {"anyOf": choices[1]}]
        if isinstance(excluded := schema.get("not"), dict):
            found["not"] = self._convert(excluded, depth + 1)


def _add_exclusive_bounds(schema: JsonObject, found: JsonObject) -> None:
    """Add bounds as they are since draft 6; in OpenAPI 3.0 a bound is exclusive if a flag beside it says so."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if _is_number(schema.get(exclusive)):
            found[exclusive] = schema[exclusive]
        elif schema.get(exclusive) is True and bound in found:
            found[exclusive] = found.pop(bound)


def _is_file(schema: JsonObject) -> bool:
    is_binary = schema.get("type") == "file" or schema.get("format") == "binary"
    return is_binary or ("contentMediaType" in schema and "contentEncoding" not in schema)


def _describe(schema: JsonObject) -> JsonObject:
    text = schema.get("description")
    return {"description": shorten(text, DESCRIPTION_LIMIT)} if isinstance(text, str) and text.strip() else {}


def shorten(text: str, limit: int) -> str:
    """Return a text within a limit, without blanks at its ends."""
    text = text.strip()
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def _read_types(given: Json) -> list[str]:
    """Return the types that a schema names; empty for none, and if one of them is unknown."""
    listed = given if isinstance(given, list) else [given]
    types: list[str] = []
    for each in listed:
        name = (
            str(each).lower() if isinstance(each, str) else "null" if each is None and isinstance(given, list) else ""
        )
        name = _MISNAMED.get(name, name)
        if name not in _TYPES:
            return []
        if name not in types:
            types.append(name)
    return types


def _allow_null(schema: JsonObject) -> JsonObject:
    """Return a schema that accepts null, too."""
    if "enum" in schema and None not in schema["enum"]:
        schema = {**schema, "enum": [*schema["enum"], None]}
    if "type" in schema and not any(key in schema for key in ("$ref", "allOf", "anyOf", "not", "const")):
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return {**schema, "type": [*types, "null"] if "null" not in types else types}
    if schema.keys() <= {"description"}:
        return schema
    remark = {"description": schema["description"]} if "description" in schema else {}
    return {
        **remark,
        "anyOf": [{key: value for key, value in schema.items() if key != "description"}, {"type": "null"}],
    }


_patterns: dict[str, bool] = {}


def is_usable_pattern(pattern: str) -> bool:
    """Whether the validator, which runs patterns in linear time, can run this one."""
    if pattern not in _patterns:
        try:
            compile_schema({"type": "string", "pattern": pattern}, root_object=False)
            is_usable = True
        except ValueError:
            is_usable = False
        if len(_patterns) > 10_000:
            _patterns.clear()
        _patterns[pattern] = is_usable
    return _patterns[pattern]


def _cut_cycles(definitions: dict[str, JsonObject]) -> dict[str, Json]:
    """Cut references that lead back to where they come from without going deeper into the value.

    A base type that lists its variants, each of which extends the base type, is such a cycle, and a validator would not end.
    """
    cut: dict[str, Json] = dict(definitions)
    state: dict[str, int] = {}

    def visit(name: str) -> None:
        state[name] = 1
        for target in list(_find_in_place(cut[name])):
            if state.get(target, 0) == 1:
                cut[name] = _remove_in_place(cut[name], target)
            elif target in cut and target not in state:
                visit(target)
        state[name] = 2

    for name in definitions:
        if name not in state:
            visit(name)
    return cut


def _find_in_place(schema: Json) -> Iterable[str]:
    if not isinstance(schema, dict):
        return
    if isinstance(reference := schema.get("$ref"), str):
        yield reference.removeprefix("#/$defs/")
    for keyword in _IN_PLACE:
        for branch in schema.get(keyword) or ():
            yield from _find_in_place(branch)
    yield from _find_in_place(schema.get("not"))


def _remove_in_place(schema: Json, target: str) -> Json:
    if not isinstance(schema, dict):
        return schema
    kept: JsonObject = {}
    for key, value in schema.items():
        if key == "$ref" and value == f"#/$defs/{target}":
            continue
        if key in _IN_PLACE:
            value = [_remove_in_place(branch, target) for branch in value]  # noqa: PLW2901 (rewritten)
        elif key == "not":
            value = _remove_in_place(value, target)  # noqa: PLW2901
        kept[key] = value
    return kept
