"""Whether a work tree differs from HEAD, told without a filter being run.

git compares contents after the clean filters that a repository names. Here a file whose size and times are those of the index is
unchanged, as git has it too; any other is hashed as it is. Where that does not decide, because the repository converts
contents, it is said that it is not known.
"""

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from toolpost.base.ids import JsonObject
from toolpost.git.config import is_true, read_user_config
from toolpost.git.files import Unreadable
from toolpost.git.ignore import IgnoreRules, rules_of
from toolpost.git.index import LINK, SUBMODULE, GitIndex, Noted, digest_of, is_left_alone, read_index
from toolpost.git.objects import tree_of
from toolpost.git.open_below import RealFolders, open_below
from toolpost.git.repository import (
    GitRepository,
    Head,
    RepositoryRefused,
    find_repository,
    open_repository,
    read_head,
)

HASH_BYTES: Final = 64 * 1024 * 1024
HASH_S: Final = 2.0
"""How much is hashed at most for one answer."""

Verdict = Literal["same", "differs", "unknown"]


@dataclass(kw_only=True)
class WorkTree:
    """A repository's files, as git knows them and as they are."""

    repository: GitRepository
    index: GitIndex
    prefix: str
    """The folder that is looked at, from the top, with a `/` at its end; empty for all of it."""
    ignore: IgnoreRules
    untracked: list[str] = field(default_factory=list)
    """Files from `prefix` that git does not know and does not ignore."""

    def tracked(self) -> Iterator[tuple[str, Noted]]:
        """Go through the files that git knows below the prefix, by path from there."""
        for path, noted in self.index.entries.items():
            if path.startswith(self.prefix) and not path.endswith("/"):
                yield path[len(self.prefix) :], noted

    def knows(self, path: str) -> bool:
        """Say whether git knows a file, given by its path from the prefix."""
        return self.prefix + path in self.index.entries


def open_work_tree(root: Path) -> WorkTree | None:
    """Read what git knows of a folder; None if it is in no repository, or one that ignores it. Raises `RepositoryRefused`."""
    repository = find_repository(root)
    if repository is None:
        return None
    prefix = "" if root == repository.top else f"{root.relative_to(repository.top).as_posix()}/"
    try:
        index = read_index(repository)
    except Unreadable as error:
        raise RepositoryRefused(f"The repository {repository.top} is not used: {error}.") from error
    tree = WorkTree(repository=repository, index=index, ignore=rules_of(repository), prefix=prefix)
    if prefix and tree.ignore.leave_out(f"{prefix}.") and next(tree.tracked(), None) is None:
        return None
    return tree


def state_of(tree: WorkTree) -> JsonObject:
    """Return head, branch, whether anything differs, and a note where it cannot be told."""
    head = read_head(tree.repository)
    verdict, note = _compare(tree, head)
    notes = [said for said in (head.note, note) if said]
    state: JsonObject = {"head": head.commit, "branch": head.branch, "dirty": verdict != "same"}
    return state | ({"note": " ".join(notes)} if notes else {})


def _compare(tree: WorkTree, head: Head) -> tuple[Verdict, str | None]:
    if tree.untracked or tree.index.has_conflicts:
        return "differs", None
    staged = _staged(tree, head)
    if staged[0] == "differs":
        return staged
    comparison, unknown = _Comparison(tree), list[str]()
    for path, noted in tree.tracked():
        verdict = comparison.judge(path, noted)
        if verdict == "differs":
            return "differs", None
        if verdict == "unknown":
            unknown.append(path)
    if unknown:
        shown = unknown[0].encode("utf-8", "replace").decode()
        return (
            "unknown",
            f"Whether {len(unknown)} files differ is not known, such as {shown}: no filter is run to find out.",
        )
    return staged


def _staged(tree: WorkTree, head: Head) -> tuple[Verdict, str | None]:
    """Compare the index with the commit: its tree follows from the names and ids in the index."""
    if head.commit is None:
        return ("differs" if tree.index.entries else "same"), None
    try:
        committed = tree_of(tree.repository, head.commit)
    except Unreadable as error:
        return "unknown", f"Whether anything is staged is not known: {error}."
    if committed is None:
        return "unknown", "Whether anything is staged is not known: the commit is not in this repository itself."
    return ("same" if tree.index.tree_id(len(committed)) == committed else "differs"), None


class _Comparison:
    """Compares files with what the index notes of them."""

    def __init__(self, tree: WorkTree) -> None:
        repository = tree.repository
        self._tree = tree
        self._root = repository.top / tree.prefix if tree.prefix else repository.top
        self._id_bytes = repository.id_bytes
        self._has_modes = is_true(repository.settings, "core.filemode", default=True)
        self._converts = _may_convert(tree)
        self._hash_bytes = HASH_BYTES
        self._until = time.monotonic() + HASH_S
        self._folders = RealFolders(os.fspath(self._root))

    def judge(self, path: str, noted: Noted) -> Verdict:
        """Say whether a file is as it was when git last looked."""
        if is_left_alone(noted):
            return "same"
        try:
            found = os.lstat(f"{self._root}/{path}")  # No `Path`: there may be a hundred thousand.
        except OSError:
            return "differs"
        if not self._folders.has(path.rpartition("/")[0]):
            return "differs"
        if noted[2] == SUBMODULE:
            return self._judge_submodule(path, noted, found.st_mode)
        return self._judge_file(path, noted, found)

    def _judge_file(self, path: str, noted: Noted, found: os.stat_result) -> Verdict:
        mode, size = noted[2], noted[3]
        is_kind = stat.S_ISLNK(found.st_mode) if mode == LINK else stat.S_ISREG(found.st_mode)
        has_other_mode = self._has_modes and mode != LINK and bool(mode & 0o100) != bool(found.st_mode & 0o100)
        if not is_kind or has_other_mode:
            return "differs"
        if self._is_as_noted(noted, found):
            return "same"
        # A size of 0 is what git notes where it is not sure itself.
        if size not in (0, found.st_size & 0xFFFFFFFF):
            return "differs"
        return self._judge_content(path, noted, found)

    def _is_as_noted(self, noted: Noted, found: os.stat_result) -> bool:
        ctime_ns, mtime_ns, _, size, _, _ = noted
        if size != found.st_size & 0xFFFFFFFF or not _is_time(mtime_ns, found.st_mtime_ns):
            return False
        # Written when the index was, or later: it may have been written again in the same moment.
        return _is_time(ctime_ns, found.st_ctime_ns) and mtime_ns < self._tree.index.mtime_ns

    def _judge_content(self, path: str, noted: Noted, found: os.stat_result) -> Verdict:
        if found.st_size > self._hash_bytes or time.monotonic() > self._until:
            return "unknown"
        self._hash_bytes -= found.st_size
        try:
            content = _read(self._root, path, found)
        except OSError:
            return "differs"
        if digest_of(b"blob %d\0" % len(content) + content, self._id_bytes) == noted[4]:
            return "same"
        return "unknown" if self._converts and noted[2] != LINK else "differs"

    def _judge_submodule(self, path: str, noted: Noted, mode: int) -> Verdict:
        """Compare the commit that a submodule has checked out; its files are its own affair."""
        top = self._root / path
        try:
            pointer = os.lstat(top / ".git")
        except OSError:
            return "same" if stat.S_ISDIR(mode) else "differs"  # It has not been fetched.
        try:
            commit = read_head(open_repository(top, pointer.st_mode)).commit
        except RepositoryRefused:
            return "unknown"
        return "same" if commit == noted[4].hex() else "differs"


def _is_time(noted_ns: int, found_ns: int) -> bool:
    """Compare a time of the index; some programs note seconds only, or nothing."""
    if noted_ns % 1_000_000_000 == 0:
        return noted_ns in (0, found_ns // 1_000_000_000 * 1_000_000_000)
    return noted_ns == found_ns


def _read(root: Path, path: str, found: os.stat_result) -> bytes:
    if stat.S_ISLNK(found.st_mode):
        return os.fsencode((root / path).readlink())
    with open(open_below(root, path), "rb") as file:  # noqa: PTH123 (a descriptor)
        return file.read(found.st_size + 1)


def _may_convert(tree: WorkTree) -> bool:
    """Say whether contents may be other in the repository than in the work tree: by line ends, filters, encodings."""
    if any(path.rpartition("/")[2] == ".gitattributes" for path in tree.index.entries):
        return True
    if os.path.lexists(tree.repository.common_dir / "info/attributes"):
        return True
    settings = [tree.repository.settings, read_user_config()]
    return any(key in found for found in settings for key in ("core.autocrlf", "core.attributesfile", "core.eol"))
