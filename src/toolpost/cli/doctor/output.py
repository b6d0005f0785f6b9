"""Findings as text or JSON; equal findings about several tools are printed once."""

import sys
from collections.abc import Iterator, Sequence
from typing import Final

import click

from toolpost.base.ids import JsonObject
from toolpost.cli.doctor.findings import Diagnosis, Group, Level
from toolpost.cli.show import heading
from toolpost.cli.terminal import has_color, printable

_COLORS: Final = {Level.OK: "green", Level.NOTE: "blue", Level.WARNING: "yellow", Level.PROBLEM: "red"}
_WIDTH: Final = max(len(level) for level in Level)
_NAMED: Final = 3


def print_groups(groups: Sequence[Group]) -> None:
    for group in groups:
        click.echo(heading(printable(f"{group.kind} {group.name}")))
        for alike in _fold(group.findings):
            _print(alike)
        click.echo()
    click.echo(_format_totals(groups))


def as_object(groups: Sequence[Group], *, is_ok: bool) -> JsonObject:
    return {
        "ok": is_ok,
        "problems": total(groups, Level.PROBLEM),
        "warnings": total(groups, Level.WARNING),
        "groups": [group.as_object() for group in groups],
    }


def total(groups: Sequence[Group], level: Level) -> int:
    return sum(group.count(level) for group in groups)


def pluralize(number: int, noun: str) -> str:
    """Write a number with its noun, in the plural where needed."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _format_totals(groups: Sequence[Group]) -> str:
    problems, warnings = total(groups, Level.PROBLEM), total(groups, Level.WARNING)
    if not problems and not warnings:
        return "no problems found"
    return f"{pluralize(problems, 'problem')}, {pluralize(warnings, 'warning')}"


def _fold(findings: Sequence[Diagnosis]) -> Iterator[list[Diagnosis]]:
    """Group equal findings about different tools."""
    alike: dict[tuple[object, ...], list[Diagnosis]] = {}
    for number, finding in enumerate(findings):
        words = (finding.level, finding.check, finding.message, finding.hint)
        alike.setdefault(words if finding.tool is not None else (number,), []).append(finding)
    yield from alike.values()


def _print(alike: list[Diagnosis]) -> None:
    first = alike[0]
    mark = first.level.ljust(_WIDTH)
    shown = click.style(mark, fg=_COLORS[first.level]) if has_color(sys.stdout) else mark
    click.echo(f"  {shown}  {printable(_format_tools(alike) + first.message)}")
    indent = " " * (_WIDTH + 4)
    for line in first.lines:
        click.echo(printable(f"{indent}| {line}"))
    if first.hint:
        click.echo(printable(f"{indent}hint: {first.hint}"))


def _format_tools(alike: list[Diagnosis]) -> str:
    """Name the tools, and the place if there is only one."""
    names = list(dict.fromkeys(f"`{finding.tool}`" for finding in alike if finding.tool is not None))
    if not names:
        return ""
    if len(alike) == 1 and alike[0].place:
        return f"{names[0]}, {alike[0].place}: "
    rest = len(names) - _NAMED
    others = f" and {pluralize(rest, 'other')}" if rest > 0 else ""
    return f"{', '.join(names[:_NAMED])}{others}: "
