"""Changes of tools as text, as GitHub annotations and as Markdown: grouped by tool, the gravest first."""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import click

from toolpost.admin.lock_file import LockFile
from toolpost.contracts.compatibility import Judgement, Verdict
from toolpost.contracts.compatibility.definition import is_skill_name
from toolpost.contracts.compatibility.explanation import describe_change
from toolpost.contracts.findings import Finding
from toolpost.contracts.lockfile import Drift, count_tools, find_lines
from toolpost.terminal import has_color, printable
from toolpost.terminal.findings import pluralize
from toolpost.terminal.tables import heading

_COLORS: Final = {Verdict.COMPATIBLE: "green", Verdict.REVIEW: "yellow", Verdict.BREAKING: "red"}
_WIDTH: Final = max(len(verdict) for verdict in Verdict)
_SUSPICIOUS: Final = "suspicious"
_INDENT: Final = " " * (_WIDTH + 4)
# A breaking change under a raised version passes: an error is only what `failures` holds.
_LEVELS: Final = {Verdict.COMPATIBLE: "notice", Verdict.REVIEW: "warning", Verdict.BREAKING: "warning"}
_MARKS: Final = {Verdict.COMPATIBLE: "🟢", Verdict.REVIEW: "🟡", Verdict.BREAKING: "🔴"}


def describe_count(tools: Collection[str]) -> str:
    """Count tools, and skills if there are some; instructions belong to their server and are not counted."""
    skills = sum(map(is_skill_name, tools))
    counted = pluralize(count_tools(tools), "tool")
    return f"{counted} and {pluralize(skills, 'skill')}" if skills else counted


def print_drifts(drifts: Sequence[Drift]) -> None:
    """Print each changed tool with its changes; added tools come last, in one list."""
    for drift in drifts:
        if drift.kind == "added":
            continue
        click.echo(f"{heading(printable(drift.name))}  {summarize_drift(drift)}")
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
    for change in judgement.changes:
        mark = colorize(change.verdict, change.verdict.ljust(_WIDTH))
        click.echo(f"  {mark}  {printable(f'{change.rule}  {change.place}')}")
        _print_lines(describe_change(change))
    if judgement.is_cut_short:
        click.echo(f"{_INDENT}the comparison stopped at its work limit: some changes may not be listed")


def summarize_drift(drift: Drift) -> str:
    """Return the kind and verdict of a drift, and which promise it breaks."""
    words: list[str] = [drift.kind]
    if drift.kind == "renamed" and drift.new is not None:
        words.append(f"to {drift.new.name}")
    words.append(colorize(drift.verdict))
    if drift.failure is not None:
        words.append(f"({drift.failure.reason})")
    return " ".join(words)


def colorize(verdict: Verdict, text: str | None = None) -> str:
    """Color a text by a verdict; plain where stdout shows no color."""
    label = text if text is not None else verdict.value
    return click.style(label, fg=_COLORS[verdict]) if has_color(sys.stdout) else label


def describe_finding(finding: Finding) -> Iterator[str]:
    yield f"{finding.kind.value}: {finding.message}"
    yield f"in: {finding.excerpt}"


def _print_finding(finding: Finding, place: str) -> None:
    click.echo(f"  {colorize(Verdict.REVIEW, _SUSPICIOUS.ljust(_WIDTH))}  {printable(place)}")
    _print_lines(describe_finding(finding))


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(printable(f"{_INDENT}{line}"))


def render_github(
    drifts: Sequence[Drift], missing: Mapping[str, str], file: LockFile, *, failures: Sequence[Drift]
) -> Iterator[str]:
    """Yield workflow commands: failures are errors, what needs a review a warning, the rest a notice."""
    lines = find_lines([drift.name for drift in drifts], file.text or "")
    name = _escape_property(file.path.name)
    for drift in drifts:
        level = "error" if drift in failures else "warning" if drift.findings else _LEVELS[drift.verdict]
        title = _escape_property(f"{drift.name}: {drift.kind}, {drift.verdict.value}")
        place = f"file={name},line={lines[drift.name]},title={title}"
        yield f"::{level} {place}::{_escape_data(_render_annotation(drift))}"
    for source, reason in missing.items():
        yield f"::warning file={name},title={_escape_property(f'{source}: not compared')}::{_escape_data(reason)}"


def render_markdown(
    drifts: Sequence[Drift], missing: Mapping[str, str], *, compared: int, failures: Sequence[Drift]
) -> str:
    lines = ["## Tool contracts", "", _summarize(drifts, compared, failures), ""]
    for drift in drifts:
        lines += _render_section(drift, is_failure=drift in failures)
    lines += [f"- ⚪ `{name}`: not compared: {_escape_markdown(reason)}" for name, reason in missing.items()]
    return "\n".join(lines).rstrip()


def _summarize(drifts: Sequence[Drift], compared: int, failures: Sequence[Drift]) -> str:
    if not drifts:
        return f"All {compared} tools match the lock."
    # A tool that was added is not in the lock, so it is not one of those compared.
    added = sum(drift.kind == "added" for drift in drifts)
    news = f", {added} added" if added else ""
    return f"{len(drifts) - added} of {compared} tools changed{news}; {len(failures)} broke their contract."


def _render_section(drift: Drift, *, is_failure: bool) -> list[str]:
    target = f" to `{drift.new.name}`" if drift.kind == "renamed" and drift.new is not None else ""
    lines = [f"### {_MARKS[drift.verdict]} `{drift.name}` {drift.kind}{target}", ""]
    if is_failure and drift.failure is not None:
        lines += [f"**{drift.failure.reason[0].upper()}{drift.failure.reason[1:]}.**", ""]
    for change in drift.judgement.changes:
        first, *rest = describe_change(change)
        lines.append(
            f"- **{change.verdict.value}** `{change.rule}` at {_render_code(change.place)}: {_escape_markdown(first)}"
        )
        lines += [f"  - {_escape_markdown(line)}" for line in rest]
    for finding in drift.findings:
        first, *rest = describe_finding(finding)
        lines.append(f"- ⚠️ **suspicious** at {_render_code(finding.place)}: {_escape_markdown(first)}")
        lines += [f"  - {_escape_markdown(line)}" for line in rest]
    return [*lines, ""]


def _render_annotation(drift: Drift) -> str:
    first = [f"{drift.failure.reason[0].upper()}{drift.failure.reason[1:]}."] if drift.failure is not None else []
    changes = [
        f"{change.verdict.value}: {change.rule} {change.place}\n"
        + "\n".join(f"  {line}" for line in describe_change(change))
        for change in drift.judgement.changes
    ]
    changes += [
        f"suspicious: {finding.place}\n" + "\n".join(f"  {line}" for line in describe_finding(finding))
        for finding in drift.findings
    ]
    return "\n".join(first + changes) or f"It was {drift.kind}."


def _escape_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


def _render_code(text: str) -> str:
    """Write a path as code; property names in it are the server's and may hold backticks."""
    return f"`{' '.join(text.replace('`', chr(39)).split())}`"


def _escape_markdown(text: str) -> str:
    """Keep text of servers from being rendered as Markdown or HTML."""
    text = text.replace("\\", "\\\\").replace("<", "&lt;").replace("\n", " ")
    for character in "`*_[]|#@":
        text = text.replace(character, f"\\{character}")
    return text
