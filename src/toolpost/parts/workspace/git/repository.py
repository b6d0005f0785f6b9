"""Find the repository of a folder, check that it may be used, and read its HEAD.

A repository is refused, and its folder treated as one without git, if another user owns it (except git's `safe.directory`),
or if `.git` is a file that names a folder which does not point back: it could name any repository on the machine, and reveal
its branch and commits.
"""

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolpost.parts.workspace.git.config import read_config, read_user_config
from toolpost.parts.workspace.git.files import Unreadable, open_below, read_text

_ID: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF: Final = re.compile(r"refs(?:/[^/\x00-\x20\x7f~^:?*\[\\.][^/\x00-\x20\x7f~^:?*\[\\]*)+")
_PACKED_LIMIT: Final = 32 * 1024 * 1024
_LINE_LIMIT: Final = 8_192
_OF_WORKTREES: Final = ("refs/bisect/", "refs/worktree/", "refs/rewritten/")


class RepositoryRefused(Exception):
    """The repository is not used; the message tells why and what to do."""


@dataclass(frozen=True, kw_only=True)
class GitRepository:
    """The folders of a repository, all checked."""

    top: Path
    """The work tree: the folder with `.git`; `core.worktree` is ignored."""
    git_dir: Path
    common_dir: Path
    """The folder of refs and objects; differs from `git_dir` only for linked work trees."""
    settings: dict[str, list[str]]

    @property
    def id_bytes(self) -> int:
        """The length of an object id: 20 with SHA-1, 32 with SHA-256."""
        return 32 if self.settings.get("extensions.objectformat", [""])[-1].lower() == "sha256" else 20


@dataclass(frozen=True, kw_only=True)
class GitHead:
    """The checked-out commit and branch; None if unknown, detached (branch) or without commits (commit).

    Bytes of the branch that are not UTF-8 are replaced, so that it can be shown and written as JSON.
    """

    commit: str | None = None
    branch: str | None = None
    note: str | None = None
    """Why HEAD could not be read."""


def find_repository(folder: Path) -> GitRepository | None:
    """Return the repository of a folder, or None if it is in none. Raises `RepositoryRefused`."""
    try:
        device = folder.stat().st_dev
    except OSError:
        return None
    for place in (folder, *folder.parents):
        try:
            # Like git, do not cross into another file system.
            if place.stat().st_dev != device:
                return None
            found = os.lstat(place / ".git")
        except OSError:
            continue
        if not stat.S_ISDIR(found.st_mode) or _is_git_dir(place / ".git"):
            return open_repository(place, found.st_mode)
    return None


def open_repository(top: Path, mode: int) -> GitRepository:
    """Open the repository of a work tree; `mode` is the file mode of its `.git`. Raises `RepositoryRefused`."""
    try:
        git_dir = _find_git_dir(top, mode)
        common_dir = _find_common_dir(git_dir)
        _check_owner(top, (top / ".git", top, git_dir, common_dir))
        settings = read_config(common_dir)
    except Unreadable as error:
        raise RepositoryRefused(f"The repository {top} is not used: {error}.") from error
    except OSError as error:
        raise RepositoryRefused(f"The repository {top} cannot be read: {error.strerror}.") from error
    return GitRepository(top=top, git_dir=git_dir, common_dir=common_dir, settings=settings)


def _is_git_dir(path: Path) -> bool:
    """Whether a folder named `.git` really is a repository."""
    return os.path.lexists(path / "HEAD") and ((path / "objects").is_dir() or (path / "commondir").exists())


def _find_git_dir(top: Path, mode: int) -> Path:
    """Return the folder that `.git` is or names; one that it names must point back to this work tree."""
    pointer = top / ".git"
    if stat.S_ISDIR(mode):
        return pointer
    if not stat.S_ISREG(mode):
        raise Unreadable("its `.git` is a link or a special file, which is not followed")
    named = (read_text(top, ".git") or "").removeprefix("gitdir:").strip()
    if not named or "\0" in named:
        raise Unreadable("its `.git` file names no folder")
    target = (top / named).resolve()
    if not _is_git_dir(target) or not _points_back(target, top):
        raise Unreadable("its `.git` file names a repository that does not name this folder as its work tree")
    return target


def _points_back(git_dir: Path, top: Path) -> bool:
    """Whether a repository names this work tree: in `gitdir` (linked work trees) or `core.worktree` (submodules)."""
    if back := read_text(git_dir, "gitdir"):
        return (git_dir / back).parent.resolve() == top and Path(back).name == ".git"
    named = read_config(git_dir).get("core.worktree") or read_config(git_dir, "config.worktree").get("core.worktree")
    return named is not None and (git_dir / named[-1]).resolve() == top


def _find_common_dir(git_dir: Path) -> Path:
    named = read_text(git_dir, "commondir")
    if named is None:
        return git_dir
    common = git_dir.parent.parent
    if git_dir.parent.name != "worktrees" or (git_dir / named).resolve() != common:
        raise Unreadable("its `commondir` names another repository than the one it is part of")
    return common


def _check_owner(top: Path, parts: tuple[Path, ...]) -> None:
    """Refuse what another user owns, as git does since CVE-2022-24765."""
    if os.name == "nt":
        return
    user = os.geteuid()
    trusted = {user}
    if user == 0 and (behind := os.environ.get("SUDO_UID", "")).isdecimal():
        trusted.add(int(behind))
    if all(os.lstat(part).st_uid in trusted for part in parts) or _is_listed_as_safe(top):
        return
    raise RepositoryRefused(
        f"The repository {top} belongs to another user and is not used; "
        f"if you trust it: git config --global --add safe.directory {top}"
    )


def _is_listed_as_safe(top: Path) -> bool:
    is_safe = False
    for listed in read_user_config().get("safe.directory", ()):
        if not listed:
            is_safe = False  # An empty entry clears the list, as for git.
        elif listed == "*":
            is_safe = True
        elif listed.endswith("/*"):
            is_safe = is_safe or top.is_relative_to(Path(listed[:-2]).expanduser())
        else:
            is_safe = is_safe or Path(listed).expanduser() == top
    return is_safe


def read_head(repository: GitRepository) -> GitHead:
    """Return the checked-out commit and branch; errors are in its note, not raised."""
    try:
        name = content = read_text(repository.git_dir, "HEAD") or ""
        branch = None
        if content.startswith("ref:"):
            name = content.removeprefix("ref:").strip()
            branch = name.removeprefix("refs/heads/") if _REF.fullmatch(name) else None
            if branch is None:
                raise Unreadable("HEAD names no ref (the reftable format is not supported)")
            branch = branch.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return GitHead(commit=_resolve(repository, name), branch=branch)
    except Unreadable as error:
        return GitHead(note=f"HEAD is not known: {error}.")
    except OSError as error:
        return GitHead(note=f"HEAD cannot be read: {error.strerror}.")


def _resolve(repository: GitRepository, name: str) -> str | None:
    """Follow a ref to its commit; None for a branch without commits."""
    for _ in range(5):
        if _ID.fullmatch(name):
            return name
        if not _REF.fullmatch(name) or ".." in name:
            raise Unreadable("HEAD points to something that is neither a ref nor an id")
        folder = repository.git_dir if name.startswith(_OF_WORKTREES) else repository.common_dir
        content = read_text(folder, name)
        if content is None:
            return _find_packed_ref(repository, name)
        name = content.removeprefix("ref:").strip()
    raise Unreadable("HEAD is a chain of too many refs")


def _find_packed_ref(repository: GitRepository, name: str) -> str | None:
    """Search `packed-refs`, whose lines are an id and a ref; read line by line, because it may have 32 MiB of them."""
    try:
        descriptor = open_below(repository.common_dir, "packed-refs")
    except (FileNotFoundError, NotADirectoryError):
        return None
    # A branch may have any bytes as its name.
    wanted, left = f" {name}".encode("utf-8", "surrogateescape"), _PACKED_LIMIT
    with open(descriptor, "rb") as file:  # noqa: PTH123 (a descriptor)
        while line := file.readline(_LINE_LIMIT):
            left -= len(line)
            if left < 0:
                raise Unreadable(f"`packed-refs` in it is larger than {_PACKED_LIMIT:,} bytes")
            commit, is_wanted, rest = line.rstrip(b"\r\n").partition(wanted)
            if is_wanted and not rest and _ID.fullmatch(found := commit.decode("ascii", "replace")):
                return found
    return None
