"""`toolpost workspace` as a person types it, and what is said where something is missing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.loaded import loaded_toolpost
from tests.parts.workspace.repos import build, make_repo, workspace_client
from tests.ways import server_environment
from toolpost.testing import data_of, error_of

pytestmark = pytest.mark.wire


def typed(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = loaded_toolpost("workspace", *words)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=server_environment(), timeout=100)


def test_built_searched_and_shown(tmp_path: Path) -> None:
    make_repo(tmp_path)
    early = typed(tmp_path, "search", "getUserById")
    built = typed(tmp_path, "build", "--json")
    hits = typed(tmp_path, "search", "getUserById", "-n", "2", "-C", "1")
    wrong = typed(tmp_path, "search", "(", "--regex")

    assert (early.returncode, early.stdout) == (2, "")
    assert "hint: build one with `index_build`" in early.stderr
    assert json.loads(built.stdout)["repositories"][0]["files"] == 3
    assert "progress: " in built.stderr
    assert hits.stdout.splitlines()[0] == "src/users.py:11-13  method UserStore.getUserById"
    assert "    11      def getUserById(self, number):" in hits.stdout.splitlines()
    assert wrong.returncode == 2
    assert "INVALID_PARAMS" in wrong.stderr


@pytest.mark.anyio
async def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_repo(tmp_path)
    async with workspace_client(root) as client:
        await build(client)
        monkeypatch.setitem(sys.modules, "tantivy", None)
        for tool, arguments in (("index_build", {}), ("search", {"query": "x"}), ("index_status", {})):
            error = error_of(await client.call_tool(f"workspace__{tool}", arguments))

            assert (error["code"], error["hint"]) == ("CAPABILITY_MISSING", "pip install 'toolpost[workspace]'")
        shown = data_of(await client.call_tool("workspace__show_file", {"path": "src/users.py"}))

    assert shown["lines"]


def test_help_and_start_load_nothing_of_the_index() -> None:
    code = (
        "import sys, toolpost.app, toolpost.cli.main, toolpost.parts.workspace.commands\n"
        "print([m for m in ('tantivy', 'tree_sitter', 're2', 'pathspec') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == "[]"
