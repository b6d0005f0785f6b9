"""Reports of servers as text."""

from collections.abc import Iterator, Sequence
from typing import Final

import click

from toolpost.base.ids import Json, JsonObject
from toolpost.cli.doctor.output import pluralize
from toolpost.cli.show import print_table, table
from toolpost.cli.terminal import printable

_COLUMNS: Final = ("NAME", "STATE", "PID", "MEMORY", "RESTARTS", "TOOLS", "LAST ERROR")
_SHOWN_LINES: Final = 5
_SHOWN_FINDINGS: Final = 3
_DOWN: Final = ("failed", "suspended")


def print_servers(reports: Sequence[JsonObject]) -> None:
    """Print a table of servers, then changed tools, findings, and the last stderr lines of failed servers."""
    if not reports:
        click.echo("no servers are configured; `toolpost import` adds those of your MCP clients", err=True)
        return
    print_table(table(*_COLUMNS, rows=[_make_row(report) for report in reports]))
    for report in reports:
        for line in (*_describe_changes(report), *_describe_findings(report), *_describe_stderr(report)):
            click.echo(printable(line))


def print_server(report: JsonObject) -> None:
    pids = _format_pids(report)
    facts = [str(report.get("state")), f"pid {pids}" if pids != "-" else ""]
    if calls := report.get("inFlight"):
        facts.append(f"{calls} in flight")
    click.echo(printable(f"{report.get('name')}: {', '.join(fact for fact in facts if fact)}"))


def format_mib(size: Json) -> str:
    """Format bytes as MiB; `-` if unknown."""
    return f"{size / 1024 / 1024:.1f} MiB" if isinstance(size, int | float) else "-"


def _make_row(report: JsonObject) -> tuple[str, ...]:
    return (
        str(report.get("name")),
        str(report.get("state")),
        _format_pids(report),
        format_mib(report.get("memoryBytes")),
        str(report.get("restarts", "-")),
        _format_tools(report),
        _format_last_error(report),
    )


def _format_pids(report: JsonObject) -> str:
    return ", ".join(str(pid) for pid in report.get("pids") or ()) or "-"


def _format_tools(report: JsonObject) -> str:
    contracts = report.get("contracts") or {}
    # The keys of a report still say `withheld`; people read `quarantined`.
    counts = {
        "refused": len(report.get("refused") or ()),
        "changed": sum(not standing.get("withheld") for standing in contracts.values()),
        "quarantined": sum(bool(standing.get("withheld")) for standing in contracts.values()),
        "suspicious": len(report.get("suspicions") or ()),
    }
    noted = ", ".join(f"{number} {what}" for what, number in counts.items() if number)
    return f"{report.get('tools', '-')}" + (f" ({noted})" if noted else "")


def _describe_changes(report: JsonObject) -> Iterator[str]:
    contracts = report.get("contracts") or {}
    if contracts:
        yield f"\nchanged tools of {report.get('name')}:"
    for name, standing in contracts.items():
        state = ", quarantined" if standing.get("withheld") else ""
        since = "locked" if standing.get("promise") == "lock" else "first seen"
        kinds = dict.fromkeys(standing.get("suspicions") or ())
        reasons = (*(standing.get("rules") or ()), *(f"brings {kind}" for kind in kinds))
        yield f"  {name}: {standing.get('verdict')} since {since}{state} ({', '.join(reasons)})"
    if contracts:
        yield "hint: `toolpost diff` explains each change, `toolpost lock --accept NAME` accepts it"


def _describe_findings(report: JsonObject) -> Iterator[str]:
    suspicions = report.get("suspicions") or {}
    if suspicions:
        yield f"\npossible instructions to the model in {report.get('name')}:"
    for name, found in suspicions.items():
        for suspicion in found[:_SHOWN_FINDINGS]:
            yield f"  {name} {suspicion.get('place')}: {suspicion.get('message')}"
            yield f"    in: {suspicion.get('excerpt')}"
        if (rest := len(found) - _SHOWN_FINDINGS) > 0:
            yield f"  {name}: {rest} more"


def _format_last_error(report: JsonObject) -> str:
    facts = [str(error)] if (error := report.get("lastError")) else []
    if error and (moment := report.get("lastErrorAt")):
        facts = [f"{error} ({moment})"]
    if count := report.get("oddities"):
        facts.append(f"sent invalid messages, {pluralize(count, 'time')}")
    return "; ".join(facts) or "-"


def _describe_stderr(report: JsonObject) -> Iterator[str]:
    lines = report.get("lastWords") or ()
    if report.get("state") in _DOWN and lines:
        yield f"\nlast stderr lines of {report.get('name')}:"
        for line in lines[-_SHOWN_LINES:]:
            yield f"  {line}"
