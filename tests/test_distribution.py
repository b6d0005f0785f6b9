"""Durations are recorded by file, and files that are gone leave the record."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests import distribution
from tests.distribution import Recorder, is_split, put_in_order, read_durations

HERE = "tests/test_distribution.py"


def report(file: str, seconds: float) -> Any:
    return SimpleNamespace(nodeid=f"{file}::test_it", duration=seconds)


def test_a_run_is_recorded_by_file(tmp_path: Path) -> None:
    file = tmp_path / "durations.json"
    file.write_text(json.dumps({"tests/test_gone.py": 50, "tests/test_tiers.py": 40, HERE: 90}))
    recorder = Recorder(file)
    for seconds in (0.4, 20.2):
        recorder.pytest_runtest_logreport(report(HERE, seconds))
    recorder.pytest_runtest_logreport(report("tests/test_steady.py", 0.2))
    recorder.pytest_sessionfinish()

    assert json.loads(file.read_text()) == {HERE: 21, "tests/test_tiers.py": 40}


def test_what_is_recorded_exists() -> None:
    assert [file for file in read_durations() if not (distribution.ROOT / file).exists()] == []


def test_the_longest_come_first_and_long_files_by_turns() -> None:
    split = [file for file in read_durations() if is_split(file)][:2]
    whole = next(file for file, seconds in read_durations().items() if seconds < distribution.SPLIT_S)
    items: Any = [SimpleNamespace(nodeid=f"{file}::{n}") for file in (HERE, whole, *split) for n in range(2)]
    put_in_order(items)

    files = [distribution.file_of(item.nodeid) for item in items]
    assert set(files[:2]) == set(files[2:4]) == set(split)
    assert files[4:] == [whole, whole, HERE, HERE]
