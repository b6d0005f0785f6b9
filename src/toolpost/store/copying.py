"""Copies one store into another, of either kind; verifies the copy, and continues an interrupted one.

The audit is copied first. If the target already has a part of it, that must be the beginning of the source's, hash for hash: it
proves that an earlier copy was interrupted, and that other rows of the target may be overwritten. Otherwise the target must have
no row that the source does not have.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from toolpost.base.ids import Digest
from toolpost.contracts.errors import BadConfiguration, GatewayError
from toolpost.store.base import Store
from toolpost.store.chain import BEGINNING
from toolpost.store.part_migrations import find_part_tables
from toolpost.store.rows import Table
from toolpost.store.segments import adopt
from toolpost.store.tables import AUDIT, KEYS, TABLES

CHUNK: Final = 1_000

Progress = Callable[[str, int, int], None]
"""Called with the table, how many of its rows are done, and how many there are."""


@dataclass(kw_only=True)
class CopyResult:
    """The rows that a copy has written, or would write with `dry_run`."""

    rows: dict[str, int] = field(default_factory=dict)
    """How many rows of each table the target has after the copy."""
    written: dict[str, int] = field(default_factory=dict)
    """How many of them had to be written."""
    head: Digest = BEGINNING
    """The last hash of the chain, the same on both sides."""


async def copy_store(source: Store, target: Store, *, progress: Progress, dry_run: bool = False) -> CopyResult:
    """Copy all rows, and verify the result. Both stores must have the tables of parts, except for a dry run.

    Raises `BadConfiguration` if the audit of the source is broken, the target has rows of another store, or one of the two was
    written to during the copy.
    """
    verdict = await source.audit.verify()
    if not verdict.is_intact:
        raise BadConfiguration(
            f"the audit of the source is broken at entry {verdict.broken_seq}: {verdict.reason}",
            hint="run `toolpost audit verify` for details; a broken chain is not copied",
        )
    is_continued = await _is_beginning_of(source, target)
    of_parts = await find_part_tables(source)
    in_target = {table.name: table for table in await find_part_tables(target)}
    # Those of the target: only it knows which columns it numbers itself. The order of the columns is the same for both.
    tables = (*TABLES, *(in_target[table.name] for table in of_parts if table.name in in_target))
    if not is_continued:
        await _refuse_foreign_rows(source, target, tables)
    copied = CopyResult(head=verdict.head)
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
    """Whether the audit of the target is a beginning of the source's, False if it is empty; raises for another chain."""
    newest = await target.audit.newest()
    if newest == 0:
        return False
    sealed = await target.audit.segments()
    if sealed and sealed[-1].last == newest and sealed[-1] in await source.audit.segments():
        return True
    # The last record is enough: its hash covers all before it.
    source_rows = await source.tables.up_to(AUDIT, (newest - 1,), (newest,))
    target_rows = await target.tables.up_to(AUDIT, (newest - 1,), (newest,))
    if not source_rows or source_rows != target_rows:
        raise BadConfiguration(
            f"the target already has an audit, with {newest} entries",
            hint="name an empty file, database or schema; nothing was changed",
        )
    return True


async def _refuse_foreign_rows(source: Store, target: Store, tables: Sequence[Table]) -> None:
    for table in tables:
        after = None
        while target_rows := await target.tables.chunk(table, after, CHUNK):
            source_rows = await source.tables.up_to(table, after, table.key_of(target_rows[-1]))
            if not set(target_rows) <= set(source_rows):
                raise BadConfiguration(
                    f"the target already has rows in `{table.name}`",
                    hint="name an empty file, database or schema; nothing was changed",
                )
            after = table.key_of(target_rows[-1])


async def _copy_audit(source: Store, target: Store, copied: CopyResult, progress: Progress, *, dry_run: bool) -> None:
    if (sealed := await source.audit.segments()) and not dry_run:
        await target.scripts.run(lambda: adopt(sealed))
    total, done = await source.audit.newest(), await target.audit.newest()
    copied.rows["audit"], copied.written["audit"] = total, total - done
    progress("audit", done, total)
    while not dry_run and done < total:
        rows = await source.tables.up_to(AUDIT, (done,), (min(done + CHUNK, total),))
        await target.tables.extend_audit(AUDIT, rows)
        done = rows[-1][0]
        progress("audit", done, total)


async def _copy_table(
    source: Store, target: Store, table: Table, copied: CopyResult, progress: Progress, *, dry_run: bool
) -> None:
    """Copy a table in chunks; rows that are the same already are only read."""
    total, done, written, after = await source.tables.count(table), 0, 0, None
    while True:
        source_rows = await source.tables.chunk(table, after, CHUNK)
        # The last chunk has no end, so that rows of the target past the last row of the source are deleted as well.
        last = table.key_of(source_rows[-1]) if len(source_rows) == CHUNK else None
        target_rows = await target.tables.up_to(table, after, last)
        same = set(target_rows)
        changed = [row for row in source_rows if row not in same]
        keys = {table.key_of(row) for row in source_rows}
        deleted = [table.key_of(row) for row in target_rows if table.key_of(row) not in keys]
        if (changed or deleted) and not dry_run:
            await target.tables.write(table, deleted=deleted, rows=changed)
        done, written, after = done + len(source_rows), written + len(changed), last
        progress(table.name, done, max(total, done))
        if last is None:
            break
    copied.rows[table.name], copied.written[table.name] = done, written


async def _check(source: Store, target: Store, tables: Sequence[Table], copied: CopyResult) -> None:
    """Compare both stores after the copy: the chain by its last hash, tables by their numbers of rows."""
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
