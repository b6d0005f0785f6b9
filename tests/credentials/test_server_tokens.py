"""Servers that require OAuth: how tokens are got, kept and renewed, and what callers see where there is none."""

import json
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import msgspec
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp_types import CallToolResult, ElicitRequestURLParams, ElicitResult, ListToolsResult, TextContent, Tool
from starlette.responses import Response

from tests.credentials.logging_in import find_link, log_in
from tests.hostile.attacks import attack
from tests.postgres import Postgres
from tests.upstreams.behind import ERAS, hostile, report, text_of
from tests.upstreams.servers.http_server import HttpServer
from tests.upstreams.servers.oauth_server import OAuthServer, serving_oauth
from tests.upstreams.servers.sdk_server import server as sdk_server
from tests.waiting import until
from tests.ways import IN_MEMORY, STATELESS
from toolpost.app import App, open_app, open_http
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.credentials import fetch
from toolpost.credentials import grant as grant_module
from toolpost.credentials.grant import NAME, decode_grant, encode_grant
from toolpost.settings import Config
from toolpost.settings.callers import CallerSettings
from toolpost.settings.model import StoreSettings
from toolpost.testing import error_of
from toolpost.upstreams.spec import AuthSpec, ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


@asynccontextmanager
async def opened(
    url: str, *, config: Config = IN_MEMORY, others: Sequence[ServerSpec] = (), mode: str = STATELESS, **options: Any
) -> AsyncIterator[tuple[App, Client, str]]:
    """Open a gateway with a server at this URL behind it, and a client in front; yields the gateway's own URL, too."""
    spec = ServerSpec(name="up", url=url, **options)
    async with (
        open_app(config, bundled=False, servers=[spec, *others]) as app,
        open_http(app) as front,
        Client(front, mode=mode) as client,
    ):
        yield app, client, front.removesuffix("/mcp")


async def log_in_first(app: App, base: str) -> None:
    """Log in, and wait until the server's tools are known."""
    page = await log_in(f"{base}/login/up")
    assert page.status_code == 200, page.text
    await until(lambda: app.servers.providers["up"].definitions is not None)
    await until(lambda: any(tool.contract.name == "up__echo" for tool in app.gateway.catalog))


async def echo(client: Client) -> str:
    return text_of(await client.call_tool("up__echo", {"text": "hi"}))


async def stored(app: App) -> Any:
    raw = await app.servers.logins.vault.get("up", "", NAME)
    assert raw is not None
    grant = decode_grant(raw)
    assert grant is not None
    return grant


async def store(app: App, grant: Any) -> None:
    await app.servers.logins.vault.put("up", "", NAME, encode_grant(grant))


# Logging in


@pytest.mark.parametrize("mode", ["legacy", STATELESS])
@pytest.mark.parametrize("version", ERAS)
async def test_a_server_that_answers_401_is_recognized_and_a_login_suffices(version: str, mode: str) -> None:
    server = OAuthServer(version=version)
    async with serving_oauth(server) as url, opened(url, mode=mode) as (app, client, base):
        before = report(app)
        await log_in_first(app, base)
        names = [tool.name for tool in (await client.list_tools()).tools]
        text = await echo(client)
        grant = await stored(app)

    assert before.state == "failed"
    assert before.hint == "run `toolpost login up`, then call again"
    assert "up__echo" in names
    assert text == "hi"
    assert grant.registration.client_id == "client-1"
    assert server.forms[0]["resource"] == url
    assert server.clients["client-1"]["application_type"] == "native"


async def test_a_list_without_the_tools_of_a_server_that_waits_for_a_login_has_no_lifetime() -> None:
    async with (
        serving_oauth(OAuthServer()) as url,
        opened(url, others=[hostile("good")]) as (_, client, base),
        client.listen(tools_list_changed=True) as subscription,
    ):
        early = whole = await client.list_tools()
        await log_in(f"{base}/login/up")
        with anyio.fail_after(30):
            async for _ in subscription:
                # Not `bypass`: a client that keeps a list for its lifetime asks again.
                whole = await client.list_tools()
                if "up__echo" in {tool.name for tool in whole.tools}:
                    break

    assert {tool.name.partition("__")[0] for tool in early.tools} == {"good"}
    assert (early.ttl_ms, whole.ttl_ms) == (0, 60_000)


async def test_a_call_without_a_login_says_where_to_log_in_and_harms_nobody_else() -> None:
    server = OAuthServer()
    async with serving_oauth(server) as url, opened(url, others=[hostile("good")]) as (app, client, base):
        await log_in_first(app, base)
        await app.servers.logins.vault.remove("up", "", NAME)
        server.expire_all()
        app.servers.providers["up"].supervisor.restart()
        error = error_of(await client.call_tool("up__echo", {"text": "hi"}))
        names = [tool.name for tool in (await client.list_tools()).tools]
        other = await client.call_tool("good__echo", {"text": "fine"})
        again = await log_in(error["details"]["url"])
        text = await echo(client)
        state = report(app).state

    assert (error["code"], error["details"]["server"], error["details"]["scopes"]) == ("LOGIN_REQUIRED", "up", [])
    assert error["details"]["url"].startswith(f"{base}/login/up?ticket=")
    assert "up__echo" in names, "its tools disappeared"
    assert text_of(other) == "fine"
    assert again.status_code == 200
    assert text == "hi"
    assert state == "ready"


async def test_a_prompt_and_a_resource_say_where_to_log_in_too() -> None:
    async with serving_oauth(OAuthServer()) as url, opened(url) as (_, client, base):
        with pytest.raises(MCPError) as prompt:
            await client.get_prompt("up__x")
        with pytest.raises(MCPError) as resource:
            await client.read_resource("file:///x")

    for refusal in (prompt, resource):
        data = refusal.value.error.data
        assert data["code"] == "LOGIN_REQUIRED"
        assert data["details"]["url"].startswith(f"{base}/login/up?ticket=")


@pytest.mark.parametrize("mode", ["legacy", STATELESS])
async def test_a_client_that_takes_url_elicitations_is_asked_and_the_call_goes_on(mode: str) -> None:
    server, asked = OAuthServer(), []

    async def elicit(context: Any, params: Any) -> Any:
        assert isinstance(params, ElicitRequestURLParams)
        asked.append(params)
        logins.start_soon(log_in, params.url)
        return ElicitResult(action="accept")

    async with (
        serving_oauth(server) as url,
        opened(url) as (app, _, base),
        anyio.create_task_group() as logins,
        Client(f"{base}/mcp", mode=mode, elicitation_callback=elicit) as client,
    ):
        await log_in_first(app, base)
        server.expire_all()
        server.refresh.clear()
        text = await echo(client)

    assert text == "hi"
    assert len(asked) == 1
    assert "Log in to up" in asked[0].message


async def test_more_scopes_are_asked_for_together_with_those_that_were_granted() -> None:
    server = OAuthServer()
    server.resource_metadata["scopes_supported"] = ["read"]
    server.scopes["echo"] = "write"
    async with serving_oauth(server) as url, opened(url) as (app, client, base):
        await log_in_first(app, base)
        error = error_of(await client.call_tool("up__echo", {"text": "hi"}))
        await log_in(error["details"]["url"])
        text = await echo(client)
        grant = await stored(app)

    assert error["code"] == "LOGIN_REQUIRED"
    assert error["details"]["scopes"] == ["read", "write"]
    assert text == "hi"
    assert grant.scopes == ["read", "write"]
    assert grant.registration.client_id == "client-1", "it registered again"


BAD_TOKENS = {
    "a line break": {"access_token": "good\r\nx-admin: 1"},
    "a space": {"access_token": "good bad"},
    "another alphabet": {"access_token": "gööd"},
    "nothing": {"access_token": ""},
    "a long one": {"access_token": "a" * 16_385},
    "a line break in the refresh token": {"refresh_token": "good\r\n"},
    "a long refresh token": {"refresh_token": "a" * 16_385},
}


@attack("server", "issues tokens that break a header, or are endless", "the login fails, and nothing is stored")
@pytest.mark.parametrize("kind", BAD_TOKENS)
async def test_a_token_that_cannot_be_sent_is_not_stored(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = OAuthServer()
    issue = server.issue
    monkeypatch.setattr(server, "issue", lambda *given, **named: issue(*given, **named) | BAD_TOKENS[kind])
    async with serving_oauth(server) as url, opened(url) as (app, _, base):
        page = await log_in(f"{base}/login/up")
        assert await app.servers.logins.vault.get("up", "", NAME) is None

    assert page.status_code == 503, page.text
    assert "token" in page.text


@attack("server", "says that its token is valid for 10^400 seconds", "it is a long time, and the login succeeds")
async def test_a_token_may_say_that_it_lives_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    server = OAuthServer()
    issue = server.issue
    monkeypatch.setattr(server, "issue", lambda *given, **named: issue(*given, **named) | {"expires_in": 10**400})
    async with serving_oauth(server) as url, opened(url) as (app, client, base):
        await log_in_first(app, base)
        assert await echo(client) == "hi"
        grant = await stored(app)

    assert grant.expires_at > time.time() + 86_400


# Renewal


async def test_tokens_are_renewed_ahead_of_time_once_and_no_call_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    # Renewed after a second, and good for so long that no call on a busy machine comes too late.
    monkeypatch.setattr(grant_module, "MARGIN_SHARE", 0.9)
    server = OAuthServer(ttl_s=10)
    async with serving_oauth(server) as url, opened(url) as (app, client, base):
        await log_in_first(app, base)
        refused = server.counts["refused"]
        began = time.monotonic()
        while server.counts["refresh_token"] < 3:
            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(echo, client)
            await anyio.sleep(0.02)

    assert server.counts["reused"] == 0
    assert server.counts["refresh_token"] == 3
    assert time.monotonic() - began > 2, "one for each expiry"
    assert server.counts["refused"] == refused, "a token was used after its end"


@pytest.mark.parametrize("version", ERAS)
async def test_a_refused_token_is_renewed_once_for_all_calls_and_the_session_stays(version: str) -> None:
    inner = HttpServer(version=version)
    server = OAuthServer(inner)
    async with serving_oauth(server) as url, opened(url) as (app, client, base):
        await log_in_first(app, base)
        if version != STATELESS:
            await client.call_tool("up__count")
        server.expire_all()
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(echo, client)
        counted = text_of(await client.call_tool("up__count")) if version != STATELESS else "2"
        starts = report(app).restarts

    assert server.counts["refresh_token"] == 1
    assert counted == "2", "the session was lost with the token"
    assert starts <= 1


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_gateways_of_one_store_renew_a_token_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url_of_store = f"sqlite:{tmp_path / 'store.db'}"
    if kind == "postgres":
        postgres: Postgres = request.getfixturevalue("postgres")
        url_of_store = postgres.new_url()
    config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=url_of_store), project=str(tmp_path))
    server = OAuthServer()
    async with (
        serving_oauth(server) as url,
        opened(url, config=config) as (app, one, base),
        opened(url, config=config) as (second, two, _),
    ):
        await log_in_first(app, base)
        await until(lambda: any(tool.contract.name == "up__echo" for tool in second.gateway.catalog))
        for _ in range(3):
            server.expire_all()
            server.token_delay_s = 0.1
            async with anyio.create_task_group() as tasks:
                for client in [one, two] * 5:
                    tasks.start_soon(echo, client)

    assert server.counts["reused"] == 0
    assert server.counts["refresh_token"] == 3


async def test_a_refused_renewal_requires_a_login_and_says_why() -> None:
    server = OAuthServer()
    async with serving_oauth(server) as url, opened(url) as (app, client, base):
        await log_in_first(app, base)
        server.expire_all()
        server.token_error = 400, "invalid_grant"
        errors = [error_of(await client.call_tool("up__echo")) for _ in range(3)]
        names = [tool.name for tool in (await client.list_tools()).tools]
        server.token_error = None
        await log_in(errors[-1]["details"]["url"])
        text = await echo(client)

    assert [error["code"] for error in errors] == ["LOGIN_REQUIRED"] * 3
    assert "invalid_grant: as the test wants" in errors[0]["message"]
    assert server.counts["refresh_token"] == 1, "a refused refresh token was sent again"
    assert "up__echo" in names
    assert text == "hi"


async def test_an_authorization_server_that_is_down_requires_no_login() -> None:
    server = OAuthServer()
    async with serving_oauth(server) as url, opened(url) as (app, client, base):
        await log_in_first(app, base)
        server.expire_all()
        server.token_error = 503, "temporarily_unavailable"
        error = error_of(await client.call_tool("up__echo"))
        server.token_error = None
        text = await echo(client)

    assert error["code"] == "UPSTREAM_UNAVAILABLE"
    assert "HTTP 503" in error["message"]
    assert text == "hi"


async def test_a_new_token_that_expires_on_its_way_is_renewed_again() -> None:
    server, texts = OAuthServer(), list[str]()
    async with serving_oauth(server) as url, opened(url) as (app, client, base):
        await log_in_first(app, base)
        await echo(client)
        server.expire_all()
        lasting_s, server.ttl_s = server.ttl_s, 1
        server.mcp_delays_s = [0.0, 1.1]

        async def call() -> None:
            texts.append(await echo(client))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await until(lambda: server.counts["refresh_token"] == 1)
            server.ttl_s = lasting_s

    assert texts == ["hi"]
    assert server.counts["refresh_token"] == 2
    assert server.mcp_delays_s == []


@pytest.mark.parametrize("was_answered", [False, True])
async def test_a_renewal_that_was_killed_is_tried_once_more(was_answered: bool) -> None:
    """A gateway was killed after it had sent the refresh token, before or after the authorization server replaced it."""
    server = OAuthServer()
    async with serving_oauth(server) as url, opened(url) as (app, client, base):
        await log_in_first(app, base)
        grant = await stored(app)
        await store(app, msgspec.structs.replace(grant, renewal_began_at=time.time()))
        server.expire_all()
        if was_answered:
            server.refresh[grant.refresh_token].used.add(grant.refresh_token)
        answer = await client.call_tool("up__echo", {"text": "hi"})

    if was_answered:
        error = error_of(answer)
        assert error["code"] == "LOGIN_REQUIRED"
        assert "interrupted, and the new ones are lost" in error["message"]
    else:
        assert text_of(answer) == "hi"
    assert server.counts["refresh_token"] == 1


async def test_a_cancelled_call_does_not_lose_the_renewed_token() -> None:
    server = OAuthServer()
    async with serving_oauth(server) as url, opened(url) as (app, client, base):
        await log_in_first(app, base)
        server.expire_all()
        server.token_delay_s = 0.3
        with anyio.move_on_after(0.1):
            await echo(client)
        text = await echo(client)

    assert text == "hi"
    assert (server.counts["refresh_token"], server.counts["reused"]) == (1, 0)


async def test_a_renewal_that_hangs_does_not_delay_a_client_that_begins() -> None:
    server = OAuthServer(ttl_s=1)
    async with serving_oauth(server) as url, opened(url) as (app, client, base):
        await log_in_first(app, base)
        await anyio.sleep(1.1)  # the token has expired
        server.token_pause.clear()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(echo, client)
            await until(lambda: server.counts["refresh_token"] == 1)
            with anyio.fail_after(fetch.FETCH_S - 3):
                for mode in ("legacy", STATELESS):
                    async with Client(f"{base}/mcp", mode=mode) as other:
                        assert (await other.list_tools()).tools
            server.ttl_s = 600
            server.token_pause.set()


@pytest.mark.parametrize("missing", ["token", "login", "session"])
async def test_a_call_whose_answer_is_resumed_runs_once(missing: str) -> None:
    """The server cuts the stream of a call that it has accepted, and then refuses the request for the rest of it."""
    inner = HttpServer(version="2025-06-18")

    async def forget_after_call(scope: Any, receive: Any, send: Any) -> None:
        await inner(scope, receive, send)
        if scope["method"] == "POST" and inner.methods[-1] == "tools/call":
            if missing == "session":
                inner.forget_sessions()
                return
            server.expire_all()
            if missing == "login":
                server.refresh.clear()

    async def elicit(context: Any, params: Any) -> Any:
        await log_in(params.url)
        return ElicitResult(action="accept")

    server = OAuthServer(forget_after_call)
    async with (
        serving_oauth(server) as url,
        opened(url) as (app, _, base),
        Client(f"{base}/mcp", mode=STATELESS, elicitation_callback=elicit) as client,
    ):
        await log_in_first(app, base)
        answer = await client.call_tool("up__resume")

    assert inner.methods.count("tools/call") == 1, "it ran twice"
    if missing == "token":
        assert text_of(answer) == "resumed"
        assert server.counts["refresh_token"] == 1
    else:
        assert error_of(answer)["code"] == "UPSTREAM_UNAVAILABLE"


async def test_a_refresh_token_stays_with_its_registration() -> None:
    server = OAuthServer()
    async with serving_oauth(server) as url, opened(url) as (app, client, base):
        await log_in_first(app, base)
        grant = await stored(app)
        # Registered at another address before, as by `toolpost login`.
        elsewhere = msgspec.structs.replace(grant.registration, redirect_uri="http://127.0.0.1:1/callback")
        await store(app, msgspec.structs.replace(grant, registration=elsewhere))
        await log_in(f"{base}/login/up")
        new = await stored(app)
        server.expire_all()
        text = await echo(client)

    assert (grant.registration.client_id, new.registration.client_id) == ("client-1", "client-2")
    assert text == "hi"
    assert [form["client_id"] for form in server.forms if "refresh_token" in form] == ["client-2"]


async def test_a_token_is_not_sent_to_another_server_of_the_same_name(tmp_path: Path) -> None:
    config = msgspec.structs.replace(
        IN_MEMORY, store=StoreSettings(url=f"sqlite:{tmp_path / 'store.db'}"), project=str(tmp_path)
    )
    first, second = OAuthServer(), HttpServer()
    async with serving_oauth(first) as url, opened(url, config=config) as (app, client, base):
        await log_in_first(app, base)
        await echo(client)
    async with serving_oauth(OAuthServer(second)) as url, opened(url, config=config) as (_, client, _base):
        error = error_of(await client.call_tool("up__echo"))

    assert error["code"] == "LOGIN_REQUIRED"
    assert second.headers == []


# Grants without a person


async def test_client_credentials_and_token_exchange_need_no_login() -> None:
    server = OAuthServer()
    machine = AuthSpec(type="client_credentials", client_id="me:you", client_secret="s3cret-of-the-test")
    exchange = AuthSpec(type="token_exchange", client_id="me", subject_token="subject-of-the-test", audience="tasks")
    for auth in (machine, exchange):
        async with serving_oauth(server) as url, opened(url, auth=auth) as (app, client, _):
            text = await echo(client)
            server.expire_all()
            again = await echo(client)
            error = await app.servers.logins.vault.get("up", "", NAME)
        assert (text, again) == ("hi", "hi")
        assert error is not None

    assert [form["grant_type"].rpartition(":")[2] for form in server.forms] == [
        *["client_credentials"] * 2,
        *["token-exchange"] * 2,
    ]
    assert server.forms[2]["subject_token"] == "subject-of-the-test"
    assert server.forms[2]["audience"] == "tasks"
    assert "client_secret" not in server.forms[0], "it belongs into the header"


async def test_a_server_that_names_another_issuer_gets_no_secret() -> None:
    server = OAuthServer()
    auth = AuthSpec(type="client_credentials", client_id="me", client_secret="s3cret", issuer="https://as.example")
    async with serving_oauth(server) as url, opened(url, auth=auth) as (app, _client, _):
        await until(lambda: report(app).state == "failed")

    assert "/.well-known/oauth-protected-resource/mcp" in server.paths
    assert server.forms == []


async def test_the_resource_can_be_left_out() -> None:
    server = OAuthServer()
    auth = AuthSpec(resource="", parameters={"access_type": "offline"})
    async with serving_oauth(server) as url, opened(url, auth=auth) as (app, _, base):
        async with httpx2.AsyncClient() as browser:
            link = await find_link(browser, f"{base}/login/up")
        await log_in_first(app, base)

    assert "resource=" not in link
    assert "access_type=offline" in link
    assert "resource" not in server.forms[0]


# Secrets


async def test_token_bytes_are_nowhere_but_in_the_vault(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = msgspec.structs.replace(
        IN_MEMORY, store=StoreSettings(url=f"sqlite:{tmp_path / 'store.db'}"), project=str(tmp_path)
    )
    server = OAuthServer()
    caplog.set_level(logging.DEBUG)
    async with serving_oauth(server) as url, opened(url, config=config) as (app, client, base):
        await log_in_first(app, base)
        await echo(client)
        server.expire_all()
        await echo(client)
        tokens = [*server.seen_tokens, *server.refresh, *server.codes]
        server.expire_all()
        server.token_error = 400, "invalid_grant"
        error = error_of(await client.call_tool("up__echo"))
        shown = json.dumps([error, repr(app.servers.providers["up"].spec), repr(report(app)), repr(await stored(app))])
        async with httpx2.AsyncClient() as admin:
            shown += (await admin.get(f"{base}/api/servers")).text
    files = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())

    assert len(set(tokens)) >= 4
    for token in tokens:
        assert token not in caplog.text
        assert token not in shown
        assert token.encode() not in files


async def test_settings_with_secrets_are_concealed(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(
        '[servers.up]\nurl = "https://mcp.example.com/mcp"\n[servers.up.auth]\nclient_id = "me"\nclient_secret = "s3cr3t-v4lue"\n'
        'issuer = "https://as.example.com"\n'
    )
    from toolpost.settings import load_config
    from toolpost.settings.masking import find_secrets
    from toolpost.settings.secrets import redact_server

    config = load_config(tmp_path / "toolpost.toml")
    resolved = config.resolve_server("up")

    assert "s3cr3t-v4lue" not in repr(config.servers) + repr(resolved)
    assert "s3cr3t-v4lue" in find_secrets(resolved)
    assert "s3cr3t-v4lue" not in str(msgspec.to_builtins(redact_server(config.servers["up"])))


# Callers


async def test_each_caller_uses_a_login_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("ann", "bob", "cyd")
    for name in names:
        monkeypatch.setenv(name.upper(), f"token-of-{name}-{name * 10}")
    callers = {name: CallerSettings(token=f"${{{name.upper()}}}") for name in names}
    config = msgspec.structs.replace(IN_MEMORY, callers=callers)
    server = OAuthServer()
    async with (
        serving_oauth(server) as url,
        open_app(config, bundled=False, servers=[ServerSpec(name="up", url=url, credentials="caller")]) as app,
        open_http(app) as front,
    ):

        async def call(name: str) -> Any:
            headers = {"authorization": f"Bearer token-of-{name}-{name * 10}"}
            async with (
                httpx2.AsyncClient(headers=headers) as http,
                Client(streamable_http_client(front, http_client=http), mode=STATELESS) as client,
            ):
                if not any(tool.name == "up__echo" for tool in (await client.list_tools()).tools):
                    return None
                return await client.call_tool("up__echo", {"text": name})

        unknown = await call("ann")
        owner = Caller(id=CallerId("ann"), transport="http")
        page = await log_in(app.servers.logins.make_url("up", owner) or "")
        await until(lambda: len(server.seen_tokens) >= 2)
        with anyio.fail_after(30):
            while (answer := await call("ann")) is None:
                await anyio.sleep(0.05)
        hidden = await call("bob")
        await log_in(app.servers.logins.make_url("up", Caller(id=CallerId("bob"), transport="http")) or "")
        with anyio.fail_after(30):
            while (other := await call("bob")) is None:
                await anyio.sleep(0.05)
            seen = len(server.seen_tokens)
            # The tools that ann and bob have in common.
            while (without := await call("cyd")) is None:
                await anyio.sleep(0.05)
        error = error_of(without)
        seen_for_cyd = server.seen_tokens[seen:]
        used = {name: app.servers.logins.vault.get("up", name, NAME) for name in ("ann", "bob")}
        grants = {name: decode_grant(await reading or b"") for name, reading in used.items()}

    assert unknown is None
    assert hidden is None, "what a single caller is listed was shown to another"
    assert "calls of <b>ann</b>" not in page.text
    assert "Calls of ann use it now" in page.text
    assert text_of(answer) == "ann"
    assert (error["code"], seen_for_cyd) == ("LOGIN_REQUIRED", []), "a login of another caller was used"
    assert error["details"]["url"].startswith(front.removesuffix("/mcp"))
    assert text_of(other) == "bob"
    tokens = {grant.access_token for grant in grants.values() if grant is not None}
    assert len(tokens) == 2
    assert set(server.seen_tokens) == tokens


def serve_older(mcp_server: Server[Any]) -> Any:
    """Make an application of a server with the older HTTP+SSE transport."""
    older = SseServerTransport("/messages/")

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/messages/":
            await older.handle_post_message(scope, receive, send)
        elif scope["method"] == "GET":
            async with older.connect_sse(scope, receive, send) as (reader, writer):
                await mcp_server.run(reader, writer, mcp_server.create_initialization_options())
        else:
            await Response(status_code=405)(scope, receive, send)

    return serve


@pytest.mark.parametrize("transport", [None, "sse"])
async def test_a_server_of_the_older_transport_takes_tokens_too(transport: Any) -> None:
    inner = serve_older(sdk_server)
    server = OAuthServer(inner)
    async with serving_oauth(server) as url, opened(url, transport=transport) as (app, client, base):
        await log_in(f"{base}/login/up")
        await until(lambda: any(tool.contract.name == "up__add" for tool in app.gateway.catalog))
        first = await client.call_tool("up__add", {"a": 1, "b": 2})
        server.expire_all()
        second = await client.call_tool("up__add", {"a": 2, "b": 2})
        server.expire_all()
        server.token_error = 400, "invalid_grant"
        error = error_of(await client.call_tool("up__add", {"a": 1, "b": 2}))
        seen = report(app)

    assert [first.structured_content, second.structured_content] == [{"sum": 3}, {"sum": 4}]
    assert server.counts["refresh_token"] == 2
    assert error["code"] == "LOGIN_REQUIRED"
    assert seen.transport == "sse"


async def test_over_the_older_transport_a_login_repeats_only_the_calls_that_were_refused() -> None:
    ran: list[str] = []
    released = anyio.Event()

    async def list_tools(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name=name, input_schema={"type": "object"}) for name in ("slow", "quick")])

    async def call_tool(_context: Any, params: Any) -> CallToolResult:
        ran.append(params.name)
        if params.name == "slow":
            await released.wait()
        return CallToolResult(content=[TextContent(text=params.name)])

    async def elicit(context: Any, params: Any) -> Any:
        await log_in(params.url)
        return ElicitResult(action="accept")

    server = OAuthServer(serve_older(Server("slow", on_list_tools=list_tools, on_call_tool=call_tool)))
    answers: dict[str, Any] = {}
    async with (
        serving_oauth(server) as url,
        opened(url, transport="sse") as (app, _, base),
        Client(f"{base}/mcp", mode=STATELESS, elicitation_callback=elicit) as client,
    ):

        async def call(tool: str, number: int) -> None:
            answers[f"{tool}{number}"] = await client.call_tool(f"up__{tool}")

        await log_in(f"{base}/login/up")
        await until(lambda: any(tool.contract.name == "up__slow" for tool in app.gateway.catalog))
        async with anyio.create_task_group() as calls:
            calls.start_soon(call, "slow", 1)
            await until(lambda: ran == ["slow"])
            server.expire_all()
            server.refresh.clear()
            server.token_pause.clear()
            for number in (1, 2):
                calls.start_soon(call, "quick", number)
            await until(lambda: server.counts["refresh_token"] == 1)
            await until(lambda: report(app).in_flight == 3)
            server.token_pause.set()
            await until(lambda: "slow1" in answers)
            released.set()

    assert sorted(ran) == ["quick", "quick", "slow"], "a call that the server had accepted was sent again"
    assert error_of(answers["slow1"])["code"] == "UPSTREAM_UNAVAILABLE"
    assert [text_of(answers[f"quick{number}"]) for number in (1, 2)] == ["quick", "quick"]
