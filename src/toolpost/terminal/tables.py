"""Results on stdout: tables and JSON, colored on a terminal and plain in a pipe. rich is imported when it is needed."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from toolpost.base.ids import Json
from toolpost.terminal.text import has_color, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_GAP: Final = 2
_LAST_ROOM: Final = 36
"""Width that a last column needs to be readable: mostly it is a sentence."""

_UNBOUNDED: Final = 10_000
"""Width of a pipe, where lines are never wrapped."""


def console() -> "Console":
    """Make a console for stdout, as wide as the terminal; a pipe is not wrapped."""
    from rich.console import Console

    return Console(
        file=sys.stdout,
        highlight=False,
        markup=False,
        emoji=False,
        width=None if sys.stdout.isatty() else _UNBOUNDED,
        no_color=not has_color(sys.stdout),
    )


def table(
    *columns: str,
    rows: Iterable[Sequence[str]],
    widths: Sequence[int] = (),
    header: bool = True,
    optional: Sequence[str] = (),
    last_room: int = _LAST_ROOM,
) -> "Table":
    """Lay out rows; the last column takes the remaining width.

    On a terminal where that is less than `last_room`, columns in `optional` are left out, in that order.
    """
    from rich.table import Table

    cells = [[printable(cell) for cell in row] for row in rows]
    minima = {column: widths[index] for index, column in enumerate(columns) if index < len(widths)}
    kept = _choose_columns(columns, cells, minima, optional, last_room)
    laid_out = Table(box=None, pad_edge=False, show_header=header, header_style="bold", padding=(0, 2, 0, 0))
    for index in kept:
        is_last = index == kept[-1]
        laid_out.add_column(columns[index], overflow="fold", no_wrap=not is_last, min_width=minima.get(columns[index]))
    for row in cells:
        laid_out.add_row(*(row[index] for index in kept))
    return laid_out


def _choose_columns(
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    minima: Mapping[str, int],
    optional: Sequence[str],
    last_room: int,
) -> list[int]:
    """Return the indexes of the columns that leave enough width for the last one."""
    from rich.cells import cell_len

    kept = list(range(len(columns)))
    if not optional:
        return kept

    def width_of(index: int) -> int:
        # `audit --follow` prints rows later under the same header: the choice must not depend on the cells.
        if (fixed := minima.get(columns[index])) is not None:
            return max(fixed, cell_len(columns[index]))
        return max([cell_len(columns[index]), *(cell_len(row[index]) for row in cells)])

    room = console().width
    for name in optional:
        *fixed, last = kept
        if sum(width_of(index) + _GAP for index in fixed) + min(width_of(last), last_room) <= room:
            break
        kept.remove(columns.index(name))
    return kept


def cut(text: str, width: int) -> str:
    """Shorten a line to `width` terminal cells."""
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= width else f"{set_cell_size(text, max(0, width - 1)).rstrip()}…"


def format_size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def print_table(laid_out: "Table", *, title: str | None = None) -> None:
    """Print a table without the padding of its last column, below a line with its title."""
    if title is not None:
        click.echo(heading(title))
    screen = console()
    with screen.capture() as captured:
        screen.print(laid_out)
    for line in captured.get().splitlines():
        click.echo(line.rstrip(), color=True)


def print_json(value: Json) -> None:
    """Print indented JSON, highlighted on a terminal."""
    text = printable(json.dumps(value, indent=2, ensure_ascii=False))
    if not has_color(sys.stdout):
        click.echo(text)
        return
    from rich.highlighter import JSONHighlighter
    from rich.text import Text

    # Highlighted as text: rich's own JSON would decode it, and print the characters that were escaped.
    console().print(JSONHighlighter()(Text(text)), soft_wrap=True)


def print_json_line(value: Any) -> None:
    click.echo(printable(json.dumps(value, ensure_ascii=False, separators=(",", ":"))))


def print_encoded(raw: bytes) -> None:
    """Print a line of JSON that is encoded already."""
    click.echo(printable(raw.decode()))


def heading(text: str) -> str:
    return click.style(text, bold=True) if has_color(sys.stdout) else text
