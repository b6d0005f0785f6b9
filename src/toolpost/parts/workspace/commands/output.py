"""Print hits, builds and states of the code index."""

import sys
from datetime import datetime

import click

from toolpost.base.ids import JsonObject
from toolpost.cli.failures import warn
from toolpost.cli.show import format_size, print_table, table
from toolpost.cli.terminal import has_color, printable


def print_hits(found: JsonObject) -> None:
    """Print each hit with its place, its symbol and its best line; notes go to stderr."""
    for number, hit in enumerate(found["hits"]):
        if number:
            click.echo()
        _print_hit(hit, with_repo=len(found["searched"]) > 1)
    if not found["hits"]:
        click.echo("nothing was found", err=True)
    for failure in found["failures"]:
        warn(f"{failure['repo']}: {failure['message']}")
    if count := len(found["stale"]):
        click.echo(f"{count} {'file has' if count == 1 else 'files have'} changed since indexed", err=True)
    if found["truncated"]:
        click.echo("there may be more: the search stopped before it had seen everything", err=True)


def _print_hit(hit: JsonObject, *, with_repo: bool) -> None:
    place = f"{hit['repo']}:{hit['path']}" if with_repo else hit["path"]
    symbol = f"  {hit['kind']} {hit['symbol']}" if "symbol" in hit else ""
    stale = "  (changed since it was indexed)" if hit["stale"] else ""
    lines = f":{hit['startLine']}-{hit['endLine']}"
    click.echo(
        f"{_style(printable(place), 'magenta')}{_style(lines, 'green')}{_style(printable(symbol), 'cyan')}{stale}"
    )
    if "lines" not in hit:
        click.echo(f"{_number(hit['line'])}  {printable(hit['headline'])}")
    for line in hit.get("lines", ()):
        is_best = line["line"] == hit["line"]
        text = printable(line["text"])
        click.echo(f"{_number(line['line'])}  {_style(text, 'bright_white') if is_best else text}")


def _number(line: int) -> str:
    return _style(f"{line:>6}", "green")


def print_built(built: JsonObject) -> None:
    """Print a table with one row for each repository."""
    rows = [
        (
            one["repo"],
            f"{one['files']:,}",
            f"{one['lines']:,}",
            _count_changes(one),
            f"{one['seconds']:.1f} s",
            ", ".join(f"{count} {reason}" for reason, count in one["skipped"].items()) or "-",
        )
        for one in built["repositories"]
    ]
    print_table(table("REPOSITORY", "FILES", "LINES", "WHAT WAS DONE", "TIME", "LEFT OUT", rows=rows))
    for one in built["repositories"]:
        if "rebuilt" in one:
            click.echo(printable(f"{one['repo']} was built from nothing: {one['rebuilt']}"), err=True)
    for failure in built["failures"]:
        warn(f"{failure['repo']}: {failure['message']}")


def print_update(built: JsonObject) -> None:
    """Print the summary of a background build on one line."""
    at = datetime.now().astimezone().strftime("%H:%M:%S")
    name = _style(printable(built["repo"]), "magenta")
    click.echo(f"{_style(at, 'green')}  {name}: {_count_changes(built)} in {built['seconds']:.1f} s")


def _count_changes(built: JsonObject) -> str:
    return ", ".join(f"{built[kind]} {kind}" for kind in ("added", "changed", "renamed", "removed"))


def print_status(status: JsonObject) -> None:
    """Print a table with the state of each index."""
    rows = [
        (
            one["repo"],
            _state(one),
            f"{one.get('files', 0):,}",
            f"{one.get('lines', 0):,}",
            format_size(one.get("bytes", 0)),
            _age(one.get("ageSeconds")),
            one["root"],
        )
        for one in status["repositories"]
    ]
    print_table(table("REPOSITORY", "STATE", "FILES", "LINES", "SIZE", "AGE", "FOLDER", rows=rows))
    for failure in status["failures"]:
        warn(f"{failure['repo']}: {failure['message']}")


def _state(one: JsonObject) -> str:
    if one["damaged"]:
        return "damaged"
    if not one["exists"]:
        return "no index"
    changed = sum(one["changed"][kind] for kind in ("added", "modified", "deleted"))
    return f"{changed} changed" if changed else "fresh"


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _style(text: str, color: str) -> str:
    return click.style(text, fg=color) if has_color(sys.stdout) else text
