"""Audit entries whose commit has failed, on a full disk for instance: written as soon as the store takes them.

Their callers got an error, or an answer that was journaled. Until an entry is written its journal has it, so that a process which
is killed meanwhile loses none: the next one finds the journal. So at most `LIMIT` are kept in memory; what is beyond that is left
to the journal, and to the next start.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from toolpost.base.events import event
from toolpost.store.audit_values import AuditEntry

_log = logging.getLogger("toolpost.store")

RETRY_S: Final = 1.0
LIMIT: Final = 10_000
AT_ONCE: Final = 500

Written = Callable[[], None]


def _ignore() -> None:
    pass


class LateEntries:
    """Entries that wait for the store, the oldest first."""

    def __init__(self, write: Callable[[Sequence[AuditEntry]], Awaitable[Any]]) -> None:
        """`write` commits those entries that the audit does not have; it may be repeated."""
        self._write = write
        self._waiting: list[tuple[AuditEntry, Written]] = []
        self._retrying: asyncio.Task[None] | None = None
        self._is_closed = False

    def add(self, entry: AuditEntry, on_written: Written = _ignore) -> None:
        """Write an entry later; `on_written` is called when it is committed."""
        if self._is_closed or len(self._waiting) >= LIMIT:
            return
        self._waiting.append((entry, on_written))
        if self._retrying is None:
            self._retrying = asyncio.create_task(self._retry())

    async def aclose(self) -> None:
        """Try once more, and give up."""
        self._is_closed = True
        if self._retrying is not None:
            self._retrying.cancel()
            await asyncio.wait([self._retrying])
            await self._write_all()

    async def _retry(self) -> None:
        while True:
            await asyncio.sleep(RETRY_S)
            if await self._write_all():
                self._retrying = None
                return

    async def _write_all(self) -> bool:
        """Write what waits, in parts; False if the store still refuses."""
        count = len(self._waiting)
        while self._waiting:
            part = self._waiting[:AT_ONCE]
            try:
                await self._write([entry for entry, _ in part])
            except Exception as error:  # noqa: BLE001 (a store may fail in any way, and is tried again)
                event(
                    _log, logging.DEBUG, "audit entries still not written", entries=len(self._waiting), exception=error
                )
                return False
            del self._waiting[: len(part)]
            for _, on_written in part:
                on_written()
        if count:
            event(_log, logging.WARNING, "audit entries written late", entries=count)
        return True
