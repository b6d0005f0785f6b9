"""The fast path: a plain call to an upstream server, sent in the turn of the event loop in which it arrived, and answered in
the turn in which the result arrives, without a task.

Most such calls are over before a task would have been worth its cost (docs/decisions/0035). A call gets its task after all if
the server is slow or lost, if its result is not plain, or if the call is cancelled; that task runs the whole chain of steps,
with a tool that waits for the request already sent.

Without this file every call takes the chain, and a lone one a third longer. With it go `try_fast_path` of pipeline, gateway and
endpoints, `accepts_quickly`, `read_plain_result`, `FastRequest`, `SentRequest` with the parameters `sent`, and `try_send` of the
supervisor and of transports, with `wait_for` where `request` does not use it.

Example: `start(call, delivery)` writes the request to the server's pipe, registers for its result, and returns True; when the
result is read, its audit entry is committed and `delivery.send` writes the response.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from toolpost.base.events import event
from toolpost.middleware.audit import AuditEnter, AuditExit, prepare_entry
from toolpost.middleware.call import Call
from toolpost.middleware.interface import CheckedResult
from toolpost.middleware.passthrough import read_plain_result
from toolpost.middleware.tool_lock import ToolLock
from toolpost.middleware.validate import accepts_quickly
from toolpost.upstreams.transport import SentRequest

_log = logging.getLogger("toolpost.fast_path")

TASK_AFTER_S: Final = 0.02
"""After how many seconds a call without an answer gets a task. Only a task has a deadline."""


class Delivery(NamedTuple):
    """How a call is answered."""

    start_task: Callable[[], None]
    """Starts a task that runs the call through the chain and answers it."""
    write: Callable[[CheckedResult], bytes]
    send: Callable[[bytes, CheckedResult], None]
    fail: Callable[[Exception], None]
    """Answers that the audit entry could not be written."""


class FastPath:
    """Sends and finishes calls that have no task."""

    def __init__(self, audit_enter: AuditEnter, audit: AuditExit, lock: ToolLock, *, small_bytes: int) -> None:
        """Results above `small_bytes` are left to tasks, because they may have to be limited."""
        self._audit_enter = audit_enter
        self.small_bytes = small_bytes
        self.audit = audit
        self.lock = lock
        self.sent: dict[_SentCall, None] = {}
        """Calls whose servers have not answered, the oldest first."""
        self._answered: list[_AnsweredCall] = []
        self._timer: asyncio.TimerHandle | None = None

    def start(self, call: Call, delivery: Delivery) -> bool:
        """Send the request if every check passes and nothing has to be waited for; False if not, and nothing was done."""
        tool, sent = call.tool, None
        try:
            if (
                tool.fast_request is None
                or not call.is_plain
                or call.scope.cancel_called
                or tool.contract.timeout_s <= TASK_AFTER_S
                or not self.lock.is_open_to(call)
                or not accepts_quickly(call)
            ):
                return False
            # Before the request is sent: the server may act on it at once.
            self._audit_enter(call)
            sent = tool.fast_request.send(call.arguments, call.context)
        except Exception as error:  # noqa: BLE001 (nothing was sent: the task meets the same error and reports it)
            event(_log, logging.DEBUG, "fast path left", call=call.id, exception=error)
        if sent is None:
            self._audit_enter.undo(call)
            return False
        # The server is at work from here on: nothing below may raise.
        sent_call = _SentCall(call, delivery, sent, self)
        if self._timer is None:
            # One timer for all calls: setting and clearing one for each would cost more than it saves.
            self._timer = asyncio.get_running_loop().call_later(TASK_AFTER_S, self._start_overdue_tasks)
        if self.has_single_call:
            # After whatever else is ready in this turn of the loop.
            asyncio.get_running_loop().call_soon(sent_call.spin)
        return True

    @property
    def has_single_call(self) -> bool:
        """Whether exactly one call is in progress."""
        return len(self.audit.in_progress) == 1

    def record(self, answered: "_AnsweredCall") -> None:
        """Write the audit entry together with those of calls that are answered in this turn of the loop and the next."""
        if not self._answered:
            asyncio.get_running_loop().call_soon(self._record_all)
        self._answered.append(answered)

    def _record_all(self) -> None:
        answered, self._answered = self._answered, []
        for call in answered:
            call.record()

    def _start_overdue_tasks(self) -> None:
        """Start the tasks of calls that have waited for `TASK_AFTER_S`."""
        self._timer = None
        now = time.monotonic()
        for sent_call in list(self.sent):
            if (left_s := sent_call.call.started + TASK_AFTER_S - now) > 0:
                self._timer = asyncio.get_running_loop().call_later(left_s, self._start_overdue_tasks)
                break
            sent_call.start_task()


class _SentCall:
    """A call without a task whose server has not answered. It counts as in flight and as in progress for the audit."""

    __slots__ = ("_delivery", "_fast_path", "_sent", "call", "is_over")

    def __init__(self, call: Call, delivery: Delivery, sent: SentRequest, fast_path: FastPath) -> None:
        self.call = call
        self._delivery = delivery
        self._sent = sent
        self._fast_path = fast_path
        self.is_over = False
        call.took_fast_path = True
        fast_path.sent[self] = None
        fast_path.audit.in_progress.add(call)
        fast_path.lock.enter(call)
        call.start_task = self.start_task
        sent.pending.on_answer = self._take
        # Called for a result that `_take` left, and when the server is lost.
        sent.pending.answer.add_done_callback(self.start_task)
        if call.pending_entry is None:
            prepare_entry(call)

    def start_task(self, _answer: object = None) -> None:
        """Start the task, which continues from here; does nothing the second time."""
        if not self.is_over:
            self._end()
            tool = self.call.tool
            assert tool.fast_request is not None
            self.call.tool = replace(tool, invoke=partial(tool.fast_request.finish, self._sent))
            self._delivery.start_task()

    def spin(self) -> None:
        """Read the server's pipe at once, if the server usually answers immediately and no other call is in progress."""
        if not self.is_over and not self._sent.pending.answer.done() and self._fast_path.has_single_call:
            self._sent.instance.spin()

    def _take(self, raw: bytes) -> bool:
        """Record a plain result and send it; False leaves it to the task."""
        call = self.call
        if len(raw) > self._fast_path.small_bytes:
            return False
        try:
            if (result := read_plain_result(call, raw)) is None:
                return False
            answered = _AnsweredCall(call, self._delivery, self._fast_path.audit, result)
        except Exception as error:  # noqa: BLE001 (the task meets the same error and reports it)
            event(_log, logging.DEBUG, "fast path left", call=call.id, exception=error)
            return False
        if not self._fast_path.has_single_call or not answered.answer_now():
            # Entries of calls that end together are committed together, which costs each of them less.
            self._fast_path.record(answered)
        self._end()
        self._fast_path.lock.leave(call)
        self._sent.instance.release()
        return True

    def _end(self) -> None:
        self.is_over = True
        del self._fast_path.sent[self]
        self.call.start_task = None
        self._sent.pending.on_answer = None
        self._sent.pending.answer.remove_done_callback(self.start_task)


class _AnsweredCall:
    """A call whose result has arrived and whose audit entry is being written."""

    __slots__ = ("_audit", "_call", "_delivery", "_response", "_result")

    def __init__(self, call: Call, delivery: Delivery, audit: AuditExit, result: CheckedResult) -> None:
        self._call = call
        self._delivery = delivery
        self._audit = audit
        self._result = result
        self._response = delivery.write(result)

    def answer_now(self) -> bool:
        """Answer now, if the entry can be written without waiting; False if not."""
        try:
            answer_now = self._audit.append_now(self._call, self._result)
        except Exception as error:  # noqa: BLE001 (the queued write meets the same error and reports it)
            event(_log, logging.DEBUG, "fast path left", call=self._call.id, exception=error)
            return False
        if answer_now:
            self._answer()
        return answer_now

    def record(self) -> None:
        """Answer when the entry is committed."""
        try:
            self._audit.append(self._call, self._result).add_done_callback(self._on_recorded)
        except Exception as error:  # noqa: BLE001 (a store that is closed)
            self._fail(error)

    def _on_recorded(self, appended: "asyncio.Future[None]") -> None:
        if isinstance(error := appended.exception(), Exception):
            self._fail(error)
        else:
            self._answer()

    def _answer(self) -> None:
        self._audit.release(self._call)
        try:
            self._delivery.send(self._response, self._result)
        except Exception as error:  # noqa: BLE001 (the reader of the server's pipe must go on)
            event(_log, logging.ERROR, "answer not sent", call=self._call.id, exception=error)

    def _fail(self, error: Exception) -> None:
        self._audit.in_progress.discard(self._call)
        self._audit.append_late(self._call, self._result)
        self._delivery.fail(error)
