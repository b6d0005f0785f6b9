"""`toolpost store`: what it is, moved from one kind to the other, killed on the way; and two gateways on one database."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from mcp import Client

from tests.cli.conftest import PLUGIN, Run, Server
from tests.postgres import Postgres
from tests.waiting import until
from tests.ways import STATELESS
from toolpost.audit import AuditEntry
from toolpost.base.ids import CallerId, CallId, ToolName, TraceId
from toolpost.settings.locations import state_folder
from toolpost.store import open_store

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


def configure(folder: Path, url: str, *, pool: int = 8) -> None:
    (folder / "toolpost.toml").write_text(f"[store]\nurl = {json.dumps(url)}\npool = {pool}\n")


async def fill(path: Path, count: int) -> None:
    async with open_store(path) as store:
        entries = (
            AuditEntry(
                at_utc="2026-03-01T12:00:00.000Z",
                call_id=CallId(f"call-{number}"),
                trace_id=TraceId("t"),
                caller=CallerId("ada"),
                tool=ToolName("time__now"),
                source="time",
                contract="",
                schema_version=1,
                tooling_version="1",
                arguments="",
                outcome="ok",
                code=None,
                duration_ms=1.0,
                result=None,
            )
            for number in range(count)
        )
        await asyncio.gather(*(store.audit.append(entry) for entry in entries))


def test_status_says_what_there_is(invoke: Run, postgres: Postgres, tmp_path: Path) -> None:
    nothing = invoke("store", "status")
    invoke("call", "demo__echo", "text=x", *PLUGIN)
    file = invoke("store", "status", "--json").json
    configure(tmp_path, postgres.new_url().replace("postgres:@", "postgres:hush-hush@"))
    nothing_there = invoke("store", "status")
    invoke("call", "demo__echo", "text=x", *PLUGIN)
    database = invoke("store", "status", "--json").json
    shown = invoke("store", "status")

    assert (nothing.code, nothing_there.code) == (2, 2)
    assert "there is no store at sqlite:" in nothing.err
    assert (file["kind"], file["rows"]["audit"], file["migration"] >= 1) == ("sqlite", 1, True)
    assert (database["kind"], database["rows"]["audit"]) == ("postgresql", 1)
    assert database["head"].startswith("sha256:")
    assert database["version"].startswith("PostgreSQL ")
    assert "hush" not in f"{nothing_there.err} {database} {shown.out} {invoke('config', 'show').out}"
    assert "rows of audit" in shown.out


def test_a_store_moves_and_comes_back(invoke: Run, postgres: Postgres, tmp_path: Path) -> None:
    for _ in range(3):
        invoke("call", "demo__echo", "text=x", *PLUGIN)
    first = invoke("store", "status", "--json").json["url"]
    url = postgres.new_url()
    looked = invoke("store", "migrate", "--to", url, "--dry-run", "--json")
    moved = invoke("store", "migrate", "--to", url)
    configure(tmp_path, url)
    invoke("call", "demo__echo", "text=x", *PLUGIN)
    verified = invoke("audit", "verify", "--json")
    back = invoke("store", "migrate", "--to", f"sqlite:{tmp_path}/back.db", "--json")
    configure(tmp_path, first)
    older = invoke("store", "migrate", "--to", url)

    assert looked.json["written"]["audit"] == 3
    assert looked.json["dryRun"] is True
    assert moved.code == 0, moved.err
    assert "The copy is complete and verified" in moved.err
    assert verified.json["checked"] == 4
    assert back.json["rows"]["audit"] == 4
    # The first file is behind by one: its chain is the beginning of what is there, not the other way round.
    assert older.code == 3
    assert "already has an audit" in older.err


def test_a_dry_run_makes_no_store(invoke: Run, postgres: Postgres, tmp_path: Path) -> None:
    invoke("call", "demo__echo", "text=x", *PLUGIN)
    url = postgres.new_url()
    invoke("store", "migrate", "--to", url, "--dry-run")
    invoke("store", "migrate", "--to", f"sqlite:{tmp_path}/other.db", "--dry-run")

    assert postgres.sql(url, f"SELECT to_regnamespace('{url.rpartition('=')[2]}') IS NULL") == "t"
    assert not (tmp_path / "other.db").exists()


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("mysql://host/db", "unknown kind of store"),
        ("postgresql://u:hush-hush@127.0.0.1:1/db", "cannot be reached"),
        ("postgresql://u:${NOT_SET_ANYWHERE}@127.0.0.1:1/db", "NOT_SET_ANYWHERE"),
        ("postgresql://u:hush-hush@host:port/db", "invalid URL"),
        ("sqlite:.toolpost/toolpost.db", "the store that is in use"),
        ("sqlite:/proc/nowhere/x.db", "cannot be opened"),
    ],
)
def test_a_bad_target_is_refused(
    invoke: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, reason: str
) -> None:
    invoke("call", "demo__echo", "text=x", *PLUGIN)
    if "in use" in reason:
        target = f"sqlite:{state_folder(tmp_path)}/toolpost.db"
    ended = invoke("store", "migrate", "--to", target)
    tried = invoke("store", "migrate", "--to", target, "--dry-run")

    assert (ended.code, tried.code) == (3, 0 if "opened" in reason else 3)
    assert reason in ended.err
    assert "hint:" in ended.err
    assert "hush" not in ended.err


async def test_a_copy_that_is_killed_again_and_again_comes_to_its_end(
    run: Run, start: Callable[..., "subprocess.Popen[str]"], postgres: Postgres, tmp_path: Path
) -> None:
    count = 30_000
    await fill(tmp_path / ".toolpost" / "toolpost.db", count)
    url = postgres.new_url()
    seen = [0]
    for _ in range(3):
        process = start("store", "migrate", "--to", url)
        with anyio.fail_after(60):
            while process.poll() is None and _copied(postgres, url) <= seen[-1]:
                await anyio.sleep(0.05)
        process.kill()
        process.wait()
        seen.append(_copied(postgres, url))
    ended = await anyio.to_thread.run_sync(lambda: run("store", "migrate", "--to", url, "--json"))
    configure(tmp_path, url)
    verified = await anyio.to_thread.run_sync(lambda: run("audit", "verify", "--json"))

    assert 0 < seen[1] < count
    assert seen == sorted(seen)
    assert ended.code == 0, ended.err
    assert ended.json["written"]["audit"] <= count - seen[1]
    assert verified.json["checked"] == count


def _copied(postgres: Postgres, url: str) -> int:
    try:
        return int(postgres.sql(url, "SELECT seq FROM audit_head"))
    except subprocess.CalledProcessError:
        return 0


class Callers:
    """Clients that call without a pause, and count their answers."""

    def __init__(self) -> None:
        self.answered = 0
        self.is_over = False

    async def call(self, url: str, mode: str) -> None:
        async with Client(url, mode=mode) as client:
            while not self.is_over:
                answer = await client.call_tool("demo__echo", {"text": "x"})
                assert answer.structured_content == {"ok": True, "data": {"text": "x"}}, answer
                self.answered += 1

    async def until_more(self) -> None:
        before = self.answered
        await until(lambda: self.answered >= before + 20)


@pytest.mark.soak  # tests/store/test_postgres.py restarts the database under one store
async def test_two_gateways_on_one_database_write_one_chain_through_restarts(
    serve: Callable[..., Server], run: Run, postgres: Postgres, tmp_path: Path
) -> None:
    configure(tmp_path, postgres.new_url(), pool=3)
    servers = [serve(), serve()]
    callers = Callers()
    async with anyio.create_task_group() as tasks:
        for server in servers:
            for mode in ("legacy", STATELESS):
                tasks.start_soon(callers.call, server.url, mode)
        for mode in ("fast", "immediate", "kill"):
            await callers.until_more()
            await anyio.to_thread.run_sync(postgres.restart, mode)
        await callers.until_more()
        callers.is_over = True
    ends = [server.end() for server in servers]
    verified = await anyio.to_thread.run_sync(lambda: run("audit", "verify", "--json"))
    doctor = await anyio.to_thread.run_sync(lambda: run("doctor"))

    assert [ended.code for ended in ends] == [0, 0], ends[0].err + ends[1].err
    assert verified.code == 0
    assert verified.json["checked"] == callers.answered
    assert f"all {callers.answered} audit entries are intact" in doctor.out


async def test_when_one_gateway_is_killed_the_other_goes_on(
    serve: Callable[..., Server], run: Run, postgres: Postgres, tmp_path: Path
) -> None:
    configure(tmp_path, postgres.new_url())
    servers = [serve(), serve()]
    answered = []
    async with Client(servers[0].url, mode=STATELESS) as one, Client(servers[1].url, mode=STATELESS) as other:
        answered.append(await one.call_tool("demo__echo", {"text": "x"}))
        answered.append(await other.call_tool("demo__echo", {"text": "x"}))
        servers[0].process.send_signal(signal.SIGKILL)
        servers[0].process.wait()
        for _ in range(5):
            answered.append(await other.call_tool("demo__echo", {"text": "x"}))
        servers[1].end()
    verified = await anyio.to_thread.run_sync(lambda: run("audit", "verify", "--json"))

    assert not any(answer.is_error for answer in answered)
    assert verified.json["checked"] == 7


async def test_a_call_that_cannot_be_recorded_fails_in_bounded_time(
    serve: Callable[..., Server], postgres: Postgres, tmp_path: Path
) -> None:
    configure(tmp_path, postgres.new_url().replace("postgres:@", "postgres:hush-hush@"))
    server = serve()
    async with Client(server.url, mode=STATELESS) as client:
        await anyio.to_thread.run_sync(postgres.stop)
        try:
            with anyio.fail_after(120):  # it is tried again for 30 s
                refused = await client.call_tool("demo__echo", {"text": "x"})
        finally:
            await anyio.to_thread.run_sync(postgres.start)
        answered = await client.call_tool("demo__echo", {"text": "x"})
    ended = server.end()

    assert refused.is_error
    assert (refused.structured_content or {})["error"]["code"] == "INTERNAL"
    assert not answered.is_error
    assert "hush" not in f"{refused} {ended.err}"
