"""`toolpost tools`: what there is to call."""

from pathlib import Path

import click

from toolpost.cli.definition import first_sentence, print_tool, spelled_concurrency
from toolpost.cli.examples import examples
from toolpost.cli.in_process import (
    complete_tool_names,
    find_tool,
    open_quiet_app,
    run_async,
    warn_of_problems,
    without_store,
)
from toolpost.cli.options import config_option, configured, json_option, plugin_option
from toolpost.cli.show import print_json_line, print_table, table
from toolpost.config import Config
from toolpost.sources import HeldTool


@click.command(
    epilog=examples(
        ("toolpost tools", "list all of them"),
        ("toolpost tools time__convert_time", "show one in full"),
        ("toolpost tools --json --plugin my_package.my_module:plugin", "the definitions, as clients see them"),
    )
)
@click.argument("name", required=False, shell_complete=complete_tool_names)
@config_option
@plugin_option
@json_option("Print the definitions as they are listed on the wire: an array, or with NAME one object.")
def tools(name: str | None, config_path: Path | None, plugins: tuple[str, ...], *, as_json: bool) -> None:
    """List the tools, or show one in full."""
    found = run_async(_found, configured(config_path, plugins), name)
    if as_json:
        definitions = [tool.contract.definition for tool in found]
        print_json_line(definitions if name is None else definitions[0])
    elif name is None:
        _print_list(found)
    else:
        print_tool(found[0])


async def _found(config: Config, name: str | None) -> list[HeldTool]:
    async with open_quiet_app(without_store(config)) as app:
        warn_of_problems(app)
        return list(app.gateway.catalogue) if name is None else [find_tool(app, name)]


def _print_list(found: list[HeldTool]) -> None:
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
    print_table(table("NAME", "VERSION", "TIME LIMIT", "CONCURRENCY", "WHAT IT DOES", rows=rows))
