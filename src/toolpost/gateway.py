"""The gateway: find the tool of a call, pass the call through the middleware, return one answer. Every endpoint uses it."""

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import anyio
import msgspec

from toolpost.authoring.context import Context
from toolpost.base.caller import Caller, Principal
from toolpost.base.events import event
from toolpost.base.ids import JsonObject, ThreadId, ToolName, TraceId, call_prefix, new_call_id
from toolpost.base.trace_context import TraceContext, read_trace_context
from toolpost.contracts.envelope import ResultStyle, failure_payload, success_payload
from toolpost.contracts.errors import (
    MESSAGE_LIMIT,
    CallerError,
    ErrorCode,
    GatewayError,
    InvalidArguments,
    InvalidResult,
    ToolpostError,
    UnknownTool,
    UpstreamRefused,
)
from toolpost.contracts.issues import list_issues_for_log
from toolpost.discovery import EVERYTHING, View
from toolpost.discovery.automatic import AUTOMATIC_NAMES, AutomaticMcp, refuse_arguments, resolve_call
from toolpost.discovery.catalog import Catalog
from toolpost.metrics import Metrics
from toolpost.middleware.call import Call
from toolpost.middleware.fast_path import Delivery
from toolpost.middleware.interface import CheckedResult, ResultLimiter
from toolpost.middleware.pipeline import Pipeline
from toolpost.middleware.progress import ProgressNotification, ProgressShaper
from toolpost.protocol.rpc import Resumption
from toolpost.providers import ProvidedTool, RawResult
from toolpost.refusals import Refusals
from toolpost.upstreams.server_requests import ClientChannel

__all__ = ["Answer", "Gateway"]

_log = logging.getLogger("toolpost.gateway")

FORMER_NAMES_LIMIT: Final = 10_000
"""How many former names of tools are logged, each once."""

MESSAGE_READ_BYTES: Final = 64 * 1024
"""The content of a failed result up to which its text is logged."""

_CLOSING = "the server is shutting down"

_CALLER_CODES: Final[frozenset[ErrorCode]] = frozenset(kind.code for kind in CallerError.__subclasses__())
"""Codes of failures that the caller caused and can correct."""


class _TextBlock(msgspec.Struct):
    text: str = ""


_text_blocks: Final = msgspec.json.Decoder(list[_TextBlock])


class Answer:
    """The single answer of a call: the result of its tool, or the error that it ended with."""

    __slots__ = ("_payload", "call", "error", "result")

    def __init__(self, call: Call, result: CheckedResult | None = None, error: ToolpostError | None = None) -> None:
        """Take one of the two."""
        self.call = call
        self.result = result
        self.error = error
        self._payload: bytes | None = None

    @property
    def payload(self) -> bytes:
        """The result or the error as JSON in the style of the tool. Made when it is first asked for."""
        if self._payload is None:
            if self.result is not None:
                self._payload = success_payload(self.result.encoded, self.style)
            else:
                self._payload = failure_payload(self._describe_error(), self.style)
        return self._payload

    @property
    def style(self) -> ResultStyle:
        """How the payload looks. A result that was made elsewhere, by a server or by the function itself, is sent as it is."""
        if self.result is not None:
            if self.result.upstream_fields is not None:
                return ResultStyle.PLAIN
        elif self._is_of_automatic_eval:
            return ResultStyle.PLAIN
        return self.call.tool.contract.terms.style

    @property
    def is_error(self) -> bool:
        """Whether the call failed, or the result itself says `isError`."""
        return self.result is None or self.result.is_error

    @property
    def refusal(self) -> UpstreamRefused | None:
        """A server's own protocol error, to be sent on as one."""
        return self.error if isinstance(self.error, UpstreamRefused) else None

    @property
    def code(self) -> str | None:
        """The code of the error; None for a result."""
        return None if self.error is None else self.error.code.value

    @property
    def content(self) -> Sequence[JsonObject]:
        """Content blocks beside the payload."""
        if self.result is not None:
            return self.result.content
        return self.error.content if isinstance(self.error, InvalidResult) else ()

    @property
    def facts(self) -> JsonObject | None:
        """Sent beside the payload, under our key in `_meta`."""
        if self.result is not None:
            return self.result.facts
        return self.error.facts if isinstance(self.error, InvalidResult) else None

    @property
    def _is_of_automatic_eval(self) -> bool:
        """Whether `automatic_eval` refused the arguments of the tool that it was to run."""
        return self.call.via is not None and isinstance(self.error, InvalidArguments)

    def _describe_error(self) -> JsonObject:
        assert self.error is not None
        if isinstance(self.error, InvalidArguments) and self._is_of_automatic_eval:
            return refuse_arguments(self.error, self.call.listed_definition)
        return self.error.as_object()


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
        automatic_mcp: AutomaticMcp,
        metrics: Metrics,
        uses: Counter[str],
        conversations: AgentCallObserver | None = None,
        limiter: ResultLimiter | None = None,
    ) -> None:
        """`automatic_mcp` is the tool that finds tools; `uses` is how often each tool has been called, counted here; `limiter`
        makes large results smaller.
        """
        self.catalog = catalog
        self.automatic_mcp = automatic_mcp
        self.metrics = metrics
        self.refusals = Refusals(metrics.names_refused)
        self._uses = uses
        self.pipeline = pipeline
        self._calls: set[Call] = set()
        self._former_names: set[str] = set()
        self._is_closing = False
        self._idle = anyio.Event()
        self.admitted = 0
        """How many calls have been admitted."""
        self._conversations = conversations
        self._limiter = limiter
        self._small_bytes = sys.maxsize if limiter is None else limiter.small_bytes

    def still_provides(self, call: Call, principal: Principal | None) -> bool:
        """Whether a call that has waited could be made now: its tool is unchanged, and within the scopes of its caller."""
        if call.tool.contract.name in AUTOMATIC_NAMES:
            # They are in no catalog, and never change.
            return True
        view = EVERYTHING.within(principal.scopes if principal is not None else ())
        return self.catalog.narrow(view).provides(call.tool)

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
        wants_whole_result: bool = False,
    ) -> Call:
        """Find the tool and make a `Call`. Raises `UnknownTool` for a name that does not exist or is not in view.

        `tool` is one that another tool runs in its place, which need not be in the catalog; what runs it gets the whole result.
        """
        seen = self.catalog.narrow(view)
        via: ToolName | None = None
        requested_name = name
        is_nested = tool is not None
        if tool is not None:
            pass
        elif name in AUTOMATIC_NAMES:
            resolved = resolve_call(name, arguments, meta, catalog=seen, view=view, automatic_mcp=self.automatic_mcp)
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
            progress = ProgressShaper(on_progress, call_id=call_id, tool=tool.contract.name)
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
            # A nested call runs in the task of the outer one: only anyio's cancel scopes nest.
            has_user_steps=is_nested or self.pipeline.has_user_steps_for(tool),
            wants_whole_result=wants_whole_result or is_nested,
        )
        if via is not None:
            call.listed_definition = seen.listed_definition(tool)
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

        def send_result(response: bytes, result: CheckedResult) -> None:
            try:
                send(response)
            finally:
                self._on_fast_result(call, result)

        def fail(error: Exception) -> None:
            send(write(self._finish(Answer(call, error=_conceal_bug(call, error)))))

        delivery = Delivery(start_task, lambda result: write(Answer(call, result)), send_result, fail)
        if not self.pipeline.try_fast_path(call, delivery):
            return False
        self._calls.add(call)
        return True

    def _on_fast_result(self, call: Call, result: CheckedResult) -> None:
        # As `_finish`, without making the answer a second time.
        self._release(call)
        self._count(call, "HANDLER_ERROR" if result.is_error else "OK")
        if result.is_error:
            _log_failure(call, ErrorCode.HANDLER_ERROR, _read_message(result))
        if call.caller.thread is not None and self._conversations is not None:
            self._conversations.note_call(Answer(call, result))

    async def call(self, call: Call) -> Answer:
        """Pass the call through the middleware and return its answer; errors become answers too."""
        self._calls.add(call)
        try:
            try:
                result = await self.pipeline(call)
                if self._limiter is not None and (len(result.encoded) > self._small_bytes or result.content):
                    result = await self._limiter.limit(call, result)
                answer = Answer(call, result)
            except Exception as error:  # noqa: BLE001 (a bug becomes an answer too)
                answer = Answer(call, error=_conceal_bug(call, error))
                if isinstance(answer.error, InvalidResult) and self._limiter is not None:
                    await _limit_content(call, answer.error, self._limiter)
        except BaseException:
            self._release(call)
            raise
        return self._finish(answer)

    async def call_nested(
        self, tool: ProvidedTool, arguments: JsonObject, context: Context, resumption: Resumption | None
    ) -> RawResult:
        """Run a tool in place of the one that is called, as a call of its own for middleware, guards and audit; raise its error.

        `resumption` are the answers to what the tool has asked the client.
        """

        def relay(progress: ProgressNotification) -> None:
            context.progress(progress.progress, progress.total, progress.message)

        answer = await self.call(
            self.admit(
                caller=context.caller,
                name=tool.contract.name,
                arguments=arguments,
                trace_id=context.trace_id,
                on_progress=relay if context.wants_progress else None,
                meta=context.meta,
                client_channel=context.client_channel,
                resumption=resumption,
                tool=tool,
            )
        )
        if answer.result is None:
            raise answer.error or GatewayError()
        return RawResult(upstream_fields=answer.result.upstream_fields)

    def _finish(self, answer: Answer) -> Answer:
        call = answer.call
        self._release(call)
        self._count(call, answer.code or ("HANDLER_ERROR" if answer.is_error else "OK"))
        if isinstance(answer.error, UnknownTool):
            # Of `automatic_eval`, which has been asked for it.
            call.is_logged = True
            self.note_unknown_tool(answer.error, call.caller, call=call.id, trace=call.trace_id)
        elif answer.is_error:
            code = ErrorCode(answer.code or ErrorCode.HANDLER_ERROR)
            _log_failure(call, code, answer.error or _read_message(answer.result))
        if call.caller.thread is not None and self._conversations is not None:
            self._conversations.note_call(answer)
        return answer

    def _count(self, call: Call, code: str) -> None:
        tool = call.tool
        self.metrics.durations.observe(tool.provider, tool.contract.name, code, time.monotonic() - call.started)
        if call.has_entered:
            self._uses[tool.contract.name] += 1

    @property
    def call_prefix(self) -> str:
        """What the ids of its calls begin with: the record of a call has nothing else that names its gateway."""
        return call_prefix()

    @property
    def in_flight(self) -> int:
        """How many calls have not been answered yet."""
        return len(self._calls)

    async def drain(self, grace_s: float, *, answer_s: float = 0.0) -> None:
        """Cancel new calls at once, give those in flight `grace_s`, cancel them, and wait up to `answer_s` for their answers."""
        self._is_closing = True
        if self._calls:
            with anyio.move_on_after(grace_s):
                await self._idle.wait()
        for call in tuple(self._calls):
            call.cancel(_CLOSING)
        if self._calls and answer_s:
            with anyio.move_on_after(answer_s):
                await self._idle.wait()

    def note_unknown_tool(self, error: UnknownTool, caller: Caller, *, is_served: bool = True, **fields: Any) -> None:
        """Note a request for a tool that does not exist, that the caller may not see, or that its endpoint does not serve."""
        name = str(error.details.get("tool"))
        is_hidden = is_served and self.catalog.has(name)
        self.refusals.note_unknown("tool", name, caller, is_hidden=is_hidden, code=error.code.value, **fields)

    def _note_former_name(self, call: Call, name: str) -> None:
        """Warn of a former name, in each answer, and once in the log."""
        call.requested_name = name
        if name not in self._former_names and len(self._former_names) < FORMER_NAMES_LIMIT:
            self._former_names.add(name)
            use = call.tool.contract.name
            event(_log, logging.WARNING, "deprecated tool name", tool=name, use=use, caller=call.caller.id)

    def _release(self, call: Call) -> None:
        self._calls.discard(call)
        # A cycle of the two would leave every call, with all that it refers to, to Python's garbage collector.
        call.context.pause = None
        if call.progress is not None:
            call.progress.close(deliver=not call.is_cancelled)
        if self._is_closing and not self._calls:
            self._idle.set()


class CallObserver(Protocol):
    """Called for every call: when it begins, and when it ends. What it knows of a call it keeps in `call.observed`."""

    def begin(self, call: Call, parent: TraceContext | None, /) -> str:
        """Note a call that is about to run; return its `traceparent`, which its tool and the server behind it see."""
        ...

    def end(
        self, call: Call, error: ToolpostError | None, payload: bytes, /, *, is_error: bool, rpc_code: int | None
    ) -> None:
        """Note the answer of a call, as JSON.

        A result may say `isError` itself, without an error of ours. `rpc_code` is that of a server's protocol error.
        """
        ...

    def abandon(self, call: Call, /) -> None:
        """Note that the call was ended from outside, without an answer."""
        ...


class ObservedGateway(Gateway):
    """A gateway that tells an observer of its calls; `app` chooses it where a part brings one."""

    def __init__(self, *arguments: Any, observer: CallObserver, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.observer = observer

    async def call(self, call: Call) -> Answer:
        # Those of endpoints have begun: `ObservedCallHandler` does it, which knows their requests.
        if call.observed is None:
            begin_observed(self.observer, call)
        try:
            return await super().call(call)
        except BaseException:
            self.observer.abandon(call)
            raise

    def _on_fast_result(self, call: Call, result: CheckedResult) -> None:
        super()._on_fast_result(call, result)
        self.observer.end(call, None, result.encoded, is_error=result.is_error, rpc_code=None)

    def _finish(self, answer: Answer) -> Answer:
        super()._finish(answer)
        rpc_code = answer.refusal.rpc_code if answer.refusal is not None else None
        self.observer.end(answer.call, answer.error, answer.payload, is_error=answer.is_error, rpc_code=rpc_code)
        return answer


def begin_observed(observer: CallObserver, call: Call) -> None:
    """Notify an observer of a call, and have its tool see the call's span as parent."""
    context = call.context
    meta = context.meta
    parent = read_trace_context(meta)
    if parent is not None and parent.trace_id != context.trace_id:
        parent = None  # of another trace than the one that the call was admitted with
    if "tracestate" in meta and (parent is None or parent.state is None):
        meta = {key: value for key, value in meta.items() if key != "tracestate"}
    context.meta = {**meta, "traceparent": observer.begin(call, parent)}


def _conceal_bug(call: Call, error: Exception) -> ToolpostError:
    """Return the error that the caller is sent: a bug is logged in full, and its caller gets the call id to look for."""
    if not isinstance(error, ToolpostError):
        error = GatewayError(cause=error)
    if not isinstance(error, GatewayError):
        return error
    call.is_logged = True
    event(
        _log,
        logging.ERROR,
        "internal error",
        **call.log_fields,
        reason=error.message,
        exception=error.details.get("cause", error),
    )
    return GatewayError(hint=f"the server's log has more under call id {call.id}", callId=call.id)


async def _limit_content(call: Call, error: InvalidResult, limiter: ResultLimiter) -> None:
    """Limit the content of a result that broke its schema, as of any other result."""
    content = msgspec.json.encode(error.content)
    if not error.content or len(content) <= limiter.small_bytes:
        return
    fields = {"content": msgspec.Raw(content), "isError": msgspec.Raw(b"true")}
    result = await limiter.limit(call, CheckedResult(msgspec.json.encode(fields), (), fields, is_error=True))
    limited = (result.upstream_fields or fields)["content"]
    error.content, error.facts = msgspec.json.decode(limited), result.facts


def _read_message(result: CheckedResult | None) -> str | None:
    """Return the first text of a result that says `isError`, as far as a log line has room for it."""
    fields = result.upstream_fields if result is not None else None
    content = (fields or {}).get("content")
    if content is None or len(memoryview(content)) > MESSAGE_READ_BYTES:
        return None
    try:
        blocks = _text_blocks.decode(content)
    except msgspec.DecodeError:
        return None
    return next((block.text[:MESSAGE_LIMIT] for block in blocks if block.text), None)


def _log_failure(call: Call, code: ErrorCode, error: ToolpostError | str | None) -> None:
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
        **call.log_fields,
        code=code.value,
        message=error.message if isinstance(error, ToolpostError) else error,
        issues=list_issues_for_log(error) if isinstance(error, ToolpostError) else None,
    )
