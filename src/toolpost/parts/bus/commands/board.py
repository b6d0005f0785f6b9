"""The board of `toolpost bus`: workers, queue, and blocked and dead tasks; printed once, or refreshed on a terminal."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from toolpost.parts.bus.commands.project import open_bus
from toolpost.parts.bus.plugin import render_board
from toolpost.parts.bus.status import Overview
from toolpost.terminal import console, on_signals, print_json_line, print_table, table

if TYPE_CHECKING:
    from rich.console import Group

REFRESH_S: Final = 0.5
_ROWS: Final = 15
"""How many tasks a table lists; the JSON has all that `status.py` reads."""


async def show_once(project: Path, *, as_json: bool) -> None:
    async with open_bus(project) as bus:
        overview = await bus.overview()
    if as_json:
        print_json_line(render_board(overview))
        return
    for title, rows in _make_tables(overview):
        print_table(rows, title=title)


async def show_live(project: Path) -> None:
    """Refresh the board every `REFRESH_S` until Ctrl-C."""
    from rich.live import Live

    async with open_bus(project) as bus:
        stopped = anyio.Event()
        with (
            on_signals(stopped.set),
            Live(_render_live(await bus.overview()), console=console(), auto_refresh=False, screen=False) as live,
        ):
            while not stopped.is_set():
                live.update(_render_live(await bus.overview()), refresh=True)
                with anyio.move_on_after(REFRESH_S):
                    await stopped.wait()


def _make_tables(overview: Overview) -> list[tuple[str, Any]]:
    """Return tables with their titles."""
    board = render_board(overview)
    counts = overview.counts
    workers = [
        (
            one["name"],
            one["status"],
            _format_duration(one["seconds"]),
            one["task"] or "",
            str(one.get("attempt") or ""),
            _format_duration(one["lease_seconds_left"]) if "lease_seconds_left" in one else "",
        )
        for one in board["workers"]
    ]
    queue = [
        (
            one["bead_id"],
            str(one["priority"]),
            _format_duration(one["age_seconds"]),
            str(one["attempt"] or ""),
            _format_duration(one["retry_in_seconds"]) if one["retry_in_seconds"] else "",
        )
        for one in board["queue"][:_ROWS]
    ]
    troubled = [(one["bead_id"], one["state"], one["reason"] or "") for one in board["troubled"][:_ROWS]]
    tables = [
        (
            f"workers: {len(workers)}",
            table("name", "status", "since", "task", "attempt", "lease left", rows=workers),
        ),
        (
            f"queue: {counts.get('queued', 0)}, waiting for others: {counts.get('waiting', 0)}",
            table("task", "priority", "age", "attempts", "again in", rows=queue),
        ),
    ]
    if troubled:
        title = f"blocked: {counts.get('blocked', 0)}, dead: {counts.get('dead', 0)} (`toolpost bus retry TASK`)"
        tables.append((title, table("task", "state", "reason", rows=troubled)))
    return tables


def _render_live(overview: Overview) -> "Group":
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [Text(f"the bus at {time.strftime('%H:%M:%S')} (Ctrl-C ends this)", style="dim")]
    for title, rows in _make_tables(overview):
        parts += [Text(""), Text(title, style="bold"), rows]
    return Group(*parts)


def _format_duration(seconds: float) -> str:
    whole = int(max(0.0, seconds))
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 3_600 else f"{whole // 3_600} h {whole % 3_600 // 60} min"
