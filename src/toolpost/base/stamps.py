"""Stamps of files: they tell that a file has changed without reading it."""

from pathlib import Path

Stamp = tuple[int, int, int]


def read_stamp(path: Path) -> Stamp | None:
    """Return what identifies the state of a file; None if it is not there, or an editor is replacing it."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
