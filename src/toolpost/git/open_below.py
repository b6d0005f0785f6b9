"""Files opened through no link: what somebody else may change must not lead out of its folder."""

import errno
import os
import stat
from pathlib import Path
from typing import Final

_FOLDER_FLAGS: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
# Without waiting: to open a pipe that nobody writes to would take for ever.
_FILE_FLAGS: Final = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_CLOEXEC", 0)
)


class NotRegular(OSError):
    """It is not a regular file."""

    def __init__(self, mode: int) -> None:
        super().__init__(errno.EINVAL, "not a regular file")
        self.is_folder = stat.S_ISDIR(mode)


def open_below(root: Path, relative: str) -> int:
    """Open a regular file through no link at all, also if one is put in its way in this very moment."""
    *folders, name = relative.split("/")
    # To go up is not to follow a link: the system would do it.
    if not {"", ".", ".."}.isdisjoint((*folders, name)):
        raise PermissionError(errno.EACCES, "not below its folder", relative)
    if os.open not in os.supports_dir_fd:  # Windows
        return _regular(os.fspath(root / relative), None)
    at = os.open(root, _FOLDER_FLAGS)
    try:
        for folder in folders:
            before, at = at, os.open(folder, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=at)
            os.close(before)
        return _regular(name, at)
    finally:
        os.close(at)


def _regular(name: str, folder: int | None) -> int:
    # Looked at first: to open a pipe or a device can do something to whoever is at its other end.
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    if not stat.S_ISREG(mode):
        raise NotRegular(mode)
    number = os.open(name, _FILE_FLAGS, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise NotRegular(0)
    return number


class RealFolders:
    """Tells folders from links to folders: git goes on listing what it knows behind a link that has taken a folder's place."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._known = {"": True}

    def has(self, folder: str) -> bool:
        """Say whether a folder is reached through no link."""
        known = self._known.get(folder)
        if known is None:
            is_link = Path(f"{self._root}/{folder}").is_symlink()
            known = self._known[folder] = not is_link and self.has(folder.rpartition("/")[0])
        return known
