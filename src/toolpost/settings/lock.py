"""Reading the lock file beside the configuration."""

from pathlib import Path
from typing import Final

from toolpost.contracts.errors import BadLock
from toolpost.contracts.lockfile import LockedTool, parse_lock

SIZE_LIMIT_BYTES: Final = 100 * 1024 * 1024
"""Several times the lock of 20,000 tools with long descriptions."""


def read_lock(path: Path) -> dict[str, LockedTool] | None:
    """Read a lock; None if there is no file. Raises `BadLock`."""
    text = read_lock_text(path)
    return None if text is None else parse_lock(text, name=path.name)


def read_lock_text(path: Path) -> str | None:
    """Read a lock's text, byte for byte; None if there is no file. A folder or an oversized file is refused unread."""
    try:
        if path.exists() and not path.is_file():
            raise BadLock(f"{path} is not a file.", hint="set `lock` in toolpost.toml, or `--lock`, to a file")
        if path.exists() and (size := path.stat().st_size) > SIZE_LIMIT_BYTES:
            raise BadLock(
                f"{path} has {size // 1024 // 1024} MiB; a lock has {SIZE_LIMIT_BYTES // 1024 // 1024} MiB at most.",
                hint="restore it from version control, or remove it and run `toolpost lock`",
            )
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise BadLock(f"{path.name} is not UTF-8.") from error
    except OSError as error:
        raise BadLock(f"Cannot read {path}: {error.strerror}.") from error
