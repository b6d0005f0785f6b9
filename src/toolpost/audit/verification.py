"""Verifies the record of a store, and the archives of its removed entries."""

from dataclasses import replace
from pathlib import Path

import anyio.to_thread

from toolpost.audit.archive import find_archive_break
from toolpost.store.audit_values import AuditVerdict
from toolpost.store.base import open_store
from toolpost.store.urls import SqliteLocation, parse_store_url


async def verify_audit(url: str | Path, *, archive: Path | None = None) -> AuditVerdict:
    """Verify the audit of a store that exists, and with `archive` the archives in this folder.

    A SQLite file is not written to, not even by a migration, unless there are archives to verify.
    """
    location = parse_store_url(url)
    if isinstance(location, SqliteLocation) and isinstance(location.path, Path):
        from toolpost.audit.sqlite_file import verify_file

        verdict = await verify_file(location.path.expanduser())
    else:
        async with open_store(url) as store:
            verdict = await store.audit.verify()
    if archive is None or not verdict.is_intact:
        return verdict
    async with open_store(url) as store:
        for segment in await store.audit.segments():
            if (found := await anyio.to_thread.run_sync(find_archive_break, archive, segment)) is not None:
                return replace(verdict, checked=segment.first - 1, reason=found)
    return verdict
