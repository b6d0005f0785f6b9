"""A clean end: calls in flight get their answer or `CANCELLED` within the grace, and no process outlives the server."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from tests.victims.family import NAMES
from tests.waiting import wait_until
from tests.ways import BEHAVIOURS, ENVELOPE, STATELESS, TOOLPOST, server_environment, stdio_peer
from toolpost.audit import AuditFilter
from toolpost.settings.locations import state_folder
from toolpost.store import open_store

pytestmark = pytest.mark.wire

FAMILY = str(Path(__file__).parents[1] / "victims" / "family.py")


@contextmanager
def http_server(cwd: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    process = subprocess.Popen(
        [TOOLPOST, "serve", "--listen", "127.0.0.1:0", "--plugin", BEHAVIOURS],
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=server_environment(),
    )
    try:
        assert process.stderr is not None
        url = ""
        while not url:
            line = process.stderr.readline()
            assert line, "the server ended before it served"
            url = found.group() if (found := re.search(r"http://[^\s]+/mcp", line)) else ""
        yield process, url
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


class Asked(threading.Thread):
    """A call over HTTP in a thread of its own."""

    def __init__(self, url: str, name: str, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.answer: Any = None
        params = {"name": name, "arguments": arguments, "_meta": ENVELOPE}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": STATELESS,
            "mcp-method": "tools/call",
            "mcp-name": name,
        }
        self.request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        self.start()

    def run(self) -> None:
        with urllib.request.urlopen(self.request, timeout=30) as response:
            self.answer = json.loads(response.read())["result"]["structuredContent"]


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_calls_in_flight_get_their_answer_or_are_cancelled(tmp_path: Path, ending: signal.Signals) -> None:
    (tmp_path / "toolpost.toml").write_text("[limits]\ngrace_s = 3\n")
    pids = tmp_path / "pids"
    pids.mkdir()
    with http_server(tmp_path) as (process, url):
        command = [sys.executable, FAMILY, str(pids), "stay"]
        asked = [
            Asked(url, "does__sleep", {"seconds": 0.6}),
            Asked(url, "does__sleep", {"seconds": 20}),
            Asked(url, "does__run", {"command": command}),
            Asked(url, "does__clean_up", {"steps": 60}),  # longer than uvicorn gives its tasks at the end
        ]
        wait_until(lambda: all((pids / name).exists() for name in NAMES) and in_flight(url) == 3)
        short = Asked(url, "does__sleep", {"seconds": 0.6})
        wait_until(lambda: in_flight(url) == 4 or short.answer is not None)
        os.kill(process.pid, ending)
        exit_code = process.wait(60)
        for call in (*asked, short):
            call.join(30)
    family = [int((pids / name).read_text()) for name in NAMES]

    assert exit_code == 0
    assert asked[0].answer == short.answer == {"ok": True, "data": "done"}
    for call in asked[1:]:
        assert call.answer["error"]["code"] == "CANCELLED"
        assert "shutting down" in call.answer["error"]["message"]
    assert [pid for pid in family if psutil.pid_exists(pid)] == []
    assert sorted(anyio.run(outcomes, tmp_path)) == ["cancelled", "cancelled", "cancelled", "ok", "ok"]


def test_a_stuck_thread_does_not_keep_the_server(tmp_path: Path) -> None:
    with http_server(tmp_path) as (process, url):
        call = Asked(url, "does__block", {"seconds": 30})
        call.join(60)
        started = time.monotonic()
        process.terminate()
        exit_code = process.wait(60)

    assert call.answer["error"]["code"] == "TOOL_TIMEOUT"
    assert exit_code == 0
    assert time.monotonic() - started < 25


def test_a_client_that_listens_does_not_keep_the_server(tmp_path: Path) -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "0"}}
    opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    with http_server(tmp_path) as (process, url):
        request = urllib.request.Request(url, json.dumps(opening).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            headers["mcp-session-id"] = response.headers["mcp-session-id"]
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as stream:
            process.terminate()
            _, log = process.communicate(timeout=20)
            with contextlib.suppress(http.client.IncompleteRead):
                assert b"error" not in stream.read()

    assert process.returncode == 0
    # Its stream is ended, rather than cancelled when the time for answers is over.
    assert "requests cancelled at shutdown" not in log
    assert "Traceback" not in log


def test_what_was_asked_before_the_input_ended_is_answered(tmp_path: Path) -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "0"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "time__current_time"}},
        {"jsonrpc": "2.0", "id": 3, "method": "ping"},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    (tmp_path / "requests").write_bytes(text)
    command = [TOOLPOST, "serve", "--stdio"]
    environment = server_environment()
    piped = subprocess.run(command, input=text, capture_output=True, cwd=tmp_path, env=environment, timeout=100)
    with (tmp_path / "requests").open("rb") as requests, (tmp_path / "answers").open("wb") as answers:
        from_file = subprocess.run(
            command,
            stdin=requests,
            stdout=answers,
            stderr=subprocess.DEVNULL,
            cwd=tmp_path,
            env=environment,
            timeout=100,
        )

    for exit_code, output in (
        (piped.returncode, piped.stdout),
        (from_file.returncode, (tmp_path / "answers").read_bytes()),
    ):
        received = {answer["id"]: answer for answer in map(json.loads, output.splitlines())}
        assert exit_code == 0
        assert set(received) == {1, 2, 3}
        assert received[2]["result"]["structuredContent"]["ok"] is True


def test_a_client_that_leaves_takes_its_calls_along(tmp_path: Path) -> None:
    with stdio_peer(BEHAVIOURS, cwd=tmp_path) as peer:
        peer.call("does__echo", text="x")
        peer.start("tools/call", {"name": "does__sleep", "arguments": {"seconds": 60}}, id=1)
        assert peer.process.stdin is not None
        peer.process.stdin.close()
        started = time.monotonic()
        exit_code = peer.process.wait(60)

    assert exit_code == 0
    assert time.monotonic() - started < 30
    assert anyio.run(outcomes, tmp_path) == ["ok", "cancelled"]


def in_flight(url: str) -> int:
    with urllib.request.urlopen(url.removesuffix("mcp") + "healthz", timeout=10) as response:
        return int(json.loads(response.read())["inFlight"])


async def outcomes(folder: Path) -> list[str]:
    async with open_store(f"sqlite:{state_folder(folder)}/toolpost.db") as store:
        return [record.entry.outcome for record in await store.audit.entries(AuditFilter(), limit=100)]
