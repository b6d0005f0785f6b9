"""List the files of a repository: those that git tracks or would add; without git, all that no .gitignore excludes."""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from toolpost import ToolFailed
from toolpost.base import JsonObject
from toolpost.parts.workspace.git.changes import WorkTree, describe_state, open_work_tree
from toolpost.parts.workspace.git.files import RealFolders
from toolpost.parts.workspace.git.ignore import IgnoreRules, is_ignored
from toolpost.parts.workspace.git.repository import RepositoryRefused
from toolpost.parts.workspace.indexed_files import FileStamp, SkippedRow
from toolpost.parts.workspace.secrets import is_hidden, may_hold_secrets
from toolpost.parts.workspace.spec import Repository, WorkspaceLimits

_SKIPPED_FOLDERS: Final = frozenset(
    {"__pycache__", "node_modules", ".venv", "venv", ".tox", ".mypy_cache", ".ruff_cache"}
)
MAX_DEPTH: Final = 200
_SORTED_LIMIT: Final = 20_000
"""Larger folders are not sorted: that would block other threads, because sorting holds the interpreter lock."""


@dataclass(frozen=True, kw_only=True)
class ScanResult:
    """The files to index, and those that are skipped."""

    files: dict[str, FileStamp]
    skipped: list[SkippedRow]
    git: JsonObject | None
    """Head, branch and whether the work tree is dirty; None without git."""


@dataclass(kw_only=True)
class FileScan:
    """A recursive scan of a folder; `skipped` and `folders` are filled by `files`."""

    root: Path
    tree: WorkTree | None = None
    """The git work tree of the folder, if it is in one."""
    limit: int = 1_000_000
    """The largest number of folders to enter."""
    skipped: list[SkippedRow] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)

    def files(self) -> Iterator[str]:
        """Yield every file, link or special file that is not ignored; with git also every nested repository, as its folder."""
        prefix = self.tree.prefix if self.tree is not None else ""
        ignore = self.tree.ignore if self.tree is not None else IgnoreRules(top=self.root)
        pending = [("", 0)]
        while pending:
            folder, depth = pending.pop()
            entries = self._entries(folder)
            # A nested repository is one entry, as for git: its files belong to another index.
            if folder and self.tree is not None and any(entry.name == ".git" for entry in entries):
                yield folder
                continue
            if len(self.folders) >= self.limit:
                self.skipped.append(SkippedRow(printable_path(folder), "too many files"))
                return
            self.folders.append(folder)
            rules = ignore.within(f"{prefix}{folder}".rstrip("/"))
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_hidden(entry.name) or (self.tree is None and entry.name in _SKIPPED_FOLDERS):
                    continue
                # Tracked files count even if they are ignored, as for git.
                if self.tree is not None and not is_folder and self.tree.is_tracked(path):
                    yield path
                elif is_ignored(f"{prefix}{path}", rules, is_folder=is_folder):
                    continue
                elif not is_folder:
                    yield path
                elif depth >= MAX_DEPTH:
                    self.skipped.append(SkippedRow(printable_path(path), "too deep"))
                else:
                    pending.append((path, depth + 1))

    def _entries(self, folder: str) -> list["os.DirEntry[str]"]:
        try:
            with os.scandir(self.root / folder) as iterator:
                entries = list(iterator)
        except OSError:
            self.skipped.append(SkippedRow(printable_path(folder or "."), "unreadable"))
            return []
        return sorted(entries, key=lambda entry: entry.name) if len(entries) <= _SORTED_LIMIT else entries


def scan(repository: Repository, limits: WorkspaceLimits) -> ScanResult:
    """List the files to index and those to skip, without reading them. Raises `ToolFailed` if the folder is missing."""
    if not repository.root.is_dir():
        raise ToolFailed(f"There is no folder {repository.root}.", hint="`workspace.roots` in toolpost.toml names it")
    tree = work_tree_of(repository)
    file_scan = FileScan(root=repository.root, tree=tree, limit=4 * limits.files)
    listed: Iterable[str] = file_scan.files()
    if tree is not None:
        listed = _list_tracked_first(tree, file_scan, index_prefix(repository), limits.files)
    files = _stamp_files(repository, limits, listed, file_scan.skipped)
    git = describe_state(tree) if tree is not None else None
    if tree is not None:
        tree.index.close()
    return ScanResult(files=files, skipped=file_scan.skipped, git=git)


def work_tree_of(repository: Repository) -> WorkTree | None:
    """Return the git work tree, or None. A refused repository counts as a folder without git; `check_status` tells why."""
    try:
        return open_work_tree(repository.root)
    except RepositoryRefused:
        return None


def _list_tracked_first(tree: WorkTree, file_scan: FileScan, own: str | None, limit: int) -> Iterator[str]:
    """Yield tracked files, existing or not, then untracked ones, which are added to `tree.untracked`."""
    for path, _ in tree.tracked():
        yield path
    for path in file_scan.files():
        if tree.is_tracked(path) or (own is not None and path.startswith(own)):
            continue
        if len(tree.untracked) <= limit:
            tree.untracked.append(path)
        yield path


def _stamp_files(
    repository: Repository, limits: WorkspaceLimits, listed: Iterable[str], skipped: list[SkippedRow]
) -> dict[str, FileStamp]:
    files: dict[str, FileStamp] = {}
    forbidden = {os.fspath(path) for path in repository.forbidden}
    root = os.fspath(repository.root)
    own = index_prefix(repository)
    folders = RealFolders(root)
    for path in listed:
        if is_hidden(path) or (own is not None and path.startswith(own)):
            continue
        if len(files) >= limits.files:
            skipped.append(SkippedRow(printable_path(path), "too many files"))
            break
        whole = f"{root}/{path}"
        # git still lists the files of a folder that was replaced by a link.
        outcome = _stamp(whole) if folders.has(path.rpartition("/")[0]) else "symbolic link"
        if outcome == "deleted" or whole in forbidden:
            continue
        if may_hold_secrets(path) and not repository.allows(path):
            outcome = "secret"
        if not isinstance(outcome, FileStamp):
            skipped.append(SkippedRow(printable_path(path), outcome))
        elif outcome.size > limits.file_bytes:
            skipped.append(SkippedRow(printable_path(path), "too large"))
        elif printable_path(path) != path:
            skipped.append(SkippedRow(printable_path(path), "name is not UTF-8"))
        else:
            files[path] = outcome
    return files


def _stamp(path: str) -> FileStamp | str:
    """Return the stamp of a regular file, or the reason to skip it."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return "deleted"
    except OSError:
        return "unreadable"
    if stat.S_ISLNK(status.st_mode):
        return "symbolic link"
    if stat.S_ISDIR(status.st_mode):
        return "nested repository"
    if not stat.S_ISREG(status.st_mode):
        return "special file"
    return FileStamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def printable_path(path: str) -> str:
    """Return a path as valid Unicode, whatever bytes it has."""
    return path.encode("utf-8", "replace").decode()


def index_prefix(repository: Repository) -> str | None:
    """Return the prefix of paths in our own index folder, if that is inside the repository; it is not indexed."""
    for folder in (repository.index_dir.parent, repository.index_dir):
        if folder != repository.root and folder.is_relative_to(repository.root):
            return f"{folder.relative_to(repository.root).as_posix()}/"
    return None
