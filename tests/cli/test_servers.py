"""`toolpost servers`: a running gateway looked at, and its servers started, stopped and restarted, over real HTTP."""

import http.client
import http.server
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp import Client

from tests.cli.conftest import Run, Server
from toolpost.cli.servers.command import print_servers

SMALL = Path(__file__).parent / "servers" / "small.py"
SECRET = "hush-hush-123"

Serve = Callable[..., Server]


def settings(**kinds: str) -> str:
    """Write a configuration of small servers, each named for what it is like unless told otherwise."""
    return "\n".join(
        f"[servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps(['-S', '-E', str(SMALL), kind])}\n"
        f"env = {{SMALL_TOKEN = {json.dumps(SECRET)}}}\ntags = ['small']\n"
        for name, kind in kinds.items()
    )


@pytest.fixture
def gateway(serve: Serve, tmp_path: Path) -> Server:
    (tmp_path / "toolpost.toml").write_text(settings(fine="fine", broken="broken", dies="dies"))
    return serve()


def ask(server: Server, verb: str, path: str, **headers: str) -> tuple[int, Any, http.client.HTTPMessage]:
    """Ask by hand, as no client of ours would."""
    connection = http.client.HTTPConnection(server.url.split("/")[2], timeout=20)
    try:
        connection.request(verb, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()), answer.headers
    finally:
        connection.close()


def test_servers_are_shown_as_they_are(gateway: Server, invoke: Run) -> None:
    shown = invoke("servers", "--url", gateway.url)
    reports = {report["name"]: report for report in invoke("servers", "--url", gateway.url, "--json").json}

    lines = {line.split()[0]: line.split() for line in shown.out.splitlines() if line}
    assert shown.code == 0
    assert shown.out.splitlines()[0].split() == ["NAME", "STATE", "PID", "MEMORY", "RESTARTS", "TOOLS", "LAST", "ERROR"]
    assert lines["fine"][1] == "ready"
    assert psutil.pid_exists(int(lines["fine"][2]))
    assert lines["fine"][4] == "MiB"
    assert "1 (1 refused)" in shown.out
    assert reports["fine"]["version"] == "2025-06-18"
    assert reports["fine"]["tags"] == ["small"]
    assert reports["fine"]["memoryBytes"] > 1_000_000
    assert [(refusal["tool"], refusal["place"]) for refusal in reports["broken"]["refused"]] == [
        ("bad", "inputSchema/properties/a/type")
    ]
    assert set(reports["dies"]) >= {"transport", "pids", "inFlight", "restarts", "lastError", "stderrTail", "tools"}


def test_a_degraded_server_is_shown_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    print_servers([{"name": "maps", "state": "ready", "tools": 3, "degraded": "it keeps renaming its tools"}])

    (row,) = capsys.readouterr().out.splitlines()[1:]
    assert "ready, degraded" in row
    assert "it keeps renaming its tools" in row


def test_server_that_is_down_is_shown_with_its_last_words_and_without_its_secret(gateway: Server, invoke: Run) -> None:
    shown = invoke("servers", "--url", gateway.url)
    told = invoke("servers", "--url", gateway.url, "--json")

    assert "dies" in shown.out
    assert "failed" in shown.out
    assert "last stderr lines of dies:\n  small server here, token (redacted)" in shown.out
    assert SECRET not in shown.out + shown.err + told.out


@pytest.mark.anyio
async def test_server_is_stopped_started_and_restarted(gateway: Server, invoke: Run) -> None:
    url = ("--url", gateway.url)
    first = _pid(gateway)
    stopped = invoke("servers", "stop", "fine", *url)
    async with Client(gateway.url) as client:
        refused = await client.call_tool("fine__echo", {"text": "x"})
        started = invoke("servers", "start", "fine", *url)
        answer = await client.call_tool("fine__echo", {"text": "x"})
    second = _pid(gateway)
    restarted = invoke("servers", *url, "restart", "fine", "--json")

    assert (stopped.code, stopped.out.split(",")[0].strip()) in [(0, "fine: stopped"), (0, "fine: draining")]
    assert "toolpost servers start fine" in str(refused.content)
    assert (started.code, started.out) == (0, f"fine: ready, pid {second}\n")
    assert answer.structured_content == {"text": "x"}
    assert restarted.json["state"] == "ready"
    assert len({first, second, *restarted.json["pids"]}) >= 3
    assert restarted.json["restarts"] == 2


def _pid(server: Server) -> int:
    _, answer, _ = ask(server, "GET", "/api/servers/fine")
    return int(answer["pids"][-1])


def test_start_that_fails_is_told(gateway: Server, invoke: Run) -> None:
    ended = invoke("servers", "start", "dies", "--url", gateway.url)

    assert ended.code == 1
    assert ended.err.startswith("error: The server `dies` is not available: it ended with exit code 1")
    assert SECRET not in ended.err


def test_slip_in_a_name_is_met_with_the_nearest(gateway: Server, invoke: Run) -> None:
    ended = invoke("servers", "restart", "fin", "--url", gateway.url)

    assert ended.code == 2
    assert ended.err == "error: unknown server `fin`\nhint: did you mean `fine`?\n"


def test_what_changes_things_cannot_be_posted_by_a_page(gateway: Server) -> None:
    path = "/api/servers/fine/restart"
    plain, error, _ = ask(gateway, "POST", path)
    form, _, _ = ask(gateway, "POST", path, content_type="application/x-www-form-urlencoded")
    foreign, _, _ = ask(gateway, "POST", path, x_toolpost="1", origin="https://evil.example")
    rebound, refusal, _ = ask(gateway, "GET", "/api/servers", host="evil.example")
    by_header, _, _ = ask(gateway, "POST", path, x_toolpost="1")
    by_type, report, _ = ask(gateway, "POST", path, content_type="application/json")

    assert (plain, form, foreign, rebound) == (415, 415, 403, 421)
    assert error["error"]["code"] == "INVALID_REQUEST"
    assert refusal["error"]["code"] == "FORBIDDEN"
    assert (by_header, by_type) == (200, 200)
    assert report["state"] == "ready"


@pytest.mark.wire
@pytest.mark.parametrize(
    ("verb", "path", "status", "code"),
    [
        ("POST", "/api/servers", 405, "INVALID_REQUEST"),
        ("GET", "/api/servers/fine/stop", 405, "INVALID_REQUEST"),
        ("DELETE", "/api/servers/fine", 405, "INVALID_REQUEST"),
        ("GET", "/api/servers/nobody", 404, "NOT_FOUND"),
        ("POST", "/api/servers/nobody/stop", 404, "NOT_FOUND"),
        ("POST", "/api/servers/fine/explode", 404, "NOT_FOUND"),
        ("POST", "/api/servers/fine/stop/now", 404, "NOT_FOUND"),
    ],
)
def test_wrong_request_gets_the_error_object(serve_once: Server, verb: str, path: str, status: int, code: str) -> None:
    got, answer, headers = ask(serve_once, verb, path, x_toolpost="1")

    assert (got, answer["error"]["code"]) == (status, code)
    assert headers["allow"] == (None if status != 405 else "POST" if path.endswith("stop") else "GET")


@pytest.fixture(scope="module")
def serve_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One gateway for the tests that change nothing about it."""
    import subprocess

    from tests.cli.conftest import TOOLPOST
    from tests.loaded import forked

    folder = tmp_path_factory.mktemp("gateway")
    (folder / "toolpost.toml").write_text(settings(fine="fine"))
    pipe = subprocess.PIPE
    command = [TOOLPOST, "serve", "--listen", "127.0.0.1:0", "--json"]
    with forked.start(command, cwd=folder, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            facts = json.loads(process.stdout.readline())
            yield Server(process, facts["url"], facts)
        finally:
            process.kill()


def test_token_is_asked_for(serve: Serve, invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    (tmp_path / "toolpost.toml").write_text('http.token = "${file:token}"\n' + settings(fine="fine"))
    server = serve()
    with_file = invoke("servers", "--url", server.url)
    wrong = invoke("servers", "--url", server.url, TOOLPOST_TOKEN="wrong")
    status, answer, headers = ask(server, "GET", "/api/servers")

    assert with_file.code == 0
    assert wrong.code == 2
    assert wrong.err.startswith("error: the token is not valid")
    assert "hint: set TOOLPOST_TOKEN" in wrong.err
    assert (status, answer["error"]["code"], headers["www-authenticate"]) == (401, "UNAUTHORIZED", "Bearer")


@pytest.mark.wire
def test_without_a_gateway_the_configured_servers_are_listed(invoke: Run, tmp_path: Path) -> None:
    listen = 'http.listen = "127.0.0.1:1"\n'
    (tmp_path / "toolpost.toml").write_text(
        listen + settings(fine="fine") + "[servers.off]\nurl='http://x'\nenabled=false"
    )
    ended = invoke("servers")
    as_json = invoke("servers", "--json")
    acted = invoke("servers", "restart", "fine")
    elsewhere = invoke("servers", "--url", "http://127.0.0.1:1/mcp")

    assert (ended.code, as_json.code, acted.code, elsewhere.code) == (3, 3, 3, 3)
    assert [line.split()[:3] for line in ended.out.splitlines()[1:]] == [
        ["fine", "not", "running"],
        ["off", "disabled", "-"],
    ]
    assert ended.err.startswith(
        "error: cannot connect to a gateway at http://127.0.0.1:1: connection refused\nhint: start one with `toolpost serve`"
    )
    assert [report["state"] for report in as_json.json] == ["not running", "disabled"]
    assert elsewhere.out == ""


@pytest.mark.wire
@pytest.mark.parametrize("answer", ["html", "json", "redirect"])
def test_something_else_at_the_address_is_told_apart(invoke: Run, answer: str) -> None:
    with _something_else(answer) as (url, seen):
        ended = invoke("servers", "--url", url, TOOLPOST_TOKEN="s3cret")

    assert ended.code == 3
    assert f"error: the server at {url} is not a Toolpost gateway" in ended.err
    assert seen == ["/api/servers"]


@pytest.mark.parametrize("url", ["127.0.0.1:8420", "ftp://x", "http://", "http://x:notaport"])
def test_address_that_is_none_is_refused(invoke: Run, url: str) -> None:
    ended = invoke("servers", "--url", url)

    assert ended.code == 2
    assert f"error: `{url}` is not the URL of a gateway" in ended.err


@contextmanager
def _something_else(answer: str) -> Iterator[tuple[str, list[str]]]:
    seen: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            body = b"[1]" if answer == "json" else b"<html>"
            self.send_response(302 if answer == "redirect" else 200)
            self.send_header("location", "/elsewhere")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
        server.shutdown()
        thread.join()


@pytest.mark.wire
def test_a_server_takes_the_place_of_a_plugin_that_we_bring(invoke: Run, tmp_path: Path) -> None:
    """Claude's file may well have a server called `time`; it is read as it is."""
    command = {"command": sys.executable, "args": ["-S", "-E", str(SMALL), "fine"]}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"time": command}}))
    listed = invoke("tools", "--config", ".mcp.json", "--with", "time", "--json")
    checked = invoke("doctor", "--config", ".mcp.json", "--with", "time", "--json")

    assert [tool["name"] for tool in listed.json] == ["time__echo"]
    assert checked.code == 0
    assert [found["kind"] for found in checked.json["groups"] if found["name"] == "time"] == ["server"]
