"""The lock file that lies beside the configuration."""

from pathlib import Path
from typing import Final

from toolpost.contracts.errors import BadLock
from toolpost.contracts.lockfile import LockedTool, parse_lock

SIZE_LIMIT_BYTES: Final = 100 * 1024 * 1024
"""Several times what the largest gateway needs: 20,000 tools of some length."""


def read_lock(path: Path) -> dict[str, LockedTool] | None:
    """Read a lock; None if there is none."""
    text = text_of_lock(path)
    return None if text is None else parse_lock(text, name=path.name)


def text_of_lock(path: Path) -> str | None:
    """Read the text of a lock exactly as it is, None if there is none; what is no file of a likely size is not read at all."""
    try:
        if path.exists() and not path.is_file():
            raise BadLock(f"{path} is no file.", hint="`lock` in the configuration, or `--lock`, names another")
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
