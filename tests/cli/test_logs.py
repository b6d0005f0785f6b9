"""`toolpost logs`: what gateways logged and servers wrote is kept on disk, and can be found by server, call and caller."""

import json
import logging
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.conftest import Run, Server
from toolpost.base.events import SERVER_OUTPUT, event
from toolpost.base.log_files import LogFiles, Position
from toolpost.cli.logs.files import FILES, write_log_files

SMALL = Path(__file__).parent / "servers" / "small.py"
TOML = f"""
[servers.noisy]
command = "sh"
args = ["-c", "echo token is missing >&2; exec {sys.executable} -S -E {SMALL} fine"]
"""
_log = logging.getLogger("toolpost.test")


@pytest.fixture
def handlers() -> Iterator[None]:
    """Put the handlers of all loggers back."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    root.setLevel(logging.INFO)
    yield
    for logger in (root, SERVER_OUTPUT):
        for handler in [each for each in logger.handlers if each not in before]:
            logger.removeHandler(handler)
            handler.close()
    root.setLevel(level)


@pytest.mark.usefixtures("handlers")
def test_events_are_kept_for_their_owner_alone_and_read_once(tmp_path: Path) -> None:
    write_log_files(tmp_path / "log", keep_mb=1)
    event(_log, logging.WARNING, "tool failed", call="c-1", server=None)
    event(SERVER_OUTPUT, logging.INFO, "output", server="noisy", line="a \x1b[31mline")

    files = LogFiles(tmp_path / "log")
    page = files.read_on({}, {})
    first, second = page.events
    assert (first["event"], first["call"], first["level"]) == ("tool failed", "c-1", "warning")
    assert "server" not in first
    assert second["line"] == "a \x1b[31mline"
    (path,) = (tmp_path / "log").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert files.read_on({}, page.before).events == []
    with path.open("a") as file:
        file.write('{"event": "not finished')
    page = files.read_on({}, page.before)
    assert page.events == []
    with path.open("a") as file:
        file.write(' yet"}\n')
    assert [each["event"] for each in files.read_on({}, page.before).events] == ["not finished yet"]


@pytest.mark.usefixtures("handlers")
def test_a_reader_follows_a_file_that_is_rotated(tmp_path: Path) -> None:
    write_log_files(tmp_path, keep_mb=1)
    files = LogFiles(tmp_path)
    at: Position = {}
    seen: list[int] = []
    for number in range(1_200):
        event(_log, logging.WARNING, "counted", number=number, filling="x" * 500)
        if number % 100 == 0:
            page = files.read_on({}, at)
            at = page.before
            seen += [each["number"] for each in page.events]
    seen += [each["number"] for each in files.read_on({}, at).events]
    assert seen == list(range(1_200))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 500_000


@pytest.mark.usefixtures("handlers")
def test_files_of_ended_processes_are_removed_when_they_are_too_many(tmp_path: Path) -> None:
    gone = 4_000_000  # more than any system gives
    for number in range(FILES + 5):
        path = tmp_path / f"gateway-{gone + number}.jsonl"
        path.write_text("{}\n")
        os.utime(path, (number, number))
    running = tmp_path / f"gateway-{os.getppid()}.jsonl"
    running.write_text("{}\n")
    os.utime(running, (0, 0))

    write_log_files(tmp_path, keep_mb=1)
    left = {path.name for path in tmp_path.iterdir()}
    assert running.name in left
    assert f"gateway-{gone + 5}.jsonl" in left
    assert f"gateway-{gone + 4}.jsonl" not in left


@pytest.mark.usefixtures("handlers")
def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").write_text("a file")
    write_log_files(tmp_path / "log", keep_mb=1)
    assert "no log is kept on disk" in capsys.readouterr().err


@pytest.mark.wire
def test_a_failed_call_is_found_by_its_request_id(
    tmp_path: Path, run: Run, invoke: Run, serve: Callable[..., Server], start: Callable[..., Any]
) -> None:
    (tmp_path / "toolpost.toml").write_text(TOML)
    assert invoke("logs").code == 2
    assert "`toolpost serve` writes it" in invoke("logs").err
    server = serve()
    following = start("logs", "--follow", "--json", "--level", "info")

    def call(name: str) -> httpx2.Response:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        }
        params = {"name": name, "arguments": {"text": 1}, "_meta": meta}
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": name,
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return httpx2.post(server.url, json=body, headers=headers)

    ids = {name: call(name).headers["x-request-id"] for name in ("noisy__echo", "no__such")}
    assert len(set(ids.values())) == 2
    assert httpx2.get(server.url.replace("/mcp", "/health")).headers["x-request-id"]

    (found,) = [json.loads(line) for line in invoke("logs", "--call", ids["noisy__echo"], "--json").out.splitlines()]
    assert (found["event"], found["server"], found["code"]) == ("call failed", "noisy", "INVALID_PARAMS")
    assert found["caller"]
    assert found["trace"]
    assert ids["no__such"] in invoke("logs").out
    text = invoke("logs", "--server", "noisy").out
    assert "noisy | token is missing" in text
    assert "call failed" in text

    deadline = time.monotonic() + 30
    for line in iter(following.stdout.readline, ""):
        if json.loads(line).get("request") == ids["no__such"]:
            break
        assert time.monotonic() < deadline
    server.end()
    assert "token is missing" in run("logs", "--server", "noisy").out
