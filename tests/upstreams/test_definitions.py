"""Definitions that clients would stumble over: listed so that none does, and enforced as their server means them."""

from pathlib import Path

import pytest

from tests.upstreams.behind import ONE_OF_EACH, gateway, text_of
from tests.upstreams.changing import Changing
from tests.ways import Way
from toolpost.testing import error_of

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_leaks"), pytest.mark.wire]

BOUNDED = {"name": "bounded", "inputSchema": {"properties": {"n": {"minimum": 1, "exclusiveMinimum": True}}}}
EMPTY = {"name": "empty", "inputSchema": {}, "outputSchema": {"properties": {"lat": {"type": "number"}}}}
OTHER = {"name": "other", "inputSchema": {"type": "array"}}


@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_a_root_without_a_type_and_bounds_of_draft_4_are_served(way: Way, tmp_path: Path) -> None:
    maps = Changing(tmp_path)
    maps.lists(BOUNDED, EMPTY, OTHER)
    async with gateway(maps.spec(), way=way) as (app, client):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        taken = await client.call_tool("maps__bounded", {"n": 2})
        refused = error_of(await client.call_tool("maps__bounded", {"n": 1}))
        anything = await client.call_tool("maps__empty", {"a": [1]})
        definition = app.gateway.catalog.find("maps__empty").contract.definition

    assert set(tools) == {"maps__bounded", "maps__empty"}
    assert tools["maps__bounded"].input_schema == {"type": "object", "properties": {"n": {"exclusiveMinimum": 1}}}
    assert tools["maps__empty"].input_schema == {"type": "object"}
    assert definition["outputSchema"] == EMPTY["outputSchema"]
    assert (text_of(taken), text_of(anything)) == ('{"n": 2}', '{"a": [1]}')
    assert refused["code"] == "INVALID_PARAMS"
