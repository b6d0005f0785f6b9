"""A server's credential that it mirrors reaches no caller: not in results, errors, lists and log messages."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest
from mcp import Client, MCPError
from mcp_types import LoggingMessageNotificationParams

from tests.hostile.attacks import attack
from tests.upstreams.behind import SERVERS, gateway, text_of
from tests.upstreams.servers.http_server import serving
from tests.upstreams.servers.mirror import TOOLS, MirrorHttp
from tests.upstreams.servers.oauth_server import OAuthServer, serving_oauth
from tests.waiting import until
from tests.ways import IN_MEMORY, STATELESS
from toolpost.app import open_app
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.middleware.fast_path import FastPath
from toolpost.settings import ServerSettings
from toolpost.upstreams.mask import Mask
from toolpost.upstreams.spec import AuthSpec, ServerSpec

KEY = "s3cr3t/k\u00e9y+1"
TOKEN = "tok-8f3a9c01b2d4"


@pytest.mark.parametrize(
    "text",
    [
        KEY,
        "s3cr3t%2Fk%C3%A9y%2B1",
        "s3cr3t\\/k\u00e9y+1",
        "s3cr3t/k\\u00e9y+1",
        json.dumps({"k": KEY}),
        json.dumps(json.dumps({"k": KEY})),
        f"Bearer {TOKEN}",
    ],
)
def test_a_value_is_masked_in_every_form(text: str) -> None:
    mask = Mask([KEY])
    mask.use_token(f"Bearer {TOKEN}")
    masked = mask.apply(text.encode())
    assert b"(redacted)" in masked
    assert b"k\xc3\xa9y" not in masked
    assert TOKEN.encode() not in masked


def test_what_is_not_masked() -> None:
    mask = Mask(["short12", "12345678"])
    raw = b'{"text":"short12","number":12345678,"more":-12345678.5}'
    assert mask.apply(raw) == b'{"text":"short12","number":99999999,"more":-99999999.5}'
    clean = b'{"text":"nothing"}'
    assert mask.apply(clean) is clean


def test_the_token_before_is_masked_too() -> None:
    mask = Mask()
    for number in range(3):
        mask.use_token(f"Bearer token-number-{number}")
    assert mask.apply(b"token-number-0 token-number-1 token-number-2") == b"token-number-0 (redacted) (redacted)"


@asynccontextmanager
async def mirrored(transport: str, version: str, mode: str, logged: list[Any], key: str = KEY) -> AsyncIterator[Client]:
    """Open a gateway in front of a server that mirrors its credential."""

    async def log(params: LoggingMessageNotificationParams) -> None:
        logged.append(params.data)

    async with AsyncExitStack() as stack:
        if transport == "stdio":
            args = ["-S", "-E", str(SERVERS / "mirror.py"), "--version", version]
            server = ServerSettings(command=sys.executable, args=args, env={"MIRROR_TOKEN": key})
        else:
            url = await stack.enter_async_context(serving(MirrorHttp(version, streams=transport == "events")))
            # Headers are in Latin-1, and the server echoes them as they came.
            server = ServerSettings(url=url, headers={"authorization": f"Bearer {key}"})
        config = msgspec.structs.replace(IN_MEMORY, servers={"up": server})
        app = await stack.enter_async_context(open_app(config, bundled=False))
        yield await stack.enter_async_context(
            Client(open_memory_endpoint(app.call_handler, app.sdk), mode=mode, logging_callback=log)
        )


@attack(
    "server",
    "returns the credential that it was given: in texts, structured results, resources, prompts, errors, lists and logs",
    "callers see `(redacted)` in its place, on the fast path and on the ordinary one",
)
@pytest.mark.anyio
@pytest.mark.wire
@pytest.mark.parametrize(
    ("transport", "version", "is_fast"),
    [
        ("stdio", "2025-11-25", True),
        ("stdio", STATELESS, False),
        ("json", STATELESS, True),
        ("json", "2025-11-25", False),
        ("events", STATELESS, True),
    ],
)
async def test_no_answer_has_the_credential(
    transport: str, version: str, is_fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bool] = []
    start = FastPath.start

    def watched(*arguments: Any) -> bool:
        taken.append(is_fast and start(*arguments))
        return taken[-1]

    monkeypatch.setattr(FastPath, "start", watched)
    logged: list[Any] = []
    key = "s3cr3t-k3y-0001"
    async with mirrored(transport, version, STATELESS, logged, key) as client:
        seen = [repr(await client.list_tools()), repr(await client.list_resources()), repr(await client.list_prompts())]
        for tool in TOOLS:
            try:
                # Twice: a first call may have to connect.
                seen += [repr(await client.call_tool(f"up__{tool}", {})) for _ in range(2)]
            except MCPError as refusal:
                seen.append(f"{refusal.error}")
        seen.append(repr(await client.read_resource("mirror://one")))
        seen.append(repr(await client.get_prompt("up__one", {})))

    assert any(taken) == is_fast
    assert len(seen) == 3 + 2 * (len(TOOLS) - 1) + 1 + 2
    for each in seen:
        assert key not in each
        assert "(redacted)" in each


@attack("server", "logs the credential that it was given", "clients get `(redacted)` in its place")
@pytest.mark.anyio
@pytest.mark.wire
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_log_messages_have_no_credential() -> None:
    logged: list[Any] = []
    async with mirrored("stdio", "2025-11-25", "legacy", logged) as client:
        await client.set_logging_level("debug")
        await client.call_tool("up__logged", {})
        await until(lambda: bool(logged))

    assert logged == ["You are (redacted)."]


@pytest.mark.anyio
@pytest.mark.wire
async def test_a_credential_of_digits_leaves_a_number() -> None:
    async with mirrored("json", STATELESS, STATELESS, [], "1234567890123") as client:
        found = await client.call_tool("up__number", {})

    assert found.structured_content == {"number": 9999999999999, "text": "9999999999999"}


@attack("server", "returns the OAuth token that it was sent, before and after it is renewed", "callers do not see it")
@pytest.mark.anyio
@pytest.mark.wire
async def test_tokens_are_masked() -> None:
    server = OAuthServer(MirrorHttp())
    machine = AuthSpec(type="client_credentials", client_id="me", client_secret="s3cret-of-the-test")
    async with serving_oauth(server) as url, gateway(ServerSpec(name="up", url=url, auth=machine)) as (_, client):
        texts = [text_of(await client.call_tool("up__text", {})) for _ in range(3)]
        server.expire_all()
        texts += [text_of(await client.call_tool("up__text", {})) for _ in range(3)]

    assert texts == ["You are (redacted)."] * 6
