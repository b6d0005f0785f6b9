"""Which files a repository has: those that git knows or would add, or where there is no git all that no .gitignore leaves out."""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from toolpost.base.ids import JsonObject
from toolpost.contracts.errors import ToolFailed
from toolpost.git.changes import WorkTree, open_work_tree, state_of
from toolpost.git.ignore import IgnoreRules, is_ignored
from toolpost.git.open_below import RealFolders
from toolpost.git.repository import RepositoryRefused
from toolpost.parts.workspace.manifest import SkippedRow, Stamp
from toolpost.parts.workspace.secrets import holds_secrets, is_hidden
from toolpost.parts.workspace.spec import Limits, Repository

_NEVER: Final = frozenset({"__pycache__", "node_modules", ".venv", "venv", ".tox", ".mypy_cache", ".ruff_cache"})
DEEPEST: Final = 200
_SORTED_LIMIT: Final = 20_000
"""Names of one folder that are put in order: to sort more of them at once would hold every other thread up."""


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What was found."""

    files: dict[str, Stamp]
    skipped: list[SkippedRow]
    git: JsonObject | None
    """Head, branch and whether anything differs from it; None where there is no git."""


@dataclass(kw_only=True)
class Walk:
    """A walk through a folder, and what it notes on its way."""

    root: Path
    tree: WorkTree | None = None
    """What git knows of the folder, if anything."""
    limit: int = 1_000_000
    """Folders that are entered at most."""
    skipped: list[SkippedRow] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)

    def files(self) -> Iterator[str]:
        """Yield every file, link or special file that is not ignored, and with git every repository within this one."""
        prefix = self.tree.prefix if self.tree is not None else ""
        ignore = self.tree.ignore if self.tree is not None else IgnoreRules(top=self.root)
        waiting = [("", 0)]
        while waiting:
            folder, depth = waiting.pop()
            entries = self._entries(folder)
            if folder and self.tree is not None and any(entry.name == ".git" for entry in entries):
                yield folder
                continue
            if len(self.folders) >= self.limit:
                self.skipped.append(SkippedRow(shown_path(folder), "too many files"))
                return
            self.folders.append(folder)
            rules = ignore.within(f"{prefix}{folder}".rstrip("/"))
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_hidden(entry.name) or (self.tree is None and entry.name in _NEVER):
                    continue
                if self.tree is not None and not is_folder and self.tree.knows(path):
                    yield path
                elif is_ignored(f"{prefix}{path}", rules, is_folder=is_folder):
                    continue
                elif not is_folder:
                    yield path
                elif depth >= DEEPEST:
                    self.skipped.append(SkippedRow(shown_path(path), "too deep"))
                else:
                    waiting.append((path, depth + 1))

    def _entries(self, folder: str) -> list["os.DirEntry[str]"]:
        try:
            with os.scandir(self.root / folder) as found:
                entries = list(found)
        except OSError:
            self.skipped.append(SkippedRow(shown_path(folder or "."), "unreadable"))
            return []
        return sorted(entries, key=lambda entry: entry.name) if len(entries) <= _SORTED_LIMIT else entries


def scan(repository: Repository, limits: Limits) -> Scan:
    """List the files that may be indexed, and name those that may not. Nothing is read but what git notes of them."""
    if not repository.root.is_dir():
        raise ToolFailed(f"There is no folder {repository.root}.", hint="`workspace.roots` in toolpost.toml names it")
    tree = work_tree_of(repository)
    walk = Walk(root=repository.root, tree=tree, limit=4 * limits.files)
    listed: Iterable[str] = walk.files()
    if tree is not None:
        listed = _listed(tree, walk, own_prefix(repository), limits.files)
    files = _stamped(repository, limits, listed, walk.skipped)
    git = state_of(tree) if tree is not None else None
    if tree is not None:
        tree.index.close()
    return Scan(files=files, skipped=walk.skipped, git=git)


def work_tree_of(repository: Repository) -> WorkTree | None:
    """Return what git knows of a repository; one that is refused counts as a folder without git (`check_status` says why)."""
    try:
        return open_work_tree(repository.root)
    except RepositoryRefused:
        return None


def _listed(tree: WorkTree, walk: Walk, own: str | None, limit: int) -> Iterator[str]:
    """Yield what git knows, there or not, and then what it does not know and does not ignore, which the tree is told."""
    for path, _ in tree.tracked():
        yield path
    for path in walk.files():
        if tree.knows(path) or (own is not None and path.startswith(own)):
            continue
        if len(tree.untracked) <= limit:
            tree.untracked.append(path)
        yield path


def _stamped(
    repository: Repository, limits: Limits, listed: Iterable[str], skipped: list[SkippedRow]
) -> dict[str, Stamp]:
    files: dict[str, Stamp] = {}
    forbidden = {os.fspath(path) for path in repository.forbidden}
    root = os.fspath(repository.root)
    own = own_prefix(repository)
    folders = RealFolders(root)
    for path in listed:
        if is_hidden(path) or (own is not None and path.startswith(own)):
            continue
        if len(files) >= limits.files:
            skipped.append(SkippedRow(shown_path(path), "too many files"))
            break
        whole = f"{root}/{path}"
        outcome = _stamp(whole) if folders.has(path.rpartition("/")[0]) else "symbolic link"
        if outcome == "deleted" or whole in forbidden:
            continue
        if holds_secrets(path) and not repository.allows(path):
            outcome = "secret"
        if not isinstance(outcome, Stamp):
            skipped.append(SkippedRow(shown_path(path), outcome))
        elif outcome.size > limits.file_bytes:
            skipped.append(SkippedRow(shown_path(path), "too large"))
        elif not _is_text(path):
            skipped.append(SkippedRow(shown_path(path), "name is not UTF-8"))
        else:
            files[path] = outcome
    return files


def _stamp(path: str) -> Stamp | str:
    """Return a file's stamp, or why it has none."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return "deleted"
    except OSError:
        return "unreadable"
    if stat.S_ISLNK(found.st_mode):
        return "symbolic link"
    if stat.S_ISDIR(found.st_mode):
        return "nested repository"
    if not stat.S_ISREG(found.st_mode):
        return "special file"
    return Stamp(found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown_path(path: str) -> str:
    """Return a path as it can be said, whatever bytes it is made of."""
    return path.encode("utf-8", "replace").decode()


def own_prefix(repository: Repository) -> str | None:
    """Return how paths of our own indexes begin, where they are kept within the repository: they are no part of it."""
    for folder in (repository.home.parent, repository.home):
        if folder != repository.root and folder.is_relative_to(repository.root):
            return f"{folder.relative_to(repository.root).as_posix()}/"
    return None
