"""A server's tool that is no longer what was promised: reported, or quarantined, as clients of both eras see it."""

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from mcp import Client

from tests.upstreams.behind import ONE_OF_EACH, gateway, text_of
from tests.upstreams.changing import LOOKUP, NARROWED, REWORDED, WIDENED, Changing
from tests.waiting import until
from tests.ways import IN_MEMORY, Way
from toolpost.app import App, open_app
from toolpost.app.reload import follow_lock
from toolpost.contracts.compatibility import Definition
from toolpost.contracts.lockfile import LockedTool, lock_text
from toolpost.settings import Config
from toolpost.settings.model import StoreSettings
from toolpost.testing import error_of

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_leaks"), pytest.mark.wire]

LOOKUP_NAME = "maps__lookup"
WISH = {"place": "Ulm"}


def enforcing(folder: Path, **changes: Any) -> Config:
    return msgspec.structs.replace(IN_MEMORY, project=str(folder), contracts="enforce", **changes)


def lock(folder: Path, *tools: dict[str, Any]) -> None:
    named = [Definition.from_listed(tool, name=f"maps__{tool['name']}") for tool in tools]
    locked = {tool.name: LockedTool.of("maps", msgspec.structs.replace(tool, tooling_version="7.1")) for tool in named}
    (folder / "toolpost.lock").write_text(lock_text(locked))


async def listed(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]


def standing(app: App) -> dict[str, Any] | None:
    found = app.servers.providers["maps"].statuses.get(LOOKUP_NAME)  # type: ignore[call-overload]
    return found.as_object() if found else None


async def judged(app: App) -> None:
    await until(lambda: (found := standing(app)) is None or found["verdict"] != "pending")
    await anyio.sleep(0.1)  # the catalog follows


@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
@pytest.mark.parametrize("tool", [NARROWED, REWORDED], ids=["breaking", "reworded"])
async def test_a_tool_that_is_not_as_locked_is_quarantined(way: Way, tool: dict[str, Any], tmp_path: Path) -> None:
    maps = Changing(tmp_path)
    lock(tmp_path, LOOKUP)
    maps.lists(tool, LOOKUP | {"name": "other"})
    async with gateway(maps.spec(), way=way, config=enforcing(tmp_path)) as (app, client):
        await judged(app)
        names = await listed(client)
        refused = error_of(await client.call_tool(LOOKUP_NAME, WISH))
        malformed = error_of(await client.call_tool(LOOKUP_NAME, {"nonsense": 1}))
        other = await client.call_tool("maps__other", WISH)

    assert names == ["maps__other"]
    assert refused["code"] == malformed["code"] == "CONTRACT_CHANGED"
    assert "toolpost lock --accept maps__lookup" in refused["hint"]
    assert refused["details"]["changes"][0]["verdict"] == ("breaking" if tool is NARROWED else "review")
    assert "id_rsa" not in str(refused)
    assert text_of(other) == '{"place": "Ulm"}'


@pytest.mark.parametrize("tool", [LOOKUP, WIDENED], ids=["same", "widened"])
async def test_a_change_that_harms_nobody_is_let_through(tool: dict[str, Any], tmp_path: Path) -> None:
    maps = Changing(tmp_path)
    lock(tmp_path, LOOKUP)
    maps.lists(tool)
    async with gateway(maps.spec(), config=enforcing(tmp_path)) as (app, client):
        await judged(app)
        answer = await client.call_tool(LOOKUP_NAME, WISH)

        assert await listed(client) == [LOOKUP_NAME]
        assert text_of(answer) == '{"place": "Ulm"}'


async def test_what_is_only_observed_still_answers(tmp_path: Path) -> None:
    maps = Changing(tmp_path)
    lock(tmp_path, LOOKUP)
    maps.lists(NARROWED)
    config = msgspec.structs.replace(enforcing(tmp_path), contracts="observe")
    async with gateway(maps.spec(), config=config) as (app, client):
        await judged(app)
        answer = await client.call_tool(LOOKUP_NAME, WISH)

        assert await listed(client) == [LOOKUP_NAME]
        assert text_of(answer) == '{"place": "Ulm"}'
        assert standing(app) == {
            "promise": "lock",
            "verdict": "breaking",
            "rules": ["input.values-removed"],
            "findings": [],
        }


async def test_one_server_may_be_held_otherwise(tmp_path: Path) -> None:
    maps = Changing(tmp_path)
    lock(tmp_path, LOOKUP)
    maps.lists(NARROWED)
    async with gateway(maps.spec(contracts="observe"), config=enforcing(tmp_path)) as (app, client):
        await judged(app)

        assert await listed(client) == [LOOKUP_NAME]


async def test_a_lock_that_changes_while_servers_start_is_taken_over(tmp_path: Path) -> None:
    maps = Changing(tmp_path)
    lock(tmp_path, LOOKUP)
    maps.lists(NARROWED)
    async with gateway(maps.spec(), config=enforcing(tmp_path)) as (app, client), anyio.create_task_group() as tasks:
        await judged(app)
        quarantined = await listed(client)
        lock(tmp_path, NARROWED)
        tasks.start_soon(lambda: follow_lock(app, look_s=0.05))
        await until(lambda: len(app.gateway.catalog))
        tasks.cancel_scope.cancel()

    assert quarantined == []


@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_a_change_under_way_is_quarantined_and_taken_over_with_the_lock(way: Way, tmp_path: Path) -> None:
    maps = Changing(tmp_path)
    lock(tmp_path, LOOKUP)
    async with (
        gateway(maps.spec(), way=way, config=enforcing(tmp_path)) as (app, client),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(lambda: follow_lock(app, look_s=0.05))
        await until(lambda: len(app.gateway.catalog))
        maps.lists(NARROWED)
        await until(lambda: not len(app.gateway.catalog))
        refused = error_of(await client.call_tool(LOOKUP_NAME, WISH))
        (tmp_path / "toolpost.lock").write_text("<<<<<<< HEAD\n")
        await anyio.sleep(0.2)  # what must not come would be here by now
        still = await listed(client)
        lock(tmp_path, NARROWED)
        await until(lambda: len(app.gateway.catalog))
        answer = await client.call_tool(LOOKUP_NAME, WISH)
        tasks.cancel_scope.cancel()

    assert refused["code"] == "CONTRACT_CHANGED"
    assert still == []
    assert text_of(answer) == '{"place": "Ulm"}'


async def test_what_is_seen_first_is_pinned_and_outlives_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    maps = Changing(tmp_path)
    config = enforcing(tmp_path, store=StoreSettings(url=f"sqlite:{tmp_path / 'store.db'}"))
    caplog.set_level("INFO", "toolpost.contracts")
    async with open_app(config, bundled=False, servers=[maps.spec()]):
        await until(lambda: "pinned" in caplog.text)
    maps.lists(REWORDED)
    async with gateway(maps.spec(), config=config) as (app, client):
        await app.servers.providers["maps"].supervisor.ensure_ready()
        await until(lambda: standing(app) is not None)
        await judged(app)
        names = await listed(client)
        refused = error_of(await client.call_tool(LOOKUP_NAME, WISH))

    assert names == []
    assert refused["details"]["promise"] == "pin"
    assert "when it was first seen" in refused["message"]
    assert "there is no lock; run `toolpost lock` to create one" in str([record.__dict__ for record in caplog.records])


async def test_a_gateway_does_not_start_on_a_broken_lock(tmp_path: Path) -> None:
    (tmp_path / "toolpost.lock").write_text("{")
    with pytest.raises(Exception, match=r"toolpost\.lock, line 1"):
        async with open_app(enforcing(tmp_path), bundled=False, servers=[Changing(tmp_path).spec()]):
            pass
