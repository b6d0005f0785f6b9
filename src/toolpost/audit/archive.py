"""Archives: the records of a sealed segment as a compressed file, which is verified without the store."""

import gzip
import os
import zlib
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

from toolpost.audit.file import row_of_line
from toolpost.base.ids import Digest
from toolpost.base.state_folder import make_folder
from toolpost.store.chain import ChainVerifier
from toolpost.store.segments import AuditSegment


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
    except (OSError, EOFError, ValueError, zlib.error) as error:
        return f"{path.name}: {error}"
    if (verifier.seq, verifier.hash) != (segment.last, segment.hash) or digest.hexdigest() != segment.digest[7:]:
        return f"{path.name}: it differs from the sealed segment"
    return None
