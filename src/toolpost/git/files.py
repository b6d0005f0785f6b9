"""Bounded reads of files that a stranger may have made: through no link, never of a pipe or device, never more than a limit."""

from pathlib import Path

from toolpost.git.open_below import open_below


class Unreadable(Exception):
    """A file of a repository cannot be used; the message says why."""


def read_file(folder: Path, name: str, limit: int) -> bytes | None:
    """Return a whole file below `folder`; None if there is none. Raises `Unreadable` for links, pipes and what is too large."""
    try:
        number = open_below(folder, name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unreadable(f"`{name}` in it is not a regular file that can be read") from error
    try:
        with open(number, "rb") as file:  # noqa: PTH123 (a descriptor)
            data = file.read(limit + 1)
    except OSError as error:
        raise Unreadable(f"`{name}` in it cannot be read") from error
    if len(data) > limit:
        raise Unreadable(f"`{name}` in it is larger than {limit:,} bytes")
    return data


def read_text(folder: Path, name: str, limit: int = 4_096) -> str | None:
    """Return a small file as text, without the line end; None if there is none."""
    data = read_file(folder, name, limit)
    return None if data is None else data.decode("utf-8", "surrogateescape").rstrip("\r\n")
