"""`toolpost audit export`: the record of calls in a file."""

from pathlib import Path

import click

from toolpost.audit.file import append_log
from toolpost.cli.audit.records import make_printer, open_log
from toolpost.settings import Config
from toolpost.terminal import config_option, examples, json_option, load_cli_config, run_async
from toolpost.terminal.group import outer_options


@click.command(
    epilog=examples(
        ("toolpost audit export audit.jsonl", "append new entries"),
        ("toolpost audit export audit.jsonl --json", "for other programs"),
    )
)
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@config_option
@json_option("Print `{path, added, last}` on one line.")
@click.pass_context
def export(context: click.Context, path: Path, config_path: Path | None, *, as_json: bool) -> None:
    """Append all entries that a file does not have yet, as JSON lines.

    Run it again to go on; [export.NAME] follows the audit.
    """
    outer = outer_options(context)
    added, last = run_async(_export, load_cli_config(config_path or outer.get("config_path")), path)
    make_printer(as_json=as_json or outer["as_json"]).show_export(path, added, last)


async def _export(config: Config, path: Path) -> tuple[int, int]:
    async with open_log(config) as log:
        return await append_log(path, log)
