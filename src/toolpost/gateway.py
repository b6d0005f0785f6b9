"""The gateway: find the tool, let the call pass, give one answer. Every endpoint comes through here."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import anyio
import msgspec

from toolpost.base.caller import Caller
from toolpost.base.events import event
from toolpost.base.ids import Json, JsonObject, ThreadId, ToolName, TraceId, new_call_id
from toolpost.contracts.envelope import ResultStyle, failure_payload, success_payload
from toolpost.contracts.errors import (
    CallerError,
    ErrorCode,
    GatewayError,
    InvalidArguments,
    InvalidResult,
    ToolpostError,
    UpstreamRefused,
)
from toolpost.discovery import EVERYTHING, Catalog, View
from toolpost.discovery.automatic import AUTOMATIC_NAMES, resolve_call
from toolpost.discovery.automatic_eval import refuse_arguments
from toolpost.discovery.automatic_mcp import AutomaticMcp
from toolpost.metrics import Metrics
from toolpost.middleware import Call, Delivery, Outcome, Pipeline, ProgressNote, ProgressShaper
from toolpost.protocol.rpc import Resumption
from toolpost.upstreams.server_requests import ClientChannel

_log = logging.getLogger("toolpost.gateway")

_CLOSING = "the server is shutting down"

_OF_CALLERS: Final[frozenset[ErrorCode]] = frozenset(kind.code for kind in CallerError.__subclasses__())
"""Codes of failures that the caller caused and can correct."""


class Answer(msgspec.Struct, kw_only=True, frozen=True):
    """The one terminal answer of a call, as JSON that any endpoint can send."""

    call: Call
    payload: bytes
    is_error: bool
    code: str | None = None
    content: Sequence[Json] = ()
    passed: Mapping[str, msgspec.Raw] | None = None
    """A server's own result, field by field, to be sent on as it came."""
    refusal: UpstreamRefused | None = None
    """A server's own protocol error, to be sent on as one."""
    error: ToolpostError | None = None
    """What the payload tells of, for callers in this process."""
    style: ResultStyle
    """How the payload is shaped."""
    facts: JsonObject | None = None
    """What is told about the answer beside it, under our key in `_meta`."""


class Conversations(Protocol):
    """Whoever leads conversations, in which agents call tools."""

    def trace_of(self, thread: ThreadId) -> TraceId | None:
        """Return the trace that a thread's calls are part of now."""
        ...

    def note_call(self, answer: Answer) -> None:
        """Hear of a call that a thread's agent has made."""
        ...


class Gateway:
    """What is behind every endpoint."""

    def __init__(
        self,
        catalog: Catalog,
        pipeline: Pipeline,
        *,
        finding: AutomaticMcp,
        metrics: Metrics,
        uses: Counter[str],
        conversations: Conversations | None = None,
    ) -> None:
        """Take also what finds tools by need, and `uses`: how often each tool has been called, counted here."""
        self.catalog = catalog
        self.finding = finding
        self.metrics = metrics
        self._uses = uses
        self.pipeline = pipeline
        self._calls: set[Call] = set()
        self._former_names: set[str] = set()
        self._is_closing = False
        self._idle = anyio.Event()
        self.admitted = 0
        """How many calls there have been."""
        self._conversations = conversations

    def admit(
        self,
        *,
        caller: Caller,
        name: str,
        arguments: JsonObject,
        trace_id: TraceId | None = None,
        on_progress: Callable[[ProgressNote], None] | None = None,
        meta: JsonObject | None = None,
        view: View = EVERYTHING,
        client_channel: ClientChannel | None = None,
        resumption: Resumption | None = None,
    ) -> Call:
        """Find the tool and make a call of the wish; a name that is unknown, or not in view, gets no further than this."""
        seen = self.catalog.narrow(view)
        via: ToolName | None = None
        asked_as = name
        if name in AUTOMATIC_NAMES:
            resolved = resolve_call(name, arguments, meta, catalog=seen, view=view, finding=self.finding)
            asked_as = name if resolved.via is None else str(arguments["toolName"])
            tool, arguments, meta, via = resolved
        else:
            tool = seen.find(name)
        if trace_id is None and caller.thread is not None and self._conversations is not None:
            trace_id = self._conversations.trace_of(caller.thread)
        call_id = new_call_id()
        self.admitted += 1
        progress = None
        if on_progress is not None:
            holds = caller.transport == "stdio"
            progress = ProgressShaper(on_progress, call_id=call_id, tool=tool.contract.name, holds=holds)
        call = Call(
            call_id=call_id,
            trace_id=trace_id,
            caller=caller,
            tool=tool,
            arguments=arguments,
            progress=progress,
            meta=meta,
            client_channel=client_channel,
            resumption=resumption,
            via=via,
            runs_code=self.pipeline.has_middleware,
        )
        if asked_as not in (tool.contract.name, tool.contract.terms.name):
            self._note_former_name(call, asked_as)
        if self._is_closing:
            call.cancel(_CLOSING)
        return call

    def begin(self, call: Call, delivery: Delivery) -> None:
        """Have a call answered whose server was asked ahead: without a task, or by one, which awaits `call`."""
        self._calls.add(call)
        self.pipeline.begin(call, delivery, self._answered_ahead)

    def _answered_ahead(self, call: Call, outcome: Outcome) -> None:
        self._ended(call)
        self._count(call, "HANDLER_ERROR" if outcome.is_error else "OK")
        if outcome.is_error:
            _log_failure(call, ErrorCode.HANDLER_ERROR)
        if call.caller.thread is not None and self._conversations is not None:
            self._conversations.note_call(success(call, outcome))

    async def call(self, call: Call) -> Answer:
        """Let the call pass and return its one answer, whatever happens to it."""
        self._calls.add(call)
        try:
            answer = success(call, await self.pipeline(call))
        except ToolpostError as error:
            answer = _failure(call, error)
        except Exception as error:  # noqa: BLE001 (a bug of ours)
            answer = _failure(call, GatewayError(cause=error))
        finally:
            self._ended(call)
        self._count(call, answer.code or ("HANDLER_ERROR" if answer.is_error else "OK"))
        if answer.is_error:
            _log_failure(call, ErrorCode(answer.code or ErrorCode.HANDLER_ERROR))
        if call.caller.thread is not None and self._conversations is not None:
            self._conversations.note_call(answer)
        return answer

    def _count(self, call: Call, code: str) -> None:
        self.metrics.calls.add(of=code)
        self.metrics.call_seconds.add(call.duration_ms / 1000)
        if call.has_entered:
            self._uses[call.tool.contract.name] += 1

    @property
    def in_flight(self) -> int:
        """How many calls have not been answered yet."""
        return len(self._calls)

    async def drain(self, grace_s: float) -> None:
        """Admit nothing more, give what is in flight this long, then cancel it."""
        self._is_closing = True
        if self._calls:
            with anyio.move_on_after(grace_s):
                await self._idle.wait()
        for call in tuple(self._calls):
            call.cancel(_CLOSING)

    def _note_former_name(self, call: Call, name: str) -> None:
        """Warn of a name that answers only for a while: in the answer each time, in the log once."""
        call.asked_as = name
        if name not in self._former_names:
            self._former_names.add(name)
            use = call.tool.contract.name
            event(_log, logging.WARNING, "deprecated tool name", tool=name, use=use, caller=call.caller.id)

    def _ended(self, call: Call) -> None:
        self._calls.discard(call)
        if call.progress is not None:
            call.progress.close(deliver=not call.is_cancelled)
        if self._is_closing and not self._calls:
            self._idle.set()


def success(call: Call, outcome: Outcome) -> Answer:
    """Make the answer of a call that went well, or as well as its server could."""
    style = call.tool.contract.terms.style
    return Answer(
        call=call,
        payload=success_payload(outcome.encoded, style),
        is_error=outcome.is_error,
        content=outcome.content,
        passed=outcome.passed,
        style=style,
        facts=outcome.facts,
    )


def _failure(call: Call, error: ToolpostError) -> Answer:
    if isinstance(error, GatewayError):
        error = _internal(call, error)
    contract = call.tool.contract
    style, told = contract.terms.style, error.as_object()
    if call.via is not None and isinstance(error, InvalidArguments):
        style, told = ResultStyle.PLAIN, refuse_arguments(error, contract.definition)
    return Answer(
        call=call,
        payload=failure_payload(told, style),
        is_error=True,
        style=style,
        code=error.code.value,
        content=error.content if isinstance(error, InvalidResult) else (),
        refusal=error if isinstance(error, UpstreamRefused) else None,
        error=error,
    )


def _log_failure(call: Call, code: ErrorCode) -> None:
    """Log a failed call once: a client may swallow the answer, and then the log is the only place that shows it.

    A failure that the caller can correct is INFO, any other a WARNING. What the tool raised and bugs of ours are in the log
    already, with their tracebacks.
    """
    if call.is_logged:
        return
    call.is_logged = True
    event(
        _log,
        logging.INFO if code in _OF_CALLERS else logging.WARNING,
        "call failed",
        tool=call.tool.contract.name,
        plugin=call.tool.provider,
        code=code.value,
        call=call.id,
        trace=call.trace_id,
        caller=call.caller.id,
        thread=call.caller.thread,
    )


def _internal(call: Call, error: GatewayError) -> GatewayError:
    """Log a bug of ours in full; the caller is shown where to look, and nothing of it."""
    call.is_logged = True
    event(
        _log,
        logging.ERROR,
        "internal error",
        tool=call.tool.contract.name,
        call=call.id,
        trace=call.trace_id,
        reason=error.message,
        exception=error.details.get("cause", error),
    )
    return GatewayError(hint=f"the server's log has more under call id {call.id}", callId=call.id)
