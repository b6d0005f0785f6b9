"""Plugins: by reference, by entry point, by hook; a failing one is named and the rest serves."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.ways import BEHAVIOURS, IN_MEMORY, OURS, QUICK_WAYS, Way, plugin_of
from toolpost import Plugin, ToolFailed, hookimpl, tool
from toolpost.app import open_app
from toolpost.base.ids import META_KEY, PluginName
from toolpost.contracts.contract import Keyed
from toolpost.manifest import bundled_plugins
from toolpost.providers import FunctionProvider
from toolpost.testing import client_of, data_of, error_of

pytestmark = pytest.mark.anyio


def loading(*references: str, **options: Any) -> Any:
    return msgspec.structs.replace(IN_MEMORY, plugins=msgspec.structs.replace(OURS, load=list(references), **options))


async def test_a_plugin_that_fails_is_named_and_the_rest_serves(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "broken_import.py").write_text("import no_such_module_anywhere\n")
    (tmp_path / "broken_start.py").write_text(
        "from toolpost import Plugin\nplugin = Plugin('unstarted')\n"
        "@plugin.tool\nasync def x() -> str: 'Give x.'\n"
        "@plugin.on_start\nasync def fail(): raise RuntimeError('no database')\n"
    )
    (tmp_path / "hooks_only.py").write_text(
        "from toolpost import hookimpl, tool\n@tool\nasync def hi() -> str: 'Say hi.'\n"
        "@hookimpl\ndef toolpost_tools(): return [hi]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    config = loading(
        "broken_import:plugin", "broken_start:plugin", "hooks_only", "no.such:thing", BEHAVIOURS, BEHAVIOURS
    )
    async with open_app(config) as app:
        health = app.monitor.health()
        names = {tool.contract.name for tool in app.gateway.catalog}

    states = [(plugin.name, plugin.state) for plugin in app.plugins.plugins]
    assert ("broken_import:plugin", "failed") in states
    assert ("unstarted", "failed") in states
    assert states.count(("does", "healthy")) == 1
    assert states.count(("does", "failed")) == 1
    assert health["status"] == "degraded"
    assert "no database" in str(health["plugins"]["unstarted"]["problems"])
    assert {"does__echo", "hooks_only__hi", "time__current_time"} <= names
    assert not any(name.startswith("unstarted") for name in names)


async def test_start_and_stop_run_in_order() -> None:
    seen: list[str] = []
    plugin = Plugin("steps")

    @plugin.on_start
    async def first() -> None:
        seen.append("start 1")

    @plugin.on_start
    def second() -> None:
        seen.append("start 2")

    @plugin.on_stop
    async def last() -> None:
        seen.append("stop 1")

    @plugin.on_stop
    def before_last() -> None:
        seen.append("stop 2")

    async with open_app(IN_MEMORY, plugins=[plugin], bundled=False):
        seen.append("serving")

    assert seen == ["start 1", "start 2", "serving", "stop 2", "stop 1"]


GOOD = {"type": "object", "properties": {"x": {"type": "string"}}}

REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no schema": ({"input_schema": 7}, "inputSchema", "object"),
    "invalid schema": (
        {"input_schema": {"type": "object", "properties": {"x": {"type": "strnig"}}}},
        "inputSchema/properties/x/type",
        "",
    ),
    "non-object root": ({"input_schema": {"type": "array"}}, "inputSchema/type", "object"),
    "external reference": (
        {"input_schema": {"type": "object", "properties": {"x": {"$ref": "https://example.com/x.json"}}}},
        "inputSchema/properties/x/$ref",
        "",
    ),
    "dangling reference": (
        {"input_schema": {"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}}},
        "inputSchema/properties/x/$ref",
        "",
    ),
    "bad output schema": ({"input_schema": GOOD, "output_schema": {"type": "thing"}}, "outputSchema/type", ""),
    "plain output is no object": (
        {"input_schema": GOOD, "output_schema": {"type": "array"}, "style": "plain"},
        "outputSchema/type",
        "",
    ),
    "name with a dot": ({"input_schema": GOOD, "name": "a.b"}, "name", "letters"),
    "name with a space": ({"input_schema": GOOD, "name": "Hello Tool"}, "name", "letters"),
    "long name": ({"input_schema": GOOD, "name": "x" * 70}, "name", "64"),
    "no description": ({"input_schema": GOOD, "description": " \n"}, "description", "docstring"),
    "a description that is no text": ({"input_schema": GOOD, "description": 7}, "description", "docstring"),
    "root without a type that is no object": ({"input_schema": {"items": {}}}, "inputSchema", "object"),
    "version zero": ({"input_schema": GOOD, "schema_version": 0}, "schemaVersion", "from 1"),
    "no time": ({"input_schema": GOOD, "timeout_s": -1}, "timeout_s", "above 0"),
    "unknown concurrency": ({"input_schema": GOOD, "concurrency": "bogus"}, "concurrency", "serial"),
    "unknown key": ({"input_schema": GOOD, "concurrency": Keyed("repo")}, "concurrency", "repo"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_could_not_be_kept_is_refused_by_plugin_tool_and_place(case: str) -> None:
    options, place, words = REFUSED[case]

    async def run(arguments: dict[str, Any]) -> str:
        """Run."""
        return "ran"

    plugin = Plugin("p")
    plugin.tool(**{"name": "bad", **options})(run)
    plugin.tool(name="good", input_schema=GOOD)(run)
    async with open_app(IN_MEMORY, plugins=[plugin], bundled=False) as app:
        [loaded] = app.plugins.plugins
        assert loaded.provider is not None
        [refusal] = loaded.provider.refused
        names = [tool.contract.name for tool in app.gateway.catalog]

    assert refusal.details["plugin"] == "p"
    assert refusal.details["tool"] == options.get("name", "bad")
    assert refusal.details["place"] == place
    assert words in refusal.details["reason"]
    assert loaded.state == "degraded"
    assert names == ["p__good"]


async def test_a_tool_without_a_docstring_is_refused() -> None:
    async def silent(text: str) -> str:
        return text

    [refusal] = FunctionProvider(PluginName("p"), [tool(silent)]).refused

    assert refusal.message.startswith("plugin `p`, tool `silent`, description: it has no description")


async def test_a_duplicate_is_refused() -> None:
    plugin = Plugin("p")
    plugin.tool(name="same", description="Give 1.", input_schema={"type": "object"})(lambda arguments: 1)
    plugin.tool(name="same", description="Give 2.", input_schema={"type": "object"})(lambda arguments: 2)
    async with client_of(plugin) as client:
        answer = await client.call_tool("p__same", {})

    assert data_of(answer) == 1


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_former_names_still_answer_and_say_what_they_are(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    plugin = Plugin("p")

    @plugin.tool(aliases=["say"])
    async def speak(text: str) -> str:
        """Say it."""
        return text

    async with client_of(plugin, mode=mode) as client:
        answers = [await client.call_tool("p__say", {"text": "x"}) for _ in range(2)]
        usual = await client.call_tool("p__speak", {"text": "x"})
        listed = (await client.list_tools()).tools

    facts = [(answer.meta or {})[META_KEY].get("deprecated") for answer in (*answers, usual)]
    assert [data_of(answer) for answer in answers] == ["x", "x"]
    assert facts == [{"name": "p__say", "use": "p__speak"}, {"name": "p__say", "use": "p__speak"}, None]
    assert [tool.name for tool in listed] == ["p__speak"]
    assert (listed[0].meta or {})[META_KEY]["aliases"] == ["p__say"]
    assert caplog.text.count("deprecated tool name") == 1


async def test_a_tool_can_still_be_called_as_a_function() -> None:
    @tool(style="plain")
    async def shout(text: str) -> str:
        """Say it loudly."""
        return text.upper()

    assert await shout("x") == "X"
    async with client_of(Plugin("p", tools=[shout])) as client:
        assert data_of(await client.call_tool("p__shout", {"text": "x"})) == "X"


async def test_options_that_do_not_exist_are_named() -> None:
    with pytest.raises(TypeError, match="unknown option `timeout` of a tool; did you mean `timeout_s`"):
        tool(timeout=3)(_two)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="as one dict"):
        tool(input_schema=GOOD)(_two)


async def _two(a: Any, b: Any) -> None:
    return None


async def test_hints_that_say_nothing_are_refused_at_once() -> None:
    with pytest.raises(TypeError, match="no type hint"):
        tool(lambda x: x)

    with pytest.raises(TypeError, match="by name"):

        @tool
        async def many(*args: int) -> int:
            return 1


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_tools_failure_is_in_the_log_with_its_ids(way: Way, caplog: Any) -> None:
    async with way.client(BEHAVIOURS) as client:
        answer = await client.call_tool("does__explode", {"message": "kaput"})

    [record] = [record for record in caplog.records if record.message == "tool failed"]
    fields = record.fields
    assert fields["tool"] == "does__explode"
    assert fields["plugin"] == "does"
    assert fields["code"] == "HANDLER_ERROR"
    assert len(fields["trace"]) == 32
    assert fields["call"] == (answer.meta or {})["dev.toolpost/meta"]["callId"]
    assert record.exc_info is not None


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_bug_of_ours_is_internal_and_shows_nothing(way: Way, caplog: Any, monkeypatch: Any) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret detail")

    async with way.client(BEHAVIOURS) as client:
        monkeypatch.setattr(sys.modules["toolpost.middleware.dispatch"], "_encode", broken)
        answer = await client.call_tool("does__echo", {"text": "x"})

    error = error_of(answer)
    assert error["code"] == "INTERNAL"
    assert error["details"]["callId"] in error["hint"]
    assert "secret" not in str(answer)
    assert "Traceback" not in str(answer)
    assert any(record.message == "internal error" and record.exc_info for record in caplog.records)


async def test_an_installed_package_announces_its_plugin(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "announced.py").write_text(
        "from toolpost import Plugin\nplugin = Plugin('announced')\n@plugin.tool\nasync def hi() -> str: 'Say hi.'\n"
    )
    info = tmp_path / "announced-3.2.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: announced\nVersion: 3.2.1\n")
    (info / "entry_points.txt").write_text("[toolpost]\nannounced = announced:plugin\nbroken = announced:nothing\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    async with open_app(loading()) as app:
        states = {plugin.name: (plugin.state, plugin.version) for plugin in app.plugins.plugins}

    assert states["announced"] == ("healthy", "3.2.1")
    assert states["broken"][0] == "failed"
    assert "announced" in sys.modules


async def test_a_plugin_may_be_left_out() -> None:
    async with open_app(loading(disable=list(bundled_plugins()))) as app:
        assert len(app.gateway.catalog) == 0


def test_what_authors_import_is_all_there() -> None:
    import toolpost

    names = vars(toolpost)["__all__"]
    assert sorted(names) == names
    assert all(hasattr(toolpost, name) for name in names)
    assert {hookimpl, tool, ToolFailed} <= {getattr(toolpost, name) for name in names}
    assert plugin_of(BEHAVIOURS).name == "does"
