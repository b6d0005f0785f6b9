"""Which folders of a repository can come to hold files that are indexed: those that have to be watched."""

import os
import sys
from typing import Final

from toolpost.contracts.errors import ToolFailed
from toolpost.parts.workspace.scan import Walk, own_prefix, work_tree_of
from toolpost.parts.workspace.spec import Repository

WATCHES_TREES: Final = not sys.platform.startswith("linux")
"""Whether the system watches a folder together with all below it; inotify takes one watch for each."""


def folders_of(repository: Repository) -> frozenset[str]:
    """Return the folders to watch; what git ignores is left alone, however large it is."""
    root = repository.root
    if not root.is_dir():
        raise ToolFailed(f"There is no folder {root}.", hint="`workspace.roots` in toolpost.toml names it")
    if WATCHES_TREES:
        return frozenset({os.fspath(root)})
    tree = work_tree_of(repository)
    walk = Walk(root=root, tree=tree)
    for _ in walk.files():
        continue
    if tree is not None:
        tree.index.close()
    own = own_prefix(repository) or "\0"
    return frozenset(
        f"{os.fspath(root)}/{folder}" if folder else os.fspath(root)
        for folder in walk.folders
        if not f"{folder}/".startswith(own)
    )
