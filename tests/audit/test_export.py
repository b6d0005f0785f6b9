"""The audit is passed on in order, each record at least once, through failures, kills and several gateways."""

import base64
import hashlib
import hmac
import json
import logging
import sqlite3
import stat
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from tests.audit.conftest import OpenStore, Receiver, add_entries
from tests.loaded import forked, loaded_toolpost
from tests.waiting import until
from tests.ways import TOOLPOST, server_environment
from toolpost.audit import exporter as exporting
from toolpost.audit.destinations import AuditDestination, FileDestination, OtlpLogs, Webhook, sign
from toolpost.audit.exporter import AuditExporter
from toolpost.audit.file import append_records, last_record, row_of_line
from toolpost.audit.spec import ExportSpec
from toolpost.contracts.errors import BadConfiguration, StoreUnavailable
from toolpost.metrics import Counter
from toolpost.net.network import DIRECT
from toolpost.settings import load_config
from toolpost.settings.audit import ExportSettings
from toolpost.store import Store
from toolpost.store.chain import BEGINNING, ChainVerifier
from toolpost.store.scripts import Script, Statement

pytestmark = [pytest.mark.anyio, pytest.mark.wire, pytest.mark.every_store]

SECRET = b"a secret of the webhook"
STORED = ExportSpec(name="siem", kind="webhook", batch=10)


def webhook(receiver: Receiver) -> Webhook:
    return Webhook(receiver.url, secret=SECRET, headers={"x-team": "blue"}, network=DIRECT)


@asynccontextmanager
async def exporting_to(
    store: Store, destination: AuditDestination, export: ExportSpec = STORED
) -> AsyncIterator[AuditExporter]:
    exporter = AuditExporter(store, export, destination, Counter("failures", "Failures.", label="export"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exporter.run)
        yield exporter
        tasks.cancel_scope.cancel()


async def test_a_webhook_gets_every_record_once_signed_and_through_failures(
    open_export_store: OpenStore, receiver: Receiver
) -> None:
    receiver.statuses = [503, 200, 500]
    async with open_export_store() as store, exporting_to(store, webhook(receiver)):
        await add_entries(store, 25)
        await until(lambda: len(receiver.records) >= 25)
        await add_entries(store, 3)
        await until(lambda: len(receiver.records) >= 28)

    assert [record["seq"] for record in receiver.records] == list(range(1, 29))
    assert ChainVerifier().check_rows(row_of_line(json.dumps(record).encode()) for record in receiver.records) is None
    assert receiver.attempts[0] == receiver.attempts[1], "a request that is repeated has the same id"
    for headers, body in receiver.requests:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        expected = base64.b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{expected}"
        assert headers["x-team"] == "blue"


async def test_it_goes_on_where_it_was_and_two_gateways_take_turns(
    open_export_store: OpenStore, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "HOLD_S", 4.0)
    async with open_export_store() as one, open_export_store() as other:
        async with exporting_to(one, webhook(receiver)), exporting_to(other, webhook(receiver)):
            await add_entries(one, 30)
            await add_entries(other, 30)
            await until(partial(_has_record, receiver, 60))
        await add_entries(one, 5)
        async with exporting_to(other, webhook(receiver)):
            await until(partial(_has_record, receiver, 65))
    seqs = [record["seq"] for record in receiver.records]
    assert list(dict.fromkeys(seqs)) == list(range(1, 66)), "in order, and perhaps some of them twice"
    assert len(seqs) <= 65 + 2 * STORED.batch


def _cursors() -> Script[Any]:
    return (yield Statement("SELECT seq FROM export_cursors"))


async def test_one_that_begins_now_leaves_out_what_was_before(open_export_store: OpenStore, receiver: Receiver) -> None:
    async with open_export_store() as store:
        await add_entries(store, 5)
        export = ExportSpec(name="siem", kind="webhook", begin="now")
        async with exporting_to(store, webhook(receiver), export):
            with anyio.fail_after(30):
                while not await store.scripts.read(_cursors):
                    await anyio.sleep(0.02)
            await add_entries(store, 2)
            await until(lambda: len(receiver.records) >= 2)
    assert [record["seq"] for record in receiver.records] == [6, 7]


async def test_a_chain_that_was_rewritten_is_not_passed_on(
    open_export_store: OpenStore, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_export_store() as store:
        async with exporting_to(store, webhook(receiver)) as exporter:
            await add_entries(store, 2)
            await until(lambda: len(receiver.records) >= 2 and exporter.waiting == 0)
        await store.scripts.run(_forge)
        await add_entries(store, 1)
        with caplog.at_level(logging.ERROR):
            async with exporting_to(store, webhook(receiver)):
                await until(lambda: "does not continue" in caplog.text)
    assert len(receiver.records) == 2


def _forge() -> Script[None]:
    # As if the records that were delivered had been others.
    yield Statement("UPDATE export_cursors SET hash = ?1", (BEGINNING,))


async def test_a_file_has_each_record_once_also_after_a_crash(open_export_store: OpenStore, tmp_path: Path) -> None:
    path = tmp_path / "out" / "audit.jsonl"
    async with open_export_store() as store:
        await add_entries(store, 12)
        async with exporting_to(store, FileDestination(path)) as exporter:
            await until(lambda: path.exists() and last_record(path) == 12 and exporter.waiting == 0)
        # Killed while it wrote the next line, and before the cursor was kept.
        with path.open("ab") as file:
            file.write(b'{"seq":13,"atUtc":"20')
        await store.scripts.run(_set_back)
        await add_entries(store, 3)
        async with exporting_to(store, FileDestination(path)):
            await until(lambda: last_record(path) == 15)
    rows = [row_of_line(line) for line in path.read_bytes().splitlines()]
    assert [row[0] for row in rows] == list(range(1, 16))
    assert ChainVerifier().check_rows(rows) is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def _set_back() -> Script[None]:
    rows = yield Statement("SELECT hash FROM audit WHERE seq = 7")
    yield Statement("UPDATE export_cursors SET seq = 7, hash = ?1", (rows[0][0],))


async def test_a_store_that_is_away_ends_nothing(
    open_export_store: OpenStore, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "LONGEST_PAUSE_S", 0.05)
    async with open_export_store() as store:
        await add_entries(store, 2)
        entries, failures = store.audit.entries, [StoreUnavailable("it is away"), ValueError("no time")]

        async def fail_first(*arguments: Any, **options: Any) -> Any:
            if failures:
                raise failures.pop()
            return await entries(*arguments, **options)

        monkeypatch.setattr(store.audit, "entries", fail_first)
        async with exporting_to(store, webhook(receiver)):
            await until(partial(_has_record, receiver, 2))


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary\n")
    with pytest.raises(OSError, match="something else"):
        append_records(path, [])
    assert path.read_text() == "dear diary\n"


async def test_otlp_logs_have_the_fields_and_the_trace(open_export_store: OpenStore, receiver: Receiver) -> None:
    async with open_export_store() as store:
        await add_entries(store, 4)
        async with exporting_to(store, OtlpLogs(receiver.url, headers={}, network=DIRECT)):
            await until(lambda: bool(receiver.requests))
    ((headers, body),) = receiver.requests
    assert headers["content-type"] == "application/json"
    (scope,) = Parse(_with_base64_ids(json.loads(body)), ExportLogsServiceRequest()).resource_logs[0].scope_logs
    assert len(scope.log_records) == 4
    seqs = [
        each.value.int_value
        for record in scope.log_records
        for each in record.attributes
        if each.key == "toolpost.audit.seq"
    ]
    assert seqs == [1, 2, 3, 4]
    assert {record.severity_text for record in scope.log_records} == {"INFO", "WARN"}
    assert all(len(record.trace_id) == 16 for record in scope.log_records)


@pytest.mark.parametrize(
    "answer",
    [b'{"partialSuccess":' + b"[" * 100_000, b'{"partialSuccess":[1]}', b"\x0a\x00"],
    ids=["deep", "a list", "protobuf"],
)
async def test_an_answer_that_makes_no_sense_counts_as_delivered(
    open_export_store: OpenStore, receiver: Receiver, answer: bytes
) -> None:
    receiver.answer = answer
    async with open_export_store() as store:
        await add_entries(store, 4)
        async with exporting_to(store, OtlpLogs(receiver.url, headers={}, network=DIRECT)):
            await until(lambda: len(receiver.requests) == 1)
            await add_entries(store, 1)
            await until(lambda: len(receiver.requests) == 2)
    assert [len(_records(body)) for _, body in receiver.requests] == [4, 1]


def _records(body: bytes) -> list[Any]:
    return [record for scope in json.loads(body)["resourceLogs"][0]["scopeLogs"] for record in scope["logRecords"]]


def _with_base64_ids(body: Any) -> str:
    # OTLP writes ids in hexadecimal, protobuf's own JSON in base64.
    for resource in body["resourceLogs"]:
        for scope in resource["scopeLogs"]:
            for record in scope["logRecords"]:
                record["traceId"] = base64.b64encode(bytes.fromhex(record["traceId"])).decode()
    return json.dumps(body)


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ('kind = "file"', "needs `path`"),
        ('kind = "webhook"\nurl = "https://x.example"', "needs `secret`"),
        ('kind = "otlp"\nurl = "nowhere"', "needs `url`"),
        ('kind = "otlp"\nurl = "https://ada:x@x.example"', "has a user or password"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(toml: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(f"[export.siem]\n{toml}\n")
    with pytest.raises(BadConfiguration, match=words):
        load_config(tmp_path / "toolpost.toml")


def _has_record(receiver: Receiver, seq: int) -> bool:
    return any(record["seq"] == seq for record in receiver.records)


async def test_a_gateway_that_is_killed_loses_no_record(tmp_path: Path, receiver: Receiver) -> None:
    (tmp_path / "toolpost.toml").write_text(
        f'[plugins]\nbundled = ["time"]\n[export.siem]\nkind = "webhook"\nurl = "{receiver.url}"\nsecret = "${{HOOK}}"\n'
    )
    environment = server_environment() | {"HOOK": SECRET.decode()}
    call = loaded_toolpost("call", "time__current_time", "--json")
    for number in (1, 2, 3):
        command = [TOOLPOST, "serve", "--listen", "127.0.0.1:0", "--json"]
        with forked.start(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline()
                # By another process: the gateway that serves finds it in the store.
                subprocess.run(call, cwd=tmp_path, env=environment, check=True, capture_output=True)
                await until(partial(_has_record, receiver, number))
            finally:
                process.kill()
        # As if the time had passed after which another gateway takes over.
        with closing(sqlite3.connect(tmp_path / ".toolpost" / "toolpost.db")) as store, store:
            store.execute("UPDATE export_cursors SET held_until = 0")
    seqs = [record["seq"] for record in receiver.records]
    assert sorted(set(seqs)) == [1, 2, 3]
    for headers, body in receiver.requests:
        assert headers["webhook-signature"].encode() == sign(
            SECRET, headers["webhook-id"], headers["webhook-timestamp"], body
        )
    assert SECRET not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_a_secret_may_be_written_as_libraries_for_webhooks_do(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ExportSettings(kind="webhook", url="https://x.example", secret="${HOOK}")
    # The example of the specification.
    monkeypatch.setenv("HOOK", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    secret = settings.resolve("siem", Path()).secret
    signed = sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", b'{"test": 2432232314}')
    monkeypatch.setenv("HOOK", "whsec_not base64 at all")
    with pytest.raises(BadConfiguration, match="is not base64"):
        settings.resolve("siem", Path())
    monkeypatch.setenv("HOOK", SECRET.decode())

    assert signed == b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert settings.resolve("siem", Path()).secret == SECRET
