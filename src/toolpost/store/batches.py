"""Entries collected into batches: while one batch is written, the next one fills.

A commit costs the same for one entry as for a hundred. So an entry is not written when it comes: it joins the next batch, which
is written at the end of this turn of the event loop, or as soon as the batch before it is done. With one caller a batch is one
entry; with a thousand callers each batch holds what came during the one before it, and the rate of commits stays the same.

    turn 1   append(a), append(b)            -> batch 1 = a, b: its write begins
    turn 2   append(c)                       -> waits
    turn 5   batch 1 is committed            -> a's and b's futures are set; batch 2 = c begins

A caller waits for its own entry, so the queue is bounded by the calls in flight; there is no further limit.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import anyio

from toolpost.base.events import event
from toolpost.contracts.errors import GatewayError, StoreUnavailable, ToolpostError

_log = logging.getLogger("toolpost.store")

LARGEST: Final = 2_000
"""How many units one batch may hold: a statement of PostgreSQL stays small enough to be sent again."""

Unit = tuple[Sequence[Any], "asyncio.Future[None]"]
"""Entries that are written or fail together, and their future."""


class Batches:
    """Writes for callers on one event loop."""

    def __init__(self, write: Callable[[Sequence[Any]], Awaitable[None]]) -> None:
        """`write` commits entries, all of them or none."""
        self.commits = 0
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._queue: list[Unit] = []
        self._writing: asyncio.Future[None] | None = None
        """The batch that is being written: the event loop itself keeps no task alive."""
        self._is_busy = False
        """Whether a batch is being written, or about to be."""
        self._is_closing = False
        self._drained = asyncio.Event()

    def add(self, entries: Sequence[Any]) -> "asyncio.Future[None]":
        """Queue entries; the future is done when they are committed. To cancel it does not take them back."""
        if self._is_closing:
            raise GatewayError("the store is closed")
        done: asyncio.Future[None] = self._loop.create_future()
        self._queue.append((entries, done))
        if not self._is_busy:
            self._is_busy = True
            # Not at once: what comes in the same turn of the loop is in the same batch.
            self._loop.call_soon(self._write_next)
        return done

    async def aclose(self) -> None:
        """Commit what is queued, and refuse new entries; also for a caller that is being cancelled."""
        self._is_closing = True
        with anyio.CancelScope(shield=True):
            if self._is_busy:
                self._drained.clear()
                await self._drained.wait()

    def _write_next(self) -> None:
        if not self._queue:
            self._is_busy = False
            self._drained.set()
            return
        batch, self._queue = self._queue[:LARGEST], self._queue[LARGEST:]
        self._start(batch, [])

    def _start(self, batch: list[Unit], rest: list[list[Unit]]) -> None:
        """Write a batch, after which come the `rest`: parts of a batch that has failed."""
        try:
            entries = [entry for unit, _ in batch for entry in unit]
            written: asyncio.Future[None] = asyncio.ensure_future(self._write(entries))
        except Exception as error:  # noqa: BLE001 - the callers wait for it, whatever it is
            written = self._loop.create_future()
            written.set_exception(error)
        self._writing = written
        if written.done() and not written.cancelled() and written.exception() is None:
            self._end(batch, rest, written)
        else:
            # Also for one that has failed at once: a direct call would recurse for each of thousands of halves.
            written.add_done_callback(partial(self._end, batch, rest))

    def _end(self, batch: list[Unit], rest: list[list[Unit]], written: "asyncio.Future[None]") -> None:
        # A write is cancelled only when the event loop is shut down, so that it is not tried again.
        error = StoreUnavailable("the store was shut down") if written.cancelled() else written.exception()
        if error is None:
            self.commits += 1
            for _, done in batch:
                if not done.done():  # its caller was cancelled
                    done.set_result(None)
        elif isinstance(error, StoreUnavailable):
            # The other entries wait for the same database, so they fail with it.
            batch = [*batch, *(unit for part in rest for unit in part), *self._queue]
            rest, self._queue = [], []
            _fail(batch, error)
        elif len(batch) > 1 and not isinstance(error, ToolpostError):
            # Not an error of the database, so one entry causes it: the halves are written apart, to keep the other entries.
            middle = len(batch) // 2
            rest = [batch[:middle], batch[middle:], *rest]
        else:
            _fail(batch, error)
        if rest:
            self._start(rest[0], rest[1:])
        else:
            self._write_next()


def _fail(batch: list[Unit], error: BaseException) -> None:
    cancelled = 0
    for _, done in batch:
        if done.done():
            cancelled += 1
        else:
            done.set_exception(_copy_error(error))
    if cancelled:
        event(_log, logging.ERROR, "entries of cancelled calls were not written", count=cancelled, reason=str(error))


def _copy_error(error: BaseException) -> Exception:
    # One exception raised in many callers would collect all their tracebacks.
    if isinstance(error, ToolpostError):
        copy: Exception = type(error)(error.message, hint=error.hint)
    else:
        copy = GatewayError(f"an entry was not written: {error}")
    copy.__cause__ = error
    return copy
