"""Parsers of the standard library and of dependencies that get bytes of strangers: their cost grows in proportion to the input.

A parser that is used and not in the table fails `test_every_parser_in_use_is_in_the_table`. The reader of cookies in the standard
library is the reason: it is linear in the newest releases alone.
"""

import ast
import base64
import binascii
import email.utils
import html
import ipaddress
import itertools
import json
import mimetypes
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib import parse as urls
from zoneinfo import ZoneInfo

import httptools
import httpx2
import jwt
import msgspec
import pytest
from cronsim import CronSim, CronSimError
from mcp.shared.auth import OAuthClientMetadata, OAuthMetadata
from mcp.shared.auth_utils import check_resource_allowed
from pydantic import ValidationError
from starlette.formparsers import MultiPartException
from starlette.requests import Request

import toolpost
from tests.hostile.attacks import assert_linear, attack, thread_cpu_s
from toolpost.base.normalization import normalize
from toolpost.base.urls import join_url, split_fragment, split_url
from toolpost.contracts.errors import ToolpostError
from toolpost.endpoints.http import cookies
from toolpost.net.client import _parse_url
from toolpost.parts.openapi.document import parse_yaml

SMALL: Final = 4_000
FACTOR: Final = 8
UNITS: Final = (
    *"a09\"\\%&=;,: \t\n()<>/.@[]{}?#+-_*!|'~é🙂",
    *('\\"', "\\x41", "%41", "a=b&", "&#", "&amp", "//", "../", "./", "((", "a.", "é.", "::", "12:", "1 Jan ", "=?", "T"),
    *("; ", ', a="b"', "\r\n", "[{", "[],", "{},", "- ", "? ", "a: b\n", "- a\n", "--- \n", "# \n", "&a ", "*a,", "<<: *a\n"),
    *("xn--", "0x1", "\u0130", "\u202e", "\u0327\u0301", "\u0f73", "\uff9e\u0301", "*/1,", "1-2,"),
)  # fmt: skip
"""What inputs are made of, again and again."""


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_metadata(text: str) -> None:
    OAuthMetadata.model_validate(
        {"issuer": text, "authorization_endpoint": text, "token_endpoint": f"https://a/{text}"}
    )


def read_form(text: str) -> None:
    """Read a form as the SDK's handlers do; nothing is waited for."""

    async def receive() -> Any:
        return {"type": "http.request", "body": text.encode()}

    kind = (b"content-type", b"application/x-www-form-urlencoded")
    reading = Request({"type": "http", "headers": [kind]}, receive)._get_form()
    with suppress(StopIteration):
        reading.send(None)


def read_head(text: str) -> None:
    httptools.HttpRequestParser(object()).feed_data(f"GET /{text} HTTP/1.1\r\na: {text}\r\n".encode())


def read_response(text: str) -> None:
    httptools.HttpResponseParser(object()).feed_data(f"HTTP/1.1 200 {text}\r\na: {text}\r\n".encode())


def inflate(text: str) -> bytes:
    return zlib.decompressobj().decompress(zlib.compress(text.encode()), 10**9)


PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    "base64.b64decode": lambda text: base64.b64decode(text, validate=True),
    "base64.b64decode of anything": lambda text: base64.b64decode(text + "=" * (-len(text) % 4)),
    "base64.urlsafe_b64decode": base64.urlsafe_b64decode,
    "cookies.read_cookies": lambda text: cookies.read_cookies({b"cookie": text.encode("latin-1", "replace")}, "a"),
    "cookies.read_cookies of quotes": lambda text: cookies.read_cookies({b"cookie": f'a="{text}"'.encode()}, "a"),
    "cronsim.CronSim": lambda text: CronSim(f"{text} * * * *", datetime(2026, 1, 1)),
    "date.fromisoformat": date.fromisoformat,
    "datetime.fromisoformat": datetime.fromisoformat,
    "datetime.fromisoformat of a fraction": lambda text: datetime.fromisoformat(f"2024-01-01T00:00:00.{text}"),
    "email.utils.parsedate_to_datetime": email.utils.parsedate_to_datetime,
    "email.utils.parsedate_to_datetime of a zone": lambda text: email.utils.parsedate_to_datetime(f"1 Jan 2024 1:1:1 {text}"),
    "html.escape": html.escape,
    "html.unescape": html.unescape,
    "host names": lambda text: _parse_url(f"http://é{text}"),
    "httptools.HttpRequestParser": read_head,
    "httptools.HttpResponseParser": read_response,
    "httpx2.Request": lambda text: httpx2.Request("GET", text),
    "httpx2.URL": lambda text: httpx2.URL(f"http://a/{text}"),
    "int": int,
    "ipaddress.ip_address": ipaddress.ip_address,
    "ipaddress.ip_network": lambda text: ipaddress.ip_network(f"::/{text}"),
    "json.JSONDecoder": lambda text: json.JSONDecoder().raw_decode(text),
    "json.loads": json.loads,
    "json.loads of a text": lambda text: json.loads(f'"{text}'),
    "jwt.decode_complete": lambda text: jwt.decode_complete(f"e30.{encoded(text)}.e30", options={"verify_signature": False}),
    "jwt.get_unverified_header": lambda text: jwt.get_unverified_header(f"{encoded(text)}.e30.e30"),
    "mimetypes.guess_type": mimetypes.guess_type,
    "msgspec.json.decode": msgspec.json.decode,
    "msgspec.json.decode of a text": lambda text: msgspec.json.decode(f'["{text}'),
    "mcp of a resource": lambda text: check_resource_allowed(f"http://a/{text}", f"http://a/{text[1:]}"),
    "pydantic of a client": lambda text: OAuthClientMetadata.model_validate({"redirect_uris": [text, f"http://a/{text}"]}),
    "pydantic of metadata": read_metadata,
    "starlette.requests.Request": read_form,
    "unicodedata.normalize": lambda text: normalize("NFKC", text),
    "unicodedata.normalize without compatibility": lambda text: normalize("NFD", text),
    "urls.parse_qs": lambda text: urls.parse_qs(text, keep_blank_values=True),
    "urls.parse_qsl": lambda text: urls.parse_qsl(text, keep_blank_values=True),
    "urls.unquote": urls.unquote,
    "urls.unquote_to_bytes": urls.unquote_to_bytes,
    "urls.urldefrag": split_fragment,
    "urls.urldefrag of a host": lambda text: split_fragment(f"http://{text}"),
    "urls.urljoin": lambda text: join_url("http://a/b/c", text),
    "urls.urljoin of a host": lambda text: join_url("http://a/b/c", f"//{text}"),
    "urls.urlsplit": split_url,
    "urls.urlsplit of a host": lambda text: split_url(f"http://{text}").hostname,
    "urls.urlsplit of a port": lambda text: split_url(f"http://a:{text}").port,
    "yaml": lambda text: parse_yaml(text.encode(), "test"),
    "yaml of a quoted text": lambda text: parse_yaml(f'a: "{text}'.encode(), "test"),
    "yaml of aliases": lambda text: parse_yaml(f"a: &a {{b: 1}}\nc: [{text}".encode(), "test"),
    "zlib.decompressobj": inflate,
    "zoneinfo.ZoneInfo": ZoneInfo,
}  # fmt: skip
REFUSALS: Final = (
    *(
        ValueError,
        RecursionError,
        binascii.Error,
        jwt.PyJWTError,
        TypeError,
        IndexError,
        KeyError,
        OSError,
        ToolpostError,
    ),
    *(httpx2.InvalidURL, httptools.HttpParserError, CronSimError, MultiPartException),
)
assert issubclass(ValidationError, ValueError)


@cache
def caches() -> list[Any]:
    """Return the caches of `urllib.parse`."""
    return [each for each in vars(urls).values() if hasattr(each, "cache_clear")]


def reading(parse: Callable[[str], Any], text: str) -> Callable[[], None]:
    def read() -> None:
        for cached in caches():
            cached.cache_clear()  # or the second reading costs nothing
        try:
            parse(text)
        except REFUSALS:
            return

    return read


def repeat(unit: str, size: int) -> str:
    return unit * (size // len(unit))


def cost_of(parse: Callable[[str], Any], unit: str, size: int) -> float:
    begun = time.thread_time()
    reading(parse, repeat(unit, size))()
    return time.thread_time() - begun


@attack(
    "stranger", "sends cookies, forms, URLs, dates, tokens or YAML that take long to read", "the cost is in proportion"
)
@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_takes_linear_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cookies, "HEADER_LIMIT_BYTES", 10**9)  # the growth is to be seen
    for unit in UNITS:
        spent_s = cost_of(PARSERS[name], unit, SMALL * FACTOR)
        if spent_s < 0.0005:
            continue  # a quadratic one takes far longer at this size
        small = SMALL
        if spent_s < 0.01:
            # Too little to see how it grows: eight times as much, once, and again only if it seems to grow.
            small = SMALL * FACTOR
            if cost_of(PARSERS[name], unit, small * FACTOR) < FACTOR * 2.5 * (spent_s + 0.002):
                continue
        try:
            assert_linear(
                lambda size, unit=unit: thread_cpu_s(reading(PARSERS[name], repeat(unit, size))),  # type: ignore[misc]
                small=small,
                factor=FACTOR,
            )
        except AssertionError as error:
            raise AssertionError(f"{name} of {unit!r}: {error}") from error


MODULES: Final = frozenset(
    (
        *("ast", "base64", "binascii", "cgi", "cronsim", "difflib", "httptools", "httpx2", "jsonschema_rs", "shlex"),
        *("starlette", "unicodedata", "zoneinfo", "codecs", "configparser", "csv", "email", "gzip", "html", "http.cookies"),
        *("ipaddress", "json", "jwt", "lzma", "mimetypes", "multipart", "pickle", "plistlib", "python_multipart", "quopri"),
        *("tarfile", "tomllib", "urllib.parse", "uuid", "xml", "yaml", "zipfile", "zlib"),
    )
)  # fmt: skip
"""Modules with parsers: the names that are used of them are in the table, or below."""
WRITERS: Final = frozenset(
    (
        *("AsyncClient", "Auth", "HttpParserUpgrade", "InvalidURL", "JSONResponse", "Response", "Timeout"),
        *("available_timezones", "category", "combining", "name"),
        *("b64encode", "compress", "crc32", "dumps", "encode", "formatdate", "guess_extension", "quote", "quote_plus"),
        *("urlencode", "urlsafe_b64encode", "urlunsplit", "uuid4", "JSONEncoder"),
        *("IPv4Address", "IPv4Network", "IPv6Address", "IPv6Network", "SplitResult", "UUID", "utils"),
    )
)  # fmt: skip
"""What writes, and the names of types and modules."""
ELSEWHERE: Final = {
    "ast": "reads the stubs of Toolpost's own packages",
    "difflib": "compares names and texts of a few hundred parts, which its callers count",
    "jsonschema_rs": "is what `test_schemas.py` is about",
    "shlex": "reads commands of the operator",
    "codecs": "decoders of the standard library for text, in chunks that are bounded",
    "gzip": "reads the archive of the audit, which is the operator's own",
    "jwt": "`PyJWK` and `decode` get keys of an issuer that the operator names, and signatures of what was read before",
    "tomllib": "reads the operator's own configuration",
    "yaml": "is in the table as it is used; frontmatter of skills is the operator's own",
}


def parsers_in_use() -> Iterator[tuple[str, str, str]]:
    """Find the names that modules of the package use of `MODULES`: file, module, name."""
    root = Path(toolpost.__file__).parent
    for path in sorted(root.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        aliases: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                aliases |= {each.asname or each.name: each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                for each in node.names:
                    whole = f"{node.module}.{each.name}"
                    aliases[each.asname or each.name] = whole
                    if is_parser(node.module or ""):
                        yield str(path.relative_to(root)), node.module or "", each.name
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                written = dotted(node.value)
                module = aliases.get(written, written if written in aliases.values() else "")
                if is_parser(module):
                    yield str(path.relative_to(root)), module, node.attr


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


def is_parser(module: str) -> bool:
    return any(module == each or module.startswith(f"{each}.") for each in MODULES)


def test_every_parser_in_use_is_in_the_table() -> None:
    known = {name.split(" ")[0].rpartition(".")[2] for name in PARSERS}
    found = set(parsers_in_use())
    assert {name for _, _, name in found} >= {"parse_qsl", "urlsplit", "b64decode", "get_unverified_header"}
    left = [
        f"{path}: {module}.{name}"
        for path, module, name in sorted(found)
        if name not in known | WRITERS
        and module.split(".")[0] not in ELSEWHERE
        and not name.endswith(("Error", "error"))
    ]
    assert not left, "give each a line in `PARSERS`"
    raw = {path for path, module, name in found if (module, name) == ("unicodedata", "normalize")}
    assert raw == {"base/normalization.py"}, "of strangers' texts it takes quadratic time: use `base.normalization`"
    assert all(any(module.split(".")[0] == each for _, module, _ in found) for each in ELSEWHERE), "remove the others"


def test_a_header_of_cookies_is_bounded() -> None:
    pairs = [f"{name}={number}" for number, name in enumerate(itertools.chain("ab", "a" * 20))]
    assert cookies.read_cookies({b"cookie": "; ".join(pairs).encode()}, "a") == ["0", *map(str, range(2, 9))]
    assert cookies.read_cookies({b"cookie": b"a=1; b=" + b"x" * cookies.HEADER_LIMIT_BYTES}, "a") == []
    assert cookies.read_cookies({}, "a") == []
