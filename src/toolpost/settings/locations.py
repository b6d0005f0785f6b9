"""Where Toolpost keeps what it remembers when no `toolpost.toml` says so: never in the folder that a client starts it in."""

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from toolpost.base.own_folder import OWN_FOLDER
from toolpost.contracts.errors import BadConfiguration


def state_folder(project: Path) -> Path:
    """Return the folder for the state of a project that has no `toolpost.toml`.

    That is its `.toolpost` where it has one already, else a folder of its own in the user's data directory. Two projects
    share none: servers of the same name in both need not be the same.
    """
    project = project.absolute()
    if (own := project / OWN_FOLDER).is_dir():
        return own
    digest = hashlib.sha256(os.fsencode(project)).hexdigest()[:12]
    return data_folder() / f"{project.name[:40] or 'root'}-{digest}"


def data_folder(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Return the user's data directory for Toolpost; XDG_DATA_HOME names another on every system."""
    # The specification has relative paths ignored: they would lead into whatever folder a client chose.
    if Path(chosen := environment.get("XDG_DATA_HOME", "")).is_absolute():
        return Path(chosen) / "toolpost"
    try:
        home = Path.home()
    except RuntimeError as error:
        raise BadConfiguration(
            "This user has no home directory to keep the store in.",
            hint="set HOME or XDG_DATA_HOME, or write a toolpost.toml",
        ) from error
    if platform == "darwin":
        return home / "Library" / "Application Support" / "toolpost"
    if platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local") / "toolpost"
    return home / ".local" / "share" / "toolpost"
