"""Which worker gets which test, and when: the longest first, for what takes long and is begun last leaves the other workers idle.

`durations.json` has the seconds of each file that takes more than a few; `scripts/test --record` writes it. A file goes to one
worker, so that what its tests share is made once. The tests of a long file that share nothing go to whichever worker is free, one
of each file before the next of any, so that the heaviest do not meet.
"""

import functools
import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

ROOT: Final = Path(__file__).parents[1]
DURATIONS: Final = Path(__file__).with_name("durations.json")

SPLIT_S: Final = 40
"""A file that takes as long is not given to one worker, if its tests share no fixture."""

LEAST_S: Final = 5
"""Files that take less are not recorded: by their number of tests they come at the right time."""


class LongestFirst(LoadFileScheduling):  # type: ignore[misc]
    """Hands out files in the order of the collection, and some of them test by test."""

    def _split_scope(self, nodeid: str) -> str:
        file = file_of(nodeid)
        return nodeid if is_split(file) else file


class Recorder:
    """Writes how long each file took at the end of a run; files that did not run keep their figures."""

    def __init__(self, durations: Path = DURATIONS) -> None:
        self._durations = durations
        self._taken: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._taken[file_of(report.nodeid)] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        known = read_durations(self._durations) | {file: round(seconds) for file, seconds in self._taken.items()}
        kept = {file: seconds for file, seconds in known.items() if seconds >= LEAST_S and (ROOT / file).exists()}
        self._durations.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")


def make_scheduler(config: pytest.Config, log: Any) -> LongestFirst | None:
    """Take the place of `--dist loadfile` alone."""
    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return LongestFirst(config, log)


def put_in_order(items: list[pytest.Item]) -> None:
    """Put the longest first, then the files with the most tests."""
    durations = read_durations()
    files = [file_of(item.nodeid) for item in items]
    sizes, met = Counter(files), Counter[str]()
    keys: dict[int, tuple[int, int, int, str]] = {}
    for item, file in zip(items, files, strict=True):
        seconds = durations.get(file, 0)
        if is_split(file):
            met[file] += 1
            keys[id(item)] = (0, met[file], -seconds, file)
        elif seconds:
            keys[id(item)] = (0, 0 if seconds >= SPLIT_S else len(items), -seconds, file)
        else:
            keys[id(item)] = (1, 0, -sizes[file], "")
    items.sort(key=lambda item: keys[id(item)])


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


@functools.cache
def read_durations(file: Path = DURATIONS) -> dict[str, int]:
    """Return the seconds of each recorded file."""
    return dict(json.loads(file.read_text())) if file.exists() else {}


@functools.cache
def is_split(file: str) -> bool:
    """Whether each test of a file goes to whichever worker is free."""
    if read_durations().get(file, 0) < SPLIT_S:
        return False
    path = ROOT / file
    texts = [each.read_text() for each in (path, path.with_name("conftest.py")) if each.exists()]
    return not any('scope="module"' in text for text in texts)
