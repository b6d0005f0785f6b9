"""Finds the operations of a document, with their parameters and answers. One that cannot be used is kept with the reason.

Nothing here depends on how many operations there are, or in which order they stand: a tool has the same name and arguments
whatever else the document describes.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, Literal
from urllib.parse import parse_qsl

from toolpost.base import Json, JsonObject, PluginName, join_url, split_url
from toolpost.contracts import NAME_LIMIT, tool_names
from toolpost.parts.openapi import swagger
from toolpost.parts.openapi.document import Document, Unusable
from toolpost.parts.openapi.schemas import shorten

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
TEXT_LIMIT: Final = 1_000
"""How much of an operation's own description is listed."""
BODY_KEY: Final = "body"

Place = Literal["path", "query", "header", "cookie"]
BodyKind = Literal["json", "form", "multipart", "text", "binary"]

_STYLES: Final[Mapping[str, tuple[str, ...]]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
TEMPLATE: Final = re.compile(r"\{([^{}]*)\}")
"""A parameter in a path."""
TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""What the name of a header, or of a cookie, is made of."""
_KEY: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_KEY_LIMIT: Final = 64
_IGNORED_HEADERS: Final = frozenset({"accept", "content-type", "authorization"})
"""OpenAPI has them described elsewhere, and ignores parameters of these names."""
_OWN_HEADERS: Final = frozenset(
    {"connection", "content-length", "cookie", "expect", "host", "keep-alive", "proxy-authorization", "te", "trailer"}
    | {"transfer-encoding", "upgrade"}
)
"""Headers that decide where a request goes or ends, or that hold more than one value."""


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter, and where it goes."""

    key: str
    """The name of the tool's argument."""
    name: str
    """The name in the request."""
    place: Place
    is_required: bool
    style: str
    explode: bool
    allow_reserved: bool = False
    may_be_empty: bool = False
    """Whether a parameter of the query may be there without a value, whatever its schema says."""
    media_type: str | None = None
    """Of a parameter that is described by `content`: it is sent as JSON, or as text."""
    schema: Json = field(default_factory=dict)
    description: str = ""


@dataclass(frozen=True, kw_only=True)
class Body:
    """A request body."""

    kind: BodyKind
    media_type: str
    is_required: bool
    schema: Json
    description: str = ""
    encoding: JsonObject = field(default_factory=dict)
    """How each property of a form is written."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation that can be a tool."""

    name: str
    """The name of the tool, without that of the API."""
    method: str
    """In capital letters."""
    path: str
    """The template, such as `/pets/{petId}`, without a query."""
    fixed_query: tuple[tuple[str, str], ...] = ()
    """A query that stands in the path itself."""
    summary: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    is_deprecated: bool = False
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    answers: tuple[Json, ...] | None = ()
    """Schemas of successful answers in JSON; None if one of them may be something else that has a body."""
    may_be_empty: bool = False
    """Whether a successful answer may have no body."""
    security: tuple[Mapping[str, tuple[str, ...]], ...] | None = None
    """Alternatives, each of schemes that are needed together; None if the document does not say."""

    @property
    def shown(self) -> str:
        """The operation as documents name it: `GET /pets/{petId}`."""
        return f"{self.method} {self.path}"


@dataclass(frozen=True, kw_only=True)
class Omission:
    """An operation that is no tool, and why."""

    method: str
    path: str
    reason: str

    @property
    def shown(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, kw_only=True)
class Operations:
    """The contents of a document."""

    usable: list[Operation]
    omitted: list[Omission]
    schemes: Mapping[str, JsonObject]
    """Its security schemes, by name."""


def find_operations(document: Document, api: str) -> Operations:
    """Return all operations of a document, named for an API of this name."""
    found: list[tuple[str, str, JsonObject, JsonObject]] = []
    omitted: list[Omission] = []
    paths = document.raw.get("paths")
    for path, raw_item in paths.items() if isinstance(paths, dict) else ():
        if not path.startswith("/"):
            continue  # An extension, `x-…`.
        try:
            item, _ = document.follow(raw_item)
        except Unusable as reason:
            omitted.append(Omission(method="*", path=path, reason=str(reason)))
            continue
        for method in METHODS:
            if method in item:
                found.append((method, path, item, item[method] if isinstance(item[method], dict) else {}))
    names = _name_all(api, [(method, path, operation) for method, path, _, operation in found])
    usable: list[Operation] = []
    for (method, path, item, operation), name in zip(found, names, strict=True):
        try:
            usable.append(_read_operation(document, method, path, item, operation, name))
        except Unusable as reason:
            omitted.append(Omission(method=method.upper(), path=path, reason=str(reason)))
    return Operations(usable=usable, omitted=omitted, schemes=read_schemes(document))


def find_base(document: Document, url: str | None) -> str | None:
    """Return the server that a document names, relative to the URL that it came from; None if it names none that can be used."""
    named = swagger.find_server(document) if document.is_swagger else _find_server(document.raw.get("servers"))
    if named is None:
        named = "/" if url is not None else None
    try:
        whole = "" if named is None else join_url(url or "", named)
    except ValueError:
        return None
    return whole.rstrip("/") if whole.lower().startswith(("http://", "https://")) else None


def is_selected(operation: Operation, allow: Iterable[str], deny: Iterable[str]) -> bool:
    """Whether one of the patterns allows an operation, and none denies it."""
    return any(_matches(operation, each) for each in allow) and not any(_matches(operation, each) for each in deny)


def _matches(operation: Operation, pattern: str) -> bool:
    """Compare with `tag:NAME`, `METHOD /path` or `/path`, or the name of the tool; `*` stands for anything."""
    if pattern.startswith("tag:"):
        return any(fnmatchcase(tag, pattern[4:]) for tag in operation.tags)
    if "/" not in pattern and " " not in pattern:
        return fnmatchcase(operation.name, pattern)
    method, blank, path = pattern.rpartition(" ")
    is_method = not blank or fnmatchcase(operation.method, method.strip().upper())
    return is_method and fnmatchcase(operation.path, path)


# Names


def _name_all(api: str, operations: Sequence[tuple[str, str, JsonObject]]) -> list[str]:
    """Return the names of tools: the operation's id, or its method and path where that is missing or not unique."""
    ids = [str(operation.get("operationId") or "").strip() for _, _, operation in operations]
    counts = Counter(ids)
    originals = [
        own if own and counts[own] == 1 else _name_by_path(method, path, own)
        for own, (method, path, _) in zip(ids, operations, strict=True)
    ]
    # A long name is cut at a word; `tool_names` would add a hash, which is needed only where two would be the same.
    room = NAME_LIMIT - len(f"{api}__")
    short = [_cut_at_word(_KEY.sub("_", each), room) if len(each) > room else each for each in originals]
    counts = Counter(short)
    originals = [
        brief if len(original) > room and counts[brief] == 1 else original
        for brief, original in zip(short, originals, strict=True)
    ]
    names = tool_names(PluginName(api), originals)
    return [names[original].removeprefix(f"{api}__") for original in originals]


def _cut_at_word(name: str, room: int) -> str:
    """Return the first words of a name that fit; the first characters where its first word alone does not."""
    return re.sub(r"[^A-Za-z0-9]+[A-Za-z0-9]*$", "", name[: room + 1])[:room]


def _name_by_path(method: str, path: str, own: str) -> str:
    words = "_".join(word for word in re.split(r"[^A-Za-z0-9]+", path) if word)
    return f"{own}_{method}_{words}" if own else f"{method}_{words}" if words else f"{method}_root"


# Operations


def _read_operation(
    document: Document, method: str, path: str, item: JsonObject, operation: JsonObject, name: str
) -> Operation:
    _check_servers(document, item, operation)
    template, _, _fragment = path.partition("#")
    template, _, query = template.partition("?")
    raw = _merge_parameters(document, item.get("parameters"), operation.get("parameters"))
    raw_body = operation.get("requestBody")
    if document.is_swagger:
        raw, raw_body = swagger.convert_parameters(document, operation, raw)
    parameters = _read_parameters(raw, template)
    body = _read_body(document, raw_body) if raw_body is not None else None
    answers, may_be_empty = _read_answers(document, operation)
    if body is not None and method == "trace":
        raise Unusable("TRACE takes no body")
    alternatives, security = operation.get("security", document.raw.get("security")), None
    if isinstance(alternatives, list):
        security = tuple(
            {str(scheme): tuple(map(str, scopes or ())) for scheme, scopes in each.items()}
            for each in alternatives
            if isinstance(each, dict)
        )
    return Operation(
        name=name,
        method=method.upper(),
        path=template,
        fixed_query=tuple(parse_qsl(query, keep_blank_values=True)),
        summary=shorten(str(operation.get("summary") or item.get("summary") or ""), 200),
        description=shorten(str(operation.get("description") or item.get("description") or ""), TEXT_LIMIT),
        tags=tuple(str(tag) for tag in operation.get("tags") or () if isinstance(tag, str)),
        is_deprecated=operation.get("deprecated") is True,
        parameters=tuple(parameters),
        body=body,
        answers=answers,
        may_be_empty=may_be_empty,
        security=security,
    )


def _check_servers(document: Document, item: JsonObject, operation: JsonObject) -> None:
    own = _find_server(operation.get("servers")) or _find_server(item.get("servers"))
    if own is None:
        return
    common = _find_server(document.raw.get("servers")) or "/"
    if own.rstrip("/") not in (common.rstrip("/"), ""):
        # Its credentials were configured for `base`, and must not go elsewhere.
        raise Unusable(f"it is at a server of its own, {own[:200]}; describe that as another API")


def _find_server(servers: Json) -> str | None:
    first = servers[0] if isinstance(servers, list) and servers else None
    if not isinstance(first, dict) or not isinstance(first.get("url"), str):
        return None
    variables = first.get("variables")
    known = variables if isinstance(variables, dict) else {}

    def fill(found: re.Match[str]) -> str:
        variable = known.get(found[1])
        return str(variable.get("default", found[0])) if isinstance(variable, dict) else found[0]

    return TEMPLATE.sub(fill, first["url"]).strip()


def _merge_parameters(document: Document, *lists: Json) -> list[JsonObject]:
    """Return the parameters of a path and an operation; one of the operation replaces that of the same name and place."""
    merged: dict[tuple[str, str], JsonObject] = {}
    for listed in lists:
        for raw in listed if isinstance(listed, list) else ():
            parameter, _ = document.follow(raw)
            merged[str(parameter.get("name")), str(parameter.get("in"))] = parameter
    return list(merged.values())


def _read_parameters(raw: Sequence[JsonObject], template: str) -> list[Parameter]:
    in_path = TEMPLATE.findall(template)
    left_out = _IGNORED_HEADERS | _OWN_HEADERS
    kept = [
        one
        for one in raw
        if (one.get("in") != "path" or str(one.get("name")) in in_path)
        and (one.get("in") != "header" or str(one.get("name")).lower() not in left_out)
    ]
    declared = {str(one.get("name")) for one in kept if one.get("in") == "path"}
    # A name in the path that the document forgets to describe.
    kept += [{"name": name, "in": "path", "schema": {"type": "string"}} for name in in_path if name not in declared]
    keys = _make_keys([(str(one.get("name")), str(one.get("in"))) for one in kept])
    return [_read_parameter(one, key) for one, key in zip(kept, keys, strict=True)]


def _make_keys(named: Sequence[tuple[str, str]]) -> list[str]:
    """Return argument names that clients accept; of two that would be the same, both say where they go."""
    plain = [(_KEY.sub("_", name).strip("_") or "_")[:_KEY_LIMIT] for name, _ in named]
    counts = Counter([*plain, BODY_KEY])
    keys = [
        key if counts[key] == 1 else f"{key[: _KEY_LIMIT - 8]}_{place}"
        for key, (_, place) in zip(plain, named, strict=True)
    ]
    seen: Counter[str] = Counter()
    unique = []
    for key in keys:
        seen[key] += 1
        unique.append(key if seen[key] == 1 else f"{key[: _KEY_LIMIT - 4]}_{seen[key]}")
    return unique


def _read_parameter(raw: JsonObject, key: str) -> Parameter:
    name = str(raw.get("name"))
    place: Any = raw.get("in")
    if place not in _STYLES:
        raise Unusable(f"the parameter {name} is in `{place}`, which is no place for one")
    if place == "header" and not TOKEN.fullmatch(name):
        raise Unusable(f"`{name}` is no name of a header")
    styles = _STYLES[place]
    style = str(raw.get("style") or styles[0])
    if style not in styles:
        raise Unusable(f"the parameter {name} has the style {style}, which there is not in a {place}")
    schema, media_type = raw.get("schema", {}), None
    if isinstance(content := raw.get("content"), dict) and content:
        media_type, described = next(iter(content.items()))
        schema = described.get("schema", {}) if isinstance(described, dict) else {}
        if not _is_json(media_type) and not media_type.lower().startswith("text/"):
            raise Unusable(f"the parameter {name} is of type {media_type}")
    explode = raw.get("explode")
    return Parameter(
        key=key,
        name=name,
        place=place,
        is_required=raw.get("required") is True or place == "path",
        style=style,
        explode=explode if isinstance(explode, bool) else style == "form",
        allow_reserved=raw.get("allowReserved") is True,
        may_be_empty=raw.get("allowEmptyValue") is True and place == "query",
        media_type=media_type,
        schema=schema,
        description=str(raw.get("description") or ""),
    )


# Bodies and answers


def _is_json(media_type: str) -> bool:
    plain = media_type.partition(";")[0].strip().lower()
    return plain in ("application/json", "text/json", "*/*", "application/*") or plain.endswith("+json")


def kind_of(media_type: str) -> BodyKind:
    """Return how a body of this type is written."""
    plain = media_type.partition(";")[0].strip().lower()
    if _is_json(plain):
        return "json"
    if plain == swagger.FORM:
        return "form"
    if plain.startswith("multipart/"):
        return "multipart"
    is_text = plain.startswith("text/") or plain.endswith(("xml", "yaml", "javascript", "graphql", "csv", "ndjson"))
    return "text" if is_text else "binary"


_PREFERENCE: Final = ("json", "form", "multipart", "text", "binary")


def _read_body(document: Document, raw: Json) -> Body | None:
    described, _ = document.follow(raw)
    content = described.get("content")
    if not isinstance(content, dict) or not content:
        return None
    media_type = min(content, key=lambda each: _PREFERENCE.index(kind_of(each)))
    media = content[media_type] if isinstance(content[media_type], dict) else {}
    kind = kind_of(media_type)
    if kind == "multipart" and media_type.partition(";")[0].strip().lower() != swagger.MULTIPART:
        raise Unusable(f"its body is {media_type}; of several parts, only {swagger.MULTIPART} is known")
    encoding = media.get("encoding")
    return Body(
        kind=kind,
        media_type="application/json" if "*" in media_type else media_type,
        is_required=described.get("required") is True,
        schema=media.get("schema", {}),
        description=str(described.get("description") or ""),
        encoding=encoding if isinstance(encoding, dict) else {},
    )


def _read_answers(document: Document, operation: JsonObject) -> tuple[tuple[Json, ...] | None, bool]:
    """Return the schemas of successful answers, and whether one of them has no body."""
    schemas: list[Json] = []
    may_be_empty = False
    for response in _successes(document, operation):
        content = response.get("content")
        if not isinstance(content, dict) or not content:
            may_be_empty = True
            continue
        media = next((media for media_type, media in content.items() if _is_json(media_type)), None)
        schema = media.get("schema") if isinstance(media, dict) else None
        if schema is None:
            return None, may_be_empty
        if schema not in schemas:
            schemas.append(schema)
    return tuple(schemas), may_be_empty


def _successes(document: Document, operation: JsonObject) -> Iterator[JsonObject]:
    responses = operation.get("responses")
    named = responses if isinstance(responses, dict) else {}
    chosen = [status for status in named if re.fullmatch(r"2(\d\d|XX|xx)", status)]
    for status in chosen or (["default"] if "default" in named else []):
        response, _ = document.follow(named[status])
        yield swagger.convert_response(document, operation, response) if document.is_swagger else response


# Security


def read_schemes(document: Document) -> dict[str, JsonObject]:
    """Return the security schemes of a document, by name."""
    components = document.raw.get("components")
    if document.is_swagger:
        found = document.raw.get("securityDefinitions")
    else:
        found = components.get("securitySchemes") if isinstance(components, dict) else None
    schemes: dict[str, JsonObject] = {}
    for name, raw in found.items() if isinstance(found, dict) else ():
        try:
            scheme, _ = document.follow(raw)
        except Unusable:
            continue
        schemes[name] = swagger.convert_security(scheme) if document.is_swagger else scheme
    return schemes


def origin_of(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of a URL; all empty for one that cannot be read."""
    try:
        parts = split_url(url)
        return (
            parts.scheme.lower(),
            (parts.hostname or "").lower(),
            parts.port or (443 if parts.scheme == "https" else 80),
        )
    except ValueError:
        return "", "", 0
