"""A task outlives the gateway that began it: killed, shut down, one of two."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.endpoints.tasks.asking import HttpPeer, PipePeer
from tests.loaded import forked
from tests.postgres import Postgres
from tests.upstreams.behind import SERVERS
from tests.ways import TOOLPOST, server_environment

pytestmark = pytest.mark.wire

ERRANDS = "tests.plugins.errands:plugin"


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A project on some kind of store, with a server behind it."""
    lines = [
        "[servers.up]",
        f'command = "{sys.executable}"',
        f'args = ["-S", "-E", "{SERVERS / "hostile.py"}", "--version", "2025-11-25"]',
    ]
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        lines += ["[store]", f'url = "{server.new_url()}"']
    lines += ["[tasks]", "after_s = 0"]
    (tmp_path / "toolpost.toml").write_text("\n".join(lines))
    return tmp_path


def on(store: str) -> pytest.MarkDecorator:
    """Run with this kind of store, and with the other one in soak: test_wire.py has both."""
    kinds = [pytest.param(kind, marks=() if kind == store else pytest.mark.soak) for kind in ("sqlite", "postgres")]
    return pytest.mark.parametrize("folder", kinds, indirect=True)


@contextmanager
def serving(folder: Path) -> Iterator[tuple["subprocess.Popen[str]", HttpPeer]]:
    process = forked.start(
        [TOOLPOST, "serve", "--listen", "127.0.0.1:0", "--plugin", ERRANDS],
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=server_environment(),
    )
    try:
        assert process.stderr is not None
        while not (found := re.search(r"http://[^\s]+/mcp", process.stderr.readline())):
            assert process.poll() is None, "the server ended before it served"
        yield process, HttpPeer(found.group())
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def begun(peer: HttpPeer | PipePeer, name: str, **arguments: Any) -> dict[str, Any]:
    handle: dict[str, Any] = peer.ask("tools/call", {"name": name, "arguments": arguments})["result"]
    assert handle["resultType"] == "task"
    return handle


def state_of(peer: HttpPeer | PipePeer, handle: dict[str, Any]) -> dict[str, Any]:
    state: dict[str, Any] = peer.ask("tasks/get", {"taskId": handle["taskId"]})["result"]
    return state


def ending(peer: HttpPeer | PipePeer, handle: dict[str, Any], limit_s: float = 60) -> dict[str, Any]:
    deadline = time.monotonic() + limit_s
    while (state := state_of(peer, handle))["status"] == "working":
        assert time.monotonic() < deadline, "the task does not end"
        time.sleep(0.05)
    return state


def marks(folder: Path, count: int) -> list[str]:
    """Wait until so many calls have begun."""
    deadline = time.monotonic() + 60
    while True:
        found = (folder / "marks").read_text().split() if (folder / "marks").exists() else []
        if len(found) >= count:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


@on("postgres")
def test_a_killed_gateway_s_tasks_are_run_again_or_have_failed(folder: Path) -> None:
    with serving(folder) as (process, peer):
        again = begun(peer, "errands__again", folder=str(folder))
        once = begun(peer, "errands__once", folder=str(folder))
        done = begun(peer, "errands__echo", text="kept")
        far = begun(peer, "up__sleep", seconds=300)
        ending(peer, done)
        marks(folder, 2)
        process.kill()
        process.wait()

    with serving(folder) as (_, peer):
        kept = state_of(peer, done)
        cut = [ending(peer, one) for one in (once, far)]
        marks(folder, 3)
        between = state_of(peer, again)
        (folder / "go").touch()
        repeated = ending(peer, again)

    assert kept["result"]["structuredContent"]["data"] == "kept"
    assert [one["status"] for one in cut] == ["failed", "failed"]
    assert all("it is not run again" in one["error"]["message"] for one in cut)
    assert (between["status"], between["createdAt"]) == ("working", again["createdAt"])
    assert repeated["result"]["structuredContent"]["data"] == "done"
    assert sorted(marks(folder, 3)) == ["again", "again", "once"]


@on("sqlite")
def test_a_task_that_was_called_off_is_not_run_again(folder: Path) -> None:
    with serving(folder) as (process, peer), serving(folder) as (_, other):
        handle = begun(peer, "errands__again", folder=str(folder))
        marks(folder, 1)
        process.send_signal(signal.SIGSTOP)
        acknowledged = other.ask("tasks/cancel", {"taskId": handle["taskId"]})
        process.kill()
        process.wait()
        ended = ending(other, handle)

    assert acknowledged["result"]["resultType"] == "complete"
    assert ended["status"] == "cancelled"
    assert marks(folder, 1) == ["again"]


@on("sqlite")
def test_a_gateway_that_is_shut_down_leaves_what_can_be_repeated_to_the_next(folder: Path) -> None:
    with serving(folder) as (process, peer):
        again = begun(peer, "errands__again", folder=str(folder))
        once = begun(peer, "errands__once", folder=str(folder))
        marks(folder, 2)
        process.terminate()
        process.wait(60)

    with serving(folder) as (_, peer):
        cut = state_of(peer, once)
        marks(folder, 3)
        (folder / "go").touch()
        repeated = ending(peer, again)

    assert cut["status"] == "failed"
    assert "was shut down" in cut["error"]["message"]
    assert repeated["status"] == "completed"


@on("postgres")
def test_two_gateways_share_tasks_and_one_calls_off_what_the_other_runs(folder: Path) -> None:
    with serving(folder) as (_, one), serving(folder) as (_, other):
        handle = begun(one, "errands__once", folder=str(folder))
        seen = state_of(other, handle)
        started = time.monotonic()
        other.ask("tasks/cancel", {"taskId": handle["taskId"]})
        ended = ending(other, handle)
        took_s = time.monotonic() - started

    assert seen["status"] == "working"
    assert ended["status"] == "cancelled"
    assert took_s < 20


@on("sqlite")
def test_over_stdio_the_next_process_knows_the_task(folder: Path) -> None:
    command = [TOOLPOST, "serve", "--stdio", "--plugin", ERRANDS]
    states = []
    handle: dict[str, Any] = {}
    for _ in range(2):
        process = forked.start(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=server_environment(),
        )
        peer = PipePeer(process)
        if not handle:
            handle = begun(peer, "errands__again", folder=str(folder))
            marks(folder, 1)
        else:
            marks(folder, 2)
            (folder / "go").touch()
            states.append(ending(peer, handle))
        process.kill()
        process.wait()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()

    assert states[0]["result"]["structuredContent"]["data"] == "done"
    assert marks(folder, 2) == ["again", "again"]
