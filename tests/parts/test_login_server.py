"""An authorization server that a part brings, by the names that a guide shows."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from toolpost.app import open_app, open_http
from toolpost.base.passphrase import hash_passphrase
from toolpost.endpoints.http import Claims, Login
from toolpost.parts import Host, Part, TokenIssuer
from toolpost.settings import Config, load_config

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

URL = "http://127.0.0.1:8420"


class Badges(TokenIssuer):
    """Accepts `badge-NAME`."""

    issuer = URL
    resource = f"{URL}/mcp"
    scopes = ("badges",)

    def hash_secrets(self, secrets: str) -> str:
        return f"hash of {len(secrets)}"

    def has_issued(self, token: bytes) -> bool:
        return token.startswith(b"badge-")

    async def find_claims(self, token: bytes) -> Claims | None:
        name = token.removeprefix(b"badge-").decode()
        if name == "lost":
            return None
        # What it has kept of the caller's secrets since the login.
        kept = self.hash_secrets(f"{HASH}\nNone")
        login = Login(grant=name, caller=name, secrets_hash=kept)
        return Claims(subject=None, client=None, scopes=frozenset(), expires_at=time.time() + 30, login=login)


HASH = hash_passphrase("correct horse battery")


@asynccontextmanager
async def open_badges(host: Host) -> AsyncIterator[Sequence[object]]:
    yield [Badges()]


def is_required(config: Config) -> bool:
    return True


BADGE_PART = Part(name="badges", opens=open_badges, is_required=is_required)


async def test_the_endpoint_accepts_tokens_of_a_part(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(
        '[http]\nlisten = "127.0.0.1:0"\n[store]\nurl = "sqlite::memory:"\n'
        f'[callers.ada]\npassphrase_hash = "{HASH}"\nadmin = true\n'
    )
    config = load_config(tmp_path / "toolpost.toml")
    async with (
        open_app(config, bundled=False, parts=[BADGE_PART]) as app,
        open_http(app) as url,
        httpx2.AsyncClient(timeout=20) as http,
    ):

        async def ask(token: str, path: str = "") -> httpx2.Response:
            headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            return await http.post(f"{url}{path}", json=ping, headers=headers)

        ada, bob, lost, other = [await ask(token) for token in ("badge-ada", "badge-bob", "badge-lost", "other")]
        elsewhere = await http.get(
            f"{url.removesuffix('/mcp')}/api/servers", headers={"authorization": "Bearer badge-ada"}
        )

    assert ada.status_code == 400, "admitted: the SDK refuses a ping without a session"
    assert [each.status_code for each in (bob, lost, other)] == [401, 401, 401]
    assert 'scope="badges"' in other.headers["www-authenticate"]
    assert elsewhere.status_code == 403
