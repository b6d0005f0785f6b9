"""`pytest --toolpost-lock`, as a tool's author runs it: a project of its own, and a pytest of its own."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.wire

PLUGIN = """
from toolpost import Plugin

plugin = Plugin("kit")


@plugin.tool
async def say(text: str{more}) -> str:
    "Say it."
    return text
"""


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose tools are locked, to be copied."""
    folder = tmp_path_factory.mktemp("locked")
    (folder / "toolpost.toml").write_text(
        "[plugins]\ninstalled = false\ndisable = ['time']\nload = ['kit:plugin']\n[store]\nurl = 'sqlite::memory:'\n"
    )
    write(folder)
    toolpost(folder, "lock")
    return folder


@pytest.fixture
def project(locked: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(locked, tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__")))


def write(folder: Path, more: str = "") -> None:
    (folder / "kit.py").write_text(PLUGIN.format(more=more))


def toolpost(folder: Path, *arguments: str) -> None:
    subprocess.run(
        [Path(sys.executable).with_name("toolpost"), *arguments], cwd=folder, check=True, capture_output=True
    )


def pytest_in(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rA", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_every_tool_is_a_test(project: Path) -> None:
    ended = pytest_in(project, "--toolpost-lock")

    assert ended.returncode == 0, ended.stdout
    assert "PASSED toolpost.lock::kit__say" in ended.stdout


def test_a_change_fails_with_what_it_is(project: Path) -> None:
    write(project, ", loud: bool")
    ended = pytest_in(project, "--toolpost-lock")

    assert ended.returncode == 1
    assert "FAILED toolpost.lock::kit__say" in ended.stdout
    assert "input.required-added" in ended.stdout
    assert "toolpost lock --accept kit__say" in ended.stdout
    assert "Traceback" not in ended.stdout


@pytest.mark.parametrize(("mode", "code"), [("strict", 1), ("check", 0)])
def test_a_change_that_harms_nobody_may_be_let_through(project: Path, mode: str, code: int) -> None:
    write(project, ", loud: bool | None = None")
    ended = pytest_in(project, f"--toolpost-lock={mode}")

    assert ended.returncode == code, ended.stdout


def test_nothing_is_tested_unless_it_is_asked_for(project: Path) -> None:
    write(project, ", loud: bool")
    ended = pytest_in(project)

    assert ended.returncode == 5
    assert "toolpost.lock" not in ended.stdout


def test_without_a_lock_the_way_to_one_is_said(project: Path) -> None:
    (project / "toolpost.lock").unlink()
    ended = pytest_in(project, "--toolpost-lock")

    assert ended.returncode != 0
    assert "not found" in ended.stdout + ended.stderr
