"""The code blocks of a page, in order.

A block of python, toml, sql, js or html names its file in its first line, `# greetings.py`; a later block of the same name
replaces it.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GUIDES = [
    ROOT / "README.md",
    *(page for folder in ("start", "guides", "parts") for page in sorted((ROOT / "docs" / folder).glob("*.md"))),
]

TOP_LINES = 16
"""Where a page says what it needs."""

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"(?:#|--|//|<!--) ([\w./-]+\.(?:py|toml|sql|js|html))(?: -->)?\n")


@dataclass(frozen=True)
class Block:
    """A fenced block and the line that it starts in."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file(self) -> str | None:
        named = _FILE.match(self.text)
        return named[1] if named else None


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    return [Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2]) for found in _BLOCK.finditer(text)]


def extras_named(page: Path) -> set[str]:
    """Return the extras that a page asks for at its top."""
    top = "\n".join(page.read_text().splitlines()[:TOP_LINES])
    return set(re.findall(r"\*\*Needs\*\* the extra `(\w+)`", top))
