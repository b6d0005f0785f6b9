"""`toolpost lock`: write the definitions of all tools to the lock file."""

from collections.abc import Collection, Sequence
from pathlib import Path

import click

from toolpost.admin.lock_file import LockFile, accept_changes, is_named
from toolpost.app.tool_states import LiveTools, filter_by_source, load_live_tools, read_pinned_tools
from toolpost.cli.contracts.options import lock_option, only_option
from toolpost.cli.contracts.output import describe_count, print_drifts
from toolpost.contracts.compatibility import judge
from toolpost.contracts.errors import InvalidRequest, UpstreamUnavailable
from toolpost.contracts.lockfile import Drift, LockedTool, LockedTools, count_tools, drifts
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
)
from toolpost.terminal.options import mention_unused_client_file


@click.command(
    epilog=examples(
        ("toolpost lock", "write the lock; commit it"),
        ("toolpost lock --dry-run", "show the changes"),
        ("toolpost lock --accept github__create_issue", "accept the change of one tool"),
        ("toolpost lock --accept 'github__*'", "or of several"),
        ("toolpost lock --server github", "only the tools of one server"),
    )
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--accept", is_flag=True, help="Accept the changes of the named tools only; `*` matches any text.")
@only_option
@click.option("--dry-run", is_flag=True, help="Show the changes, write nothing.")
@lock_option
@config_option
@plugin_option
@json_option("Print `{path, written, tools, drifts}` on one line.")
def lock(
    names: tuple[str, ...],
    only: tuple[str, ...],
    lock_path: Path | None,
    config_path: Path | None,
    plugins: tuple[str, ...],
    *,
    accept: bool,
    dry_run: bool,
    as_json: bool,
) -> ExitCode:
    """Write the definitions of all tools to toolpost.lock.

    Plugins are loaded and servers started once. The file holds whole definitions and is made to be committed; a running
    gateway loads a changed one at once. Where there is no lock yet, `--accept` takes the other tools from the pins: the
    definitions as the gateway first saw them.
    """
    if accept != bool(names):
        raise InvalidRequest(
            "Tool names need `--accept`." if names else "`--accept` needs the names of tools.",
            hint="for example: toolpost lock --accept github__create_issue",
        )
    config = load_cli_config(config_path, plugins)
    mention_unused_client_file(config_path)
    file = LockFile.of(config, lock_path)
    live = run_async(load_live_tools, config, only)
    before, pinned = file.tools or {}, run_async(read_pinned_tools, config)
    # Without a lock the pins are the baseline, and a tool without a pin is new.
    base = before if file.tools is not None or not accept else {**live.tools, **pinned}
    _refuse_missing(live, names, base)
    after = accept_changes(base, live.tools, names) if accept else _relock(before, live.tools, only)
    known = {name: tool for name, tool in pinned.items() if name in after} | before
    found = list(drifts(known, after, judge=judge))
    # What the lock did not have is added to it, though it may be as it was first seen.
    told = {drift.name for drift in found} | base.keys()
    found += drifts({}, {name: tool for name, tool in after.items() if name not in told}, judge=judge)
    written = not dry_run and file.replace(after)
    if as_json:
        print_json_line(
            {
                "path": str(file.path),
                "written": written,
                "tools": count_tools(after),
                "drifts": [drift.to_json() for drift in found],
            }
        )
    else:
        print_drifts(found)
        _print_summary(file.path, after, found, written=written, dry_run=dry_run)
    return ExitCode.OK


def _refuse_missing(live: LiveTools, names: Sequence[str], locked: LockedTools) -> None:
    """Refuse to write an incomplete lock; `--accept` needs only the servers of the tools it names."""
    needed = {tool.source for name, tool in locked.items() if is_named(name, names)} if names else live.missing.keys()
    for name, reason in live.missing.items():
        if name in needed:
            raise UpstreamUnavailable(
                f"Cannot list the tools of `{name}`: {reason}",
                hint="nothing was written; `--server NAME` locks the tools of one server",
            )


def _relock(locked: LockedTools, live: LockedTools, only: Collection[str]) -> dict[str, LockedTool]:
    if not only:
        return dict(live)
    kept = {name: tool for name, tool in locked.items() if tool.source not in only}
    return kept | filter_by_source(live, only)


def _print_summary(path: Path, tools: LockedTools, found: Sequence[Drift], *, written: bool, dry_run: bool) -> None:
    kinds = ("added", "changed", "renamed", "removed")
    counts = {kind: sum(drift.kind == kind for drift in found) for kind in kinds}
    changes = ", ".join(f"{number} {kind}" for kind, number in counts.items() if number) or "no changes"
    verb = "would contain" if dry_run else "contains" if written else "still contains"
    click.echo(printable(f"{path} {verb} {describe_count(tools)}: {changes}"))
