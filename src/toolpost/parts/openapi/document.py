"""Reads an OpenAPI document: JSON or YAML, from a file or a URL.

YAML is read as its version 1.2 means it, in which `no` is a text and `2020-01-01` is no date: OpenAPI asks for that, and the
loader of PyYAML follows version 1.1. Reading YAML takes 0.4 s for each megabyte, 50 times as long as JSON, so a document which
takes long is kept as JSON under the digest of its text.

A document is the text of strangers. The reader of YAML is native code that recurses without a limit: a gateway reads YAML in a
process of its own (`yaml_process`), which is killed when it takes too long, and whose end costs this document alone.
"""

import contextlib
import hashlib
import itertools
import logging
import os
import re
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import unquote

import anyio
import msgspec
from anyio import to_thread
from anyio.abc import ByteReceiveStream

from toolpost import ToolpostError
from toolpost.base import STATE_FOLDER, Json, JsonObject, event
from toolpost.contracts import BadConfiguration
from toolpost.net import DIRECT, HttpClient, HttpFailed, Network
from toolpost.parts.openapi.settings import is_url
from toolpost.processes import open_process

_log = logging.getLogger("toolpost.apis")

SIZE_LIMIT_BYTES: Final = 64 * 1024 * 1024
FETCH_S: Final = 20.0
SLOW_S: Final = 1.0
"""A document that took longer to parse is kept as JSON."""

NODES_LIMIT: Final = 2_000_000
"""Values in a document, aliases counted wherever they are used."""

ANSWER_LIMIT_BYTES: Final = 2 * SIZE_LIMIT_BYTES
"""How long YAML may be as JSON, with escapes: a text of a kilobyte can have a million aliases."""

PARSE_S: Final = 180.0
"""How long YAML may take: the largest document takes half a minute on a machine that does nothing else."""

YAML_PROCESS: Final = "toolpost.parts.openapi.yaml_process"
CHUNK_BYTES: Final = 1024 * 1024
DEPTH_LIMIT: Final = 200
DIGITS_LIMIT: Final = 1_000
"""Of a number in YAML. Python writes at most 4,300, for they take quadratic time."""

_CHAIN_LIMIT: Final = 32
_NAMES: Final = {True: "true", False: "false", None: "null"}
_VERSION: Final = re.compile(r"(2\.0|3\.[01](?:\.\d+)?)\Z")


class Unusable(Exception):
    """A part of the document cannot be used; its text says why."""


class BadDocument(BadConfiguration):
    """The document cannot be read."""


class YamlAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of the process that reads YAML: a document, or the reason for none."""

    document: msgspec.Raw = msgspec.Raw(b"null")
    problem: str | None = None
    hint: str | None = None
    """Only of what is missing here."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """A parsed document."""

    raw: JsonObject
    digest: str
    """SHA-256 of its text, in hexadecimal."""
    parse_s: float = 0.0

    @property
    def version(self) -> str:
        return str(self.raw.get("openapi") or self.raw.get("swagger"))

    @property
    def is_swagger(self) -> bool:
        return "openapi" not in self.raw

    @property
    def title(self) -> str:
        info = self.raw.get("info")
        return str(info.get("title") or "") if isinstance(info, dict) else ""

    def follow(self, node: Json) -> tuple[JsonObject, str | None]:
        """Return what an object or a reference to one stands for, and the pointer of the last reference; raises `Unusable`."""
        pointer = None
        for _ in range(_CHAIN_LIMIT):
            if not isinstance(node, dict):
                raise Unusable(f"{pointer or 'something'} is not an object")
            reference = node.get("$ref")
            if not isinstance(reference, str):
                return node, pointer
            pointer = check_reference(reference)
            node = self.find(pointer)
        raise Unusable(f"the reference {pointer} leads to itself")

    def find(self, pointer: str) -> Json:
        """Return what a JSON pointer of this document leads to; raises `Unusable`."""
        node: Json = self.raw
        for step in pointer.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and name in node:
                node = node[name]
            elif isinstance(node, list) and name.isdigit() and int(name) < len(node):
                node = node[int(name)]
            else:
                raise Unusable(f"the reference #{pointer} leads nowhere")
        return node


def check_reference(reference: str) -> str:
    """Return the pointer of a reference into the same document; raises `Unusable` for any other."""
    if reference.startswith("#/"):
        return reference[1:]
    if reference.startswith("#"):
        raise Unusable(f"the reference {reference[:200]} is an anchor; only JSON pointers are followed")
    # Another file could be anything that this machine can read, or reach.
    raise Unusable(f"it refers to another document, {reference[:200]}: bundle the documents into one first")


def parse_document(data: bytes, place: str) -> Document:
    """Parse a document here; raises `BadDocument` if it is not OpenAPI 3.0 or 3.1, or Swagger 2.0."""
    started = time.perf_counter()
    raw = _parse_json(data, place)
    return _make_document(data, place, parse_yaml(data, place) if raw is None else raw, started)


def _make_document(data: bytes, place: str, raw: Json, started: float) -> Document:
    found = _VERSION.match(str(raw.get("openapi") or raw.get("swagger") or "")) if isinstance(raw, dict) else None
    if not isinstance(raw, dict) or found is None or not isinstance(raw.get("paths", {}), dict):
        what = f"version {str(raw.get('openapi') or raw.get('swagger'))[:20]}" if isinstance(raw, dict) else "no object"
        raise BadDocument(
            f"{place} is not an OpenAPI document that can be used ({what}).",
            hint="versions 3.0, 3.1 and Swagger 2.0 are read",
        )
    return Document(raw=raw, digest=hashlib.sha256(data).hexdigest(), parse_s=time.perf_counter() - started)


def _parse_json(data: bytes, place: str) -> Json:
    """Return the value of a JSON text, None if it is none; raises `BadDocument` if it is nested too deeply for any reader."""
    if not data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return None
    try:
        raw: Json = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except RecursionError:
        raise BadDocument(f"{place} is nested too deeply.") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # Flow style of YAML begins like this, too.
    return raw


def parse_yaml(data: bytes, place: str) -> Json:
    """Parse YAML here; raises `BadDocument`."""
    import yaml

    try:
        text = data.decode("utf-8-sig")
        _check_depth(yaml.parse(text, Loader=_make_loader()))
        loaded = yaml.load(text, Loader=_make_loader())  # noqa: S506 (a subclass of the safe one)
        return _to_plain(loaded, 0, itertools.count())
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise BadDocument(f"{place} is neither JSON nor YAML: {reason}") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        # What PyYAML raises for a value that is none of its tag, such as `!!bool 7`.
        raise BadDocument(f"{place} is neither JSON nor YAML: a value does not fit its tag.") from error


def _check_depth(events: Iterable[Any]) -> None:
    """Raise `ValueError` for a text that is nested too deeply.

    The events come one by one. What makes values of them recurses in native code, and overflows its stack at a depth of 50,000.
    """
    import yaml

    depth = 0
    for each in events:
        if isinstance(each, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_LIMIT:
                raise ValueError("it is nested too deeply")
        elif isinstance(each, yaml.CollectionEndEvent):
            depth -= 1


@cache
def _make_loader() -> Any:
    """Make a loader of YAML whose plain scalars mean what they mean in version 1.2."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}
        merged = 0

        def flatten_mapping(self, node: Any) -> None:
            # A merge copies the pairs of what it names, which may have been merged itself.
            super().flatten_mapping(node)
            self.merged += len(node.value)
            if self.merged > NODES_LIMIT:
                raise ValueError(f"its merges stand for more than {NODES_LIMIT} values")

    for tag, pattern, first in (
        ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
        ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
        ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+0123456789."),
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("merge", "<<", "<"),
    ):
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})\Z"), list(first))

    def construct_int(loader: Any, node: Any) -> int:
        text = loader.construct_scalar(node).replace("_", "")
        if len(text) > DIGITS_LIMIT:
            raise ValueError(f"a number has more than {DIGITS_LIMIT} digits")
        sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text.lstrip("+"))
        return sign * int(digits, {"0o": 8, "0x": 16}.get(digits[:2].lower(), 10))

    Loader.add_constructor("tag:yaml.org,2002:int", construct_int)
    return Loader


def _to_plain(node: Any, depth: int, nodes: "itertools.count[int]") -> Json:
    """Return values as JSON has them: names are texts, as the status 200 is, and other types are written out.

    An alias is copied wherever it is used, so that few lines can stand for billions of values: `nodes` counts them.
    """
    if depth > DEPTH_LIMIT:
        raise ValueError("it is nested too deeply, or contains itself")
    if next(nodes) > NODES_LIMIT:
        raise ValueError(f"its aliases stand for more than {NODES_LIMIT} values")
    if isinstance(node, dict):
        return {
            _NAMES.get(name, str(name)) if isinstance(name, bool | None) else str(name): _to_plain(
                value, depth + 1, nodes
            )
            for name, value in node.items()
        }
    if isinstance(node, list | tuple | set):
        return [_to_plain(value, depth + 1, nodes) for value in node]
    if isinstance(node, float) and (node != node or node in (float("inf"), float("-inf"))):  # noqa: PLR0124 (NaN)
        return None
    return node if isinstance(node, str | int | float | bool | None) else str(node)


async def load_document(
    source: str, *, project: Path, place: str, network: Network = DIRECT, accepts_copy: bool = False
) -> Document:
    """Read and parse a document beside the event loop; raises `BadDocument`.

    One that is fetched is kept once it could be read, and used when it cannot be fetched another time. With `accepts_copy` it is
    used as well when the one that is fetched cannot be read.
    """
    folder = project / STATE_FOLDER / "apis"
    if not is_url(source):
        return await _parse_or_recall(await _read_file(source, project, place), place, folder)
    kept = folder / f"{hashlib.sha256(source.encode()).hexdigest()[:32]}.document"
    try:
        data = await fetch(source, network, place)
    except BadDocument as error:
        return await _use_copy(kept, place, folder, error)
    try:
        document = await _parse_or_recall(data, place, folder)
    except BadDocument as error:
        if not accepts_copy:
            raise
        return await _use_copy(kept, place, folder, error)
    # Only now: one that cannot be read must not replace the last one that can.
    await to_thread.run_sync(_write_quietly, kept, data)
    return document


async def _use_copy(kept: Path, place: str, folder: Path, error: ToolpostError) -> Document:
    """Parse the last copy of a document; raises `error` if there is none."""
    if not await anyio.Path(kept).exists():
        raise error
    event(_log, logging.WARNING, "document not usable; its last copy is used", place=place, reason=error.message)
    return await _parse_or_recall(await anyio.Path(kept).read_bytes(), place, folder)


async def _parse_or_recall(data: bytes, place: str, folder: Path) -> Document:
    kept = folder / f"{hashlib.sha256(data).hexdigest()[:32]}.json"
    document = await to_thread.run_sync(_parse_quickly, data, place, kept, abandon_on_cancel=True)
    if document is not None:
        return document
    started = time.perf_counter()
    encoded = await _parse_yaml_apart(data, place)
    document = await to_thread.run_sync(
        lambda: _make_document(data, place, msgspec.json.decode(encoded), started), abandon_on_cancel=True
    )
    if document.parse_s > SLOW_S:
        await to_thread.run_sync(_write_quietly, kept, encoded)
    return document


def _parse_quickly(data: bytes, place: str, kept: Path) -> Document | None:
    """Parse JSON, or recall what YAML was parsed to; None for YAML that is to be parsed."""
    started = time.perf_counter()
    try:
        raw: Json = msgspec.json.decode(kept.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        raw = _parse_json(data, place)
    return None if raw is None else _make_document(data, place, raw, started)


async def _parse_yaml_apart(data: bytes, place: str) -> bytes:
    """Parse YAML in a process of its own, to JSON; raises as `parse_yaml` does, and `BadDocument` when the process ends early."""
    received = bytearray()
    with anyio.move_on_after(PARSE_S):
        async with (
            open_process(
                # -P: the current folder may contain modules that shadow others, and is not put on the path.
                [sys.executable, "-P", "-m", YAML_PROCESS, place],
                env={name: os.environ[name] for name in ("PYTHONPATH", "PYTHONHOME") if name in os.environ},
                stdin=True,
                grace_s=0.0,
            ) as process,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(process.feed, data)
            tasks.start_soon(_drop, process.stderr)
            with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                while len(received) <= ANSWER_LIMIT_BYTES:
                    received += await process.stdout.receive(CHUNK_BYTES)
            if len(received) <= ANSWER_LIMIT_BYTES:
                await process.wait()
            tasks.cancel_scope.cancel()
        if len(received) > ANSWER_LIMIT_BYTES:
            raise BadDocument(f"{place} cannot be used: its aliases stand for more than {ANSWER_LIMIT_BYTES >> 20} MB.")
        with contextlib.suppress(msgspec.DecodeError):
            answer = msgspec.json.decode(received if process.returncode == 0 else b"", type=YamlAnswer)
            if answer.problem is None:
                return bytes(answer.document)
            raise BadDocument(answer.problem, hint=answer.hint)
    raise BadDocument(f"{place} cannot be read: it takes too much memory or time to parse.", hint="write it as JSON")


async def _drop(stream: ByteReceiveStream) -> None:
    with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            await stream.receive()


def _write_quietly(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; without rights to the folder, the document is parsed again next time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(f".{time.monotonic_ns()}")
        beside.write_bytes(data)
        beside.replace(path)
    except OSError:
        return


async def fetch(url: str, network: Network, place: str) -> bytes:
    """Fetch a document; raises `BadDocument`. Redirects are not followed: the configuration says where documents come from."""
    try:
        with anyio.fail_after(FETCH_S):
            async with HttpClient(
                url,
                headers={"accept": "application/json, application/yaml, */*;q=0.8"},
                body_limit=SIZE_LIMIT_BYTES,
                network=network,
            ) as client:
                response = await client.request("GET")
    except (HttpFailed, TimeoutError, ToolpostError) as error:
        raise BadDocument(f"{place} cannot be fetched: {str(error) or f'no answer within {FETCH_S:g} s'}.") from error
    if response.status != 200:
        to = response.headers.get(b"location", b"").decode("latin-1")[:200]
        hint = f"it is at {to} now" if 300 <= response.status < 400 and to else "open its URL in a browser"
        raise BadDocument(f"{place} cannot be fetched: the status is {response.status}.", hint=hint)
    return response.body


async def _read_file(source: str, project: Path, place: str) -> bytes:
    path = anyio.Path(project) / await anyio.Path(source).expanduser()
    try:
        if (await path.stat()).st_size > SIZE_LIMIT_BYTES:
            raise BadDocument(f"{place} is larger than {SIZE_LIMIT_BYTES // 1024 // 1024} MB.")
        return await path.read_bytes()
    except OSError as error:
        raise BadDocument(
            f"{place} cannot be read: {error.strerror}.", hint="its path begins at the project"
        ) from error
