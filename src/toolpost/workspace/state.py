"""What git says of a folder: its head, its branch, and whether anything differs from it."""

from pathlib import Path

from toolpost.contracts.ids import JsonObject
from toolpost.workspace.scan import git_output


async def git_state(root: Path) -> JsonObject | None:
    """Return head, branch and whether files differ from the head; None where there is no git."""
    command = ["git", "-C", str(root), "status", "--porcelain=v2", "--branch", "-z", "--", ".", ":(exclude).toolpost"]
    output = await git_output(command)
    if output is None:
        return None
    head = branch = None
    is_dirty = False
    for line in output.decode("utf-8", "replace").split("\0"):
        if line.startswith("# branch.oid "):
            head = line.removeprefix("# branch.oid ")
        elif line.startswith("# branch.head "):
            branch = line.removeprefix("# branch.head ")
        elif line and not line.startswith("#"):
            is_dirty = True
    return {
        "head": None if head == "(initial)" else head,
        "branch": None if branch == "(detached)" else branch,
        "dirty": is_dirty,
    }
