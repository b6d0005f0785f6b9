"""The beads tracker, through its command `bd`: never through a shell, and its words never taken for options.

`bd` keeps the ledger, the bus owns the leases: begun sets a bead to in_progress, failed and dead to blocked with the reason,
done notes the result as a comment, and leaves it to the planner to close the bead.
"""

import logging
import os
import shutil
from pathlib import Path
from typing import Final

import anyio

from toolpost.base.events import event
from toolpost.contracts.errors import CapabilityMissing, NotFound, ToolFailed
from toolpost.parts.bus.outbox import TrackerUpdate
from toolpost.parts.bus.tasks import TaskId
from toolpost.upstreams.process.tree import CompletedCommand, run

_log = logging.getLogger("toolpost.parts.bus")

COMMAND: Final = "bd"
FOLDER: Final = ".beads"
LIMIT_S: Final = 20.0
NOTE_LIMIT: Final = 4_000

_MISSING: Final = ("not found", "no issue", "no such issue", "does not exist")
_STATUS: Final = {"begun": "in_progress", "blocked": "blocked", "dead": "blocked", "retried": "open"}
_PREFIXES: Final = ("BD_", "BEADS_")


def has_beads(project: Path) -> bool:
    """Whether this project is kept in beads, and the command is there."""
    return shutil.which(COMMAND) is not None and (project / FOLDER).is_dir()


class Beads:
    """The beads of one project."""

    def __init__(self, project: Path) -> None:
        self._project = project

    async def check(self, task: TaskId) -> None:
        """Refuse a task that is no bead; while `bd` fails, nobody can know, and it is taken."""
        try:
            await self._bd("show", "--json", "--", task)
        except NotFound:
            raise NotFound(
                f"Unknown bead `{task}`.", hint="`bd create` makes one; `bd list` shows them", bead_id=task
            ) from None
        except (ToolFailed, CapabilityMissing) as error:
            event(_log, logging.WARNING, "bead not checked", task=task, reason=error.message)

    async def tell(self, notice: TrackerUpdate) -> None:
        """Write down what became of a task."""
        note = _make_comment(notice)
        if note is not None:
            await self._bd("comments", "add", "--json", "--", notice.task, note)
        if notice.kind in _STATUS:
            await self._bd("update", "--status", _STATUS[notice.kind], "--json", "--", notice.task)

    async def _bd(self, *arguments: str) -> CompletedCommand:
        given = {name: value for name, value in os.environ.items() if name.startswith(_PREFIXES)}
        try:
            with anyio.fail_after(LIMIT_S):
                ended = await run([COMMAND, *arguments], cwd=self._project, env={"BD_JSON_ENVELOPE": "1", **given})
        except TimeoutError as error:
            raise ToolFailed(f"`bd {arguments[0]}` did not end within {LIMIT_S:g} s.") from error
        if ended.returncode == 0:
            return ended
        words = f"{ended.stderr}\n{ended.stdout}".strip()
        if any(sign in words.lower() for sign in _MISSING):
            raise NotFound(f"`bd {arguments[0]}` does not know it: {words[:500]}")
        raise ToolFailed(f"`bd {arguments[0]}` ended with {ended.returncode}: {words[:500]}")


def _make_comment(notice: TrackerUpdate) -> str | None:
    """Write a comment for what has something to say."""
    if notice.kind in ("blocked", "dead", "cancelled"):
        return f"{notice.kind}: {notice.detail or 'no reason was given'}"[:NOTE_LIMIT]
    if notice.kind == "done":
        return f"done: {notice.detail}"[:NOTE_LIMIT] if notice.detail is not None else "done"
    return None
