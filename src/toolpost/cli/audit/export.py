"""`toolpost audit export`: the record of calls in a file."""

from pathlib import Path
from typing import Final

import anyio.to_thread
import click

from toolpost.cli.audit.records import make_printer, open_log
from toolpost.contracts.errors import BadConfiguration
from toolpost.settings import Config
from toolpost.store import AuditFilter
from toolpost.store.audit_file import append_records, last_record
from toolpost.terminal.epilog import examples
from toolpost.terminal.event_loop import run_async
from toolpost.terminal.group import outer_options
from toolpost.terminal.options import config_option, json_option, load_cli_config

_BATCH: Final = 1_000


@click.command(
    epilog=examples(
        ("toolpost audit export audit.jsonl", "append what the file does not have yet"),
        ("toolpost audit export audit.jsonl --json", "for other programs"),
    )
)
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@config_option
@json_option("Print `{path, added, last}` on one line.")
@click.pass_context
def export(context: click.Context, path: Path, config_path: Path | None, *, as_json: bool) -> None:
    """Append all entries to a file that it does not have yet, as JSON lines.

    Run it again to go on; [export.NAME] follows the audit.
    """
    outer = outer_options(context)
    added, last = run_async(_export, load_cli_config(config_path or outer.get("config_path")), path)
    make_printer(as_json=as_json or outer["as_json"]).show_export(path, added, last)


async def _export(config: Config, path: Path) -> tuple[int, int]:
    """Append to the file; returns how many entries were added, and the number of the last."""
    try:
        last, added = last_record(path), 0
        async with open_log(config) as log:
            while records := await log.entries(AuditFilter(), after=last, limit=_BATCH):
                if last and records[0].seq != last + 1:
                    raise BadConfiguration(
                        f"Entries {last + 1} to {records[0].seq - 1} were sealed and removed: {path} would have a gap.",
                        hint="name another file; retention.archive keeps what is removed",
                    )
                added += await anyio.to_thread.run_sync(append_records, path, records)
                last = records[-1].seq
    except OSError as error:
        raise BadConfiguration(f"{path}: {error.strerror or error}.") from error
    return added, last
