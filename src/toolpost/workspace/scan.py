"""Which files a repository has: as git lists them, or where there is no git by walking, with .gitignore respected."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio

from toolpost.contracts.errors import CapabilityMissing, ToolFailed
from toolpost.upstreams import process_tree
from toolpost.workspace import late
from toolpost.workspace.manifest import SkippedRow, Stamp
from toolpost.workspace.places import is_hidden
from toolpost.workspace.spec import Limits, Repository

_NEVER: Final = frozenset({"__pycache__", "node_modules", ".venv", "venv", ".tox", ".mypy_cache", ".ruff_cache"})
DEEPEST: Final = 200


_RUNNING_NOTHING: Final = {
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": "false",
    "GIT_CONFIG_KEY_1": "core.hooksPath",
    "GIT_CONFIG_VALUE_1": os.devnull,
}


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What was found."""

    files: dict[str, Stamp]
    skipped: list[SkippedRow]
    by_git: bool


async def scan(repository: Repository, limits: Limits) -> Scan:
    """List the files that may be indexed, and name those that may not."""
    if not repository.root.is_dir():
        raise ToolFailed(f"There is no folder {repository.root}.", hint="`workspace.roots` in toolpost.toml names it")
    listed = await git_listed(repository.root)
    by_git = listed is not None
    found = await anyio.to_thread.run_sync(_stamped, repository, limits, listed)
    return Scan(files=found[0], skipped=found[1], by_git=by_git)


async def git_listed(root: Path) -> list[str] | None:
    """Return the files that git knows or would add, or None where there is no git."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    output = await git_output(command)
    if output is None:
        return None
    if not output and await git_output(["git", "-C", str(root), "check-ignore", "."]) is not None:
        # The folder is below a repository that ignores it: that one has nothing to say of it.
        return None
    return [os.fsdecode(path) for path in output.split(b"\0") if path]


async def git_output(command: list[str]) -> bytes | None:
    """Run git and return all that it writes; None if it is not there or does not know the folder."""
    chunks: list[bytes] = []
    # Without locks: somebody may be in the middle of a rebase. And without what a repository would have git run.
    env = {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C", **_RUNNING_NOTHING}
    try:
        async with process_tree.open_process(command, env=env) as process:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_drained, process.stderr)
                async for chunk in process.stdout:
                    chunks.append(chunk)
            code = await process.wait()
    except CapabilityMissing:
        return None
    return b"".join(chunks) if code == 0 else None


async def _drained(stream: Any) -> None:
    async for _ in stream:
        continue


def _stamped(
    repository: Repository, limits: Limits, listed: list[str] | None
) -> tuple[dict[str, Stamp], list[SkippedRow]]:
    files: dict[str, Stamp] = {}
    skipped: list[SkippedRow] = []
    forbidden = {os.fspath(path) for path in repository.forbidden}
    root = os.fspath(repository.root)
    own = own_prefix(repository)
    folders = _RealFolders(root)
    for path in listed if listed is not None else walked(repository.root, skipped):
        if is_hidden(path) or (own is not None and path.startswith(own)):
            continue
        if len(files) >= limits.files:
            skipped.append(SkippedRow(_shown(path), "too many files"))
            break
        whole = f"{root}/{path}"
        if whole in forbidden:
            continue
        outcome = _stamp(whole) if folders.has(path.rpartition("/")[0]) else "symbolic link"
        if outcome == "deleted":
            continue
        if not isinstance(outcome, Stamp):
            skipped.append(SkippedRow(_shown(path), outcome))
        elif outcome.size > limits.file_bytes:
            skipped.append(SkippedRow(_shown(path), "too large"))
        elif not _is_text(path):
            skipped.append(SkippedRow(_shown(path), "name is not UTF-8"))
        else:
            files[path] = outcome
    return files, skipped


class _RealFolders:
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


def _shown(path: str) -> str:
    return path.encode("utf-8", "replace").decode()


def own_prefix(repository: Repository) -> str | None:
    """Return how paths of our own indexes begin, where they are kept within the repository: they are no part of it."""
    for folder in (repository.home.parent, repository.home):
        if folder != repository.root and folder.is_relative_to(repository.root):
            return f"{folder.relative_to(repository.root).as_posix()}/"
    return None


def walked(root: Path, skipped: list[SkippedRow], folders: list[str] | None = None) -> Iterator[str]:
    """Walk a folder without git; a .gitignore counts for its folder and what is below. Notes what it could not enter."""
    waiting: list[tuple[str, list[tuple[str, Any]], int]] = [("", [], 0)]
    while waiting:
        folder, rules, depth = waiting.pop()
        try:
            entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
        except OSError:
            skipped.append(SkippedRow(_shown(folder or "."), "unreadable"))
            continue
        if folders is not None:
            folders.append(folder)
        if any(entry.name == ".gitignore" for entry in entries):
            rules = [*rules, (folder, _rules_in(root / folder / ".gitignore"))]
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name in _NEVER or is_hidden(entry.name) or _is_ignored(path, rules, is_folder=is_folder):
                continue
            if not is_folder:
                yield path
            elif depth >= DEEPEST:
                skipped.append(SkippedRow(_shown(path), "too deep"))
            else:
                waiting.append((path, rules, depth + 1))


def _rules_in(path: Path) -> Any:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    return late.pathspec().GitIgnoreSpec.from_lines(lines)


def _is_ignored(path: str, rules: list[tuple[str, Any]], *, is_folder: bool) -> bool:
    for folder, spec in reversed(rules):
        relative = path[len(folder) + 1 :] if folder else path
        verdict = spec.check_file(f"{relative}/" if is_folder else relative).include
        if verdict is not None:
            return bool(verdict)
    return False
