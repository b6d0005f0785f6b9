"""Calls and other requests of clients as SERVER spans, with child spans for what happens inside.

The ids of a call's span are made when the call is admitted, since the server behind it is to see them; everything else is made
when the call has ended. What is known by then: the times at which it reached each step, which the call has noted.
"""

import hashlib
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple

import msgspec

from toolpost import Caller, ErrorCode, InvalidArguments, ProtocolError, ToolpostError
from toolpost.base import CallId, JsonObject, new_trace_id, redact
from toolpost.base.trace_context import TraceParent, continue_from_headers, parse_traceparent, read_tracestate
from toolpost.contracts.errors import UpstreamRefused
from toolpost.endpoints.sdk.request_context import VIEWER
from toolpost.middleware import Call
from toolpost.parts import Observer
from toolpost.parts.telemetry import conventions as names
from toolpost.parts.telemetry.exporter import Exporter
from toolpost.parts.telemetry.histograms import Histograms
from toolpost.parts.telemetry.settings import TelemetrySpec
from toolpost.parts.telemetry.spans import (
    INTERNAL,
    SERVER,
    Span,
    TextAttribute,
    new_raw_id,
    new_span_id,
    read_ids,
    write_constant_part,
    write_links,
    write_message,
    write_state,
)
from toolpost.parts.telemetry.transport import ClientSpan, ObservedTransport, Template
from toolpost.protocol.era import Revision
from toolpost.upstreams import ServerSpec
from toolpost.upstreams.transport import Transport

TOGETHER: Final = 64
"""Calls whose spans are written at once: some tenths of a millisecond, in which nothing else runs."""

CONTENT_LIMIT_BYTES: Final = 4_096
"""Of arguments and of a result, each; more is cut off."""

_TEMPLATES_LIMIT: Final = 20_000
_CALLERS_LIMIT: Final = 10_000
_NETWORK: Final[dict[str, dict[str, str]]] = {
    "stdio": {names.TRANSPORT: "pipe"},
    "http": {names.TRANSPORT: "tcp", names.NETWORK_PROTOCOL: "http"},
    "agent": {names.TRANSPORT: "tcp", names.NETWORK_PROTOCOL: "http"},
}

_write_request_id: Final = TextAttribute(names.REQUEST_ID)
_write_call_id: Final = TextAttribute(names.CALL_ID)
_write_caller: Final = TextAttribute(names.CALLER)
_write_session: Final = TextAttribute(names.SESSION_ID)
_write_arguments: Final = TextAttribute(names.ARGUMENTS)
_write_result: Final = TextAttribute(names.RESULT)
_encode: Final = msgspec.json.Encoder().encode

_QUEUE: Final = write_constant_part(names.QUEUE_SPAN, INTERNAL, {})
_VALIDATION: Final = write_constant_part(names.VALIDATION_SPAN, INTERNAL, {})
_VALIDATION_FAILED: Final = write_constant_part(names.VALIDATION_SPAN, INTERNAL, {}, is_error=True)
_AUDIT: Final = write_constant_part(names.AUDIT_SPAN, INTERNAL, {})
_INVALID: Final = InvalidArguments.code.value
_FAILED: Final = ErrorCode.HANDLER_ERROR.value


class CallRecord:
    """What is known of a call that has begun, besides what the call itself knows."""

    __slots__ = ("parent", "request_id", "state", "traceparent", "version")

    def __init__(self, traceparent: str, parent: str | None, state: str | None) -> None:
        self.traceparent = traceparent
        """What tools see: it names the span of the call."""
        self.parent = parent
        self.state = state
        self.request_id: bytes | None = None
        self.version: str | None = None

    @property
    def is_sampled(self) -> bool:
        return self.traceparent[54] == "1"


class CallKind(NamedTuple):
    """What the spans of calls have in common that share a template."""

    tool: str
    provider: str
    transport: str
    version: str | None
    code: str | None
    """Of the error; None for a call that succeeded."""
    status: int | None
    """The JSON-RPC code of an error that a server answered with."""


class RequestKind(NamedTuple):
    """What the spans of other requests have in common that share a template."""

    method: str
    prompt: str | None
    transport: str
    version: str | None
    status: int | None
    """The JSON-RPC code of an error."""
    exception: str | None
    """The class of any other exception."""


class ObservedCall(NamedTuple):
    """What spans are made of. Not the call: with all that it refers to, some dozens of calls would be thousands of objects for
    Python's collector to look at.
    """

    record: CallRecord
    kind: CallKind
    id: CallId
    caller: Caller
    links: Any
    content: bytes
    began_ns: int
    queued_ns: int
    """As the times below, 0 if the call did not get there."""
    locked_ns: int
    checked_ns: int
    answered_ns: int
    recorded_ns: int
    ended_ns: int


class Step(NamedTuple):
    """A part of a call that has a span of its own."""

    constant: bytes
    began_ns: int
    ended_ns: int


def steps_of(call: ObservedCall) -> Iterator[Step]:
    """Return the steps that a call has reached, in their order."""
    answered = call.answered_ns or call.ended_ns
    if call.queued_ns:
        yield Step(_QUEUE, call.queued_ns, call.locked_ns or answered)
    if call.locked_ns or call.checked_ns:
        # Without a lock, the fast path has left the call to a task.
        constant = _VALIDATION_FAILED if call.kind.code == _INVALID else _VALIDATION
        yield Step(constant, call.locked_ns or call.began_ns, call.checked_ns or answered)
    yield Step(_AUDIT, answered, call.recorded_ns or call.ended_ns)


class TelemetryObserver(Observer):
    """Makes spans and durations of all that passes the gateway."""

    def __init__(self, spec: TelemetrySpec, exporter: Exporter, histograms: Histograms) -> None:
        self._exporter = exporter
        self._histograms = histograms
        self._has_content = spec.has_content
        self._is_parent_based = spec.is_parent_based
        self._has_traces = exporter.has_traces and spec.ratio + spec.is_parent_based > 0
        # Traces whose id ends with less than this are sampled, as `TraceIdRatioBased` has it: all gateways choose the same.
        self._ratio_bound = f"{round(spec.ratio * 2**64):016x}" if spec.ratio < 1 else "g"
        self._ended: list[ObservedCall] = []
        self.sent: dict[str, ClientSpan] = {}
        """Requests of the fast path that have no answer yet, by the `traceparent` of their calls."""
        self._call_templates: dict[CallKind, Template] = {}
        self._request_templates: dict[RequestKind, Template] = {}
        self._callers: dict[tuple[str, str | None], bytes] = {}
        self.offset_ns = time.time_ns() - time.monotonic_ns()
        """From the monotonic clock to the time of day."""

    # Ids

    def is_sampled(self, trace: str, parent: TraceParent | None) -> bool:
        """Whether the spans of a trace are sent: as its caller decided, else by its id."""
        if not self._has_traces:
            return False
        if parent is not None and self._is_parent_based:
            return parent.is_sampled
        return trace[16:] < self._ratio_bound

    def put(self, spans: Iterable[Span]) -> None:
        """Queue spans."""
        written = [span.write(self.offset_ns) for span in spans]
        if written:
            self._exporter.put(written, len(written))

    # Calls

    def begin(self, call: Call) -> None:
        """Make the ids of the call's span, and have its tool see them as parent; a call that has begun stays as it is."""
        if call.observed is None:
            self._begin(call)

    def _begin(self, call: Call) -> CallRecord:
        context = call.context
        meta, trace = context.meta, context.trace_id
        parent = state = None
        if "traceparent" in meta:
            parent = parse_traceparent(meta["traceparent"])
            if parent is not None and parent.trace_id != trace:
                parent = None  # of another trace than the one that the call was admitted with
        if "tracestate" in meta:
            state = read_tracestate(meta) if parent is not None else None
            if state is None:
                meta = {key: value for key, value in meta.items() if key != "tracestate"}
        flags = "01" if self.is_sampled(trace, parent) else "00"
        traceparent = f"00-{trace}-{new_span_id()}-{flags}"
        context.meta = {**meta, "traceparent": traceparent}
        # An agent that calls in a turn of a conversation: the span of a turn has the first half of its trace id.
        parent_id = parent.span_id if parent is not None else trace[:16] if call.caller.thread is not None else None
        record = call.observed = CallRecord(traceparent, parent_id, state)
        return record

    def describe(self, call: Call, request_id: bytes, revision: Revision) -> None:
        """Begin, and note what only the endpoint knows."""
        record = call.observed or self._begin(call)
        record.request_id = request_id
        record.version = revision.version

    def abandon(self, call: Call) -> None:
        """Forget a call that was ended from outside."""
        if (record := call.observed) is not None:
            call.observed = None
            self.sent.pop(record.traceparent, None)

    def end(self, call: Call, error: ToolpostError | None, payload: bytes, *, is_error: bool) -> None:
        """Note how the call ended. Spans are written for many calls at once: one by one takes twice the time."""
        if (record := call.observed) is None:
            return
        call.observed = None
        ended, caller, tool = time.monotonic_ns(), call.caller, call.tool
        code = status = None
        if error is not None:
            code = error.code.value
            status = error.rpc_code if isinstance(error, UpstreamRefused) else None
        elif is_error:
            code = _FAILED
        kind = CallKind(tool.contract.name, tool.provider, caller.transport, record.version, code, status)
        self._ended.append(
            ObservedCall(
                record,
                kind,
                call.id,
                caller,
                getattr(call.context, "links", None),
                _write_content(call, error, payload) if self._has_content else b"",
                int(call.started * 1e9),
                call.queued_ns,
                call.locked_ns,
                call.checked_ns,
                call.answered_ns,
                call.recorded_ns,
                ended,
            )
        )
        if len(self._ended) >= TOGETHER:
            self.write_ended()

    def write_ended(self) -> None:
        """Count the calls that have ended, and queue their spans: of many, or before something is sent. On the event loop."""
        calls, self._ended = self._ended, []
        self.put([span for call in calls for span in self._make_spans(call)])

    def _make_spans(self, call: ObservedCall) -> Iterator[Span]:
        """Count a call, and make its spans if its trace is sampled: its own, its request's to a server, and its steps'."""
        record = call.record
        template = self._template_of(call.kind)
        template.series.observe((call.ended_ns - call.began_ns) / 1e9)
        request = self.sent.pop(record.traceparent, None)
        if request is not None:
            answered = call.answered_ns or call.ended_ns
            yield from request.transport.end_fast(
                request, record.traceparent, answered, is_error=call.kind.code is not None
            )
        if not record.is_sampled:
            return
        trace, span = read_ids(record.traceparent)
        parent = bytes.fromhex(record.parent) if record.parent is not None else None
        yield Span(trace, span, parent, call.began_ns, call.ended_ns, template.constant, self._write_own_part(call))
        for constant, began, ended in steps_of(call):
            yield Span(trace, new_raw_id(), span, began, ended, constant)
        if call.links is not None:
            yield from _make_linked(record, call.links, call.ended_ns)

    def _template_of(self, kind: CallKind) -> Template:
        if (template := self._call_templates.get(kind)) is not None:
            return template
        attributes = {
            names.METHOD: "tools/call",
            names.TOOL_NAME: kind.tool,
            names.OPERATION: names.EXECUTE_TOOL,
            names.PROTOCOL_VERSION: kind.version,
            **_NETWORK.get(kind.transport, {}),
            **_describe_error(kind.code, kind.status),
        }
        described = attributes | {names.SERVER: kind.provider, names.CODE: kind.code}
        constant = write_constant_part(f"tools/call {kind.tool}", SERVER, described, is_error=bool(kind.code))
        template = Template(constant, self._histograms.find(names.SERVER_DURATION, attributes))
        if len(self._call_templates) >= _TEMPLATES_LIMIT:
            self._call_templates.clear()  # servers may rename their tools again and again
        self._call_templates[kind] = template
        return template

    def _write_own_part(self, call: ObservedCall) -> bytes:
        record = call.record
        own = self._describe_caller(call.caller) + _write_call_id(call.id.encode())
        if record.request_id is not None:
            own += _write_request_id(_read_id(record.request_id))
        if record.state is not None:
            own += write_state(record.state)
        if call.links is not None:
            own += _write_links(call.links)
        return own + call.content

    def _describe_caller(self, caller: Caller) -> bytes:
        key = (caller.id, caller.session)
        if (known := self._callers.get(key)) is None:
            if len(self._callers) >= _CALLERS_LIMIT:
                self._callers.clear()
            known = _write_caller(caller.id.encode())
            if caller.session is not None:
                known += _write_session(caller.session.encode())
            self._callers[key] = known
        return known

    # Requests that are no calls

    def refuse(self, request_id: bytes, meta: JsonObject, caller: Caller, error: ProtocolError) -> None:
        """Write the span of a `tools/call` that was refused, as for an unknown tool."""
        now = time.monotonic_ns()
        request = _Request("tools/call", None, meta, caller, request_id, None, now)
        self._end_request(request, self._make_ids(meta), status=error.code, message=error.message)

    def list_tools(
        self, request_id: bytes, meta: JsonObject, caller: Caller, revision: Revision, page: Callable[[], bytes]
    ) -> bytes:
        """Write the span of a `tools/list`."""
        request = _Request("tools/list", None, meta, caller, request_id, revision.version, time.monotonic_ns())
        try:
            listed = page()
        except ProtocolError as error:
            self._end_request(request, self._make_ids(meta), status=error.code, message=error.message)
            raise
        self._end_request(request, self._make_ids(meta))
        return listed

    async def observe_sdk(self, context: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        """Write the span of a request that the SDK answers; servers see it as parent."""
        from mcp.shared.exceptions import MCPError

        if context.request_id is None:
            return await call_next(context)  # a notification
        caller, meta = VIEWER.get().caller, dict(context.meta or {})
        headers = getattr(context.request, "headers", None)
        if headers is not None:
            meta = continue_from_headers(meta, dict(headers.raw))
        params = context.params or {}
        target = params.get("name") if context.method == "prompts/get" else params.get("uri")
        request = _Request(
            context.method,
            target if isinstance(target, str) else None,
            meta,
            caller,
            str(context.request_id).encode(),
            context.protocol_version,
            time.monotonic_ns(),
        )
        ids = self._make_ids(meta)
        meta["traceparent"] = f"00-{ids.trace}-{ids.span}-{'01' if ids.is_sampled else '00'}"
        try:
            answer = await call_next(replace(context, meta=meta))
        except MCPError as error:
            self._end_request(request, ids, status=error.error.code, message=error.error.message)
            raise
        except BaseException as error:
            self._end_request(request, ids, kind=type(error).__qualname__)
            raise
        self._end_request(request, ids)
        return answer

    def _make_ids(self, meta: JsonObject) -> "_Ids":
        parent = parse_traceparent(meta.get("traceparent"))
        trace = parent.trace_id if parent is not None else new_trace_id()
        return _Ids(
            trace,
            new_span_id(),
            parent.span_id if parent is not None else None,
            is_sampled=self.is_sampled(trace, parent),
        )

    def _end_request(
        self,
        request: "_Request",
        ids: "_Ids",
        *,
        status: int | None = None,
        message: str | None = None,
        kind: str | None = None,
    ) -> None:
        ended = time.monotonic_ns()
        prompt = request.target if request.method == "prompts/get" else None
        template = self._template_of_request(
            RequestKind(request.method, prompt, request.caller.transport, request.version, status, kind)
        )
        template.series.observe((ended - request.began) / 1e9)
        if ids.is_sampled:
            own = self._describe_caller(request.caller) + _write_request_id(_read_id(request.request_id))
            if request.target is not None and prompt is None:
                own += _write_uri(request.target.encode())
            if (state := read_tracestate(request.meta)) is not None and ids.parent is not None:
                own += write_state(state)
            if message is not None and self._has_content:
                own += write_message(message)
            parent = bytes.fromhex(ids.parent) if ids.parent is not None else None
            trace, span = bytes.fromhex(ids.trace), bytes.fromhex(ids.span)
            self.put([Span(trace, span, parent, request.began, ended, template.constant, own)])

    def _template_of_request(self, kind: RequestKind) -> Template:
        if (template := self._request_templates.get(kind)) is not None:
            return template
        error_type = str(kind.status) if kind.status is not None else kind.exception
        attributes = {
            names.METHOD: kind.method,
            names.PROMPT_NAME: kind.prompt,
            names.OPERATION: names.EXECUTE_TOOL if kind.method == "tools/call" else None,
            names.PROTOCOL_VERSION: kind.version,
            **_NETWORK.get(kind.transport, {}),
            names.ERROR_TYPE: error_type,
            names.STATUS_CODE: str(kind.status) if kind.status is not None else None,
        }
        name = f"{kind.method} {kind.prompt}" if kind.prompt is not None else kind.method
        constant = write_constant_part(name, SERVER, attributes, is_error=error_type is not None)
        template = Template(constant, self._histograms.find(names.SERVER_DURATION, attributes))
        if len(self._request_templates) >= _TEMPLATES_LIMIT:
            self._request_templates.clear()
        self._request_templates[kind] = template
        return template

    def end_session(self, transport: str, revision: Revision, seconds: float) -> None:
        """Count the session of a client."""
        attributes = {names.PROTOCOL_VERSION: revision.version, **_NETWORK.get(transport, {})}
        self._histograms.find(names.SERVER_SESSION, attributes).observe(seconds)

    # Requests to servers

    @contextmanager
    def observe_transport(self, transport: Transport, spec: ServerSpec) -> Iterator[Transport]:
        """Wrap a transport; its end is the end of the session with the server."""
        observed = ObservedTransport(transport, spec, self, self._histograms)
        try:
            yield observed
        finally:
            observed.end_session()


_write_uri: Final = TextAttribute(names.RESOURCE_URI)


class _Request(NamedTuple):
    """A request that is no call of a tool in the catalog."""

    method: str
    target: str | None
    """The name of a prompt, or the URI of a resource."""
    meta: JsonObject
    caller: Caller
    request_id: bytes
    version: str | None
    began: int


class _Ids(NamedTuple):
    trace: str
    span: str
    parent: str | None
    is_sampled: bool


def derive_ids(kind: str, name: str) -> tuple[str, str]:
    """Return the ids of the trace and the span of something that several processes know by its name."""
    digest = hashlib.sha256(f"{kind} {name}".encode()).hexdigest()
    return digest[:32], digest[32:48]


def _write_links(links: Sequence[tuple[str, str, bool]]) -> bytes:
    """Write what a call is about: links to the spans of these things, and their names."""
    written = write_links([derive_ids(kind, name) for kind, name, _ in links])
    return written + b"".join(TextAttribute(f"toolpost.{kind}.id")(name.encode()) for kind, name, _ in links)


def _make_linked(record: CallRecord, links: Sequence[tuple[str, str, bool]], ended: int) -> Iterator[Span]:
    """Make the spans of things that a call has made; each has a link back to it."""
    for kind, name, begins in links:
        if begins:
            trace, span = derive_ids(kind, name)
            back = write_links([(record.traceparent[3:35], record.traceparent[36:52])])
            constant = write_constant_part(f"toolpost.{kind}", INTERNAL, {})
            own = TextAttribute(f"toolpost.{kind}.id")(name.encode()) + back
            yield Span(bytes.fromhex(trace), bytes.fromhex(span), None, ended, ended, constant, own)


def _describe_error(code: str | None, status: int | None) -> dict[str, str]:
    if status is not None:
        return {names.ERROR_TYPE: str(status), names.STATUS_CODE: str(status)}
    return {names.ERROR_TYPE: names.TOOL_ERROR} if code is not None else {}


def _read_id(written: bytes) -> bytes:
    """Return a JSON-RPC id as text: without the quotes of a string."""
    return written if not written.startswith(b'"') else str(msgspec.json.decode(written)).encode()


def _write_content(call: Call, error: ToolpostError | None, payload: bytes) -> bytes:
    written = _write_arguments(_encode(redact(call.arguments))[:CONTENT_LIMIT_BYTES])
    written += _write_result(_redact_json(payload)[:CONTENT_LIMIT_BYTES])
    return written + (write_message(error.message) if error is not None else b"")


def _redact_json(payload: bytes) -> bytes:
    try:
        return _encode(redact(msgspec.json.decode(payload)))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return b"(not JSON)"
