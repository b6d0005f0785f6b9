"""Turns responses into results and errors. Everything in them comes from the API, and is bounded.

A large body stays JSON text (`msgspec.Raw`): as Python objects, 8 MB of `[],` are half a gigabyte. It is read in a thread.
"""

import base64
import re
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from toolpost import NotFound, QueueOverloaded, Result, ToolFailed, ToolpostError
from toolpost.base import Json, JsonObject, conceal_known, join_url, split_url
from toolpost.contracts import InvalidRequest, InvalidResult
from toolpost.parts.openapi.client import ApiResponse
from toolpost.parts.openapi.operations import Operation, kind_of, origin_of
from toolpost.protocol import BadShape, check_shape

MESSAGE_LIMIT: Final = 500
BODY_LIMIT: Final = 4_000
INLINE_BYTES: Final = 128 * 1024
"""A body of this size decodes within 15 ms, whatever is in it."""
VALUE_LIMIT: Final = 500_000
"""How many values an answer may have to be checked against an output schema, which takes up to 100 MB."""
RETRY_LIMIT_S: Final = 3_600.0

_MESSAGE_KEYS: Final = (
    "message",
    "detail",
    "error_description",
    "title",
    "error",
    "reason",
    "description",
    "msg",
    "errors",
)
_LINK: Final = re.compile(r'<([^<>]*)>\s*((?:;[^,<>"]*(?:"[^"]*"[^,<>"]*)*)*)')
_REL: Final = re.compile(r';\s*rel\s*=\s*"?([^";]*)"?', re.IGNORECASE)
_NEXT_KEYS: Final = ("next", "next_url", "nextUrl", "nextLink", "@odata.nextLink", "next_page_url")
_LINKS_BYTES: Final = 8_192
_PARENTS: Final = ("links", "_links", "paging", "pagination", "meta")


def read_answer(
    operation: Operation, response: ApiResponse, *, is_wrapped: bool, is_checked: bool, key: str, missing: list[str]
) -> Any:
    """Return the result of a successful response; raises for any other. `missing` are security schemes without a key.

    With `is_checked`, the result is going to be checked against a schema. Call it in a thread for a body above `INLINE_BYTES`.
    """
    if response.status >= 400:
        raise make_error(operation, response, missing)
    if response.status >= 300:
        raise ToolFailed(
            f"{operation.shown} answered {response.status}, without a body to return.", status=response.status
        )
    if not response.body:
        return {key: None} if is_wrapped else {"status": response.status}
    value, content = _read_body(response)
    following = find_next(operation, response, value)
    if following is not None:
        shown = msgspec.json.encode(following).decode()
        content = [*content, {"type": "text", "text": f"There is a next page: call again with {shown}."}]
    if isinstance(value, msgspec.Raw):
        if is_checked:
            _check_values(operation, bytes(value))
        data: Any = msgspec.Raw(b"{%b:%b}" % (msgspec.json.encode(key), value)) if is_wrapped else value
    else:
        data = {key: value} if is_wrapped else value
    return Result(data=data, content=content) if content else data


def _check_values(operation: Operation, raw: bytes) -> None:
    try:
        check_shape(raw, value_limit=VALUE_LIMIT)
    except BadShape as error:
        raise InvalidResult(
            f"The answer of {operation.shown} cannot be checked against its output schema: it {error}",
            hint='ask for less at a time, or an operator can set `results = "off"` for the API',
        ) from error


def _read_body(response: ApiResponse) -> tuple[Json | msgspec.Raw, list[JsonObject]]:
    """Return the body as a value, a large one as JSON text, and content blocks for one that is neither JSON nor text."""
    media_type = response.media_type or "application/json"
    kind = kind_of(media_type)
    is_large = len(response.body) > INLINE_BYTES
    if kind == "json":
        try:
            if is_large:
                response.body.decode("utf-8")  # which a raw value is not searched for
                return msgspec.json.decode(response.body, type=msgspec.Raw), []
            return msgspec.json.decode(response.body), []
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # Said to be JSON, and is not: shown as the text that it is.
    try:
        if kind != "binary" or media_type == "application/octet-stream":
            text = response.body.decode("utf-8")
            if "\0" not in text and (written := _write_text(text, is_large=is_large)) is not None:
                return written, []
    except UnicodeDecodeError:
        if kind in ("text", "json", "form"):
            text = response.body.decode("latin-1")
            if (written := _write_text(text, is_large=is_large)) is not None:
                return written, []
    encoded = base64.b64encode(response.body).decode()
    about: JsonObject = {"status": response.status, "mediaType": media_type, "bytes": len(response.body)}
    main = media_type.partition("/")[0]
    if main in ("image", "audio"):
        return about, [{"type": main, "data": encoded, "mimeType": media_type}]
    resource: JsonObject = {"uri": conceal_known(response.url)[:1_000], "mimeType": media_type, "blob": encoded}
    return about, [{"type": "resource", "resource": resource}]


def _write_text(text: str, *, is_large: bool) -> str | msgspec.Raw | None:
    """Return a text, a large one as JSON; None if that is mostly escapes, which are six bytes for one of no text."""
    if not is_large:
        return text
    written = msgspec.json.encode(text)
    return msgspec.Raw(written) if len(written) <= 2 * len(text.encode()) + 2 else None


# Errors


def make_error(operation: Operation, response: ApiResponse, missing: list[str]) -> ToolpostError:
    """Describe a status of 400 or more, with the API's own message and a bounded part of its body."""
    said, headers = _find_message(response), response.headers
    message = f"{operation.shown} answered {response.status}" + (f": {said}" if said else ".")
    details: JsonObject = {"status": response.status}
    # Those that say what to do next.
    details |= {name: headers[name][:200] for name in ("retry-after", "x-request-id") if name in headers}
    if response.body:
        details["body"] = _shorten_body(response)
    if response.status == 429 or (response.status == 503 and "retry-after" in headers):
        given = headers.get("retry-after", "").strip()
        # It may also be a date, whose clock need not be ours.
        retry_s = min(float(given[:6]), RETRY_LIMIT_S) if given.isascii() and given.isdigit() else 1.0
        return QueueOverloaded(message, retry_s=retry_s, **details)
    if response.status in (401, 403):
        hint = "an operator can set its credentials: `security`, `headers` or `auth` of the API"
        if missing:
            hint = f"an operator can set `security.{missing[0]}` of the API, which this operation asks for"
        return ToolFailed(message, hint=hint, **details)
    if response.status < 500:
        # By HTTP it is the request that is wrong. Such errors quote values of the caller, and are logged without a traceback.
        kind = NotFound if response.status in (404, 410) else InvalidRequest
        return kind(message, **details)
    return ToolFailed(message, **details)


def _find_message(response: ApiResponse) -> str:
    if len(response.body) > INLINE_BYTES:
        return ""  # no error message, whatever else it is; its beginning is among the details
    try:
        value: Json = msgspec.json.decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if not response.media_type.startswith("text/plain"):
            return ""
        value = response.body[: MESSAGE_LIMIT * 4].decode("utf-8", "replace")
    return conceal_known(" ".join(_search_message(value, 0).split()))[:MESSAGE_LIMIT]


def _search_message(value: Json, depth: int) -> str:
    """Return the first text under a name that errors have; empty if there is none."""
    if isinstance(value, str):
        return value[: MESSAGE_LIMIT * 4]
    if isinstance(value, list) and value and depth < 4:
        return "; ".join(filter(None, (_search_message(item, depth + 1) for item in value[:3])))
    if isinstance(value, dict) and depth < 4:
        for key in _MESSAGE_KEYS:
            if found := _search_message(value.get(key), depth + 1):
                return found
    return ""


def _shorten_body(response: ApiResponse) -> Json:
    if len(response.body) <= BODY_LIMIT:
        try:
            value: Json = msgspec.json.decode(conceal_known(response.body.decode("utf-8")))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # Errors are often HTML or plain text, whatever the API documents.
        else:
            return value
    text = conceal_known(response.body[: BODY_LIMIT * 2].decode("utf-8", "replace"))
    return text if len(text) <= BODY_LIMIT else f"{text[:BODY_LIMIT]}…"


# Pages


def find_next(operation: Operation, response: ApiResponse, value: Json | msgspec.Raw) -> JsonObject | None:
    """Return the arguments that the next page differs in, if a link says where it is and the operation takes them; else None.

    Only what the API says is used: a `Link` header, or a URL under one of the usual names. Its path must be that of this request.
    """
    links = _read_links(value) if isinstance(value, msgspec.Raw) else value
    link = _find_link(response.headers.get("link", "")) or _find_next_url(links)
    if link is None:
        return None
    try:
        here, there = split_url(response.url), split_url(join_url(response.url, link))
    except ValueError:
        return None
    if origin_of(there.geturl()) != origin_of(response.url) or there.path.rstrip("/") != here.path.rstrip("/"):
        return None
    keys = {each.name: each for each in operation.parameters if each.place == "query" and each.media_type is None}
    before = dict(parse_qsl(here.query, keep_blank_values=True))
    changed: JsonObject = {}
    for name, text in parse_qsl(there.query, keep_blank_values=True):
        if before.get(name) != text:
            if name not in keys:
                return None
            changed[keys[name].key] = _type_text(text, keys[name].schema)
    return changed or None


def _find_link(header: str) -> str | None:
    for target, parameters in _LINK.findall(header[:8_192]):
        relation = _REL.search(parameters)
        if relation is not None and "next" in relation[1].lower().split():
            return str(target)
    return None


_LINK_FIELDS: Final = (*_NEXT_KEYS, *_PARENTS)
_Links = msgspec.defstruct(
    "_Links",
    [
        (f"field_{number}", msgspec.Raw, msgspec.field(default=msgspec.Raw(), name=name))
        for number, name in enumerate(_LINK_FIELDS)
    ],
)
"""The fields of an object that may say where the next page is; the others are skipped."""


def _read_links(raw: msgspec.Raw) -> Json:
    try:
        fields = msgspec.structs.asdict(msgspec.json.decode(raw, type=_Links)).values()
    except msgspec.DecodeError:
        return None  # no object
    return {
        name: msgspec.json.decode(field)
        for name, field in zip(_LINK_FIELDS, fields, strict=True)
        if 0 < len(memoryview(field)) <= _LINKS_BYTES
    }


def _find_next_url(value: Json) -> str | None:
    if not isinstance(value, dict):
        return None
    parents = [value.get(parent) for parent in _PARENTS]
    for holder in (value, *(parent for parent in parents if isinstance(parent, dict))):
        for key in _NEXT_KEYS:
            found = holder.get(key)
            found = found.get("href") if isinstance(found, dict) else found
            if isinstance(found, str) and found.startswith(("http://", "https://", "/", "?")):
                return found
    return None


def _type_text(text: str, schema: Json) -> Json:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind in ("integer", "number"):
        try:
            return int(text) if kind == "integer" else float(text)
        except ValueError:
            return text
    return text == "true" if kind == "boolean" and text in ("true", "false") else text
