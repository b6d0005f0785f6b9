"""Safe changes of files that belong to others: a backup first, then an atomic replacement."""

import os
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from toolpost.contracts.errors import BadConfiguration

_BACKUP: Final = ".toolpost-backup-"


def read_text(path: Path) -> str | None:
    """Read a file, byte for byte; None if it does not exist."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise BadConfiguration(f"{path} is not UTF-8.") from error
    except OSError as error:
        raise BadConfiguration(f"Cannot read {path}: {error.strerror}.") from error


def back_up(path: Path) -> Path:
    """Copy a file beside itself, with a timestamp in its name and the same permissions; returns the copy."""
    stamp = f"{path.name}{_BACKUP}{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    number, copy = 2, path.with_name(stamp)
    while copy.exists():
        copy = path.with_name(f"{stamp}-{number}")
        number += 1
    try:
        shutil.copy2(path, copy)
    except OSError as error:
        raise BadConfiguration(f"Cannot make a backup of {path}: {error.strerror}.") from error
    return copy


def backups_of(path: Path) -> list[Path]:
    """List the backups of a file, the newest first."""
    return sorted(
        (found for found in path.parent.iterdir() if found.name.startswith(f"{path.name}{_BACKUP}")), reverse=True
    )


def write_atomically(path: Path, text: str, *, before: str | None, mode: int | None = None) -> None:
    """Replace a file through a temporary one.

    `before` is the text that was read; raises `BadConfiguration` if the file has changed since.
    """
    # A symbolic link, as in a dotfiles repository, is followed rather than replaced.
    path = path.resolve()
    if (found := read_text(path)) == text:
        return
    if found != before:
        raise BadConfiguration(f"{path} was changed by another program just now.", hint="try again")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(number, "wb") as file:
                file.write(text.encode("utf-8"))
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(mode or _mode_for(path))
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise BadConfiguration(f"Cannot write {path}: {error.strerror}.") from error


def _mode_for(path: Path) -> int:
    if path.exists():
        return path.stat().st_mode & 0o7777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


class TextFile:
    """A file as it was when it was read; `text` is None if there is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = read_text(path)

    def back_up(self) -> Path:
        """Copy the file beside itself; returns the copy."""
        return back_up(self.path)

    def replace(self, text: str, *, mode: int | None = None) -> None:
        """Write the file atomically; raises `BadConfiguration` if it has changed since it was read."""
        write_atomically(self.path, text, before=self.text, mode=mode)
