"""Where state is kept without a `toolpost.toml`: never in the folder in which a client starts the gateway."""

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from toolpost.base.state_folder import STATE_FOLDER
from toolpost.contracts.errors import BadConfiguration


def state_folder(project: Path) -> Path:
    """Return the folder for the state of a project that has no `toolpost.toml`.

    An existing `.toolpost` in the project, else a folder per project in the user's data directory. Projects do not share one,
    because servers of the same name in two projects may differ.
    """
    project = project.absolute()
    if (own := project / STATE_FOLDER).is_dir():
        return own
    digest = hashlib.sha256(os.fsencode(project)).hexdigest()[:12]
    return data_folder() / f"{project.name[:40] or 'root'}-{digest}"


def data_folder(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Return the user's data directory for Toolpost; an absolute XDG_DATA_HOME overrides it on every system."""
    # The XDG specification ignores relative paths: they would depend on the folder in which a client starts us.
    if Path(chosen := environment.get("XDG_DATA_HOME", "")).is_absolute():
        return Path(chosen) / "toolpost"
    try:
        home = Path.home()
    except RuntimeError as error:
        raise BadConfiguration(
            "There is no home directory to keep the store in.",
            hint="set HOME or XDG_DATA_HOME, or create a toolpost.toml",
        ) from error
    if platform == "darwin":
        return home / "Library" / "Application Support" / "toolpost"
    if platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local") / "toolpost"
    return home / ".local" / "share" / "toolpost"
