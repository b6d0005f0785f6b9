"""`toolpost audit`: show or follow the record of calls."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, get_args

import anyio
import click

from toolpost.audit import AuditFilter, AuditRecord, Outcome
from toolpost.cli.audit.export import export
from toolpost.cli.audit.records import AuditPrinter, make_printer, open_log, refuse_without_store
from toolpost.cli.audit.verify import verify
from toolpost.contracts.errors import ErrorCode
from toolpost.settings import Config
from toolpost.store import open_store
from toolpost.store.audit import AuditLog
from toolpost.store.audit_contents import CallContent
from toolpost.terminal import ExitCode, SuggestingGroup, examples, on_signals, run_async
from toolpost.terminal.options import TimeParameter, config_option, json_option, load_cli_config

POLL_S: Final = 0.5
_BATCH: Final = 1_000
_CONTENTS_BATCH: Final = 100


@click.group(
    cls=SuggestingGroup,
    invoke_without_command=True,
    epilog=examples(
        ("toolpost audit", "the last 20 calls"),
        ("toolpost audit --since 2h --outcome error", "recent failures"),
        ("toolpost audit --tool 'time__*' --follow", "calls as they end"),
        ("toolpost audit verify", "check the hash chain"),
        ("toolpost audit export audit.jsonl", "append new entries"),
        (
            "toolpost audit --contents --since 7d",
            "calls for review",
        ),
        ("toolpost audit --last 1000 --json | jq .durationMs", "for other programs"),
    ),
)
@click.option("--last", type=click.IntRange(min=0), default=20, show_default=True, metavar="N", help="How many calls.")
@click.option("--tool", metavar="GLOB", help="Calls of tools whose name matches; * and ? are wildcards.")
@click.option("--caller", help="Calls of one caller; `cli` is this command.")
@click.option(
    "--code",
    type=click.Choice([c.value for c in ErrorCode], case_sensitive=False),
    metavar="CODE",
    help="Calls that ended with this error code.",
)
@click.option("--outcome", type=click.Choice(get_args(Outcome)), help="Calls with this outcome.")
@click.option(
    "--since",
    type=TimeParameter(),
    metavar="TIME",
    help="At or after this time: ISO 8601 in UTC, or an age such as 30m, 2h, 7d.",
)
@click.option("--until", type=TimeParameter(), metavar="TIME", help="Before this time.")
@click.option("--call", "call_id", metavar="ID", help="One call.")
@click.option("--trace", "trace_id", metavar="ID", help="The calls of one trace.")
@click.option(
    "--contents",
    "has_contents",
    is_flag=True,
    help="Calls that `audit.sample` has selected for review, with their arguments, results and proofs.",
)
@click.option("--follow", is_flag=True, help="Keep printing calls as they end.")
@config_option
@json_option("Print one JSON object a line.")
@click.pass_context
def audit(
    context: click.Context, /, config_path: Path | None, *, follow: bool, as_json: bool, **filters: Any
) -> ExitCode:
    """Show the record of calls, follow, verify or export it.

    Arguments and results are recorded as digests, and kept only of calls that `audit.sample` selects. Times are UTC.
    """
    if context.invoked_subcommand is not None:
        return ExitCode.OK
    config = load_cli_config(config_path)
    printer = make_printer(as_json=as_json)
    matching = AuditFilter(**filters)
    if matching.has_contents:
        if follow:
            raise click.UsageError("--contents and --follow cannot be combined.")
        printer.show_contents(run_async(_find_contents, config, matching))
    elif follow:
        run_async(_follow, config, matching, printer)
    else:
        printer.show(run_async(_find_entries, config, matching), is_first=True)
    return ExitCode.OK


async def _find_entries(config: Config, matching: AuditFilter) -> Sequence[AuditRecord]:
    async with open_log(config) as log:
        return await log.entries(matching, limit=matching.last or 0)


async def _find_contents(config: Config, matching: AuditFilter) -> list[tuple[AuditRecord, CallContent]]:
    await refuse_without_store(config)
    async with open_store(config.store_url) as store:
        found: list[tuple[AuditRecord, CallContent]] = []
        records = await store.audit.entries(matching, limit=matching.last or 0)
        for batch in (records[at : at + _CONTENTS_BATCH] for at in range(0, len(records), _CONTENTS_BATCH)):
            ids = [record.entry.call_id for record in batch]
            contents = await store.audit_contents.find(ids)
            found += [(record, contents[call]) for record in batch if (call := record.entry.call_id) in contents]
        return found


async def _follow(config: Config, matching: AuditFilter, printer: AuditPrinter) -> None:
    stop = asyncio.Event()
    async with open_log(config) as log:
        with on_signals(stop.set):
            seen = await log.newest()
            before = await log.entries(matching, limit=matching.last or 0)
            printer.show(before, is_first=True)
            seen = max([seen, *(record.seq for record in before)])
            while not stop.is_set():
                seen = await _print_new_entries(log, matching, seen, printer)
                with anyio.move_on_after(POLL_S):
                    await stop.wait()


async def _print_new_entries(log: AuditLog, matching: AuditFilter, seen: int, printer: AuditPrinter) -> int:
    """Print the entries after `seen`; returns the number of the last entry that was looked at."""
    while True:
        newest = await log.newest()
        records = await log.entries(replace(matching, last=None), after=seen, limit=_BATCH)
        printer.show(records, is_first=False)
        seen = max([seen, *(record.seq for record in records)])
        if len(records) < _BATCH:
            return max(seen, newest)


for _command in (verify, export):
    audit.add_command(_command)
