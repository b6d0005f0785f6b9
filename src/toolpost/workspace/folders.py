"""Which folders of a repository can come to hold files that are indexed: those that have to be watched."""

import os
import sys
from pathlib import Path
from typing import Final

import anyio.to_thread

from toolpost.contracts.errors import ToolFailed
from toolpost.workspace.places import is_hidden
from toolpost.workspace.scan import DEEPEST, git_listed, git_output, own_prefix, walked
from toolpost.workspace.spec import Repository

WATCHES_TREES: Final = not sys.platform.startswith("linux")
"""Whether the system watches a folder together with all below it; inotify takes one watch for each."""


async def folders_of(repository: Repository) -> frozenset[str]:
    """Return the folders to watch; what git ignores is left alone, however large it is."""
    root = repository.root
    if not root.is_dir():
        raise ToolFailed(f"There is no folder {root}.", hint="`workspace.roots` in toolpost.toml names it")
    if WATCHES_TREES:
        return frozenset({os.fspath(root)})
    command = ["git", "-C", str(root), "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"]
    output = await git_output(command)
    if output is None or await git_listed(root) is None:
        return await anyio.to_thread.run_sync(_walked_folders, root)
    ignored = frozenset(os.fsdecode(path).rstrip("/") for path in output.split(b"\0") if path.endswith(b"/"))
    return await anyio.to_thread.run_sync(_folders_but, root, ignored, own_prefix(repository))


def _walked_folders(root: Path) -> frozenset[str]:
    folders: list[str] = []
    for _ in walked(root, [], folders):
        continue
    return frozenset(_whole(root, folder) for folder in folders)


def _folders_but(root: Path, ignored: frozenset[str], own: str | None) -> frozenset[str]:
    """Walk, without what is ignored, and without other repositories."""
    found: set[str] = set()
    waiting = [("", 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            entries = list(os.scandir(root / folder))
        except OSError:
            continue
        if folder and any(entry.name == ".git" for entry in entries):
            continue
        found.add(_whole(root, folder))
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if is_hidden(entry.name) or path in ignored or f"{path}/" == own or depth >= DEEPEST:
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append((path, depth + 1))
    return frozenset(found)


def _whole(root: Path, folder: str) -> str:
    return f"{os.fspath(root)}/{folder}" if folder else os.fspath(root)
