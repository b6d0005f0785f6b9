"""The run, told: tables for a person, a page for the documentation."""

import os
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from bench.figures import COUNT, OURS, PERCENT, Figures, Metric, Part, S, Target

PACKAGES = ("mcp", "fastmcp", "uvicorn", "uvloop", "httptools", "msgspec", "jsonschema-rs", "pydantic")

HEAD = """\
# Benchmarks

Written by `scripts/bench --write docs/reference/benchmarks.md`; do not edit. With the names of parts, as in
`scripts/bench proxy --write …`, only those sections are written anew.

One command starts every server and measures them in turns (A B C A B C …) within one run. A figure is the median over rounds. A
ratio is taken within each round, between neighbours, and its median is shown: "8 x" means eight times the calls per second, or
an eighth of the time, CPU or memory. The load comes from `bench/mcpload.c`, a native load generator: a client in Python would
cost more than what it measures. Every answer is checked for the text that it must echo; one bad answer ends the run. Figures are
of one machine on one day: the ratios carry further."""

Run = Sequence[tuple[Part, Figures]]


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


def print_tables(run: Run, around: dict[str, Any]) -> None:
    """Print the figures, the ratios and the targets."""
    console = Console(width=None if Console().is_terminal else 150)
    for part, figures in run:
        console.rule(part.title, align="left")
        for title, heads, rows in _tables(part, figures):
            if rows:
                console.print(_table(title, heads, rows))
        for note in figures.notes:
            console.print(f"- {note}", markup=False)
    console.print(f"{around['machine']}; {around['system']}; load {around['load']}", markup=False)


def write_page(run: Run, around: dict[str, Any], path: Path, *, order: Sequence[str]) -> None:
    """Write these sections into the page of the documentation; the sections of other parts stay as they are."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    sections = {name: text for name, text in _SECTION.findall(before) if name in order}
    sections |= {part.name: _section(part, figures, around) for part, figures in run}
    marked = [f"<!-- {name} -->\n{sections[name]}\n<!-- /{name} -->" for name in order if name in sections]
    path.write_text("\n\n".join([HEAD, *marked]) + "\n", encoding="utf-8")


_SECTION = re.compile(r"<!-- ([a-z]+) -->\n(.*?)\n<!-- /\1 -->", re.DOTALL)


def _section(part: Part, figures: Figures, around: dict[str, Any]) -> str:
    options = ", ".join(f"{key} {value:g}" for key, value in around["options"].items())
    versions = ", ".join(f"{name} {number}" for name, number in around["versions"].items())
    parts = [
        f"## {part.title}",
        part.method,
        f"Measured on {around['date']} on {around['machine']} ({around['system']}; load {around['load']}).",
        f"Options: {options}. Versions: {versions}.",
    ]
    for title, heads, rows in _tables(part, figures):
        if rows:
            parts += [f"### {title}", _markdown(heads, rows)]
    parts.append("\n".join(f"- {note}" for note in figures.notes))
    return "\n\n".join(part for part in parts if part)


def _tables(part: Part, figures: Figures) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    shared = [metric for metric in _sorted(figures) if set(figures.values[metric]) != {OURS}]
    own = [metric for metric in _sorted(figures) if metric not in shared]
    yield "Targets", ["", "aim", "found", ""], _target_rows(part.targets(figures))
    yield "Toolpost is better by", ["", *_compared(part)], _ratio_rows(part, figures, shared)
    yield "Figures", ["", *part.names, "unit"], _figure_rows(figures, shared, part.names)
    yield "Toolpost's own figures", ["", "", "unit"], _figure_rows(figures, own, (OURS,))
    yield "Definitions refused", ["reason", "count"], [[reason, str(n)] for reason, n in figures.refusals.items()]


def _compared(part: Part) -> list[str]:
    return [f"against {theirs}" for _, theirs in part.pairs]


def _figure_rows(figures: Figures, metrics: Iterable[Metric], names: Sequence[str]) -> list[list[str]]:
    return [
        [str(metric), *(_shown(figures.median(metric, name), metric.unit) for name in names), metric.unit]
        for metric in metrics
    ]


def _ratio_rows(part: Part, figures: Figures, metrics: Iterable[Metric]) -> list[list[str]]:
    rows: list[list[str]] = []
    for metric in metrics:
        ratios = [figures.ratio(metric, ours, theirs) for ours, theirs in part.pairs]
        if any(ratio is not None for ratio in ratios):
            rows.append([str(metric), *("-" if r is None else f"{r:.1f} x" for r in ratios)])
    return rows


def _target_rows(targets: Iterable[Target]) -> list[list[str]]:
    return [[t.what, t.aim, t.shown, "reached" if t.is_reached else "missed"] for t in targets]


def _sorted(figures: Figures) -> list[Metric]:
    scenarios = list(dict.fromkeys(metric.scenario for metric in figures.values))
    return sorted(figures.values, key=lambda metric: scenarios.index(metric.scenario))


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == COUNT:
        return f"{value:,.0f}"
    if unit == PERCENT:
        return f"{value:.1f}"
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
