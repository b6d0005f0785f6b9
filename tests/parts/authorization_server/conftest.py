"""A gateway at which people log in, and a browser that does what a person tells it."""

import base64
import hashlib
import re
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import pytest

from tests.postgres import Postgres
from tests.ways import BEHAVIOURS, plugin_of
from toolpost import Plugin
from toolpost.app import App, open_app, open_http
from toolpost.base import passphrase
from toolpost.parts.authorization_server import PART
from toolpost.settings import Config, load_config

REDIRECT = "http://127.0.0.1:9/callback"
PASSPHRASE = "correct horse battery"


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes take a tenth of a second by intent."""
    monkeypatch.setattr(passphrase, "LOG2_N", 4)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@dataclass
class Gateway:
    """A gateway, as its clients and people see it."""

    app: App
    url: str
    """Without `/mcp`."""
    http: httpx2.AsyncClient
    """A browser: it keeps cookies, and follows no redirects by itself."""
    secrets: list[str] = field(default_factory=list)
    """Codes and tokens that were seen: they must not be stored or logged."""

    async def register(self, **metadata: Any) -> dict[str, Any]:
        body = {"redirect_uris": [REDIRECT], "client_name": "Test", "token_endpoint_auth_method": "none"} | metadata
        answer = await self.http.post(f"{self.url}/register", json=body)
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def begin(self, client: str, pkce: "Pkce", **params: str | None) -> httpx2.Response:
        usual: dict[str, str | None] = {
            "response_type": "code",
            "client_id": client,
            "redirect_uri": REDIRECT,
            "state": "st-1",
            "code_challenge": pkce.challenge,
            "code_challenge_method": "S256",
            "resource": f"{self.url}/mcp",
        }
        query = {name: value for name, value in (usual | params).items() if value is not None}
        return await self.http.get(f"{self.url}/authorize?{urlencode(query)}")

    async def open_page(self, client: str, pkce: "Pkce", **params: str | None) -> httpx2.Response:
        begun = await self.begin(client, pkce, **params)
        assert begun.status_code == 302, begun.text
        return await self.http.get(begun.headers["location"])

    async def send_form(self, page: httpx2.Response, *, origin: str | None = None, **fields: str) -> httpx2.Response:
        hidden = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.text))
        headers = {"origin": origin or self.url}
        return await self.http.post(f"{self.url}/authorize/consent", data=hidden | fields, headers=headers)

    async def sign_in(self, page: httpx2.Response, name: str = "ada", text: str = PASSPHRASE) -> httpx2.Response:
        return await self.send_form(page, action="sign-in", name=name, passphrase=text)

    async def get_code(self, client: str, pkce: "Pkce", *, action: str = "allow", **params: str | None) -> str:
        page = await self.sign_in(await self.open_page(client, pkce, **params))
        done = await self.send_form(page, action=action)
        assert done.status_code == 303, done.text
        code = query_of(done.headers["location"])["code"]
        self.secrets.append(code)
        return code

    async def exchange(self, client: str, code: str, pkce: "Pkce", **fields: str) -> httpx2.Response:
        form = {
            "grant_type": "authorization_code",
            "client_id": client,
            "code": code,
            "redirect_uri": REDIRECT,
            "code_verifier": pkce.verifier,
        }
        return self._note(await self.http.post(f"{self.url}/token", data=form | fields))

    async def refresh(self, client: str, token: str, **fields: str) -> httpx2.Response:
        form = {"grant_type": "refresh_token", "client_id": client, "refresh_token": token}
        return self._note(await self.http.post(f"{self.url}/token", data=form | fields))

    async def log_in(self, *, action: str = "allow", **params: str | None) -> tuple[str, dict[str, Any]]:
        """Go the whole way; return the client id and the tokens."""
        client, pkce = str((await self.register())["client_id"]), Pkce()
        answer = await self.exchange(client, await self.get_code(client, pkce, action=action, **params), pkce)
        assert answer.status_code == 200, answer.text
        tokens: dict[str, Any] = answer.json()
        return client, tokens

    async def ping(self, token: str, path: str = "/mcp") -> int:
        """Return 400 for a token that is accepted: the SDK refuses a ping without a session."""
        headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        return (await self.http.post(f"{self.url}{path}", json=ping, headers=headers)).status_code

    def _note(self, answer: httpx2.Response) -> httpx2.Response:
        if answer.status_code == 200:
            self.secrets += [answer.json()["access_token"], answer.json()["refresh_token"]]
        return answer


class Pkce:
    """A verifier and its challenge."""

    def __init__(self) -> None:
        self.verifier = secrets.token_urlsafe(48)
        self.challenge = base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).decode().rstrip("=")


def query_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


OpenGateway = Callable[..., AbstractAsyncContextManager[Gateway]]


def config_of(
    folder: Path, store: str, port: int, text: str = "", callers: str | None = None, http: str = ""
) -> Config:
    hashed = passphrase.hash_passphrase(PASSPHRASE)
    people = f'[callers.ada]\npassphrase_hash = "{hashed}"\ntools = ["does__echo"]\n' if callers is None else callers
    (folder / "toolpost.toml").write_text(
        f'[http]\nlisten = "127.0.0.1:{port}"\n{http}\n[store]\nurl = "{store}"\n[login]\nenabled = true\n{text}\n{people}'
    )
    return load_config(folder / "toolpost.toml")


@pytest.fixture
def open_gateway(tmp_path: Path) -> OpenGateway:
    @asynccontextmanager
    async def opened(
        text: str = "",
        callers: str | None = None,
        store: str | None = None,
        plugins: Sequence[Plugin] = (),
        http: str = "",
        *,
        bundled: bool = False,
    ) -> AsyncIterator[Gateway]:
        port = free_port()
        config = config_of(tmp_path, store or f"sqlite:{tmp_path / 'store.db'}", port, text, callers, http)
        plugins = plugins or [plugin_of(BEHAVIOURS)]
        parts = None if bundled else [PART]
        async with open_app(config, plugins=plugins, bundled=bundled, parts=parts) as app, open_http(app) as url:
            async with httpx2.AsyncClient(follow_redirects=False, timeout=20) as browser:
                yield Gateway(app, url.removesuffix("/mcp"), browser)

    return opened


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new place in each kind of store."""
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        return server.new_url()
    return f"sqlite:{tmp_path / 'store.db'}"
