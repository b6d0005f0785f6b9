"""A changed document is taken over by the running gateway, held to the lock, and a broken one changes nothing."""

import json
import logging
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError

from tests.parts.openapi.fake_api import FakeApi, Reply, answers, describe, open_gateway, takes
from tests.upstreams.behind import text_of
from tests.waiting import until
from tests.ways import STATELESS
from toolpost.admin.lock_file import list_tools
from toolpost.app import App, open_app
from toolpost.app.reload import apply_config, follow_lock
from toolpost.cli.open_app_problems import problems_of
from toolpost.cli.serve import has_made_many
from toolpost.contracts.lockfile import lock_text
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.parts import PluginCandidate
from toolpost.parts.openapi import served
from toolpost.providers import pinned_names
from toolpost.settings import load_config
from toolpost.testing import error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "LOOK_S", 0.02)
    monkeypatch.setattr(served, "SETTLE_S", 0.02)


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
            await until(lambda: app.monitor.health()["plugins"]["pets"]["state"] == "degraded")
            [problem] = app.monitor.health()["plugins"]["pets"]["problems"]
            assert "serves its former document" in problem
            assert "document not applied; the previous one stays" in caplog.text
            assert not (await client.call_tool("pets__dogs", {})).is_error

            file.write_text(json.dumps(describe(get("/cats"))))
            await until(lambda: names_of(app) == ["pets__cats"])
            assert app.monitor.health()["plugins"]["pets"]["state"] == "healthy"


async def test_a_document_may_not_rename_its_tools_as_often_as_it_likes(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinned_names, "RENAMES_LIMIT", 2)
    file = tmp_path / "pets.json"
    async with open_gateway(describe(*(get(f"/dog{number}") for number in range(5))), api.url, tmp_path) as app:
        assert len(names_of(app)) == 5
        assert app.monitor.health()["plugins"]["pets"]["state"] == "healthy"
        file.write_text(json.dumps(describe(*(get(f"/cat{number}") for number in range(5)))))
        await until(lambda: names_of(app) == ["pets__cat0", "pets__cat1"])
        degraded = app.monitor.health()["plugins"]["pets"]
        file.write_text(json.dumps(describe(*(get(f"/dog{number}") for number in range(5)))))
        await until(lambda: len(names_of(app)) == 5)
        assert app.monitor.health()["plugins"]["pets"]["state"] == "healthy"

    assert degraded["state"] == "degraded"
    assert "3 tools with new names are left out" in degraded["problems"][0]


async def test_a_document_that_could_not_be_read_at_the_start_is_served_once_it_can(
    api: FakeApi, tmp_path: Path
) -> None:
    async with open_gateway({}, api.url, tmp_path) as app:
        assert names_of(app) == []
        (tmp_path / "pets.json").write_text(json.dumps(describe(get("/dogs"))))
        await until(lambda: names_of(app) == ["pets__dogs"])


async def test_a_document_at_a_url_is_fetched_again_and_kept_only_if_it_can_be_read(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{api.url}/openapi.json"
    api.replies["GET /openapi.json"] = Reply(body=describe(get("/dogs")))
    monkeypatch.setattr("toolpost.parts.openapi.served.REFRESH_S", 0.05)
    async with open_gateway({}, api.url, tmp_path, document=url) as app:
        assert names_of(app) == ["pets__dogs"]
        api.replies["GET /openapi.json"] = Reply(body=describe(get("/cats")))
        await until(lambda: names_of(app) == ["pets__cats"])
        api.replies["GET /openapi.json"] = Reply(body=["no", "document"])
        await until(lambda: app.monitor.health()["plugins"]["pets"]["state"] == "degraded")
        assert names_of(app) == ["pets__cats"]
    for gone in (Reply(status=503), Reply(body=["no", "document"]), Reply(body=b"[" * 50_000)):
        api.replies["GET /openapi.json"] = gone
        async with open_gateway({}, api.url, tmp_path, document=url) as app:
            assert names_of(app) == ["pets__cats"], "the last copy that could be read"

    # Without the extra, the reader of YAML is not there.
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "yaml.py").write_text("raise ImportError\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "without"))
    api.replies["GET /openapi.json"] = Reply(body=b"openapi: 3.0.0\npaths: {}\n")
    async with open_gateway({}, api.url, tmp_path, document=url) as app:
        assert names_of(app) == ["pets__cats"], "what is sent now cannot be read here"


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
    async with (
        open_gateway(before, api.url, tmp_path, contracts="enforce") as app,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(lambda: follow_lock(app, look_s=0.02))
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
        tasks.cancel_scope.cancel()


async def test_a_change_between_two_starts_is_judged_by_what_was_first_seen(api: FakeApi, tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'store.db'}"
    needs_size = get("/dogs", takes("query", "size", {"type": "string"}, required=True))
    async with open_gateway(describe(get("/dogs"), get("/cats")), api.url, tmp_path, store=store) as app:
        assert names_of(app) == ["pets__cats", "pets__dogs"]
    changed = describe(needs_size, get("/cats"))
    async with open_gateway(changed, api.url, tmp_path, store=store, contracts="enforce") as app:
        assert names_of(app) == ["pets__cats"]
        async with Client(open_memory_endpoint(app.call_handler, app.sdk), mode="legacy") as client:
            refused = error_of(await client.call_tool("pets__dogs", {"size": "small"}))
        assert (refused["code"], refused["details"]["promise"]) == ("CONTRACT_CHANGED", "pin")
        assert "toolpost_tools_quarantined 1" in app.monitor.metrics()
        assert any("`pets__dogs` is quarantined" in problem for problem in problems_of(app))
    api_alone = {"contracts": "observe"} | {"api_contracts": "enforce"}
    async with open_gateway(changed, api.url, tmp_path, store=store, **api_alone) as app:
        assert names_of(app) == ["pets__cats"], "the API's own setting overrides the one of all"


SETTINGS = """
[apis.{name}]
document = "pets.json"
base = "{base}"
{more}
"""


@pytest.mark.parametrize("mode", ["legacy", STATELESS])
async def test_changed_settings_are_taken_over_as_a_whole_or_not_at_all(
    mode: str, api: FakeApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "toolpost.toml"
    (tmp_path / "pets.json").write_text(json.dumps(describe(get("/dogs"), get("/cats"))))

    def write(**more_of: str) -> None:
        entries = [SETTINGS.format(name=name, base=api.url, more=more) for name, more in more_of.items()]
        path.write_text("store.url = 'sqlite::memory:'\n" + "".join(entries))

    def listed(app: App) -> list[str]:
        return sorted(tool.contract.name for tool in app.gateway.catalog if tool.provider != "time")

    write()
    async with open_app(load_config(path)) as app:
        endpoint = open_memory_endpoint(app.call_handler, app.sdk)
        async with Client(endpoint, mode=mode) as client:
            write(pets="", zoo='allow = ["/cats"]')
            await apply_config(app, lambda: load_config(path))
            await until(lambda: listed(app) == ["pets__cats", "pets__dogs", "zoo__cats"])
            assert not (await client.call_tool("zoo__cats", {})).is_error

            write(pets='headers = { key = "new" }', zoo='allow = ["/dogs"]')
            await apply_config(app, lambda: load_config(path))
            await until(lambda: listed(app) == ["pets__cats", "pets__dogs", "zoo__dogs"])
            assert not (await client.call_tool("pets__dogs", {})).is_error
            assert api.last.headers["key"] == "new"

            write(pets='headers = { key = "${NOT_SET_ANYWHERE}" }')
            await apply_config(app, lambda: load_config(path))
            assert "configuration not applied; the previous one stays" in caplog.text
            assert listed(app) == ["pets__cats", "pets__dogs", "zoo__dogs"]

            write(pets="enabled = false", zoo="")
            await apply_config(app, lambda: load_config(path))
            await until(lambda: listed(app) == ["zoo__cats", "zoo__dogs"])
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool("pets__dogs", {})
            assert app.monitor.health()["plugins"].keys() & {"pets", "zoo"} == {"zoo"}
    assert "takes effect at the next start" not in caplog.text


async def test_no_catalog_has_one_changed_api_and_not_the_other(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "toolpost.toml"
    (tmp_path / "pets.json").write_text(json.dumps(describe(get("/dogs"), get("/cats"))))

    def write(only: str) -> None:
        entries = [SETTINGS.format(name=name, base=api.url, more=f'allow = ["{only}"]') for name in ("pets", "zoo")]
        path.write_text("store.url = 'sqlite::memory:'\n" + "".join(entries))

    write("/cats")
    async with open_app(load_config(path)) as app:
        seen: list[set[str]] = []

        def note_catalog() -> None:
            seen.append({tool.contract.name for tool in app.gateway.catalog if tool.provider != "time"})

        reload = app.plugins.reload

        async def reload_slowly(candidate: PluginCandidate) -> object:
            reloaded = await reload(candidate)
            await anyio.sleep(0.3)  # Six times as long as the catalog waits for further changes.
            return reloaded

        monkeypatch.setattr(app.gateway.pipeline, "forget_plans", note_catalog)
        monkeypatch.setattr(app.plugins, "reload", reload_slowly)
        write("/dogs")
        await apply_config(app, lambda: load_config(path))
        await until(lambda: {"pets__dogs", "zoo__dogs"} in seen)

    assert {"pets__dogs", "zoo__cats"} not in seen
    assert {"pets__cats", "zoo__dogs"} not in seen


def write_lock(app: App, path: Path) -> None:
    """Lock the tools as they are, as `toolpost lock` does."""
    path.write_text(lock_text(list_tools(app.config, app.plugins.providers)))


async def test_a_large_document_has_collections_of_garbage_wait(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolpost.parts.openapi.api.MANY_PATHS", 2)
    file = tmp_path / "pets.json"
    async with open_gateway(describe(get("/dogs")), api.url, tmp_path) as app:
        file.write_text(json.dumps(describe(get("/dogs"), get("/cats"))))
        await until(lambda: len(names_of(app)) == 2)
        small = has_made_many(app)
        file.write_text(json.dumps(describe(get("/dogs"), get("/cats"), get("/fish"))))
        await until(lambda: len(names_of(app)) == 3)
        large = has_made_many(app)

    assert (small, large) == (False, True)
