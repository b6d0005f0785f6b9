"""Only what is allowed: a path of a caller's becomes a regular file within a root, or is refused."""

import errno
import os
import stat
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Final

from toolpost.contracts.errors import Forbidden, InvalidArguments, NotFound
from toolpost.parts.workspace.secrets import holds_secrets, is_hidden
from toolpost.parts.workspace.spec import Repository

_FOLDER_FLAGS: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
# Without waiting: to open a pipe that nobody writes to would take for ever.
_FILE_FLAGS: Final = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_CLOEXEC", 0)
)


def relative_in(repository: Repository, wanted: str) -> str:
    """Return a path relative to the root, or refuse one that is not below it."""
    if not wanted or "\0" in wanted:
        raise InvalidArguments("That is no path.", issues=[{"path": "/path", "message": "it is empty or holds a NUL"}])
    pure = PurePosixPath(wanted)
    if ".." in pure.parts or (os.name == "nt" and ".." in PureWindowsPath(wanted).parts):
        raise _forbidden(wanted, "it goes up with `..`", repository)
    if pure.is_absolute() or Path(wanted).is_absolute():
        if not Path(wanted).is_relative_to(repository.root):
            raise _forbidden(wanted, "it is outside of the repository", repository)
        pure = PurePosixPath(Path(wanted).relative_to(repository.root).as_posix())
    return pure.as_posix()


def opened(repository: Repository, wanted: str) -> tuple[str, int]:
    """Open a regular file below the root; returns its relative path and the descriptor, which the caller closes."""
    relative = relative_in(repository, wanted)
    # By its name first: whether there is such a file is nobody's business either.
    check_allowed(repository, relative, wanted)
    path = repository.root / relative
    try:
        real = path.resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(
            f"There is no file `{wanted[:500]}` in `{repository.name}`.", hint="paths are relative to the repository"
        ) from error
    except (OSError, RuntimeError) as error:
        raise _forbidden(wanted, "it cannot be followed", repository) from error
    if not real.is_relative_to(repository.root):
        raise _forbidden(wanted, "it is a link that leads out of the repository", repository)
    check_allowed(repository, real.relative_to(repository.root).as_posix(), wanted)
    if real in repository.forbidden:
        raise _forbidden(wanted, "it is kept from view", repository)
    number = _descriptor(real, wanted, repository)
    if is_forbidden(repository, os.fstat(number)):
        os.close(number)
        raise _forbidden(wanted, "it is kept from view", repository)
    return relative, number


def check_allowed(repository: Repository, relative: str, wanted: str) -> None:
    """Refuse a path that leads into a hidden folder, or whose name says that it holds secrets."""
    if is_hidden(relative):
        raise _forbidden(wanted, "it is kept from view", repository)
    if holds_secrets(relative) and not repository.allows(relative):
        raise secret_refused(repository, wanted, "files of this name hold secrets")


def secret_refused(repository: Repository, wanted: str, why: str) -> Forbidden:
    """Refuse a file that holds secrets, and say which setting allows it."""
    return Forbidden(
        f"`{wanted[:500]}` may not be read: {why}.",
        hint="a file that holds none is allowed by `workspace.allow_secret_files` in toolpost.toml, a list of globs",
        repo=repository.name,
    )


def is_forbidden(repository: Repository, found: os.stat_result) -> bool:
    """Tell a file that nobody gets to see by what it is, whatever name it was reached by."""
    for path in repository.forbidden:
        try:
            if os.path.samestat(path.stat(), found):
                return True
        except OSError:
            continue
    return False


def _descriptor(real: Path, wanted: str, repository: Repository) -> int:
    try:
        return open_below(repository.root, real.relative_to(repository.root).as_posix())
    except FileNotFoundError as error:
        raise NotFound(f"`{wanted[:500]}` has just gone.") from error
    except NotRegular as error:
        raise _forbidden(
            wanted, "it is a folder" if error.is_folder else "it is no regular file", repository
        ) from error
    except OSError as error:
        raise _forbidden(wanted, os.strerror(error.errno or 0).lower(), repository) from error


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


def _forbidden(wanted: str, why: str, repository: Repository) -> Forbidden:
    return Forbidden(
        f"`{wanted[:500]}` may not be read: {why}.",
        hint="name a file below the repository's root; `workspace.roots` in toolpost.toml says what may be read",
        repo=repository.name,
    )
