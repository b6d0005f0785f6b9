"""`toolpost lock`: what is live, written down."""

from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import click

from toolpost.base.nearest import nearest_name
from toolpost.cli.doctor.output import counted
from toolpost.cli.examples import examples
from toolpost.cli.exits import ExitCode
from toolpost.cli.gateway import run_async
from toolpost.cli.lock.files import LockFile, lock_option, only_option
from toolpost.cli.lock.live import Live, live_tools, restricted
from toolpost.cli.lock.output import print_drifts
from toolpost.cli.lock.pins import pinned_tools
from toolpost.cli.options import config_option, configured, json_option, plugin_option
from toolpost.cli.show import print_json_line
from toolpost.cli.terminal import printable
from toolpost.contracts.compatibility import judge
from toolpost.contracts.errors import InvalidRequest, NotFound, UpstreamUnavailable
from toolpost.contracts.lockfile import Drift, LockedTool, LockedTools, drifts


@click.command(
    epilog=examples(
        ("toolpost lock", "write toolpost.lock; commit it"),
        ("toolpost lock --dry-run", "see what would be written"),
        ("toolpost lock --accept github__create_issue", "take over the change of one tool"),
        ("toolpost lock --accept 'github__*'", "or of several"),
        ("toolpost lock --server github", "lock the tools of one server anew"),
    )
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--accept", is_flag=True, help="Take over the changes of the tools that are named; `*` is any text.")
@only_option
@click.option("--dry-run", is_flag=True, help="Say what would change, and write nothing.")
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
    """Write down every tool as it is now, so that no change goes unnoticed.

    Plugins are loaded and servers started once. The file holds whole definitions and is made to be committed; a gateway
    that runs beside it takes it over at once. Where there is no lock yet, `--accept` takes the rest from what the gateway has
    pinned: every tool as it was first seen.
    """
    if accept != bool(names):
        raise InvalidRequest(
            "Names go with `--accept`." if names else "`--accept` takes over the tools that are named.",
            hint="as in: toolpost lock --accept github__create_issue",
        )
    config = configured(config_path, plugins)
    file = LockFile.of(config, lock_path)
    live = run_async(live_tools, config, only)
    before, pinned = file.tools or {}, run_async(pinned_tools, config)
    # Without a lock, what was seen first is what is held to; what is only seen now is seen first.
    base = before if file.tools is not None or not accept else {**live.tools, **pinned}
    _refuse_missing(live, names, base)
    after = _accepted(base, live.tools, names) if accept else _locked_anew(before, live.tools, only)
    known = {name: tool for name, tool in pinned.items() if name in after} | before
    found = list(drifts(known, after, judge=judge))
    written = not dry_run and file.replace(after)
    if as_json:
        _print_json(file.path, after, found, written=written)
    else:
        print_drifts(found)
        _print_end(file.path, after, found, written=written, dry_run=dry_run)
    return ExitCode.OK


def _refuse_missing(live: Live, names: Sequence[str], locked: LockedTools) -> None:
    """Refuse to write what would be half of it; a change of one tool does not need the others."""
    needed = {tool.source for name, tool in locked.items() if _is_named(name, names)} if names else live.missing.keys()
    for name, reason in live.missing.items():
        if name in needed:
            raise UpstreamUnavailable(
                f"The tools of `{name}` are not known: {reason}",
                hint="nothing was written; `--server` locks the tools of others",
            )


def _is_named(tool: str, names: Iterable[str]) -> bool:
    return any(fnmatchcase(tool, name) for name in names)


def _accepted(locked: LockedTools, live: LockedTools, names: Sequence[str]) -> dict[str, LockedTool]:
    known = locked.keys() | live.keys()
    for name in names:
        if not any(fnmatchcase(tool, name) for tool in known):
            near = nearest_name(name, known)
            hint = f"did you mean `{near}`?" if near else "`toolpost tools` lists all of them"
            raise NotFound(f"No tool is called `{name}`.", hint=hint)
    kept = {name: tool for name, tool in locked.items() if not _is_named(name, names)}
    return kept | {name: tool for name, tool in live.items() if _is_named(name, names)}


def _locked_anew(locked: LockedTools, live: LockedTools, only: Collection[str]) -> dict[str, LockedTool]:
    if not only:
        return dict(live)
    kept = {name: tool for name, tool in locked.items() if tool.source not in only}
    return kept | restricted(live, only)


def _print_json(path: Path, tools: LockedTools, found: Sequence[Drift], *, written: bool) -> None:
    print_json_line(
        {
            "path": str(path),
            "written": written,
            "tools": len(tools),
            "drifts": [drift.to_json() for drift in found],
        }
    )


def _print_end(path: Path, tools: LockedTools, found: Sequence[Drift], *, written: bool, dry_run: bool) -> None:
    kinds = ("added", "changed", "renamed", "removed")
    counts = {kind: sum(drift.kind == kind for drift in found) for kind in kinds}
    changes = ", ".join(f"{number} {kind}" for kind, number in counts.items() if number) or "nothing new"
    did = "would hold" if dry_run else "holds" if written else "holds, as before,"
    click.echo(printable(f"{path} {did} {counted(len(tools), 'tool')}: {changes}"))
