"""People log in to an API as they do to a server: at the gateway's pages, each caller for itself, at a real provider."""

import json
import re
import subprocess
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import jwt
import pytest
from click.testing import CliRunner
from mcp import Client
from mcp_types import ElicitResult

from tests.cli.conftest import TOOLPOST
from tests.credentials.logging_in import log_in
from tests.credentials.test_oidc_provider import GuardedServer, provider_for
from tests.credentials.test_oidc_provider import pytestmark as needs_provider
from tests.parts.openapi.fake_api import FakeApi, Reply, Seen, answers, describe, open_gateway
from tests.parts.openapi.test_credentials import call_as
from tests.ways import STATELESS
from toolpost.app import open_http
from toolpost.cli.main import main

pytestmark = [*needs_provider]


def whoami(seen: Seen) -> Reply:
    """Answer with the person whose token it is."""
    token = seen.headers.get("authorization", "").removeprefix("Bearer ")
    try:
        return Reply(body={"person": jwt.decode(token, options={"verify_signature": False})["sub"]})
    except jwt.PyJWTError:
        return Reply(status=401, body={"message": "who?"}, headers={"www-authenticate": "Bearer"})


def document_of(scheme: dict[str, Any]) -> dict[str, Any]:
    operation = {"path": "/me", "method": "get", "operationId": "me", "security": [{"account": ["openid", "mcp"]}]}
    return describe(
        operation | {"responses": answers({"type": "object"})}, components={"securitySchemes": {"account": scheme}}
    )


@pytest.fixture
async def issuer(api: FakeApi) -> AsyncIterator[str]:
    api.replies["GET /me"] = whoami
    holder = GuardedServer()
    async with provider_for(holder, api.url.rpartition(":")[2]):
        yield holder.issuer


async def auth_of(tmp_path: Path, scheme: dict[str, Any], base: str) -> dict[str, Any]:
    """Return the login that an import of the document writes."""
    (tmp_path / "doc.json").write_text(json.dumps(document_of(scheme)))
    words = [
        "import",
        "openapi",
        str(tmp_path / "doc.json"),
        "--base",
        base,
        "--write",
        str(tmp_path / "toolpost.toml"),
    ]
    done = await anyio.to_thread.run_sync(lambda: CliRunner().invoke(main, words))
    assert done.exit_code == 0, done.output
    [entry] = tomllib.loads((tmp_path / "toolpost.toml").read_text())["apis"].values()
    return dict(entry["auth"])


async def test_each_caller_logs_in_for_itself(api: FakeApi, issuer: str, tmp_path: Path) -> None:
    scheme = {"type": "openIdConnect", "openIdConnectUrl": f"{issuer}/.well-known/openid-configuration"}
    auth = await auth_of(tmp_path, scheme, api.url)
    assert auth == {"issuer": issuer, "resource": "", "scopes": ["openid", "mcp"]}
    async with open_gateway(
        document_of(scheme), api.url, tmp_path, store=f"sqlite:{tmp_path / 'a.db'}", auth=auth, credentials="caller"
    ) as app:
        async with open_http(app):
            refused = await call_as(app, "ann", "pets__me")
            assert refused["code"] == "LOGIN_REQUIRED"
            page = await log_in(refused["details"]["url"])
            assert "Calls of ann use it now" in page.text, page.text
            person = await call_as(app, "ann", "pets__me")
            assert person["person"].startswith("person-")
            other = await call_as(app, "bob", "pets__me")
            assert other["code"] == "LOGIN_REQUIRED", "the login of ann is not that of bob"
            await log_in(other["details"]["url"])
            assert (await call_as(app, "bob", "pets__me"))["person"] != person["person"]


async def test_the_command_logs_in_to_an_api(api: FakeApi, issuer: str, tmp_path: Path) -> None:
    scheme = {"type": "openIdConnect", "openIdConnectUrl": f"{issuer}/.well-known/openid-configuration"}
    await auth_of(tmp_path, scheme, api.url)
    command = [TOOLPOST, "login", "pets", "--no-browser", "--json"]
    async with await anyio.open_process(command, cwd=tmp_path, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        text = ""
        while (found := re.search(r"http://\S+/auth\?\S+\n", text)) is None:
            text += (await process.stderr.receive()).decode()
        async with httpx2.AsyncClient(follow_redirects=True) as browser:
            await browser.get(found[0].strip())
        assert process.stdout is not None
        said = json.loads(await process.stdout.receive())
    assert (said["issuer"], said["scopes"]) == (issuer, ["mcp"]), "of the resource alone"
    assert {seen.method for seen in api.seen} == {"GET"}, "an API is not asked in MCP"


@pytest.mark.parametrize("mode", ["legacy", STATELESS])
async def test_a_client_that_opens_urls_is_asked_and_the_call_goes_on(
    mode: str, api: FakeApi, issuer: str, tmp_path: Path
) -> None:
    scheme = {"type": "openIdConnect", "openIdConnectUrl": f"{issuer}/.well-known/openid-configuration"}
    auth = {"issuer": issuer, "resource": "", "scopes": ["openid", "mcp"]}
    asked: list[str] = []

    async def elicit(context: Any, params: Any) -> Any:
        asked.append(params.url)
        await log_in(params.url)
        return ElicitResult(action="accept")

    async with (
        open_gateway(document_of(scheme), api.url, tmp_path, store=f"sqlite:{tmp_path / 'a.db'}", auth=auth) as app,
        open_http(app) as url,
    ):
        async with Client(url, mode=mode, elicitation_callback=elicit) as client:
            with anyio.fail_after(60):
                result = await client.call_tool("pets__me", {})
    assert len(asked) == 1, result
    assert "/login/pets?ticket=" in asked[0]
    assert result.structured_content is not None
    assert result.structured_content["person"].startswith("person-")


async def test_endpoints_of_a_document_are_enough_for_a_login(api: FakeApi, issuer: str, tmp_path: Path) -> None:
    flow = {"authorizationUrl": f"{issuer}/auth", "tokenUrl": f"{issuer}/token", "scopes": {"openid": "who you are"}}
    scheme = {"type": "oauth2", "flows": {"authorizationCode": flow}}
    auth = await auth_of(tmp_path, scheme, api.url)
    assert auth == {
        "authorization_url": f"{issuer}/auth",
        "token_url": f"{issuer}/token",
        "client_id": "${PETS_CLIENT_ID}",
        "resource": "",
        "scopes": ["openid", "mcp"],
    }
    # Native clients may be sent back to any port of the loopback address (RFC 8252).
    client = {"redirect_uris": ["http://127.0.0.1/login/callback/pets"], "application_type": "native"}
    async with httpx2.AsyncClient() as http:
        registered = (await http.post(f"{issuer}/reg", json=client)).json()
    auth |= {"client_id": registered["client_id"]}
    async with open_gateway(
        document_of(scheme), api.url, tmp_path, store=f"sqlite:{tmp_path / 'a.db'}", auth=auth, credentials="caller"
    ) as app:
        async with open_http(app):
            refused = await call_as(app, "ann", "pets__me")
            async with httpx2.AsyncClient() as browser:
                page = await browser.get(refused["details"]["url"])
            assert "says nothing about PKCE" in page.text
    auth |= {"assume_pkce": True}
    async with open_gateway(
        document_of(scheme), api.url, tmp_path, store=f"sqlite:{tmp_path / 'a.db'}", auth=auth, credentials="caller"
    ) as app:
        async with open_http(app):
            refused = await call_as(app, "ann", "pets__me")
            await log_in(refused["details"]["url"])
            assert (await call_as(app, "ann", "pets__me"))["person"].startswith("person-")
