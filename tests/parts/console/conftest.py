"""What the tests of the console share: a gateway over HTTP in this process, and a browser's requests to it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from tests.postgres import Postgres
from toolpost.app import App, open_app, open_http
from toolpost.app.open import OpenOptions
from toolpost.app.reload import follow_config, follow_lock
from toolpost.authoring import Plugin
from toolpost.parts.console.gateway_id import make_gateway_id
from toolpost.parts.console.sessions import ConsoleSessions
from toolpost.settings import load_config

API = "/api/console"


@dataclass
class Site:
    """A gateway, and a client that sends what the console's page sends."""

    app: App
    http: httpx2.AsyncClient
    folder: Path

    async def get(self, path: str, **query: str) -> Any:
        answer = await self.http.get(f"{API}{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, **body: Any) -> httpx2.Response:
        return await self.http.post(f"{API}{path}", json=body)

    async def change(self, path: str, **body: Any) -> Any:
        answer = await self.post(path, **body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def log_in(self) -> None:
        """Do what opening the address that `toolpost serve` prints does."""
        begun = await self.change("/session", secret=await self.issue())
        self.http.headers["X-Toolpost-Session-Secret"] = begun["sessionSecret"]

    async def issue(self) -> str:
        """Make a secret for this gateway, as `toolpost console` does."""
        assert self.http.base_url.port is not None
        sessions = ConsoleSessions(self.app.store, make_gateway_id(self.app.config))
        return await sessions.issue(self.http.base_url.port)


OpenSite = Callable[..., AbstractAsyncContextManager[Site]]


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new place in each kind of store."""
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        return server.new_url()
    return f"sqlite:{tmp_path / 'store.db'}"


@pytest.fixture
def site(tmp_path: Path) -> OpenSite:
    """Open a gateway whose `toolpost.toml` has this text; changes of the file are followed."""

    @asynccontextmanager
    async def opened(
        text: str = "",
        *plugins: Plugin,
        token: str = "",
        store: str = "sqlite::memory:",
        log_in: bool = False,
        port: int = 0,
        bundled: bool = False,
    ) -> AsyncIterator[Site]:
        path = tmp_path / "toolpost.toml"
        path.write_text(f'store.url = "{store}"\nhttp.listen = "127.0.0.1:{port}"\n{text}')
        headers = {"X-Toolpost": "1"} | ({"Authorization": f"Bearer {token}"} if token else {})
        config = load_config(path)
        async with (
            open_app(config, plugins=plugins, bundled=bundled, options=OpenOptions(config_path=path)) as app,
            anyio.create_task_group() as tasks,
            open_http(app) as url,
            httpx2.AsyncClient(base_url=url.removesuffix("/mcp"), headers=headers, timeout=60) as http,
        ):
            tasks.start_soon(lambda: follow_config(app, path, lambda: load_config(path), look_s=0.05, settle_s=0.05))
            tasks.start_soon(lambda: follow_lock(app, look_s=0.05))
            made = Site(app, http, tmp_path)
            if log_in:
                await made.log_in()
            yield made
            tasks.cancel_scope.cancel()

    return opened
