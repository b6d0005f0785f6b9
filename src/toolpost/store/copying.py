"""Copy one store into another, of any kind: checked, and gone on with after an interruption. Nothing foreign is overwritten.

The audit comes first. What the target already has of it must be the beginning of ours, hash for hash: that proves that an
earlier copy was interrupted, and that the rest of the target may be brought into line. Otherwise the target must hold
nothing that the source does not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from toolpost.base.ids import Digest
from toolpost.contracts.errors import BadConfiguration, GatewayError
from toolpost.store.base import Store
from toolpost.store.chain import BEGINNING
from toolpost.store.part_tables import find_part_tables
from toolpost.store.rows import Table
from toolpost.store.scripts import Row
from toolpost.store.tables import AUDIT, KEYS, TABLES

CHUNK: Final = 1_000

Progress = Callable[[str, int, int], None]
"""Called with the table, how many of its rows are done, and how many there are."""


@dataclass(kw_only=True)
class Copied:
    """What a copy has done, or would do."""

    rows: dict[str, int] = field(default_factory=dict)
    """How many rows of each table the target has in the end."""
    written: dict[str, int] = field(default_factory=dict)
    """How many of them had to be written."""
    head: Digest = BEGINNING
    """The last hash of the chain, the same on both sides."""


async def copy_store(source: Store, target: Store, *, progress: Progress, dry_run: bool = False) -> Copied:
    """Make the target what the source is, and prove it. Tables of parts must be there on both sides, except for a dry run."""
    verdict = await source.audit.verify()
    if not verdict.is_intact:
        raise BadConfiguration(
            f"the audit of the source is broken at entry {verdict.broken_seq}: {verdict.reason}",
            hint="run `toolpost audit --verify` for details; a broken chain is not copied",
        )
    is_ours = await _is_beginning_of(source, target)
    of_parts = await find_part_tables(source)
    in_target = {table.name: table for table in await find_part_tables(target)}
    # Those of the target: only it knows which columns it numbers itself. The order of the columns is the same for both.
    tables = (*TABLES, *(in_target[table.name] for table in of_parts if table.name in in_target))
    if not is_ours:
        await _refuse_foreign_rows(source, target, tables)
    copied = Copied(head=verdict.head)
    await _copy_audit(source, target, copied, progress, dry_run=dry_run)
    for table in (KEYS, *tables):
        await _copy_table(source, target, table, copied, progress, dry_run=dry_run)
    for table in of_parts:
        if table.name not in in_target:
            if not dry_run:
                raise GatewayError(f"the target has no table `{table.name}`")
            copied.rows[table.name] = copied.written[table.name] = await source.tables.count(table)
    if not dry_run:
        await _check(source, target, tables, copied)
    return copied


async def _is_beginning_of(source: Store, target: Store) -> bool:
    """Say whether the target holds an earlier part of the source; refuse another chain."""
    have = await target.audit.newest()
    if have == 0:
        return False
    ours = await source.tables.up_to(AUDIT, (have - 1,), (have,))
    theirs = await target.tables.up_to(AUDIT, (have - 1,), (have,))
    if not ours or ours != theirs:
        raise BadConfiguration(
            f"the target already has an audit, with {have} entries",
            hint="name an empty file, database or schema; nothing was changed",
        )
    return True


async def _refuse_foreign_rows(source: Store, target: Store, tables: Sequence[Table]) -> None:
    for table in tables:
        after = None
        while theirs := await target.tables.chunk(table, after, CHUNK):
            ours = await source.tables.up_to(table, after, table.key_of(theirs[-1]))
            if not set(theirs) <= set(ours):
                raise BadConfiguration(
                    f"the target already has rows in `{table.name}`",
                    hint="name an empty file, database or schema; nothing was changed",
                )
            after = table.key_of(theirs[-1])


async def _copy_audit(source: Store, target: Store, copied: Copied, progress: Progress, *, dry_run: bool) -> None:
    total, done = await source.audit.newest(), await target.audit.newest()
    copied.rows["audit"], copied.written["audit"] = total, total - done
    progress("audit", done, total)
    while not dry_run and done < total:
        rows = await source.tables.up_to(AUDIT, (done,), (min(done + CHUNK, total),))
        await target.tables.extend_audit(AUDIT, rows)
        done = rows[-1][0]
        progress("audit", done, total)


async def _copy_table(
    source: Store, target: Store, table: Table, copied: Copied, progress: Progress, *, dry_run: bool
) -> None:
    """Bring the target into line chunk by chunk; what is the same already is only read."""
    total, done, written, after = await source.tables.count(table), 0, 0, None
    while True:
        ours = await source.tables.chunk(table, after, CHUNK)
        # Past our last row there must be none of theirs.
        last = table.key_of(ours[-1]) if len(ours) == CHUNK else None
        theirs = await target.tables.up_to(table, after, last)
        fresh = _without(ours, theirs)
        kept = {table.key_of(row) for row in ours}
        gone = [table.key_of(row) for row in theirs if table.key_of(row) not in kept]
        if (fresh or gone) and not dry_run:
            await target.tables.write(table, gone=gone, rows=fresh)
        done, written, after = done + len(ours), written + len(fresh), last
        progress(table.name, done, max(total, done))
        if last is None:
            break
    copied.rows[table.name], copied.written[table.name] = done, written


def _without(rows: list[Row], others: list[Row]) -> list[Row]:
    known = set(others)
    return [row for row in rows if row not in known]


async def _check(source: Store, target: Store, tables: Sequence[Table], copied: Copied) -> None:
    """Hold both sides against each other: the chain to its last hash, and the numbers of rows."""
    verdict = await target.audit.verify()
    if not verdict.is_intact:
        raise GatewayError(f"the copied audit is broken at entry {verdict.broken_seq}: {verdict.reason}")
    has_changed = verdict.head != copied.head or await source.audit.newest() != copied.rows["audit"]
    for table in tables:
        counts = await source.tables.count(table), await target.tables.count(table)
        has_changed = has_changed or counts != (copied.rows[table.name],) * 2
    if has_changed:
        raise BadConfiguration(
            "one of the two stores was written to while it was copied",
            hint="stop the gateways that use it and run this again: only what is new is copied",
        )
