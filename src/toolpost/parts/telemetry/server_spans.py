"""Requests to servers as CLIENT spans: each request has a `traceparent` of its own, whose parent is the span of its call."""

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from toolpost import ToolpostError
from toolpost.base import new_trace_id
from toolpost.parts import ObservedRequest
from toolpost.parts.telemetry import conventions as names
from toolpost.parts.telemetry.histograms import Histograms
from toolpost.parts.telemetry.spans import (
    CLIENT,
    Span,
    TextAttribute,
    new_span_id,
    read_ids,
    write_constant_part,
)
from toolpost.parts.telemetry.templates import Template, Templates
from toolpost.upstreams import ServerRefused, ServerSpec

if TYPE_CHECKING:
    from toolpost.parts.telemetry.observer import TelemetryObserver

_TEMPLATES_LIMIT: Final = 5_000
_UNTRACED: Final = frozenset({"ping"})
"""Methods that are counted, but have no span: pings while nothing happens."""
_NAMED: Final = frozenset({"tools/call", "prompts/get"})

_write_request_id: Final = TextAttribute(names.REQUEST_ID)
_write_uri: Final = TextAttribute(names.RESOURCE_URI)


class _Outcome(msgspec.Struct):
    isError: bool = False  # noqa: N815 (as on the wire)


_outcome: Final = msgspec.json.Decoder(_Outcome)


class ServerKind(NamedTuple):
    """What the spans of requests to a server have in common that share a template."""

    method: str
    target: str | None
    """A tool, or a prompt."""
    error: str | None
    """What went wrong, where no error of JSON-RPC says it."""
    status: int | None
    """The JSON-RPC code of an error."""


class ServerSpans:
    """Listens to the requests to one instance of a server."""

    def __init__(self, spec: ServerSpec, observer: "TelemetryObserver", histograms: Histograms) -> None:
        self._observer = observer
        self._histograms = histograms
        self._version: str | None = None
        self._began = time.monotonic()
        self._common = _describe_server(spec)
        self._server = spec.name
        self._templates = Templates(self._make_template, limit=_TEMPLATES_LIMIT)

    def agree(self, version: str | None) -> None:
        """Note the revision, which is an attribute of all spans."""
        self._version = version
        self._templates.clear()

    def begin(self, request: ObservedRequest) -> None:
        """Make the ids of a request's span."""
        parent = request.parent
        if parent is None:
            # A request of the gateway itself: it begins a trace.
            request.traceparent = self._observer.make_traceparent(new_trace_id(), None)
        else:
            # Written by the observer, so that it need not be parsed: version, trace, span, flags.
            request.traceparent = f"{parent[:36]}{new_span_id()}{parent[52:]}"
        request.began_ns = time.monotonic_ns()

    def note_sent(self, request: ObservedRequest) -> None:
        """Keep a request until its call ends."""
        assert request.parent is not None
        self._observer.sent[request.parent] = self, request

    def end(self, request: ObservedRequest, outcome: bytes | BaseException) -> None:
        """Count a request, and queue its span."""
        if request.parent is not None and self._observer.sent.get(request.parent, (None, None))[1] is request:
            del self._observer.sent[request.parent]
        error, status = _read_outcome(request, outcome)
        self._observer.put(self.make_spans(request, time.monotonic_ns(), error, status))

    def make_spans(
        self, request: ObservedRequest, ended_ns: int, error: str | None, status: int | None = None
    ) -> Sequence[Span]:
        """Count a request that is over, and return its span; nothing if its trace is not sampled."""
        target, method, traceparent = request.target, request.method, request.traceparent
        has_name = method in _NAMED
        template = self._templates[ServerKind(method, target if has_name else None, error, status)]
        template.series.observe((ended_ns - request.began_ns) / 1e9)
        if traceparent[54] == "0" or method in _UNTRACED:
            return ()
        own = _write_request_id(b"%d" % request.number)
        if target is not None and not has_name:
            own += _write_uri(target.encode())
        trace, span = read_ids(traceparent)
        parent = bytes.fromhex(request.parent[36:52]) if request.parent is not None else None
        return (Span(trace, span, parent, request.began_ns, ended_ns, template.constant, own),)

    def close(self) -> None:
        """Count the time for which the instance was reached, once an era was agreed."""
        if self._version is not None:
            attributes = {names.PROTOCOL_VERSION: self._version} | self._common
            self._histograms.find(names.CLIENT_SESSION, attributes).observe(time.monotonic() - self._began)

    def _make_template(self, kind: ServerKind) -> Template:
        method, target, error, status = kind
        error_type = str(status) if status is not None else error
        attributes = {
            names.METHOD: method,
            names.TOOL_NAME: target if method == "tools/call" else None,
            names.PROMPT_NAME: target if method == "prompts/get" else None,
            names.OPERATION: names.EXECUTE_TOOL if method == "tools/call" else None,
            names.PROTOCOL_VERSION: self._version,
            names.ERROR_TYPE: error_type,
            names.STATUS_CODE: str(status) if status is not None else None,
            **self._common,
        }
        name = f"{method} {target}" if target is not None else method
        constant = write_constant_part(
            name, CLIENT, attributes | {names.SERVER: self._server}, is_error=error_type is not None
        )
        return Template(constant, self._histograms.find(names.CLIENT_DURATION, attributes))


def _describe_server(spec: ServerSpec) -> dict[str, Any]:
    if spec.url is None:
        return {names.TRANSPORT: "pipe"}
    parts = urlsplit(spec.url)
    return {
        names.TRANSPORT: "tcp",
        names.NETWORK_PROTOCOL: "http",
        names.SERVER_ADDRESS: parts.hostname,
        names.SERVER_PORT: parts.port or (443 if parts.scheme == "https" else 80),
    }


def _read_outcome(request: ObservedRequest, outcome: bytes | BaseException) -> tuple[str | None, int | None]:
    """Return the type of an error and the code of a JSON-RPC error; None of both for a success."""
    match outcome:
        case bytes():
            is_call = request.method == "tools/call" and b'"isError"' in outcome
            return (names.TOOL_ERROR if is_call and _is_error(outcome) else None), None
        case ServerRefused():
            return None, outcome.code
        case ToolpostError():
            return outcome.code.value, None
        case asyncio.CancelledError():
            return "cancelled", None
    return type(outcome).__qualname__, None


def _is_error(raw: bytes) -> bool:
    try:
        return _outcome.decode(raw).isError
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
