"""Turns of conversations as spans: the parents of the calls that agents make in them.

A turn has a trace id, which is stored with it, and the calls of its agent have the same one, in whatever process they arrive. The
span of the turn has the first half of the trace id as its own id, so that all processes know it.
"""

import time
from typing import TYPE_CHECKING, Final

from toolpost import hookimpl
from toolpost.parts.telemetry import conventions as names
from toolpost.parts.telemetry.observer import TelemetryObserver
from toolpost.parts.telemetry.spans import INTERNAL, Span, write_constant_part

if TYPE_CHECKING:
    from toolpost.parts.agents import TurnEnded, TurnId, TurnInfo

_OPEN_LIMIT: Final = 10_000


class TurnSpans:
    """Hooks of conversations."""

    def __init__(self, observer: TelemetryObserver) -> None:
        self._observer = observer
        self._began: dict[TurnId, int] = {}

    @hookimpl(optionalhook=True)
    def toolpost_on_message(self, turn: "TurnInfo", text: str) -> None:  # noqa: ARG002 (as the hook is called)
        """Note when a turn begins."""
        if len(self._began) < _OPEN_LIMIT:
            self._began[turn.turn] = time.monotonic_ns()

    @hookimpl(optionalhook=True)
    def toolpost_on_complete(self, turn: "TurnInfo", ended: "TurnEnded") -> None:
        """Write the span of a turn."""
        began, trace = self._began.pop(turn.turn, None), turn.trace_id
        if began is None or not self._observer.is_sampled(trace, None):
            return
        is_error = ended.state != "done"
        attributes = {
            names.OPERATION: names.INVOKE_AGENT,
            names.AGENT_NAME: turn.agent or None,
            names.CONVERSATION_ID: turn.thread,
            names.CALLER: turn.caller.id,
            names.ERROR_TYPE: ended.state if is_error else None,
        }
        name = f"{names.INVOKE_AGENT} {turn.agent}".strip()
        constant = write_constant_part(name, INTERNAL, attributes, is_error=is_error)
        ids = bytes.fromhex(trace), bytes.fromhex(trace[:16])
        self._observer.put([Span(*ids, None, began, time.monotonic_ns(), constant)])
