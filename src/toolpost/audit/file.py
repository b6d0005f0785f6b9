"""Records of the audit as JSON lines, and a file of them that is appended to.

A line has the format of `toolpost audit --json`. Its fields are in the order in which they are hashed, so that a file can be
verified without the store.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
import msgspec

from toolpost.base.state_folder import make_folder
from toolpost.contracts.errors import BadConfiguration
from toolpost.store.audit import AuditLog
from toolpost.store.audit_values import AuditFilter, AuditRecord
from toolpost.store.chain import COLUMNS, Row

_BATCH: Final = 1_000

_TAIL_BYTES: Final = 1024 * 1024
"""Longer than the line of any record."""

_NAMES: Final = tuple(
    first + "".join(word.capitalize() for word in rest) for first, *rest in (name.split("_") for name in COLUMNS)
)


def record_line(row: Row) -> bytes:
    """Write a record as a line of JSON."""
    return msgspec.json.encode(dict(zip(_NAMES, row, strict=True))) + b"\n"


def row_of_line(line: bytes) -> Row:
    """Read a line back; raises `ValueError` for anything else."""
    try:
        found: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
    except RecursionError as error:
        raise ValueError("it is nested too deeply for a record of the audit") from error
    if tuple(found) != _NAMES:
        raise ValueError("it is not a record of the audit")
    return tuple(found.values())


def row_of(record: AuditRecord) -> Row:
    """Return a record as the table has it."""
    return (record.seq, *msgspec.structs.astuple(record.entry), record.previous, record.hash)


def append_records(path: Path, records: Sequence[AuditRecord]) -> int:
    """Append the records that come after the last one in the file, and sync it; returns how many. Raises `OSError`."""
    make_folder(path.parent)
    # For its owner alone: it says who called what.
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - _TAIL_BYTES))
        tail = file.read()
        last = _last_seq(tail)
        # A line that a killed process has not finished is removed, and written again below.
        file.truncate(end - len(tail) + tail.rfind(b"\n") + 1)
        file.seek(0, os.SEEK_END)
        new = [record for record in records if record.seq > last]
        file.write(b"".join(record_line(row_of(record)) for record in new))
        file.flush()
        os.fsync(file.fileno())
        return len(new)


def last_record(path: Path) -> int:
    """Return the seq of the last whole record in a file, 0 if there is none; raises `OSError` for a file of another kind."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return _last_seq(file.read())
    except FileNotFoundError:
        return 0


def _last_seq(tail: bytes) -> int:
    end = tail.rfind(b"\n")
    if end < 0:
        if tail and not tail.startswith(b'{"seq":'):
            raise OSError(0, _FOREIGN)
        return 0
    try:
        return int(row_of_line(tail[tail.rfind(b"\n", 0, end) + 1 : end])[0])
    except ValueError as error:
        raise OSError(0, _FOREIGN) from error


_FOREIGN: Final = "it holds something else than records of an audit; name another file"


async def append_log(path: Path, log: AuditLog) -> tuple[int, int]:
    """Append what the file does not have yet; returns how many entries were added, and the seq of the last.

    Raises `BadConfiguration` if the file cannot be written, or would have a gap.
    """
    try:
        last, added = last_record(path), 0
        while records := await log.entries(AuditFilter(), after=last, limit=_BATCH):
            if last and records[0].seq != last + 1:
                raise BadConfiguration(
                    f"Entries {last + 1} to {records[0].seq - 1} were sealed and removed: {path} would have a gap.",
                    hint="name another file; audit.archive keeps removed entries",
                )
            added += await anyio.to_thread.run_sync(append_records, path, records)
            last = records[-1].seq
    except OSError as error:
        raise BadConfiguration(f"{path}: {error.strerror or error}.") from error
    return added, last
