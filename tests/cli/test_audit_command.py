"""`toolpost audit`: the record, filtered, followed, verified."""

import json
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import PLUGIN, Run
from toolpost.settings.locations import state_folder


@pytest.fixture
def recorded(invoke: Run) -> Run:
    """Put three calls on record: one that worked, one that failed, one that was refused."""
    invoke("call", "demo__echo", "text=x", *PLUGIN)
    invoke("call", "demo__fail", *PLUGIN)
    invoke("call", "demo__echo", "wrong=x", *PLUGIN)
    return invoke


def entries(run: Run, *options: str) -> list[dict[str, Any]]:
    ended = run("audit", "--json", *options)
    assert ended.code == 0, ended.err
    return [json.loads(line) for line in ended.out.splitlines()]


def test_calls_are_listed_and_filtered(recorded: Run) -> None:
    listed = entries(recorded)

    assert [entry["outcome"] for entry in listed] == ["ok", "error", "refused"]
    assert [entry["caller"] for entry in listed] == ["cli"] * 3
    assert entries(recorded, "--last", "1") == listed[2:]
    assert entries(recorded, "--tool", "demo__f*") == listed[1:2]
    assert entries(recorded, "--code", "invalid_params") == listed[2:]
    assert entries(recorded, "--outcome", "ok", "--since", "1h") == listed[:1]
    assert entries(recorded, "--until", "1h") == []
    assert entries(recorded, "--since", "2020-01-01T00:00+02:00", "--call", listed[1]["callId"]) == listed[1:2]
    assert entries(recorded, "--trace", listed[0]["traceId"], "--caller", "cli") == listed[:1]


def test_table_is_for_people_and_verifying_counts(recorded: Run) -> None:
    table = recorded("audit").out.splitlines()
    verdict = recorded("audit", "verify")

    assert table[0].split()[:2] == ["SEQ", "TIME"]
    assert table[2].split()[2:4] == ["error", "HANDLER_ERROR"]
    assert verdict.code == 0
    assert verdict.out.startswith("all 3 entries are intact\nhead: sha256:")


def test_record_that_was_tampered_with_is_named(recorded: Run, tmp_path: Path) -> None:
    with closing(sqlite3.connect(state_folder(tmp_path) / "toolpost.db")) as connection, connection:
        connection.execute("DROP TRIGGER audit_is_never_changed")
        connection.execute("UPDATE audit SET outcome = 'ok' WHERE seq = 2")
    told = recorded("audit", "verify")
    machine = recorded("audit", "verify", "--json")

    assert told.code == machine.code == 1
    assert told.err.startswith("error: entry 2 was changed: ")
    assert machine.json["isIntact"] is False
    assert machine.json["brokenSeq"] == 2


def test_looking_for_a_store_makes_none(run: Run, tmp_path: Path) -> None:
    ended = run("audit")

    assert ended.code == 2
    assert "there is no store at" in ended.err
    assert "hint: `toolpost serve` and `toolpost call` create it" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_time_that_is_none_is_refused(invoke: Run) -> None:
    ended = invoke("audit", "--since", "yesterday")

    assert ended.code == 2
    assert "`yesterday` is not a time" in ended.err


def test_following_shows_calls_as_they_end(recorded: Run, start: Callable[..., subprocess.Popen[str]]) -> None:
    process = start("audit", "--follow", "--json", "--last", "1", "--tool", "demo__echo")
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    recorded("call", "demo__fail", *PLUGIN)
    recorded("call", "demo__echo", "text=news", *PLUGIN)
    second = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)

    assert (first["seq"], second["seq"]) == (3, 5)
    assert process.returncode == 0
    assert err == ""


def test_the_audit_is_exported_once_and_goes_on(invoke: Run, tmp_path: Path) -> None:
    invoke("call", "time__current_time", "--with", "time")
    assert "1 entries added" in invoke("audit", "export", "out.jsonl").out
    invoke("call", "time__current_time", "--with", "time")
    assert invoke("audit", "export", "out.jsonl", "--json").json == {"path": "out.jsonl", "added": 1, "last": 2}
    assert invoke("audit", "export", "out.jsonl", "--json").json["added"] == 0
    shown = invoke("audit", "--json").out.splitlines()
    exported = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in exported] == [json.loads(line) for line in shown]

    assert invoke("audit", "export", "out.jsonl", "--follow").code == 2
    assert invoke("audit", "--archive", "here").code == 2
    (tmp_path / "notes.txt").write_text("dear diary\n")
    refused = invoke("audit", "export", "notes.txt")
    assert (refused.code, "something else" in refused.err) == (3, True)
