"""Logins on another device (RFC 8628): how often is asked, when that ends, and what is refused."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.upstreams.servers.oauth_server import OAuthServer, serving_oauth
from toolpost.contracts.errors import ToolpostError
from toolpost.credentials.device import begin_device_login, finish_device_login
from toolpost.credentials.fetch import UnsafeUrl
from toolpost.credentials.grant import NAME, decode_grant
from toolpost.credentials.keys import KeyFile
from toolpost.credentials.login_flow import LoginFailed
from toolpost.credentials.server_tokens import ServerToken
from toolpost.credentials.vault import Vault
from toolpost.store import open_store
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


@asynccontextmanager
async def opened(server: OAuthServer, tmp_path: Path) -> AsyncIterator[tuple[ServerToken, Vault]]:
    async with serving_oauth(server) as url, open_store("sqlite::memory:") as store:
        vault = Vault(store, KeyFile(tmp_path / "credentials.key"))
        yield ServerToken(ServerSpec(name="up", url=url), vault), vault


def server_with(*errors: int | str, **answer: Any) -> OAuthServer:
    server = OAuthServer()
    server.device, server.device_errors = answer, list(errors)
    return server


async def test_slow_down_and_failures_make_it_ask_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    sleep = anyio.sleep

    async def note(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    server = server_with("authorization_pending", "slow_down", "authorization_pending", 503, "slow_down", interval=2)
    async with opened(server, tmp_path) as (server_token, vault):
        login = await begin_device_login(server_token)
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "sleep", note)
            grant = await finish_device_login(server_token, vault, login)
        stored = decode_grant(await vault.get("up", "", NAME) or b"")

    assert [seconds for seconds in slept if seconds > 0.5] == [2, 2, 7, 7, 14, 19]
    assert stored == grant
    assert server_token.header == f"Bearer {grant.access_token}"
    assert grant.registration.redirect_uri is None


async def test_a_second_refusal_is_final(tmp_path: Path) -> None:
    reasons = {}
    for error in ("access_denied", "expired_token", "invalid_client"):
        server = server_with("authorization_pending", error)
        async with opened(server, tmp_path) as (server_token, vault):
            login = await begin_device_login(server_token)
            with pytest.raises(ToolpostError) as raised:
                await finish_device_login(server_token, vault, login)
            assert await vault.get("up", "", NAME) is None
        reasons[error] = raised.value.message

    assert "refused on the other device" in reasons["access_denied"]
    assert "expired" in reasons["expired_token"]
    assert "invalid_client" in reasons["invalid_client"]


async def test_a_code_is_not_used_after_its_end(tmp_path: Path) -> None:
    server = server_with(*["authorization_pending"] * 100, expires_in=1.5)
    async with opened(server, tmp_path) as (server_token, vault):
        login = await begin_device_login(server_token)
        began = time.monotonic()
        with pytest.raises(LoginFailed, match="has expired"):
            await finish_device_login(server_token, vault, login)

    assert time.monotonic() - began < 30
    assert 2 <= len(server.forms) <= 15


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({"verification_uri": "javascript:alert(1)"}, UnsafeUrl),
        ({"verification_uri_complete": "http://169.254.169.254/latest"}, UnsafeUrl),
        ({"verification_uri": "http://accounts.example@127.0.0.1/"}, ToolpostError),
        ({"device_code": None}, LoginFailed),
        ({"expires_in": "soon"}, LoginFailed),
        ({"user_code": "\x1b[2J"}, LoginFailed),
    ],
)
async def test_answers_that_lead_elsewhere_are_refused(
    answer: dict[str, Any], kind: type[Exception], tmp_path: Path
) -> None:
    async with opened(server_with(**answer), tmp_path) as (server_token, _):
        with pytest.raises(kind):
            await begin_device_login(server_token)


async def test_an_endpoint_inside_is_not_asked(tmp_path: Path) -> None:
    server = server_with()
    server.metadata["device_authorization_endpoint"] = "http://169.254.169.254/device"
    async with opened(server, tmp_path) as (server_token, _):
        with pytest.raises(UnsafeUrl):
            await begin_device_login(server_token)
