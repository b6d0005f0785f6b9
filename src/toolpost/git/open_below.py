"""Open files without following links, so that a path in an untrusted folder cannot lead out of it."""

import errno
import os
import stat
from pathlib import Path
from typing import Final

_FOLDER_FLAGS: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
# Non-blocking: opening a named pipe without a writer would block for ever.
_FILE_FLAGS: Final = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_CLOEXEC", 0)
)


class NotARegularFile(OSError):
    """The path is a folder, a link, a pipe, a socket or a device."""

    def __init__(self, mode: int) -> None:
        super().__init__(errno.EINVAL, "not a regular file")
        self.is_folder = stat.S_ISDIR(mode)


def open_below(root: Path, relative: str) -> int:
    """Open a regular file without following any link, even one that is created at the same moment; return its descriptor.

    Raises `NotARegularFile`, or another `OSError`.
    """
    *folders, name = relative.split("/")
    # `O_NOFOLLOW` does not stop `..`.
    if not {"", ".", ".."}.isdisjoint((*folders, name)):
        raise PermissionError(errno.EACCES, "not below its folder", relative)
    if os.open not in os.supports_dir_fd:  # Windows
        return _open_regular(os.fspath(root / relative), None)
    at = os.open(root, _FOLDER_FLAGS)
    try:
        for folder in folders:
            before, at = at, os.open(folder, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=at)
            os.close(before)
        return _open_regular(name, at)
    finally:
        os.close(at)


def _open_regular(name: str, folder: int | None) -> int:
    # Checked before opening, because opening a pipe or a device can have effects.
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    if not stat.S_ISREG(mode):
        raise NotARegularFile(mode)
    descriptor = os.open(name, _FILE_FLAGS, dir_fd=folder)
    # And again afterwards: it may have been replaced in between.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotARegularFile(0)
    return descriptor


class RealFolders:
    """Tells folders from links to folders, cached: git lists files behind a link that has replaced a folder."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._known = {"": True}

    def has(self, folder: str) -> bool:
        """Whether no part of the path of a folder is a link."""
        known = self._known.get(folder)
        if known is None:
            is_link = Path(f"{self._root}/{folder}").is_symlink()
            known = self._known[folder] = not is_link and self.has(folder.rpartition("/")[0])
        return known
