"""Plugins that are loaded again, and where their errors are."""

import gc
import time
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from mcp import Client

from tests.waiting import until
from toolpost import Plugin
from toolpost.base.ids import JsonObject
from toolpost.cli.plugin_reload import reload_plugin
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.providers.functions import FunctionProvider
from toolpost.providers.loaded_plugin import LoadedPlugin
from toolpost.providers.plugin_candidates import PluginCandidate
from toolpost.providers.plugin_maker import PluginMaker
from toolpost.settings import Config
from toolpost.settings.model import PluginSettings
from toolpost.testing import IN_MEMORY, client_of, open_test_app

pytestmark = pytest.mark.anyio

GOOD = """
from toolpost import Plugin

plugin = Plugin("again")
plugin.on_stop(lambda: print("stopped"))


@plugin.tool
async def say() -> str:
    "Say a word."
    return "word"
"""


def schema_of(number: int) -> JsonObject:
    return {"type": "object", "properties": {f"p{number}": {"type": "string", "maxLength": number}}}


def config_with(reference: str) -> Config:
    return msgspec.structs.replace(IN_MEMORY, plugins=PluginSettings(load=[reference], bundled=[]))


async def test_a_plugin_that_never_loaded_is_served_once_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    code = tmp_path / "again_plugin.py"
    code.write_text("import toolpost\n\ndef broken(:\n    pass\n")
    async with open_test_app(config=config_with("again_plugin:plugin")) as app:
        [failed] = app.plugins.plugins
        assert failed.state == "failed"
        assert f"SyntaxError: invalid syntax (again_plugin.py, line 3) ({code}:3)" in failed.problems[0]

        code.write_text(GOOD)
        assert await reload_plugin(app, "again_plugin:plugin")
        [served] = app.plugins.plugins
        assert (served.name, served.state) == ("again", "healthy")

        code.write_text(GOOD + "1 / 0\n")
        assert not await reload_plugin(app, "again_plugin:plugin")
        assert app.plugins.plugins == [served]
        assert f"ZeroDivisionError: division by zero ({code}:12)" in capsys.readouterr().err

        code.write_text(GOOD.replace("@plugin.tool", "@plugin.tool(aliases=['not a name'])"))
        assert not await reload_plugin(app, "again_plugin:plugin")
        assert app.plugins.plugins == [served]
        assert f"({code}:8)" in capsys.readouterr().err, "a tool that cannot be listed is named with its place"

        code.write_text(GOOD)
        assert await reload_plugin(app, "again_plugin:plugin"), "a failed one leaves nothing behind"
        assert capsys.readouterr().out == "stopped\n", "the former one is stopped only now"


OBJECT = """
from mcp.server.mcpserver import MCPServer

mcp = MCPServer("object")


@mcp.tool()
async def say() -> str:
    "Say a word."
    return "WORD"
"""


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_server_object_is_replaced_and_a_broken_one_is_not(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    code, reference = tmp_path / "again_object.py", "again_object:mcp"
    code.write_text("1 / 0\n")
    async with open_test_app(config=config_with(reference)) as app:
        code.write_text(OBJECT.replace("WORD", "one"))
        assert await reload_plugin(app, reference), "one that never loaded"
        assert app.plugins.plugins == []
        await until(lambda: len(app.gateway.catalog))

        async with Client(open_memory_endpoint(app.call_handler, app.sdk), mode=mode) as client:

            async def say() -> object:
                return (await client.call_tool("object__say", {})).structured_content

            assert await say() == {"result": "one"}
            code.write_text(OBJECT.replace("WORD", "two"))
            before = app.gateway.catalog
            assert await reload_plugin(app, reference)
            await until(lambda: app.gateway.catalog is not before)
            assert await say() == {"result": "two"}
            assert "reloaded: object, with 1 tool\n" in capsys.readouterr().err

            code.write_text(OBJECT.replace('MCPServer("object")', 'MCPServer("object", lifespan=lambda _: 1 / 0)'))
            assert not await reload_plugin(app, reference)
            assert "ZeroDivisionError" in capsys.readouterr().err
            assert await say() == {"result": "two"}

            code.write_text(GOOD.replace("plugin", "mcp"))
            assert not await reload_plugin(app, reference)
            assert "it was a server object and is a plugin now" in capsys.readouterr().err
            assert await say() == {"result": "two"}


async def test_a_tool_that_cannot_be_made_is_named_with_its_parameter() -> None:
    plugin = Plugin("notes")
    with pytest.raises(TypeError, match="tool `read`: `path` is a `Thing`, which callers cannot send as JSON"):

        @plugin.tool
        def read(number: int, path: Thing) -> str:
            return str(path)


async def test_the_style_of_a_plugin_is_that_of_its_tools() -> None:
    plugin = Plugin("notes", style="plain")

    @plugin.tool
    async def one() -> int:
        """Return 1."""
        return 1

    @plugin.tool(style="envelope")
    async def two() -> int:
        """Return 2."""
        return 2

    async with client_of(plugin) as client:
        answers = [await client.call_tool(f"notes__{name}", {}) for name in ("one", "two")]
    assert [answer.structured_content for answer in answers] == [None, {"ok": True, "data": 2}]


class Thing:
    """A type that has no schema."""


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_failed_assertion_is_shown_by_itself(mode: str) -> None:
    with pytest.raises(AssertionError, match="mine") as raised:
        async with client_of(Plugin("notes"), mode=mode):
            raise AssertionError("mine")
    assert raised.value.__context__ is None
    assert len(raised.traceback) == 1, "the line of the test alone"


async def test_a_plugin_with_many_tools_is_made_beside_the_event_loop() -> None:
    few = Plugin("many")

    @few.tool
    async def one(word: str) -> str:
        "Say a word."
        return word

    [tool] = few.toolpost_tools()
    numbered = [replace(tool.terms, name=f"t{n}", input_schema=schema_of(n)) for n in range(1_000)]
    many = Plugin("many", tools=[replace(tool, terms=terms) for terms in numbered])
    async with open_test_app(few) as app:
        loop_s, all_s = time.thread_time(), time.process_time()
        await app.plugins.reload(PluginCandidate(name="many", load=lambda: many))
        loop_s, all_s = time.thread_time() - loop_s, time.process_time() - all_s

    assert loop_s < all_s / 4, "contracts are compiled in a thread"


async def test_a_tool_that_is_added_while_a_plugin_is_made_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    early, made = Plugin("growing"), PluginMaker.make_tools

    def make_tools(*arguments: Any) -> FunctionProvider:
        provider = made(*arguments)

        @early.tool
        async def late() -> str:
            "Say a word."
            return "served"

        return provider

    async with open_test_app(Plugin("growing")) as app:
        monkeypatch.setattr(PluginMaker, "make_tools", make_tools)
        loaded = await app.plugins.reload(PluginCandidate(name="growing", load=lambda: early))
        assert isinstance(loaded, LoadedPlugin)
        assert loaded.provider is not None
        assert [*loaded.provider.tools] == ["growing__late"]


async def test_a_plugin_that_was_replaced_is_freed_without_a_collection_of_garbage() -> None:
    def make(version: str) -> Plugin:
        plugin = Plugin("again", version=version)

        @plugin.tool
        async def say() -> str:
            "Say a word."
            return version

        return plugin

    async with open_test_app(make("1")) as app, Client(open_memory_endpoint(app.call_handler, app.sdk)) as client:
        second = [make("2")]
        gc.disable()
        try:
            await app.plugins.reload(PluginCandidate(name="again", load=lambda: second[0]))
            await client.list_tools()
            [loaded] = app.plugins.plugins
            held: list[Callable[[], object]] = [
                weakref.ref(second[0]),
                weakref.ref(loaded),
                weakref.ref(loaded.provider),
            ]
            second[0] = make("3")
            del loaded
            await app.plugins.reload(PluginCandidate(name="again", load=lambda: second[0]))
            await client.list_tools()
            await until(lambda: all(each() is None for each in held))
        finally:
            gc.enable()


async def test_many_tools_that_were_replaced_are_freed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolpost.upstreams.lists.SLICE_S", 0.0)

    def make(version: str) -> Plugin:
        plugin = Plugin("again", version=version)
        for number in range(50):

            async def say() -> str:
                """Say a word."""
                return version

            plugin.tool(name=f"say{number}")(say)
        return plugin

    turn = 0
    freed: Counter[int] = Counter()

    async def count_turns() -> None:
        nonlocal turn
        while True:
            await anyio.lowlevel.checkpoint()
            turn += 1

    async with open_test_app(make("1")) as app, anyio.create_task_group() as tasks:
        # The first one is kept by what has opened the gateway.
        first = app.gateway.catalog
        await app.plugins.reload(PluginCandidate(name="again", load=lambda: make("2")))
        await until(lambda: app.gateway.catalog is not first)
        for contract in [tool.contract for tool in app.gateway.catalog]:
            weakref.finalize(contract, lambda: freed.update([turn]))
        del contract
        await app.plugins.reload(PluginCandidate(name="again", load=lambda: make("3")))
        tasks.start_soon(count_turns)
        await until(lambda: freed.total() == 50)
        tasks.cancel_scope.cancel()

    assert max(freed.values()) == 1
