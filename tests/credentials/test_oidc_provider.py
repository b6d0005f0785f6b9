"""A real provider with tokens that live for seconds: several gateways on one store renew them, and no call fails.

Also logins at it on another device.

`scripts/node-servers` puts npm's `oidc-provider` into `.venv/node`; without it these tests are skipped.
"""

import asyncio
import itertools
import json
import random
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import jwt
import msgspec
import pytest

from tests.conformance.test_conformance import NODE, PLACE
from tests.credentials.logging_in import log_in
from tests.postgres import Postgres
from tests.upstreams.servers.http_server import HttpServer, serving
from tests.ways import ENVELOPE, IN_MEMORY
from toolpost.app import open_app, open_http
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.credentials import token_requests
from toolpost.credentials.device import begin_device_login, finish_device_login
from toolpost.credentials.grant import NAME, encode_grant
from toolpost.credentials.keys import KeyFile
from toolpost.credentials.login_flow import LoginFailed
from toolpost.credentials.server_tokens import ServerToken
from toolpost.credentials.vault import Vault
from toolpost.settings.callers import CallerSettings
from toolpost.settings.model import StoreSettings
from toolpost.store import open_store
from toolpost.upstreams.spec import ServerSpec

SCRIPT = Path(__file__).parents[1] / "upstreams/servers/oidc_provider.mjs"
LIFE_S = 5
GATEWAYS = 3

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.wire,
    pytest.mark.skipif(
        not NODE.exists() or not (PLACE / "oidc-provider").exists(), reason=f"oidc-provider is not in {PLACE}"
    ),
]


class GuardedServer:
    """An MCP server that takes the provider's access tokens, until the very second of their end."""

    def __init__(self) -> None:
        self.inner = HttpServer(has_sessions=False)
        self.issuer = ""
        self.url = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"].startswith("/.well-known/oauth-protected-resource"):
            known = {
                "resource": self.url,
                "authorization_servers": [self.issuer],
                "scopes_supported": ["openid", "mcp"],
            }
            body = json.dumps(known).encode()
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]}
            )
            await send({"type": "http.response.body", "body": body})
            return
        token = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
        try:
            claims = jwt.decode(token, options={"verify_signature": False})
        except jwt.PyJWTError:
            claims = {"exp": 0}
        if claims["exp"] > time.time() and claims["aud"] == self.url:
            await self.inner(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 401, "headers": [(b"www-authenticate", b"Bearer")]})
        await send({"type": "http.response.body", "body": b"{}"})


@asynccontextmanager
async def provider_for(server: GuardedServer, port: str) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        *(str(NODE), str(SCRIPT), str(PLACE), str(LIFE_S), port),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        server.issuer = (await asyncio.wait_for(process.stdout.readline(), 20)).decode().strip()
        yield
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize("confirms", [True, False])
async def test_a_login_on_another_device(confirms: bool, tmp_path: Path) -> None:
    server = GuardedServer()
    async with AsyncExitStack() as stack:
        server.url = await stack.enter_async_context(serving(server))
        await stack.enter_async_context(provider_for(server, server.url.split(":")[2].removesuffix("/mcp")))
        vault = Vault(await stack.enter_async_context(open_store("sqlite::memory:")), KeyFile(tmp_path / "key"))
        server_token = ServerToken(ServerSpec(name="up", url=server.url), vault)
        login = replace(await begin_device_login(server_token), interval_s=0.1)
        finishing = asyncio.create_task(finish_device_login(server_token, vault, login))
        await asyncio.sleep(0.3)  # it has asked more than once
        assert not finishing.done()
        page = await type_code(login.complete_url or login.url, confirms=confirms)
        if not confirms:
            with pytest.raises(LoginFailed, match="refused on the other device"):
                await finishing
            return
        grant = await finishing
        assert "was successful" in page.text, page.text
        async with httpx2.AsyncClient() as http:
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": ENVELOPE}}
            headers = {"authorization": server_token.header or "", "mcp-protocol-version": "2026-07-28"}
            listed = await http.post(server.url, json=message, headers=headers | {"mcp-method": "tools/list"})
        renewed = await token_requests.renew(grant, server_token.auth, server_token.fetcher)
        await vault.put("up", "", NAME, encode_grant(renewed))
        # This provider's access tokens are JWTs, which it cannot revoke.
        is_revoked = await server_token.log_out()
        with pytest.raises(token_requests.TokenRefused) as refused:
            await token_requests.renew(renewed, server_token.auth, server_token.fetcher)

    assert "tools" in listed.json()["result"], listed.text
    assert grant.refresh_token is not None
    assert renewed.access_token != grant.access_token
    assert is_revoked
    assert refused.value.is_final


async def type_code(url: str, *, confirms: bool) -> httpx2.Response:
    """Do what a person does on the other device: open the page, and confirm the code, or abort."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        page = await browser.get(url)
        for answer in ({}, {"confirm": "yes"} if confirms else {"abort": "yes"}):
            fields = dict(re.findall(r'name="(xsrf|user_code)" value="([^"]+)"', page.text))
            page = await browser.post(url.partition("?")[0], data=fields | answer)
        return page


async def call(http: httpx2.AsyncClient, url: str, name: str) -> str | None:
    """Call a tool as a caller; returns what went wrong, None if nothing did."""
    params = {"name": "up__echo", "arguments": {"text": name}, "_meta": ENVELOPE}
    headers = {
        "authorization": f"Bearer {token_of(name)}",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "up__echo",
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    try:
        answer = (await http.post(url, json=message, headers=headers)).json()
    except httpx2.HTTPError as error:
        return repr(error)
    content = answer.get("result", {}).get("content", [{}])
    return None if content[0].get("text") == name else json.dumps(answer)


def token_of(name: str) -> str:
    return f"token-of-{name}-{'x' * 30}"


@pytest.mark.parametrize(
    ("callers", "seconds"),
    [
        pytest.param(10, 60, marks=pytest.mark.timeout(300)),
        pytest.param(50, 600, marks=[pytest.mark.soak, pytest.mark.timeout(900)]),
    ],
)
async def test_gateways_of_one_store_renew_each_token_once(
    callers: int, seconds: float, postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"caller{number}" for number in range(callers)]
    for name in names:
        monkeypatch.setenv(name.upper(), token_of(name))
    config = msgspec.structs.replace(
        IN_MEMORY,
        store=StoreSettings(url=postgres.new_url()),
        project=str(tmp_path),
        callers={name: CallerSettings(token=f"${{{name.upper()}}}") for name in names},
    )
    server, calls = GuardedServer(), 0
    failures: list[str] = []
    async with AsyncExitStack() as stack:
        # It closes idle connections after five seconds, as most servers in Python do.
        server.url = await stack.enter_async_context(serving(server))
        await stack.enter_async_context(provider_for(server, server.url.split(":")[2].removesuffix("/mcp")))
        spec = ServerSpec(name="up", url=server.url, credentials="caller")
        gateways = []
        for _ in range(GATEWAYS):
            app = await stack.enter_async_context(open_app(config, bundled=False, servers=[spec]))
            gateways.append((app, await stack.enter_async_context(open_http(app))))
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=30))
        logins = gateways[0][0].servers.logins
        assert logins is not None
        for name in names:
            page = await log_in(logins.make_url("up", Caller(id=CallerId(name), transport="http")) or "")
            assert f"Calls of {name}" in page.text, page.text

        async def work(name: str) -> None:
            nonlocal calls
            while time.monotonic() < ends_at:
                calls += 1
                if (failure := await call(http, random.choice(urls), name)) is not None:
                    failures.append(failure)
                await asyncio.sleep(0.5)

        # Each gateway learns the tools that its callers have when they first come.
        urls = [url for _, url in gateways]
        async with asyncio.timeout(60):
            for name, url in itertools.product(names, urls):
                while await call(http, url, name) is not None:
                    await asyncio.sleep(0.05)
        ends_at = time.monotonic() + seconds
        async with asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(work(name))
        counts = (await http.get(f"{server.issuer}/counts")).json()

    print(f"{calls} calls, {len(failures)} failed; {counts}")
    assert failures == []
    assert calls >= callers * seconds // 4
    assert counts["refused"] == 0
    assert counts["renewed"] == counts["tokens"], "a refresh token was used twice"
    assert counts["renewed"] >= callers * (seconds // LIFE_S), "tokens were not renewed"
