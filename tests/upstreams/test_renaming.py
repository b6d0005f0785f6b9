"""A server that keeps renaming its tools: what is kept of it, what clients and operators see, and what is still compared."""

import logging
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from tests.hostile.attacks import attack
from tests.postgres import Postgres
from tests.upstreams.behind import gateway
from tests.upstreams.changing import LOOKUP, NARROWED, Changing
from tests.waiting import until
from tests.ways import IN_MEMORY
from toolpost.app import App
from toolpost.contracts.errors import ToolpostError
from toolpost.providers import pinned_names
from toolpost.settings import Config
from toolpost.settings.model import StoreSettings
from toolpost.testing import error_of

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_leaks"), pytest.mark.wire]

NAMES, RENAMES = 40, 10


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned_names, "NAMES_LIMIT", NAMES)
    monkeypatch.setattr(pinned_names, "RENAMES_LIMIT", RENAMES)


@pytest.fixture(params=["sqlite", "postgres"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Config:
    url = f"sqlite:{tmp_path / 'store.db'}"
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        url = server.new_url()
    return msgspec.structs.replace(IN_MEMORY, project=str(tmp_path), contracts="enforce", store=StoreSettings(url=url))


def named(*names: str) -> list[dict[str, Any]]:
    return [LOOKUP | {"name": name} for name in names]


def several(prefix: str, count: int) -> list[dict[str, Any]]:
    return named(*(f"{prefix}{number}" for number in range(count)))


def listed(app: App) -> set[str]:
    return {name.removeprefix("maps__") for name in app.servers.providers["maps"].tools}


def names_of(tools: list[dict[str, Any]]) -> set[str]:
    return {tool["name"] for tool in tools}


def can_be_found(app: App, name: str) -> bool:
    try:
        return app.gateway.catalog.find(name) is not None
    except ToolpostError:
        return False


async def list_pins(app: App) -> set[str]:
    await app.servers.watched_tools.watch.save()
    return {*await app.store.pins.of_server("maps")}


@attack(
    "server",
    "lists other tool names each time, to fill memory and disk or to have the pins of its first tools forgotten",
    "20,000 names are kept, the last seen; beyond 2,000 new names in an hour the rest is left out, and the server is degraded",
)
async def test_a_server_that_keeps_renaming_its_tools(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    maps = Changing(tmp_path)
    first = [LOOKUP, *several("first", 20)]
    maps.lists(*first)
    async with gateway(maps.spec(), config=config) as (app, client):
        await until(lambda: listed(app) == names_of(first))
        assert app.servers.providers["maps"].degraded is None
        for round_number in range(6):
            maps.lists(*several(f"round{round_number}x", 20))
            expected = RENAMES if round_number == 0 else 0
            await until(lambda expected=expected: len(listed(app)) == expected and "lookup" not in listed(app))  # type: ignore[misc]
        report = app.servers.providers["maps"].report()
        health = app.monitor.health()
        # What comes back under its old name is still compared with its pin.
        maps.lists(NARROWED)
        await until(lambda: can_be_found(app, "maps__lookup"))
        refused = error_of(await client.call_tool("maps__lookup", {"place": "Ulm"}))
        monkeypatch.setattr(pinned_names, "RENAMES_S", 0.0)
        monkeypatch.setattr(pinned_names, "KEPT_S", 0.0)
        for round_number in range(6):
            tools = several(f"later{round_number}x", RENAMES)
            maps.lists(*tools)
            await until(lambda tools=tools: listed(app) == names_of(tools))  # type: ignore[misc]
        kept = await list_pins(app)

    assert report.degraded is not None
    assert "20 tools with new names are left out" in report.degraded
    assert health["status"] == "degraded"
    assert kept == {f"maps__later{number // RENAMES}x{number % RENAMES}" for number in range(20, 60)}
    assert refused["code"] == "CONTRACT_CHANGED"
    degraded = [record for record in caplog.records if record.getMessage().startswith("server is degraded")]
    assert len(degraded) == 1


async def test_left_out_tools_are_listed_when_their_time_has_come(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = Changing(tmp_path)
    maps.lists(*several("old", 15))
    async with gateway(maps.spec(relist_s=1.0), config=config) as (app, client):
        await until(lambda: len(listed(app)) == 15)
        maps.lists(*several("new", 15))
        await until(lambda: len(listed(app)) == RENAMES)
        monkeypatch.setattr(pinned_names, "RENAMES_S", 0.0)
        await until(lambda: len(listed(app)) == 15)
        await until(lambda: len(app.gateway.catalog) == 15)
        names = [tool.name for tool in (await client.list_tools()).tools]

    assert set(names) == {f"maps__new{number}" for number in range(15)}


async def test_a_restart_with_the_same_names_changes_nothing(config: Config, tmp_path: Path) -> None:
    maps = Changing(tmp_path)
    tools = several("tool", NAMES)
    maps.lists(*tools)
    for _ in range(2):
        async with gateway(maps.spec(), config=config) as (app, _client):
            await until(lambda: listed(app) == names_of(tools))
            assert app.servers.providers["maps"].degraded is None
            assert len(await list_pins(app)) == NAMES
    # A change while it was down is seen as well: of the pins only digests are in memory.
    maps.lists(*tools[1:], NARROWED | {"name": "tool0"})
    async with gateway(maps.spec(), config=config) as (app, _client):
        await until(lambda: listed(app) == names_of(tools[1:]))
        status = app.servers.providers["maps"].statuses["maps__tool0"]  # type: ignore[index]
        assert status.promised.input_schema == LOOKUP["inputSchema"]


async def test_a_pin_that_cannot_be_read_counts_as_changed_until_it_can(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolpost.providers.contract_watch.RETRY_S", 0.1)
    maps = Changing(tmp_path)
    maps.lists(LOOKUP)
    async with gateway(maps.spec(), config=config) as (app, _client):
        await until(lambda: listed(app) == {"lookup"})
    async with gateway(maps.spec(), config=config) as (app, client):
        await until(lambda: listed(app) == {"lookup"})
        read, pins = app.store.pins.of_server, app.store.pins

        async def fail(*_arguments: Any) -> Any:
            raise OSError("the store is away")

        monkeypatch.setattr(pins, "of_server", fail)
        maps.lists(NARROWED)
        await until(lambda: app.servers.providers["maps"].quarantined)
        pending = error_of(await client.call_tool("maps__lookup", {"place": "Ulm"}))
        monkeypatch.setattr(pins, "of_server", read)
        with anyio.fail_after(60):
            while "details" not in (refused := error_of(await client.call_tool("maps__lookup", {"place": "Ulm"}))):
                await anyio.sleep(0.05)

    assert (pending["code"], refused["code"]) == ("CONTRACT_CHANGED", "CONTRACT_CHANGED")
    assert refused["details"]["changes"][0]["rule"] == "input.values-removed"


async def test_a_pin_is_compared_before_it_is_in_the_store(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolpost.providers.contract_watch.RETRY_S", 0.1)
    maps = Changing(tmp_path)
    maps.lists(LOOKUP)
    async with gateway(maps.spec(), config=config) as (app, _client):
        pins = app.store.pins
        # Nothing is written any more: what was seen first stays in force.
        maps.lists(LOOKUP, *named("other"))

        async def fail(*_arguments: Any, **_options: Any) -> None:
            raise OSError("the store is away")

        add = pins.add
        monkeypatch.setattr(pins, "add", fail)
        await until(lambda: listed(app) == {"lookup", "other"})
        maps.lists(LOOKUP, NARROWED | {"name": "other"})
        await until(lambda: listed(app) == {"lookup"})
        status = app.servers.providers["maps"].statuses["maps__other"]  # type: ignore[index]
        assert status.promised.input_schema == LOOKUP["inputSchema"]
        monkeypatch.setattr(pins, "add", add)
        with anyio.fail_after(60):
            while "maps__other" not in (found := await pins.of_server("maps")):
                await anyio.sleep(0.05)
        assert found["maps__other"]["inputSchema"] == LOOKUP["inputSchema"]
