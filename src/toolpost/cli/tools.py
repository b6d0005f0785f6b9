"""`toolpost tools`: what there is to call."""

from pathlib import Path
from typing import Final

import click

from toolpost.base.ids import JsonObject
from toolpost.base.nearest import nearest_name
from toolpost.cli.call.gateway import mcp_url, open_client
from toolpost.cli.definition import (
    first_sentence,
    listed_facts,
    listed_version,
    print_definition,
    print_tool,
    spelled_concurrency,
)
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
from toolpost.cli.options import config_option, configured, json_option, plugin_option, refuse_plugins_beside_url
from toolpost.cli.servers.client import RunningGateway
from toolpost.cli.show import print_json_line, print_table, table
from toolpost.contracts.errors import NotFound, UnknownTool
from toolpost.discovery import EVERYTHING, View
from toolpost.members import scopes_of
from toolpost.providers import ProvidedTool
from toolpost.settings import Config

_WHAT_ROOM: Final = 48
"""Columns that most descriptions need to fit on one line or two."""


@click.command(
    epilog=examples(
        ("toolpost tools", "list all of them"),
        ("toolpost tools time__convert_time", "show one in full"),
        ("toolpost tools --caller ada", "what this caller sees over HTTP"),
        ("toolpost tools --url http://127.0.0.1:8420", "those of a gateway that runs"),
        ("toolpost tools --json --plugin my_package.my_module:plugin", "the definitions, as clients see them"),
    )
)
@click.argument("name", required=False, shell_complete=complete_tool_names)
@click.option(
    "--url",
    metavar="URL",
    help="List what the gateway that runs there lists, and start nothing here; TOOLPOST_TOKEN or http.token_file has its token.",
)
@config_option
@plugin_option
@click.option("--caller", metavar="NAME", help="Show what this caller of [callers.NAME] sees over HTTP.")
@json_option("Print the definitions as they are listed on the wire: an array, or with NAME one object.")
def tools(
    name: str | None,
    url: str | None,
    config_path: Path | None,
    plugins: tuple[str, ...],
    caller: str | None,
    *,
    as_json: bool,
) -> ExitCode:
    """List the tools, or show one in full.

    A server that does not start is named on stderr, and the command ends with 1.
    """
    refuse_plugins_beside_url(url, plugins)
    config = configured(config_path, plugins)
    if url is not None:
        if caller is not None:
            raise click.UsageError(
                "--caller is about this configuration; a gateway that runs knows callers by their tokens"
            )
        listed = run_async(_listed, RunningGateway(url=mcp_url(url), token=config.token()), name)
        _show_listed(listed, name, as_json=as_json)
        return ExitCode.OK
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


async def _found(config: Config, name: str | None, view: View) -> tuple[list[ProvidedTool], ExitCode]:
    async with open_quiet_app(without_store(config)) as app:
        code = warn_of_problems(app)
        seen = app.gateway.catalog.narrow(view)
        return list(seen) if name is None else [find_tool(app, seen, name)], code


async def _listed(gateway: RunningGateway, name: str | None) -> list[JsonObject]:
    """Ask a gateway that runs for its definitions, or for the one of this name."""
    async with open_client(gateway) as client:
        listed = await client.list_tools(until=name)
    if name is None:
        return listed
    if found := [tool for tool in listed if tool.get("name") == name]:
        return found
    near = nearest_name(name, [str(tool.get("name")) for tool in listed])
    meant = f"did you mean `{near}`? " if near else ""
    hint = f"{meant}`toolpost tools --url {gateway.url}` lists all of them"
    raise UnknownTool(f"No tool is called `{name}`.", hint=hint)


def _show_listed(listed: list[JsonObject], name: str | None, *, as_json: bool) -> None:
    if as_json:
        print_json_line(listed if name is None else listed[0])
    elif name is not None:
        print_definition(listed[0], listed_facts(listed[0]))
    elif not listed:
        click.echo("the gateway lists no tools", err=True)
    else:
        rows = [(str(tool.get("name")), listed_version(tool), first_sentence(tool)) for tool in listed]
        print_table(table("NAME", "VERSION", "WHAT IT DOES", rows=rows, optional=("VERSION",), last_room=_WHAT_ROOM))


def _print_list(found: list[ProvidedTool], caller: str | None, *, has_failures: bool) -> None:
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
            first_sentence(tool.contract.definition),
        )
        for tool in found
    ]
    columns = ("NAME", "VERSION", "TIME LIMIT", "CONCURRENCY", "WHAT IT DOES")
    print_table(table(*columns, rows=rows, optional=("VERSION", "CONCURRENCY", "TIME LIMIT"), last_room=_WHAT_ROOM))
