"""Modes: what a gateway, or a caller, may call at all, however it is called."""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.ways import BOTH, IN_MEMORY, QUICK_WAYS, STATELESS, Way
from tests.wire.callers import client_of
from toolpost import Plugin, ToolInfo
from toolpost.app import open_app, open_http
from toolpost.audit import AuditFilter
from toolpost.middleware import Call, CheckedResult
from toolpost.middleware.interface import NextStep
from toolpost.parts import Guard, Host, Part
from toolpost.settings import Config, ServerSettings
from toolpost.settings.callers import CallerSettings
from toolpost.settings.model import ModeSettings
from toolpost.testing import data_of, error_of

pytestmark = pytest.mark.anyio

shop = Plugin("shop")


@shop.tool(annotations={"readOnlyHint": True})
async def look(what: str) -> str:
    "Look at something."
    return what


@shop.tool
async def buy(what: str) -> str:
    "Buy something."
    return what


@shop.tool(annotations={"readOnlyHint": "yes"})
async def steal(what: str) -> str:
    "Steal something."
    return what


def config_of(base: Config = IN_MEMORY, **modes: Any) -> Config:
    return msgspec.structs.replace(base, modes=ModeSettings(**modes))


async def names(client: Client, prefix: str) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools if tool.name.startswith(prefix)}


class Recorder(Guard):
    """Lets all calls pass, and notes them."""

    name = "recorder"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def may_apply(self, tool: ToolInfo) -> bool:
        return tool.provider == "shop"

    async def admit(self, call: Call, proceed: NextStep) -> CheckedResult:
        self.seen.append(f"admit {call.tool.contract.name}")
        return await proceed(call)

    def check(self, call: Call) -> None:
        self.seen.append(f"check {call.tool.contract.name}")


async def test_no_guard_is_asked_about_a_call_that_the_mode_refuses() -> None:
    guard = Recorder()

    @asynccontextmanager
    async def open_part(host: Host) -> AsyncIterator[Sequence[object]]:
        yield [guard]

    part = Part(name="recorder", opens=open_part)
    async with (
        open_app(config_of(mode="readonly"), plugins=[shop], parts=[part]) as app,
        Way("memory", STATELESS).client_of(app) as client,
    ):
        refused = error_of(await client.call_tool("shop__buy", {"what": "x"}))["code"]
        await client.call_tool("shop__look", {"what": "x"})

    assert refused == "FORBIDDEN"
    assert guard.seen == ["admit shop__look", "check shop__look"]


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_only_what_is_read_only_is_served_and_called(way: Way) -> None:
    async with (
        open_app(config_of(BOTH, mode="readonly"), plugins=[shop]) as app,
        way.client_of(app) as client,
    ):
        listed = await names(client, "shop__")
        fine = data_of(await client.call_tool("shop__look", {"what": "x"}))
        refused = [
            error_of(await client.call_tool(*call))["code"]
            for call in (
                ("shop__buy", {"what": "x"}),
                ("shop__steal", {"what": "x"}),
                ("automatic_eval", {"toolName": "shop__buy", "arguments": {"what": "x"}}),
            )
        ]
        found = await app.store.audit.entries(AuditFilter(code="FORBIDDEN"), limit=10)
        outcomes = [record.entry.outcome for record in found]

    assert (listed, fine) == ({"shop__look"}, "x")
    assert refused == ["FORBIDDEN"] * 3
    assert outcomes == ["refused"] * 3


async def test_only_named_tools_are_served() -> None:
    config = config_of(mode="minimal", minimal=["shop__l*", "time__*"])
    async with open_app(config, plugins=[shop]) as app, QUICK_WAYS[0].client_of(app) as client:
        listed = await names(client, "shop__")
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("shop__buy", {"what": "x"})

    assert listed == {"shop__look"}


SERVER = """
import json, pathlib, sys
pathlib.Path(sys.argv[1]).write_text("started")
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "x", "version": "1"}}
    elif message.get("method") == "tools/list":
        result = {"tools": [{"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]}
    elif message.get("method") == "tools/call":
        result = {"content": [{"type": "text", "text": "looked"}]}
    elif "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "?"}}), flush=True)
        continue
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def with_servers(folder: Path, config: Config, **tags: list[str]) -> Config:
    (folder / "server.py").write_text(SERVER)
    servers = {
        name: ServerSettings(
            command=sys.executable, args=[str(folder / "server.py"), str(folder / f"{name}.started")], tags=given
        )
        for name, given in tags.items()
    }
    return msgspec.structs.replace(config, servers=servers, project=str(folder))


@pytest.mark.wire
async def test_a_server_is_believed_only_where_an_operator_has_confirmed_it(tmp_path: Path) -> None:
    config = with_servers(tmp_path, config_of(mode="readonly", confirmed=["good"]), good=[], other=[])
    async with open_app(config) as app, QUICK_WAYS[0].client_of(app) as client:
        listed = {*await names(client, "good__"), *await names(client, "other__")}
        refused = error_of(await client.call_tool("other__look", {}))

    assert listed == {"good__look"}
    assert refused["code"] == "FORBIDDEN"
    assert "modes.confirmed" in refused["hint"]


@pytest.mark.wire
async def test_only_servers_for_testing_are_started(tmp_path: Path) -> None:
    config = with_servers(tmp_path, config_of(mode="test"), sandbox=["test"], real=["prod"])
    async with open_app(config) as app, QUICK_WAYS[0].client_of(app) as client:
        listed = await names(client, "")

    assert listed == {"sandbox__look"}
    assert not (tmp_path / "real.started").exists()


@pytest.mark.wire
async def test_a_caller_has_a_mode_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANN", "ann-secret")
    monkeypatch.setenv("BOB", "bob-secret")
    callers = {"ann": CallerSettings(token="${ANN}", mode="readonly"), "bob": CallerSettings(token="${BOB}")}
    config = msgspec.structs.replace(IN_MEMORY, callers=callers)
    listed = {}
    async with open_app(config, plugins=[shop]) as app, open_http(app) as url:
        for token in ("ann-secret", "bob-secret"):
            async with client_of(url, token, STATELESS) as client:
                listed[token] = await names(client, "shop__")
                answer = await client.call_tool("shop__buy", {"what": "x"})
                assert answer.is_error == (token == "ann-secret")

    assert listed == {
        "ann-secret": {"shop__look"},
        "bob-secret": {"shop__look", "shop__buy", "shop__steal"},
    }
