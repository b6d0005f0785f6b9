"""How far a call has come: a bar on a terminal, lines elsewhere, both on stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from toolpost.cli.terminal import printable
from toolpost.middleware import ProgressNote

Show = Callable[[ProgressNote], None]


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


def _show_line(note: ProgressNote) -> None:
    click.echo(f"progress: {_amount(note)}{_said(note)}", err=True)


def _amount(note: ProgressNote) -> str:
    return f"{note.progress:g}" if note.total is None else f"{note.progress:g}/{note.total:g}"


def _said(note: ProgressNote) -> str:
    return printable(f"  {note.message}") if note.message else ""


@contextmanager
def _open_bar(tool: str) -> Iterator[Show]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    # It goes when the call is answered: what stays on the screen is the answer.
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(escape(tool), total=None)

        def show(note: ProgressNote) -> None:
            text = escape(f"{tool}{_said(note)}"[:80])
            bar.update(task, completed=note.progress, total=note.total, description=text)

        yield show
