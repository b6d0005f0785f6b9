"""What authors are told of a reference or a plugin that cannot be served: what is wrong, and in which line."""

from pathlib import Path

import msgspec
import pytest

from toolpost import Plugin
from toolpost.cli.open_app_problems import problems_of
from toolpost.settings.model import PluginSettings
from toolpost.testing import IN_MEMORY, client_of, error_of, open_test_app

pytestmark = pytest.mark.anyio

MISTAKES = {
    "five:value": ("value = 5\n", "`five:value` is neither a plugin nor a server, but of the type `int`"),
    "six:Kit": (
        "from toolpost import Plugin\n\nclass Kit(Plugin):\n    pass\n",
        "`six:Kit` is a class; name an object of it: `plugin = Kit()`",
    ),
    "seven": ("from toolpost import Plugin\n\nmine = Plugin('seven')\n", "did you mean `seven:mine`?"),
    "eight": ("", "the module is no plugin and has none in it"),
    "nine:plugin": ("from toolpost import Plugin\n\nplugin = Plugin('not a name')\n", "single `_` (FOLDER/nine.py:3)"),
    "ten:plugin": (
        (
            "from toolpost import Plugin\n\nplugin = Plugin('ten')\n\n"
            "@plugin.tool\ndef look() -> 'Missing':\n    'Look.'\n    return 1\n"
        ),
        "NameError: name 'Missing' is not defined (FOLDER/ten.py:5)",
    ),
    "eleven:plugin": (
        (
            "from toolpost import Plugin\n\nplugin = Plugin('eleven')\n\n"
            "@plugin.prompt\ndef ask(*words: str) -> str:\n    'Ask.'\n    return ''\n"
        ),
        "`ask`: `*words: str`: each argument is taken by name (FOLDER/eleven.py:5)",
    ),
}


@pytest.mark.parametrize("reference", MISTAKES)
async def test_a_mistake_is_named_with_its_place(
    reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, expected = MISTAKES[reference]
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    (tmp_path / f"{reference.partition(':')[0]}.py").write_text(code)
    config = msgspec.structs.replace(IN_MEMORY, plugins=PluginSettings(load=[reference], bundled=[]))
    async with open_test_app(config=config) as app:
        [problem] = problems_of(app)
    assert expected.replace("FOLDER", str(tmp_path)) in problem


async def test_a_missing_key_is_said_to_be_one() -> None:
    plugin = Plugin("keys")

    @plugin.tool
    async def look() -> str:
        """Look."""
        return dict[str, str]()["color"]

    async with client_of(plugin) as client:
        assert error_of(await client.call_tool("keys__look", {}))["message"] == "KeyError: 'color'"
