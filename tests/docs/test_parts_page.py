"""docs/reference/parts.md has every kind of contribution, and every kind is where it says."""

import re

import toolpost
import toolpost.parts
from tests.docs.blocks import ROOT
from toolpost.host.contributions import KINDS

PAGE = ROOT / "docs/reference/parts.md"


def test_every_kind_has_a_row() -> None:
    table = PAGE.read_text().partition("\n## Contributions\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([A-Z]\w+)", row)}

    assert named == {kind.__name__ for kind in KINDS}
    assert {name for name in named if name not in dir(toolpost.parts)} == {"Plugin"}
    assert "Plugin" in dir(toolpost)
