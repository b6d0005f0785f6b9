"""Answers of APIs, models and authorization servers that are costly to read: the loop stays with others, memory is bounded.

The other side answers from a thread, so that only the gateway's own work is on the event loop.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anyio import to_thread
from mcp.shared.auth import OAuthMetadata

from tests.hostile.attacks import answering, attack, longest_stretch
from tests.parts.approvals.bank import approvals_of, bank, requiring
from tests.parts.approvals.test_service import subject
from tests.parts.authorization_server.conftest import OpenGateway
from tests.parts.authorization_server.conftest import open_gateway as _open_login
from tests.parts.openapi.fake_api import answers, describe, open_gateway, takes
from tests.parts.results.conftest import limited, open_limited
from tests.parts.results.test_cost import plugin_with
from toolpost.app import App, open_app, open_http
from toolpost.base.caller import Caller
from toolpost.base.ids import META_KEY, CallerId
from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.credentials.authorization_servers import Discovery, OAuthFailed, discover, register
from toolpost.credentials.fetch import BODY_LIMIT, Fetcher
from toolpost.middleware import CheckedResult
from toolpost.parts import ResultLimiter
from toolpost.parts.models.endpoint import BODY_LIMIT_BYTES, Api, Endpoint, EndpointFailed, ModelPrompt
from toolpost.parts.results.reader import PAGE_LIMIT_BYTES
from toolpost.protocol.era import STATELESS
from toolpost.protocol.shape import SDK_VALUE_LIMIT
from toolpost.upstreams.spec import AuthSpec

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

open_login = _open_login

LOOP = 0.05
"""Seconds of CPU time, on a machine that does nothing else."""
MEBIBYTE = 1024 * 1024
JSON = "application/json"
ANY_LIST = {"type": "array", "items": {"type": "array"}}
API = describe(
    {"method": "get", "path": "/free", "operationId": "free", "parameters": [takes("query", "page")]},
    {"method": "get", "path": "/text", "operationId": "text"},
    {"method": "get", "path": "/checked", "operationId": "checked", "responses": answers(ANY_LIST)},
)


def fill(size: int, unit: bytes, begin: bytes = b"[", end: bytes = b"1]") -> bytes:
    return begin + unit * ((size - len(begin) - len(end)) // len(unit)) + end


def resident(field: str) -> int:
    """Return `VmRSS` or `VmHWM`, the most since `forget_peak`, in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) * 1024


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


BODIES: dict[str, tuple[int, str, bytes]] = {
    "empty lists": (200, JSON, fill(8 * MEBIBYTE, b"[],")),
    "objects": (200, JSON, fill(8 * MEBIBYTE, b'{"a":1},')),
    "names": (200, JSON, b"{" + b",".join(b'"%d":1' % number for number in range(700_000)) + b"}"),
    "escapes": (200, JSON, fill(8 * MEBIBYTE, b'\\"', b'["', b'"]')),
    "no JSON": (200, JSON, fill(8 * MEBIBYTE, b"[],", end=b"")),
    "lines": (200, "text/plain", fill(8 * MEBIBYTE, b"\n", b"", b"")),
    "control characters": (200, "text/plain", fill(8 * MEBIBYTE, b"\x01", b"", b"")),
    "latin-1": (200, "text/plain", fill(8 * MEBIBYTE, b"\xe9", b"", b"")),
    "an error": (400, JSON, fill(8 * MEBIBYTE, b"[],")),
}


async def call(app: App, name: str, arguments: Any = ()) -> Any:
    """Return the result of a call, as an endpoint sends it; not decoded, which would be the test's work on the loop."""
    caller = Caller(id=CallerId("ada"), transport="memory")
    admitted = app.call_handler.admit(b"1", name, dict(arguments), {}, caller=caller, notify=None)
    return await app.call_handler.answer(b"1", admitted, STATELESS)


@attack(
    "server",
    "answers a call of an API with 8 MB that are costly to read",
    "they are passed on as text: the loop is held for less than 50 ms, and no objects are made of them",
)
@pytest.mark.parametrize("name", BODIES)
async def test_large_answers_of_an_api(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolpost.parts.openapi.api.RESPONSE_LIMIT_BYTES", 9 * MEBIBYTE)
    with answering({"/free": lambda: BODIES[name]}) as url:
        async with open_gateway(API, url, tmp_path) as app:
            assert b'"result"' in await call(app, "pets__free")
            forget_peak()
            before = resident("VmRSS")
            held = await longest_stretch(lambda: call(app, "pets__free"))
            grown = resident("VmHWM") - before

    assert held < LOOP
    assert grown < 160 * MEBIBYTE


async def test_a_large_answer_arrives_as_it_was_sent(tmp_path: Path) -> None:
    pages = {"data": [[number, "\u00e9\n\u0001"] for number in range(20_000)], "next": "/free?page=2"}
    text = "a line\n" * 50_000
    replies = {
        "/free": (200, JSON, json.dumps(pages).encode()),
        "/checked": (200, JSON, json.dumps(pages["data"]).encode()),
        "/text": (200, "text/plain", text.encode()),
    }
    with answering({path: partial(tuple[int, str, bytes], reply) for path, reply in replies.items()}) as url:
        async with open_gateway(API, url, tmp_path) as app:
            free, checked, plain = [
                json.loads(await call(app, f"pets__{name}"))["result"] for name in ("free", "checked", "text")
            ]

    assert json.loads(free["content"][0]["text"]) == free["structuredContent"] == pages
    assert 'call again with {"page":"2"}' in free["content"][1]["text"]
    assert checked["structuredContent"] == {"result": pages["data"]}
    assert json.loads(plain["content"][0]["text"]) == text


@attack(
    "server",
    "breaks the output schema of an API with megabytes, or sends more values than can be checked",
    "the call fails with a reason",
)
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (fill(1 * MEBIBYTE, b'"a",'), "OUTPUT_VALIDATION_FAILED"),
        (fill(8 * MEBIBYTE, b"[],"), "it holds more than 500,000 values"),
    ],
    ids=["invalid", "too many"],
)
async def test_large_answers_are_checked(body: bytes, reason: str, tmp_path: Path) -> None:
    with answering({"/checked": lambda: (200, JSON, body)}) as url:
        async with open_gateway(API, url, tmp_path) as app:
            assert reason in (await call(app, "pets__checked")).decode()
            held = await longest_stretch(lambda: call(app, "pets__checked"))

    assert held < LOOP


EVENTS = "text/event-stream"
ANSWER = BODY_LIMIT_BYTES - 9
MODELS: dict[str, tuple[Api, tuple[int, str, bytes]]] = {
    "an error": ("chat", (500, JSON, fill(ANSWER, b"[],", b'{"error":{"message":"no"},"a":[', b"1]}"))),
    "choices": ("chat", (200, JSON, fill(ANSWER, b'{"message":{}},', b'{"choices":[', b'{"message":{}}]}'))),
    "outputs": ("responses", (200, JSON, fill(ANSWER, b'{"content":[]},', b'{"output":[', b"{}]}"))),
    "events": ("chat", (200, EVENTS, fill(ANSWER, b"data: {}\n\n", b"", b""))),
    "pieces": ("chat", (200, EVENTS, fill(ANSWER, b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n', b"", b""))),
    "one event": ("chat", (200, EVENTS, fill(ANSWER, b"[],", b'data: {"error":[', b"1]}\n\n"))),
    "a delta": (
        "responses",
        (200, EVENTS, fill(ANSWER, b"[],", b'data: {"type":"response.output_text.delta","delta":[', b"1]}\n\n")),
    ),
    "a text": ("chat", (200, JSON, fill(ANSWER, b'\\"', b'{"choices":[{"message":{"content":"', b'"}}]}'))),
}  # fmt: skip


@attack("server", "answers as a model with megabytes that are costly to read", "the loop is held for less than 50 ms")
@pytest.mark.parametrize("name", MODELS)
async def test_answers_of_models(name: str) -> None:
    api, reply = MODELS[name]
    with answering({path: lambda: reply for path in ("/chat/completions", "/responses")}) as url:
        endpoint = Endpoint(url, model="m", api=api)

        async def ask() -> None:
            is_stream = reply[1] == EVENTS
            with nullcontext() if name == "a text" else pytest.raises(EndpointFailed):
                await endpoint.complete(ModelPrompt.of_text("hi"), (lambda _text: None) if is_stream else None)

        try:
            await ask()
            held = await longest_stretch(ask)
        finally:
            await endpoint.aclose()

    assert held < LOOP


def metadata(url: str, **more: Any) -> bytes:
    return msgspec.json.encode(
        {"issuer": url, "authorization_endpoint": f"{url}/a", "token_endpoint": f"{url}/t", **more}
    )


ROOM = BODY_LIMIT - 300
METADATA: dict[str, Callable[[str], bytes]] = {
    "scopes": lambda url: metadata(url, scopes_supported=["a"] * (ROOM // 4)),
    "no scopes": lambda url: metadata(url, scopes_supported=[1] * min(ROOM // 2, SDK_VALUE_LIMIT - 10)),
    "fields": lambda url: metadata(url, **{f"{number:05}": [] for number in range(ROOM // 11)}),
    "a long URL": lambda url: metadata(url, registration_endpoint=f"{url}/{'é' * (ROOM // 2)}"),
    "a long host": lambda url: metadata(url, registration_endpoint=f"https://{'é.' * (ROOM // 3)}"),
}


@attack("server", "publishes a megabyte of authorization server metadata", "the loop is held for less than 50 ms")
@pytest.mark.parametrize("name", METADATA)
async def test_metadata_of_an_authorization_server(name: str) -> None:
    found: list[bytes] = []
    path = "/.well-known/oauth-authorization-server"
    with answering({path: lambda: (200, JSON, found[0])}) as url:
        found.append(METADATA[name](url))

        async def ask() -> None:
            with suppress(UpstreamUnavailable):
                await discover(f"{url}/mcp", AuthSpec(type="oauth"), None, Fetcher([url]))

        await ask()
        held = await longest_stretch(ask)

    assert held < LOOP


@attack(
    "server",
    "is an authorization server that refuses a registration in a charset which takes long to decode",
    "charsets are not asked for: the loop is held for less than 50 ms",
)
async def test_a_refusal_in_a_costly_charset() -> None:
    refusal = 400, "text/plain; charset=punycode", b"9" * (BODY_LIMIT // 4)
    with answering({"/register": lambda: refusal}) as url:
        told = OAuthMetadata.model_validate_json(metadata(url, registration_endpoint=f"{url}/register"))
        found = Discovery(issuer=url, metadata=told, resource=None, scopes_supported=None, url=url)

        async def ask() -> None:
            with pytest.raises(OAuthFailed):
                await register(found, AuthSpec(), Fetcher([url]), redirect_uri=f"{url}/cb", known=None, scope=None)

        await ask()
        assert await longest_stretch(ask) < LOOP


REGISTRATIONS = {
    "redirects": b'{"redirect_uris":[%b"a"]}' % (b'"a:",' * 13_000),
    "no redirects": b'{"redirect_uris":[%b1]}' % (b"1," * 32_000),
    "grants": b'{"redirect_uris":["https://a/"],"grant_types":[%b"a"]}' % (b'"a",' * 16_000),
    "a long host": b'{"redirect_uris":["https://%b/"]}' % ("\u00e9." * 21_000).encode(),
}


@attack("stranger", "registers as a client with 64 KB that are costly to read", "the loop is held for less than 50 ms")
@pytest.mark.parametrize("name", REGISTRATIONS)
async def test_registrations(name: str, open_login: OpenGateway) -> None:
    def post(url: str) -> int:
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{url}/register", REGISTRATIONS[name])) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    async with open_login() as gateway:
        assert await to_thread.run_sync(post, gateway.url) == 400
        assert await longest_stretch(lambda: to_thread.run_sync(post, gateway.url)) < LOOP


@attack("server", "answers with a result of brackets, larger than `[results]` lets pass", "it is cut in a thread")
@pytest.mark.parametrize("size", [16_000, 250_000, MEBIBYTE])
async def test_results_that_are_cut(size: int) -> None:
    result = CheckedResult(fill(size, b"[],"))
    async with open_limited(limited(limit_bytes=size - size // 5), plugin_with({})) as app:
        limiter = app.contributions.first(ResultLimiter)
        assert limiter is not None
        caller = Caller(id=CallerId("ada"), transport="memory")
        admitted = app.gateway.admit(caller=caller, name="made__large", arguments={})
        assert (await limiter.limit(admitted, result)) is not result
        assert await longest_stretch(lambda: limiter.limit(admitted, result)) < LOOP


@attack("caller", "opens rounds with arguments of many values", "a list of rounds holds up no other call")
async def test_a_list_of_large_rounds() -> None:
    arguments = {"amount": 5, "notes": [{"a": 1, "token": "x"}] * 9_000}
    async with open_app(requiring(), plugins=[bank([])]) as app, open_http(app) as url:
        for number in range(60):
            await approvals_of(app).open_call(subject(arguments=arguments | {"amount": number}), expires_s=600)

        def ask() -> int:
            with urllib.request.urlopen(f"{url.removesuffix('/mcp')}/api/approvals") as answer:
                return len(answer.read())

        assert await to_thread.run_sync(ask) > 100_000
        assert await longest_stretch(lambda: to_thread.run_sync(ask)) < LOOP


@attack("caller", "searches a large result of short lines that all match", "the search holds up no other call")
async def test_a_search_of_short_lines() -> None:
    text = "a\n" * 500_000
    async with open_limited(limited(limit_bytes=20_000), plugin_with(text)) as app:
        kept = json.loads(await call(app, "made__large"))["result"]["_meta"][META_KEY]["truncated"]["id"]
        search = {"id": kept, "grep": "a", "limit": PAGE_LIMIT_BYTES}
        assert b'"matches"' in await call(app, "results__read", search)
        assert await longest_stretch(lambda: call(app, "results__read", search)) < LOOP
