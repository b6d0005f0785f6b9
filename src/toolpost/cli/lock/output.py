"""Changes of tools on the screen: grouped by tool, the gravest first, each with what it hits and a call that shows it."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import click
import msgspec

from toolpost.base.ids import Json
from toolpost.cli.show import heading
from toolpost.cli.terminal import has_colour, printable
from toolpost.contracts.compatibility import Change, Judgement, Verdict
from toolpost.contracts.findings import Finding
from toolpost.contracts.lockfile import Drift

VALUE_LIMIT: Final = 400

_COLOURS: Final = {Verdict.COMPATIBLE: "green", Verdict.REVIEW: "yellow", Verdict.BREAKING: "red"}
_WIDTH: Final = max(len(verdict) for verdict in Verdict)
_SUSPICIOUS: Final = "suspicious"
_INDENT: Final = " " * (_WIDTH + 4)


def print_drifts(drifts: Sequence[Drift]) -> None:
    """Print every tool that is different, and how."""
    for drift in drifts:
        if drift.kind == "added":
            continue
        click.echo(f"{heading(printable(drift.name))}  {told(drift)}")
        print_judgement(drift.judgement)
        for finding in drift.findings:
            _print_finding(finding, finding.place)
        click.echo()
    if added := [drift for drift in drifts if drift.kind == "added"]:
        click.echo(f"{heading('added')}  {printable(', '.join(drift.name for drift in added))}")
        for drift in added:
            for finding in drift.findings:
                _print_finding(finding, f"{drift.name}  {finding.place}")
        click.echo()


def print_judgement(judgement: Judgement) -> None:
    """Print every change, and whether everything was proven."""
    for change in judgement.changes:
        _print_change(change)
    if judgement.is_cut_short:
        click.echo(f"{_INDENT}not everything could be proven within the work that one tool may take")


def told(drift: Drift) -> str:
    """Say in a few words what became of a tool, and what is wrong with that."""
    words: list[str] = [drift.kind]
    if drift.kind == "renamed" and drift.new is not None:
        words.append(f"to {drift.new.name}")
    words.append(coloured(drift.verdict))
    if drift.failure is not None:
        words.append(f"({drift.failure.reason})")
    return " ".join(words)


def coloured(verdict: Verdict, text: str | None = None) -> str:
    """Colour a word by how grave it is."""
    shown = text if text is not None else verdict.value
    return click.style(shown, fg=_COLOURS[verdict]) if has_colour(sys.stdout) else shown


def lines_about(change: Change) -> Iterator[str]:
    """Say what a change means, line by line, without colour."""
    yield change.message
    if change.words:
        yield worded(change.words)
    if change.affected:
        yield f"hits {change.affected}"
    if change.example is not msgspec.UNSET:
        yield f"{example_label(change)}: {shown_value(change.example)}"
    if change.needs_bump:
        yield "needs a higher schemaVersion"


def lines_about_finding(finding: Finding) -> Iterator[str]:
    """Say why a person should look, and at which words."""
    yield f"{finding.kind.value}: {finding.message}"
    yield f"in: {finding.excerpt}"


def example_label(change: Change) -> str:
    """Say what the example is one of."""
    if change.rule == "input.argument-removed":
        # Where the new schema is open, such a call is accepted; the message says so.
        return "a call that sends it"
    is_result = change.rule.startswith("output.")
    return "a result that no caller had to expect" if is_result else "a call that used to work and no longer does"


def worded(words: Iterable[tuple[str, str]]) -> str:
    """Write a word diff: `[-gone-]` and `{+new+}`, as git does."""
    marks = {"=": ("", ""), "-": ("[-", "-]"), "+": ("{+", "+}")}
    return " ".join(f"{marks[kind][0]}{text}{marks[kind][1]}" for kind, text in words)


def shown_value(value: Json) -> str:
    """Write a value on one line, cut where it is too long to read."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= VALUE_LIMIT else f"{text[:VALUE_LIMIT]}…"


def _print_change(change: Change) -> None:
    mark = coloured(change.verdict, change.verdict.ljust(_WIDTH))
    click.echo(f"  {mark}  {printable(f'{change.rule}  {change.place}')}")
    _print_lines(lines_about(change))


def _print_finding(finding: Finding, place: str) -> None:
    click.echo(f"  {coloured(Verdict.REVIEW, _SUSPICIOUS.ljust(_WIDTH))}  {printable(place)}")
    _print_lines(lines_about_finding(finding))


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(printable(f"{_INDENT}{line}"))
