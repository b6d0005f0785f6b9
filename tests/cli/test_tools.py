"""`toolpost tools`: the list, one tool in full, and the definitions as clients see them."""

from pathlib import Path

from tests.cli.conftest import PLUGIN, Run


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


def test_failed_plugins_and_refused_tools_are_told_of(invoke: Run) -> None:
    names = ("plugin_for_tests:partly", "plugin_for_tests:failing", "plugin_for_tests:missing")
    ended = invoke("tools", "--json", *(word for name in names for word in ("--plugin", name)))

    assert ended.code == 0
    assert "partly__fine" in [tool["name"] for tool in ended.json]
    assert "warning: plugin `partly`, tool `refused`, inputSchema" in ended.err
    assert "warning: plugin `failing` could not be started: RuntimeError: no licence" in ended.err
    assert "warning: plugin `plugin_for_tests:missing` could not be loaded: AttributeError" in ended.err
    assert "Traceback" not in ended.err


def test_description_of_others_does_not_steer_the_terminal(invoke: Run) -> None:
    ended = invoke("tools", *PLUGIN, FORCE_COLOR="")

    assert "\x1b" not in ended.out


def test_what_a_caller_sees_can_be_looked_at(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(
        '[http]\ntools = ["demo__*"]\n'
        '[callers.ada]\ntoken_env = "NOT_SET"\ntools = ["*__echo", "time__*"]\n'
        '[callers.bob]\ntoken_env = "NOT_SET"\ntags = ["none"]\n'
    )
    ada = invoke("tools", "--caller", "ada", "--json", *PLUGIN)
    hidden = invoke("tools", "demo__steps", "--caller", "ada", *PLUGIN)
    bob = invoke("tools", "--caller", "bob", *PLUGIN)
    nobody = invoke("tools", "--caller", "adda", *PLUGIN)

    assert [tool["name"] for tool in ada.json] == ["demo__echo"]
    assert hidden.code != 0
    assert (bob.out, bob.err) == ("", "`bob` sees no tools; callers.bob and [http] in toolpost.toml limit them\n")
    assert nobody.err == "error: unknown caller `adda`\nhint: did you mean `ada`?\n"
