"""Calls in flight are written down before they are dispatched, and recorded as `lost` by whoever next opens the store."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from tests.loaded import forked
from tests.store.conftest import url_of
from tests.waiting import wait_until
from tests.ways import ROOT, StdioPeer, server_environment
from toolpost.audit import AuditFilter
from toolpost.base.ids import CallerId, CallId, ToolName, TraceId
from toolpost.contracts.errors import StoreUnavailable
from toolpost.store import open_store
from toolpost.store.audit_values import AuditDraft
from toolpost.store.call_journal import BLOCK_BYTES, FIRST_BLOCKS, AbandonedCalls, CallJournal

pytestmark = pytest.mark.anyio

DRAFT = AuditDraft(
    at_utc="2026-11-17T12:00:00.000Z",
    call_id=CallId("c-1"),
    trace_id=TraceId("0" * 32),
    caller=CallerId("ann"),
    tool=ToolName("files__write"),
    source="files",
    contract="sha256:" + "0" * 64,
    schema_version=1,
    tooling_version="",
    arguments="sha256:" + "1" * 64,
)


def draft(number: int, **changed: Any) -> AuditDraft:
    return replace(DRAFT, call_id=CallId(f"c-{number}"), **changed)


def abandon(journal: CallJournal) -> None:
    """Let go of the file, as the end of a process does."""
    os.close(journal._fd)
    assert journal._map is not None
    journal._map.close()
    journal._map = None


def calls_in(prefix: Path) -> list[str]:
    abandoned = AbandonedCalls(prefix)
    try:
        return [entry.call_id for entry in abandoned.entries]
    finally:
        abandoned.close()


def test_what_is_in_flight_is_found_once_the_process_has_ended(tmp_path: Path) -> None:
    journal = CallJournal(tmp_path / "calls-")
    slots = [journal.enter(draft(number)) for number in range(5)]
    for slot in slots[:2]:
        assert slot is not None
        journal.leave(slot)
    journal.enter(draft(9))
    assert calls_in(tmp_path / "calls-") == []  # its process lives
    abandon(journal)

    assert set(calls_in(tmp_path / "calls-")) == {"c-2", "c-3", "c-4", "c-9"}


def test_the_file_holds_any_number_and_any_size(tmp_path: Path) -> None:
    journal = CallJournal(tmp_path / "calls-")
    long = "x" * (3 * BLOCK_BYTES)
    slots = [journal.enter(draft(number, caller=long if number % 7 == 0 else "ann")) for number in range(300)]
    for slot in slots[::2]:
        assert slot is not None
        journal.leave(slot)
    for number in range(1000, 1150):
        journal.enter(draft(number, caller=long if number % 7 == 0 else "ann"))
    abandon(journal)
    (path,) = tmp_path.iterdir()

    assert set(calls_in(tmp_path / "calls-")) == {
        *(f"c-{number}" for number in range(1, 300, 2)),
        *(f"c-{number}" for number in range(1000, 1150)),
    }
    assert path.stat().st_size <= 16 * FIRST_BLOCKS * BLOCK_BYTES


def test_it_is_made_with_the_first_call_and_deleted_when_none_is_left(tmp_path: Path) -> None:
    journal = CallJournal(tmp_path / "deep" / "calls-")
    assert not (tmp_path / "deep").exists()
    slot = journal.enter(DRAFT)
    assert slot is not None
    (path,) = (tmp_path / "deep").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    journal.leave(slot)
    journal.close()
    journal.leave(slot)

    assert list((tmp_path / "deep").iterdir()) == []


def test_a_closed_journal_takes_no_call(tmp_path: Path) -> None:
    journal = CallJournal(tmp_path / "calls-")
    slot = journal.enter(draft(1))
    assert slot is not None
    journal.leave(slot)
    journal.close()

    assert journal.enter(draft(2)) is None


def test_half_a_line_is_no_call(tmp_path: Path) -> None:
    journal = CallJournal(tmp_path / "calls-")
    journal.enter(DRAFT)
    abandon(journal)
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    for changed in (data[:50] + bytes(len(data) - 50), b"\0" + data[1:], data[:1] + b"?" + data[2:], data[:1]):
        path.write_bytes(changed)
        assert calls_in(tmp_path / "calls-") == []


def test_a_call_that_cannot_be_journaled_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = CallJournal(tmp_path / "calls-")
    for number in range(FIRST_BLOCKS):
        journal.enter(draft(number))

    def durable(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", durable)
    with pytest.raises(StoreUnavailable, match="cannot grow"):
        journal.enter(draft(1000))
    other = CallJournal(tmp_path / "other-")
    assert other.enter(DRAFT) is None  # without a journal, calls are served; the log has a warning


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, request, tmp_path / "toolpost.db")


ONE_OF_EACH = pytest.mark.parametrize(
    ("kind", "url"),
    [
        ("plugin", "sqlite"),
        ("server", "postgres"),
        pytest.param("plugin", "postgres", marks=pytest.mark.soak),
        pytest.param("server", "sqlite", marks=pytest.mark.soak),
    ],
    indirect=["url"],
)

CRASH = """
import anyio, os, sys
from pathlib import Path
from toolpost.store import open_store
sys.path.insert(0, {root!r})
from tests.store.test_call_journal import draft

async def main() -> None:
    async with open_store({url!r}, journals=Path({folder!r})) as store:
        for number in range(10):
            store.audit.call_journal.enter(draft(number))
        # Recorded, and killed before it has left.
        entry = draft(0).complete(outcome="ok", code=None, duration_ms=1.0, result=None)
        await store.audit.append(entry)
        os.kill(os.getpid(), 9)

anyio.run(main)
"""


@pytest.mark.wire
async def test_lost_calls_are_recorded_and_logged_once_by_several_gateways(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = CRASH.format(root=str(ROOT), url=url, folder=str(tmp_path / "j"))
    ran = await anyio.to_thread.run_sync(lambda: subprocess.run([sys.executable, "-c", script], check=False))
    assert ran.returncode == -signal.SIGKILL

    counted: list[int] = []

    async def open_one() -> None:
        async with open_store(url, journals=tmp_path / "j") as one:
            counted.append(one.lost_calls)
            await anyio.sleep(0.05)  # the others open theirs meanwhile

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(open_one)
    async with open_store(url, journals=tmp_path / "j") as store:
        found = await store.audit.entries(AuditFilter(), limit=100)
        verdict = await store.audit.verify()

    assert sorted((each.entry.call_id, each.entry.outcome) for each in found) == [
        ("c-0", "ok"),
        *((f"c-{number}", "lost") for number in range(1, 10)),
    ]
    assert verdict.is_intact
    assert not list(tmp_path.glob("**/*calls-*"))
    logged = [record.__dict__["fields"] for record in caplog.records if record.message == "gateway was killed"]
    # The one that was answered was in the journal, too.
    assert [fields["calls"] for fields in logged] == [10]
    assert sorted(counted) == [0, 0, 0, 10]


PLUGIN = """
import asyncio, pathlib
from toolpost import Plugin

plugin = Plugin("files")

@plugin.tool
async def write(path: str) -> str:
    "Write a file, and take long to say so."
    pathlib.Path(path).write_text("done")
    await asyncio.sleep(60)
    return "written"
"""


@pytest.mark.wire
@ONE_OF_EACH
def test_a_killed_gateway_leaves_a_record_of_what_its_tool_did(kind: str, url: str, tmp_path: Path) -> None:
    config = [f'[store]\nurl = "{url}"']
    if kind == "plugin":
        (tmp_path / "filesplugin.py").write_text(PLUGIN)
        config.append('[plugins]\nload = ["filesplugin:plugin"]')
    else:
        (tmp_path / "server.py").write_text(STDIO_SERVER)
        config.append(f'[servers.files]\ncommand = "{sys.executable}"\nargs = ["server.py"]')
    (tmp_path / "toolpost.toml").write_text("\n".join(config))
    written = tmp_path / "written"
    command = [str(Path(sys.executable).parent / "toolpost"), "serve", "--stdio"]
    with forked.start(
        command, cwd=tmp_path, env=server_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            peer = StdioPeer(process)
            wait_for_tool(peer)
            peer.start("tools/call", {"name": "files__write", "arguments": {"path": str(written)}}, id=7)
            deadline = time.monotonic() + 60
            while not written.exists() and time.monotonic() < deadline:
                time.sleep(0.002)
            assert written.exists()
        finally:
            process.kill()
    audit = [str(Path(sys.executable).parent / "toolpost"), "call", "time__current_time", "--with", "time", "--json"]
    subprocess.run(audit, cwd=tmp_path, env=server_environment(), check=True, capture_output=True)
    shown = subprocess.run(
        [command[0], "audit", "--json"], cwd=tmp_path, env=server_environment(), check=True, capture_output=True
    )
    entries = [json.loads(line) for line in shown.stdout.splitlines()]
    lost = [entry for entry in entries if entry["tool"] == "files__write"]

    assert [(entry["outcome"], entry["caller"]) for entry in lost] == [("lost", "local")]
    assert lost[0]["arguments"].startswith("sha256:")


STDIO_SERVER = """
import json, pathlib, sys

for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "files", "version": "1"}}
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        result = {"tools": [{"name": "write", "inputSchema": schema}]}
    elif method == "tools/call":
        pathlib.Path(message["params"]["arguments"]["path"]).write_text("done")
        continue  # and no answer
    elif "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "unknown"}}), flush=True)
        continue
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def wait_for_tool(peer: StdioPeer) -> None:
    def is_listed() -> bool:
        return any(tool["name"] == "files__write" for tool in peer.request("tools/list")["result"]["tools"])

    wait_until(is_listed, every_s=0.1)
