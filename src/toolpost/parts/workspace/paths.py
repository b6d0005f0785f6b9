"""Open files for callers: a path becomes the descriptor of a regular file below the repository root, or is refused.

A path is checked by name, resolved, checked again by its real name, and then opened folder by folder without following links
(`O_NOFOLLOW`), so that a link put in its place between check and open leads nowhere.
"""

import os
from pathlib import Path, PurePosixPath, PureWindowsPath

from toolpost import Forbidden, InvalidArguments, NotFound
from toolpost.parts.workspace.git.files import NotARegularFile, open_below
from toolpost.parts.workspace.secrets import is_hidden, may_hold_secrets
from toolpost.parts.workspace.spec import Repository


def relative_path(repository: Repository, wanted: str) -> str:
    """Return a path relative to the root; raise `Forbidden` if it is not below it, `InvalidArguments` if it is not a path."""
    if not wanted or "\0" in wanted:
        raise InvalidArguments(
            "`path` is not a path.", issues=[{"path": "/path", "message": "it is empty or contains NUL"}]
        )
    pure = PurePosixPath(wanted)
    if ".." in pure.parts or (os.name == "nt" and ".." in PureWindowsPath(wanted).parts):
        raise _forbidden(wanted, "it goes up with `..`", repository)
    if pure.is_absolute() or Path(wanted).is_absolute():
        if not Path(wanted).is_relative_to(repository.root):
            raise _forbidden(wanted, "it is outside of the repository", repository)
        pure = PurePosixPath(Path(wanted).relative_to(repository.root).as_posix())
    return pure.as_posix()


def open_file(repository: Repository, wanted: str) -> tuple[str, int]:
    """Open a regular file below the root; return its relative path and a descriptor that the caller must close.

    Raises `NotFound` or `Forbidden`.
    """
    relative = relative_path(repository, wanted)
    # By name first: a caller must not learn whether such a file exists.
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
        raise _forbidden(wanted, "it is hidden", repository)
    descriptor = _open_real(real, wanted, repository)
    if is_forbidden(repository, os.fstat(descriptor)):
        os.close(descriptor)
        raise _forbidden(wanted, "it is hidden", repository)
    return relative, descriptor


def check_allowed(repository: Repository, relative: str, wanted: str) -> None:
    """Raise `Forbidden` for a path into a hidden folder, or one whose name says that it contains secrets."""
    if is_hidden(relative):
        raise _forbidden(wanted, "it is hidden", repository)
    if may_hold_secrets(relative) and not repository.allows(relative):
        raise secret_refusal(repository, wanted, "files with this name contain secrets")


def secret_refusal(repository: Repository, wanted: str, why: str) -> Forbidden:
    """Return the error for a file with secrets; its hint names the setting that allows it."""
    return Forbidden(
        f"`{wanted[:500]}` may not be read: {why}.",
        hint="if it contains none, add a glob for it to `workspace.allow_secret_files` in toolpost.toml",
        repo=repository.name,
    )


def is_forbidden(repository: Repository, found: os.stat_result) -> bool:
    """Whether an open file is one of `repository.forbidden`, compared by inode, so that hard links are found too."""
    for path in repository.forbidden:
        try:
            if os.path.samestat(path.stat(), found):
                return True
        except OSError:
            continue
    return False


def _open_real(real: Path, wanted: str, repository: Repository) -> int:
    try:
        return open_below(repository.root, real.relative_to(repository.root).as_posix())
    except FileNotFoundError as error:
        raise NotFound(f"`{wanted[:500]}` was removed while it was opened.") from error
    except NotARegularFile as error:
        raise _forbidden(
            wanted, "it is a folder" if error.is_folder else "it is not a regular file", repository
        ) from error
    except OSError as error:
        raise _forbidden(wanted, os.strerror(error.errno or 0).lower(), repository) from error


def _forbidden(wanted: str, why: str, repository: Repository) -> Forbidden:
    return Forbidden(
        f"`{wanted[:500]}` may not be read: {why}.",
        hint="name a file below the repository root; `workspace.roots` in toolpost.toml lists the folders that may be read",
        repo=repository.name,
    )
