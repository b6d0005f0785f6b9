"""A changed document is taken over by the running gateway, held to the lock, and a broken one changes nothing."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.parts.apis.fake_api import FakeApi, Reply, answers, describe, open_gateway, takes
from tests.upstreams.behind import text_of, until
from tests.ways import STATELESS
from toolpost.cli.lock.states import list_tools
from toolpost.contracts.lockfile import lock_text
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.parts.apis import changes
from toolpost.running import App
from toolpost.testing import error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes.DocumentFollower.run, "__kwdefaults__", {"look_s": 0.02})
    monkeypatch.setattr(changes, "SETTLE_S", 0.02)


def get(path: str, *parameters: dict[str, Any]) -> dict[str, Any]:
    found = {"path": path, "method": "get", "operationId": path.strip("/"), "parameters": list(parameters)}
    return found | {"responses": answers({"type": "object"})}


def names_of(app: App) -> list[str]:
    return sorted(tool.contract.name for tool in app.gateway.catalog if tool.provider == "pets")


@pytest.mark.parametrize("mode", ["legacy", STATELESS])
async def test_a_changed_file_is_served_and_a_broken_one_is_not(
    mode: str, api: FakeApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "toolpost.apis")  # Commands of other tests may have set one that hides it.
    file = tmp_path / "pets.json"
    async with open_gateway(describe(get("/dogs")), api.url, tmp_path) as app:
        heard: list[str] = []

        async def on_message(message: Any) -> None:
            heard.append(str(message))

        endpoint = open_memory_endpoint(app.call_handler, app.sdk)
        async with Client(endpoint, mode=mode, message_handler=on_message) as client:
            assert names_of(app) == ["pets__dogs"]
            file.write_text(json.dumps(describe(get("/dogs"), get("/cats"))))
            await until(lambda: names_of(app) == ["pets__cats", "pets__dogs"])
            assert not (await client.call_tool("pets__cats", {})).is_error
            if mode == "legacy":
                await until(lambda: any("list_changed" in text for text in heard))

            file.write_text('{"openapi": "3.1.0", "paths": ')
            await until(lambda: app.health()["plugins"]["pets"]["state"] == "degraded")
            [problem] = app.health()["plugins"]["pets"]["problems"]
            assert "serves its former document" in problem
            assert "document not taken over; the one before goes on" in caplog.text
            assert not (await client.call_tool("pets__dogs", {})).is_error

            file.write_text(json.dumps(describe(get("/cats"))))
            await until(lambda: names_of(app) == ["pets__cats"])
            assert app.health()["plugins"]["pets"]["state"] == "healthy"


async def test_a_document_that_could_not_be_read_at_the_start_is_served_once_it_can(
    api: FakeApi, tmp_path: Path
) -> None:
    async with open_gateway({}, api.url, tmp_path) as app:
        assert names_of(app) == []
        (tmp_path / "pets.json").write_text(json.dumps(describe(get("/dogs"))))
        await until(lambda: names_of(app) == ["pets__dogs"])


async def test_a_document_at_a_url_is_fetched_again_and_kept_only_if_it_can_be_read(
    api: FakeApi, tmp_path: Path
) -> None:
    url = f"{api.url}/openapi.json"
    api.replies["GET /openapi.json"] = Reply(body=describe(get("/dogs")))
    async with open_gateway({}, api.url, tmp_path, document=url, refresh_s=0.05) as app:
        assert names_of(app) == ["pets__dogs"]
        api.replies["GET /openapi.json"] = Reply(body=describe(get("/cats")))
        await until(lambda: names_of(app) == ["pets__cats"])
        api.replies["GET /openapi.json"] = Reply(body=["no", "document"])
        await until(lambda: app.health()["plugins"]["pets"]["state"] == "degraded")
        assert names_of(app) == ["pets__cats"]
    api.replies["GET /openapi.json"] = Reply(status=503)
    async with open_gateway({}, api.url, tmp_path, document=url) as app:
        assert names_of(app) == ["pets__cats"], "the last copy that could be read"


@pytest.mark.parametrize("is_locked", [True, False])
async def test_a_breaking_change_is_quarantined_until_it_is_accepted(
    is_locked: bool, api: FakeApi, tmp_path: Path
) -> None:
    file, lock = tmp_path / "pets.json", tmp_path / "toolpost.lock"
    before = describe(get("/dogs"), get("/cats"))
    after = describe(get("/dogs", takes("query", "size", {"type": "string"}, required=True)), get("/cats"))
    if is_locked:
        async with open_gateway(before, api.url, tmp_path) as app:
            write_lock(app, lock)
    async with open_gateway(before, api.url, tmp_path, contracts="enforce") as app:
        assert names_of(app) == ["pets__cats", "pets__dogs"]
        file.write_text(json.dumps(after))
        await until(lambda: names_of(app) == ["pets__cats"])
        async with Client(open_memory_endpoint(app.call_handler, app.sdk), mode="legacy") as client:
            refused = error_of(await client.call_tool("pets__dogs", {"size": "small"}))
            assert refused["code"] == "CONTRACT_CHANGED"
            assert refused["details"]["promise"] == ("lock" if is_locked else "pin")
            assert not api.seen

            write_lock(app, lock)
            await until(lambda: names_of(app) == ["pets__cats", "pets__dogs"])
            assert text_of(await client.call_tool("pets__dogs", {"size": "small"}))


def write_lock(app: App, path: Path) -> None:
    """Lock the tools as they are, as `toolpost lock` does."""
    path.write_text(lock_text(list_tools(app.config, app.plugin_host.providers)))
