"""The tests that CI runs once more are those that failed, and their names are known."""

import json
from pathlib import Path

from tests import unsteady


def test_failed_tests_are_read_from_the_last_run(tmp_path: Path) -> None:
    file = tmp_path / "lastfailed"
    assert unsteady.read_failed(file) == []
    file.write_text(json.dumps({"tests/b.py::test_two": True, "tests/a.py::test_one": True}))
    assert unsteady.read_failed(file) == ["tests/a.py::test_one", "tests/b.py::test_two"]


def test_recorded_tests_exist_and_have_a_hypothesis() -> None:
    for test, hypothesis in unsteady.read_recorded().items():
        file, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (unsteady.HERE.parent / file).read_text(), test
        assert hypothesis.strip()


def test_a_line_tells_the_hypothesis_or_asks_for_one() -> None:
    test = "tests/a.py::test_one"
    assert unsteady.describe(test, {test: "a race"}) == f"UNSTEADY {test}: a race"
    assert "not recorded" in unsteady.describe(test, {})
