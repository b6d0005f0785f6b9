"""`toolpost new`: the project that it creates works as it is."""

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.docs.packages import install


@pytest.mark.soak
def test_a_new_project_is_tested_locked_and_served_as_it_is(run: Run, tmp_path: Path) -> None:
    made = run("new", "weather-maps")
    assert made.code == 0, made.err
    assert made.err == ""
    folder = tmp_path / "toolpost-weather-maps"
    site = install(folder)
    environment = os.environ | {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}

    def run_in(*command: str, where: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *command], cwd=where, env=environment, capture_output=True, text=True, check=False
        )

    tested = run_in("pytest", "-q", "-p", "no:cacheprovider", where=folder)
    assert tested.returncode == 0, tested.stdout
    assert "passed" in tested.stdout, tested.stdout
    checked = run_in("toolpost", "check", where=folder)
    assert checked.returncode == 0, checked.stderr
    (elsewhere := tmp_path / "elsewhere").mkdir()
    called = run_in("toolpost", "call", "weather-maps__greet", "name=Ada", where=elsewhere)
    assert called.stdout == "Hello Ada\n", "found by its entry point"


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        (None, "toolpost"),
        (
            {"url": "file:///home/ada/tool%20post", "dir_info": {"editable": True}},
            "toolpost @ file:///home/ada/tool%20post",
        ),
        ({"url": "https://x.test/toolpost.whl", "archive_info": {}}, "toolpost @ https://x.test/toolpost.whl"),
        (
            {"url": "https://x.test/t.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}, "subdirectory": "py"},
            f"toolpost @ git+https://x.test/t.git@{COMMIT}#subdirectory=py",
        ),
    ],
    ids=["index", "folder", "archive", "repository"],
)
def test_it_depends_on_toolpost_from_where_it_was_installed(
    origin: dict[str, Any] | None, requirement: str, invoke: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "toolpost-1.dist-info"
    installed.mkdir()
    if origin is not None:
        (installed / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.setattr("toolpost.cli.new.distribution", lambda _name: PathDistribution(installed))
    monkeypatch.setattr("toolpost.cli.new._write_lock", lambda folder: None)

    assert invoke("new", "weather").code == 0

    made = tomllib.loads((tmp_path / "toolpost-weather/pyproject.toml").read_text())
    assert made["project"]["dependencies"] == [requirement]
    # Without this, hatchling builds no package that depends on an address.
    metadata = made["tool"]["hatch"].get("metadata", {})
    assert metadata == ({} if origin is None else {"allow-direct-references": True})


def test_nothing_is_overwritten(invoke: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolpost.cli.new._write_lock", lambda folder: None)
    assert invoke("new", "weather").code == 0
    code = tmp_path / "toolpost-weather/src/toolpost_weather/__init__.py"
    code.write_text("mine")
    (tmp_path / "toolpost-weather/pyproject.toml").unlink()

    again = invoke("new", "weather")

    assert again.code == 2
    assert "exists already; nothing was created" in again.err
    assert code.read_text() == "mine"
    assert not (tmp_path / "toolpost-weather/pyproject.toml").exists()


def test_a_name_that_no_plugin_can_have_is_refused(invoke: Run, tmp_path: Path) -> None:
    refused = invoke("new", "a/b")
    assert refused.code == 2
    assert "a plugin's name may contain letters" in refused.err
    assert list(tmp_path.iterdir()) == []
