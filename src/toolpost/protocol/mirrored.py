"""Arguments that a tool's schema mirrors into HTTP headers (`x-mcp-header`): found once, written for every call.

The rules are those of the official SDK (`mcp.shared.inbound`), implemented again because importing it takes over a second of
start-up; a test compares the two.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolpost.base.ids import Json, JsonObject
from toolpost.base.values import value_at

ANNOTATION: Final = "x-mcp-header"
PREFIX: Final = b"mcp-param-"

Headers = tuple[tuple[bytes, bytes], ...]
Path = tuple[str, ...]

_TYPES: Final = frozenset({"string", "integer", "boolean"})
_ONE: Final = frozenset(
    {
        *("items", "contains", "unevaluatedItems", "additionalProperties", "propertyNames", "unevaluatedProperties"),
        *("not", "if", "then", "else", "contentSchema"),
    }
)
_MANY: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED: Final = frozenset({"patternProperties", "dependentSchemas", "$defs", "definitions"})

_is_token = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch


class BadAnnotation(ValueError):
    """A schema mirrors an argument in a way that clients must not follow."""


class MirroredArguments:
    """Which arguments of one tool go into which headers."""

    def __init__(self, schema: Json) -> None:
        """Raises `BadAnnotation` for a schema that must be refused."""
        self._headers: dict[Path, bytes] = {}
        self._names: set[bytes] = set()
        for path, part in _walk_schemas(schema):
            if ANNOTATION in part:
                self._add(path, part)

    def __bool__(self) -> bool:
        return bool(self._headers)

    def headers_for(self, arguments: JsonObject) -> Headers:
        """Return the headers of a call: one for each mirrored argument that is present."""
        written = ((name, _render(value_at(arguments, path))) for path, name in self._headers.items())
        return tuple((name, value) for name, value in written if value is not None)

    def _add(self, path: Path | None, part: Mapping[str, Any]) -> None:
        if not path:
            raise BadAnnotation(f"{ANNOTATION} is not on an argument")
        token, kind = part[ANNOTATION], part.get("type")
        if not isinstance(token, str) or not _is_token(token):
            raise BadAnnotation(f"{ANNOTATION} of `{'.'.join(path)}` cannot be the name of a header")
        if not isinstance(kind, str) or kind not in _TYPES:
            raise BadAnnotation(
                f"{ANNOTATION} of `{'.'.join(path)}`: only text, whole numbers and booleans are mirrored"
            )
        name = PREFIX + token.lower().encode()
        if name in self._names:
            raise BadAnnotation(f"{ANNOTATION} of `{'.'.join(path)}`: another argument has this header")
        self._headers[path] = name
        self._names.add(name)


def header_value(text: str) -> bytes:
    """Encode a text for a header, wrapped as `=?base64?…?=` if it is not plain ASCII."""
    if text.isascii() and text.isprintable() and text.strip() == text and not text.startswith("=?base64?"):
        return text.encode()
    return b"=?base64?%b?=" % base64.b64encode(text.encode())


def _walk_schemas(root: Json) -> Iterator[tuple[Path | None, Mapping[str, Any]]]:
    """Yield every schema inside a schema; its path is None unless only `properties` lead to it."""
    waiting: list[tuple[Path | None, Any]] = [((), root)]
    while waiting:
        path, node = waiting.pop()
        if not isinstance(node, dict):
            continue
        yield path, node
        for keyword, value in node.items():
            if keyword == "properties" and isinstance(value, dict):
                waiting += [((*path, name) if path is not None else None, part) for name, part in value.items()]
            elif keyword in _ONE:
                waiting.append((None, value))
            elif keyword in _MANY and isinstance(value, list):
                waiting += [(None, part) for part in value]
            elif keyword in _NAMED and isinstance(value, dict):
                waiting += [(None, part) for part in value.values()]


def _render(value: Json) -> bytes | None:
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if not isinstance(value, str | int | float):
        return None
    try:
        return header_value(str(value))
    except ValueError:  # a number with thousands of digits, or half of a surrogate pair
        return None
