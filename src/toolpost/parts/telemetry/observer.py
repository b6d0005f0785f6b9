"""Listens to all that passes the gateway, for spans and durations.

The ids of a span are made when its call or request begins, since the server behind is to see them; everything else is made
when it has ended: by `call_spans` and `request_spans` for what clients ask, by `server_spans` for what servers are asked.
"""

import time
from collections.abc import Iterable
from typing import Final

from toolpost import ToolpostError
from toolpost.base import TraceContext, new_trace_id
from toolpost.middleware import Call
from toolpost.parts import ClientRequest, ObservedRequest, Observer
from toolpost.parts.telemetry import conventions as names
from toolpost.parts.telemetry.call_spans import CallRecord, CallSpans, ObservedCall, end_call, write_content
from toolpost.parts.telemetry.client_attributes import NETWORK, CallerAttributes
from toolpost.parts.telemetry.exporter import Exporter
from toolpost.parts.telemetry.histograms import Histograms
from toolpost.parts.telemetry.request_spans import RequestSpans
from toolpost.parts.telemetry.server_spans import ServerSpans
from toolpost.parts.telemetry.settings import TelemetrySpec
from toolpost.parts.telemetry.spans import Span, new_span_id
from toolpost.upstreams import ServerSpec

TOGETHER: Final = 64
"""Calls whose spans are written at once: some tenths of a millisecond, in which nothing else runs."""


class TelemetryObserver(Observer):
    """Makes spans and durations of all that passes the gateway."""

    def __init__(self, spec: TelemetrySpec, exporter: Exporter, histograms: Histograms) -> None:
        self._exporter = exporter
        self._histograms = histograms
        callers = CallerAttributes()
        self._call_spans = CallSpans(histograms, callers)
        self._request_spans = RequestSpans(histograms, callers)
        self._has_content = spec.has_content
        self._is_parent_based = spec.is_parent_based
        self._has_traces = exporter.has_traces and spec.ratio + spec.is_parent_based > 0
        # Traces whose id ends with less than this are sampled, as `TraceIdRatioBased` has it: all gateways choose the same.
        self._ratio_bound = f"{round(spec.ratio * 2**64):016x}" if spec.ratio < 1 else "g"
        self._ended: list[ObservedCall] = []
        self.sent: dict[str, tuple[ServerSpans, ObservedRequest]] = {}
        """Requests of the fast path that have no answer yet, by the `traceparent` of their calls."""
        self.offset_ns = time.time_ns() - time.monotonic_ns()
        """From the monotonic clock to the time of day."""

    def is_sampled(self, trace: str, parent: TraceContext | None) -> bool:
        """Whether the spans of a trace are sent: as its caller decided, else by its id."""
        if not self._has_traces:
            return False
        if parent is not None and self._is_parent_based:
            return parent.is_sampled
        return trace[16:] < self._ratio_bound

    def make_traceparent(self, trace: str, parent: TraceContext | None) -> str:
        """Make the ids of a span."""
        return f"00-{trace}-{new_span_id()}-{'01' if self.is_sampled(trace, parent) else '00'}"

    def put(self, spans: Iterable[Span]) -> None:
        """Queue spans."""
        written = [span.write(self.offset_ns) for span in spans]
        if written:
            self._exporter.put(written, len(written))

    # Calls

    def begin(self, call: Call, parent: TraceContext | None) -> str:
        """Make the ids of a call's span."""
        trace = call.context.trace_id
        traceparent = self.make_traceparent(trace, parent)
        if parent is not None:
            call.observed = CallRecord(traceparent, parent.span_id, parent.state)
        else:
            # An agent that calls in a turn of a conversation: the span of a turn has the first half of its trace id.
            call.observed = CallRecord(traceparent, trace[:16] if call.caller.thread is not None else None, None)
        return traceparent

    def describe(self, call: Call, request_id: bytes, version: str) -> None:
        """Note what only the endpoint knows."""
        record: CallRecord = call.observed
        record.request_id = request_id
        record.version = version

    def abandon(self, call: Call) -> None:
        """Forget a call that was ended from outside."""
        if (record := call.observed) is not None:
            call.observed = None
            self.sent.pop(record.traceparent, None)

    def end(
        self, call: Call, error: ToolpostError | None, payload: bytes, *, is_error: bool, rpc_code: int | None
    ) -> None:
        """Note how a call ended. Spans are made for many calls at once: one by one takes twice the time."""
        if (record := call.observed) is None:
            return
        call.observed = None
        content = write_content(call, error, payload) if self._has_content else b""
        self._ended.append(end_call(call, record, error, content, is_error=is_error, status=rpc_code))
        if len(self._ended) >= TOGETHER:
            self.write_ended()

    def write_ended(self) -> None:
        """Count the calls that have ended, and queue their spans: of many, or before something is sent. On the event loop."""
        calls, self._ended = self._ended, []
        spans: list[Span] = []
        for call in calls:
            if (sent := self.sent.pop(call.record.traceparent, None)) is not None:
                server, request = sent
                ended_ns = call.answered_ns or call.ended_ns
                spans += server.make_spans(request, ended_ns, names.TOOL_ERROR if call.is_error else None)
            spans += self._call_spans.make(call)
        self.put(spans)

    # Requests that are no calls, and sessions

    def begin_request(self, request: ClientRequest) -> str:
        """Make the ids of a request's span."""
        parent = request.parent
        return self.make_traceparent(parent.trace_id if parent is not None else new_trace_id(), parent)

    def end_request(
        self,
        request: ClientRequest,
        *,
        status: int | None = None,
        message: str | None = None,
        exception: str | None = None,
    ) -> None:
        """Count a request, and queue its span. Messages may contain what clients sent."""
        shown = message if self._has_content else None
        self.put(self._request_spans.make(request, status=status, message=shown, exception=exception))

    def end_session(self, transport: str, version: str, seconds: float) -> None:
        """Count the session of a client."""
        attributes = {names.PROTOCOL_VERSION: version, **NETWORK.get(transport, {})}
        self._histograms.find(names.SERVER_SESSION, attributes).observe(seconds)

    # Requests to servers

    def observe_server(self, spec: ServerSpec) -> ServerSpans:
        """Listen to a new instance of a server."""
        return ServerSpans(spec, self, self._histograms)
