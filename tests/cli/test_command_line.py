"""The command line as a whole: help, suggestions, completion, exit codes, and the page in the docs."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.cli.conftest import TOOLPOST, Run
from tests.cli.terminals import on_a_terminal
from toolpost.base.version import __version__
from toolpost.cli.auth.group import COMMANDS as AUTH_COMMANDS
from toolpost.cli.main import COMMANDS, main
from toolpost.cli.reference import render_page, walk_commands
from toolpost.contracts import errors
from toolpost.terminal.exits import ExitCode, exit_code_of_error
from toolpost.terminal.renamed import RENAMED

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"

ALL_COMMANDS = {context.command_path: context for context in walk_commands()}


def test_reference_page_is_what_the_code_says() -> None:
    assert REFERENCE.read_text(encoding="utf-8") == render_page(), (
        "run python -m toolpost.cli.reference > docs/reference/cli.md"
    )


@pytest.mark.parametrize("context", ALL_COMMANDS.values(), ids=ALL_COMMANDS.keys())
def test_help_has_examples(context: click.Context) -> None:
    _, _, examples = context.get_help().partition("Examples:")

    assert examples.count("toolpost ") >= 2


@pytest.mark.parametrize("context", ALL_COMMANDS.values(), ids=ALL_COMMANDS.keys())
def test_help_fits_80_columns(context: click.Context) -> None:
    narrow = click.Context(context.command, info_name=context.info_name, parent=context.parent, terminal_width=80)
    shown = narrow.get_help().splitlines()

    assert max(map(len, shown)) <= 80
    assert [line for line in shown if line.endswith("...") and not line.startswith("Usage:")] == []


LISTED = COMMANDS | {f"auth {name}": command for name, command in AUTH_COMMANDS.items()}


@pytest.mark.parametrize("name", LISTED)
def test_line_in_the_list_is_the_first_of_the_help(name: str) -> None:
    assert ALL_COMMANDS[f"toolpost {name}"].command.get_short_help_str(100) == LISTED[name].short_help


def test_help_fits_on_24_lines_of_80_columns() -> None:
    shown = CliRunner().invoke(main, ["--help"], prog_name="toolpost", terminal_width=80).stdout.splitlines()
    headings = [line.split()[0] for line in shown if line.startswith("  ") and "  " in line.strip()]

    assert len(shown) <= 24
    assert max(map(len, shown)) <= 80
    assert [name for name in headings if name.isalpha() and name != "toolpost"] == [
        "Start", "Contracts", "Operate", "Products", "More",
    ]  # fmt: skip
    listed = {name for line in shown for name in line.split()}
    assert {name for name in COMMANDS if name not in listed} == {"completion"}


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_name_is_an_error_that_says_the_new_one(old: str, new: str) -> None:
    refused = CliRunner().invoke(main, [*old.split(), "x"], prog_name="toolpost")

    assert refused.exit_code == ExitCode.USAGE
    assert refused.stderr.startswith("error: unknown ")
    assert f"\nhint: use `toolpost {new}`\n" in refused.stderr
    assert f"toolpost {old}" not in ALL_COMMANDS


def test_no_message_and_no_page_says_an_old_name() -> None:
    root = REFERENCE.parents[2]
    pages = [*root.glob("*.md"), *root.glob("changes/*.md"), *root.glob("docs/**/*.md")]
    texts = [*pages, *(path for kind in ("py", "js", "html") for path in root.glob(f"src/**/*.{kind}"))]
    old = re.compile(rf"\btoolpost ({'|'.join(sorted(RENAMED, key=len, reverse=True))})(?![\w.-])")
    is_history = {"CHANGELOG.md"}

    assert [
        f"{path.relative_to(root)}: {found[0]}"
        for path in texts
        if path.name not in is_history
        for found in old.finditer(path.read_text(encoding="utf-8"))
    ] == []


@pytest.mark.parametrize("new", sorted(set(RENAMED.values())))
def test_a_new_name_is_a_command_with_this_option(new: str) -> None:
    context = ALL_COMMANDS["toolpost"]
    for word in new.split():
        if isinstance(context.command, click.Group) and (word in context.command.list_commands(context)):
            context = ALL_COMMANDS[f"{context.command_path} {word}"]
        elif word.startswith("--"):
            assert word in {option for parameter in context.command.params for option in parameter.opts}
        else:
            assert word.isupper()


def test_help_and_version_do_not_load_the_gateway(run: Run) -> None:
    code = "import sys; from toolpost.cli.main import main; main(['--help'], standalone_mode=False); print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert "toolpost.app" not in loaded
    assert "'rich" not in loaded
    assert run("--version").out == f"toolpost, version {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["serv"], "unknown command `serv`", "did you mean `serve`? `toolpost --help` lists all of them"),
        (["config", "shwo"], "unknown command `shwo`", "did you mean `show`?"),
        (["tools", "--jsn"], "unknown option `--jsn`", "did you mean `--json`? see `toolpost tools --help`"),
        (["call"], "missing argument 'NAME'", "see `toolpost call --help`"),
        (["auth", "tokn"], "unknown command `tokn`", "did you mean `token`? `toolpost auth --help` lists all of them"),
        (["tools", "read", "file"], "one tool at a time", "see `toolpost tools --help`"),
        (["chat", "--json", "schedules"], "`schedules` comes before its options", "see `toolpost chat --help`"),
    ],
)
def test_slip_of_the_keyboard_is_met_with_the_nearest(arguments: list[str], error: str, hint: str) -> None:
    result = CliRunner().invoke(main, arguments, prog_name="toolpost")

    assert result.exit_code == ExitCode.USAGE
    assert result.stderr.startswith(f"error: {error}")
    assert f"\nhint: {hint}" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_printed(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])

    assert result.exit_code == 0
    assert f"_TOOLPOST_COMPLETE={shell}_complete" in result.stdout


def test_names_of_commands_and_tools_are_completed(run: Run) -> None:
    shell = {"_TOOLPOST_COMPLETE": "bash_complete", "COMP_CWORD": "1"}
    plugin = "--plugin plugin_for_tests:plugin"

    assert run(COMP_WORDS="toolpost co", **shell).out.split() == ["plain,console", "plain,config", "plain,completion"]
    words = f"toolpost call {plugin} demo__e"
    assert run(COMP_WORDS=words, **shell | {"COMP_CWORD": "4"}).out.split() == ["plain,demo__echo"]
    assert run(COMP_WORDS="toolpost tools --config missing t", **shell | {"COMP_CWORD": "4"}).out.split() == []


@pytest.mark.parametrize("kind", [*errors.CallerError.__subclasses__(), *errors.SourceError.__subclasses__()])
def test_every_error_of_a_call_has_an_exit_code_of_its_branch(kind: type[errors.ToolpostError]) -> None:
    special = {errors.CallCancelled: ExitCode.CANCELLED, errors.ToolTimedOut: ExitCode.TIMED_OUT}
    usual = ExitCode.USAGE if issubclass(kind, errors.CallerError) else ExitCode.FAILED
    needed: dict[type, dict[str, Any]] = {
        errors.ToolTimedOut: {"timeout_ms": 1},
        errors.UpstreamRefused: {"rpc_code": 1},
    }
    error = kind("It failed.", **needed.get(kind, {}))

    assert exit_code_of_error(error) == special.get(kind, usual)


@pytest.mark.parametrize("kind", [*errors.OperatorError.__subclasses__(), errors.GatewayError])
def test_operators_errors_and_ours_have_exit_codes(kind: type[errors.ToolpostError]) -> None:
    is_ours = kind is errors.GatewayError

    expected = ExitCode.FAILED if kind is errors.PluginFailed else ExitCode.SETUP
    assert exit_code_of_error(kind()) == (ExitCode.INTERNAL if is_ours else expected)


@pytest.mark.wire
@pytest.mark.parametrize("no_color", [False, True])
def test_colour_is_for_terminals_that_want_it(tmp_path: Path, environment: dict[str, str], no_color: bool) -> None:
    environment = environment | {"TERM": "xterm-256color"} | ({"NO_COLOR": "1"} if no_color else {})
    shown = on_a_terminal(["tools", "time__current_time"], tmp_path, environment)
    refused = on_a_terminal(["call", "nope"], tmp_path, environment)

    assert "time__current_time" in shown
    assert ("\x1b[3" in shown) is not no_color
    assert "unknown tool `nope`" in refused
    assert ("\x1b[3" in refused) is not no_color


@pytest.mark.wire
def test_bar_is_shown_on_a_terminal_and_goes(tmp_path: Path, environment: dict[str, str]) -> None:
    words = ["call", "demo__steps", "steps=2", "--plugin", "plugin_for_tests:plugin"]
    shown = on_a_terminal(words, tmp_path, environment | {"TERM": "xterm-256color"})

    assert "step 1" in shown
    assert "progress:" not in shown
    assert shown.rstrip().endswith('done\x1b[0m\x1b[32m"\x1b[0m') or '"done"' in shown


@pytest.mark.wire
def test_reader_that_stops_reading_is_no_error(tmp_path: Path, environment: dict[str, str]) -> None:
    command = f"{TOOLPOST} config schema | head -1; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )

    assert ended.stdout == "{\n0\n"
    assert ended.stderr == ""
