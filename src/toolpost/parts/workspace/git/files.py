"""Open and read files below a folder that is not trusted: follow no link, open no pipe or device, read at most a limit.

A path in a repository can be replaced by a link while it is being opened. So the folders of `a/b/c` are opened one by one, `b`
relative to the descriptor of `a`, and each refuses to be a link: no name is resolved twice.
"""

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


class Unreadable(Exception):
    """A file of a repository cannot be used; the message tells why."""


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


def read_file(folder: Path, name: str, limit: int) -> bytes | None:
    """Return a file below `folder`, or None if there is none. Raises `Unreadable` for links, special and too large files."""
    try:
        descriptor = open_below(folder, name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unreadable(f"`{name}` in it is not a regular file that can be read") from error
    try:
        with open(descriptor, "rb") as file:  # noqa: PTH123 (a descriptor)
            # One byte more, because the size that a file claims may change while it is read.
            data = file.read(limit + 1)
    except OSError as error:
        raise Unreadable(f"`{name}` in it cannot be read") from error
    if len(data) > limit:
        raise Unreadable(f"`{name}` in it is larger than {limit:,} bytes")
    return data


def read_text(folder: Path, name: str, limit: int = 4_096) -> str | None:
    """Return a small file as text without its line end, or None if there is none. Raises `Unreadable`."""
    data = read_file(folder, name, limit)
    return None if data is None else data.decode("utf-8", "surrogateescape").rstrip("\r\n")


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
