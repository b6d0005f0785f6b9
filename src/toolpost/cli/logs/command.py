"""`toolpost logs`: the logs of this project's gateways, and the stderr of their servers."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import click

from toolpost.base.events import OUTPUT_EVENT
from toolpost.base.log_files import LogFiles, Position
from toolpost.contracts.errors import NotFound
from toolpost.terminal import examples, on_signals, printable, run_async
from toolpost.terminal.logging import LEVELS, format_event
from toolpost.terminal.options import TimeParameter, config_option, json_option, load_cli_config

POLL_S: Final = 0.3

_NO_FIELDS: Final = frozenset({"ts", "level", "logger", "event", "exception"})


@click.command(
    epilog=examples(
        ("toolpost logs", "the last 50 events"),
        ("toolpost logs --server github --follow", "output and events of one"),
        (
            "toolpost logs --call 3f2a9c11d0e4-1b",
            "all about one call",
        ),
        ("toolpost logs --level warning --since 2h --json", "for other programs"),
    )
)
@click.option("--last", type=click.IntRange(min=0), default=50, show_default=True, metavar="N", help="How many events.")
@click.option("--server", metavar="NAME", help="Events about one server, and its own output.")
@click.option("--call", metavar="ID", help="Events about one call.")
@click.option("--trace", metavar="ID", help="Events about the calls of one trace.")
@click.option("--caller", metavar="NAME", help="Events about calls of one caller.")
@click.option(
    "--level", type=click.Choice(LEVELS), default="debug", help="Events of this level and above (default: all)."
)
@click.option(
    "--since",
    type=TimeParameter(),
    metavar="TIME",
    help="At or after this time: ISO 8601 in UTC, or an age such as 30m, 2h, 7d.",
)
@click.option("--follow", is_flag=True, help="Keep printing events as they are logged.")
@config_option
@json_option("Print one JSON object a line.")
def logs(
    config_path: Path | None,
    *,
    last: int,
    level: str,
    since: str | None,
    follow: bool,
    as_json: bool,
    **ids: str | None,
) -> None:
    """Show the logs of this project's gateways, and the stderr of their servers.

    `toolpost serve` keeps it beside the store, up to `log.keep_mb`.
    """
    config = load_cli_config(config_path)
    folder = config.log_path
    if folder is None or config.log.keep_mb == 0:
        raise NotFound(
            "No log is kept: the store is in memory, or log.keep_mb is 0.",
            hint='set log.keep_mb, and store.url = "sqlite:PATH", in toolpost.toml',
        )
    if not follow and not folder.is_dir():
        raise NotFound(f"There is no log in {folder} yet.", hint="`toolpost serve` writes it")
    show = _print_json if as_json else _print_text
    wanted = {name: value for name, value in {**ids, "level": level, "since": since}.items() if value is not None}
    files = LogFiles(folder)
    # Before they are read: what is added from now on is followed.
    ends = files.find_ends()
    show(_read_last(files, wanted, ends, last))
    if follow:
        run_async(_follow, files, wanted, ends, show)


def _read_last(files: LogFiles, wanted: Mapping[str, str], ends: Position, count: int) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    before = ends
    while before and len(found) < count:
        page = files.read_back(wanted, limit=count - len(found), before=before)
        found, before = [*found, *page.events], page.before
    return found[::-1]


async def _follow(
    files: LogFiles, wanted: Mapping[str, str], ends: Position, show: Callable[[Iterable[Mapping[str, Any]]], None]
) -> None:
    stop = anyio.Event()
    with on_signals(stop.set):
        while not stop.is_set():
            page = files.read_on(wanted, ends)
            ends = page.before
            show(page.events)
            with anyio.move_on_after(POLL_S):
                await stop.wait()


def _print_json(events: Iterable[Mapping[str, Any]]) -> None:
    for event in events:
        click.echo(json.dumps(event, ensure_ascii=False))


def _print_text(events: Iterable[Mapping[str, Any]]) -> None:
    for event in events:
        at = str(event.get("ts", ""))[:19].replace("T", " ")
        if event.get("event") == OUTPUT_EVENT:
            click.echo(printable(f"{at} {event.get('server')} | {event.get('line', '')}"))
            continue
        fields = {name: value for name, value in event.items() if name not in _NO_FIELDS}
        click.echo(format_event(at, str(event.get("level", "")).upper(), str(event.get("event", "")), fields))
        if trace := event.get("exception"):
            click.echo(printable(str(trace)))
