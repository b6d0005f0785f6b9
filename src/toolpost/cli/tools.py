"""`toolpost tools`: what there is to call."""

from pathlib import Path

import click

from toolpost.base.nearest import nearest_name
from toolpost.cli.definition import first_sentence, print_tool, spelled_concurrency
from toolpost.cli.examples import examples
from toolpost.cli.exits import ExitCode
from toolpost.cli.gateway import (
    complete_tool_names,
    find_tool,
    open_quiet_app,
    run_async,
    warn_of_problems,
    without_store,
)
from toolpost.cli.options import config_option, configured, json_option, plugin_option
from toolpost.cli.show import print_json_line, print_table, table
from toolpost.contracts.errors import NotFound
from toolpost.discovery import EVERYTHING, View
from toolpost.members import scopes_of
from toolpost.providers import HeldTool
from toolpost.settings import Config


@click.command(
    epilog=examples(
        ("toolpost tools", "list all of them"),
        ("toolpost tools time__convert_time", "show one in full"),
        ("toolpost tools --caller ada", "what this caller sees over HTTP"),
        ("toolpost tools --json --plugin my_package.my_module:plugin", "the definitions, as clients see them"),
    )
)
@click.argument("name", required=False, shell_complete=complete_tool_names)
@config_option
@plugin_option
@click.option("--caller", metavar="NAME", help="Show what this caller of [callers.NAME] sees over HTTP.")
@json_option("Print the definitions as they are listed on the wire: an array, or with NAME one object.")
def tools(
    name: str | None, config_path: Path | None, plugins: tuple[str, ...], caller: str | None, *, as_json: bool
) -> ExitCode:
    """List the tools, or show one in full.

    A server that does not start is named on stderr, and the command ends with 1.
    """
    config = configured(config_path, plugins)
    found, code = run_async(_found, config, name, _view(config, caller))
    if as_json:
        definitions = [tool.contract.definition for tool in found]
        print_json_line(definitions if name is None else definitions[0])
    elif name is None:
        _print_list(found, caller, has_failures=code is not ExitCode.OK)
    else:
        print_tool(found[0])
    return code if name is None else ExitCode.OK


def _view(config: Config, caller: str | None) -> View:
    if caller is None:
        return EVERYTHING
    if (settings := config.callers.get(caller)) is None:
        near = nearest_name(caller, config.callers)
        known = f"known: {', '.join(config.callers)}" if config.callers else "[callers.NAME] in toolpost.toml makes one"
        raise NotFound(f"No caller is called `{caller}`.", hint=f"did you mean `{near}`?" if near else known)
    return EVERYTHING.within((*scopes_of(config.http), *scopes_of(settings)))


async def _found(config: Config, name: str | None, view: View) -> tuple[list[HeldTool], ExitCode]:
    async with open_quiet_app(without_store(config)) as app:
        code = warn_of_problems(app)
        seen = app.gateway.catalogue.seen_through(view)
        return list(seen) if name is None else [find_tool(app, seen, name)], code


def _print_list(found: list[HeldTool], caller: str | None, *, has_failures: bool) -> None:
    if not found and caller is not None:
        click.echo(f"`{caller}` sees no tools; callers.{caller} and [http] in toolpost.toml limit them", err=True)
        return
    if not found and has_failures:
        return
    if not found:
        click.echo("there are no tools; `--plugin` or `plugins.load` in toolpost.toml brings some", err=True)
        return
    rows = [
        (
            tool.contract.name,
            tool.contract.terms.tooling_version or "-",
            f"{tool.contract.timeout_s:g} s",
            spelled_concurrency(tool.contract),
            first_sentence(tool.contract),
        )
        for tool in found
    ]
    columns = ("NAME", "VERSION", "TIME LIMIT", "CONCURRENCY", "WHAT IT DOES")
    print_table(table(*columns, rows=rows, optional=("VERSION", "CONCURRENCY", "TIME LIMIT")))
