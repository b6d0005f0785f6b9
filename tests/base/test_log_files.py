"""The log on disk is read from its end in bounded pages, whatever servers have written into it."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from toolpost.base import log_files
from toolpost.base.log_files import BLOCK_BYTES, LINE_LIMIT_BYTES, LogFiles, LogPage, Position

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def line(second: float, event: str = "counted", *, level: str = "info", **fields: Any) -> str:
    ts = (START + timedelta(seconds=second)).isoformat(timespec="milliseconds")
    return json.dumps({"ts": ts, "level": level, "logger": "toolpost.test", "event": event, **fields}) + "\n"


def write(folder: Path, name: str, *lines: str) -> Path:
    path = folder / f"gateway-{name}"
    path.write_text("".join(lines))
    return path


def read_all(files: LogFiles, **wanted: str) -> list[LogPage]:
    pages: list[LogPage] = []
    before: Position | None = None
    while before is None or before:
        pages.append(files.read_back(wanted, limit=7, before=before))
        assert len(pages) < 10_000
        before = pages[-1].before
    return pages


def numbers(pages: list[LogPage]) -> list[int]:
    return [event["number"] for page in pages for event in page.events]


def test_all_files_are_read_in_the_order_of_time_page_by_page(tmp_path: Path) -> None:
    lines = [line(number, number=number, filling="x" * (number % 300)) for number in range(3_000)]
    write(tmp_path, "1.jsonl.1", *lines[:1_000])
    write(tmp_path, "1.jsonl", *lines[1_000::2])
    write(tmp_path, "2.jsonl", *lines[1_001::2])
    write(tmp_path, "3.jsonl")
    pages = read_all(LogFiles(tmp_path))

    assert sum(len(each) for each in lines) > 5 * BLOCK_BYTES
    assert numbers(pages) == list(range(2_999, -1, -1))
    assert {len(page.events) for page in pages[:-1]} == {7}


def test_events_are_found_by_server_caller_call_level_and_time(tmp_path: Path) -> None:
    write(
        tmp_path,
        "1.jsonl",
        line(1, number=1, server="up", call="c-1", caller="ann"),
        line(2, number=2, plugin="up", call="c-2", caller="bob", level="warning"),
        line(3, number=3, server="upper", text='"up"', level="error"),
        line(4, number=4, server='a "quoted" \\ nämé', level="debug"),
        "no JSON\n",
        "[1, 2]\n",
        "[" * 5_000 + "\n",
        '{"event": "without a time", "number": 5}\n',
    )
    files = LogFiles(tmp_path)

    def find(**wanted: str) -> list[int]:
        return numbers(read_all(files, **wanted))

    assert find() == [5, 4, 3, 2, 1]
    assert find(server="up") == [2, 1]
    assert find(server='a "quoted" \\ nämé') == [4]
    assert find(caller="bob") == [2]
    assert find(call="c-1") == [1]
    assert find(call="c-1", caller="bob") == []
    assert find(level="warning") == [3, 2]
    assert find(since="2026-03-01T12:00:03Z") == [4, 3]
    assert find(until="2026-03-01T12:00:02.000Z") == [5, 1]


def test_a_time_is_found_without_reading_what_came_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "1.jsonl", *(line(number, number=number, filling="x" * 900) for number in range(20_000)))
    monkeypatch.setattr(log_files, "READ_LIMIT_BYTES", 4 * BLOCK_BYTES)
    monkeypatch.setattr(log_files._Budget, "__init__", lambda budget: setattr(budget, "left", 4 * BLOCK_BYTES))
    since, until = (START + timedelta(seconds=each) for each in (5_000, 5_003))
    page = LogFiles(tmp_path).read_back({"since": since.isoformat(), "until": until.isoformat()}, limit=10)

    assert [event["number"] for event in page.events] == [5_002, 5_001, 5_000]
    assert (page.before, page.is_cut) == ({}, False)


def test_what_is_read_for_a_page_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "1.jsonl", *(line(number, number=number, filling="x" * 900) for number in range(2_000)))
    monkeypatch.setattr(log_files._Budget, "__init__", lambda budget: setattr(budget, "left", BLOCK_BYTES))
    files = LogFiles(tmp_path)
    first = files.read_back({"call": "c-1"}, limit=10)
    pages = read_all(files)

    assert (first.events, first.is_cut, bool(first.before)) == ([], True, True)
    assert numbers(pages) == list(range(1_999, -1, -1))


@pytest.mark.parametrize("size", [LINE_LIMIT_BYTES, 10_000_000])
def test_a_hostile_line_hides_no_other_and_is_not_parsed(tmp_path: Path, size: int) -> None:
    write(
        tmp_path,
        "1.jsonl",
        line(1, number=1),
        line(2, "output", server="up", line='{"event": "forged"}' + "x" * size),
        line(3, number=3),
    )
    files = LogFiles(tmp_path)
    events = [event for page in read_all(files) for event in page.events]
    followed = files.read_on({}, {})
    of_server = numbers(read_all(files, server="up"))

    newest, long, oldest = events
    assert (newest["number"], oldest["number"]) == (3, 1)
    assert (long["event"], long["level"]) == ("line too long to be shown", "info")
    assert long["bytes"] > size
    assert followed.events[::-1] == events or followed.is_cut
    assert of_server == []


def test_a_line_that_is_not_finished_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, "1.jsonl", line(1, number=1), line(2, number=2)[:-1])
    files = LogFiles(tmp_path)
    before = numbers(read_all(files))
    path.write_text(path.read_text() + "\n")

    assert before == [1]
    assert numbers(read_all(files)) == [2, 1]


def test_of_what_was_added_much_only_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "READ_LIMIT_BYTES", 1_000)
    path = write(tmp_path, "1.jsonl", line(0, number=0))
    files = LogFiles(tmp_path)
    ends = files.find_ends()
    with path.open("a") as file:
        file.writelines(line(number, number=number) for number in range(1, 100))
    page = files.read_on({}, ends)

    assert page.is_cut
    assert 0 < len(page.events) < 20
    assert page.events[-1]["number"] == 99
    assert files.read_on({}, page.before) == LogPage(events=[], before=page.before)
