"""The results of checks, as values, and how `doctor` prints them."""

import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import click

from toolpost.base.ids import JsonObject
from toolpost.contracts.compatibility import Definition
from toolpost.contracts.errors import ToolpostError
from toolpost.terminal.failures import as_clause
from toolpost.terminal.tables import heading
from toolpost.terminal.text import has_color, printable


class Level(StrEnum):
    """A problem keeps something from working; a warning may do so with some clients."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


_COLORS: Final = {Level.OK: "green", Level.NOTE: "blue", Level.WARNING: "yellow", Level.PROBLEM: "red"}
_WIDTH: Final = max(len(level) for level in Level)
_NAMED: Final = 3
"""Tools that are named where several have the same finding."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The result of one check."""

    level: Level
    check: str
    """The name of the check, for other programs."""
    message: str
    hint: str | None = None
    tool: str | None = None
    place: str | None = None
    """Where in the tool's definition."""
    lines: tuple[str, ...] = ()
    """Quoted output of a server, or text of a definition."""

    def as_object(self) -> JsonObject:
        """Convert to JSON; what does not apply is absent."""
        values: JsonObject = {"level": self.level.value, "check": self.check, "message": self.message}
        for name in ("hint", "tool", "place"):
            if (value := getattr(self, name)) is not None:
                values[name] = value
        return values | ({"lines": list(self.lines)} if self.lines else {})

    def mapped(self, change: Callable[[str], str]) -> "Diagnosis":
        """Return a copy with `change` applied to every text."""
        return replace(
            self,
            message=change(self.message),
            hint=self.hint and change(self.hint),
            lines=tuple(change(line) for line in self.lines),
        )


@dataclass(frozen=True, kw_only=True)
class Group:
    """The findings about one server, plugin or agent, or about the setup."""

    kind: str
    """`toolpost`, `server`, `plugin`, or what a part calls it: `agent`."""
    name: str
    findings: tuple[Diagnosis, ...]
    facts: JsonObject = field(default_factory=dict)
    definitions: tuple[Definition, ...] = ()
    """The tools that were seen."""

    def count(self, level: Level) -> int:
        return sum(finding.level is level for finding in self.findings)

    def as_object(self) -> JsonObject:
        found = [finding.as_object() for finding in self.findings]
        return {"kind": self.kind, "name": self.name, **self.facts, "findings": found}


def ok(check: str, message: str) -> Diagnosis:
    """Make a finding of something that is as it should be."""
    return Diagnosis(level=Level.OK, check=check, message=message)


def note(check: str, message: str) -> Diagnosis:
    """Make a finding that is worth knowing."""
    return Diagnosis(level=Level.NOTE, check=check, message=message)


def warning(check: str, message: str, *, hint: str | None = None) -> Diagnosis:
    """Make a finding that should be looked at."""
    return Diagnosis(level=Level.WARNING, check=check, message=message, hint=hint)


def problem(check: str, error: str | ToolpostError, *, hint: str | None = None, lines: Iterable[str] = ()) -> Diagnosis:
    """Make a finding that makes `doctor` fail."""
    message, given = (as_clause(error.message), error.hint) if isinstance(error, ToolpostError) else (error, None)
    return Diagnosis(level=Level.PROBLEM, check=check, message=message, hint=hint or given, lines=tuple(lines))


def is_installed(module: str) -> bool:
    """Whether a module can be imported, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def print_groups(groups: Sequence[Group]) -> None:
    for group in groups:
        click.echo(heading(printable(f"{group.kind} {group.name}")))
        for alike in _fold(group.findings):
            _print(alike)
        click.echo()
    problems, warnings = total(groups, Level.PROBLEM), total(groups, Level.WARNING)
    counts = f"{pluralize(problems, 'problem')}, {pluralize(warnings, 'warning')}"
    click.echo(counts if problems or warnings else "no problems found")


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
