"""Hooks of conversations in plugins: declared by the part, implemented by plugins of any kind, refused where none is declared."""

from pathlib import Path

import pytest

from tests.parts.agents.asking import ADA, asked
from tests.ways import IN_MEMORY
from toolpost import Plugin, hookimpl
from toolpost.app import open_app
from toolpost.contracts.errors import PluginFailed
from toolpost.testing import conversations_of, open_test_app

pytestmark = pytest.mark.anyio


async def test_an_installed_plugin_answers_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pings.py").write_text(
        "from toolpost import hookimpl\n"
        "from toolpost.parts.agents import TurnInfo\n"
        "@hookimpl\n"
        "def toolpost_classify(turn: TurnInfo, text: str) -> str | None:\n"
        "    return f'pong, {turn.caller.id}' if text == '/ping' else None\n"
    )
    info = tmp_path / "pings-1.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pings\nVersion: 1.0.0\n")
    (info / "entry_points.txt").write_text("[toolpost]\npings = pings\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    async with open_app(IN_MEMORY) as app:
        states = {plugin.name: plugin.state for plugin in app.plugins.plugins}
        thread = await conversations_of(app).create_thread(ADA)
        ended = await asked(app, thread.id, "/ping")

    assert states["pings"] == "healthy"
    assert (ended.state, ended.text) == ("done", "pong, local")


async def test_a_hook_of_no_such_name_is_refused() -> None:
    plugin = Plugin("p")

    @plugin.hook
    def toolpost_on_mesage() -> None: ...

    async with open_test_app(plugin) as app:
        [failed] = [plugin for plugin in app.plugins.plugins if plugin.state == "failed"]

    assert failed.problems == [
        "plugin `p` could not be loaded: unknown hook `toolpost_on_mesage`; did you mean `toolpost_on_message`?"
    ]


async def test_an_optional_hook_needs_no_part_that_declares_it() -> None:
    optional, required = Plugin("optional"), Plugin("required")

    @optional.hook
    @hookimpl(optionalhook=True)
    def toolpost_on_message() -> None: ...

    @required.hook
    def toolpost_classify() -> None: ...

    async with open_app(IN_MEMORY, plugins=[optional, required], parts=[], bundled=False) as app:
        states = {plugin.name: plugin.state for plugin in app.plugins.plugins}

    assert states == {"optional": "healthy", "required": "failed"}


@pytest.mark.parametrize("name", ["on_message", "toolpost_start"])
def test_a_name_that_cannot_be_a_hook_is_refused_at_once(name: str) -> None:
    def hook() -> None: ...

    hook.__name__ = name

    with pytest.raises(PluginFailed, match=name):
        Plugin("p").hook(hook)
