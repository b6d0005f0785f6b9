"""One read of a resource or a prompt, which ends at its time limit or when it is cancelled."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import anyio

from toolpost.contracts.errors import CallCancelled, ToolTimedOut

_T = TypeVar("_T")


class TimedRead:
    """A read that a client waits for, in one round or several."""

    def __init__(self, what: str, *, limit_s: float) -> None:
        self._began = asyncio.get_running_loop().time()
        self.ends_at = self._began + limit_s
        self.source = ""
        """The plugin that reads; empty until that is known, and for a server."""
        self._what = what
        self._limit_s = limit_s
        self._scope = anyio.CancelScope(deadline=self.ends_at)
        self._reason: str | None = None

    async def run(self, read: Callable[[], Awaitable[_T]]) -> _T:
        """Run the read; raise `ToolTimedOut` or `CallCancelled` if it was stopped."""
        with self._scope:
            return await read()
        if self._reason is not None:
            raise CallCancelled(f"The request was cancelled: {self._reason}.")
        raise ToolTimedOut(
            f"`{self._what[:200]}` was not answered within {self._limit_s:g} s.",
            timeout_ms=round(self._limit_s * 1000),
            hint="raise the time limit of the plugin or server that it comes from",
        )

    def enter(self, source: str, *, limit_s: float) -> None:
        """Note which plugin reads, for the audit, and set the time limit, from the beginning of the read."""
        self.source = source
        self._limit_s = limit_s
        self.ends_at = self._scope.deadline = self._began + limit_s

    @contextmanager
    def pause_deadline(self, *, at_most_s: float = 0.0) -> Iterator[None]:
        """Stop the clock while a user is asked; `ends_at` is later by `at_most_s` meanwhile, for the state of a round."""
        clock = asyncio.get_running_loop().time
        began = clock()
        self._scope.deadline = math.inf
        self.ends_at += at_most_s
        try:
            yield
        finally:
            self.ends_at += clock() - began - at_most_s
            self._scope.deadline = self.ends_at

    def cancel(self, reason: str) -> None:
        """Stop it; only the first reason counts."""
        self._reason = self._reason or reason
        self._scope.cancel()

    def detach_progress(self) -> None:
        """Do nothing: a read has no progress notifications."""
