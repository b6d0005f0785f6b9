"""The lock file that lies beside the configuration."""

from pathlib import Path

from toolpost.contracts.errors import BadLock
from toolpost.contracts.lockfile import LockedTool, parse_lock


def read_lock(path: Path) -> dict[str, LockedTool] | None:
    """Read a lock; None if there is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise BadLock(f"{path.name} is not UTF-8.") from error
    except OSError as error:
        raise BadLock(f"Cannot read {path}: {error.strerror}.") from error
    return parse_lock(text, name=path.name)
