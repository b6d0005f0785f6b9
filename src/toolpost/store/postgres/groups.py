"""Entries that wait, committed group by group: while one group is written, the next one gathers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import anyio

from toolpost.base.events import event
from toolpost.contracts.errors import GatewayError, StoreUnavailable, ToolpostError

_log = logging.getLogger("toolpost.store")

LARGEST: Final = 2_000
"""Items in one group: a statement stays small enough to be sent again."""

_Waiting = tuple[Any, "asyncio.Future[None]"]


class Groups:
    """Writes for callers on one event loop. Each waits for its own item, so nothing is queued that nobody holds."""

    def __init__(self, write: Callable[[Sequence[Any]], Awaitable[None]]) -> None:
        """Take what writes a group, all of it or nothing."""
        self.commits = 0
        self._write = write
        self._waiting: list[_Waiting] = []
        self._loop = asyncio.get_running_loop()
        self._writer: asyncio.Task[None] | None = None
        self._is_closing = False

    def submit(self, item: Any) -> Awaitable[None]:
        """Have an item written; done when it is committed, also for a caller who is cancelled meanwhile."""
        if self._is_closing:
            raise GatewayError("the store is closed")
        done: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((item, done))
        if self._writer is None:
            self._writer = self._loop.create_task(self._run(), name="toolpost-store")
        return done

    async def aclose(self) -> None:
        """Commit all that waits, also for a caller who is being cancelled."""
        self._is_closing = True
        with anyio.CancelScope(shield=True):
            if self._writer is not None:
                await self._writer

    async def _run(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting[:LARGEST], self._waiting[LARGEST:]
                await self._commit(group)
        finally:
            self._writer = None

    async def _commit(self, group: list[_Waiting]) -> None:
        try:
            await self._write([item for item, _ in group])
        except StoreUnavailable as error:
            # The others have waited for the same database.
            others, self._waiting = self._waiting, []
            _fail(group + others, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the callers wait for it
            await self._find_culprit(group, error)
        else:
            self.commits += 1
            for _, done in group:
                if not done.done():  # its caller was cancelled
                    done.set_result(None)

    async def _find_culprit(self, group: list[_Waiting], error: Exception) -> None:
        """Keep what can be kept: a group that fails is written in halves."""
        if len(group) == 1:
            _fail(group, error)
            return
        middle = len(group) // 2
        await self._commit(group[:middle])
        await self._commit(group[middle:])


def _fail(group: list[_Waiting], error: Exception) -> None:
    left = 0
    for _, done in group:
        if done.done():
            left += 1
        else:
            done.set_exception(_own(error))
    if left:
        event(_log, logging.ERROR, "entries of cancelled calls were not written", count=left, reason=str(error))


def _own(error: Exception) -> Exception:
    # Raised in many callers, one error would gather all their tracebacks.
    if isinstance(error, ToolpostError):
        own = type(error)(error.message, hint=error.hint)
    else:
        own = GatewayError(f"an entry was not written: {error}")
    own.__cause__ = error
    return own
