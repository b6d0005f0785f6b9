"""Orphans: tasks whose process has ended. A periodic sweep runs them again if their tool allows it, else fails them.

A gateway adopts an orphan in a transaction, so that only one of several runs it. A tool that may be run twice (`readOnlyHint` or
`idempotentHint`) is run again by a gateway that has it; any other may have had its effect, and its task fails.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import anyio
import msgspec

from toolpost.base.caller import Caller
from toolpost.base.events import event
from toolpost.contracts.errors import ToolpostError, UnknownTool
from toolpost.discovery.automatic import AUTOMATIC_NAMES
from toolpost.endpoints.tasks import records
from toolpost.endpoints.tasks.owners import OwnerId, is_gone
from toolpost.endpoints.tasks.records import McpTaskId, TaskOutcome, TaskRecord
from toolpost.endpoints.tasks.results import CANCELLED, make_failure, make_interruption
from toolpost.gateway import Gateway
from toolpost.middleware import Call, ProgressNotification
from toolpost.store import Script, Store

_log = logging.getLogger("toolpost.endpoints.tasks")

ATTEMPTS: Final = 3
"""How often a task is run: one that crashes its gateway every time must not be run forever."""
HOLD_S: Final = 15.0
"""How long a process owns a task without renewing it; one that has ended on the same machine loses it at once."""
START_S: Final = 1.0
"""Delay of the first sweep: a process that lives for a second, such as a command, takes nothing over."""
SWEEP_S: Final = 10.0
ORPHAN_S: Final = 60.0
"""How long an orphan waits for a gateway that has its tool before it is failed."""

Result = TypeVar("Result")


class Orphans:
    """Sweeps for orphans; passes those to run again to `run_again`."""

    def __init__(
        self,
        store: Store,
        gateway: Gateway,
        owner: OwnerId,
        *,
        ttl_s: float,
        run_again: Callable[[TaskRecord, Call], None],
        on_progress: Callable[[ProgressNotification], None],
    ) -> None:
        self._store = store
        self._gateway = gateway
        self._owner = owner
        self._ttl_s = ttl_s
        self._run_again = run_again
        self._on_progress = on_progress

    async def sweep(self) -> None:
        """Sweep every `SWEEP_S` until cancelled."""
        await anyio.sleep(START_S)
        while True:
            try:
                await self._sweep_once()
            except ToolpostError as error:
                event(_log, logging.WARNING, "orphaned tasks not adopted", reason=error.message)
            await anyio.sleep(SWEEP_S)

    async def _sweep_once(self) -> None:
        await self._run(records.delete_expired)
        for owner in await self._run(lambda: records.list_owners(self._owner)):
            if is_gone(owner):
                await self._run(partial(records.disown, owner))
        now, orphans = await self._run(lambda: records.list_orphans(self._owner, hold_s=HOLD_S))
        for orphan in orphans:
            if self._may_adopt(orphan, now):
                await self._adopt(orphan)

    def _may_adopt(self, orphan: TaskRecord, now: float) -> bool:
        """Whether this gateway may adopt an orphan; one to run again is left to gateways with its tool for `ORPHAN_S`."""
        needs_tool = orphan.is_repeatable and not orphan.is_cancelled
        return not needs_tool or self._has_tool(orphan.tool) or now - orphan.orphaned_at > ORPHAN_S

    def _has_tool(self, tool: str) -> bool:
        if tool in AUTOMATIC_NAMES:
            return True
        try:
            self._gateway.catalog.find(tool)
        except UnknownTool:
            return False
        return True

    async def _adopt(self, orphan: TaskRecord) -> None:
        if not await self._run(lambda: records.adopt(orphan, self._owner, hold_s=HOLD_S)):
            # Another gateway was quicker.
            return
        if (outcome := self._decide(orphan)) is not None:
            await self._run(lambda: records.end(orphan.id, self._owner, outcome, keep_s=self._ttl_s))
            self._store.wakeups.ring(task_topic(orphan.id))
            return
        event(_log, logging.INFO, "a task is run again", task=orphan.id, tool=orphan.tool)
        call = self._gateway.admit(
            caller=Caller(id=orphan.caller, transport=orphan.transport),
            name=orphan.tool,
            arguments=msgspec.json.decode(orphan.arguments or "{}"),
            on_progress=self._on_progress,
            meta=msgspec.json.decode(orphan.meta or "{}"),
        )
        self._run_again(orphan, call)

    def _decide(self, orphan: TaskRecord) -> TaskOutcome | None:
        """Return the outcome of an orphan; None if it is run again."""
        if orphan.is_cancelled:
            return CANCELLED
        if not orphan.is_repeatable:
            return make_interruption(orphan.tool, "ended")
        if orphan.attempts >= ATTEMPTS:
            return make_failure(f"The gateway ended {ATTEMPTS} times while `{orphan.tool}` ran: it is not run again.")
        if not self._has_tool(orphan.tool):
            return make_failure(f"The gateway ended while `{orphan.tool}` ran, and no gateway has this tool now.")
        return None

    async def _run(self, make: Callable[[], Script[Result]]) -> Result:
        return await self._store.scripts.run(make)


def task_topic(name: McpTaskId) -> str:
    """Return the wake-up topic of a task's status. Gateways of earlier versions use it too, so it stays as it is."""
    return f"deferred call {name}"
