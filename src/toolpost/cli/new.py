"""`toolpost new`: create a project for a plugin, ready to be tested, locked and published."""

import os
import sys
from collections.abc import Mapping
from functools import partial
from importlib.metadata import distribution
from pathlib import Path
from string import Template
from typing import Final

import click
import msgspec

from toolpost.contracts.contract import check_plugin_name
from toolpost.contracts.errors import ContractRefused, InvalidRequest
from toolpost.processes import tree as process_tree
from toolpost.terminal import ExitCode, examples, run_async, warn

FILES: Final[Mapping[str, str]] = {
    "pyproject.toml": """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$package"
version = "0.1.0"
description = "Tools for MCP clients, served by Toolpost."
readme = "README.md"
requires-python = ">=3.11"
$dependencies

[project.optional-dependencies]
dev = ["pytest"]

# Toolpost finds the plugin by this, wherever the package is installed beside it.
[project.entry-points.toolpost]
$name = "$module:plugin"

[tool.hatch.build.targets.wheel]
packages = ["src/$module"]
$hatch_metadata
[tool.pytest.ini_options]
testpaths = ["tests"]
""",
    "src/$module/__init__.py": '''\
"""The plugin `$name`: its tools are named `${name}__…`."""

from typing import Annotated

from pydantic import Field

from toolpost import Plugin

plugin = Plugin("$name", version="0.1.0", description="The subject of these tools, for searches.", style="plain")


@plugin.tool(annotations={"readOnlyHint": True})
async def greet(
    name: Annotated[str, Field(description="whom to greet", min_length=1)], excited: bool = False
) -> str:
    """Greet a person by name."""
    return f"Hello {name}" + "!" * excited
''',
    "src/$module/py.typed": "",
    "tests/conftest.py": """\
import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
""",
    "tests/test_plugin.py": '''\
"""The tools as a client sees them: over MCP, held to their schemas, without a network."""

import pytest
from $module import plugin

from toolpost.testing import assert_each_argument_matters, client_of, data_of, error_of

pytestmark = pytest.mark.anyio


async def test_it_greets() -> None:
    async with client_of(plugin) as client:
        answer = await client.call_tool("${name}__greet", {"name": "Ada"})
        assert data_of(answer) == "Hello Ada"


async def test_a_misspelled_argument_is_refused() -> None:
    async with client_of(plugin) as client:
        answer = await client.call_tool("${name}__greet", {"nmae": "Ada"})
        assert error_of(answer)["code"] == "INVALID_PARAMS"


async def test_each_argument_matters() -> None:
    async with client_of(plugin) as client:
        await assert_each_argument_matters(
            client, "${name}__greet", base={"name": "Ada"}, changed={"name": "Grace", "excited": True}
        )
''',
    "toolpost.toml": """\
# For work on this plugin: it alone is served here, installed ones are not.
[plugins]
load = ["$module:plugin"]
bundled = []
installed = false
""",
    ".github/workflows/ci.yml": """\
name: ci
on: [push, pull_request]
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - run: pip install -e '.[dev]'
      - run: pytest
      # Fails when a tool changes in a way that breaks its callers, and its schema_version does not say so.
      - run: toolpost check
""",
    ".gitignore": "__pycache__/\n.pytest_cache/\n.toolpost/\n.venv/\ndist/\n",
    "README.md": """\
# $package

Tools for MCP clients, served by Toolpost under `${name}__`.

```sh
pip install -e '.[dev]'   # installs Toolpost too, if it is not there
toolpost serve --reload   # serve it, and reload it when a file is saved
pytest                    # call its tools as a client does
toolpost lock             # accept changes of its tools; commit toolpost.lock
python -m build           # a wheel to publish
```
""",
}
"""What is created, by path; `$name` is the plugin, `$package` its distribution, `$module` what is imported.

`$dependencies` and `$hatch_metadata` say where Toolpost is from (`_describe_origin`)."""

_FROM_INDEX: Final[Mapping[str, str]] = {"dependencies": 'dependencies = ["toolpost"]', "hatch_metadata": ""}
_FROM_ADDRESS: Final[Mapping[str, str]] = {
    "dependencies": """\
# Where the Toolpost that made this project was installed from. Other machines may need another address, such as
# "toolpost @ git+https://…"; a package index takes only "toolpost".
dependencies = [$requirement]""",
    "hatch_metadata": """\

[tool.hatch.metadata]
allow-direct-references = true  # the address of Toolpost above
""",
}


class _Vcs(msgspec.Struct):
    vcs: str
    commit_id: str


class _DirectUrl(msgspec.Struct):
    url: str
    vcs_info: _Vcs | None = None
    subdirectory: str | None = None


@click.command(
    epilog=examples(
        ("toolpost new weather", "in the new folder toolpost-weather"),
        ("toolpost new weather --folder .", "in this folder"),
    )
)
@click.argument("name")
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False), help="Where to create it (default: toolpost-NAME)."
)
def new(name: str, folder: Path | None) -> ExitCode:
    """Create a project for a plugin: code, tests, lock, CI and packaging.

    NAME is the plugin's, and the prefix of its tools. Files that exist are never overwritten: if there is one in the way,
    nothing is created.
    """
    try:
        check_plugin_name(name)
    except ContractRefused as refusal:
        raise InvalidRequest(refusal.message) from refusal
    folder = folder or Path(f"toolpost-{name}")
    words = {
        "name": name,
        "package": f"toolpost-{name}",
        "module": f"toolpost_{name.replace('-', '_').lower()}",
        **_describe_origin(distribution("toolpost").read_text("direct_url.json")),
    }
    files = {
        folder / Template(path).substitute(words): Template(text).substitute(words) for path, text in FILES.items()
    }
    lock = folder / "toolpost.lock"
    if taken := [path for path in (*files, lock) if path.exists() or path.is_symlink()]:
        raise InvalidRequest(f"`{taken[0]}` exists already; nothing was created.", hint="choose another --folder")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        # "x": a file that appeared since is not overwritten either.
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    _write_lock(folder)
    click.echo(f"created {folder}: {len(files) + lock.exists()} files")
    click.echo(f"next: cd {folder} && pip install -e '.[dev]' && pytest && toolpost serve --reload")
    return ExitCode.OK


def _describe_origin(direct_url: str | None) -> dict[str, str]:
    """Return the lines by which pip finds Toolpost, by the `direct_url.json` of its installation (PEP 610).

    There is none if it came from a package index: then its name is enough.
    """
    if direct_url is None:
        return dict(_FROM_INDEX)
    origin = msgspec.json.decode(direct_url, type=_DirectUrl)
    address = origin.url
    if origin.vcs_info is not None:
        address = f"{origin.vcs_info.vcs}+{address}@{origin.vcs_info.commit_id}"
    if origin.subdirectory:
        address += f"#subdirectory={origin.subdirectory}"
    requirement = msgspec.json.encode(f"toolpost @ {address}").decode()  # a string of JSON is one of TOML
    return {key: Template(text).substitute(requirement=requirement) for key, text in _FROM_ADDRESS.items()}


def _write_lock(folder: Path) -> None:
    """Lock the new plugin's tools. In another process, where the package is importable though it is not installed yet."""
    paths = [str((folder / "src").resolve()), os.environ.get("PYTHONPATH", "")]
    run_lock = partial(
        process_tree.run,
        [sys.executable, "-m", "toolpost", "lock"],
        cwd=folder,
        env={"PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    ended = run_async(run_lock)
    if ended.returncode != 0:
        warn(f"toolpost.lock was not written: {ended.stderr.strip() or 'no reason given'}")
