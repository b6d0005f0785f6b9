"""The run, told: tables for a person, a page for the documentation."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

METHOD = """\
One command, `scripts/bench search`, asks everybody the same queries of four public sets (MCP-Zero's tools with queries written
by hand, BFCL, StableToolBench and MetaTool) in one run. The sets are not part of the project. Queries are halved by a digest of
their words: weights were compared on one half, and the other half is reported. recall@5 is the share of the tools that a
query needs which stand among the first five. The peers get the same words: FastMCP's `BM25SearchTransform` names, descriptions
and arguments as its search tool does (it knows no server description), bm25s (defaults) the text of every field. Times are CPU
times, of the quietest of several rounds (FastMCP: of one round). For more tools than the sets have, further ones are
put together of the parts of two.

How far to trust it. The boosts of the fields come from an earlier search over thirteen public sets, these four probably among
them, and the reporting half was looked at while the search was built; no weight was chosen by it, but the limit below which a
match is called weak, and what that signal is made of, were picked with its figures in view. The table of meanings was trained
on the queries of MetaTool and ToolLens: alone it reaches recall@5 0.95 on MetaTool, the model that it was made from 0.76.
MetaTool is therefore shown and left out of every mean, and ToolLens is not measured."""


@dataclass
class Page:
    around: dict[str, Any]
    parts: list[tuple[str, str, list[str], list[list[str]]]] = field(default_factory=list)

    def add(self, title: str, text: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self.parts.append((title, text, list(heads), [list(row) for row in rows]))

    def show(self) -> None:
        console = Console(width=None if Console().is_terminal else 150)
        for title, text, heads, rows in self.parts:
            table = Table(title=title, title_justify="left", caption=text or None, caption_justify="left")
            for number, head in enumerate(heads):
                table.add_column(head, justify="left" if number == 0 else "right", overflow="fold")
            for row in rows:
                table.add_row(*row, style="red" if row[-1] == "missed" else None)
            console.print(table)

    def write(self, path: Path) -> None:
        versions = ", ".join(f"{name} {number}" for name, number in self.around["versions"].items())
        pieces = [
            "# Search quality",
            "Written by `scripts/bench search --write docs/reference/search-quality.md`; do not edit.",
            f"Measured on {self.around['date']} on {self.around['machine']} ({self.around['system']}).",
            f"Load {self.around['load']}. Versions: {versions}.",
        ]
        for title, text, heads, rows in self.parts:
            rule = "|---" + "|---:" * (len(heads) - 1) + "|"
            lines = [f"| {' | '.join(row)} |" for row in rows]
            pieces += [f"## {title}", *([text] if text else []), "\n".join([f"| {' | '.join(heads)} |", rule, *lines])]
        pieces += ["## Method", METHOD]
        path.write_text("\n\n".join(pieces) + "\n", encoding="utf-8")
