"""Only what is allowed: a path of a caller's becomes a regular file within a root, or is refused."""

import os
from pathlib import Path, PurePosixPath, PureWindowsPath

from toolpost.contracts.errors import Forbidden, InvalidArguments, NotFound
from toolpost.git.open_below import NotRegular, open_below
from toolpost.parts.workspace.secrets import holds_secrets, is_hidden
from toolpost.parts.workspace.spec import Repository


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


def _forbidden(wanted: str, why: str, repository: Repository) -> Forbidden:
    return Forbidden(
        f"`{wanted[:500]}` may not be read: {why}.",
        hint="name a file below the repository's root; `workspace.roots` in toolpost.toml says what may be read",
        repo=repository.name,
    )
