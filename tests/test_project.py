"""What contributors and releases rely on: workflows, templates, hooks, changelog fragments, the package, CONTRIBUTING.md."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml

from tests.docs.blocks import blocks_of

pytestmark = pytest.mark.wire

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FRAGMENTS = sorted(path for path in (ROOT / "changes").glob("*.md") if path.name != "README.md")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
KINDS = [kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"]]


def run(
    *command: str | Path, cwd: Path = ROOT, environment: Mapping[str, str] = MappingProxyType({})
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def succeeded(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# What GitHub reads.


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-workflows", WORKFLOWS),
        ("custom.github-workflows-require-timeout", WORKFLOWS),
        ("vendor.dependabot", [GITHUB / "dependabot.yml"]),
        ("vendor.github-issue-config", [GITHUB / "ISSUE_TEMPLATE/config.yml"]),
        (
            "vendor.github-issue-forms",
            [path for path in sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) if path.name != "config.yml"],
        ),
    ],
)
def test_github_accepts_its_files(schema: str, files: list[Path]) -> None:
    assert files
    succeeded(run(BIN / "check-jsonschema", "--builtin-schema", schema, *files))


def steps_of(workflow: Path) -> list[dict[str, Any]]:
    return [step for job in yaml.safe_load(workflow.read_text())["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_pin_their_actions_and_run_scripts_that_exist(workflow: Path) -> None:
    steps = steps_of(workflow)
    scripts = {word for step in steps for word in re.findall(r"scripts/[\w-]+", step.get("run", ""))}

    assert [step["uses"] for step in steps if not re.search(r"@v\d+\.\d+\.\d+$", step.get("uses", "@v0.0.0"))] == []
    assert {script for script in scripts if not os.access(ROOT / script, os.X_OK)} == set()


def test_every_supported_python_is_tried_on_every_system() -> None:
    matrix = yaml.safe_load((GITHUB / "workflows/ci.yml").read_text())["jobs"]["unit"]["strategy"]["matrix"]
    supported = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))

    assert matrix["python"] == supported
    assert PROJECT["project"]["requires-python"] == f">={supported[0]}"
    assert [system.partition("-")[0] for system in matrix["os"]] == ["ubuntu", "macos", "windows"]


# What is checked before a commit.


def test_pre_commit_runs_what_the_tests_run() -> None:
    succeeded(run(BIN / "pre-commit", "validate-config"))
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    commands = [hook["entry"].removeprefix(".venv/bin/") for hook in hooks if hook["entry"].startswith(".venv/bin/")]
    tests = (ROOT / "scripts/test").read_text()

    assert [command for command in commands if command.removesuffix(" --force-exclude") not in tests] == []
    assert {command.split()[0] for command in commands} == {"ruff", "lint-imports", "mypy"}


@pytest.mark.parametrize(
    ("message", "is_fine"),
    [
        ("store: commit short transactions on the event loop\n", True),
        ("cli, docs: name the nearest setting\n\nA body.\n", True),
        ("Merge branch 'main'\n", True),
        ("Commit short transactions\n", False),
        ("store: commit short transactions.\n", False),
        (f"store: {'x' * 66}\n", False),
        ("store: commit\nwithout an empty line\n", False),
    ],
)
def test_a_commit_message_names_its_area(message: str, is_fine: bool, tmp_path: Path) -> None:
    (tmp_path / "message").write_text(message)

    assert (run(ROOT / "scripts/commit-message", tmp_path / "message").returncode == 0) is is_fine


# What a release is made of.


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda path: path.name)
def test_a_fragment_is_a_list_for_the_changelog(fragment: Path) -> None:
    assert re.fullmatch(rf"[a-z0-9-]+\.({'|'.join(KINDS)})\.md", fragment.name), f"one of {KINDS}"
    text = fragment.read_text(encoding="utf-8")

    assert text.startswith("- ")
    assert text.endswith("\n")
    assert [line for line in text.splitlines() if not line.startswith(("- ", "  "))] == []


def test_kinds_of_fragments_are_documented() -> None:
    page = (ROOT / "changes/README.md").read_text()

    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == KINDS


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of what a release changes, in which nothing is to be set up."""
    shutil.copytree(ROOT / "changes", tmp_path / "changes")
    version_file = PROJECT["tool"]["hatch"]["version"]["path"]
    for name in ("CHANGELOG.md", "pyproject.toml", "scripts/release", version_file):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "scripts/setup").write_text("#!/bin/sh\n")
    (tmp_path / "scripts/setup").chmod(0o755)
    (tmp_path / ".venv").symlink_to(BIN.parent)
    succeeded(run("git", "init", "--quiet", cwd=tmp_path))
    return tmp_path


def test_a_release_moves_every_entry_into_one_section(copy: Path) -> None:
    (copy / "changes/one-more.removed.md").write_text("- `toolpost old` is gone.\n")
    written = re.search(
        r"^## Unreleased\n(.*?)(?=^## |\Z)", (copy / "CHANGELOG.md").read_text(), re.DOTALL | re.MULTILINE
    )
    texts = [written[1] if written else "", *(path.read_text() for path in (copy / "changes").glob("*.*.md"))]
    entries = re.findall(r"^- .*", "\n".join(texts), re.MULTILINE)
    succeeded(run("scripts/release", "prepare", "7.8.9", cwd=copy))
    succeeded(run("scripts/release", "check", "7.8.9", cwd=copy))
    changelog = (copy / "CHANGELOG.md").read_text(encoding="utf-8")
    notes = succeeded(run("scripts/release", "notes", "7.8.9", cwd=copy))

    assert re.findall(r"^# .*|^## \S+", changelog, re.MULTILINE)[:2] == ["# Changelog", "## 7.8.9"]
    assert "## Unreleased" not in changelog
    assert sorted(re.findall(r"^- .*", notes, re.MULTILINE)) == sorted(entries)
    assert "- `toolpost old` is gone." in notes.split("### Removed")[1].split("###")[0]
    assert '__version__ = "7.8.9"' in (copy / PROJECT["tool"]["hatch"]["version"]["path"]).read_text()
    assert [path.name for path in (copy / "changes").glob("*.md")] == ["README.md"]


def test_a_tag_that_is_no_release_is_refused(copy: Path) -> None:
    other_version = run("scripts/release", "check", "7.8.9", cwd=copy)
    succeeded(run("scripts/release", "prepare", "7.8.9", cwd=copy))
    (copy / "changes/late.fixed.md").write_text("- Too late.\n")
    left_over = run("scripts/release", "check", "7.8.9", cwd=copy)
    no_version = run("scripts/release", "check", "latest", cwd=copy)

    assert "has another version than 7.8.9" in other_version.stderr
    assert "fragments are left over: changes/late.fixed.md" in left_over.stderr
    assert "`latest` is no version" in no_version.stderr
    assert {done.returncode for done in (other_version, left_over, no_version)} == {1}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    succeeded(run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT))
    succeeded(run(BIN / "twine", "check", "--strict", *folder.iterdir()))
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    source = ROOT / "src"
    kept = {
        str(path.relative_to(source).as_posix())
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.parts[-2].endswith(".egg-info")
    }

    assert packed == kept


@pytest.mark.soak  # it fetches every dependency
def test_the_wheel_runs_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty/bin/python"
    constraints = ROOT / "constraints.txt"
    succeeded(run(python, "-m", "pip", "install", "--quiet", "--constraint", constraints, wheel, cwd=tmp_path))
    toolpost = tmp_path / "empty/bin/toolpost"
    said = succeeded(run(toolpost, "--version", cwd=tmp_path))
    called = run(toolpost, "call", "time__current_time", "timezone=Asia/Tokyo", "--json", cwd=tmp_path)

    assert said.strip() == f"toolpost, version {wheel.name.split('-')[1]}"
    assert '"ok":true' in succeeded(called).replace(" ", "")


# What CONTRIBUTING.md and the page about versions say.

CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PACKAGE = ROOT / "src/toolpost"


def test_paths_that_contributors_are_sent_to_exist() -> None:
    pages = [CONTRIBUTING, ROOT / "SECURITY.md", ROOT / "changes/README.md", GITHUB / "PULL_REQUEST_TEMPLATE.md"]
    named = {
        path
        for page in pages
        for path in re.findall(r"`((?:src|tests|docs|scripts|changes|bench|\.github)/[\w./-]*)`", page.read_text())
    }

    # Of a path with a name to fill in, as in `changes/NAME.KIND.md`, what comes before it exists.
    fixed = {re.sub(r"[^/]*(NAME|NNNN|TARGET).*", "", path) for path in named}

    assert fixed
    assert {path for path in fixed if not (ROOT / path).exists()} == set()


def missing_names(page: str, code: str) -> list[str]:
    """Return the classes, constants and attributes that a page names and that no code has."""
    prose = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    named = re.findall(r"`([A-Za-z_]+(?:\.[A-Za-z_]+)*)(?:\(.*?\))?`", prose)
    words = set(re.findall(r"\w+", code))
    return [name for name in named if re.search(r"[A-Z].*[a-z]|[._]", name) and name.rpartition(".")[2] not in words]


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_names_in_pages_for_contributors_exist(page: str) -> None:
    files = [*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py"), ROOT / "pyproject.toml"]
    files = [path for path in files if path != Path(__file__)]
    code = "\n".join(path.read_text(encoding="utf-8") for path in files)
    # Files have tests of their own; prefixes end with `_`.
    is_other = re.compile(r".*(_|\.(py|md|toml|json|lock))$|NAME")

    assert [name for name in missing_names((ROOT / page).read_text(), code) if not is_other.match(name)] == []
    assert missing_names("`Wake.NEVER_THERE`, `Supervisor`, `SpuriousClass`", "class Supervisor") == [
        "Wake.NEVER_THERE",
        "SpuriousClass",
    ]


def test_modules_that_are_promised_say_what_is_public_in_them() -> None:
    page = (ROOT / "docs/reference/versioning.md").read_text()
    modules = re.findall(r"^\| `(toolpost[\w.]*)`", page, re.MULTILINE)

    assert modules[0] == "toolpost"
    found = {name: importlib.import_module(name) for name in modules}
    assert {name for name, module in found.items() if not getattr(module, "__all__", ())} == set()


@pytest.mark.soak  # it runs the checks of the whole tree
def test_commands_that_contributors_are_given_work(tmp_path: Path) -> None:
    """Commands are run, tests are collected, scripts are there, and what is asked of the gateway that is served is answered."""
    environment = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "XDG_DATA_HOME": str(tmp_path)}
    lines = [line for block in blocks_of(CONTRIBUTING) if block.language == "sh" for line in block.text.splitlines()]
    commands = [line.partition("  #")[0].strip().replace(".venv/bin/", f"{BIN}/") for line in lines]
    served, asked = (next(line for line in commands if mark in line) for mark in (" serve ", "curl "))
    for command in commands:
        if command.startswith("scripts/"):
            assert os.access(ROOT / command.split()[0], os.X_OK), command
        elif "/pytest " in command:
            succeeded(
                run("bash", "-c", f"{command.replace(' --pdb', '')} --collect-only -n 0", environment=environment)
            )
        elif command not in (served, asked) and "/pre-commit install" not in command:
            succeeded(run("bash", "-c", command, environment=environment))

    server = subprocess.Popen(
        [*served.split(), "--listen", "127.0.0.1:0", "--json"],
        cwd=tmp_path,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with server:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        answer = json.loads(succeeded(run("bash", "-c", asked.replace("http://127.0.0.1:8420/mcp", url))))
        server.terminate()

    assert [tool["name"] for tool in answer["result"]["tools"]] == ["time__convert_time", "time__current_time"]
