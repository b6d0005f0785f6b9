"""The log in the console: the error of a call, its lines, and the log as a whole, as far as a caller may see it."""

import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.cli.test_logs import handlers  # noqa: F401 (a fixture)
from tests.parts.console.conftest import API, OpenSite, Site
from tests.parts.console.test_attention import append
from tests.parts.console.test_calls import call, desk
from tests.parts.console.test_servers import SECRET, server
from tests.parts.console.test_sessions import ANN, BOB, callers  # noqa: F401 (a fixture)
from tests.waiting import until
from toolpost import Plugin
from toolpost.audit import AuditEntry
from toolpost.base import log_files
from toolpost.base.events import OUTPUT_EVENT, SERVER_OUTPUT, event
from toolpost.base.ids import CallerId, CallId, ToolName, TraceId
from toolpost.base.log_files import LogFiles
from toolpost.base.redaction import forget_secrets, remember_secrets
from toolpost.cli.logs.files import write_log_files
from toolpost.parts.console.gateways import register_gateway

pytestmark = [pytest.mark.anyio, pytest.mark.wire, pytest.mark.usefixtures("handlers")]

BOBS = {"Authorization": f"Bearer {BOB}"}
LEAK = "hidden-4711-value"

bad = Plugin("bad", version="1.0.0")


@bad.tool()
def explode() -> int:
    """Fail with a secret."""
    raise ValueError(f"the key {LEAK} was refused")


def keep_log(site: Site) -> Path:
    """Write the log as `toolpost serve` does."""
    folder = site.app.config.log_path
    assert folder is not None
    write_log_files(folder, keep_mb=20)
    return folder


@pytest.fixture
def leak() -> Iterator[None]:
    remember_secrets([LEAK])
    yield
    forget_secrets([LEAK])


async def newest(site: Site, **headers: str) -> dict[str, Any]:
    listed = (await site.http.get(f"{API}/calls", headers=headers)).json()["calls"]
    answer = await site.http.get(f"{API}/call", params={"id": listed[0]["call_id"]}, headers=headers)
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


@pytest.mark.usefixtures("leak")
async def test_a_failed_call_is_explained_by_its_own_error(site: OpenSite, store_url: str) -> None:
    async with site("", desk, bad, store=store_url, log_in=True) as opened:
        keep_log(opened)
        await call(opened, "desk__add", {"a": "hunter2", "b": 1})
        refused = await newest(opened)
        await call(opened, "bad__explode", {})
        failed = await newest(opened)
        await call(opened, "desk__add", {"a": 1, "b": 1})
        fine = await newest(opened)

    assert refused["error"]["code"] == "INVALID_PARAMS"
    assert refused["error"]["message"].startswith("The arguments break the schema of `desk__add`")
    (issue,) = refused["error"]["issues"]
    assert (issue["path"], issue["keyword"], issue["expected"]) == ("/a", "type", "integer")
    assert "hunter2" not in json.dumps([refused["error"], refused["lines"]]), "values of callers are in no log"
    assert failed["error"]["message"] == "the key (redacted) was refused"
    assert [line["event"] for line in failed["lines"]] == ["tool failed"]
    assert "ValueError" in failed["lines"][0]["exception"]
    assert LEAK not in json.dumps(failed)
    assert (fine["error"], fine["lines"], fine["logIsKept"]) == (None, [], True)
    assert (failed["gateway"]["isThis"], failed["gateway"]["pid"] > 0) == (True, True)


async def test_the_error_of_a_server_is_shown(site: OpenSite, tmp_path: Path) -> None:
    async with site(server("small", "pictures"), store=f"sqlite:{tmp_path / 's.db'}", log_in=True) as opened:
        keep_log(opened)
        await call(opened, "small__spoil", {})
        failed = await newest(opened)

    assert failed["outcome"] == "error"
    assert (failed["error"]["message"], failed["error"]["code"]) == ("before", "HANDLER_ERROR")


async def test_the_overview_names_the_cause_of_failures(site: OpenSite, tmp_path: Path) -> None:
    async with site(server("small", "pictures"), store=f"sqlite:{tmp_path / 's.db'}") as opened:
        keep_log(opened)
        for _ in range(10):
            await call(opened, "small__spoil", {})
        (item,) = (await opened.get("/overview"))["actionItems"]

    assert item["title"] == "10 of 10 calls of small__spoil failed within 5 minutes"
    assert item["text"] == "All with HANDLER_ERROR: before"


async def test_a_caller_sees_the_errors_of_its_own_calls_and_nothing_of_the_gateway(
    site: OpenSite,
    callers: str,  # noqa: F811
    store_url: str,
) -> None:
    async with site(callers, desk, token=ANN, store=store_url) as opened:
        keep_log(opened)
        event(logging.getLogger("toolpost.test"), logging.ERROR, "of nobody", reason="full disk")
        event(logging.getLogger("toolpost.test"), logging.ERROR, "of bob, and no call", caller="bob", reason="x")
        await call(opened, "desk__fail", {})
        hidden = (await opened.get("/calls"))["calls"][0]["call_id"]
        await call(opened, "desk__fail", {}, **BOBS)
        own = await newest(opened, **BOBS)
        others = await opened.http.get(f"{API}/call", params={"id": hidden}, headers=BOBS)
        # Without those of the test's own client.
        everything = await opened.get("/logs", level="warning")
        listed = (await opened.http.get(f"{API}/logs", headers=BOBS)).json()
        asked = (await opened.http.get(f"{API}/logs", params={"caller": "ann"}, headers=BOBS)).json()
        foreign = (await opened.http.get(f"{API}/logs", params={"call": hidden}, headers=BOBS)).json()

    assert others.status_code == 404
    assert own["error"]["message"] == "no"
    assert "exception" not in own["lines"][0]
    assert [each["event"] for each in everything["events"]] == [
        *("tool failed", "tool failed"),
        *("of bob, and no call", "of nobody"),
    ]
    assert "exception" in everything["events"][0]
    assert [(each["event"], each["caller"]) for each in listed["events"]] == [("tool failed", "bob")]
    assert "exception" not in listed["events"][0]
    assert (asked["events"], foreign["events"]) == ([], [])


async def test_an_administrator_who_runs_a_tool_as_another_caller_is_named_in_the_log(
    site: OpenSite,
    callers: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    async with site(callers, desk, token=ANN, store=f"sqlite:{tmp_path / 's.db'}", log_in=True) as opened:
        keep_log(opened)
        body = {"tool": "desk__fail", "arguments": {}, "caller": "bob"}
        async with opened.http.stream("POST", f"{API}/call", json=body) as answer:
            await answer.aread()
        failed = await newest(opened)
        of_bob = (await opened.http.get(f"{API}/logs", headers=BOBS)).json()

    assert failed["caller"] == failed["lines"][-1]["caller"] == "ann as bob"
    assert failed["error"]["message"] == "no"
    assert of_bob["events"] == []


async def test_an_error_whose_lines_are_gone_is_expired(site: OpenSite, tmp_path: Path) -> None:
    async with site("", desk, store=f"sqlite:{tmp_path / 's.db'}", log_in=True) as opened:
        folder = keep_log(opened)
        await call(opened, "desk__fail", {})
        for path in folder.iterdir():
            path.unlink()
        gone = await newest(opened)
    async with site("log.keep_mb = 0\n", desk, store=f"sqlite:{tmp_path / 's.db'}", log_in=True) as opened:
        unkept = await newest(opened)
        listed = await opened.get("/logs")

    assert (gone["outcome"], gone["error"], gone["lines"], gone["logIsKept"]) == ("error", None, [], True)
    assert (unkept["error"], unkept["logIsKept"], listed["isKept"]) == (None, False, False)


async def test_the_gateway_that_wrote_a_call_is_named(
    site: OpenSite, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = "sha256:" + "a" * 64

    async def record(site: Site, call_id: str) -> None:
        entry = AuditEntry(
            at_utc=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            call_id=CallId(call_id),
            trace_id=TraceId("t" * 32),
            caller=CallerId("ann"),
            tool=ToolName("desk__add"),
            source="desk",
            contract=digest,
            schema_version=1,
            tooling_version="",
            arguments=digest,
            outcome="error",
            code="INTERNAL",
            duration_ms=1.0,
            result=None,
        )
        await append(site.app.store, entry)

    async with site("", desk, store=store_url) as opened:
        with monkeypatch.context() as patch:
            patch.setattr(socket, "gethostname", lambda: "blue-2")
            await register_gateway(opened.app.store, "feedfacecafe-")
        await record(opened, "feedfacecafe-1f")
        other = await newest(opened)
        await record(opened, "0000facecafe-1")
        unknown = await newest(opened)
        await call(opened, "desk__add", {"a": 1, "b": 1})
        own = await newest(opened)

    assert (other["gateway"]["host"], other["gateway"]["isThis"], other["gateway"]["isHere"]) == (
        "blue-2",
        False,
        False,
    )
    assert unknown["gateway"] is None
    assert (own["gateway"]["isThis"], own["gateway"]["isHere"]) == (True, True)


async def test_the_log_is_paged_filtered_and_needs_the_secret(site: OpenSite, tmp_path: Path) -> None:
    async with site(server("small"), desk, store=f"sqlite:{tmp_path / 's.db'}") as opened:
        keep_log(opened)
        for number in range(30):
            level = logging.WARNING if number % 10 == 0 else logging.INFO
            event(SERVER_OUTPUT, level, OUTPUT_EVENT, server="small", line=f"line {number}")
        event(logging.getLogger("toolpost.test"), logging.ERROR, "other", server="large")
        without = await opened.get("/logs")
        await call(opened, "desk__fail", {})
        shown = await newest(opened)
        await opened.log_in()
        pages, before = [], ""
        while True:
            page = await opened.get("/logs", server="small", limit="12", before=before)
            pages.append([each["line"] for each in page["events"]])
            if not (before := page["next"] or ""):
                break
        warnings = (await opened.get("/logs", level="warning"))["events"]
        nothing = await opened.get("/logs", since="2999-01-01")
        refused = [
            (await opened.http.get(f"{API}/logs", params=query)).status_code
            for query in (
                {"level": "loud"},
                {"since": "soon"},
                {"before": "1:2,x"},
                {"limit": "-1"},
                {"server": "a\0b"},
            )
        ]

    assert (without["mayRead"], without["events"]) == (False, [])
    assert (shown["error"]["message"], shown["lines"]) == ("no", None)
    assert [len(page) for page in pages] == [12, 12, 6]
    assert [line for page in pages for line in page] == [f"line {number}" for number in range(29, -1, -1)]
    assert [each["event"] for each in warnings] == ["tool failed", "other", *[OUTPUT_EVENT] * 3]
    assert nothing["events"] == []
    assert refused == [400] * 5


async def test_what_is_logged_is_sent_as_it_comes_without_secrets(
    site: OpenSite,
    callers: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    heard: dict[str, list[Any]] = {ANN: [], BOB: []}
    async with site(f"{server('small')}\n{callers}", desk, token=ANN, store=f"sqlite:{tmp_path / 's.db'}") as opened:
        keep_log(opened)

        async def hear(token: str, ready: anyio.Event, **query: str) -> None:
            headers = {"Authorization": f"Bearer {token}"}
            async with opened.http.stream(
                "GET", f"{API}/events", params={"logs": "1", **query}, headers=headers
            ) as got:
                async for line in got.aiter_lines():
                    ready.set()
                    found = json.loads(line[6:]) if line.startswith("data: ") else {}
                    heard[token] += found.get("events", ())

        async with anyio.create_task_group() as tasks:
            for token, query in ((ANN, {"log.server": "small"}), (BOB, {})):
                ready = anyio.Event()
                tasks.start_soon(partial(hear, token, ready, **query))
                await ready.wait()
            await opened.http.post("/api/servers/small/restart")
            await call(opened, "desk__fail", {})
            await call(opened, "desk__fail", {}, **BOBS)
            await until(lambda: heard[BOB] and any(each["event"] == OUTPUT_EVENT for each in heard[ANN]))
            tasks.cancel_scope.cancel()
        wrong = await opened.http.get(f"{API}/events", params={"logs": "1", "log.level": "loud"})

    assert [(each["event"], each["caller"]) for each in heard[BOB]] == [("tool failed", "bob")]
    assert {each["server"] for each in heard[ANN]} == {"small"}
    assert any("small server here" in each.get("line", "") for each in heard[ANN])
    assert SECRET not in json.dumps(heard[ANN])
    assert wrong.status_code == 400


async def test_the_log_is_read_in_a_thread(site: OpenSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of megabytes, with a hostile line of ten in it: other calls must not wait for it."""
    threads: set[bool] = set()
    read_back = LogFiles.read_back

    def note(files: LogFiles, *arguments: Any, **options: Any) -> Any:
        threads.add(threading.current_thread() is threading.main_thread())
        return read_back(files, *arguments, **options)

    monkeypatch.setattr(LogFiles, "read_back", note)
    async with site("", desk, store=f"sqlite:{tmp_path / 's.db'}", log_in=True) as opened:
        folder = keep_log(opened)
        (folder / "gateway-1.jsonl").write_text(
            '{"ts": "2026-01-01T00:00:00.000+00:00", "x": "' + "x" * 10_000_000 + '"}\n'
        )
        page = await opened.get("/logs")
        await call(opened, "desk__fail", {})
        await newest(opened)
        began = time.monotonic()
        while page["next"]:
            page = await opened.get("/logs", before=page["next"])
            assert time.monotonic() < began + 60

    assert threads == {False}
    assert log_files.LINE_LIMIT_BYTES < 1_000_000
