"""Kept attacks are found in the tests; `test_configuration.py` compares the page that is made of them."""

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tests.docs.hostile_suite import attacks_page, find_attacks

SAMPLE = """
import pytest
pytestmark = [pytest.mark.anyio]

@attack("caller", "sends | a pipe", "it " "is escaped")
@pytest.mark.parametrize("x", [1])
async def test_one(x): ...

@pytest.mark.soak
@attack("stranger", "floods", "it is bounded")
def test_two(): ...

def test_three(): ...
"""


def test_attacks_are_read_from_the_source(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE)

    found = [(attack.attacker, attack.holds, attack.is_soak) for attack in find_attacks(tmp_path)]
    assert found == [("caller", "it is escaped", False), ("stranger", "it is bounded", True)]


def test_a_whole_file_can_be_soak(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE.replace("pytest.mark.anyio", "pytest.mark.soak"))

    assert [attack.is_soak for attack in find_attacks(tmp_path)] == [True, True]


def test_a_line_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE.replace('"stranger"', '"somebody"'))

    with pytest.raises(ValueError, match=r"test_sample\.py, line 1\d: @attack takes"):
        list(find_attacks(tmp_path))


def test_attackers_come_in_the_order_of_the_threat_model() -> None:
    titles = [line for line in attacks_page("x").splitlines() if line.startswith("## ")]

    assert titles[:2] == ["## Stranger", "## Caller"]


def test_every_guarantee_of_the_threat_model_names_tests_that_exist() -> None:
    rows = [
        line for line in (ROOT / "docs/explanation/threat-model.md").read_text().splitlines() if line.startswith("| ")
    ]
    guarantees = [row for row in rows if row.count(" | ") == 2 and not row.startswith("| guaranteed |")]
    named = {name for row in guarantees for name in re.findall(r"`(tests/[\w/]+\.py)`", row)}

    assert len(guarantees) > 20
    assert all("`tests/" in row for row in guarantees)
    assert {name for name in named if not (ROOT / name).exists()} == set()
