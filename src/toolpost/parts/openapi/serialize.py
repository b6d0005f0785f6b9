"""Writes arguments into a request, each in its own place.

A value is chosen by a model, perhaps after it has read what a stranger wrote. Whatever it is, it must stay in its place: a path
value must not change the path, a query value not add a parameter, a header value not begin another header. So everything but
letters, digits and `-._~` is percent-encoded, and what could not be told apart after that is refused: `..` (proxies decode `%2E`
before they resolve it), an empty path value (`DELETE /pets/` is not `DELETE /pets/7`), line breaks in headers.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec

from toolpost import InvalidArguments
from toolpost.base import Json, JsonObject
from toolpost.parts.openapi.operations import BODY_KEY, TEMPLATE, TOKEN, Body, Operation, Parameter

_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_RESERVED: Final = ":/?@!$'()*,;"
"""What `allowReserved` leaves as it is: not `&`, `=`, `+` and `#`, which would begin something else."""


@dataclass(frozen=True, kw_only=True)
class ApiRequest:
    """A request, ready to be sent, without credentials."""

    method: str
    path: str
    """Below the base, percent-encoded."""
    query: tuple[tuple[str, str], ...] = ()
    """Encoded names and values."""
    headers: tuple[tuple[str, str], ...] = ()
    cookies: tuple[tuple[str, str], ...] = ()
    """Names and encoded values."""
    body: bytes = field(default=b"", repr=False)
    media_type: str | None = None


def write_request(operation: Operation, arguments: Mapping[str, Any], taken: frozenset[tuple[str, str]]) -> ApiRequest:
    """Write a request; raises `InvalidArguments` for a value that has no form in its place.

    `taken` are places and names of what the configuration sets, which an argument must not repeat.
    """
    declared = taken | {(parameter.place, parameter.name) for parameter in operation.parameters}
    paths: dict[str, str] = {}
    query: list[tuple[str, str]] = [(encode(name), encode(value)) for name, value in operation.fixed_query]
    headers: list[tuple[str, str]] = []
    cookies: list[tuple[str, str]] = []
    for parameter in operation.parameters:
        value = arguments.get(parameter.key)
        if parameter.place == "path":
            paths[parameter.name] = _write_path_value(parameter, value)
        elif value is None:
            continue
        elif parameter.place == "query":
            query += _write_query(parameter, value, declared)
        elif parameter.place == "header":
            headers.append((parameter.name, _write_header(parameter, value)))
        else:
            cookies += _write_cookies(parameter, value, declared)
    body, media_type = b"", None
    if operation.body is not None and BODY_KEY in arguments:
        body, media_type = write_body(operation.body, arguments[BODY_KEY])
    return ApiRequest(
        method=operation.method,
        path=_write_path(operation.path, paths),
        query=tuple(query),
        headers=tuple(headers),
        cookies=tuple(cookies),
        body=body,
        media_type=media_type,
    )


def encode(text: str, safe: str = "") -> str:
    """Percent-encode a text; everything but letters, digits and `-._~` unless it is in `safe`."""
    try:
        return quote(text, safe=safe)
    except UnicodeEncodeError:
        raise InvalidArguments("A value contains half of a surrogate pair, which is not text.") from None


def _text(value: Json) -> str:
    """Write a value inside a parameter; one that has parts itself is written as JSON, since no style has a form for it."""
    return value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()


def _refuse(parameter: Parameter, why: str) -> InvalidArguments:
    return InvalidArguments(f"`{parameter.key}` {why}.", hint="give another value")


def _content(parameter: Parameter, value: Json) -> str:
    """Write the value of a parameter that has a media type."""
    is_text = (parameter.media_type or "").lower().startswith("text/") and isinstance(value, str)
    return str(value) if is_text else msgspec.json.encode(value).decode()


# Path


def _write_path_value(parameter: Parameter, value: Json) -> str:
    if value is None or value in ("", [], {}):
        raise _refuse(parameter, "is a part of the path, and must not be empty")
    if parameter.media_type is not None:
        return encode(_content(parameter, value))
    if parameter.style == "simple":
        return ",".join(_flatten(value, joins=parameter.explode))
    prefix = "." if parameter.style == "label" else ";"
    if parameter.style == "matrix":
        name = encode(parameter.name)
        if parameter.explode and isinstance(value, list):
            return "".join(f";{name}={encode(_text(item))}" for item in value)
        if parameter.explode and isinstance(value, dict):
            return "".join(f";{pair}" for pair in _flatten(value, joins=True))
        return f";{name}={','.join(_flatten(value, joins=False))}"
    separator = "." if parameter.explode else ","
    return prefix + separator.join(_flatten(value, joins=parameter.explode))


def _flatten(value: Json, *, joins: bool, safe: str = "") -> list[str]:
    """Return the encoded items of a value; those of an object as `name=value` if `joins`, else as names and values in turn."""
    if isinstance(value, list):
        return [encode(_text(item), safe) for item in value]
    if isinstance(value, dict):
        pairs = [(encode(name, safe), encode(_text(item), safe)) for name, item in value.items()]
        return [f"{name}={item}" for name, item in pairs] if joins else [text for pair in pairs for text in pair]
    return [encode(_text(value), safe)]


def _write_path(template: str, values: Mapping[str, str]) -> str:
    pieces = []
    for piece in template.split("/"):
        filled = TEMPLATE.sub(lambda found: values[found[1]], encode(piece, "{}:@!$&'()*+,;=%"))
        # In the template too: a document must not lead out of `base`, with its credentials.
        if has_dots(filled):
            raise InvalidArguments("The path would lead out of its place: `.` and `..` are refused.")
        pieces.append(filled)
    return "/".join(pieces)


def has_dots(path: str) -> bool:
    """Whether a part of a path is `.` or `..`, for this gateway or for any other reader.

    It is decoded, because what is between here and the API may do so before it resolves dots. A backslash is a slash to some, and
    servers of Java ignore what follows a semicolon: `..;`.
    """
    decoded = unquote(unquote(path)).replace("\\", "/")
    return any(part.partition(";")[0].strip() in (".", "..") for part in decoded.split("/"))


# Query


def _write_query(parameter: Parameter, value: Json, declared: frozenset[tuple[str, str]]) -> list[tuple[str, str]]:
    name = encode(parameter.name, "[]")
    safe = _RESERVED if parameter.allow_reserved else ""
    if parameter.media_type is not None:
        return [(name, encode(_content(parameter, value), safe))]
    if parameter.style == "deepObject" and isinstance(value, dict):
        return list(_deepen(name, value, safe))
    if isinstance(value, list) and parameter.explode:
        return [(name, encode(_text(item), safe)) for item in value]
    if isinstance(value, dict) and parameter.explode:
        # The names of its properties become parameters of the query, and must not be those of others.
        for inner in value:
            if ("query", inner) in declared and inner != parameter.name:
                raise _refuse(parameter, f"must not have the property `{inner[:100]}`, which is another parameter")
        return [(encode(inner, "[]"), encode(_text(item), safe)) for inner, item in value.items()]
    separator = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}.get(parameter.style, ",")
    return [(name, separator.join(_flatten(value, joins=False, safe=safe)))]


def _deepen(name: str, value: Json, safe: str) -> Iterable[tuple[str, str]]:
    if isinstance(value, dict):
        for inner, item in value.items():
            yield from _deepen(f"{name}[{encode(inner)}]", item, safe)
    elif isinstance(value, list):
        for item in value:
            yield name, encode(_text(item), safe)
    else:
        yield name, encode(_text(value), safe)


# Headers and cookies


def _write_header(parameter: Parameter, value: Json) -> str:
    if parameter.media_type is not None:
        text = _content(parameter, value)
    elif isinstance(value, list):
        text = ",".join(map(_text, value))
    elif isinstance(value, dict):
        pairs = [(name, _text(item)) for name, item in value.items()]
        text = ",".join(f"{name}={item}" if parameter.explode else f"{name},{item}" for name, item in pairs)
    else:
        text = _text(value)
    if _CONTROL.search(text):
        raise _refuse(parameter, "is sent in a header, and must not contain line breaks or control characters")
    return text


def _write_cookies(parameter: Parameter, value: Json, declared: frozenset[tuple[str, str]]) -> list[tuple[str, str]]:
    if not TOKEN.fullmatch(parameter.name):
        raise _refuse(parameter, "has a name that no cookie can have")
    if parameter.media_type is not None:
        return [(parameter.name, encode(_content(parameter, value)))]
    if isinstance(value, dict) and parameter.explode:
        for inner in value:
            if not TOKEN.fullmatch(inner) or (("cookie", inner) in declared and inner != parameter.name):
                raise _refuse(parameter, f"must not have the property `{inner[:100]}`, which can be no cookie here")
        return [(inner, encode(_text(item))) for inner, item in value.items()]
    if isinstance(value, list) and parameter.explode:
        return [(parameter.name, encode(_text(item))) for item in value]
    return [(parameter.name, ",".join(_flatten(value, joins=False)))]


# Bodies


def write_body(body: Body, value: Json) -> tuple[bytes, str]:
    """Write a body; returns it with its media type. Raises `InvalidArguments`."""
    if body.kind == "json":
        return msgspec.json.encode(value), body.media_type
    if body.kind == "text":
        return _text(value).encode("utf-8", "surrogatepass"), body.media_type
    if body.kind == "binary":
        data, _ = _read_file(value, BODY_KEY)
        return data, body.media_type if "*" not in body.media_type else "application/octet-stream"
    if not isinstance(value, dict):
        raise InvalidArguments(f"`{BODY_KEY}` must be an object: it is sent as a form.")
    if body.kind == "form":
        pairs = [pair for name, item in value.items() for pair in _write_field(name, item, body.encoding.get(name))]
        return "&".join(f"{name}={item}" for name, item in pairs).encode(), body.media_type
    return _write_multipart(body, value)


def _write_field(name: str, value: Json, encoding: Json) -> list[tuple[str, str]]:
    told = encoding if isinstance(encoding, dict) else {}
    if value is None:
        return []
    if isinstance(value, dict) and "style" not in told:
        return [(encode(name), encode(_text(value)))]
    style = str(told.get("style", "form"))
    explode = told.get("explode")
    parameter = Parameter(
        key=name,
        name=name,
        place="query",
        is_required=False,
        style=style,
        explode=explode if isinstance(explode, bool) else style == "form",
    )
    return _write_query(parameter, value, frozenset())


def _write_multipart(body: Body, value: JsonObject) -> tuple[bytes, str]:
    import httpx2

    parts: list[tuple[str, tuple[str | None, bytes] | tuple[str | None, bytes, str]]] = []
    for name, item in value.items():
        told = body.encoding.get(name)
        media_type = told.get("contentType") if isinstance(told, dict) else None
        media_type = (
            media_type.partition(",")[0].strip() if isinstance(media_type, str) and "*" not in media_type else None
        )
        for each in item if isinstance(item, list) else [item]:
            if each is not None:
                parts.append((name, _make_part(name, each, media_type)))
    request = httpx2.Request("POST", "http://localhost/", files=parts or [("", (None, b""))])
    return request.read(), request.headers["content-type"]


def _make_part(
    name: str, value: Json, media_type: str | None
) -> tuple[str | None, bytes] | tuple[str | None, bytes, str]:
    if media_type is not None and _CONTROL.search(media_type):
        media_type = None
    if is_file(value):
        data, filename = _read_file(value, name)
        return filename or name, data, media_type or "application/octet-stream"
    data = _text(value).encode("utf-8", "surrogatepass")
    if media_type is None:
        media_type = "application/json" if isinstance(value, dict | list) else None
    return (None, data, media_type) if media_type is not None else (None, data)


def is_file(value: Json) -> bool:
    """Whether an argument is a file: an object with its content as text or base64."""
    return isinstance(value, dict) and bool(value) and value.keys() <= {"text", "base64", "filename"}


def _read_file(value: Json, name: str) -> tuple[bytes, str | None]:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass"), None
    if not isinstance(value, dict):
        raise InvalidArguments(f"`{name}` must be a file: an object with `text` or `base64`.")
    filename = value.get("filename")
    if isinstance(text := value.get("text"), str):
        data = text.encode("utf-8", "surrogatepass")
    else:
        try:
            data = base64.b64decode(str(value.get("base64", "")), validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidArguments(f"`{name}.base64` is not base64: {error}.") from error
    return data, str(filename) if filename else None
