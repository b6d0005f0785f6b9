"""`toolpost call --url`: a tool of a gateway that runs, shown as one of this process would be. Real processes, real HTTP."""

import http.server
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import PLUGIN, Ended, Run, Server
from tests.cli.test_call import SMALL
from tests.waiting import wait_until

Serve = Callable[..., Server]
Start = Callable[..., "subprocess.Popen[str]"]

CALLS = (
    ("demo__echo", "text=123", "count=5", "tags=a", "tags=7", "size.x=1"),
    ("demo__repeat", "text=x", "count=5"),
    ("demo__echo", "text=ü", "--json"),
    ("demo__echo", "texd=x", "count=many"),
    ("demo__echo", "texd=x", "--json"),
    ("demo__miss",),
    ("demo__late",),
    ("demo__lie",),
    ("demo__picture",),
    ("demo__album", "--save", "shots"),
    ("demo__plainly", "count=0"),
    ("demo__plainly", "count=-1"),
    ("demo__say", 'text=say "hi"\nü'),
    ("pics__snap",),
    ("pics__spoil", "--save", "shots"),
)


@pytest.fixture
def gateway(serve: Serve, tmp_path: Path) -> Server:
    return serve_pictures(serve, tmp_path)


def serve_pictures(serve: Serve, folder: Path, *words: str) -> Server:
    (folder / "toolpost.toml").write_text(
        f"[servers.pics]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps(['-S', '-E', str(SMALL), 'pictures'])}\n"
    )
    return serve(*words)


def comparable(ended: Ended) -> tuple[int, str, str]:
    """Leave out what differs from call to call: its id, and the numbers of files."""
    err = re.sub(r"call: [0-9a-f]+-[0-9a-f]+", "call: ID", ended.err)
    return ended.code, ended.out, re.sub(r"-\d+(?=\.\w+ \()", "-N", err)


def test_answers_are_shown_as_those_of_this_process(gateway: Server, invoke: Run) -> None:
    for words in CALLS:
        here = invoke("call", *words, *PLUGIN)
        there = invoke("call", *words, "--url", gateway.url)
        assert comparable(there) == comparable(here), words


def test_gateway_that_lists_two_tools_runs_all_of_them(serve: Serve, invoke: Run, tmp_path: Path) -> None:
    gateway = serve_pictures(serve, tmp_path, "--mode", "automatic")
    typed = invoke("call", "demo__echo", "text=123", "count=5", "tags=a", "tags=7", "--url", gateway.url)
    refused = invoke("call", "demo__echo", "texd=x", "count=many", "--url", gateway.url)
    unknown = invoke("call", "demo__ecko", "text=x", "--url", gateway.url)
    steps = invoke("call", "demo__steps", "steps=2", "--url", gateway.url)
    pictures = invoke("call", "pics__snap", "--url", gateway.url, "--save", ".")

    assert typed.json == {"text": "123", "count": 5, "tags": ["a", "7"]}
    assert refused.code == 2
    assert '    received: "many"' in refused.err
    assert "code: INVALID_PARAMS" in refused.err
    assert unknown.code == 2
    assert "did you mean `demo__echo`" in unknown.err
    assert "progress: 2/2  step 2\n" in steps.err
    assert (tmp_path / "pics__snap-1.png").read_bytes() == b"hi"
    assert pictures.out == "before\nafter\n"


def test_progress_of_a_gateway_is_told_unless_quiet(gateway: Server, invoke: Run) -> None:
    ended = invoke("call", "demo__steps", "steps=2", "--url", gateway.url)
    quiet = invoke("call", "demo__steps", "steps=2", "--quiet", "--url", gateway.url)

    assert ended.json == quiet.json == "done"
    assert ended.err == "progress: 1/2  step 1\nprogress: 2/2  step 2\n"
    assert quiet.err == ""


def test_traceback_is_in_the_log_of_the_gateway_under_the_id_that_is_shown(gateway: Server, invoke: Run) -> None:
    ended = invoke("call", "demo__fail", "--debug", "--url", gateway.url)
    log = gateway.end().err

    assert ended.code == 1
    assert ended.err.splitlines()[-3:-1] == [
        "error: the disk is on fire",
        "hint: the gateway's log has the traceback, under the call id",
    ]
    call = ended.err.split("call: ")[-1].strip()
    assert f"call={call}" in log
    assert "in fail\n" in log


def test_unknown_tool_is_refused_with_the_nearest_name(gateway: Server, invoke: Run) -> None:
    ended = invoke("call", "demo__ecko", "--url", gateway.url)

    assert ended.code == 2
    assert ended.err == (
        "error: unknown tool `demo__ecko`\n"
        f"hint: did you mean `demo__echo`? `toolpost tools --url {gateway.url}` lists all of them\n"
    )


def test_path_of_one_server_has_its_own_names(gateway: Server, invoke: Run) -> None:
    ended = invoke("call", "snap", "--url", f"{gateway.url}/server/pics")
    bare = invoke("call", "pics__snap", "--url", gateway.url.removesuffix("/mcp"))

    assert ended.out == bare.out == "before\nafter\n# Notes\n"


@pytest.mark.parametrize(
    ("words", "number", "code"),
    [((), signal.SIGINT, 130), (("--timeout", "1.5"), None, 124)],
    ids=["signal", "timeout"],
)
def test_call_that_is_given_up_is_cancelled_there(
    gateway: Server,
    start: Start,
    run: Run,
    tmp_path: Path,
    words: tuple[str, ...],
    number: signal.Signals | None,
    code: int,
) -> None:
    pid_file = tmp_path / "pid"
    process = start("call", "demo__child", f"pid_file={pid_file}", "--url", gateway.url, *words)
    if number is not None:
        wait_until(pid_file.exists)
        process.send_signal(number)
    _, err = process.communicate(timeout=20)

    assert process.returncode == code
    assert "error: the call was cancelled: " in err
    assert "code: CANCELLED\n" in err
    wait_until(lambda: "cancelled" in run("audit", "--json").out)


def test_token_lets_a_call_in_and_is_never_shown(serve: Serve, invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret-token\n")
    (tmp_path / "toolpost.toml").write_text('http.token = "${file:token}"\n')
    gateway = serve()
    words = ("--debug", "call", "demo__plainly", "--url", gateway.url)
    with_file = invoke(*words)
    (tmp_path / "toolpost.toml").unlink()
    without = invoke(*words)
    wrong = invoke(*words, TOOLPOST_TOKEN="wrong-token")
    right = invoke(*words, TOOLPOST_TOKEN="s3cret-token")

    assert (with_file.code, right.code) == (0, 0)
    assert "0" in right.out
    assert (without.code, wrong.code) == (2, 2)
    assert "error: a token is required" in without.err
    assert "error: the token is not valid" in wrong.err
    assert all("hint: set TOOLPOST_TOKEN" in ended.err for ended in (without, wrong))
    for ended in (with_file, without, wrong, right):
        assert "s3cret-token" not in ended.out + ended.err
        assert "wrong-token" not in ended.out + ended.err


@pytest.mark.wire
def test_gateway_that_is_not_there_is_told_of(invoke: Run) -> None:
    ended = invoke("call", "demo__echo", "text=x", "--url", "http://127.0.0.1:1")

    assert ended.code == 3
    assert ended.err.startswith("error: cannot connect to a gateway at http://127.0.0.1:1/mcp: ")
    assert ended.err.endswith("hint: start one with `toolpost serve`, or give its address with --url\n")


def test_gateway_that_goes_away_meanwhile_is_told_of(gateway: Server, start: Start, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    process = start("call", "demo__child", f"pid_file={pid_file}", "--url", gateway.url)
    wait_until(pid_file.exists)
    gateway.process.kill()
    _, err = process.communicate(timeout=20)

    assert process.returncode == 1
    assert f"error: Lost the connection to the gateway at {gateway.url} before it answered: " in err
    assert "hint: the tool may have run: check with" in err


class _NoGateway(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def another_server() -> Iterator[str]:
    server = http.server.HTTPServer(("127.0.0.1", 0), _NoGateway)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.wire
def test_something_else_at_the_address_is_told_of(another_server: str, invoke: Run) -> None:
    ended = invoke("call", "demo__echo", "text=x", "--url", another_server)

    assert ended.code == 3
    assert f"error: the server at {another_server}/mcp is not a Toolpost gateway: " in ended.err


@pytest.mark.parametrize("words", [PLUGIN, ("--with", "time")])
def test_options_for_this_process_are_refused_beside_a_url(words: tuple[str, ...], invoke: Run) -> None:
    ended = invoke("call", "demo__echo", "--url", "http://127.0.0.1:1", *words)

    assert ended.code == 2
    assert "--plugin and --with cannot be used with --url" in ended.err


def test_tools_of_a_gateway_are_listed_as_it_lists_them(gateway: Server, invoke: Run) -> None:
    here = invoke("tools", "--json", *PLUGIN)
    listed = invoke("tools", "--url", gateway.url, "--json")
    shown = invoke("tools", "--url", gateway.url)
    one = invoke("tools", "demo__echo", "--url", gateway.url)
    unknown = invoke("tools", "demo__ecko", "--url", gateway.url)

    assert listed.json == here.json
    assert shown.out.splitlines()[0].split() == ["NAME", "VERSION", "DESCRIPTION"]
    assert re.search(r"^demo__echo +2\.5\.0 +Gives back what it is given\.$", shown.out, re.MULTILINE)
    assert "former names    demo__repeat" in one.out
    assert "Any text" in one.out
    assert unknown.code == 2
    assert "hint: did you mean `demo__echo`?" in unknown.err
