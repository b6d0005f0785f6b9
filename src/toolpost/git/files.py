"""Bounded reads of untrusted files: follow no link, open no pipe or device, and read at most a limit."""

from pathlib import Path

from toolpost.git.open_below import open_below


class Unreadable(Exception):
    """A file of a repository cannot be used; the message tells why."""


def read_file(folder: Path, name: str, limit: int) -> bytes | None:
    """Return a file below `folder`, or None if there is none. Raises `Unreadable` for links, special and too large files."""
    try:
        descriptor = open_below(folder, name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unreadable(f"`{name}` in it is not a regular file that can be read") from error
    try:
        with open(descriptor, "rb") as file:  # noqa: PTH123 (a descriptor)
            data = file.read(limit + 1)
    except OSError as error:
        raise Unreadable(f"`{name}` in it cannot be read") from error
    if len(data) > limit:
        raise Unreadable(f"`{name}` in it is larger than {limit:,} bytes")
    return data


def read_text(folder: Path, name: str, limit: int = 4_096) -> str | None:
    """Return a small file as text without its line end, or None if there is none. Raises `Unreadable`."""
    data = read_file(folder, name, limit)
    return None if data is None else data.decode("utf-8", "surrogateescape").rstrip("\r\n")
