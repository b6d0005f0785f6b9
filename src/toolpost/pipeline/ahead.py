"""Ahead of its task a plain call asks its server, in the turn of the loop in which it came, and answers, in that of the result.

The task is made while the server works, goes the way of any other, and after an answer that has gone out only clears up.
Whatever is not plain is left to it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, NamedTuple

from toolpost.contracts.events import event
from toolpost.pipeline.audit import AuditExit, prepare_entry
from toolpost.pipeline.call import Call
from toolpost.pipeline.limit import Limit
from toolpost.pipeline.lock import Lock
from toolpost.pipeline.passing import plain_outcome
from toolpost.pipeline.stage import Outcome

_log = logging.getLogger("toolpost.ahead")


class Delivery(NamedTuple):
    """How a call is answered."""

    write: Callable[[Outcome], bytes]
    send: Callable[[bytes], None]


class Ahead:
    """Begins calls."""

    def __init__(self, audit: AuditExit, lock: Lock) -> None:
        self._audit = audit
        self._lock = lock

    def begin(
        self, call: Call, running: Coroutine[Any, Any, None], delivery: Delivery, loop: asyncio.AbstractEventLoop
    ) -> "asyncio.Task[None] | None":
        """Ask the server if that can be done at once, and return the task that carries the call, None if it is over.

        `delivery` may be made before the task goes on; the call then says that it is answered.
        """
        limit = call.scope
        # Calls that come together are asked and recorded together, which costs each of them less.
        if self._audit.within or not isinstance(limit, Limit) or not self._is_asked(call):
            return loop.create_task(running)
        assert call.context.sent is not None
        # From here on the server is at work, and there is time.
        call.context.sent.pending.take_ahead = partial(self._answer, call, limit, delivery)
        limit.begin()
        try:
            awaited = running.send(None)
        except StopIteration:
            return None
        task = loop.create_task(_Rest(running, awaited))
        limit.go_on(task, loop)
        prepare_entry(call)
        return task

    def _is_asked(self, call: Call) -> bool:
        """Ask, if every gate is open and nothing else is to be waited for; else the task finds out what is in the way."""
        tool = call.tool
        if tool.ask_ahead is None or not call.is_plain or call.scope.cancel_called or not self._lock.is_open_to(call):
            return False
        if tool.contract.faults_in_arguments(call.arguments):
            return False
        call.context.sent = tool.ask_ahead(call.arguments, call.context)
        return call.context.sent is not None

    def _answer(self, call: Call, limit: Limit, delivery: Delivery, raw: bytes) -> None:
        """Put a plain result on the record and send it, if that takes no waiting."""
        if limit.cancel_called or self._audit.within > 1:
            return
        try:
            outcome = plain_outcome(call, raw)
            if outcome is None:
                return
            written = delivery.write(outcome)
            if self._audit.is_noted(call, outcome):
                call.is_answered = True
                limit.end()
                delivery.send(written)
        except Exception as error:  # noqa: BLE001 (whatever it is, the task meets it too, and says so)
            event(_log, logging.DEBUG, "not answered ahead", call=call.id, exception=error)


class _Rest(Coroutine[Any, Any, None]):
    """What is left of a coroutine that waits already, for a task to go on with."""

    def __init__(self, running: Coroutine[Any, Any, None], awaited: "asyncio.Future[Any]") -> None:
        self._running = running
        self._awaited: asyncio.Future[Any] | None = awaited

    def send(self, value: Any, /) -> Any:
        """Wait for what is waited for already, then go on."""
        if (awaited := self._awaited) is not None:
            self._awaited = None
            return awaited
        return self._running.send(value)

    def throw(self, *error: Any) -> Any:
        """Go on with an error. A task that was cancelled before its first step cannot have called off the wait itself."""
        if self._awaited is not None:
            self._awaited.cancel()
            self._awaited = None
        return self._running.throw(*error)

    def close(self) -> None:
        """End it."""
        self._running.close()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._running.__await__()

    def __getattr__(self, name: str) -> Any:
        """Let whoever inspects the task see the coroutine."""
        return getattr(self._running, name)
