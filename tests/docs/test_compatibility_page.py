"""The pages about changes are what the code says, and their example runs."""

from tests.docs import generate
from tests.docs.blocks import ROOT, blocks_of
from toolpost.contracts import RULES

PAGE = ROOT / "docs/reference/compatibility.md"
RULES_PAGE = ROOT / "docs/reference/compatibility-rules.md"


def test_every_rule_is_on_its_page() -> None:
    text = RULES_PAGE.read_text()

    assert text == generate.pages()[RULES_PAGE]
    assert all(f"| `{name}` |" in text for name in RULES)


def test_the_example_runs() -> None:
    (example,) = [block for block in blocks_of(PAGE) if block.language == "python"]

    exec(example.text, {})
