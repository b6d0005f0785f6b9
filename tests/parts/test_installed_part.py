"""The part of docs/guides/write-a-part.md, installed as a package: every thing that it brings is there, on both stores."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client

from tests.docs.blocks import ROOT, blocks_of
from tests.docs.packages import install
from tests.parts.test_front_doors import find_imports, is_allowed
from tests.store.conftest import url_of
from toolpost.testing import data_of, error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire, pytest.mark.every_store]

GUIDE = ROOT / "docs/guides/write-a-part.md"
KINDS = pytest.mark.parametrize("kind", ["sqlite", "postgres"])
ONE_KIND = pytest.mark.parametrize("kind", [pytest.param("sqlite", marks=pytest.mark.soak), "postgres"])
"""Of what is the same for both, one is soak."""


RUN_ALL = """
import json, logging, sys
from click.testing import CliRunner
from toolpost.cli.main import main
from toolpost.terminal import group

group.exit_process = sys.exit
root = logging.getLogger()
for arguments in json.loads(sys.argv[1]):
    before = root.handlers[:], root.level
    done = CliRunner().invoke(main, arguments)
    root.handlers, root.level = before
    print(json.dumps([done.exit_code, done.stdout, done.stderr]))
"""


class Reader:
    """A folder in which the guide was followed."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        for block in blocks_of(GUIDE):
            if block.file is not None:
                path = folder / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text)
        config = (folder / "toolpost.toml").read_text()
        (folder / "toolpost.toml").write_text(f'{config}\n[store]\nurl = "{url}"\n')
        self.site = install(folder)
        self.env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(self.site)}

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "toolpost", *arguments]
        return subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=120)

    def run_all(self, *commands: str) -> "list[subprocess.CompletedProcess[str]]":
        """Run commands one after the other in one process: to load everything takes longer than most of them."""
        asked = json.dumps([command.split() for command in commands])
        program = [sys.executable, "-c", RUN_ALL, asked]
        done = subprocess.run(program, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return [subprocess.CompletedProcess((), *json.loads(line)) for line in done.stdout.splitlines()]

    def answer(self, *arguments: str) -> str:
        return _output(self.run(*arguments))

    def answers(self, *commands: str) -> list[str]:
        return [_output(done) for done in self.run_all(*commands)]

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        command = [sys.executable, "-m", "toolpost", "serve", "--json", "--listen", "127.0.0.1:0"]
        server = subprocess.Popen(command, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            facts = json.loads(server.stdout.readline())
            yield facts["url"], facts
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)
            assert server.stdout is not None
            server.stdout.close()


def _output(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def findings(said: str) -> list[dict[str, Any]]:
    """Return what `toolpost doctor --json` has found."""
    return [{**each, "group": group["name"]} for group in json.loads(said)["groups"] for each in group["findings"]]


@KINDS
async def test_a_part_brings_all_that_the_guide_says(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    reader = Reader(tmp_path, url_of(kind, request, tmp_path / "store.db"))
    async with reader.serving() as (url, facts):
        async with Client(url) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            count = data_of(await client.call_tool("notes__add", {"text": "green"}))
            guarded = await client.call_tool("notes__add", {"text": "my password"})
        async with httpx2.AsyncClient(base_url=url.removesuffix("/mcp"), timeout=60) as http:
            posted = await http.post("/api/notes", json={"text": "red"})
            refused = await http.post("/api/notes", json={"text": "my password"})
            mistyped = await http.post("/api/notes", json={"txt": "red"})
            form = await http.post("/api/notes", data={"text": "forged"})
            rebound = await http.get("/api/notes", headers={"Host": "evil.example"})
            listed = await http.get("/api/notes")
            wrong = await http.delete("/api/notes")
            page, script = await http.get("/notes"), await http.get("/views/notes/notes.js")
            views = (await http.get("/api/console/views")).json()["views"]
            metrics = (await http.get("/metrics")).text
            conversations = await http.get("/api/threads")
    async with reader.serving() as (url, _), httpx2.AsyncClient(base_url=url.removesuffix("/mcp")) as http:
        metrics_again = (await http.get("/metrics")).text
    again, shown, audit = reader.answers("call notes__list --json", "notes", "audit --json")

    assert facts["status"] == "ok"
    assert {"notes__add", "notes__list"} <= tools
    assert (count, posted.status_code, posted.json()) == (1, 201, 2)
    assert error_of(guarded)["code"] == "FORBIDDEN"
    # What the API does, it does by the tools: guard and audit hold for it.
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "FORBIDDEN")
    assert "password" in refused.json()["error"]["message"]
    assert audit.count('"notes__add"') == 4
    assert audit.count('"FORBIDDEN"') == 2
    assert (mistyped.status_code, mistyped.json()["error"]["hint"]) == (400, "did you mean `text`?")
    assert (form.status_code, rebound.status_code, wrong.status_code) == (415, 421, 405)
    assert listed.json() == [{"caller": "local", "text": text} for text in ("green", "red")]
    assert "/console/app.js" in page.text
    assert {"title": "Notes", "path": "/notes", "group": "products", "module": "/views/notes/notes.js"} in views
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert script.headers["content-type"].startswith("text/javascript")
    assert "toolpost_notes_added_total 2" in metrics
    assert "toolpost_notes 2" in metrics
    assert conversations.status_code == 200
    # What was kept is there for the next gateway, whose migrations find nothing to do.
    assert "toolpost_notes 2" in metrics_again
    assert "green" in again
    assert shown.splitlines()[:2] == ["local: green", "local: red"]


async def test_an_api_that_calls_tools_lets_a_caller_do_what_its_tools_let_it(tmp_path: Path) -> None:
    reader = Reader(tmp_path, "sqlite:store.db")
    with (tmp_path / "toolpost.toml").open("a") as file:
        file.write(
            '[callers.reader]\ntoken = "a-token-of-a-reader-0123456789"\nmode = "readonly"\n'
            '[callers.other]\ntoken = "a-token-of-another-0123456789"\ntools = ["time__*"]\n'
        )
    async with reader.serving() as (url, _), httpx2.AsyncClient(base_url=url.removesuffix("/mcp")) as http:
        as_reader = {"Authorization": "Bearer a-token-of-a-reader-0123456789"}
        as_other = {"Authorization": "Bearer a-token-of-another-0123456789"}
        written = await http.post("/api/notes", json={"text": "green"}, headers=as_reader)
        read = await http.get("/api/notes", headers=as_reader)
        hidden = await http.get("/api/notes", headers=as_other)

    assert (written.status_code, written.json()["error"]["code"]) == (403, "FORBIDDEN")
    assert (read.status_code, read.json()) == (200, [])
    assert (hidden.status_code, hidden.json()["error"]["code"]) == (400, "INVALID_REQUEST")


def test_the_part_of_the_guide_imports_doors_alone(tmp_path: Path) -> None:
    """What the guide shows must be enough: `toolpost`, and packages that have a door."""
    reader = Reader(tmp_path, "sqlite:store.db")
    imports = {each for file in (reader.site / "toolpost_notes").rglob("*.py") for each in find_imports(file)}

    assert ("toolpost.parts", "Guard") in imports
    assert not {each for each in imports if not is_allowed("notes", *each)}


def test_commands_settings_and_checks_of_a_part_are_known_without_a_gateway(tmp_path: Path) -> None:
    reader = Reader(tmp_path, "sqlite:store.db")
    helped, schema, shown, checked = reader.answers("--help", "config schema", "config show", "doctor --json")
    found = [finding["message"] for finding in findings(checked) if finding["check"] == "notes"]
    (tmp_path / "toolpost.toml").write_text("[notes]\nmots = 3\n")
    refused = reader.run("tools")

    assert re.search(r"^  Products .*\bnotes\b", helped, re.MULTILINE)
    assert json.loads(schema)["$defs"]["NotesSettings"]["properties"]["most"]["default"] == 1000
    assert "[notes]\nmost = 50" in shown
    assert found == ["up to 50 notes are kept"]
    assert refused.returncode != 0
    assert "unknown setting `notes.mots`" in refused.stderr
    assert "did you mean `notes.most`?" in refused.stderr


def test_a_part_can_be_left_out(tmp_path: Path) -> None:
    reader = Reader(tmp_path, "sqlite:store.db")
    with (tmp_path / "toolpost.toml").open("a") as file:
        file.write('[plugins]\ndisable = ["notes"]\n')

    listed, checked = reader.answers("tools --json", "doctor --json")

    assert "notes__" not in listed
    assert not [finding for finding in findings(checked) if finding["check"] == "notes"]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("__init__.py", "import module_that_is_not_installed\n"),
        ("notes.py", "import module_that_is_not_installed\n"),
        ("migrations/sqlite/0002_wrong.sql", "CREATE TABLE notes_notes (id INTEGER);\n"),
    ],
)
def test_a_part_that_cannot_open_lists_nothing_and_the_rest_serves(tmp_path: Path, file: str, line: str) -> None:
    reader = Reader(tmp_path, "sqlite:store.db")
    (tmp_path / "toolpost.toml").write_text('[store]\nurl = "sqlite:store.db"\n[plugins]\nbundled = ["time"]\n')
    path = reader.site / "toolpost_notes" / file
    path.write_text(line + (path.read_text() if path.exists() else ""))
    listed, checked = reader.run_all("tools --json", "doctor --json")
    problems = [finding for finding in findings(checked.stdout) if finding["level"] == "problem"]

    assert listed.returncode == 1, listed.stderr
    assert "time__current_time" in listed.stdout
    assert "notes__" not in listed.stdout
    assert [problem["group"] for problem in problems] == ["notes"]
    assert ("module_that_is_not_installed" in problems[0]["message"]) is file.endswith(".py")


@ONE_KIND
async def test_tables_of_a_newer_version_of_a_part_are_left_alone(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    reader = Reader(tmp_path, url_of(kind, request, tmp_path / "store.db"))
    newer = reader.site / "toolpost_notes/migrations" / kind / "0002_more.sql"
    newer.write_text("ALTER TABLE notes_notes ADD COLUMN colour TEXT;\n")
    reader.answer("call", "notes__add", "text=green")
    newer.unlink()
    refused, listed = reader.run_all("call notes__add text=red", "tools --json")

    assert refused.returncode != 0
    assert "newer version of it: the store has its migration 2" in refused.stderr
    assert (listed.returncode, listed.stdout != "") == (0, True)


@ONE_KIND
async def test_tables_of_a_part_move_with_the_store(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    reader = Reader(tmp_path, url_of(kind, request, tmp_path / "store.db"))
    move = "store migrate --to sqlite:other.db --json"
    _, planned, moved = reader.answers("call notes__add text=green", f"{move} --dry-run", move)
    (tmp_path / "toolpost.toml").write_text('[store]\nurl = "sqlite:other.db"\n')
    listed = reader.answer("call", "notes__list", "--json")
    del reader.env["PYTHONPATH"]  # where the part is installed
    refused = reader.run("store", "migrate", "--to", "sqlite:third.db")

    assert [json.loads(said)["written"]["notes_notes"] for said in (planned, moved)] == [1, 1]
    assert "green" in listed
    assert refused.returncode != 0
    assert "tables of the part `notes`, which is not installed" in refused.stderr
