"""`toolpost workspace`: build, search and inspect the code index."""

import asyncio
import dataclasses
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from toolpost.base import JsonObject
from toolpost.cli import call_and_show
from toolpost.parts.workspace.languages import KINDS, LANGUAGES
from toolpost.parts.workspace.part import read_workspace
from toolpost.parts.workspace.service import WorkspaceService
from toolpost.settings import Config
from toolpost.terminal import (
    ExitCode,
    SuggestingGroup,
    apply_options,
    config_option,
    examples,
    format_size,
    has_color,
    json_option,
    load_cli_config,
    on_signals,
    print_json_line,
    print_table,
    printable,
    run_async,
    table,
    warn,
)

_LANGUAGES = [language.name for language in LANGUAGES]
_MODES = click.Choice(["all", "code", "prose"])


@click.group(
    cls=SuggestingGroup,
    epilog=examples(
        ("toolpost workspace build", "index the code of this project"),
        ("toolpost workspace search getUserById", "find a definition, then its uses"),
        ("toolpost workspace status", "see how the index is doing"),
    ),
)
def workspace() -> None:
    """Build, search and look after the code index.

    The same tools that clients call as workspace__index_build, workspace__search and workspace__workspace_status;
    [workspace] in toolpost.toml names the folders.
    """


@workspace.command(
    epilog=examples(
        ("toolpost workspace build", "changes since the last"),
        ("toolpost workspace build --from-scratch --repo api", "all of one repository"),
        ("toolpost workspace build --watch", "until Ctrl-C"),
    )
)
@click.option("--repo", metavar="NAME", help="The repository to build; every one unless named.")
@click.option("--mode", type=_MODES, default="all", show_default=True, help="Contents of the index.")
@click.option("--from-scratch", is_flag=True, help="Rebuild from scratch.")
@click.option(
    "--force", is_flag=True, help="Compare every file by its content, even if its size and times are unchanged."
)
@click.option("--watch", is_flag=True, help="Keep running and index changes, until Ctrl-C.")
@config_option
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
@json_option("Print the tool's result on one line.")
def build(
    repo: str | None,
    mode: str,
    config_path: Path | None,
    *,
    from_scratch: bool,
    force: bool,
    watch: bool,
    quiet: bool,
    as_json: bool,
) -> ExitCode:
    """Build the index, or bring it up to date."""
    arguments = _drop_unset(repo=repo) | {"mode": mode, "incremental": not from_scratch, "force": force}
    code = _run("index_build", arguments, config_path, _print_built, quiet=quiet, as_json=as_json)
    if watch and code is ExitCode.OK:
        run_async(_watch, load_cli_config(config_path), repo, as_json)
    return code


async def _watch(config: Config, repo: str | None, as_json: bool) -> None:
    """Print each update until Ctrl-C."""
    spec = read_workspace(config)
    service = WorkspaceService(dataclasses.replace(spec, repositories=spec.select(repo)))
    stop = asyncio.Event()

    def show(built: JsonObject) -> None:
        if as_json:
            print_json_line({"repositories": [built], "failures": []})
        else:
            at = datetime.now().astimezone().strftime("%H:%M:%S")
            name = _style(printable(built["repo"]), "magenta")
            click.echo(f"{_style(at, 'green')}  {name}: {_count_changes(built)} in {built['seconds']:.1f} s")

    with on_signals(stop.set):
        async with service.open_watching(on_built=show, on_problem=lambda name, what: warn(f"{name}: {what}")):
            click.echo("watching for changes (Ctrl-C stops it)", err=True)
            await stop.wait()


@workspace.command(
    epilog=examples(
        ("toolpost workspace search getUserById", "by name: definitions first"),
        ("toolpost workspace search 'read the configuration'", "in plain words"),
        ("toolpost workspace search '\"raise ValueError\"' --path src -C 2", "a phrase, with lines around it"),
        ("toolpost workspace search 'def test_\\w+' --regex --top 20", "a regular expression"),
    )
)
@click.argument("query", nargs=-1, required=True)
@click.option("--repo", metavar="NAME", help="The repository to search; all of them unless named.")
@click.option("--mode", type=_MODES, default="all", show_default=True, help="Where to look.")
@click.option("-n", "--top", type=click.IntRange(1, 100), default=5, show_default=True, help="How many hits.")
@click.option("-C", "--context", type=click.IntRange(0, 50), default=0, help="Lines of context around each hit.")
@click.option("--path", metavar="GLOB", help="A folder, a file or a glob.")
@click.option(
    "--language", type=click.Choice(_LANGUAGES), metavar="NAME", help=f"Only this language: {', '.join(_LANGUAGES)}."
)
@click.option(
    "--kind", type=click.Choice(list(KINDS)), metavar="KIND", help=f"Only symbols of this kind: {', '.join(KINDS)}."
)
@click.option("--symbol", metavar="NAME", help="Name of the symbol; * stands for anything.")
@click.option("--case", is_flag=True, help="Case-sensitive.")
@click.option("--regex", is_flag=True, help="The query is a regular expression (RE2).")
@config_option
@json_option("Print the tool's result on one line.")
def search(
    query: tuple[str, ...],
    top: int,
    context: int,
    config_path: Path | None,
    *,
    case: bool,
    regex: bool,
    as_json: bool,
    **filters: str | None,
) -> ExitCode:
    """Search the index."""
    arguments = {"query": " ".join(query), "top": top, "context": context, "case": case, "regex": regex}
    return _run("search", arguments | _drop_unset(**filters), config_path, _print_hits, quiet=True, as_json=as_json)


@workspace.command(
    epilog=examples(
        ("toolpost workspace status", "every repository, and how its index is"),
        ("toolpost workspace status --json", "for other programs"),
    )
)
@config_option
@json_option("Print the tool's result on one line.")
def status(config_path: Path | None, *, as_json: bool) -> ExitCode:
    """Show every repository and how its index is doing."""
    return _run("workspace_status", {}, config_path, _print_status, quiet=True, as_json=as_json)


def _drop_unset(**options: str | None) -> JsonObject:
    return {name: value for name, value in options.items() if value is not None}


def _run(
    tool: str, arguments: JsonObject, config_path: Path | None, show: Any, *, quiet: bool, as_json: bool
) -> ExitCode:
    """Call the tool, and print its answer."""
    # These commands are about one plugin, whether or not it is served to clients as well.
    config = apply_options(load_cli_config(config_path), bundled=("workspace",))
    return call_and_show(config, f"workspace__{tool}", arguments, show, quiet=quiet, as_json=as_json)


def _print_hits(found: JsonObject) -> None:
    """Print each hit with its place, its symbol and its best line; notes go to stderr."""
    for number, hit in enumerate(found["hits"]):
        if number:
            click.echo()
        _print_hit(hit, with_repo=len(found["searched"]) > 1)
    if not found["hits"]:
        click.echo("nothing was found", err=True)
    for failure in found["failures"]:
        warn(f"{failure['repo']}: {failure['message']}")
    if count := len(found["stale"]):
        click.echo(f"{count} {'file has' if count == 1 else 'files have'} changed since indexed", err=True)
    if found["truncated"]:
        click.echo("there may be more: the search stopped before it had seen everything", err=True)


def _print_hit(hit: JsonObject, *, with_repo: bool) -> None:
    place = f"{hit['repo']}:{hit['path']}" if with_repo else hit["path"]
    symbol = f"  {hit['kind']} {hit['symbol']}" if "symbol" in hit else ""
    stale = "  (changed since it was indexed)" if hit["stale"] else ""
    lines = f":{hit['startLine']}-{hit['endLine']}"
    click.echo(
        f"{_style(printable(place), 'magenta')}{_style(lines, 'green')}{_style(printable(symbol), 'cyan')}{stale}"
    )
    if "lines" not in hit:
        click.echo(f"{_number(hit['line'])}  {printable(hit['headline'])}")
    for line in hit.get("lines", ()):
        is_best = line["line"] == hit["line"]
        text = printable(line["text"])
        click.echo(f"{_number(line['line'])}  {_style(text, 'bright_white') if is_best else text}")


def _number(line: int) -> str:
    return _style(f"{line:>6}", "green")


def _print_built(built: JsonObject) -> None:
    """Print a table with one row for each repository."""
    rows = [
        (
            one["repo"],
            f"{one['files']:,}",
            f"{one['lines']:,}",
            _count_changes(one),
            f"{one['seconds']:.1f} s",
            ", ".join(f"{count} {reason}" for reason, count in one["skipped"].items()) or "-",
        )
        for one in built["repositories"]
    ]
    print_table(table("REPOSITORY", "FILES", "LINES", "CHANGES", "TIME", "LEFT OUT", rows=rows))
    for one in built["repositories"]:
        if "rebuilt" in one:
            click.echo(printable(f"{one['repo']} was built from nothing: {one['rebuilt']}"), err=True)
    for failure in built["failures"]:
        warn(f"{failure['repo']}: {failure['message']}")


def _count_changes(built: JsonObject) -> str:
    return ", ".join(f"{built[kind]} {kind}" for kind in ("added", "changed", "renamed", "removed"))


def _print_status(status: JsonObject) -> None:
    """Print a table with the state of each index."""
    rows = [
        (
            one["repo"],
            _state(one),
            f"{one.get('files', 0):,}",
            f"{one.get('lines', 0):,}",
            format_size(one.get("bytes", 0)),
            _age(one.get("ageSeconds")),
            one["root"],
        )
        for one in status["repositories"]
    ]
    print_table(table("REPOSITORY", "STATE", "FILES", "LINES", "SIZE", "AGE", "FOLDER", rows=rows))
    for failure in status["failures"]:
        warn(f"{failure['repo']}: {failure['message']}")


def _state(one: JsonObject) -> str:
    if one["damaged"]:
        return "damaged"
    if not one["exists"]:
        return "no index"
    changed = sum(one["changed"][kind] for kind in ("added", "modified", "deleted"))
    return f"{changed} changed" if changed else "fresh"


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _style(text: str, color: str) -> str:
    return click.style(text, fg=color) if has_color(sys.stdout) else text
