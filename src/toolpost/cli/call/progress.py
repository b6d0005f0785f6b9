"""The progress of a call on stderr: a bar on a terminal, lines elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

import click

from toolpost.middleware.progress import ProgressNotification
from toolpost.terminal import cut, printable

_BAR_WIDTH: Final = 20
_OTHERS_WIDTH: Final = 18
"""Width of the spinner, the percentage, the time and the gaps."""
_LEAST_ROOM: Final = 10

ShowProgress = Callable[[ProgressNotification], None]


@dataclass(frozen=True, kw_only=True)
class ProgressDisplay:
    """Where the progress of a call is shown."""

    show: ShowProgress | None = None
    """None if it is not shown."""
    pause: Callable[[], AbstractContextManager[None]] = nullcontext
    """Hides the bar, so that the terminal is free for something else."""


@contextmanager
def open_progress(tool: str, *, quiet: bool) -> Iterator[ProgressDisplay]:
    """Yield what shows the progress of a call; with `quiet`, it shows none."""
    if quiet:
        yield ProgressDisplay()
    elif sys.stderr.isatty():
        with _open_bar(tool) as display:
            yield display
    else:

        def show_line(note: ProgressNotification) -> None:
            total = "" if note.total is None else f"/{note.total:g}"
            click.echo(f"progress: {note.progress:g}{total}{_format_message(note)}", err=True)

        yield ProgressDisplay(show=show_line)


def _format_message(note: ProgressNotification) -> str:
    return printable(f"  {' '.join(note.message.split())}") if note.message else ""


@contextmanager
def _open_bar(tool: str) -> Iterator[ProgressDisplay]:
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
    # Transient: the bar is removed when the answer is printed.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(escape(cut(tool, room)), total=None)

        def show(note: ProgressNotification) -> None:
            # A long name gets at most half of the width, so that the message is visible.
            text = cut(f"{cut(tool, room // 2)}{_format_message(note)}" if note.message else tool, room)
            bar.update(task, completed=note.progress, total=note.total, description=escape(text))

        @contextmanager
        def pause() -> Iterator[None]:
            bar.stop()
            try:
                yield
            finally:
                bar.start()

        yield ProgressDisplay(show=show, pause=pause)
