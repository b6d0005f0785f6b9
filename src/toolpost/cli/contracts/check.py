"""`toolpost check`: compare the live tools with the lock file, for CI and for people."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from toolpost.admin.lock_file import LockFile
from toolpost.app.tool_states import filter_by_source, load_live_tools
from toolpost.cli.contracts.options import lock_option, only_option
from toolpost.cli.contracts.output import describe_count, print_drifts, render_github, render_markdown
from toolpost.contracts.compatibility import Verdict, judge
from toolpost.contracts.lockfile import Drift, LockedTools, count_tools, drifts
from toolpost.terminal import (
    ExitCode,
    config_option,
    examples,
    json_option,
    load_cli_config,
    plugin_option,
    print_json_line,
    printable,
    run_async,
    warn,
)
from toolpost.terminal.findings import pluralize

FORMATS: Final = ("text", "json", "github", "markdown")


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    compared: LockedTools
    drifts: Sequence[Drift]
    missing: Mapping[str, str]
    """Servers and plugins whose tools could not be listed, each with the reason."""
    is_strict: bool

    @property
    def failures(self) -> list[Drift]:
        """Drifts that make `toolpost check` fail: broken promises, with `--strict` every difference."""
        return [drift for drift in self.drifts if self.is_strict or drift.failure is not None]

    @property
    def exit_code(self) -> ExitCode:
        """FAILED wins over servers that did not start: a broken promise stays one whatever they would list."""
        if self.failures:
            return ExitCode.FAILED
        return ExitCode.INCOMPLETE if self.missing else ExitCode.OK


@click.command(
    epilog=examples(
        ("toolpost check", "before a release, and in CI"),
        ("toolpost check --strict", "fail on any difference"),
        ("toolpost check --format github", "as annotations of a GitHub Action"),
        ("toolpost check --format markdown >> $GITHUB_STEP_SUMMARY", "for a pull request"),
        ("toolpost check --server github --json", "one server, for other programs"),
    )
)
@click.option("--strict", is_flag=True, help="Fail on anything that is different.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", help="Output format.")
@only_option
@lock_option
@config_option
@plugin_option
@json_option("The same as `--format json`: `{ok, compared, failures, missing, drifts}` on one line.")
def check(
    form: str,
    only: tuple[str, ...],
    lock_path: Path | None,
    config_path: Path | None,
    plugins: tuple[str, ...],
    *,
    strict: bool,
    as_json: bool,
) -> ExitCode:
    """Compare every tool with toolpost.lock.

    Exit code 0: no differences, or only compatible ones. 1: a tool broke its contract: a breaking change without a higher
    schemaVersion, a higher schemaVersion without any change, a lower one, or a tool removed without an alias. 2: a server
    did not start or a plugin did not load, and nothing else is wrong.
    """
    config = load_cli_config(config_path, plugins)
    file = LockFile.of(config, lock_path)
    locked = filter_by_source(file.require_tools(), only)
    live = run_async(load_live_tools, config, only)
    known = {name: tool for name, tool in locked.items() if live.is_comparable(tool)}
    found = list(drifts(known, live.tools, judge=judge))
    report = CheckReport(compared=known, drifts=found, missing=live.missing, is_strict=strict)
    _PRINTERS["json" if as_json else form](report, file)
    return report.exit_code


def _print_text(report: CheckReport, file: LockFile) -> None:
    print_drifts(report.drifts)
    for name, reason in report.missing.items():
        warn(f"`{name}` was not compared: {reason}")
    if report.failures:
        broken = pluralize(len(report.failures), "tool")
        click.echo(printable(f"{broken} of {count_tools(report.compared)} broke the contract in {file.path.name}"))
        click.echo("hint: raise schemaVersion, or accept the change: toolpost lock --accept NAME", err=True)
    elif not report.missing:
        click.echo(
            printable(
                "; ".join([f"{describe_count(report.compared)} compared with {file.path.name}", *_summarize(report)])
            )
        )


def _summarize(report: CheckReport) -> Iterator[str]:
    """Yield what differs and still lets the check pass."""
    harmless = [drift for drift in report.drifts if drift.verdict is Verdict.COMPATIBLE and not drift.findings]
    counts = {kind: sum(drift.kind == kind for drift in harmless) for kind in ("added", "changed", "renamed")}
    counts["to review"] = len(report.drifts) - len(harmless)
    if not report.drifts:
        yield "no changes"
    yield from (f"{number} {what}" for what, number in counts.items() if number)


def _print_json(report: CheckReport, _file: LockFile) -> None:
    print_json_line(
        {
            "ok": report.exit_code is ExitCode.OK,
            "compared": count_tools(report.compared),
            "failures": [drift.name for drift in report.failures],
            "missing": dict(report.missing),
            "drifts": [drift.to_json() for drift in report.drifts],
        }
    )


def _print_github(report: CheckReport, file: LockFile) -> None:
    for line in render_github(report.drifts, report.missing, file, failures=report.failures):
        click.echo(printable(line))


def _print_markdown(report: CheckReport, _file: LockFile) -> None:
    click.echo(
        printable(
            render_markdown(
                report.drifts, report.missing, compared=count_tools(report.compared), failures=report.failures
            )
        )
    )


_PRINTERS: Final = {"text": _print_text, "json": _print_json, "github": _print_github, "markdown": _print_markdown}
