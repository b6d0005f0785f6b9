"""Records of the audit as files: JSON lines that are appended to, and archives of sealed segments.

A line has the format of `toolpost audit --json`. Its fields are in the order in which they are hashed, so that a file can be
verified without the store.
"""

import gzip
import os
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from toolpost.base.ids import Digest
from toolpost.base.state_folder import make_folder
from toolpost.store.audit_values import AuditRecord
from toolpost.store.chain import COLUMNS, ChainVerifier, Row
from toolpost.store.segments import AuditSegment

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
    found: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
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


def digest_lines(lines: Iterable[bytes]) -> Digest:
    """Return the digest of the lines of a segment."""
    found = sha256()
    for line in lines:
        found.update(line)
    return Digest("sha256:" + found.hexdigest())


def archive_name(segment: AuditSegment) -> str:
    return f"audit-{segment.first:012}-{segment.last:012}.jsonl.gz"


def write_archive(folder: Path, segment: AuditSegment, lines: Sequence[bytes]) -> Path:
    """Write the lines of a segment into a file of its own, whole or not at all. Raises `OSError`."""
    make_folder(folder, mode=0o700)
    path = folder / archive_name(segment)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        # Without a time stamp, so that the same records make the same file.
        with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
            packed.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    return path


def find_archive_break(folder: Path, segment: AuditSegment) -> str | None:
    """Return what is wrong with the archive of a segment, None if it is as it was written or is not there."""
    path = folder / archive_name(segment)
    if not path.exists():
        return None
    verifier = ChainVerifier(segment.first - 1, segment.previous)
    digest = sha256()
    try:
        with gzip.open(path, "rb") as file:
            for line in file:
                digest.update(line)
                if (verdict := verifier.check_rows([row_of_line(line)])) is not None:
                    return f"{path.name}: entry {verdict.broken_seq}: {verdict.reason}"
    except (OSError, EOFError, ValueError) as error:
        return f"{path.name}: {error}"
    if (verifier.seq, verifier.hash) != (segment.last, segment.hash) or digest.hexdigest() != segment.digest[7:]:
        return f"{path.name}: it is not what was sealed"
    return None
