"""The run, told: tables for a person, a page for the documentation."""

import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from bench.candidates import ALL, PEERS, like
from bench.figures import COUNT, Figures, Metric, S

PACKAGES = ("mcp", "fastmcp", "uvicorn", "uvloop", "httptools", "msgspec", "jsonschema-rs", "pydantic")

METHOD = """\
One command, `scripts/bench`, starts every server and measures them in turns (A B C A B C …) within one run. A figure is the
median over rounds. A ratio is taken within each round, between neighbours, and its median is shown: "8 x" means eight times the
calls per second, or an eighth of the time, CPU or memory. The load comes from `bench/mcpload.c`, a native load generator: a
client in Python would cost more than what it measures. Every answer is checked for the text that it must echo; one bad answer
ends the run.

Each server has one tool, `echo`, with one string argument and an output schema. Toolpost runs with everything on that it has by
default: both schemas enforced, the envelope, and an audit entry in SQLite on disk, committed before the answer goes out. The
peers run under uvicorn with uvloop and httptools, without access log, and answer in whichever way is faster for them. Like is
compared with like: tools with written schemas against the SDK's low-level `Server` (which validates nothing), tools with type
hints against the SDK's `MCPServer` and FastMCP. CPU per call is user and system time of the server and its children."""


def surroundings(options: dict[str, Any]) -> dict[str, Any]:
    """Say where and with what this was measured."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "load": f"{os.getloadavg()[0]:.1f} at the end of the run",
        "versions": {name: version(name) for name in ("toolpost", *PACKAGES)},
        "options": options,
    }


def print_tables(figures: Figures, around: dict[str, Any]) -> None:
    """Print the figures, the ratios and the targets."""
    console = Console(width=None if Console().is_terminal else 150)
    console.print(_table("Figures (medians)", ["", *_names(), "unit"], _figure_rows(figures)))
    if rows := list(_own_rows(figures)):
        console.print(_table("Toolpost's own figures (medians)", ["", "", "unit"], rows))
    if rows := list(_ratio_rows(figures)):
        console.print(_table("Toolpost is better by", ["", *(peer.name for peer in PEERS)], rows))
    if rows := list(_target_rows(figures)):
        console.print(_table("Targets", ["", "aim", "found", ""], rows))
    if figures.refusals:
        rows = [[reason, str(count)] for reason, count in figures.refusals.items()]
        console.print(_table("Definitions refused", ["reason", "count"], rows))
    for note in figures.notes:
        console.print(f"- {note}", markup=False)
    console.print(f"{around['machine']}; {around['system']}; load {around['load']}", markup=False)


def write_page(figures: Figures, around: dict[str, Any], path: Path) -> None:
    """Write the page of the documentation."""
    options = ", ".join(f"{key} {value}" for key, value in around["options"].items())
    versions = ", ".join(f"{name} {number}" for name, number in around["versions"].items())
    parts = [
        "# Benchmarks",
        "Written by `scripts/bench --write docs/reference/benchmarks.md`; do not edit.",
        f"Measured on {around['date']} on {around['machine']} ({around['system']}; load {around['load']}).",
        f"Options: {options}. Versions: {versions}.",
        "## Targets",
        _markdown(["", "aim", "found", ""], _target_rows(figures)),
        "## Ratios",
        "How many times better Toolpost is; below 1 it is worse.",
        _markdown(["", *(f"against {peer.name}" for peer in PEERS)], _ratio_rows(figures)),
        "## Figures",
        "Of one machine on one day: the ratios carry further.",
        _markdown(["", *_names(), "unit"], _figure_rows(figures)),
        _markdown(["Toolpost's own", "", "unit"], _own_rows(figures)),
        "## Method",
        METHOD,
        "\n".join(f"- {note}" for note in figures.notes),
    ]
    if figures.refusals:
        rows = [[reason, str(count)] for reason, count in figures.refusals.items()]
        parts += ["## Definitions refused", _markdown(["reason", "count"], rows)]
    path.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")


def _names() -> list[str]:
    return [candidate.name for candidate in ALL]


def _is_shared(figures: Figures, metric: Metric) -> bool:
    return set(figures.values[metric]) != {"Toolpost"}


def _figure_rows(figures: Figures) -> Iterable[list[str]]:
    for metric in filter(lambda m: _is_shared(figures, m), _sorted(figures)):
        values = [_shown(figures.median(metric, name), metric.unit) for name in _names()]
        yield [f"{metric.scenario}: {metric.name}", *values, metric.unit]


def _own_rows(figures: Figures) -> Iterable[list[str]]:
    for metric in _sorted(figures):
        if not _is_shared(figures, metric):
            value = _shown(figures.median(metric, "Toolpost"), metric.unit)
            yield [f"{metric.scenario}: {metric.name}", value, metric.unit]


def _ratio_rows(figures: Figures) -> Iterable[list[str]]:
    for metric in _sorted(figures):
        ratios = [figures.ratio(metric, like(peer).name, peer.name) for peer in PEERS]
        if any(ratio is not None for ratio in ratios):
            yield [f"{metric.scenario}: {metric.name}", *("-" if r is None else f"{r:.1f} x" for r in ratios)]


def _target_rows(figures: Figures) -> Iterable[list[str]]:
    for target in figures.targets():
        yield [target.what, target.aim, target.shown, "reached" if target.is_reached else "missed"]


def _sorted(figures: Figures) -> list[Metric]:
    scenarios = list(dict.fromkeys(metric.scenario for metric in figures.values))
    return sorted(figures.values, key=lambda metric: scenarios.index(metric.scenario))


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == COUNT:
        return f"{value:,.0f}"
    return f"{value:,.2f}" if unit == S or value < 10 else f"{value:,.0f}"


def _table(title: str, heads: list[str], rows: Iterable[list[str]]) -> Table:
    table = Table(title=title, title_justify="left")
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if number == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row, style="red" if row[-1] == "missed" else None)
    return table


def _markdown(heads: list[str], rows: Iterable[list[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if not lines:
        return ""
    rule = "|---" + "|---:" * (len(heads) - 1) + "|"
    return "\n".join([f"| {' | '.join(heads)} |", rule, *lines])


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
