"""Plugins served alone: their tools under bare names, and nothing else."""

from pathlib import Path

import msgspec
import pytest
from mcp import Client

from tests.parts.approvals.bank import bank, refused, requiring, served
from tests.ways import IN_MEMORY, QUICK_WAYS, Way, stdio_server
from toolpost import Plugin
from toolpost.app import open_app
from toolpost.contracts.errors import BadConfiguration
from toolpost.settings.model import ModeSettings, PluginSettings
from toolpost.testing import data_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


def only(name: str | list[str], **settings: object) -> PluginSettings:
    return PluginSettings(only=name, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_plugin_alone_has_bare_names(way: Way) -> None:
    config = msgspec.structs.replace(IN_MEMORY, plugins=only("time"))
    async with open_app(config) as app, way.client_of(app) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        told = data_of(await client.call_tool("current_time", {"timezone": "Asia/Tokyo"}))

    assert "current_time" in names
    assert not any("__" in name for name in names)
    assert told["timezone"] == "Asia/Tokyo"


async def test_a_plugin_that_is_not_there_is_named() -> None:
    config = msgspec.structs.replace(IN_MEMORY, plugins=only("tine"))
    with pytest.raises(BadConfiguration, match="Unknown plugin `tine`") as raised:
        async with open_app(config):
            pass

    assert raised.value.hint == "did you mean `time`?"


async def test_a_plugin_that_is_left_out_cannot_be_served_alone() -> None:
    config = msgspec.structs.replace(IN_MEMORY, plugins=only("bus", disable=["bus"]))
    with pytest.raises(BadConfiguration, match="is disabled"):
        async with open_app(config):
            pass


@pytest.mark.parametrize("pattern", ["bank__*", "pay"])
async def test_rules_of_approvals_hold_for_bare_names(pattern: str) -> None:
    paid: list[int] = []
    config = msgspec.structs.replace(requiring(tools=[pattern, "!bank__balance"]), plugins=only("bank"))
    async with served(config, bank(paid)) as (_, client):
        await refused(client, "pay", amount=5)
        assert data_of(await client.call_tool("balance", {})) == 0

    assert paid == []


@pytest.mark.parametrize("patterns", [["bank__*", "!bank__pay"], ["balance"]], ids=str)
async def test_patterns_of_tools_hold_for_bare_names(patterns: list[str]) -> None:
    modes = ModeSettings(mode="minimal", minimal=patterns)
    config = msgspec.structs.replace(IN_MEMORY, plugins=only("bank"), modes=modes)
    async with served(config, bank([])) as (_, client):
        listed = [tool.name for tool in (await client.list_tools()).tools]

    assert listed == ["balance"]


def offering(name: str, *, tool: str, prompt: str) -> Plugin:
    plugin = Plugin(name, version="1.0.0")

    @plugin.tool(name=tool)
    def answer() -> str:
        """A tool."""
        return name

    @plugin.prompt(name=prompt)
    def ask() -> str:
        """A prompt."""
        return f"of {name}"

    return plugin


EIGHT = {
    *("router_score", "router_fallback", "router_stats", "vrf_eval"),
    *("consensus_propose", "consensus_vote", "consensus_finality", "consensus_gossip"),
}
"""Tools of two plugins that clients know under these names."""


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_several_plugins_have_bare_names_on_one_endpoint(way: Way) -> None:
    config = msgspec.structs.replace(IN_MEMORY, plugins=only(["models", "approvals"]))
    async with open_app(config) as app, way.client_of(app) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        stats = data_of(await client.call_tool("router_stats", {}))

    assert names >= EIGHT
    assert not any("__" in name for name in names)
    assert stats["models"] == {}


async def test_several_plugins_on_the_command_line(tmp_path: Path) -> None:
    server = stdio_server(cwd=tmp_path, arguments=("--only", "models", "--only", "approvals"))
    async with Client(server) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}

    assert names >= EIGHT
    assert not any("__" in name for name in names)


async def test_prompts_of_several_plugins_have_bare_names() -> None:
    plugins = [offering("one", tool="a", prompt="first"), offering("two", tool="b", prompt="second")]
    config = msgspec.structs.replace(IN_MEMORY, plugins=only(["one", "two"]))
    async with open_app(config, plugins=plugins) as app, QUICK_WAYS[0].client_of(app) as client:
        listed = [prompt.name for prompt in (await client.list_prompts()).prompts]
        got = [(await client.get_prompt(name)).messages[0].content for name in ("first", "second")]

    assert sorted(listed) == ["first", "second"]
    assert [getattr(content, "text", None) for content in got] == ["of one", "of two"]


@pytest.mark.parametrize(("tools", "prompts", "what"), [("xx", "ab", "tool `x`"), ("ab", "xx", "prompt `x`")])
async def test_two_plugins_with_one_name_are_refused(tools: str, prompts: str, what: str) -> None:
    plugins = [
        offering(name, tool=tool, prompt=prompt)
        for name, tool, prompt in zip(("one", "two"), tools, prompts, strict=True)
    ]
    config = msgspec.structs.replace(IN_MEMORY, plugins=only(["one", "two"]))
    with pytest.raises(BadConfiguration, match=f"`one` and `two` both have a {what}"):
        async with open_app(config, plugins=plugins):
            pass
