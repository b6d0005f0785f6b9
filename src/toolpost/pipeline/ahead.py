"""Ahead of any task a plain call asks its server, in the turn of the loop in which it came, and answers, in that of the result.

Most such calls are over before a task would have cost its price. One that is not gets its task then, which goes the way of
any other and finds the request sent: if the server takes its time or breaks, if its result is not plain, if another call
comes, if somebody calls it off.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from toolpost.contracts.events import event
from toolpost.pipeline.audit import AuditExit, audit_enter, prepare_entry
from toolpost.pipeline.call import Call
from toolpost.pipeline.lock import Lock
from toolpost.pipeline.passing import plain_outcome
from toolpost.pipeline.stage import Outcome
from toolpost.upstreams.supervisor import Sent

_log = logging.getLogger("toolpost.ahead")

PATIENCE_S: Final = 0.02
"""How long a call may be without a task, which alone minds its deadline."""


class Delivery(NamedTuple):
    """How a call is answered."""

    carry: Callable[[], None]
    """Starts the task that lets the call pass and answers it."""
    write: Callable[[Outcome], bytes]
    send: Callable[[bytes], None]


OnAnswer = Callable[[Call, Outcome], None]


class Ahead:
    """Begins calls."""

    def __init__(self, audit: AuditExit, lock: Lock) -> None:
        self._audit = audit
        self._lock = lock
        self._last: _Asked | None = None
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, call: Call) -> None:
        """Ask the server now, if the call is alone, every gate open and nothing to be waited for; `begin` must follow."""
        if self._last is not None:
            # Calls that come together are recorded together, which costs each of them less.
            self._last.hand_over()
        tool = call.tool
        if (
            not self._audit.within
            and tool.ask_ahead is not None
            and call.is_plain
            and not call.scope.cancel_called
            and tool.contract.timeout_s > PATIENCE_S
            and self._lock.is_open_to(call)
            and not tool.contract.faults_in_arguments(call.arguments)
        ):
            call.context.sent = tool.ask_ahead(call.arguments, call.context)

    def begin(self, call: Call, delivery: Delivery, on_answer: OnAnswer) -> None:
        """Have a call answered when its server answers what was asked; any other starts its task."""
        if (sent := call.context.sent) is None:
            delivery.carry()
            return
        self._last = asked = _Asked(call, delivery, on_answer, sent, self._audit, self._lock)
        loop = asyncio.get_running_loop()
        if self._timer is None:
            # One timer for all: to set one and clear it would cost every call.
            self._timer = loop.call_later(PATIENCE_S, self._look)
        # What else this turn brings comes first.
        loop.call_soon(asked.linger)

    def _look(self) -> None:
        self._timer = None
        if self._last is not None and not self._last.is_over:
            if (left_s := self._last.call.started + PATIENCE_S - time.monotonic()) > 0:
                self._timer = asyncio.get_running_loop().call_later(left_s, self._look)
            else:
                self._last.hand_over()


class _Asked:
    """A call without a task, while its server is at work. It has its place in the lock and among the calls under way."""

    __slots__ = ("_audit", "_delivery", "_lock", "_on_answer", "_sent", "call", "is_over")

    def __init__(
        self, call: Call, delivery: Delivery, on_answer: OnAnswer, sent: Sent, audit: AuditExit, lock: Lock
    ) -> None:
        self.call = call
        self._delivery = delivery
        self._on_answer = on_answer
        self._sent = sent
        self._audit = audit
        self._lock = lock
        self.is_over = False
        audit_enter(call)
        audit.within.add(call)
        lock.running.add(call)
        call.carry = self.hand_over
        sent.pending.take_ahead = self._take
        # An answer that is not taken ahead, or a server that is lost.
        sent.pending.answer.add_done_callback(self.hand_over)
        prepare_entry(call)

    def hand_over(self, _answer: object = None) -> None:
        """Start the task, which goes on from here; a second time changes nothing."""
        if not self.is_over:
            self._end()
            self._delivery.carry()

    def linger(self) -> None:
        """Have the answer read at once, if the server is one that gives it at once."""
        if not self.is_over and not self._sent.pending.answer.done():
            self._sent.instance.linger()

    def _take(self, raw: bytes) -> bool:
        """Put a plain result on the record and send it, if the call is still alone; False leaves it to the task."""
        call = self.call
        if len(self._audit.within) > 1:
            return False
        is_noted = False
        try:
            if (outcome := plain_outcome(call, raw)) is None:
                return False
            written = self._delivery.write(outcome)
            if is_noted := self._audit.is_noted(call, outcome):
                try:
                    self._delivery.send(written)
                finally:
                    self._clear_up(outcome)
        except Exception as error:  # noqa: BLE001 (what comes before the record, the task meets too, and says so)
            event(_log, logging.DEBUG, "not answered ahead", call=call.id, exception=error)
        return is_noted

    def _clear_up(self, outcome: Outcome) -> None:
        self._end()
        self.call.context.sent = None
        self._audit.within.discard(self.call)
        self._lock.running.discard(self.call)
        self._sent.instance.put_down()
        self._on_answer(self.call, outcome)

    def _end(self) -> None:
        self.is_over = True
        self.call.carry = None
        self._sent.pending.take_ahead = None
        self._sent.pending.answer.remove_done_callback(self.hand_over)
