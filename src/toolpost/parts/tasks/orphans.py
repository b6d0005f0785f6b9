"""Calls that nobody carries any more: looked for now and then, and run again or ended."""

import logging
from collections.abc import Callable
from typing import Final, TypeVar

import anyio
import msgspec

from toolpost.base.caller import Caller
from toolpost.base.events import event
from toolpost.contracts.errors import ToolpostError, UnknownTool
from toolpost.discovery.automatic import AUTOMATIC_NAMES
from toolpost.gateway import Gateway
from toolpost.middleware import Call, ProgressNotification
from toolpost.parts.tasks import records
from toolpost.parts.tasks.owners import OwnerId, is_gone
from toolpost.parts.tasks.records import Deferred, DeferredId, Ending
from toolpost.parts.tasks.results import CALLED_OFF, failed, interrupted
from toolpost.store import Store
from toolpost.store.scripts import Script

_log = logging.getLogger("toolpost.parts.tasks")

ATTEMPTS: Final = 3
"""A call that ends its gateway every time is not run for ever."""
HOLD_S: Final = 15.0
"""How long a process owns a call without renewing it; one that is gone on the same machine loses it at once."""
START_S: Final = 1.0
"""A process that is gone in a second, such as a command, takes nothing over."""
SWEEP_S: Final = 10.0
ALONE_S: Final = 60.0
"""How long a gateway that has the tool is waited for before a call is given up."""

Result = TypeVar("Result")


class Orphans:
    """Looks for them, and hands what is to be run again to whoever carries calls."""

    def __init__(
        self,
        store: Store,
        gateway: Gateway,
        owner: OwnerId,
        *,
        ttl_s: float,
        carry: Callable[[Deferred, Call], None],
        hear: Callable[[ProgressNotification], None],
    ) -> None:
        self._store = store
        self._gateway = gateway
        self._owner = owner
        self._ttl_s = ttl_s
        self._carry = carry
        self._hear = hear

    async def sweep(self) -> None:
        """Look again and again, until cancelled."""
        await anyio.sleep(START_S)
        while True:
            try:
                await self._sweep_once()
            except ToolpostError as error:
                event(_log, logging.WARNING, "deferred calls not taken over", reason=error.message)
            await anyio.sleep(SWEEP_S)

    async def _sweep_once(self) -> None:
        await self._run(records.forget_expired)
        for owner in await self._run(lambda: records.owners(self._owner)):
            if is_gone(owner):
                await self._disown(owner)
        now, orphans = await self._run(lambda: records.orphans(self._owner, hold_s=HOLD_S))
        for orphan in orphans:
            if self._may_take(orphan, now):
                await self._take_over(orphan)

    async def _disown(self, owner: OwnerId) -> None:
        await self._run(lambda: records.disown(owner))

    def _may_take(self, orphan: Deferred, now: float) -> bool:
        """Leave a call that could be run again to a gateway that has its tool, for a while."""
        needs_tool = orphan.is_repeatable and not orphan.is_cancelled
        return not needs_tool or self._has(orphan.tool) or now - orphan.alone_since > ALONE_S

    def _has(self, tool: str) -> bool:
        if tool in AUTOMATIC_NAMES:
            return True
        try:
            self._gateway.catalog.find(tool)
        except UnknownTool:
            return False
        return True

    async def _take_over(self, orphan: Deferred) -> None:
        if not await self._run(lambda: records.adopt(orphan, self._owner, hold_s=HOLD_S)):
            return
        if (ending := self._verdict(orphan)) is not None:
            await self._run(lambda: records.end(orphan.id, self._owner, ending, keep_s=self._ttl_s))
            self._store.wakeups.ring(task_topic(orphan.id))
            return
        event(_log, logging.INFO, "a deferred call is run again", task=orphan.id, tool=orphan.tool)
        call = self._gateway.admit(
            caller=Caller(id=orphan.caller, transport=orphan.transport),
            name=orphan.tool,
            arguments=msgspec.json.decode(orphan.arguments or "{}"),
            on_progress=self._hear,
            meta=msgspec.json.decode(orphan.meta or "{}"),
        )
        self._carry(orphan, call)

    def _verdict(self, orphan: Deferred) -> Ending | None:
        """Say what becomes of a call whose gateway is gone; None if it is run again."""
        if orphan.is_cancelled:
            return CALLED_OFF
        if not orphan.is_repeatable:
            return interrupted(orphan.tool, "ended")
        if orphan.attempts >= ATTEMPTS:
            return failed(f"The gateway ended {ATTEMPTS} times while `{orphan.tool}` ran: it is not run again.")
        if not self._has(orphan.tool):
            return failed(f"The gateway ended while `{orphan.tool}` ran, and no gateway has this tool any more.")
        return None

    async def _run(self, make: Callable[[], Script[Result]]) -> Result:
        return await self._store.scripts.run(make)


def task_topic(name: DeferredId) -> str:
    """What is rung when a call's status has changed."""
    return f"deferred call {name}"
