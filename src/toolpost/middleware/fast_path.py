"""Ahead of any task a plain call asks its server, in the turn of the loop in which it came, and answers, in that of the result.

Most such calls are over before a task would have cost its price. One that is not gets its task then, which goes the way of
any other and finds the request sent: if the server takes its time or breaks, if its result is not plain, if somebody calls
it off.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from toolpost.base.events import event
from toolpost.middleware.audit import AuditExit, audit_enter, prepare_entry
from toolpost.middleware.call import Call
from toolpost.middleware.interface import Outcome
from toolpost.middleware.lock import Lock
from toolpost.middleware.passthrough import plain_outcome
from toolpost.upstreams.supervisor import SentRequest

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
        self.audit = audit
        self.lock = lock
        self.asked: dict[_Asked, None] = {}
        """The calls without a task whose servers are at work, the oldest first."""
        self._answered: list[_Answered] = []
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, call: Call) -> bool:
        """Ask the server now, if every gate is open and nothing to be waited for; then `begin` must follow."""
        tool = call.tool
        if (
            tool.ask_ahead is not None
            and call.is_plain
            and not call.scope.cancel_called
            and tool.contract.timeout_s > PATIENCE_S
            and self.lock.is_open_to(call)
            and tool.contract.accepts_quickly(call.arguments)
        ):
            call.context.sent = tool.ask_ahead(call.arguments, call.context)
        return call.context.sent is not None

    def begin(self, call: Call, delivery: Delivery, on_answer: OnAnswer) -> None:
        """Have a call answered when its server answers what was asked."""
        assert call.context.sent is not None
        asked = _Asked(call, delivery, on_answer, call.context.sent, self)
        loop = asyncio.get_running_loop()
        if self._timer is None:
            # One timer for all: to set one and clear it would cost every call.
            self._timer = loop.call_later(PATIENCE_S, self._look)
        if self.is_quiet:
            # What else this turn brings comes first.
            loop.call_soon(asked.linger)

    @property
    def is_quiet(self) -> bool:
        """Whether a single call is under way."""
        return len(self.audit.within) == 1

    def record(self, answered: "_Answered") -> None:
        """Have a call put on the record, with all that are answered in this turn of the loop and the next."""
        if not self._answered:
            asyncio.get_running_loop().call_soon(self._record_all)
        self._answered.append(answered)

    def _record_all(self) -> None:
        answered, self._answered = self._answered, []
        for one in answered:
            one.record()

    def _look(self) -> None:
        """Give their tasks to those who have waited long enough."""
        self._timer = None
        now = time.monotonic()
        for asked in list(self.asked):
            if (left_s := asked.call.started + PATIENCE_S - now) > 0:
                self._timer = asyncio.get_running_loop().call_later(left_s, self._look)
                break
            asked.hand_over()


class _Asked:
    """A call without a task, while its server is at work. It has its place in the lock and among the calls under way."""

    __slots__ = ("_ahead", "_delivery", "_on_answer", "_sent", "call", "is_over")

    def __init__(self, call: Call, delivery: Delivery, on_answer: OnAnswer, sent: SentRequest, ahead: Ahead) -> None:
        self.call = call
        self._delivery = delivery
        self._on_answer = on_answer
        self._sent = sent
        self._ahead = ahead
        self.is_over = False
        audit_enter(call)
        ahead.asked[self] = None
        ahead.audit.within.add(call)
        ahead.lock.enter(call)
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
        """Have the answer read at once, if the server is one that gives it at once and nobody else is here."""
        if not self.is_over and not self._sent.pending.answer.done() and self._ahead.is_quiet:
            self._sent.instance.linger()

    def _take(self, raw: bytes) -> bool:
        """Put a plain result on the record and send it; False leaves it to the task."""
        call = self.call
        try:
            if (outcome := plain_outcome(call, raw)) is None:
                return False
            answered = _Answered(call, self._delivery, self._on_answer, self._ahead.audit, outcome)
        except Exception as error:  # noqa: BLE001 (the task meets it too, and says so)
            event(_log, logging.DEBUG, "not answered ahead", call=call.id, exception=error)
            return False
        if not self._ahead.is_quiet or not answered.is_noted():
            # Calls that come together are recorded together, which costs each of them less.
            self._ahead.record(answered)
        self._end()
        call.context.sent = None
        self._ahead.lock.leave(call)
        self._sent.instance.release()
        return True

    def _end(self) -> None:
        self.is_over = True
        del self._ahead.asked[self]
        self.call.carry = None
        self._sent.pending.take_ahead = None
        self._sent.pending.answer.remove_done_callback(self.hand_over)


class _Answered:
    """A call that its server has answered, on its way to the record and to whoever asked."""

    __slots__ = ("_audit", "_call", "_delivery", "_on_answer", "_outcome", "_written")

    def __init__(self, call: Call, delivery: Delivery, on_answer: OnAnswer, audit: AuditExit, outcome: Outcome) -> None:
        self._call = call
        self._delivery = delivery
        self._on_answer = on_answer
        self._audit = audit
        self._outcome = outcome
        self._written = delivery.write(outcome)

    def is_noted(self) -> bool:
        """Answer now, if it can be put on the record without waiting."""
        try:
            is_noted = self._audit.is_noted(self._call, self._outcome)
        except Exception as error:  # noqa: BLE001 (whoever records it in earnest meets it too, and says so)
            event(_log, logging.DEBUG, "not answered ahead", call=self._call.id, exception=error)
            return False
        if is_noted:
            self._answer()
        return is_noted

    def record(self) -> None:
        """Answer when it is on the record."""
        try:
            self._audit.recording(self._call, self._outcome).add_done_callback(self._recorded)
        except Exception as error:  # noqa: BLE001 (a store that is closed)
            self._fail(error)

    def _recorded(self, recording: "asyncio.Future[None]") -> None:
        if error := recording.exception():
            self._fail(error)
        else:
            self._answer()

    def _answer(self) -> None:
        self._audit.within.discard(self._call)
        try:
            self._delivery.send(self._written)
        except Exception as error:  # noqa: BLE001 (whoever read the server's answer goes on reading)
            event(_log, logging.ERROR, "answer not sent", call=self._call.id, exception=error)
        self._on_answer(self._call, self._outcome)

    def _fail(self, error: BaseException) -> None:
        """Have a task say what is wrong."""
        self._audit.within.discard(self._call)
        self._call.unrecorded = error
        self._delivery.carry()
