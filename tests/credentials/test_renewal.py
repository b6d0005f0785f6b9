"""Renewal of access tokens when something fails on the way: a refresh token is never lost without need."""

import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import msgspec
import pytest

from tests.hostile.served import call_body, open_gateway
from tests.hostile.served import request as request_of
from tests.upstreams.servers.http_server import serving
from tests.upstreams.servers.oauth_server import Issued, OAuthServer, serving_oauth
from toolpost.base.redaction import REDACTED, conceal_known
from toolpost.contracts.errors import LoginRequired, StoreUnavailable, UpstreamUnavailable
from toolpost.credentials import fetch, server_tokens
from toolpost.credentials.grant import NAME, Grant, Registration, TokenTerms, decode_grant, encode_grant
from toolpost.credentials.keys import KeyFile
from toolpost.credentials.server_tokens import ServerToken
from toolpost.credentials.vault import Vault
from toolpost.settings import load_config
from toolpost.settings.key_place import key_place_of
from toolpost.store import open_store
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


def make_grant(server: OAuthServer, url: str) -> Grant:
    """Have a server issue the tokens of a login."""
    issued = server.issue(Issued("client-1", ""), has_refresh=True)
    return Grant(
        access_token=issued["access_token"],
        refresh_token=issued["refresh_token"],
        obtained_at=time.time(),
        terms=TokenTerms(
            url=url,
            issuer=server.base,
            token_endpoint=f"{server.base}/token",
            revocation_endpoint=f"{server.base}/revoke",
        ),
        registration=Registration(client_id="client-1", issuer=server.base),
    )


@asynccontextmanager
async def logged_in(server: OAuthServer, tmp_path: Path) -> AsyncIterator[tuple[ServerToken, Vault]]:
    """Serve it, and open an authorization for it with the tokens of a login."""
    async with serving_oauth(server) as url, open_store("sqlite::memory:") as store:
        vault = Vault(store, KeyFile(tmp_path / "credentials.key"))
        await vault.put("up", "", NAME, encode_grant(make_grant(server, url)))
        server_token = ServerToken(ServerSpec(name="up", url=url), vault)
        await server_token.load()
        yield server_token, vault
        await server_token.close()


async def test_secrets_stay_concealed_as_long_as_they_are_valid(tmp_path: Path) -> None:
    """Two callers have tokens of the same client, whose secret is in the settings, and one of them logs out."""
    secret = "s3cret/of the client"
    async with logged_in(OAuthServer(), tmp_path) as (server_token, vault):
        grant = await stored(vault)
        registration = msgspec.structs.replace(grant.registration, client_secret=secret)
        lasting = msgspec.structs.replace(grant, registration=registration, expires_at=time.time() + 60)
        expired = msgspec.structs.replace(lasting, access_token="acc3ss/expired", expires_at=time.time() - 1)
        for one in (expired, lasting):
            await vault.put("up", "", NAME, encode_grant(one))
            await server_token.load()
        await vault.remove("up", "", NAME)
        await server_token.load()
        text = f"{secret} {quote(secret, safe='')} {grant.access_token} {grant.refresh_token} {expired.access_token}"
        shown = conceal_known(text)

    assert shown == " ".join([REDACTED] * 4 + [expired.access_token])


async def test_a_token_is_not_sent_to_another_server_on_the_same_host(tmp_path: Path) -> None:
    async with logged_in(OAuthServer(), tmp_path) as (server_token, vault):
        other = ServerToken(ServerSpec(name="up", url=server_token.url.replace("/mcp", "/tenants/other/mcp")), vault)
        await other.prepare()

    assert server_token.header is not None
    assert other.header is None


async def renew(server_token: ServerToken) -> None:
    """Do what a transport does when the server refuses the token."""
    assert await server_token.handle_refusal(401, "", used=server_token.header)


async def stored(vault: Vault) -> Grant:
    grant = decode_grant(await vault.get("up", "", NAME) or b"")
    assert grant is not None
    return grant


def break_store(vault: Vault, broken: pytest.MonkeyPatch) -> None:
    """Make all statements fail as they do when the database cannot be reached."""

    async def fail(*_: object, **__: object) -> None:
        raise StoreUnavailable

    for name in ("read", "run"):
        broken.setattr(vault._scripts, name, fail)


async def test_a_turn_that_comes_late_is_not_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_tokens, "RENEWAL_S", 3)
    server = OAuthServer()
    async with logged_in(server, tmp_path) as (server_token, vault), anyio.create_task_group() as tasks:
        before = server_token.header
        server.token_delay_s = 2

        is_held = anyio.Event()

        async def hold() -> None:
            async with vault.lease("up", "", NAME, seconds=60):
                is_held.set()
                await anyio.sleep(1.5)  # it is slow on purpose

        tasks.start_soon(hold)
        await is_held.wait()
        await renew(server_token)
        after = server_token.header

    assert after != before


async def test_answers_that_do_not_come_cost_no_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "FETCH_S", 0.05)
    monkeypatch.setattr(server_tokens, "BACKOFF_S", 0.0)
    server = OAuthServer()
    async with logged_in(server, tmp_path) as (server_token, vault):
        server.rotates = False
        server.token_pause.clear()
        for _ in range(4):
            with pytest.raises(UpstreamUnavailable):
                await renew(server_token)
        server.token_pause.set()
        monkeypatch.undo()
        await renew(server_token)
        grant = await stored(vault)

    assert (grant.problem, grant.renewal_began_at) == (None, None)


async def test_a_refused_client_keeps_its_refresh_token(tmp_path: Path) -> None:
    server = OAuthServer()
    async with logged_in(server, tmp_path) as (server_token, vault):
        before = await stored(vault)
        for code in ("invalid_client", "unauthorized_client"):
            server.token_error = 401, code
            with pytest.raises(LoginRequired, match=code):
                await renew(server_token)
        kept = await stored(vault)

    assert kept == before


async def test_new_tokens_are_used_and_stored_later_if_the_store_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_tokens, "SAVE_S", 0.05)
    server = OAuthServer()
    async with logged_in(server, tmp_path) as (server_token, vault):
        before = server_token.header
        server.token_pause.clear()
        with pytest.MonkeyPatch.context() as broken:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(renew, server_token)
                while not server.forms:
                    await anyio.sleep(0.01)
                break_store(vault, broken)
                server.token_pause.set()
            await server_token.load()
            used = server_token.header
            await anyio.sleep(0.1)  # the time for storing is over
        with anyio.fail_after(30):
            while (grant := await stored(vault)).renewal_began_at is not None:
                await anyio.sleep(0.01)

    assert used != before
    assert used == f"Bearer {grant.access_token}"
    assert grant.refresh_token in server.refresh


@pytest.mark.parametrize(("retry_after", "requests"), [("", 2), ("Fri, 31 Dec 2100 23:59:59 GMT", 1)])
async def test_an_authorization_server_that_fails_gets_a_pause(
    retry_after: str, requests: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = OAuthServer()
    server.token_error, server.retry_after = (503, "temporarily_unavailable"), retry_after
    async with logged_in(server, tmp_path) as (server_token, _):
        for _ in range(5):
            with pytest.raises(UpstreamUnavailable, match="HTTP 503"):
                await renew(server_token)
        during = server.counts["refresh_token"]
        server.token_error = None
        later = time.monotonic() + server_tokens.RETRY_AFTER_LIMIT_S
        monkeypatch.setattr(time, "monotonic", lambda: later)
        await renew(server_token)

    assert during == requests
    assert server.counts["refresh_token"] == requests + 1


async def test_a_server_that_refuses_every_token_does_not_use_up_refresh_tokens(tmp_path: Path) -> None:
    async def renew_in_vain() -> None:
        await renew(server_token)
        raise server_token.make_repeated_error()

    server = OAuthServer()
    async with logged_in(server, tmp_path) as (server_token, _):
        for _ in range(5):
            with pytest.raises(LoginRequired, match="a new token, too"):
                await renew_in_vain()

    assert server.counts["refresh_token"] == 2


@pytest.mark.parametrize("has_grant", [False, True])
async def test_calls_go_on_while_the_store_cannot_be_reached(
    has_grant: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with logged_in(OAuthServer(), tmp_path) as (server_token, vault):
        if not has_grant:
            await vault.remove("up", "", NAME)
            await server_token.load()
        before = server_token.header
        break_store(vault, monkeypatch)
        await server_token.prepare()
        during = server_token.header
        later = time.monotonic() + server_tokens.OUTAGE_S + 1
        monkeypatch.setattr(time, "monotonic", lambda: later)
        if has_grant:
            with pytest.raises(StoreUnavailable):
                await server_token.prepare()
        else:
            await server_token.prepare()
        monkeypatch.undo()

    assert during == before
    assert server_token.fresh_until > time.time()


async def test_a_logout_during_a_renewal_revokes_the_new_tokens(tmp_path: Path) -> None:
    server = OAuthServer()
    async with logged_in(server, tmp_path) as (server_token, vault), anyio.create_task_group() as tasks:
        server.token_delay_s = 0.2
        tasks.start_soon(renew, server_token)
        while len(server.access) == 1:
            await anyio.sleep(0.01)
        _, new = server.access
        command = ServerToken(server_token.spec, vault)
        is_revoked = await command.log_out()
        again = await command.log_out()

    assert (is_revoked, again) == (True, None)
    assert new not in server.access


class Killer:
    """Lets a server answer a refresh token, and kills the gateway that sent it before that can read the answer."""

    def __init__(self, server: OAuthServer) -> None:
        self.server = server
        self.victim: int | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        victim = self.victim if scope["path"] == "/token" else None
        if victim is not None:
            os.kill(victim, signal.SIGSTOP)
        await self.server(scope, receive, send)
        if victim is not None:
            os.kill(victim, signal.SIGKILL)
            self.victim = None


@pytest.mark.parametrize(
    ("kind", "rotates"),
    [("postgres", True), *(pytest.param("sqlite", rotates, marks=pytest.mark.soak) for rotates in (True, False))],
)
async def test_a_gateway_that_is_killed_before_it_stores_new_tokens(
    kind: str, rotates: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The next one tries the old refresh token once, and tells why a person has to log in again if that is spent."""
    store = request.getfixturevalue("postgres").new_url() if kind == "postgres" else f"sqlite:{tmp_path / 'state.db'}"
    server = OAuthServer()
    server.rotates = rotates
    killer = Killer(server)
    (tmp_path / "quick.py").write_text(QUICK)
    async with serving(killer) as url:
        server.base = url.removesuffix("/mcp")
        config = f'[store]\nurl = "{store}"\n[servers.up]\nurl = "{url}"\n'
        (tmp_path / "toolpost.toml").write_text(config)
        async with open_store(store) as opened:
            vault = Vault(opened, key_place_of(load_config(tmp_path / "toolpost.toml")))
            await vault.put("up", "", NAME, encode_grant(make_grant(server, url)))

        def call(*, kill: bool) -> list[Any]:
            with open_gateway(tmp_path, config, plugins=["quick:plugin"], PYTHONPATH=str(tmp_path)) as gateway:
                if kill:
                    killer.victim = gateway.process.pid
                    server.expire_all()
                body = call_body("hi", "up__echo")
                asked = [request_of(body, mcp_name="up__echo", connection="close")] * (1 if kill else 2)
                answers = [gateway.send(each, timeout_s=30).partition(b"\r\n\r\n")[2] for each in asked]
                return [json.loads(each)["result"]["content"][0]["text"] if each else None for each in answers]

        killed = await anyio.to_thread.run_sync(partial(call, kill=True))
        during = server.counts["refresh_token"]
        texts = await anyio.to_thread.run_sync(partial(call, kill=False))

    assert killed == [None], "it was killed under the call"
    assert during == 1
    assert server.counts["refresh_token"] == 2, "the old token is tried once"
    if rotates:
        errors = [json.loads(text) for text in texts]
        assert [error["code"] for error in errors] == ["LOGIN_REQUIRED"] * 2
        assert all("interrupted, and the new ones are lost" in error["message"] for error in errors)
        assert server.counts["reused"] == 1
    else:
        assert texts == ["hi", "hi"]


QUICK = """
from toolpost import Plugin
from toolpost.credentials import server_tokens

server_tokens.RENEWAL_S = 1.5  # The next gateway waits for the lease of the one that was killed.
plugin = Plugin("quick")
"""


async def test_an_error_that_is_raised_again_is_another_one(tmp_path: Path) -> None:
    """One that is raised for many calls would keep the frames of all of them, and each could change it for the others."""
    errors: list[LoginRequired] = []

    async def note(act: Callable[[], Awaitable[None]]) -> None:
        with pytest.raises(LoginRequired) as raised:
            await act()
        errors.append(raised.value)

    server = OAuthServer()
    async with logged_in(server, tmp_path) as (server_token, _):
        server.token_error = 400, "invalid_grant"
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(note, partial(renew, server_token))
        for _ in range(2):
            await note(server_token.check_start)

    assert len({id(error) for error in errors}) == 5
    assert len({error.message for error in errors}) == 1
    assert server.counts["refresh_token"] == 1
