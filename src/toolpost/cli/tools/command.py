"""`toolpost tools`: list tools, find some, or show one."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import click

from toolpost.app.callers import scopes_of
from toolpost.app.quiet import open_quiet_app, without_store
from toolpost.base import META_KEY, JsonObject, nearest_name
from toolpost.cli.call.gateway import open_client
from toolpost.cli.call.schemas import describe_type, properties_of, resolve
from toolpost.cli.open_app_problems import complete_tool_names, find_tool, require_named_plugins, warn_of_problems
from toolpost.cli.tools.find import print_found
from toolpost.contracts.contract import Contract, Keyed
from toolpost.contracts.errors import NotFound, UnknownTool
from toolpost.discovery import EVERYTHING, View
from toolpost.providers import ProvidedTool
from toolpost.settings import Config
from toolpost.terminal import (
    ExitCode,
    RunningGateway,
    config_option,
    examples,
    json_option,
    load_cli_config,
    plugin_option,
    print_json_line,
    print_table,
    printable,
    run_async,
    table,
)
from toolpost.terminal.failures import suggest
from toolpost.terminal.options import mention_unused_client_file, refuse_plugins_beside_url
from toolpost.terminal.tables import heading, print_json

_WHAT_ROOM: Final = 48
"""Width at which most descriptions take one or two lines."""


@click.command(
    epilog=examples(
        ("toolpost tools", "list all of them"),
        ("toolpost tools time__convert_time", "show one in full"),
        ("toolpost tools --find convert a time between zones", "search as an agent would; the words need no quotes"),
        ("toolpost tools --caller ada", "the tools of this caller over HTTP"),
        ("toolpost tools --url http://127.0.0.1:8420", "those of a running gateway"),
        ("toolpost tools --json --plugin my_package.my_module:plugin", "the definitions, as clients see them"),
    )
)
@click.argument("names", nargs=-1, metavar="[NAME | --find WORDS...]", shell_complete=complete_tool_names)
@click.option("--find", "finds", is_flag=True, help="Find tools by their effect; all arguments are words.")
@click.option(
    "--url",
    metavar="URL",
    help="List the tools of the running gateway at this URL; its token comes from TOOLPOST_TOKEN or http.token.",
)
@config_option
@plugin_option
@click.option("--caller", metavar="NAME", help="Show the tools that this caller of [callers.NAME] sees over HTTP.")
@json_option(
    "Print the definitions as they are listed on the wire: an array, or with NAME one object. With --find:"
    " `{query, tools: [{name, score, tokens, why}], more: [name], isWeak, sureness, totalAvailable, tokens, …}` on one line."
)
def tools(
    names: tuple[str, ...],
    url: str | None,
    config_path: Path | None,
    plugins: tuple[str, ...],
    caller: str | None,
    *,
    finds: bool,
    as_json: bool,
) -> ExitCode:
    """List the tools, find some, or show one.

    --find shows what `automatic_mcp` would return for these words in a new session, best first, with the words that matched and
    where. A tool without such words was found by its meaning. Scores are comparable within one search only.

    A server that does not start, or a plugin that does not load, is reported on stderr, and the exit code is 1.
    """
    refuse_plugins_beside_url(url, plugins)
    config = load_cli_config(config_path, plugins)
    if finds:
        if url is not None:
            raise click.UsageError("--find cannot be used with --url: call `automatic_mcp` of that gateway instead")
        mention_unused_client_file(config_path)
        return print_found(" ".join(names), config, _view_of(config, caller), as_json=as_json)
    if len(names) > 1:
        raise click.UsageError(f"one tool at a time: `{names[0]}`, or --find to search for tools")
    name = names[0] if names else None
    if url is not None:
        if caller is not None:
            raise click.UsageError(
                "--caller cannot be used with --url: a running gateway identifies callers by their tokens"
            )
        gateway = RunningGateway.of(config, url)
        listed = run_async(_list_remote_tools, gateway, name)
        _print_remote_tools(listed, name, as_json=as_json)
        return ExitCode.OK
    if name is None:
        mention_unused_client_file(config_path)
    found, code = run_async(_find_tools, config, name, _view_of(config, caller))
    if as_json:
        definitions = [tool.contract.definition for tool in found]
        print_json_line(definitions if name is None else definitions[0])
    elif name is None:
        _print_list(found, caller, has_failures=code is not ExitCode.OK)
    else:
        print_tool(found[0])
    return code if name is None else ExitCode.OK


def _view_of(config: Config, caller: str | None) -> View:
    if caller is None:
        return EVERYTHING
    if (settings := config.callers.get(caller)) is None:
        known = f"known: {', '.join(config.callers)}" if config.callers else "add [callers.NAME] to toolpost.toml"
        raise NotFound(f"Unknown caller `{caller}`.", hint=suggest(caller, config.callers, known))
    return EVERYTHING.within((*scopes_of(config.http), *scopes_of(settings))).of_owner(caller)


async def _find_tools(config: Config, name: str | None, view: View) -> tuple[list[ProvidedTool], ExitCode]:
    async with open_quiet_app(without_store(config), tool=name, credentials_of=config) as app:
        require_named_plugins(app)
        if app.servers.has_caller_credentials and view.owner:
            await app.servers.open_for(view.owner)
        code = warn_of_problems(app)
        seen = app.gateway.catalog.narrow(view)
        return list(seen) if name is None else [find_tool(app, seen, name)], code


async def _list_remote_tools(gateway: RunningGateway, name: str | None) -> list[JsonObject]:
    """List the definitions of a running gateway, or only the one of this name."""
    async with open_client(gateway) as client:
        listed = await client.list_tools(until=name)
    if name is None:
        return listed
    if found := [tool for tool in listed if tool.get("name") == name]:
        return found
    near = nearest_name(name, [str(tool.get("name")) for tool in listed])
    meant = f"did you mean `{near}`? " if near else ""
    hint = f"{meant}`toolpost tools --url {gateway.mcp_url}` lists all of them"
    raise UnknownTool(f"Unknown tool `{name}`.", hint=hint)


def _print_remote_tools(listed: list[JsonObject], name: str | None, *, as_json: bool) -> None:
    if as_json:
        print_json_line(listed if name is None else listed[0])
    elif name is not None:
        print_definition(listed[0], facts_of(listed[0]))
    elif not listed:
        click.echo("the gateway lists no tools for this caller", err=True)
    else:
        rows = [(str(tool.get("name")), version_of(tool), summarize_definition(tool)) for tool in listed]
        print_table(table("NAME", "VERSION", "DESCRIPTION", rows=rows, optional=("VERSION",), last_room=_WHAT_ROOM))


def _print_list(found: list[ProvidedTool], caller: str | None, *, has_failures: bool) -> None:
    if not found and caller is not None:
        click.echo(f"`{caller}` sees no tools; callers.{caller} and [http] in toolpost.toml limit them", err=True)
        return
    if not found and has_failures:
        return
    if not found:
        click.echo(
            "there are no tools; add servers to toolpost.toml with `toolpost import`, or load a plugin with `--plugin`",
            err=True,
        )
        return
    rows = [
        (
            tool.contract.name,
            tool.contract.terms.tooling_version or "-",
            f"{tool.contract.timeout_s:g} s",
            format_concurrency(tool.contract),
            summarize_definition(tool.contract.definition),
        )
        for tool in found
    ]
    columns = ("NAME", "VERSION", "TIME LIMIT", "CONCURRENCY", "DESCRIPTION")
    print_table(table(*columns, rows=rows, optional=("VERSION", "CONCURRENCY", "TIME LIMIT"), last_room=_WHAT_ROOM))


def summarize_definition(definition: JsonObject) -> str:
    """Return the first sentence of the description, else the title, else ""."""
    text = str(definition.get("description") or "").strip() or str(definition.get("title") or "")
    line = text.splitlines()[0] if text else ""
    sentence, stop, _ = line.partition(". ")
    return sentence + stop.rstrip()


def format_concurrency(contract: Contract) -> str:
    concurrency = contract.terms.concurrency
    return f"one per {concurrency.argument}" if isinstance(concurrency, Keyed) else concurrency


def print_tool(tool: ProvidedTool) -> None:
    """Print the contract of a tool in this process."""
    print_definition(tool.contract.definition, _facts_of_tool(tool))


def print_definition(definition: JsonObject, facts: Iterable[tuple[str, str]]) -> None:
    """Print a definition as `tools/list` returned it, with facts about it as a table."""
    title, description = definition.get("title"), str(definition.get("description") or "")
    click.echo(heading(printable(str(definition["name"]))) + printable(f"  {title}" if title else ""))
    if description:
        click.echo(printable(description))
    click.echo()
    print_table(table("", "", rows=list(facts), header=False))
    click.echo(f"\n{heading('Arguments')}")
    _print_arguments(definition["inputSchema"])
    click.echo(f"\n{heading('Input schema')}")
    print_json(definition["inputSchema"])
    if "outputSchema" in definition:
        click.echo(f"\n{heading('Output schema')}")
        print_json(definition["outputSchema"])


def facts_of(definition: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield what a gateway lists with a tool besides its schemas."""
    facts = (definition.get("_meta") or {}).get(META_KEY) or {}
    yield "version", version_of(definition)
    yield "schema version", str(facts.get("schemaVersion", "-"))
    if annotations := definition.get("annotations"):
        yield "annotations", ", ".join(f"{name}={json.dumps(value)}" for name, value in annotations.items())
    if aliases := facts.get("aliases"):
        yield "former names", ", ".join(map(str, aliases))


def version_of(definition: JsonObject) -> str:
    """Return the version that a gateway lists with a tool, `-` if there is none."""
    facts = (definition.get("_meta") or {}).get(META_KEY) or {}
    return str(facts.get("toolingVersion") or "-")


def _facts_of_tool(tool: ProvidedTool) -> Iterator[tuple[str, str]]:
    contract = tool.contract
    terms = contract.terms
    yield "plugin", tool.provider
    yield "version", terms.tooling_version or "-"
    yield "schema version", str(terms.schema_version)
    yield "time limit", f"{contract.timeout_s:g} s"
    yield "concurrency", format_concurrency(contract)
    yield "error codes", ", ".join(terms.errors) or "-"
    if terms.annotations:
        yield "annotations", ", ".join(f"{name}={json.dumps(value)}" for name, value in terms.annotations.items())
    if contract.aliases:
        yield "former names", ", ".join(contract.aliases)
    yield "digest", contract.digest


def _print_arguments(schema: JsonObject) -> None:
    required = schema.get("required", ())
    rows = []
    for name, declared in properties_of(schema, schema).items():
        resolved = resolve(declared, schema)
        rows.append(
            (
                name,
                describe_type(declared, schema),
                "yes" if name in required else "no",
                json.dumps(resolved["default"], ensure_ascii=False) if "default" in resolved else "-",
                str(resolved.get("description", "")),
            )
        )
    if rows:
        print_table(table("NAME", "TYPE", "REQUIRED", "DEFAULT", "DESCRIPTION", rows=rows))
    else:
        click.echo("none")
