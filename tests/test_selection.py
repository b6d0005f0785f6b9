"""The tests of a module are found by its path and by what tests import."""

from pathlib import Path

import pytest

from tests.selection import SOURCES, TESTS, find_tests


def names_of(path: str) -> list[str]:
    return [str(test.relative_to(TESTS)) for test in find_tests(SOURCES / "toolpost" / path)]


def test_a_module_has_its_mirror_and_what_imports_it() -> None:
    found = names_of("discovery/preparation.py")

    assert "discovery/test_preparation.py" in found
    assert "store/test_sync.py" not in found


def test_a_name_may_come_from_a_package_above() -> None:
    assert set(names_of("authoring/tool.py")) > {"providers/test_plugins.py"}


def test_a_package_has_the_tests_of_its_folder() -> None:
    assert names_of("parts/results") == names_of("parts/results/__init__.py")
    assert "parts/results/test_kept.py" in names_of("parts/results")


@pytest.mark.parametrize("path", ["README.md", "src/toolpost/no_such_module.py"])
def test_what_is_no_module_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="is no module"):
        find_tests(SOURCES.parent / Path(path))
