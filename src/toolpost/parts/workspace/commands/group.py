"""`toolpost workspace`: build, search and inspect the code index."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import click

from toolpost.base.ids import JsonObject
from toolpost.cli.call.command import show_answer_error
from toolpost.cli.call.in_process import RequestedCall, call_in_process
from toolpost.cli.examples import examples
from toolpost.cli.exits import ExitCode
from toolpost.cli.failures import warn
from toolpost.cli.gateway import run_async
from toolpost.cli.group import SuggestingGroup
from toolpost.cli.options import apply_options, config_option, json_option, load_cli_config
from toolpost.cli.show import print_encoded, print_json_line
from toolpost.cli.signals import on_signals
from toolpost.parts.workspace.commands.output import print_built, print_hits, print_status, print_update
from toolpost.parts.workspace.languages import KINDS, LANGUAGES
from toolpost.parts.workspace.part import read_workspace
from toolpost.parts.workspace.service import WorkspaceService
from toolpost.settings import Config

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
        ("toolpost workspace build", "what has changed since the last build"),
        ("toolpost workspace build --from-scratch --repo api", "one repository, all of it"),
        ("toolpost workspace build --watch", "and what changes from now on, until Ctrl-C"),
    )
)
@click.option("--repo", metavar="NAME", help="The repository to build; every one unless named.")
@click.option("--mode", type=_MODES, default="all", show_default=True, help="What the index holds.")
@click.option("--from-scratch", is_flag=True, help="Rebuild from scratch.")
@click.option("--force", is_flag=True, help="Compare every file by its content, whatever its size and times say.")
@click.option("--watch", is_flag=True, help="Keep running and index changes, until Ctrl-C.")
@config_option
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
@json_option("Print what the tool returned, on one line.")
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
    code = _run("index_build", arguments, config_path, print_built, quiet=quiet, as_json=as_json)
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
            print_update(built)

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
@click.option("--language", type=click.Choice([language.name for language in LANGUAGES]), help="Only this language.")
@click.option("--kind", type=click.Choice(list(KINDS)), help="Only this kind of symbol.")
@click.option("--symbol", metavar="NAME", help="Name of the symbol; * stands for anything.")
@click.option("--case", is_flag=True, help="Case-sensitive.")
@click.option("--regex", is_flag=True, help="The query is a regular expression (RE2).")
@config_option
@json_option("Print what the tool returned, on one line.")
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
    return _run("search", arguments | _drop_unset(**filters), config_path, print_hits, quiet=True, as_json=as_json)


@workspace.command(
    epilog=examples(
        ("toolpost workspace status", "every repository, and how its index is"),
        ("toolpost workspace status --json", "for other programs"),
    )
)
@config_option
@json_option("Print what the tool returned, on one line.")
def status(config_path: Path | None, *, as_json: bool) -> ExitCode:
    """Show every repository and how its index is doing."""
    return _run("workspace_status", {}, config_path, print_status, quiet=True, as_json=as_json)


def _drop_unset(**options: str | None) -> JsonObject:
    return {name: value for name, value in options.items() if value is not None}


def _run(
    tool: str, arguments: JsonObject, config_path: Path | None, show: Any, *, quiet: bool, as_json: bool
) -> ExitCode:
    """Call the tool through the same middleware as any other caller, and print its answer."""
    request = RequestedCall(tool=f"workspace__{tool}", words=[arguments], quiet=quiet)
    # These commands are about one plugin, whether or not it is served to clients as well.
    config = apply_options(load_cli_config(config_path), bundled=("workspace",))
    answer = run_async(call_in_process, config, request)
    if as_json:
        print_encoded(answer.encoded)
    if answer.error is not None:
        return show_answer_error(answer, answer.error)
    if not as_json:
        show(answer.data)
    return ExitCode.OK
