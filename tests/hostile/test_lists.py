"""Servers whose lists are too long: cut at the limit, without keeping the event loop from other work."""

import logging
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.hostile.attacks import attack, slowness, thread_cpu_s
from tests.upstreams.behind import gateway, hostile
from tests.upstreams.changing import LOOKUP, REWORDED, Changing
from tests.waiting import until
from toolpost.base import log_limit
from toolpost.base.ids import PluginName, ToolName
from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.providers.contract_watch import ContractStatus
from toolpost.upstreams import lists
from toolpost.upstreams.lists import ListReader
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

SERVER = """
import json, sys
many = int(sys.argv[1])
lists = {
    "tools/list": {"tools": [{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(many)]},
    "resources/list": {"resources": [{"name": f"r{n}", "uri": f"x:{n}"} for n in range(many)]},
    "resources/templates/list": {"resourceTemplates": [{"name": f"r{n}", "uriTemplate": f"x:{n}/{{a}}"} for n in range(many)]},
    "prompts/list": {"prompts": [{"name": f"p{n}"} for n in range(many)]},
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
        "serverInfo": {"name": "many", "version": "1"},
    },
}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = lists.get(message["method"])
        answer = {"result": result} if result else {"error": {"code": -32601, "message": "unknown"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


@attack(
    "server",
    "sends more tools, resources, templates and prompts in one page than the limit",
    "each list is cut at its limit with a warning, and nothing is compiled beyond it",
)
async def test_a_page_beyond_the_limit_is_cut(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lists, "ITEMS_LIMIT", 1_000)
    spec = ServerSpec(name="up", command=(sys.executable, "-S", "-c", SERVER, "1200"))
    with caplog.at_level(logging.WARNING):
        async with gateway(spec) as (app, client):
            await until(lambda: len(app.gateway.catalog))
            assert len(app.gateway.catalog) == 1_000
            assert len(app.servers.providers["up"].contracts) == 1_000
            found = [
                len((await client.list_resources()).resources),
                len((await client.list_resource_templates()).resource_templates),
                len((await client.list_prompts()).prompts),
            ]

    assert found == [1_000, 1_000, 1_000]
    for field in ("tools", "resources", "resourceTemplates", "prompts"):
        assert f"list of {field} cut short" in caplog.text


@attack(
    "server",
    "sends a page of a list with millions of tiny values, or of many megabytes",
    "the page is refused before it is decoded; reading the largest page that is accepted blocks nothing for 50 ms",
)
async def test_a_heavy_page_is_refused_unread() -> None:
    heavy = {
        "tiny values": b'{"tools":[' + b"{}," * 2_000_000 + b"{}]}",
        "one value": b'{"tools":[{"name":"' + b"a" * 9_000_000 + b'"}]}',
    }
    for raw in heavy.values():
        with pytest.raises(UpstreamUnavailable, match="the limits are"):
            await ListReader("up", "tools").take(raw)

    accepted = b'{"tools":[' + b"{}," * (lists.VALUES_LIMIT - 1) + b"{}]}"
    reader = ListReader("up", "tools")
    assert thread_cpu_s(lambda: reader._split(accepted)) < 0.4 * slowness(), "a blocked loop"
    assert await reader.take(accepted) is None
    assert len(reader.items) == lists.ITEMS_LIMIT


@attack(
    "server",
    "tells of thousands of new tools again and again",
    "they are compiled in slices of 5 ms, between which every other task of the gateway runs",
)
async def test_learning_many_tools_gives_way_to_others() -> None:
    async with gateway() as (app, _):
        source = app.servers._make(hostile())
        definitions = [{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(2_000)]
        turns = 0
        async with anyio.create_task_group() as tasks:

            async def take_turns() -> None:
                nonlocal turns
                while True:
                    await anyio.lowlevel.checkpoint()
                    turns += 1

            tasks.start_soon(take_turns)
            started = time.thread_time()
            await source.learn(definitions, "1")
            worked_s = time.thread_time() - started
            tasks.cancel_scope.cancel()

    assert len(source.tools) == 2_000
    assert turns > worked_s / 0.05, "the loop was blocked for longer than 50 ms"


@attack(
    "server",
    "lists thousands of tools, and changes and poisons all of them, or makes them tools that are refused, again and again",
    "the log has at most 100 lines of each kind about a server in ten seconds; a later line says how many tools it stands for",
)
async def test_the_log_does_not_grow_with_the_number_of_tools(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_limit, "INTERVAL_S", 600.0)
    caplog.set_level(logging.INFO)
    kinds = ("tool changed", "tool is suspicious", "tool refused")
    maps, count = Changing(tmp_path), log_limit.TOOL_LINES + 50

    def list_all(tool: dict[str, Any]) -> None:
        maps.lists(*(tool | {"name": f"lookup{number}"} for number in range(count)))

    def are_judged(tools: Mapping[ToolName, ContractStatus]) -> bool:
        return len(tools) == count and all(each.judgement is not None for each in tools.values())

    list_all(LOOKUP)
    async with gateway(maps.spec()) as (app, _):
        provider = app.servers.providers[PluginName("maps")]
        await until(lambda: len(provider.tools) == count)
        list_all(REWORDED)
        await until(lambda: are_judged(provider.statuses))
        await until(lambda: len(app.servers.watched_tools.findings.of(PluginName("maps"))) == count)
        list_all(LOOKUP | {"inputSchema": {"type": "no type"}})
        await until(lambda: len(provider.refused) == count)

    said = Counter(kind for record in caplog.records for kind in kinds if record.getMessage().startswith(kind))
    assert said == dict.fromkeys(kinds, log_limit.TOOL_LINES)
