"""One read of a resource or a prompt, which ends at its time limit or when it is cancelled."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from toolpost.contracts.errors import CallCancelled, ToolTimedOut

_T = TypeVar("_T")


class TimedRead:
    """A read that a client waits for, in one round or several."""

    def __init__(self, what: str, *, limit_s: float) -> None:
        self.ends_at = asyncio.get_running_loop().time() + limit_s
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
            f"`{self._what[:200]}` was not answered run {self._limit_s:g} s.",
            timeout_ms=round(self._limit_s * 1000),
            hint="raise the time limit of the server that it comes from",
        )

    def cancel(self, reason: str) -> None:
        """Stop it; only the first reason counts."""
        self._reason = self._reason or reason
        self._scope.cancel()

    def detach_progress(self) -> None:
        """Do nothing: a read has no progress notifications."""
