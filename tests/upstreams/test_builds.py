"""The version that a server gives itself is each of its tools' `toolingVersion`: on the wire, in the audit, across starts."""

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from mcp import Client

from tests.upstreams.behind import ERAS, ONE_OF_EACH, gateway, hostile, text_of
from tests.upstreams.changing import Changing
from tests.waiting import until
from tests.ways import IN_MEMORY, Way
from toolpost.audit import AuditFilter
from toolpost.base.ids import META_KEY
from toolpost.settings import Config
from toolpost.settings.model import StoreSettings
from toolpost.upstreams.handshake import VERSION_LIMIT, Negotiation
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_leaks"), pytest.mark.wire]


def kept(folder: Path) -> Config:
    return msgspec.structs.replace(
        IN_MEMORY, project=str(folder), store=StoreSettings(url=f"sqlite:{folder / 'store.db'}")
    )


async def versions(client: Client) -> dict[str, Any]:
    listed = (await client.list_tools(cache_mode="bypass")).tools
    return {tool.name: (tool.meta or {})[META_KEY]["toolingVersion"] for tool in listed}


@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
@pytest.mark.parametrize("era", ERAS)
async def test_each_tool_has_its_server_s_version(way: Way, era: str) -> None:
    async with gateway(hostile(version=era), way=way) as (app, client):
        found = await versions(client)
        await client.call_tool("up__echo", {"text": "a"})
        (entry,) = await app.store.audit.entries(AuditFilter(tool="up__echo"), limit=1)

    assert set(found.values()) == {entry.entry.tooling_version} != {""}


async def test_a_list_is_the_same_before_and_after_the_server_starts(tmp_path: Path) -> None:
    maps = Changing(tmp_path)
    async with gateway(maps.spec(), config=kept(tmp_path)) as (app, client):
        first = await versions(client)
    async with gateway(maps.spec(), config=kept(tmp_path)) as (app, client):
        before = (await client.list_tools()).tools
        was_started = app.servers.providers["maps"].supervisor.report().pids
        digest = next(iter(app.gateway.catalog)).contract.digest
        text_of(await client.call_tool("maps__lookup", {"place": "Ulm"}))
        await anyio.sleep(0.2)  # what must not come would be here by now
        after = (await client.list_tools()).tools

        assert was_started == ()
        assert next(iter(app.gateway.catalog)).contract.digest == digest
    assert first == {"maps__lookup": "7.1"}
    assert before == after


async def test_another_build_is_listed_and_breaks_no_promise(tmp_path: Path) -> None:
    maps = Changing(tmp_path)
    async with gateway(maps.spec(), config=kept(tmp_path)):
        pass
    other = ServerSpec(name="maps", command=(*maps.command, "7.2"))
    config = msgspec.structs.replace(kept(tmp_path), contracts="enforce")
    async with gateway(other, config=config) as (app, client):
        await app.servers.providers["maps"].supervisor.ensure_ready()
        await until(lambda: app.servers.providers["maps"].build == "7.2")
        with anyio.fail_after(30):
            while await versions(client) != {"maps__lookup": "7.2"}:
                await anyio.sleep(0.02)

        assert app.servers.providers["maps"].statuses == {}


@pytest.mark.parametrize(
    ("told", "build"),
    [(None, ""), (7, ""), ("", ""), ("1.0\x1b[2J", ""), ("2.1-rc🦉", "2.1-rc🦉"), ("x" * 10_000, "x" * VERSION_LIMIT)],
)
async def test_a_version_is_a_short_text_on_one_line(told: Any, build: str) -> None:
    assert Negotiation(version="2025-11-25", is_stateless=False, info={"version": told}).build == build
