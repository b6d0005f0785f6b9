"""`toolpost audit`: show, follow or verify the record of calls."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, Protocol, get_args

import anyio
import anyio.to_thread
import click
import msgspec

from toolpost.contracts.errors import BadConfiguration, ErrorCode, NotFound
from toolpost.settings import Config
from toolpost.store import (
    AuditFilter,
    AuditLog,
    AuditRecord,
    AuditVerdict,
    Outcome,
    open_store,
    store_exists,
    verify_audit,
)
from toolpost.store.audit_contents import CallContent, read_contents, sample_input
from toolpost.store.audit_file import append_records, find_archive_break, last_record
from toolpost.store.urls import shown_url
from toolpost.terminal.event_loop import run_async
from toolpost.terminal.examples import examples
from toolpost.terminal.exits import ExitCode
from toolpost.terminal.failures import show_error
from toolpost.terminal.options import TimeParameter, config_option, json_option, load_cli_config
from toolpost.terminal.signals import on_signals
from toolpost.terminal.tables import print_table, table
from toolpost.terminal.text import printable

POLL_S: Final = 0.5
_BATCH: Final = 1_000
_CONTENTS_BATCH: Final = 100
_COLUMNS: Final = ("SEQ", "TIME (UTC)", "OUTCOME", "CODE", "DURATION", "CALLER", "CALL", "TOOL")

_WIDTHS: Final = (4, 24, 9, 15, 9, 6, 14)
"""Fixed, so that rows that `--follow` prints later line up."""

_OPTIONAL: Final = ("CALL", "CALLER", "DURATION", "OUTCOME")
"""Left out on a narrow terminal; a pipe and `--json` have all columns."""


class AuditPrinter(Protocol):
    """Prints entries and the verdict of `--verify`."""

    def show(self, records: Sequence[AuditRecord], *, is_first: bool) -> None:
        """Print some entries; `is_first` adds a header, or says that nothing matches."""
        ...

    def show_contents(self, found: Sequence[tuple[AuditRecord, CallContent]]) -> None:
        """Print entries with the contents that were kept of them."""
        ...

    def show_verdict(self, verdict: AuditVerdict) -> None: ...

    def show_export(self, path: Path, added: int, last: int) -> None:
        """Print how many entries a file got, and which is its last."""
        ...


@click.command(
    epilog=examples(
        ("toolpost audit", "the last 20 calls"),
        ("toolpost audit --since 2h --outcome error", "recent failures"),
        ("toolpost audit --tool 'time__*' --follow", "calls as they end, until Ctrl-C"),
        ("toolpost audit --verify", "check the hash chain"),
        ("toolpost audit --export audit.jsonl", "append what the file does not have yet"),
        (
            "toolpost audit --contents --since 7d",
            "calls that were selected for review, with their arguments and results",
        ),
        ("toolpost audit --last 1000 --json | jq .durationMs", "for other programs"),
    )
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
@click.option("--verify", is_flag=True, help="Verify the whole hash chain instead, read-only; filters do not apply.")
@click.option(
    "--archive",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="With --verify: check the archives of removed entries in this folder too (retention.archive).",
)
@click.option(
    "--export",
    "export_path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Append all entries that FILE does not have yet, as JSON lines; run it again to go on. Filters do not apply.",
)
@config_option
@json_option("Print one JSON object a line.")
def audit(
    config_path: Path | None,
    archive: Path | None,
    export_path: Path | None,
    *,
    follow: bool,
    verify: bool,
    as_json: bool,
    **filters: Any,
) -> ExitCode:
    """Show the record of calls, follow, verify or export it.

    Arguments and results are recorded as digests, and kept only of calls that `audit.sample` selects. Times are UTC.
    """
    config = load_cli_config(config_path)
    printer: AuditPrinter = _JsonPrinter() if as_json else _TablePrinter()
    if archive is not None and not verify:
        raise click.UsageError("--archive needs --verify.")
    if export_path is not None:
        if follow or verify:
            raise click.UsageError(
                "--export cannot be combined with --follow or --verify; [export.NAME] follows the audit."
            )
        printer.show_export(export_path, *run_async(_export, config, export_path))
        return ExitCode.OK
    if verify:
        verdict = run_async(_verify, config, archive)
        printer.show_verdict(verdict)
        if verdict.is_empty:
            return ExitCode.USAGE
        return ExitCode.OK if verdict.is_intact else ExitCode.FAILED
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


async def _verify(config: Config, archive: Path | None) -> AuditVerdict:
    await _refuse_without_store(config)
    verdict = await verify_audit(config.store_url)
    if archive is None or not verdict.is_intact:
        return verdict
    async with open_store(config.store_url) as store:
        for segment in await store.audit.segments():
            if (found := await anyio.to_thread.run_sync(find_archive_break, archive, segment)) is not None:
                return replace(verdict, checked=segment.first - 1, reason=found)
    return verdict


async def _export(config: Config, path: Path) -> tuple[int, int]:
    """Append to the file; returns how many entries were added, and the number of the last."""
    try:
        last, added = last_record(path), 0
        async with _open_log(config) as log:
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


async def _find_entries(config: Config, matching: AuditFilter) -> Sequence[AuditRecord]:
    async with _open_log(config) as log:
        return await log.entries(matching, limit=matching.last or 0)


async def _find_contents(config: Config, matching: AuditFilter) -> list[tuple[AuditRecord, CallContent]]:
    await _refuse_without_store(config)
    async with open_store(config.store_url) as store:
        found: list[tuple[AuditRecord, CallContent]] = []
        records = await store.audit.entries(matching, limit=matching.last or 0)
        for batch in (records[at : at + _CONTENTS_BATCH] for at in range(0, len(records), _CONTENTS_BATCH)):
            ids = [record.entry.call_id for record in batch]
            contents = await store.scripts.read(lambda ids=ids: read_contents(ids))  # type: ignore[misc]
            found += [(record, contents[call]) for record in batch if (call := record.entry.call_id) in contents]
        return found


async def _follow(config: Config, matching: AuditFilter, printer: AuditPrinter) -> None:
    stop = asyncio.Event()
    async with _open_log(config) as log:
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


@asynccontextmanager
async def _open_log(config: Config) -> AsyncIterator[AuditLog]:
    await _refuse_without_store(config)
    async with open_store(config.store_url) as store:
        yield store.audit


async def _refuse_without_store(config: Config) -> None:
    """Raise `NotFound` if there is no store; opening one would create it."""
    url = config.store_url
    if url == "sqlite::memory:":
        raise NotFound(
            "The store is in memory: no calls are recorded.", hint='set store.url = "sqlite:PATH" in toolpost.toml'
        )
    if not await store_exists(url):
        shown = shown_url(url).removeprefix("sqlite:")
        raise NotFound(
            f"There is no store at {shown} yet: no calls are recorded.",
            hint="`toolpost serve` and `toolpost call` create it",
        )


class _TablePrinter:
    def show(self, records: Sequence[AuditRecord], *, is_first: bool) -> None:
        if not records:
            if is_first:
                click.echo("no recorded call matches", err=True)
            return
        print_table(table(*_COLUMNS, rows=map(_make_row, records), widths=_WIDTHS, header=is_first, optional=_OPTIONAL))

    def show_contents(self, found: Sequence[tuple[AuditRecord, CallContent]]) -> None:
        if not found:
            click.echo("no call that was selected for review matches", err=True)
        for record, content in found:
            self.show([record], is_first=True)
            click.echo(printable(f"  arguments: {content.arguments}"))
            click.echo(printable(f"  result:    {content.result or '(the call did not end)'}"))
            click.echo(f"  selected:  {content.sample:g} of the calls of {content.epoch}; --json has the proof")

    def show_verdict(self, verdict: AuditVerdict) -> None:
        if verdict.is_empty:
            show_error(
                "nothing to verify: the audit has no entries",
                "if it had some, they were deleted: compare with a backup, or with a head that you noted elsewhere",
            )
        elif verdict.is_intact:
            sealed = f"; the first {verdict.sealed} were sealed and removed" if verdict.sealed else ""
            click.echo(f"all {verdict.checked} entries are intact{sealed}\nhead: {verdict.head}")
        elif verdict.broken_seq is None:
            show_error(f"the audit cannot be verified: {verdict.reason}", "compare with a backup")
        else:
            show_error(
                f"entry {verdict.broken_seq} was changed: {verdict.reason}",
                f"the {verdict.checked} entries before it are intact; compare with a backup",
            )
        if verdict.noted:
            click.echo(
                f"note: {verdict.noted} more entries are in the journal beside the store and not in the chain yet; "
                "they are added when the store is next opened",
                err=True,
            )

    def show_export(self, path: Path, added: int, last: int) -> None:
        click.echo(f"{added} entries added to {path}; its last is {last}")


class _JsonPrinter:
    def show(self, records: Sequence[AuditRecord], *, is_first: bool) -> None:  # noqa: ARG002
        for record in records:
            _print_line(_values_of(record))

    def show_contents(self, found: Sequence[tuple[AuditRecord, CallContent]]) -> None:
        for record, content in found:
            kept = {
                "arguments": content.arguments,
                "result": content.result,
                "sample": content.sample,
                "input_hex": sample_input(content.epoch).hex(),
                "proof_hex": content.proof,
                "public_key_hex": content.public_key,
            }
            _print_line({**_values_of(record), "content": kept})

    def show_verdict(self, verdict: AuditVerdict) -> None:
        found = "empty" if verdict.is_empty else "sound" if verdict.is_intact else "broken"
        is_intact = verdict.is_intact and not verdict.is_empty
        _print_line({"is_intact": is_intact, "verdict": found, **asdict(verdict)})

    def show_export(self, path: Path, added: int, last: int) -> None:
        _print_line({"path": str(path), "added": added, "last": last})


def _values_of(record: AuditRecord) -> dict[str, Any]:
    return {
        "seq": record.seq,
        **msgspec.structs.asdict(record.entry),
        "previous": record.previous,
        "hash": record.hash,
    }


def _make_row(record: AuditRecord) -> tuple[str, ...]:
    entry = record.entry
    facts = (entry.at_utc, entry.outcome, entry.code or "-", f"{entry.duration_ms:.1f} ms", entry.caller, entry.call_id)
    return (str(record.seq), *map(str, facts), str(entry.tool))


def _print_line(values: dict[str, Any]) -> None:
    # ASCII only: a text that was tampered with may hold lone surrogates.
    click.echo(printable(json.dumps({_camel_case(name): value for name, value in values.items()}, default=repr)))


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
