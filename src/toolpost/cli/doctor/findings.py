"""The results of checks, as values."""

import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from toolpost.base.ids import JsonObject
from toolpost.cli.failures import as_clause
from toolpost.contracts.compatibility import Definition
from toolpost.contracts.errors import ToolpostError


class Level(StrEnum):
    """A problem keeps something from working; a warning may do so with some clients."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


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


Finding = Diagnosis
"""The former name of `Diagnosis`, which parts may still import from `toolpost.parts`."""


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
