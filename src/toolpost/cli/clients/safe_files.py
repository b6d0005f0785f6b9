"""Files of other people, changed with care: a copy beside them first, then all at once or not at all."""

import os
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from toolpost.contracts.errors import BadConfiguration

_BACKUP: Final = ".toolpost-backup-"


def text_of(path: Path) -> str | None:
    """Read a file exactly as it is; None if there is none."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise BadConfiguration(f"{path} is not UTF-8.") from error
    except OSError as error:
        raise BadConfiguration(f"Cannot read {path}: {error.strerror}.") from error


def back_up(path: Path) -> Path:
    """Copy a file beside itself, under the time of day; its permissions go along."""
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
    """List the copies that were made, the newest first."""
    return sorted(
        (found for found in path.parent.iterdir() if found.name.startswith(f"{path.name}{_BACKUP}")), reverse=True
    )


def write_whole(path: Path, text: str, *, before: str | None, mode: int | None = None) -> None:
    """Replace a file at once; refuse if it is no longer what it was when it was read."""
    # Where the file is a link, as among dotfiles, what it leads to is changed.
    path = path.resolve()
    if (found := text_of(path)) == text:
        return
    if found != before:
        raise BadConfiguration(f"{path} was changed by somebody else just now.", hint="try again")
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
