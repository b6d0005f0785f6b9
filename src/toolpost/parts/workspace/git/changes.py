"""Whether a work tree differs from HEAD ("dirty"), without running filters.

git compares contents after the clean filters that a repository names. Here a file with the size and times of its index entry
is unchanged, as for git; any other is hashed as it is. If the hash differs but the repository converts contents (line ends,
filters), the answer is "unknown".
"""

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from toolpost.base import JsonObject
from toolpost.parts.workspace.git.config import is_true, read_user_config
from toolpost.parts.workspace.git.files import RealFolders, Unreadable, open_below
from toolpost.parts.workspace.git.ignore import IgnoreRules, rules_of
from toolpost.parts.workspace.git.index import (
    LINK,
    SUBMODULE,
    GitIndex,
    IndexEntry,
    hash_object,
    is_unchecked,
    read_index,
)
from toolpost.parts.workspace.git.objects import tree_of
from toolpost.parts.workspace.git.repository import (
    GitHead,
    GitRepository,
    RepositoryRefused,
    find_repository,
    open_repository,
    read_head,
)

HASH_BYTES: Final = 64 * 1024 * 1024
HASH_S: Final = 2.0
"""Limits of hashing for one answer; files beyond them are "unknown"."""

DiffState = Literal["same", "differs", "unknown"]


@dataclass(kw_only=True)
class WorkTree:
    """The work tree of a repository, or one folder of it."""

    repository: GitRepository
    index: GitIndex
    prefix: str
    """The folder from the top, ending with `/`; empty for the whole work tree."""
    ignore: IgnoreRules
    untracked: list[str] = field(default_factory=list)
    """Files below `prefix` that are neither tracked nor ignored; filled by the scan."""

    def tracked(self) -> Iterator[tuple[str, IndexEntry]]:
        """Yield the tracked files below the prefix, by their path from there."""
        for path, entry in self.index.entries.items():
            if path.startswith(self.prefix) and not path.endswith("/"):
                yield path[len(self.prefix) :], entry

    def is_tracked(self, path: str) -> bool:
        """Whether a file is tracked, by its path from the prefix."""
        return self.prefix + path in self.index.entries


def open_work_tree(root: Path) -> WorkTree | None:
    """Open the work tree of a folder; None if it is in no repository, or in one that ignores it. Raises `RepositoryRefused`."""
    repository = find_repository(root)
    if repository is None:
        return None
    prefix = "" if root == repository.top else f"{root.relative_to(repository.top).as_posix()}/"
    try:
        index = read_index(repository)
    except Unreadable as error:
        raise RepositoryRefused(f"The repository {repository.top} is not used: {error}.") from error
    tree = WorkTree(repository=repository, index=index, ignore=rules_of(repository), prefix=prefix)
    if prefix and tree.ignore.ignores(f"{prefix}.") and next(tree.tracked(), None) is None:
        return None
    return tree


def describe_state(tree: WorkTree) -> JsonObject:
    """Return `head`, `branch`, `dirty`, and a `note` on what could not be determined."""
    head = read_head(tree.repository)
    state, note = _compare(tree, head)
    notes = [text for text in (head.note, note) if text]
    described: JsonObject = {"head": head.commit, "branch": head.branch, "dirty": state != "same"}
    return described | ({"note": " ".join(notes)} if notes else {})


def _compare(tree: WorkTree, head: GitHead) -> tuple[DiffState, str | None]:
    if tree.untracked or tree.index.has_conflicts:
        return "differs", None
    staged = _compare_staged(tree, head)
    if staged[0] == "differs":
        return staged
    comparer, unknown = _FileComparer(tree), list[str]()
    for path, entry in tree.tracked():
        state = comparer.compare(path, entry)
        if state == "differs":
            return "differs", None
        if state == "unknown":
            unknown.append(path)
    if unknown:
        example = unknown[0].encode("utf-8", "replace").decode()
        return (
            "unknown",
            f"Whether {len(unknown)} files differ is not known, such as {example}: filters are not run.",
        )
    return staged


def _compare_staged(tree: WorkTree, head: GitHead) -> tuple[DiffState, str | None]:
    """Compare the index with HEAD by the id of the tree that a commit of the index would have."""
    if head.commit is None:
        return ("differs" if tree.index.entries else "same"), None
    try:
        committed = tree_of(tree.repository, head.commit)
    except Unreadable as error:
        return "unknown", f"Whether anything is staged is not known: {error}."
    if committed is None:
        return "unknown", "Whether anything is staged is not known: the commit is not in this repository."
    return ("same" if tree.index.tree_id(len(committed)) == committed else "differs"), None


class _FileComparer:
    """Compares files with their index entries; the limits of hashing count over all files."""

    def __init__(self, tree: WorkTree) -> None:
        repository = tree.repository
        self._tree = tree
        self._root = repository.top / tree.prefix if tree.prefix else repository.top
        self._id_bytes = repository.id_bytes
        self._has_modes = is_true(repository.settings, "core.filemode", default=True)
        self._converts = _may_convert(tree)
        self._hash_bytes = HASH_BYTES
        self._deadline = time.monotonic() + HASH_S
        self._folders = RealFolders(os.fspath(self._root))

    def compare(self, path: str, entry: IndexEntry) -> DiffState:
        if is_unchecked(entry):
            return "same"
        try:
            status = os.lstat(f"{self._root}/{path}")  # Not `Path`: there may be a hundred thousand files.
        except OSError:
            return "differs"
        if not self._folders.has(path.rpartition("/")[0]):
            return "differs"
        if entry[2] == SUBMODULE:
            return self._compare_submodule(path, entry, status.st_mode)
        return self._compare_file(path, entry, status)

    def _compare_file(self, path: str, entry: IndexEntry, status: os.stat_result) -> DiffState:
        mode, size = entry[2], entry[3]
        is_kind = stat.S_ISLNK(status.st_mode) if mode == LINK else stat.S_ISREG(status.st_mode)
        has_other_mode = self._has_modes and mode != LINK and bool(mode & 0o100) != bool(status.st_mode & 0o100)
        if not is_kind or has_other_mode:
            return "differs"
        # An index has 32 bits for a size.
        is_same_size = size == status.st_size & 0xFFFFFFFF
        if is_same_size and self._has_same_times(entry, status):
            return "same"
        # git writes size 0 for an entry that it has to check again ("racily clean").
        return self._compare_content(path, entry, status) if is_same_size or size == 0 else "differs"

    def _has_same_times(self, entry: IndexEntry, status: os.stat_result) -> bool:
        ctime_ns, mtime_ns = entry[:2]
        if not _is_same_time(mtime_ns, status.st_mtime_ns) or not _is_same_time(ctime_ns, status.st_ctime_ns):
            return False
        # A file written at the time of the index or later may have been written again with the same times.
        return mtime_ns < self._tree.index.mtime_ns

    def _compare_content(self, path: str, entry: IndexEntry, status: os.stat_result) -> DiffState:
        if status.st_size > self._hash_bytes or time.monotonic() > self._deadline:
            return "unknown"
        self._hash_bytes -= status.st_size
        try:
            if stat.S_ISLNK(status.st_mode):
                content = os.fsencode((self._root / path).readlink())
            else:
                with open(open_below(self._root, path), "rb") as file:  # noqa: PTH123 (a descriptor)
                    content = file.read(status.st_size + 1)
        except OSError:
            return "differs"
        if hash_object(b"blob %d\0" % len(content) + content, self._id_bytes) == entry[4]:
            return "same"
        return "unknown" if self._converts and entry[2] != LINK else "differs"

    def _compare_submodule(self, path: str, entry: IndexEntry, mode: int) -> DiffState:
        """Compare the checked-out commit of a submodule; its files are not compared."""
        top = self._root / path
        try:
            pointer = os.lstat(top / ".git")
        except OSError:
            return "same" if stat.S_ISDIR(mode) else "differs"  # A submodule that is not initialized.
        try:
            commit = read_head(open_repository(top, pointer.st_mode)).commit
        except RepositoryRefused:
            return "unknown"
        return "same" if commit == entry[4].hex() else "differs"


def _is_same_time(entry_ns: int, found_ns: int) -> bool:
    """Compare a time of an index entry; some programs write only seconds, or 0."""
    if entry_ns % 1_000_000_000 == 0:
        return entry_ns in (0, found_ns // 1_000_000_000 * 1_000_000_000)
    return entry_ns == found_ns


def _may_convert(tree: WorkTree) -> bool:
    """Whether the repository may convert contents: line ends, filters, encodings."""
    if any(path.rpartition("/")[2] == ".gitattributes" for path in tree.index.entries):
        return True
    if os.path.lexists(tree.repository.common_dir / "info/attributes"):
        return True
    settings = [tree.repository.settings, read_user_config()]
    return any(key in found for found in settings for key in ("core.autocrlf", "core.attributesfile", "core.eol"))
