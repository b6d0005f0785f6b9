"""What is fuzzed. A check takes any bytes, and raises if the reader breaks a promise; what it may refuse, it refuses quietly."""

import atexit
import functools
import json
import math
import random
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import httptools
import jsonschema

from tests.hostile.fuzz import CORPUS, Check
from toolpost.contracts.errors import BadConfiguration, BadLock
from toolpost.contracts.lockfile import lock_text, parse_lock
from toolpost.contracts.schema import SchemaProblem, compile_schema
from toolpost.endpoints.http.framing import HEAD_END, read_framing
from toolpost.endpoints.http.head import split_head
from toolpost.endpoints.http.plain_requests import PlainRequests
from toolpost.endpoints.http.refusal import Refused
from toolpost.net.events import EventReader, EventTooLarge
from toolpost.parts.agents.settings import AGENTS, resolve_agent
from toolpost.protocol import rpc
from toolpost.protocol.rpc import ProtocolError
from toolpost.settings import load_config
from toolpost.settings.lock import read_lock
from toolpost.settings.servers import resolve_server

LONGEST_S: Final = 2.0
"""The CPU time that one input may take; a hundred times what any of those in the corpus does."""


def check_message(data: bytes) -> None:
    """`rpc.parse` takes what `json` takes, says the same about it, and raises `ProtocolError` alone."""
    try:
        message = rpc.parse(data)
    except ProtocolError as error:
        json.loads(error.as_response())
        return
    whole = json.loads(data)
    assert isinstance(whole, dict), "only objects are messages"
    assert whole["jsonrpc"] == "2.0"
    assert message.method == whole.get("method")
    assert (message.id is None) == ("id" not in whole)
    if message.id is not None:
        assert json.loads(message.id) == whole["id"]
        assert message.key == str(whole["id"])
    assert message.params == b"" or _same(json.loads(message.params), whole["params"])
    if isinstance(whole.get("params"), dict) and (params := rpc.params_object(message)):
        assert _same(params, whole["params"])
    with suppress(ProtocolError):
        rpc.list_params(message)
    with suppress(ProtocolError):
        name, arguments, meta, _ = rpc.call_params(message)
        params = whole.get("params") or {}
        assert (name, meta) == (params["name"], params.get("_meta") or {})
        assert _same(arguments, params.get("arguments") or {})


def _same(one: Any, other: Any) -> bool:
    """Whether two readings are the same; one of them may read a number as the nearest float."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) or isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-15)
    return type(one) is type(other) and bool(one == other)


class _Read(Exception):
    """Carries the head that the front of a connection has read out of it."""


class _Reader:
    """Stands for the endpoint behind the front: takes the head and goes no further."""

    body_limit = 4 * 1024 * 1024

    def read_head(self, raw: bytes) -> None:
        raise _Read(raw)


class _Request:
    """What httptools says about a request."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.url = b""
        self.body = b""
        self.completed = 0

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value.strip(b" \t")))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.completed += 1


def check_head(data: bytes) -> None:
    """The fast path takes no head that httptools refuses and reads none in another way; both find the same end of a body."""
    end = data.find(HEAD_END)
    if end >= 0:
        head = data[: end + len(HEAD_END)]
        _check_plain_head(head)
        _check_framing(head, data[len(head) :])


def _check_plain_head(head: bytes) -> None:
    raw = _plain_head(head)
    if raw is None or (headers := split_head(raw)) is None:
        return
    body = b"x" * min(int(headers[b"content-length"]), 10_000)
    request = _Request()
    parser = httptools.HttpRequestParser(request)
    try:
        parser.feed_data(head)
        assert request.completed == (int(headers[b"content-length"]) == 0)
        parser.feed_data(body)
    except httptools.HttpParserError as error:
        raise AssertionError(f"the fast path takes what httptools refuses ({error!r}): {raw!r}") from error
    assert request.completed == (len(body) == int(headers[b"content-length"]))
    assert request.body == body
    assert request.headers == list(headers.items())
    said = (parser.get_method(), request.url, parser.get_http_version())
    assert said == (b"POST", b"/mcp", "1.1")
    assert parser.should_keep_alive()
    assert not parser.should_upgrade()


def _plain_head(head: bytes) -> bytes | None:
    """Return the head as the fast path reads it, None if it leaves the request to uvicorn."""
    reader: Any = _Reader()
    try:
        PlainRequests(reader).read_head(head)
    except _Read as read:
        raw = read.args[0]
        assert isinstance(raw, bytes)
        return raw
    return None


def _check_framing(head: bytes, rest: bytes) -> None:
    ours = _body_in(head, [rest])
    assert ours == _body_in(head, [rest[at : at + 1] for at in range(len(rest))]), "cut otherwise, it ends elsewhere"
    theirs = _body_by_httptools(head, rest)
    if ours is not None and theirs is not None:
        assert ours == theirs, f"the body is {ours!r}, for httptools {theirs!r}"


def _body_in(head: bytes, chunks: list[bytes]) -> tuple[bytes, bytes] | None:
    """Return the body and what comes after it; None if it is refused, or not all there."""
    body = b""
    try:
        framing = read_framing(head)
        if framing.is_complete:
            return b"", b"".join(chunks)
        for number, chunk in enumerate(chunks):
            part, after = framing.feed(chunk)
            body += part
            if after is not None:
                return body, after + b"".join(chunks[number + 1 :])
    except Refused:
        pass
    return None


def _body_by_httptools(head: bytes, rest: bytes) -> tuple[bytes, bytes] | None:
    request = _Request()
    parser = httptools.HttpRequestParser(request)
    try:
        for number, piece in enumerate([head, *(rest[at : at + 1] for at in range(len(rest)))]):
            parser.feed_data(piece)
            if request.completed:
                return request.body, rest[number:]
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        pass
    return None


# fmt: off
_COMPARABLE: Final = frozenset(
    (
        "$schema", "type", "properties", "required", "items", "prefixItems", "additionalProperties", "enum", "const",
        "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems",
        "maxItems", "minProperties", "maxProperties", "uniqueItems", "anyOf", "allOf", "oneOf", "not", "if", "then",
        "else", "description", "title", "default", "examples", "$defs", "definitions", "$ref", "propertyNames",
        "contains", "dependentRequired",
    )
)
# fmt: on
"""Keywords about which two validators have no reason to differ: no patterns, no formats, no arithmetic with fractions."""


def check_schema(data: bytes) -> None:
    """`compile_schema` raises `SchemaProblem` alone; what it takes, it holds values to like the `jsonschema` package.

    The input is `[schema, value, …]`, or a schema.
    """
    try:
        given = json.loads(data)
    except (ValueError, RecursionError):
        return
    raw, *values = given if isinstance(given, list) and given else [given]
    try:
        schema = compile_schema(raw, root_object=False)
    except SchemaProblem:
        return
    for value in values:
        try:
            is_valid = schema.is_valid(value)
        except ValueError:
            continue  # no JSON: half of a surrogate pair, as `Schema` says
        assert is_valid == (next(iter(schema.errors(value)), None) is None)
        if len(data) < 2000 and _is_comparable(raw) and _is_comparable_value(value):
            judge = jsonschema.validators.validator_for(raw, default=jsonschema.Draft202012Validator)(raw)
            with suppress(RecursionError):
                assert is_valid == judge.is_valid(value), f"jsonschema says otherwise of {value!r} under {raw!r}"


def _is_comparable(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return isinstance(schema, bool)
    for key, inner in schema.items():
        if (
            key not in _COMPARABLE
            or (key == "$schema" and "2020-12" not in inner)
            or (key == "$ref" and inner[:2] != "#/")
        ):
            return False
        if key in ("properties", "$defs", "definitions"):
            parts = inner.values()
        elif key in ("anyOf", "allOf", "oneOf", "prefixItems"):
            parts = inner
        elif key in ("items", "additionalProperties", "not", "if", "then", "else", "propertyNames", "contains"):
            parts = [inner]
        else:
            if not _is_comparable_value(inner):
                return False
            continue
        if not all(map(_is_comparable, parts)):
            return False
    return True


def _is_comparable_value(value: Any) -> bool:
    """Whether every number in it is one that all validators read alike."""
    match value:
        case dict():
            return all(map(_is_comparable_value, value.values()))
        case list():
            return all(map(_is_comparable_value, value))
        case bool():
            return True
        case int() | float():
            return abs(value) < 2**53
    return True


@functools.cache
def _folder() -> Path:
    """Return a folder for files that are read and forgotten, one a process."""
    folder = Path(tempfile.mkdtemp(prefix="toolpost-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def check_lock(data: bytes) -> None:
    """A lock is read or refused with `BadLock`; what was read is written and read again as the same."""
    path = _folder() / "toolpost.lock"
    path.write_bytes(data)
    try:
        tools = read_lock(path)
    except BadLock:
        return
    assert tools is not None
    assert parse_lock(lock_text(tools), name="again") == tools


def check_settings(data: bytes) -> None:
    """Settings are read and their variables filled in, or `BadConfiguration` says why not, in both kinds of files."""
    for name in ("toolpost.toml", ".mcp.json"):
        path = _folder() / name
        path.write_bytes(data)
        with suppress(BadConfiguration):
            config = load_config(path)
            _resolve(config.servers, resolve_server, config.project)
            _resolve(AGENTS.of(config), resolve_agent, config.project)


def _resolve(entries: Mapping[str, Any], resolve: Callable[..., Any], project: str) -> None:
    environment = {"HOME": "/home/fuzz", "TOKEN": "secret", "EMPTY": "", "LOOP": "${LOOP}"}
    for name, entry in entries.items():
        with suppress(BadConfiguration):
            repr(resolve(name, entry, environment=environment, project=Path(project)))


def check_events(data: bytes) -> None:
    """Server-sent events are those of the specification, wherever the bytes are cut; an event over the limit is refused."""
    whole = _events_in([data])
    assert len(data) > 512 or whole == _events_in([data[at : at + 1] for at in range(len(data))])
    cuts = random.Random(zlib.crc32(data))
    places = sorted(cuts.randrange(len(data) + 1) for _ in range(5))
    assert whole == _events_in([data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)])
    events, last_id, is_too_large = whole
    if not is_too_large:
        assert (events, last_id) == _events_by_the_book(data)


def _events_in(chunks: list[bytes]) -> tuple[list[bytes], bytes, bool]:
    events: list[bytes] = []
    reader = EventReader(1000, events.append)
    try:
        for chunk in chunks:
            reader.feed(chunk)
    except EventTooLarge:
        # Events before the one that is too large may have come with it in one chunk: how many were told is not promised.
        return [], b"", True
    return events, reader.last_id, False


def _events_by_the_book(data: bytes) -> tuple[list[bytes], bytes]:
    """Read events as the HTML standard says, section 9.2.6, with no thought for speed."""
    *lines, _ = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    events: list[bytes] = []
    held: list[bytes] = []
    last_id = pending = b""
    for line in lines:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            last_id = pending
            if held:
                events.append(b"\n".join(held))
            held = []
        elif name == b"data":
            held.append(value)
        elif name == b"id" and b"\0" not in value:
            pending = value
    return events, last_id


def check_fast_path(data: bytes) -> None:
    """A call is answered the same by the fast path and by the ordinary one."""
    from tests.hostile.fuzz.fast_path import check

    check(data)


TARGETS: Final[dict[str, Check]] = {
    "messages": check_message,
    "fast_path": check_fast_path,
    "heads": check_head,
    "schemas": check_schema,
    "locks": check_lock,
    "settings": check_settings,
    "events": check_events,
}


def timed(check: Check) -> Check:
    """Return the check with a bound on the CPU time of one input."""

    def timed(data: bytes) -> None:
        started = time.process_time()
        check(data)
        took_s = time.process_time() - started
        assert took_s < LONGEST_S, f"{len(data)} bytes took {took_s:.1f} s"  # inputs of a few kB

    return timed


def corpus_of(target: str) -> dict[str, bytes]:
    """Return the inputs of a target by their file names."""
    return {path.name: path.read_bytes() for path in sorted((CORPUS / target).iterdir())}
