"""Input of growing size for everything that reads bytes of others: the cost grows with the size, and never faster.

A new parser gets a line in one of the tables below. Patterns need none: every compiled pattern of the package is fed what it is
made of, in the way in which its module uses it.
"""

import ast
import asyncio
import importlib
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

import toolpost
from tests.hostile.attacks import assert_linear, attack, slowness, thread_cpu_s
from toolpost.base.nearest import match_names, nearest_names
from toolpost.base.redaction import redact
from toolpost.base.values import unique
from toolpost.contracts.compatibility.definition import Definition
from toolpost.contracts.errors import BadLock
from toolpost.contracts.findings import scan_definition
from toolpost.contracts.issues import find_issues
from toolpost.contracts.lockfile import parse_lock
from toolpost.contracts.schema import Schema, compile_schema
from toolpost.discovery.search.words import ParsedQuery, words_of
from toolpost.net.connection import ResponseLimits, UpstreamConnection
from toolpost.net.events import EventReader
from toolpost.parts.agents.agent_process import _parse_message
from toolpost.protocol import rpc
from toolpost.protocol.lines import LineSplitter
from toolpost.protocol.mirrored import MirroredArguments
from toolpost.protocol.rpc import ProtocolError
from toolpost.protocol.shape import BadShape, check_shape
from toolpost.settings.jsonc import NotJson, read_jsonc, set_member
from toolpost.settings.variables import split_references
from toolpost.upstreams.handshake import Negotiation
from toolpost.upstreams.message import parse_error, parse_message

ISSUE = b'{"jsonrpc":"2.0","id":1,"a":[' + b"[]," * 300 + b'"'
CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":%b}}}'
ENTRY = b'{"jsonrpc":"2.0","id":1,"result":%b}'

Work = Callable[[int], Callable[[], Any]]
"""Makes an input of so many units, and returns what reads it."""


def parsed(make: Callable[[int], bytes]) -> Work:
    def work(size: int) -> Callable[[], Any]:
        raw = make(size)

        def read() -> None:
            try:
                rpc.parse(raw)
            except ProtocolError:
                return

        return read

    return work


def shaped(make: Callable[[int], bytes]) -> Work:
    """Read the shape without the limits, which would end it early."""

    def work(size: int) -> Callable[[], Any]:
        raw = make(size)

        def read() -> None:
            try:
                check_shape(raw, value_limit=10**9)
            except BadShape:
                return

        return read

    return work


def calling(work: Callable[[Any], Any], make: Callable[[int], Any], *errors: type[Exception]) -> Work:
    def prepared(size: int) -> Callable[[], Any]:
        value = make(size)

        def call() -> None:
            try:
                work(value)
            except errors:
                return

        return call

    return prepared


def schema(**properties: Any) -> Schema:
    return compile_schema({"type": "object", "additionalProperties": False, "properties": properties}, root_object=True)


def consts(size: int) -> Callable[[], Any]:
    """A value that none of many branches takes."""
    one_of = [{"const": number} for number in range(size // 10)]
    known = compile_schema({"type": "object", "properties": {"a": {"anyOf": one_of}}}, root_object=True)
    return lambda: find_issues(known, {"a": "x"})


def split_bytes(raw: bytes) -> None:
    splitter = LineSplitter(10**9)
    for byte in range(len(raw)):
        list(splitter.feed(raw[byte : byte + 1]))
    assert list(splitter.feed(b"\n")) == [raw]


FROM_CALLERS: dict[str, Work] = {
    "an unterminated string of quotes": parsed(lambda size: ISSUE + b'\\"' * size),
    "an unterminated string of backslashes": parsed(lambda size: ISSUE + b"\\" * size),
    "an unterminated string of brackets": parsed(lambda size: ISSUE + b"[{" * size),
    "quotes alone": parsed(lambda size: ISSUE + b'"' * size),
    "brackets that close": parsed(lambda size: ISSUE + b"]" * size),
    "empty arrays": shaped(lambda size: b"[" + b"[]," * size + b"1]"),
    "objects": shaped(lambda size: b"[" + b'{"a":{}},' * size + b"1]"),
    "texts": shaped(lambda size: b"[" + b'"\\\\",' * size + b"1]"),
    "digits": parsed(lambda size: CALL % (b"9" * size)),
    "long whole numbers": parsed(lambda size: CALL % (b"[" + b",".join([b"9" * 4_000] * (size // 40)) + b"]")),
    "redaction of one long name": calling(redact, lambda size: {"a1" * size: 1}),
    "redaction of many names": calling(redact, lambda size: {f"{number}_token_id": 1 for number in range(size)}),
    "redaction of a deep value": calling(redact, lambda size: msgspec.json.decode(b"[%b1]" % (b'{"a":[[1]]},' * size))),
    "unknown properties": calling(
        lambda value: find_issues(schema(abc={}), value), lambda size: {f"abd{number}": 1 for number in range(size)}
    ),
    "one long unknown property": calling(lambda value: find_issues(schema(abc={}), value), lambda size: {"ab" * size: 1}),
    "a value that fits none of many forms": consts,
    "options that repeat": calling(unique, lambda size: [[number] for number in range(size)]),
    "unknown names beside known ones": calling(
        lambda value: match_names(value, value, value), lambda size: [f"do_something_with_item_{n}" for n in range(size)]
    ),
    "a long unknown name": calling(lambda value: nearest_names(value, ["abc"] * 200, 3), lambda size: "ab" * size),
    "a search of one word": calling(ParsedQuery.parse, lambda size: "aB1" * size),
    "a search of sentences": calling(ParsedQuery.parse, lambda size: "a b c. " * size),
    "lines on stdin": calling(lambda raw: list(LineSplitter(10**9).feed(raw)), lambda size: b"{}\n" * size),
    "a line in single bytes": calling(split_bytes, lambda size: b"x" * size),
}  # fmt: skip


@attack("caller", "sends requests of growing size that are costly to read", "the cost grows in proportion to the size")
@pytest.mark.parametrize("name", FROM_CALLERS)
def test_what_callers_send(name: str) -> None:
    assert_linear(lambda size: thread_cpu_s(FROM_CALLERS[name](size)), small=2_000)


class Home:
    def note_opened(self, connection: UpstreamConnection) -> None: ...

    def note_closed(self, connection: UpstreamConnection) -> None: ...


def over_http(raw: bytes) -> None:
    """Read an answer to a request that was never sent."""
    loop = asyncio.new_event_loop()
    connection = UpstreamConnection(Home(), ResponseLimits(head=10**9, body=10**9), loop)
    connection.connection_made(asyncio.Transport())
    connection.begin(None)
    connection._is_written = True
    for start in range(0, len(raw), 65_536):
        connection.data_received(raw[start : start + 65_536])
    loop.close()


def definition(**fields: Any) -> Definition:
    return msgspec.convert({"name": "up__x", "inputSchema": {"type": "object"}, **fields}, Definition)


def events(raw: bytes) -> None:
    reader = EventReader(10**9, lambda _data: None)
    for start in range(0, len(raw), 65_536):
        reader.feed(raw[start : start + 65_536])


def event_bytes(raw: bytes) -> None:
    reader = EventReader(10**9, lambda _data: None)
    for byte in range(len(raw)):
        reader.feed(raw[byte : byte + 1])


FROM_SERVERS: dict[str, Work] = {
    "blank lines of events": calling(events, lambda size: b"\n" * size),
    "comments of events": calling(events, lambda size: b":\n" * size),
    "ids of events": calling(events, lambda size: b"id\n" * size),
    "carriage returns of events": calling(events, lambda size: b"data: x\r" * size),
    "one event of many lines": calling(events, lambda size: b"data: x\n" * size + b"\n"),
    "an event in single bytes": calling(event_bytes, lambda size: b"data: " + b"x" * size),
    "a body in chunks of one byte": calling(
        over_http, lambda size: b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * size
    ),
    "headers": calling(over_http, lambda size: b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * size),
    "interim answers": calling(over_http, lambda size: b"HTTP/1.1 100 Continue\r\n\r\n" * size),
    "what is no message": calling(parse_message, lambda size: b"[" * size),
    "a deep answer": calling(parse_message, lambda size: ENTRY % (b"[" * size)),
    "a dense answer": calling(parse_message, lambda size: ENTRY % (b"[" + b"[]," * size + b"1]")),
    "an error with data": calling(parse_error, lambda size: b'{"data":[' + b"[]," * size + b"1]}"),
    "joiners in a description": calling(scan_definition, lambda size: definition(description="é\u200d" * size * 3)),
    "a mark of spaces": calling(scan_definition, lambda size: definition(description="<" + " " * size)),
    "orders without an end": calling(scan_definition, lambda size: definition(description="ignore previous " * (size // 8))),
    "mirrored arguments": calling(
        MirroredArguments,
        lambda size: {"properties": {f"a{n}": {"type": "string", "x-mcp-header": f"h{n}"} for n in range(size)}},
    ),
    "the instructions of a server": calling(
        lambda text: Negotiation(version="", is_stateless=True, instructions=text, info={"title": text}).description,
        lambda size: "aB1é中 " * size * 100,
    ),
    "the words of a description": calling(lambda text: list(words_of(text)), lambda size: "aB1é中" * size),
}  # fmt: skip


@attack("server", "sends costly answers of growing size", "the cost grows in proportion to the size")
@pytest.mark.parametrize("name", FROM_SERVERS)
def test_what_servers_send(name: str) -> None:
    assert_linear(lambda size: thread_cpu_s(FROM_SERVERS[name](size)), small=2_000)


FROM_REPOSITORIES: dict[str, Work] = {
    "a setting that does not end": calling(read_jsonc, lambda size: '{"a": "' + '\\"' * size, NotJson),
    "quotes in settings": calling(read_jsonc, lambda size: '"' * size, NotJson),
    "comments in settings": calling(read_jsonc, lambda size: "/**/" * size, NotJson),
    "a comment that does not end": calling(read_jsonc, lambda size: "/* " * size, NotJson),
    "commas in settings": calling(read_jsonc, lambda size: ", " * size, NotJson),
    "space in settings": calling(read_jsonc, lambda size: "[1," + " " * size, NotJson),
    "members of settings": calling(
        lambda text: set_member(text, ["x"], 1), lambda size: json.dumps({f"{n}": n for n in range(size)})
    ),
    "variables in variables": calling(lambda text: list(split_references(text)), lambda size: "${" * size),
    "variables": calling(lambda text: list(split_references(text)), lambda size: "${A}" * size),
    "a lock with a name twice": calling(
        lambda text: parse_lock(text, name="toolpost.lock"),
        lambda size: "{" + ",".join(f'"{n}": 1' for n in range(size)) + f', "{size - 1}": 1}}',
        BadLock,
    ),
    "a lock of brackets": calling(lambda text: parse_lock(text, name="toolpost.lock"), lambda size: "[" * size, BadLock),
}  # fmt: skip


@attack("repository", "holds settings and locks that are costly to read", "the cost grows in proportion to the size")
@pytest.mark.parametrize("name", FROM_REPOSITORIES)
def test_what_repositories_hold(name: str) -> None:
    assert_linear(lambda size: thread_cpu_s(FROM_REPOSITORIES[name](size)), small=2_000)


@attack("agent", "prints lines of dense or unterminated JSON", "the cost grows in proportion to the size")
@pytest.mark.parametrize("unit", [b'\\"', b"[],", b"["])
def test_what_agents_print(unit: bytes) -> None:
    assert_linear(lambda size: thread_cpu_s(lambda: _parse_message(ISSUE[:-1] + unit * size)), small=2_000)


# Patterns

METHODS = frozenset({"search", "match", "fullmatch", "sub", "split", "findall", "finditer"})
PIECES = (*'"\\ \n\taA0_-/<', '\\"', "aA", "a1", "a.", "a-", "a:", "::", "> ")
EXEMPT = {
    "settings.secrets._KNOWN_KEY": "read only from settings, of the operator's own",
    "settings.secrets._QUERY": "read only from settings, of the operator's own",
    "cli.options._AGO": "read from the operator's own command line",
    "parts.workspace.symbols._DECLARED": "read from names that are cut before",
    "contracts.compatibility.patterns._CLASS": "read from patterns whose size is bounded before",
}


def patterns() -> Iterator[tuple[str, Any]]:
    """Find every pattern that a module keeps, with the methods that it is used with."""
    root = Path(toolpost.__file__).parent
    for path in sorted(root.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "re.compile(" not in source:
            continue
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        loaded = importlib.import_module(f"toolpost.{module}")
        tree = ast.parse(source)
        used = {
            (node.value.id, node.attr)
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in METHODS
        }
        for name, value in vars(loaded).items():
            whole = f"{module}.{name}"
            # A pattern in a table is used by the name of a variable: by any of the module's methods.
            methods = {method for found, method in used if found == name or not isinstance(value, re.Pattern)}
            if isinstance(getattr(value, "__self__", None), re.Pattern):
                yield whole, value
            for number, pattern in enumerate(patterns_in(value) if whole not in EXEMPT else ()):
                for method in sorted(methods):
                    yield f"{whole}[{number}].{method}", getattr(pattern, method)


def patterns_in(value: Any) -> Iterator["re.Pattern[Any]"]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, Mapping):
        yield from patterns_in(tuple(value))
        yield from patterns_in(tuple(value.values()))
    elif isinstance(value, tuple | list | set | frozenset):
        for each in value:
            yield from patterns_in(each)


def texts(pattern: "re.Pattern[Any]", size: int) -> Iterator[Any]:
    """Yield texts of this many characters: what the pattern is made of, again and again, and something that fits nothing."""
    written = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    for piece in dict.fromkeys((*PIECES, *filter(str.isprintable, written), *re.findall("[A-Za-z]{3,}", written))):
        text = piece * (size // len(piece)) + "\x01"
        yield text if isinstance(pattern.pattern, str) else text.encode("latin-1", "replace")


def used_as(method: Any) -> Callable[[Any], Any]:
    if method.__name__ == "sub":
        return lambda text: method("" if isinstance(text, str) else b"", text)
    return lambda text: list(method(text)) if method.__name__ == "finditer" else method(text)


def check_pattern(name: str, use: Callable[[Any], Any], given: dict[int, Any]) -> None:
    try:
        assert_linear(lambda size: thread_cpu_s(lambda: use(given[size])), small=min(given))
    except AssertionError as error:
        raise AssertionError(f"{name}: {error}") from error


@attack("repository", "holds text that makes a regular expression try again and again", "each takes linear time on it")
def test_every_pattern() -> None:
    count = 0
    for name, method in patterns():
        use = used_as(method)
        for text, longer in zip(texts(method.__self__, 2_000), texts(method.__self__, 16_000), strict=True):
            count += 1
            begun = time.thread_time()
            use(text)
            used_s = time.thread_time() - begun
            # Cubic growth would hold this thread for hours on the longer text, where no time limit of a test can end it.
            assert used_s < 0.5 or used_s < 0.5 * slowness(), f"{name} on {text[:20]!r}"  # measured seldom
            if used_s > 0.002:
                check_pattern(f"{name} on {text[:20]!r}", use, {2_000: text, 16_000: longer})
    assert count > 1_000, "the patterns were not found"


# The chat page

PAGE = Path(toolpost.__file__).parent / "parts" / "agents" / "view" / "markdown.js"
NODE = shutil.which("node")


@pytest.mark.wire
@attack(
    "agent", "says 128 KB of Markdown that begins everything and ends nothing", "the page renders it in linear time"
)
@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
def test_markdown() -> None:
    assert NODE is not None
    small = 8_192
    script = str(Path(__file__).with_name("markdown_costs.mjs"))
    ended = subprocess.run(
        [NODE, script, PAGE, str(small), str(8 * small)], capture_output=True, check=True, timeout=60
    )
    costs: dict[str, dict[str, float]] = json.loads(ended.stdout)
    for name, cost in costs.items():
        # The collector and the compiler take their time now and then: a millisecond says little.
        least, most = cost[str(small)], cost[str(8 * small)]
        assert most <= 20 * (least + 0.005), f"{name}: {8 * small} units cost {most:.3f} s, {small} cost {least:.3f} s"
    assert len(costs) > 40
