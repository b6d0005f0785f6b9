"""Shared by the commands of `toolpost audit`: the open record, and how its entries are printed."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Protocol

import click
import msgspec

from toolpost.audit import AuditRecord
from toolpost.contracts.errors import NotFound
from toolpost.settings import Config
from toolpost.store import open_store, shown_url, store_exists
from toolpost.store.audit import AuditLog
from toolpost.store.audit_contents import AuditContents, CallContent
from toolpost.store.audit_values import AuditVerdict
from toolpost.terminal import print_table, printable, show_error, table

_COLUMNS: Final = ("SEQ", "TIME (UTC)", "OUTCOME", "CODE", "DURATION", "CALLER", "CALL", "TOOL")

_WIDTHS: Final = (4, 24, 9, 15, 9, 6, 14)
"""Fixed, so that rows that `--follow` prints later line up."""

_OPTIONAL: Final = ("CALL", "CALLER", "DURATION", "OUTCOME")
"""Left out on a narrow terminal; a pipe and `--json` have all columns."""


@asynccontextmanager
async def open_log(config: Config) -> AsyncIterator[AuditLog]:
    await refuse_without_store(config)
    async with open_store(config.store_url) as store:
        yield store.audit


async def refuse_without_store(config: Config) -> None:
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


class AuditPrinter(Protocol):
    """Prints entries and the verdict of `audit verify`."""

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


def make_printer(*, as_json: bool) -> AuditPrinter:
    return _JsonPrinter() if as_json else _TablePrinter()


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
                "input_hex": AuditContents.input_of(content.epoch).hex(),
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
