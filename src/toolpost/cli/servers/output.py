"""The reports of servers on the screen."""

from collections.abc import Iterator, Sequence
from typing import Final

import click

from toolpost.base.ids import Json, JsonObject
from toolpost.cli.doctor.output import counted
from toolpost.cli.show import print_table, table
from toolpost.cli.terminal import printable

_COLUMNS: Final = ("NAME", "STATE", "PID", "MEMORY", "RESTARTS", "TOOLS", "LAST ERROR")
_SHOWN_WORDS: Final = 5
_SHOWN_SUSPICIONS: Final = 3
_DOWN: Final = ("failed", "suspended")


def print_servers(reports: Sequence[JsonObject]) -> None:
    """Print a line for each server, and the last words of those that are down."""
    if not reports:
        click.echo("there are no servers; `toolpost import` takes over those that you have", err=True)
        return
    print_table(table(*_COLUMNS, rows=[_row(report) for report in reports]))
    for report in reports:
        for line in (*_changed(report), *_suspicious(report), *_last_words(report)):
            click.echo(printable(line))


def print_server(report: JsonObject) -> None:
    """Print how one server is doing, in a line."""
    pids = _pids(report)
    facts = [str(report.get("state")), f"pid {pids}" if pids != "-" else ""]
    if calls := report.get("inFlight"):
        facts.append(f"{calls} in flight")
    click.echo(printable(f"{report.get('name')}: {', '.join(fact for fact in facts if fact)}"))


def spelled_bytes(size: Json) -> str:
    """Write a size for people."""
    return f"{size / 1024 / 1024:.1f} MiB" if isinstance(size, int | float) else "-"


def _row(report: JsonObject) -> tuple[str, ...]:
    return (
        str(report.get("name")),
        str(report.get("state")),
        _pids(report),
        spelled_bytes(report.get("memoryBytes")),
        str(report.get("restarts", "-")),
        _tools(report),
        _last_error(report),
    )


def _pids(report: JsonObject) -> str:
    return ", ".join(str(pid) for pid in report.get("pids") or ()) or "-"


def _tools(report: JsonObject) -> str:
    contracts = report.get("contracts") or {}
    counts = {
        "refused": len(report.get("refused") or ()),
        "changed": sum(not standing.get("withheld") for standing in contracts.values()),
        "withheld": sum(bool(standing.get("withheld")) for standing in contracts.values()),
        "suspicious": len(report.get("suspicions") or ()),
    }
    noted = ", ".join(f"{number} {what}" for what, number in counts.items() if number)
    return f"{report.get('tools', '-')}" + (f" ({noted})" if noted else "")


def _changed(report: JsonObject) -> Iterator[str]:
    contracts = report.get("contracts") or {}
    if contracts:
        yield f"\nno longer as promised by {report.get('name')}:"
    for name, standing in contracts.items():
        fate = ", withheld" if standing.get("withheld") else ""
        since = "locked" if standing.get("promise") == "lock" else "first seen"
        kinds = dict.fromkeys(standing.get("suspicions") or ())
        reasons = (*(standing.get("rules") or ()), *(f"brings {kind}" for kind in kinds))
        yield f"  {name}: {standing.get('verdict')} since {since}{fate} ({', '.join(reasons)})"
    if contracts:
        yield "hint: `toolpost diff` explains each change, `toolpost lock --accept NAME` takes it over"


def _suspicious(report: JsonObject) -> Iterator[str]:
    suspicions = report.get("suspicions") or {}
    if suspicions:
        yield f"\nmay be meant for the model rather than for you, in {report.get('name')}:"
    for name, found in suspicions.items():
        for suspicion in found[:_SHOWN_SUSPICIONS]:
            yield f"  {name} {suspicion.get('place')}: {suspicion.get('message')}"
            yield f"    in: {suspicion.get('excerpt')}"
        if (rest := len(found) - _SHOWN_SUSPICIONS) > 0:
            yield f"  {name}: {rest} more"


def _last_error(report: JsonObject) -> str:
    told = [str(error)] if (error := report.get("lastError")) else []
    if error and (moment := report.get("lastErrorAt")):
        told = [f"{error} ({moment})"]
    if count := report.get("oddities"):
        told.append(f"said what makes no sense, {counted(count, 'time')}")
    return "; ".join(told) or "-"


def _last_words(report: JsonObject) -> Iterator[str]:
    words = report.get("lastWords") or ()
    if report.get("state") in _DOWN and words:
        yield f"\nthe last words of {report.get('name')}:"
        for line in words[-_SHOWN_WORDS:]:
            yield f"  {line}"
