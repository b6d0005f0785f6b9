"""Changes of tools for a pull request: annotations of a GitHub Action, and Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from toolpost.cli.lock.files import LockFile
from toolpost.cli.lock.output import lines_about, lines_about_finding
from toolpost.contracts.compatibility import Verdict
from toolpost.contracts.lockfile import Drift, find_lines

_LEVELS: Final = {Verdict.COMPATIBLE: "notice", Verdict.REVIEW: "warning", Verdict.BREAKING: "warning"}
_MARKS: Final = {Verdict.COMPATIBLE: "🟢", Verdict.REVIEW: "🟡", Verdict.BREAKING: "🔴"}


def github_lines(
    drifts: Sequence[Drift], missing: Mapping[str, str], file: LockFile, *, failures: Sequence[Drift]
) -> Iterator[str]:
    """Write workflow commands: what fails is an error, what a person should look at a warning, the rest a notice."""
    lines = find_lines([drift.name for drift in drifts], file.text or "")
    for drift in drifts:
        level = "error" if drift in failures else "warning" if drift.findings else _LEVELS[drift.verdict]
        title = _property(f"{drift.name}: {drift.kind}, {drift.verdict.value}")
        yield f"::{level} file={_property(file.path.name)},line={lines[drift.name]},title={title}::{_data(_text(drift))}"
    for name, reason in missing.items():
        yield f"::warning file={_property(file.path.name)},title={_property(f'{name}: cannot tell')}::{_data(reason)}"


def markdown(drifts: Sequence[Drift], missing: Mapping[str, str], *, compared: int, failures: Sequence[Drift]) -> str:
    """Write a summary with a section for each tool."""
    lines = ["## Tool contracts", "", _summary(drifts, compared, failures), ""]
    for drift in drifts:
        lines += _section(drift, is_failure=drift in failures)
    lines += [f"- ⚪ `{name}`: cannot tell: {_escaped(reason)}" for name, reason in missing.items()]
    return "\n".join(lines).rstrip()


def _summary(drifts: Sequence[Drift], compared: int, failures: Sequence[Drift]) -> str:
    if not drifts:
        return f"All {compared} tools are as they were locked."
    return f"{len(drifts)} of {compared} tools are different; {len(failures)} broke the promise."


def _section(drift: Drift, *, is_failure: bool) -> list[str]:
    target = f" to `{drift.new.name}`" if drift.kind == "renamed" and drift.new is not None else ""
    lines = [f"### {_MARKS[drift.verdict]} `{drift.name}` {drift.kind}{target}", ""]
    if is_failure and drift.failure is not None:
        lines += [f"**{drift.failure.reason[0].upper()}{drift.failure.reason[1:]}.**", ""]
    for change in drift.judgement.changes:
        first, *rest = lines_about(change)
        lines.append(f"- **{change.verdict.value}** `{change.rule}` at {_code(change.place)}: {_escaped(first)}")
        lines += [f"  - {_escaped(line)}" for line in rest]
    for finding in drift.findings:
        first, *rest = lines_about_finding(finding)
        lines.append(f"- ⚠️ **suspicious** at {_code(finding.place)}: {_escaped(first)}")
        lines += [f"  - {_escaped(line)}" for line in rest]
    return [*lines, ""]


def _text(drift: Drift) -> str:
    first = [f"{drift.failure.reason[0].upper()}{drift.failure.reason[1:]}."] if drift.failure is not None else []
    changes = [
        f"{change.verdict.value}: {change.rule} {change.place}\n"
        + "\n".join(f"  {line}" for line in lines_about(change))
        for change in drift.judgement.changes
    ]
    changes += [
        f"suspicious: {finding.place}\n" + "\n".join(f"  {line}" for line in lines_about_finding(finding))
        for finding in drift.findings
    ]
    return "\n".join(first + changes) or f"It was {drift.kind}."


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _code(text: str) -> str:
    """Write a place as code, whatever names others have given to what it leads to."""
    return f"`{' '.join(text.replace('`', chr(39)).split())}`"


def _escaped(text: str) -> str:
    """Keep what others wrote from being read as Markdown or HTML."""
    text = text.replace("\\", "\\\\").replace("<", "&lt;").replace("\n", " ")
    for character in "`*_[]|#@":
        text = text.replace(character, f"\\{character}")
    return text
