"""Records of calls on the screen: a table for people, JSON lines for other programs."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final, Protocol

import click
import msgspec

from toolpost.cli.failures import show_error
from toolpost.cli.show import print_table, table
from toolpost.store import AuditRecord, AuditVerdict

_COLUMNS: Final = ("SEQ", "TIME (UTC)", "OUTCOME", "CODE", "DURATION", "CALLER", "CALL", "TOOL")
_WIDTHS: Final = (4, 24, 9, 15, 9, 6, 14)
"""So that what is shown later stands below what was shown before."""


class View(Protocol):
    """Shows records and verdicts."""

    def show(self, records: Sequence[AuditRecord], *, is_first: bool) -> None:
        """Show some records; the first ones may need a header."""
        ...

    def show_verdict(self, verdict: AuditVerdict) -> None:
        """Show what verifying has shown."""
        ...


class _TableView:
    def show(self, records: Sequence[AuditRecord], *, is_first: bool) -> None:
        if not records:
            if is_first:
                click.echo("no call on record matches", err=True)
            return
        laid_out = table(*_COLUMNS, rows=map(_row, records), widths=_WIDTHS, header=is_first)
        # A record that is cut short is none: lines longer than the terminal is wide wrap there.
        print_table(laid_out, bounded=False)

    def show_verdict(self, verdict: AuditVerdict) -> None:
        if verdict.is_intact:
            click.echo(f"all {verdict.checked} entries are sound\nhead: {verdict.head}")
            return
        show_error(
            f"entry {verdict.broken_seq} is not as it was written: {verdict.reason}",
            f"the {verdict.checked} entries before it are sound; compare with a backup",
        )


class _JsonView:
    def show(self, records: Sequence[AuditRecord], *, is_first: bool) -> None:  # noqa: ARG002
        for record in records:
            sealed = {
                "seq": record.seq,
                **msgspec.structs.asdict(record.entry),
                "previous": record.previous,
                "hash": record.hash,
            }
            _print_line(sealed)

    def show_verdict(self, verdict: AuditVerdict) -> None:
        _print_line({"is_intact": verdict.is_intact, **asdict(verdict)})


TABLE_VIEW: Final[View] = _TableView()
JSON_VIEW: Final[View] = _JsonView()


def _row(record: AuditRecord) -> tuple[str, ...]:
    entry = record.entry
    facts = (entry.at_utc, entry.outcome, entry.code or "-", f"{entry.duration_ms:.1f} ms", entry.caller, entry.call_id)
    return (str(record.seq), *map(str, facts), str(entry.tool))


def _print_line(values: dict[str, Any]) -> None:
    # In ASCII: a text that was tampered with may be no Unicode.
    click.echo(json.dumps({_camel(name): value for name, value in values.items()}, default=repr))


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
