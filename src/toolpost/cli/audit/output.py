"""Records of calls on the screen: a table for people, JSON lines for other programs."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final, Protocol

import click
import msgspec

from toolpost.cli.failures import show_error
from toolpost.cli.show import print_table, table
from toolpost.cli.terminal import printable
from toolpost.store import AuditRecord, AuditVerdict

_COLUMNS: Final = ("SEQ", "TIME (UTC)", "OUTCOME", "CODE", "DURATION", "CALLER", "CALL", "TOOL")
_WIDTHS: Final = (4, 24, 9, 15, 9, 6, 14)
"""So that what is shown later stands below what was shown before."""

_OPTIONAL: Final = ("CALL", "CALLER", "DURATION", "OUTCOME")
"""Left out on a narrow terminal: a pipe and `--json` have all of it."""


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
        print_table(table(*_COLUMNS, rows=map(_row, records), widths=_WIDTHS, header=is_first, optional=_OPTIONAL))

    def show_verdict(self, verdict: AuditVerdict) -> None:
        if verdict.is_empty:
            show_error(
                "there is nothing to verify: the audit has no entries",
                "an audit that had some is known by its head; compare with one that was kept elsewhere, or with a backup",
            )
        elif verdict.is_intact:
            click.echo(f"all {verdict.checked} entries are sound\nhead: {verdict.head}")
        elif verdict.broken_seq is None:
            show_error(f"the audit cannot be verified: {verdict.reason}", "compare with a backup")
        else:
            self._show_break(verdict)
        if verdict.noted:
            click.echo(
                f"note: {verdict.noted} more entries are written down beside the store and not in the chain yet; "
                "they are taken over when the store is next opened",
                err=True,
            )

    def _show_break(self, verdict: AuditVerdict) -> None:
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
        found = "empty" if verdict.is_empty else "sound" if verdict.is_intact else "broken"
        is_intact = verdict.is_intact and not verdict.is_empty
        _print_line({"is_intact": is_intact, "verdict": found, **asdict(verdict)})


TABLE_VIEW: Final[View] = _TableView()
JSON_VIEW: Final[View] = _JsonView()


def _row(record: AuditRecord) -> tuple[str, ...]:
    entry = record.entry
    facts = (entry.at_utc, entry.outcome, entry.code or "-", f"{entry.duration_ms:.1f} ms", entry.caller, entry.call_id)
    return (str(record.seq), *map(str, facts), str(entry.tool))


def _print_line(values: dict[str, Any]) -> None:
    # In ASCII: a text that was tampered with may be no Unicode.
    click.echo(printable(json.dumps({_camel(name): value for name, value in values.items()}, default=repr)))


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
