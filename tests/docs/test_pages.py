"""What every page keeps to: tables that render, one spelling of the command, an installation that works, tools that exist.

Only what a reader of the README and of docs/ sees; `test_guides.py` runs the examples.
"""

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click
import pytest
from markdown_it import MarkdownIt

from tests.docs.blocks import GUIDES, ROOT, blocks_of, extras_named
from tests.settings.schema import settings_in
from toolpost.cli.reference import walk_commands
from toolpost.settings.loader import config_schema
from toolpost.settings.removed import REMOVED, find_replacement

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
READ = [
    page for page in PAGES if page.name not in ("CHANGELOG.md", "CONTRIBUTING.md") and "decisions" not in page.parts
]
"""What somebody reads who uses Toolpost, not those who work on it."""

BUNDLED: dict[str, Any] = json.loads((ROOT / "toolpost.lock").read_text())["tools"]
"""Every tool that comes with Toolpost; `scripts/test` compares the lock with the code."""

UPSTREAM = {
    "tasks": {"echo"},
    "github": {"create_issue", "delete_file", "get_file_contents", "search_code", "search_repositories"},
    "library": {"read", "write"},
    "near": {"read", "write"},
}
"""Some tools of servers that the pages name and that nobody here has."""

PLACEHOLDERS = {"server", "my"}
"""`server__tool` stands for any; so does `my__tool` in the help of `toolpost call`."""


def _ids(page: Path) -> str:
    return str(page.relative_to(ROOT))


# -- tables ------------------------------------------------------------------------------------------------------------------

_BAR = re.compile(r"(?<!\\)\|")
"""What ends a cell; also within code, where GitHub needs it escaped all the same."""


def table_faults(text: str) -> Iterator[str]:
    """Say where a table would not be shown as one, or would lose cells: a parser drops what is too many, silently."""
    lines = text.splitlines()
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    tabled: set[int] = set()
    quoted: set[int] = set()
    for token in tokens:
        if token.map is None:
            continue
        if token.type in ("fence", "code_block", "html_block"):
            quoted.update(range(*token.map))
        elif token.type == "table_open":
            first, end = token.map
            tabled.update(range(first, end))
            if first > 0 and lines[first - 1].strip():
                yield f"line {first + 1}: no empty line before the table"
            columns = len(_BAR.split(lines[first].strip()))
            for number in range(first, end):
                line = lines[number].strip()
                if line and (not line.startswith("|") or len(_BAR.split(line)) != columns):
                    yield f"line {number + 1}: not as many cells as the heading"
    for number, line in enumerate(lines):
        if line.lstrip().startswith("|") and number not in tabled | quoted:
            yield f"line {number + 1}: a row outside of any table"


@pytest.mark.parametrize("page", PAGES, ids=_ids)
def test_tables_render(page: Path) -> None:
    assert list(table_faults(page.read_text())) == []


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        ("| a | b |\n|---|---|\n| 1 | `x | y` |", "not as many cells"),
        ("| a | b |\n|---|---|\n| 1 |", "not as many cells"),
        ("| a | b |\n|---|---|\n| 1 | 2 |\nmore", "not as many cells"),
        ("words\n| a | b |\n|---|---|\n| 1 | 2 |", "no empty line"),
        ("| a | b |\n|---|\n| 1 | 2 |", "outside of any table"),
        ("words\n\n| 1 | 2 |", "outside of any table"),
    ],
)
def test_a_broken_table_is_found(broken: str, fault: str) -> None:
    assert any(fault in found for found in table_faults(broken))
    assert list(table_faults("words\n\n| a | b |\n|---|---|\n| 1 | `x \\| y` |\n\n```text\n| 1\n```")) == []


# -- the command, and how it is installed --------------------------------------------------------------------------------------

_OTHER_SPELLINGS = re.compile(
    r"python3? -m toolpost(?![\w.])|\S*bin/toolpost\b|uvx? (?:run )?toolpost\b|pipx run toolpost"
)
_INSTALLED = re.compile(r"\b(?:pip|pipx|uv tool|uv pip) install ([^`\n#]+)")
_OFF_INDEX = re.compile(r"['\"]?toolpost(?:\[[\w,]+\])?(?:==\S+)?['\"]?")
"""Toolpost as an index would be asked for it."""


@pytest.mark.parametrize("page", READ, ids=_ids)
def test_the_command_has_one_spelling(page: Path) -> None:
    text = page.read_text()

    assert _OTHER_SPELLINGS.findall(text) == []
    if page.name != "README.md" or page.parent != ROOT:
        # It is for those who work on the tree, whom the end of the README speaks to.
        assert "scripts/serve" not in text
    else:
        assert "scripts/serve" not in text.partition("## Working on it")[0]


@pytest.mark.parametrize("page", READ, ids=_ids)
def test_nothing_is_installed_that_is_not_published(page: Path) -> None:
    for asked in _INSTALLED.findall(page.read_text()):
        assert [word for word in asked.split() if _OFF_INDEX.fullmatch(word)] == [], f"pip install {asked}"


def test_the_readme_installs_the_command_before_it_is_used() -> None:
    lines = [
        line for block in blocks_of(ROOT / "README.md") if block.language == "sh" for line in block.text.splitlines()
    ]
    first_use = next(number for number, line in enumerate(lines) if line.startswith("toolpost "))

    assert "pip install ." in lines[:first_use]


@pytest.mark.parametrize("page", READ, ids=_ids)
def test_commands_that_are_named_exist(page: Path) -> None:
    known = {context.command_path for context in walk_commands()}
    groups = {context.command_path for context in walk_commands() if isinstance(context.command, click.Group)}
    text = page.read_text()
    # A guide may write a part, which brings a command.
    known |= {f"toolpost {name}" for name in re.findall(r'"([a-z-]+)": Command\(', text)}
    for named in re.findall(r"`toolpost ([a-z][a-z-]*(?: [a-z][a-z-]*)*)", text):
        path = "toolpost"
        for word in named.split():
            if path not in groups:
                break
            # After a group there may be an argument instead of a command, but nothing else after the command itself.
            assert path != "toolpost" or f"{path} {word}" in known, f"`toolpost {named}`"
            path = f"{path} {word}"


# -- options and settings ------------------------------------------------------------------------------------------------------

_OF_OTHERS = {"--api-key", "--help", "--pat", "--toolpost-lock"}
"""Options of every command, of pytest, and of programs in examples of attacks."""
_OPTIONS = {option for context in walk_commands() for parameter in context.command.params for option in parameter.opts}


@pytest.mark.parametrize("page", READ, ids=_ids)
def test_options_that_are_named_exist(page: Path) -> None:
    named = set(re.findall(r"`(--[a-z][a-z-]*)[^`]*`", page.read_text()))

    assert named - _OPTIONS - _OF_OTHERS == set()


_SCHEMA = config_schema()
_SETTINGS = set(settings_in(_SCHEMA, _SCHEMA["$defs"]))
_TABLES = {name.partition(".")[0] for name in {*_SETTINGS, *REMOVED} if "." in name}


def unknown_settings(text: str) -> list[str]:
    """Return the settings that a text names, as `table.key` or `table.NAME.key`, and that are unknown."""
    named = re.findall(r"`((?:[a-z_]+|NAME)(?:\.(?:[a-z_]+|NAME))+)`", text)
    own = [name for name in named if name.partition(".")[0] in _TABLES]
    return [name for name in own if name.replace("NAME", "*") not in _SETTINGS]


@pytest.mark.parametrize("page", READ, ids=_ids)
def test_settings_that_are_named_exist(page: Path) -> None:
    assert unknown_settings(page.read_text()) == []


def settings_set(values: dict[str, Any], place: str = "") -> Iterator[str]:
    """Yield the settings that a file sets, tables included."""
    for key, value in values.items():
        yield place + key
        if isinstance(value, dict):
            yield from settings_set(value, f"{place}{key}.")


@pytest.mark.parametrize("page", READ, ids=_ids)
def test_examples_set_no_removed_setting(page: Path) -> None:
    files = [tomllib.loads(block.text) for block in blocks_of(page) if block.language == "toml"]

    # A project of Python has [project] in its own file.
    assert [
        name
        for values in files
        if not isinstance(values.get("project"), dict)
        for name in settings_set(values)
        if find_replacement(name)
    ] == []
    assert list(settings_set({"audit": {"keep": 1}})) == ["audit", "audit.keep"]


def test_an_unknown_setting_is_found() -> None:
    text = "`limits.calls`, `servers.NAME.era`, `servers.NAME.ear`, `bus.stuck_s`, `harness.idle_s`, `time.sleep`"

    assert unknown_settings(text) == ["servers.NAME.ear", "bus.stuck_s", "harness.idle_s"]


# -- extras --------------------------------------------------------------------------------------------------------------------

EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]) - {"all"}

_SIGNS = {
    "workspace": re.compile(
        r"^toolpost workspace |workspace__\w+ |--with workspace|bundled = .*\"workspace\"", re.MULTILINE
    ),
    "agents": re.compile(r"^\[agents\.", re.MULTILINE),
    "postgres": re.compile(r"DATABASE_URL|postgresql://"),
    "keychain": re.compile(r"keychain:"),
    "results": re.compile(r"results__read.*\"grep\""),
    "otel": re.compile(r"^\[telemetry\]|OTEL_", re.MULTILINE),
}
"""What an example has in it that works with the extra alone."""


@pytest.mark.parametrize("page", GUIDES, ids=_ids)
def test_a_guide_names_its_extras_at_its_top(page: Path) -> None:
    examples = "\n".join(block.text for block in blocks_of(page))
    needed = {extra for extra, sign in _SIGNS.items() if sign.search(examples)}

    assert set(_SIGNS) == EXTRAS
    assert extras_named(page) == needed
    for extra in needed:
        assert f"pip install '.[{extra}]'" in page.read_text()


# -- names of tools ------------------------------------------------------------------------------------------------------------

_NAME = re.compile(r"(?<![\w.])([a-z][a-z0-9-]*(?:_[a-z0-9-]+)*)__([A-Za-z*?\[][\w*?\[\]-]*)")


def _decorators(function: ast.AsyncFunctionDef | ast.FunctionDef) -> Iterator[tuple[str, dict[str, Any]]]:
    for decorator in function.decorator_list:
        call = decorator.func if isinstance(decorator, ast.Call) else decorator
        options = {k.arg: k.value for k in decorator.keywords if k.arg} if isinstance(decorator, ast.Call) else {}
        yield ast.unparse(call), options


def _tools_of(page: Path) -> dict[str, set[str]]:
    """Return the tools that a page's own examples define, by plugin or server."""
    tools: dict[str, set[str]] = {}
    for block in blocks_of(page):
        if block.language != "python":
            continue
        tree = ast.parse(block.text)
        made = re.findall(r'(?:Plugin|MCPServer|FastMCP)\("([\w-]+)"', block.text) or [Path(block.file or "").stem]
        if operations := re.findall(r'"operationId": "(\w+)"', block.text):
            tools.setdefault(made[0], set()).update(operations)
        for node in ast.walk(tree):
            if not isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef):
                continue
            for decorator, options in _decorators(node):
                if decorator.rpartition(".")[2] == "tool":
                    aliases = ast.literal_eval(options["aliases"]) if "aliases" in options else []
                    named = options.get("name")
                    name = str(named.value) if isinstance(named, ast.Constant) else node.name
                    tools.setdefault(made[0], set()).update([name, *aliases])
    return tools


def unknown_tools(text: str, own: dict[str, set[str]]) -> list[str]:
    """Return the names of tools in a text that nobody has."""
    known = {name: set(tools) for name, tools in (UPSTREAM | own).items()}
    for name in BUNDLED:
        plugin, _, tool = name.partition("__")
        known.setdefault(plugin, set()).add(tool)
    return [
        f"{plugin}__{tool}"
        for plugin, tool in _NAME.findall(text)
        if plugin not in PLACEHOLDERS and not any(fnmatchcase(each, tool) for each in known.get(plugin, ()))
    ]


NOT_TOOLS = {
    "mcp__toolpost__": "what a client puts before a name",
    "clock__a_b_c14cddc0": "how a long name is cut",
}


@pytest.mark.parametrize("page", READ, ids=_ids)
def test_tools_that_are_named_exist(page: Path) -> None:
    text = re.sub(r"-\d+\.[a-z]{3,4}\b", "", page.read_text())  # files that `toolpost call --save` names after a tool
    for spelled in NOT_TOOLS:
        text = text.replace(spelled, "")

    assert unknown_tools(text, _tools_of(page)) == []


def test_an_unknown_tool_is_found() -> None:
    assert unknown_tools("call time__now, time__current_*, shop__buy, github__create_issue", {"shop": {"sell"}}) == [
        "time__now",
        "shop__buy",
    ]


def _calls_in(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Find calls of tools in JSON, however they are spelled: `name`, `toolName` or `tool`, beside `arguments`."""
    if isinstance(value, list):
        for each in value:
            yield from _calls_in(each)
    elif isinstance(value, dict):
        name = next((value[key] for key in ("toolName", "tool", "name") if isinstance(value.get(key), str)), None)
        if name is not None and isinstance(value.get("arguments"), dict):
            yield name, value["arguments"]
        for each in value.values():
            yield from _calls_in(each)


def _json_in(page: Path) -> Iterator[Any]:
    for block in blocks_of(page):
        if block.language == "json":
            yield json.loads(block.text)
        for line in re.findall(r"^data: (\{.*\})$", block.text, re.MULTILINE):
            yield json.loads(line)


@pytest.mark.parametrize("page", GUIDES, ids=_ids)
def test_arguments_in_examples_are_arguments_of_the_tool(page: Path) -> None:
    """Also of calls that lack one on purpose: what is there must have its real name."""
    for name, arguments in (call for value in _json_in(page) for call in _calls_in(value)):
        if name in BUNDLED:
            properties = BUNDLED[name]["definition"]["inputSchema"]["properties"]
            assert set(arguments) <= set(properties), f"{page.name}: {name}"


# -- the two modes of contracts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=_ids)
def test_withholding_is_said_of_enforce_alone(page: Path) -> None:
    """A sentence that promises that the gateway withholds a tool says under which mode: by default it only reports."""
    if page.name == "CHANGELOG.md" or "decisions" in page.parts:
        return
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for sentence in re.split(r"(?<=[.:;!?])\s+|\n\n|\n\|", text):
        if re.search(r"gateway\b[^.|]*\b(?:withholds?|quarantines?|holds? back)\b", sentence):
            assert "enforce" in sentence, f"{page.name}: {sentence}"


def test_the_setting_says_what_each_mode_does() -> None:
    described = str(config_schema()["$defs"]["Config"]["properties"]["contracts"]["description"])

    assert re.search(r"`observe` reports\b.*`enforce` quarantines\b", described)
