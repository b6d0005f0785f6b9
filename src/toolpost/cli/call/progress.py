"""How far a call has come: a bar on a terminal, lines elsewhere, both on stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import click

from toolpost.cli.show import cut
from toolpost.cli.terminal import printable
from toolpost.middleware import ProgressNotification

_BAR_WIDTH: Final = 20
_OTHERS_WIDTH: Final = 18
"""The spinner, the percentage, the time and the gaps between."""
_LEAST_ROOM: Final = 10

Show = Callable[[ProgressNotification], None]


@contextmanager
def open_progress(tool: str, *, quiet: bool) -> Iterator[Show | None]:
    """Yield what shows a note, or None when nobody wants to see any."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _open_bar(tool) as show:
            yield show
    else:
        yield _show_line


def _show_line(note: ProgressNotification) -> None:
    click.echo(f"progress: {_amount(note)}{_said(note)}", err=True)


def _amount(note: ProgressNotification) -> str:
    return f"{note.progress:g}" if note.total is None else f"{note.progress:g}/{note.total:g}"


def _said(note: ProgressNotification) -> str:
    return printable(f"  {' '.join(note.message.split())}") if note.message else ""


@contextmanager
def _open_bar(tool: str) -> Iterator[Show]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=_BAR_WIDTH),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    room = max(_LEAST_ROOM, console.width - _BAR_WIDTH - _OTHERS_WIDTH)
    # It goes when the call is answered: what stays on the screen is the answer.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(escape(cut(tool, room)), total=None)

        def show(note: ProgressNotification) -> None:
            # A long name leaves half of the room to what is said: without it, there would be nothing new to read.
            text = cut(f"{cut(tool, room // 2)}{_said(note)}" if note.message else tool, room)
            bar.update(task, completed=note.progress, total=note.total, description=escape(text))

        yield show
