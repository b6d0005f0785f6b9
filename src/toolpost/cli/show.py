"""Answers on stdout: tables and JSON, coloured on a terminal and plain in a pipe. rich is loaded when it is needed."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from toolpost.cli.terminal import has_colour, printable
from toolpost.contracts.ids import Json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_UNBOUNDED: Final = 10_000
"""Columns of a pipe: whoever reads from it wraps lines as they like."""


def console(*, bounded: bool = True) -> "Console":
    """Make a console for stdout; what is bounded keeps within the width of a terminal."""
    from rich.console import Console

    return Console(
        file=sys.stdout,
        highlight=False,
        markup=False,
        emoji=False,
        width=None if bounded and sys.stdout.isatty() else _UNBOUNDED,
        no_color=not has_colour(sys.stdout),
    )


def table(*columns: str, rows: Iterable[Sequence[str]], widths: Sequence[int] = (), header: bool = True) -> "Table":
    """Lay out rows; the last column takes what room is left."""
    from rich.table import Table

    laid_out = Table(box=None, pad_edge=False, show_header=header, header_style="bold", padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        is_last = index == len(columns) - 1
        width = widths[index] if index < len(widths) else None
        laid_out.add_column(column, overflow="fold", no_wrap=not is_last, min_width=width)
    for row in rows:
        laid_out.add_row(*(printable(cell) for cell in row))
    return laid_out


def print_table(laid_out: "Table", *, bounded: bool = True) -> None:
    """Print a table, without the spaces that pad its last column."""
    screen = console(bounded=bounded)
    with screen.capture() as captured:
        screen.print(laid_out)
    for line in captured.get().splitlines():
        click.echo(line.rstrip(), color=True)


def print_json(value: Json) -> None:
    """Print JSON for people to read; it is valid JSON all the same."""
    text = printable(json.dumps(value, indent=2, ensure_ascii=False))
    if not has_colour(sys.stdout):
        click.echo(text)
        return
    from rich.highlighter import JSONHighlighter
    from rich.text import Text

    # Coloured as it stands: rich's own JSON would read it, and write the characters that were spelled out.
    console().print(JSONHighlighter()(Text(text)), soft_wrap=True)


def print_json_line(value: Any) -> None:
    """Print JSON for machines: one line."""
    click.echo(printable(json.dumps(value, ensure_ascii=False, separators=(",", ":"))))


def print_encoded(raw: bytes) -> None:
    """Print JSON for machines that is encoded already."""
    click.echo(printable(raw.decode()))


def heading(text: str) -> str:
    """Make a line that opens a section."""
    return click.style(text, bold=True) if has_colour(sys.stdout) else text
