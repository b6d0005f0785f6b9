"""The beads issue tracker, updated with its command `bd`.

The tracker has the issues, the bus has the leases. A task that starts sets its bead to `in_progress`, one that fails or dies to
`blocked` with the reason. One that is done adds its result as a comment; closing the bead is left to the planner.

`bd` is run without a shell, and arguments from tasks come after `--`, so that none is parsed as an option.
"""

import logging
import os
import shutil
from pathlib import Path
from typing import Final

import anyio

from toolpost import CapabilityMissing, NotFound, ToolFailed
from toolpost.base import event
from toolpost.parts.bus.outbox import TrackerUpdate
from toolpost.parts.bus.tasks import TaskId
from toolpost.processes import CompletedCommand, run

_log = logging.getLogger("toolpost.parts.bus")

COMMAND: Final = "bd"
FOLDER: Final = ".beads"
TIMEOUT_S: Final = 20.0
COMMENT_CHARS: Final = 4_000

_NOT_FOUND_MESSAGES: Final = ("not found", "no issue", "no such issue", "does not exist")
_STATUS: Final = {"begun": "in_progress", "blocked": "blocked", "dead": "blocked", "retried": "open"}
_ENV_PREFIXES: Final = ("BD_", "BEADS_")


def has_beads(project: Path) -> bool:
    """Whether a project has a beads database, and `bd` is installed."""
    return shutil.which(COMMAND) is not None and (project / FOLDER).is_dir()


class Beads:
    """A `Tracker` for the beads of one project."""

    def __init__(self, project: Path) -> None:
        self._project = project

    async def check(self, task: TaskId) -> None:
        """Raise `NotFound` for a task that is no bead. If `bd` itself fails, the task is accepted and a warning is logged."""
        try:
            await self._bd("show", "--json", "--", task)
        except NotFound:
            raise NotFound(
                f"Unknown bead `{task}`.", hint="`bd create` makes one; `bd list` shows them", bead_id=task
            ) from None
        except (ToolFailed, CapabilityMissing) as error:
            event(_log, logging.WARNING, "bead not checked", task=task, reason=error.message)

    async def send(self, update: TrackerUpdate) -> None:
        """Add a comment to the bead and set its status."""
        comment = _make_comment(update)
        if comment is not None:
            await self._bd("comments", "add", "--json", "--", update.task, comment)
        if update.kind in _STATUS:
            await self._bd("update", "--status", _STATUS[update.kind], "--json", "--", update.task)

    async def _bd(self, *arguments: str) -> CompletedCommand:
        """Run `bd`; raises `NotFound` if its output says that the bead does not exist, else `ToolFailed`."""
        environment = {name: value for name, value in os.environ.items() if name.startswith(_ENV_PREFIXES)}
        try:
            with anyio.fail_after(TIMEOUT_S):
                completed = await run(
                    [COMMAND, *arguments], cwd=self._project, env={"BD_JSON_ENVELOPE": "1", **environment}
                )
        except TimeoutError as error:
            raise ToolFailed(f"`bd {arguments[0]}` did not end within {TIMEOUT_S:g} s.") from error
        if completed.returncode == 0:
            return completed
        output = f"{completed.stderr}\n{completed.stdout}".strip()
        # A missing bead is recognized by the text of the error alone.
        if any(message in output.lower() for message in _NOT_FOUND_MESSAGES):
            raise NotFound(f"`bd {arguments[0]}` did not find it: {output[:500]}")
        raise ToolFailed(f"`bd {arguments[0]}` ended with {completed.returncode}: {output[:500]}")


def _make_comment(update: TrackerUpdate) -> str | None:
    """Return the comment for an update; None for `begun` and `retried`, which only change the status."""
    if update.kind in ("blocked", "dead", "cancelled"):
        return f"{update.kind}: {update.detail or 'no reason was given'}"[:COMMENT_CHARS]
    if update.kind == "done":
        return f"done: {update.detail}"[:COMMENT_CHARS] if update.detail is not None else "done"
    return None
