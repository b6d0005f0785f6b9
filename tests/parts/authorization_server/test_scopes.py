"""The scopes of a login limit what its tokens can do, and the consent page says exactly that."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.hostile.attacks import attack
from tests.parts.authorization_server.conftest import PASSPHRASE, Gateway, OpenGateway, Pkce
from tests.wire.callers import ERAS, names
from toolpost import Plugin
from toolpost.base.passphrase import hash_passphrase
from toolpost.parts.approvals.service import Approvals

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

shop = Plugin("shop")


def callers() -> str:
    return f'[callers.ada]\npassphrase_hash = "{hash_passphrase(PASSPHRASE)}"\ntools = ["shop__*", "!shop__secret"]\n'


@shop.tool(annotations={"readOnlyHint": True})
def look() -> str:
    """Look at what there is."""
    return "apples"


@shop.tool(annotations={"readOnlyHint": True})
def secret() -> str:
    """Read what is not for everyone."""
    return "figures"


@shop.tool
def buy() -> str:
    """Buy something."""
    return "bought"


@asynccontextmanager
async def client_of(gateway: Gateway, token: str, mode: str) -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=20) as http_client:
        transport = streamable_http_client(f"{gateway.url}/mcp", http_client=http_client)
        async with Client(transport, mode=mode) as client:
            yield client


@attack("caller", "calls tools beyond the scopes of a token", "they are not listed, and FORBIDDEN")
@pytest.mark.parametrize("mode", ERAS)
async def test_a_token_for_reading_reads(mode: str, open_gateway: OpenGateway, store_url: str) -> None:
    async with open_gateway(callers=callers(), store=store_url, plugins=[shop]) as gateway:
        registered, tokens = await gateway.log_in(scope="tools:read")
        renewed = (await gateway.refresh(registered, tokens["refresh_token"])).json()
        more = await gateway.refresh(registered, renewed["refresh_token"], scope="tools")
        _, whole = await gateway.log_in()
        async with client_of(gateway, renewed["access_token"], mode) as client:
            seen = await names(client)
            read = await client.call_tool("shop__look", {})
            bought = await client.call_tool("shop__buy", {})
        async with client_of(gateway, whole["access_token"], mode) as client:
            seen_by_other = await names(client)

    assert (tokens["scope"], renewed["scope"], whole["scope"]) == ("tools:read", "tools:read", "tools")
    assert more.json()["error"] == "invalid_scope"
    assert seen == ["shop__look"]
    assert not read.is_error
    assert bought.is_error
    assert bought.structured_content is not None
    assert bought.structured_content["error"]["code"] == "FORBIDDEN"
    assert seen_by_other == ["shop__buy", "shop__look"]


async def test_the_page_says_what_a_scope_allows_and_a_person_can_allow_less(open_gateway: OpenGateway) -> None:
    async with open_gateway(callers=callers(), plugins=[shop]) as gateway:
        client = (await gateway.register())["client_id"]
        whole = await gateway.sign_in(await gateway.open_page(client, Pkce(), scope="tools tools:read openid"))
        read = await gateway.sign_in(await gateway.open_page(client, Pkce(), scope="tools:read"))
        unknown = await gateway.sign_in(await gateway.open_page(client, Pkce(), scope="openid profile"))
        _, tokens = await gateway.log_in(action="allow-read")
        async with client_of(gateway, tokens["access_token"], "legacy") as opened:
            seen = await names(opened)
        _, more = await gateway.log_in(scope="tools:read", action="allow")

    for page in (whole, unknown):
        assert "<li><code>shop__look</code> (read-only)</li>" in page.text
        assert "<li><code>shop__buy</code></li>" in page.text
        assert "shop__secret" not in page.text
        assert "Allow only the read-only tools<" in page.text
    assert "<li><code>shop__look</code> (read-only)</li>" in read.text
    assert "1 read-only tool," in read.text
    assert "shop__buy" not in read.text
    assert "allow-read" not in read.text, "it asks for no more"
    assert tokens["scope"] == "tools:read"
    assert seen == ["shop__look"]
    assert more["scope"] == "tools:read"


@attack("agent", "votes in the name of the person who logged in", "FORBIDDEN: a login is for tools, and a vote is not")
async def test_a_client_that_logged_in_does_not_vote(open_gateway: OpenGateway, tmp_path: Path) -> None:
    (tmp_path / "ada").write_text("token-of-ada")
    people = f'[callers.ada]\npassphrase_hash = "{hash_passphrase(PASSPHRASE)}"\ntoken = "${{file:ada}}"\n'
    settings = f'[plugins]\nbundled = ["approvals"]\n{people}'
    async with open_gateway(callers=settings, plugins=[shop], bundled=True) as gateway:
        opened = await gateway.app.service(Approvals).open_proposal(
            text="a", digest="d", caller="eve", voters=("ada",), needed=1, expires_s=600
        )
        vote = {"round_id": str(opened.round.id), "choice": "approve"}
        _, tokens = await gateway.log_in()
        async with client_of(gateway, tokens["access_token"], "auto") as client:
            refused = await client.call_tool("approvals__consensus_vote", vote)
        async with client_of(gateway, "token-of-ada", "auto") as client:
            taken = await client.call_tool("approvals__consensus_vote", vote)

    assert refused.structured_content is not None
    assert refused.structured_content["error"]["code"] == "FORBIDDEN"
    assert "that logged in may not vote" in refused.structured_content["error"]["message"]
    assert not taken.is_error


@attack(
    "caller", "uses a session of its person's other client with a token for reading", "404, as for one of a stranger"
)
async def test_a_session_belongs_to_the_scopes_it_was_opened_with(open_gateway: OpenGateway, tmp_path: Path) -> None:
    (tmp_path / "ada").write_text("token-of-ada")
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "shop__buy", "arguments": {}}}
    async with open_gateway(callers=f'{callers()}token = "${{file:ada}}"\n', plugins=[shop]) as gateway:
        (_, whole), (_, reading) = await gateway.log_in(), await gateway.log_in(scope="tools:read")

        async def send(token: str, message: object, **headers: str) -> httpx2.Response:
            accept = "application/json, text/event-stream"
            sent = {"authorization": f"Bearer {token}", "accept": accept} | headers
            return await gateway.http.post(f"{gateway.url}/mcp", json=message, headers=sent)

        opened = await send(whole["access_token"], hello)
        session = opened.headers["mcp-session-id"]
        initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await send(whole["access_token"], initialized, **{"mcp-session-id": session})
        other = await send(reading["access_token"], call, **{"mcp-session-id": session})
        own = await send(whole["access_token"], call, **{"mcp-session-id": session})
        of_person = (await send("token-of-ada", hello)).headers["mcp-session-id"]
        by_client = await send(whole["access_token"], call, **{"mcp-session-id": of_person})

    assert other.status_code == 404
    assert by_client.status_code == 404, "the person may vote in it, and the client may not"
    assert "bought" in own.text
