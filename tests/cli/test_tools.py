"""`toolpost tools`: the list, one tool in full, and the definitions as clients see them."""

from pathlib import Path

import pytest

from tests.cli.conftest import PLUGIN, Run
from toolpost.authoring import Plugin
from toolpost.providers.plugin_candidates import PluginCandidate


def test_tools_are_listed_with_what_they_do_and_no_store_is_made(run: Run, tmp_path: Path) -> None:
    ended = run("tools", *PLUGIN)
    lines = ended.out.splitlines()

    assert ended.code == 0
    assert lines[0].split("  ")[0] == "NAME"
    echo = next(line for line in lines if line.startswith("demo__echo"))
    assert echo.split() == ["demo__echo", "2.5.0", "60", "s", "parallel", "Gives", "back", "what", "it", "is", "given."]
    assert any(line.startswith("demo__steps") and "one per steps" in line for line in lines)
    assert not (tmp_path / ".toolpost").exists()


def test_one_tool_is_shown_in_full(invoke: Run) -> None:
    ended = invoke("tools", "demo__echo", *PLUGIN)

    assert ended.out.startswith("demo__echo  Echo\nGives back what it is given. Nothing else.\n")
    rows = [line.split() for line in ended.out.splitlines()]
    assert ["text", "string", "yes", "-", "Any", "text"] in rows
    assert ["count", "integer", "no", "1"] in rows
    assert ["numbers", "array", "of", "number", "no", "-"] in rows
    assert ["size", "object", "no", "-"] in rows
    assert ["ratio", "number", "or", "null", "no", "-"] in rows
    assert ["former", "names", "demo__repeat"] in rows
    assert "sha256:" in ended.out
    assert "Output schema" in ended.out


def test_json_is_what_clients_are_listed(invoke: Run) -> None:
    listed = invoke("tools", "--json", *PLUGIN).json
    one = invoke("tools", "demo__repeat", "--json", *PLUGIN).json

    assert [tool["name"] for tool in listed] == sorted(tool["name"] for tool in listed)
    assert one["name"] == "demo__echo"
    assert one in listed
    assert set(one) == {"name", "title", "description", "inputSchema", "outputSchema", "_meta"}


def test_failed_plugins_and_refused_tools_are_told_of(invoke: Run, tmp_path: Path) -> None:
    names = ["plugin_for_tests:partly", "plugin_for_tests:failing", "plugin_for_tests:missing"]
    (tmp_path / "toolpost.toml").write_text(f"[plugins]\nload = {names}\n")
    ended = invoke("tools", "--json")

    assert ended.code == 1
    assert "partly__fine" in [tool["name"] for tool in ended.json]
    assert "warning: plugin `partly`, tool `refused`, inputSchema" in ended.err
    assert "warning: plugin `failing` could not be started: RuntimeError: no licence" in ended.err
    assert "warning: plugin `plugin_for_tests:missing` could not be loaded: `plugin_for_tests` has no" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    "command", [("tools",), ("tools", "demo__echo"), ("call", "demo__echo"), ("tools", "--find", "echo")]
)
@pytest.mark.parametrize(
    ("plugin", "says"),
    [
        ("no_such_module:plugin", "there is no module `no_such_module` beside the configuration or installed"),
        ("plugin_for_tests:plugni", "`plugin_for_tests` has no `plugni`; did you mean `plugin_for_tests:plugin`"),
        ("./nowhere.py", "there is no file ./nowhere.py"),
    ],
)
def test_a_named_plugin_that_fails_is_the_only_message(
    invoke: Run, command: tuple[str, ...], plugin: str, says: str
) -> None:
    ended = invoke(*command, "--with", "time", "--plugin", plugin)

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith(f"error: plugin `{plugin}` could not be loaded: {says}")
    assert ended.err.count("\n") == 1


def test_two_plugins_of_one_name_are_both_named(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "second_demo.py").write_text('from toolpost import Plugin\n\nplugin = Plugin("demo")\n')
    ended = invoke("tools", *PLUGIN, "--plugin", "./second_demo.py")

    assert ended.code == 1
    assert "`plugin_for_tests:plugin` and `./second_demo.py` are both named `demo`" in ended.err
    assert invoke("tools", *PLUGIN, *PLUGIN).code == 0


def test_a_named_plugin_wins_over_an_installed_one(
    invoke: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tool() -> int:
        """Be installed."""
        return 1

    demo, other = Plugin("demo"), Plugin("other")
    for plugin in (demo, other):
        plugin.tool(tool)
    installed = [PluginCandidate(name=plugin.name, load=lambda plugin=plugin: plugin) for plugin in (demo, other)]  # type: ignore[misc]
    monkeypatch.setattr("toolpost.app.loading.find_installed", lambda: installed)
    ended = invoke("tools", "--json", *PLUGIN)

    names = [tool["name"] for tool in ended.json]
    assert (ended.code, ended.err) == (0, "")
    assert "demo__echo" in names
    assert "other__tool" in names
    assert "demo__tool" not in names


def test_description_of_others_does_not_steer_the_terminal(invoke: Run) -> None:
    ended = invoke("tools", *PLUGIN, FORCE_COLOR="")

    assert "\x1b" not in ended.out


def test_what_a_caller_sees_can_be_looked_at(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(
        '[http]\ntools = ["demo__*"]\n'
        '[callers.ada]\ntoken = "${NOT_SET}"\ntools = ["*__echo", "time__*"]\n'
        '[callers.bob]\ntoken = "${NOT_SET}"\ntags = ["none"]\n'
    )
    ada = invoke("tools", "--caller", "ada", "--json", *PLUGIN)
    hidden = invoke("tools", "demo__steps", "--caller", "ada", *PLUGIN)
    bob = invoke("tools", "--caller", "bob", *PLUGIN)
    nobody = invoke("tools", "--caller", "adda", *PLUGIN)

    assert [tool["name"] for tool in ada.json] == ["demo__echo"]
    assert hidden.code != 0
    assert (bob.out, bob.err) == ("", "`bob` sees no tools; callers.bob and [http] in toolpost.toml limit them\n")
    assert nobody.err == "error: unknown caller `adda`\nhint: did you mean `ada`?\n"
