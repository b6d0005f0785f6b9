"""The gateway: find the tool of a call, pass the call through the middleware, return one answer. Every endpoint uses it."""

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
from toolpost.middleware import Call, CheckedResult, Delivery, Pipeline, ProgressNotification, ProgressShaper
from toolpost.protocol.rpc import Resumption
from toolpost.providers import ProvidedTool
from toolpost.upstreams.server_requests import ClientChannel

_log = logging.getLogger("toolpost.gateway")

_CLOSING = "the server is shutting down"

_CALLER_CODES: Final[frozenset[ErrorCode]] = frozenset(kind.code for kind in CallerError.__subclasses__())
"""Codes of failures that the caller caused and can correct."""


class Answer(msgspec.Struct, kw_only=True, frozen=True):
    """The single answer of a call, as JSON that any endpoint can send."""

    call: Call
    payload: bytes
    is_error: bool
    code: str | None = None
    content: Sequence[Json] = ()
    passed: Mapping[str, msgspec.Raw] | None = None
    """An upstream server's own result, field by field, to be sent on unchanged."""
    refusal: UpstreamRefused | None = None
    """An upstream server's own protocol error, to be sent on as one."""
    error: ToolpostError | None = None
    """What the payload tells of, for callers in this process."""
    style: ResultStyle
    facts: JsonObject | None = None
    """Sent beside the answer, under our key in `_meta`."""


class AgentCallObserver(Protocol):
    """Relates the calls of agents to the conversations in which they are made."""

    def trace_of(self, thread: ThreadId) -> TraceId | None:
        """Return the trace of a thread's current turn; None without one."""
        ...

    def note_call(self, answer: Answer) -> None:
        """Notify of a call that a thread's agent has made."""
        ...


class Gateway:
    """The entry to the kernel, behind every endpoint."""

    def __init__(
        self,
        catalog: Catalog,
        pipeline: Pipeline,
        *,
        finding: AutomaticMcp,
        metrics: Metrics,
        uses: Counter[str],
        conversations: AgentCallObserver | None = None,
    ) -> None:
        """`finding` finds tools for `automatic_mcp`; `uses` is how often each tool has been called, counted here."""
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
        """How many calls have been admitted."""
        self._conversations = conversations

    def admit(
        self,
        *,
        caller: Caller,
        name: str,
        arguments: JsonObject,
        trace_id: TraceId | None = None,
        on_progress: Callable[[ProgressNotification], None] | None = None,
        meta: JsonObject | None = None,
        view: View = EVERYTHING,
        client_channel: ClientChannel | None = None,
        resumption: Resumption | None = None,
        tool: ProvidedTool | None = None,
    ) -> Call:
        """Find the tool and make a `Call`. Raises `UnknownTool` for a name that does not exist or is not in view.

        `tool` is one that another tool runs in its place, which need not be in the catalog.
        """
        seen = self.catalog.narrow(view)
        via: ToolName | None = None
        requested_name = name
        is_nested = tool is not None
        if tool is not None:
            pass
        elif name in AUTOMATIC_NAMES:
            resolved = resolve_call(name, arguments, meta, catalog=seen, view=view, finding=self.finding)
            requested_name = name if resolved.via is None else str(arguments["toolName"])
            tool, arguments, meta, via = resolved
        else:
            tool = seen.find(name)
        if trace_id is None and caller.thread is not None and self._conversations is not None:
            trace_id = self._conversations.trace_of(caller.thread)
        call_id = new_call_id()
        self.admitted += 1
        progress = None
        if on_progress is not None:
            is_delayed = caller.transport == "stdio"
            progress = ProgressShaper(on_progress, call_id=call_id, tool=tool.contract.name, is_delayed=is_delayed)
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
            # One call inside another needs scopes that nest.
            runs_code=is_nested or self.pipeline.runs_code_for(tool),
        )
        if requested_name not in (tool.contract.name, tool.contract.terms.name):
            self._note_former_name(call, requested_name)
        if self._is_closing:
            call.cancel(_CLOSING)
        return call

    def try_fast_path(
        self,
        call: Call,
        *,
        start_task: Callable[[], None],
        write: Callable[[Answer], bytes],
        send: Callable[[bytes], None],
    ) -> bool:
        """Answer a plain call to a server through `send`, without a task; False if that is not possible.

        `start_task` is called if the call turns out to need a task, which must await `call`.
        """

        def send_result(response: bytes, outcome: CheckedResult) -> None:
            try:
                send(response)
            finally:
                self._on_fast_result(call, outcome)

        def fail(error: Exception) -> None:
            send(write(self._finish(call, _failure_answer(call, error))))

        delivery = Delivery(start_task, lambda outcome: write(success_answer(call, outcome)), send_result, fail)
        if not self.pipeline.try_fast_path(call, delivery):
            return False
        self._calls.add(call)
        return True

    def _on_fast_result(self, call: Call, outcome: CheckedResult) -> None:
        # As `_finish`, without making the answer a second time.
        self._release(call)
        self._count(call, "HANDLER_ERROR" if outcome.is_error else "OK")
        if outcome.is_error:
            _log_failure(call, ErrorCode.HANDLER_ERROR)
        if call.caller.thread is not None and self._conversations is not None:
            self._conversations.note_call(success_answer(call, outcome))

    async def call(self, call: Call) -> Answer:
        """Pass the call through the middleware and return its answer; errors become answers too."""
        self._calls.add(call)
        try:
            answer = success_answer(call, await self.pipeline(call))
        except Exception as error:  # noqa: BLE001 (a bug becomes an answer too)
            answer = _failure_answer(call, error)
        except BaseException:
            self._release(call)
            raise
        return self._finish(call, answer)

    def _finish(self, call: Call, answer: Answer) -> Answer:
        self._release(call)
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
        """Cancel new calls at once, give those in flight this many seconds, then cancel them."""
        self._is_closing = True
        if self._calls:
            with anyio.move_on_after(grace_s):
                await self._idle.wait()
        for call in tuple(self._calls):
            call.cancel(_CLOSING)

    def _note_former_name(self, call: Call, name: str) -> None:
        """Warn of a former name, in each answer, and once in the log."""
        call.requested_name = name
        if name not in self._former_names:
            self._former_names.add(name)
            use = call.tool.contract.name
            event(_log, logging.WARNING, "deprecated tool name", tool=name, use=use, caller=call.caller.id)

    def _release(self, call: Call) -> None:
        self._calls.discard(call)
        if call.progress is not None:
            call.progress.close(deliver=not call.is_cancelled)
        if self._is_closing and not self._calls:
            self._idle.set()


def success_answer(call: Call, outcome: CheckedResult) -> Answer:
    """Make the answer of a call whose tool returned, even if its result says `isError`."""
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


def _failure_answer(call: Call, error: Exception) -> Answer:
    if not isinstance(error, ToolpostError):
        error = GatewayError(cause=error)
    if isinstance(error, GatewayError):
        error = _hide_internal_error(call, error)
    contract = call.tool.contract
    style, error_object = contract.terms.style, error.as_object()
    if call.via is not None and isinstance(error, InvalidArguments):
        style, error_object = ResultStyle.PLAIN, refuse_arguments(error, contract.definition)
    return Answer(
        call=call,
        payload=failure_payload(error_object, style),
        is_error=True,
        style=style,
        code=error.code.value,
        content=error.content if isinstance(error, InvalidResult) else (),
        refusal=error if isinstance(error, UpstreamRefused) else None,
        error=error,
    )


def _log_failure(call: Call, code: ErrorCode) -> None:
    """Log a failed call once: a client may swallow the answer, and then the log is the only place that shows it.

    A failure that the caller can correct is INFO, any other a WARNING. What the tool raised, and bugs, are in the log
    already, with their tracebacks.
    """
    if call.is_logged:
        return
    call.is_logged = True
    event(
        _log,
        logging.INFO if code in _CALLER_CODES else logging.WARNING,
        "call failed",
        tool=call.tool.contract.name,
        plugin=call.tool.provider,
        code=code.value,
        call=call.id,
        trace=call.trace_id,
        caller=call.caller.id,
        thread=call.caller.thread,
    )


def _hide_internal_error(call: Call, error: GatewayError) -> GatewayError:
    """Log a bug in full; the caller is told the call id to look for, and nothing else."""
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
