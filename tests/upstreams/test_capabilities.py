"""What is announced is what the servers behind the gateway offer, and schemas are ones that strict clients take."""

import json
from typing import Any

import pytest
from mcp import Client

from tests.loaded import loaded
from tests.upstreams.behind import SERVERS, gateway, hostile
from tests.ways import IN_MEMORY, QUICK_WAYS, ROOT, Way
from toolpost import Plugin
from toolpost.app import open_app, open_http
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

LIBRARY = ServerSpec(name="library", command=loaded(str(SERVERS / "library.py")))


def offered(client: Client) -> set[str]:
    capabilities = client.server_capabilities
    assert capabilities is not None
    return {name for name in ("prompts", "resources", "completions", "logging") if getattr(capabilities, name)}


@pytest.mark.parametrize("way", [way for way in QUICK_WAYS if way.mode == "legacy"], ids=str)
async def test_only_what_a_server_offers_is_announced(way: Way) -> None:
    async with gateway(hostile(), way=way) as (_, client):
        of_tools_alone = offered(client)
    async with gateway(hostile(), LIBRARY, way=way) as (_, client):
        of_both = offered(client)

    assert of_tools_alone == set()
    assert {"prompts", "resources"} <= of_both


async def test_a_path_announces_what_its_server_offers() -> None:
    async with open_app(IN_MEMORY, bundled=False, servers=[hostile(), LIBRARY]) as app, open_http(app) as url:
        async with Client(f"{url}/server/up", mode="legacy") as client:
            own = offered(client)
        async with Client(f"{url}/server/library", mode="legacy") as client:
            others = offered(client)

    assert own == set()
    assert {"prompts", "resources"} <= others


def bare_schemas(value: Any, place: str = "") -> list[str]:
    """Find `true` where a schema stands: under `properties`, as `items`."""
    if isinstance(value, list):
        return [found for number, item in enumerate(value) for found in bare_schemas(item, f"{place}/{number}")]
    if not isinstance(value, dict):
        return []
    found = [f"{place}/properties/{name}" for name, part in value.get("properties", {}).items() if part is True]
    found += [f"{place}/items"] if value.get("items") is True else []
    return found + [more for key, part in value.items() for more in bare_schemas(part, f"{place}/{key}")]


def test_no_tool_of_ours_has_a_bare_schema() -> None:
    assert bare_schemas(json.loads((ROOT / "toolpost.lock").read_text())) == []


async def test_a_plugins_bare_schema_is_listed_as_an_object() -> None:
    plugin = Plugin("bare", version="1")

    @plugin.tool(input_schema={"type": "object", "properties": {"anything": True}})
    async def take(arguments: dict[str, Any]) -> str:
        """Take anything."""
        return str(arguments)

    async with open_app(IN_MEMORY, plugins=[plugin], bundled=False) as app:
        (tool,) = app.gateway.catalog

    assert tool.contract.definition["inputSchema"]["properties"] == {"anything": {}}
