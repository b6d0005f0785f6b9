"""`toolpost check`: what is live compared with the lock, for a pipeline and for people."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from toolpost.cli.doctor.output import counted
from toolpost.cli.examples import examples
from toolpost.cli.exits import ExitCode
from toolpost.cli.failures import warn
from toolpost.cli.gateway import run_async
from toolpost.cli.lock.files import LockFile, lock_option, only_option
from toolpost.cli.lock.live import live_tools, restricted
from toolpost.cli.lock.output import print_drifts
from toolpost.cli.lock.reports import github_lines, markdown
from toolpost.cli.options import config_option, configured, json_option, plugin_option
from toolpost.cli.show import print_json_line
from toolpost.cli.terminal import printable
from toolpost.contracts.compatibility import Verdict, judge
from toolpost.contracts.lockfile import Drift, drifts

FORMATS: Final = ("text", "json", "github", "markdown")


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What a check has found."""

    compared: int
    drifts: Sequence[Drift]
    missing: Mapping[str, str]
    is_strict: bool

    @property
    def failures(self) -> list[Drift]:
        """What may not be."""
        return [drift for drift in self.drifts if self.is_strict or drift.failure is not None]

    @property
    def exit_code(self) -> ExitCode:
        """A failure is sure whatever could not be looked at."""
        if self.failures:
            return ExitCode.FAILED
        return ExitCode.USAGE if self.missing else ExitCode.OK


@click.command(
    epilog=examples(
        ("toolpost check", "before a release, and in CI"),
        ("toolpost check --strict", "let nothing be different at all"),
        ("toolpost check --format github", "as annotations of a GitHub Action"),
        ("toolpost check --format markdown >> $GITHUB_STEP_SUMMARY", "for a pull request"),
        ("toolpost check --server github --json", "one server, for other programs"),
    )
)
@click.option("--strict", is_flag=True, help="Fail on anything that is different.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", help="How it is printed.")
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
    """Compare every tool with the lock.

    Ends with 0 if nothing is different, or only in ways that harm no caller; with 1 if a tool broke its promise: a breaking
    change without a higher schemaVersion, a higher one without a cause, a lower one, a tool that is gone without an alias;
    with 2 if a server did not start and nothing else is wrong.
    """
    config = configured(config_path, plugins)
    file = LockFile.of(config, lock_path)
    locked = restricted(file.required(), only)
    live = run_async(live_tools, config, only)
    known = {name: tool for name, tool in locked.items() if tool.source not in live.missing}
    found = list(drifts(known, live.tools, judge=judge))
    checked = Checked(compared=len(known), drifts=found, missing=live.missing, is_strict=strict)
    _PRINTERS["json" if as_json else form](checked, file)
    return checked.exit_code


def _print_text(checked: Checked, file: LockFile) -> None:
    print_drifts(checked.drifts)
    for name, reason in checked.missing.items():
        warn(f"cannot tell about `{name}`: {reason}")
    if checked.failures:
        click.echo(
            printable(
                f"{counted(len(checked.failures), 'tool')} of {checked.compared} broke the promise in {file.path.name}"
            )
        )
        click.echo("hint: raise schemaVersion, or take the change over: toolpost lock --accept NAME", err=True)
    elif not checked.missing:
        click.echo(
            printable(
                "; ".join([f"{counted(checked.compared, 'tool')} compared with {file.path.name}", *_in_short(checked)])
            )
        )


def _in_short(checked: Checked) -> Iterator[str]:
    """Say what is different and lets the check pass all the same."""
    harmless = [drift for drift in checked.drifts if drift.verdict is Verdict.COMPATIBLE and not drift.findings]
    counts = {kind: sum(drift.kind == kind for drift in harmless) for kind in ("added", "changed", "renamed")}
    counts["to be looked at"] = len(checked.drifts) - len(harmless)
    if not checked.drifts:
        yield "all are as promised"
    yield from (f"{number} {what}" for what, number in counts.items() if number)


def _print_json(checked: Checked, _file: LockFile) -> None:
    print_json_line(
        {
            "ok": checked.exit_code is ExitCode.OK,
            "compared": checked.compared,
            "failures": [drift.name for drift in checked.failures],
            "missing": dict(checked.missing),
            "drifts": [drift.to_json() for drift in checked.drifts],
        }
    )


def _print_github(checked: Checked, file: LockFile) -> None:
    for line in github_lines(checked.drifts, checked.missing, file, failures=checked.failures):
        click.echo(printable(line))


def _print_markdown(checked: Checked, _file: LockFile) -> None:
    click.echo(
        printable(markdown(checked.drifts, checked.missing, compared=checked.compared, failures=checked.failures))
    )


_PRINTERS: Final = {"text": _print_text, "json": _print_json, "github": _print_github, "markdown": _print_markdown}
