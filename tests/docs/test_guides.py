"""Every block of the README, the start pages, the guides and the product pages
is exercised, page by page and in order, in an empty folder.

- python, toml, sql, js and html: written to the file that the first line names. `toolpost.toml` and its like must load.
- sh: run line by line. A line whose comment speaks of a refusal or a failure must fail, any other must work. `toolpost serve` is
  started and stopped, and runs while a command names its address; `uvicorn` is started and stopped; `pytest` waits for the end
  of the page, when all tests have been written; `pip install .` is imitated, and what needs a network is left out.
  `test_install.py` follows how the README installs Toolpost.
  A line that ends with `&` starts a program that runs until the end of the page.
- yaml: the commands of ours in it are run.
- json: parsed.

The extras that a page does not ask for at its top cannot be imported while it is followed.

Whoever reads them has a `.mcp.json` with one server already, which `tests/docs/reader_server.py` is, and a PostgreSQL at
`DATABASE_URL` where a page speaks of one.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path

import psutil
import pytest

from tests.docs.blocks import GUIDES, ROOT, Block, blocks_of, extras_named
from tests.docs.packages import install
from tests.loaded import loaded
from tests.postgres import Postgres
from toolpost.settings import load_config

BIN = Path(sys.executable).parent
GATEWAY = "http://127.0.0.1:8420"
TASKS = "https://tasks.example.com/mcp"
"""A server that requires OAuth: one of the test's own, and whoever follows the page has a browser that needs no person."""
NOT_RUN = (
    "scripts/",
    "curl ",
    "python -m build",
    "twine ",
    "pip install toolpost-",
    "pip install pytest",
    "pip install build",
    "python3 -m venv",
    ". .venv/bin/activate",
)

MODULES = {
    "workspace": ("tantivy", "tree_sitter", "re2", "pathspec", "watchfiles"),
    "agents": ("acp", "claude_agent_sdk"),
    "postgres": ("asyncpg",),
    "keychain": ("keyring",),
    "results": ("re2",),
    "otel": ("opentelemetry.proto", "grpc"),
}
"""What each extra brings, as it is imported."""

FASTMCP_BRINGS = ("keyring", "watchfiles")
"""What a reader who has FastMCP has too."""

_WITHOUT = "import sys\nfor name in {modules!r}: sys.modules[name] = None\n"
"""As `sitecustomize`, it makes modules missing."""


# The guides' hundred commands are the largest block of the suite: the README's own run always, the others in soak.
PAGES = [
    pytest.param(page, marks=() if page.name == "README.md" else pytest.mark.soak, id=page.stem) for page in GUIDES
]


@pytest.fixture
def tasks_url() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.upstreams.servers.oauth_server"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.kill()


@pytest.mark.wire
@pytest.mark.parametrize("page", PAGES)
def test_the_examples_work(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    brought = FASTMCP_BRINGS if "from fastmcp import" in page.read_text() else ()
    folder = _Folder(tmp_path, extras=extras_named(page), brought=brought)
    if TASKS in page.read_text():
        folder.replaced[TASKS] = request.getfixturevalue("tasks_url")
        folder.give(BROWSER=f"{sys.executable} {ROOT / 'tests/cli/headless_browser.py'} %s")
    if "DATABASE_URL" in page.read_text():
        postgres: Postgres = request.getfixturevalue("postgres")
        folder.give(DATABASE_URL=postgres.new_url())
    try:
        for block in blocks_of(page):
            folder.exercise(block)

        folder.run_tests()
    finally:
        folder.close()


class _Folder:
    """A reader's folder, with what a page has told them to put there."""

    def __init__(self, path: Path, *, extras: Collection[str], brought: Collection[str]) -> None:
        self.replaced: dict[str, str] = {}
        """What is written on the page, and what the test has in its place."""
        self._started: list[subprocess.Popen[bytes]] = []
        self._path = path / "reader"
        self._path.mkdir()
        missing = path / "missing"
        missing.mkdir()
        absent = [module for extra, modules in MODULES.items() if extra not in extras for module in modules]
        # Two extras may bring the same module.
        present = {*brought, *(module for extra in extras for module in MODULES.get(extra, ()))}
        without = [module for module in absent if module not in present]
        (missing / "sitecustomize.py").write_text(_WITHOUT.format(modules=without))
        path = self._path
        self._environment = {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(path),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(missing),
        }
        command, *arguments = loaded(str(Path(__file__).with_name("reader_server.py")))
        server = {"command": command, "args": arguments}
        (path / ".mcp.json").write_text(json.dumps({"mcpServers": {"mine": server}}))

    def give(self, **variables: str) -> None:
        self._environment |= variables

    def exercise(self, block: Block) -> None:
        match block.language:
            case "python" | "toml" | "sql" | "js" | "html":
                self._write(block)
            case "sh":
                for line in block.text.splitlines():
                    self._follow(line, block.place)
            case "yaml":
                for command in re.findall(r"(?:run|entry): (toolpost .*)", block.text):
                    self._follow(command, block.place)
            case "json":
                json.loads(block.text)
            case other:
                assert other in ("", "text"), f"{block.place}: nobody knows how to check `{other}`"

    def run_tests(self) -> None:
        if any(self._path.glob("test_*.py")):
            done = self._run("python -m pytest -q -W error -p no:cacheprovider")
            assert done.returncode == 0, done.stdout + done.stderr

    def _write(self, block: Block) -> None:
        assert block.file, f"{block.place}: the first line names no file, as `# greetings.py` does"
        path = self._path / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        text = block.text
        for written, used in self.replaced.items():
            text = text.replace(written, used)
        path.write_text(text)
        if path.suffix == ".py":
            compile(block.text, block.place, "exec")
        elif path.name == "pyproject.toml":
            assert "project" in tomllib.loads(block.text)
        elif path.suffix == ".toml" and not self._is_of_a_part(path):
            load_config(path)

    def _follow(self, line: str, place: str) -> None:
        command, _, comment = line.partition("  #")
        if not command.strip() or command.startswith((*NOT_RUN, "pytest")):
            return
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            self._environment[name] = value
        elif command.startswith(("pip install .", "pip install -e .")):
            if (self._path / "pyproject.toml").exists():
                self._install()
        elif command.startswith("toolpost serve"):
            self._serve(command, place)
        elif command.rstrip().endswith(" &"):
            self._start(command.rstrip().removesuffix("&"), place)
        elif command.startswith("uvicorn "):
            self._serve_with_uvicorn(command, place)
        elif GATEWAY in command:
            self._serve("toolpost serve", place, meanwhile=command)
        else:
            self._try(command, place, must_fail=bool(re.search("refus|fail", comment)))

    def _try(self, command: str, place: str, *, must_fail: bool) -> None:
        done = self._run(command)
        told = f"{place}: {command}\nexit code {done.returncode}\n{done.stdout}{done.stderr}"
        assert (done.returncode != 0) is must_fail, told
        # `install` warns of the variables of a reader's servers, which no client of theirs sets.
        assert "warning:" not in re.sub("warning: [A-Z_]+ is not set by", "", done.stderr), told
        assert "unknown tool" not in done.stderr, told

    def _run(self, command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self._path,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def _serve(self, command: str, place: str, *, meanwhile: str | None = None) -> None:
        """Start a server as the page says, but on a free port; wait until it serves; end it.

        `meanwhile` is a command that needs it, and must work.
        """
        words = shlex.split(command)
        is_stdio = "--stdio" in words
        if not is_stdio:
            host = words[words.index("--listen") + 1].rpartition(":")[0] if "--listen" in words else None
            host = host or (self._listen_of(words).rpartition(":")[0])
            words += ["--json", "--listen", f"{host}:0"]
        server = subprocess.Popen(
            [BIN / words[0], *words[1:]],
            cwd=self._path,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            ready = "" if is_stdio else server.stdout.readline()
            if ready and meanwhile is not None:
                self._try(meanwhile.replace(GATEWAY, json.loads(ready)["url"]), place, must_fail=False)
            if ready:
                server.send_signal(signal.SIGTERM)
            _, stderr = server.communicate(timeout=20)
        finally:
            server.kill()
            server.wait()
        assert server.returncode == 0, f"{place}: {command}\n{stderr}"
        assert is_stdio or json.loads(ready)["status"] == "ok", f"{place}: {command}\n{ready}"

    def _start(self, command: str, place: str) -> None:
        """Start a program that runs until the end of the page, and wait until it listens."""
        words = shlex.split(command)
        program = subprocess.Popen([BIN / words[0], *words[1:]], cwd=self._path, env=self._environment)
        self._started.append(program)
        for _ in range(200):
            assert program.poll() is None, f"{place}: {command} has ended"
            if any(one.status == psutil.CONN_LISTEN for one in psutil.Process(program.pid).net_connections("tcp")):
                return
            time.sleep(0.1)
        pytest.fail(f"{place}: {command} does not listen")

    def close(self) -> None:
        for program in self._started:
            program.kill()
            program.wait()

    def _serve_with_uvicorn(self, command: str, place: str) -> None:
        """Start an application as the page says, but on a free port; end it once it serves."""
        words = shlex.split(command)
        server = subprocess.Popen(
            [BIN / words[0], *words[1:], "--port", "0"],
            cwd=self._path,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stderr is not None
            lines = []
            for line in server.stderr:
                lines.append(line)
                if "Uvicorn running on" in line:
                    server.send_signal(signal.SIGINT)
            server.wait(20)
        finally:
            server.kill()
            server.communicate()
        told = "".join(lines)
        assert "Uvicorn running on" in told, f"{place}: {command}\n{told}"
        assert "Application shutdown complete" in told, f"{place}: {command}\n{told}"

    def _listen_of(self, words: list[str]) -> str:
        # By the reader's own Toolpost: only there the sections of a part that they have installed are known.
        named = ["--config", words[words.index("--config") + 1]] if "--config" in words else []
        shown = self._run(shlex.join(["toolpost", "config", "show", "--json", *named]))
        return str(json.loads(shown.stdout)["settings"]["http"]["listen"])

    def _is_of_a_part(self, path: Path) -> bool:
        """Whether a section belongs to a part that is installed by the page, and so is known only there."""
        project = self._path / "pyproject.toml"
        points = tomllib.loads(project.read_text())["project"]["entry-points"] if project.exists() else {}
        return bool(points.get("toolpost.parts", {}).keys() & tomllib.loads(path.read_text()).keys())

    def _install(self) -> None:
        site = install(self._path)
        self._environment["PYTHONPATH"] = f"{site}{os.pathsep}{self._environment.get('PYTHONPATH', '')}"


def test_every_guide_is_on_the_map() -> None:
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    linked = set(re.findall(r"\]\(([\w/-]+\.md)\)", (ROOT / "docs/README.md").read_text()))
    decisions = set(re.findall(r"\]\(([\w/-]+\.md)\)", (ROOT / "docs/decisions/README.md").read_text()))

    assert {str(path) for path in pages if path.parts[0] in ("start", "guides", "parts", "reference")} <= linked
    assert {path.name for path in pages if path.parts[0] == "decisions"} - {"README.md"} == decisions


def test_modules_named_in_the_docs_exist() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "ARCHITECTURE.md"]
    named = {path for page in pages for path in re.findall(r"`([a-z_]+/[\w/]+\.py)`", page.read_text())}

    assert {path for path in named if not ((ROOT / "src/toolpost" / path).exists() or (ROOT / path).exists())} == set()
