"""Requests to servers as CLIENT spans: each request is sent with a `traceparent` of its own, whose parent is the call's span.

Nearly all requests are calls on the fast path. For them as little as possible is done here: the `traceparent` is written straight
into the request, and what is known of the request waits in `TelemetryObserver.sent` until the call ends.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from toolpost import CallerId, ToolpostError
from toolpost.base import JsonObject, new_trace_id
from toolpost.parts.telemetry import conventions as names
from toolpost.parts.telemetry.histograms import Histograms, Series
from toolpost.parts.telemetry.spans import CLIENT, Span, TextAttribute, new_span_id, read_ids, write_constant_part
from toolpost.protocol import PROTOCOL_VERSION
from toolpost.upstreams import ClientChannel, ServerRefused, ServerSpec
from toolpost.upstreams.message import RequestWriter
from toolpost.upstreams.transport import PendingRequest, Transport

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


class ClientSpan(dict[str, Any]):
    """A request to a server that is not over yet: its span, and at the same time the `_meta` that names the span.

    One object, because there is one for each call.
    """

    __slots__ = ("began", "method", "number", "target", "traceparent", "transport")
    traceparent: str
    """What the server is sent."""
    number: int
    """The id of the request, known when it is written."""
    transport: "ObservedTransport"
    method: str
    target: str | None
    began: int


class TracingWriter(RequestWriter):
    """Writes requests, and notes their ids in their spans."""

    __slots__ = ("_before",)

    def __init__(self, carried: JsonObject) -> None:
        super().__init__(carried)
        # Where there is nothing else to say, `traceparent` is appended to what all requests carry: to encode `_meta` again would
        # cost more than everything else that telemetry does to a request.
        self._before = b"%b," % self._plain[:-1] if self._plain else b'"_meta":{'

    def request(
        self,
        number: int,
        method: str,
        fields: bytes,
        *,
        meta: JsonObject | None = None,
        client_channel: ClientChannel | None = None,
        wants_progress: bool = False,
    ) -> bytes:
        if isinstance(meta, ClientSpan):
            meta.number = number
            if len(meta) == 1 and fields and client_channel is None and not wants_progress:
                return b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":{%b,%b"traceparent":"%b"}}}' % (
                    number,
                    method.encode(),
                    fields,
                    self._before,
                    meta.traceparent.encode(),
                )
        return super().request(
            number, method, fields, meta=meta, client_channel=client_channel, wants_progress=wants_progress
        )


class ClientKind(NamedTuple):
    """What the spans of requests to a server have in common that share a template."""

    method: str
    target: str | None
    """A tool, or a prompt."""
    error: str | None
    """What went wrong, where no error of JSON-RPC says it."""
    status: int | None
    """The JSON-RPC code of an error."""


class Template(NamedTuple):
    """What all requests of one kind have in common."""

    constant: bytes
    series: Series


class ObservedTransport:
    """A `Transport` whose requests have spans."""

    def __init__(
        self, inner: Transport, spec: ServerSpec, observer: "TelemetryObserver", histograms: Histograms
    ) -> None:
        self._inner = inner
        self._observer = observer
        self._histograms = histograms
        self._version: str | None = None
        self._began = time.monotonic()
        self._common = _describe_server(spec)
        self._server = spec.name
        self._templates: dict[ClientKind, Template] = {}
        inner.writer_type = TracingWriter  # type: ignore[attr-defined]
        inner.use(envelope={}, headers={})

    @property
    def protocol_errors(self) -> int:
        """As of the transport inside."""
        return getattr(self._inner, "protocol_errors", 0)

    def use(self, *, envelope: JsonObject, headers: Mapping[str, str]) -> None:
        self._version = headers.get("mcp-protocol-version") or envelope.get(PROTOCOL_VERSION)
        self._templates.clear()
        self._inner.use(envelope=envelope, headers=headers)

    async def request(
        self,
        method: str,
        fields: bytes = b"",
        *,
        meta: JsonObject | None = None,
        name: str | None = None,
        **options: Any,
    ) -> bytes:
        parent = meta.get("traceparent") if meta is not None else None
        span = self._begin(method, name, meta, parent)
        request = self._inner.request(method, fields, meta=span, name=name, **options)
        return await self._finish(span, parent, request)

    def try_send(
        self,
        method: str,
        fields: bytes,
        *,
        name: str,
        meta: JsonObject,
        client_channel: ClientChannel | None,
        caller: CallerId,
    ) -> PendingRequest | None:
        parent: str | None = meta.get("traceparent")
        span = self._begin(method, name, meta, parent)
        pending = self._inner.try_send(
            method, fields, name=name, meta=span, client_channel=client_channel, caller=caller
        )
        if pending is not None:
            if parent is not None:
                self._observer.sent[parent] = span
            # For `answer_to`, if the call gets a task.
            pending.traceparent = parent
        return pending

    async def answer_to(self, pending: Any, /) -> bytes:
        parent = pending.traceparent
        if (span := self._observer.sent.pop(parent, None)) is None:
            return await self._inner.answer_to(pending)
        return await self._finish(span, parent, self._inner.answer_to(pending))

    async def notify(self, method: str, fields: bytes = b"") -> None:
        await self._inner.notify(method, fields)

    async def notify_roots_changed(self, client_channel: ClientChannel) -> None:
        await self._inner.notify_roots_changed(client_channel)

    def end_session(self) -> None:
        """Count the time for which the transport was open, once an era was agreed."""
        if self._version is not None:
            attributes = {names.PROTOCOL_VERSION: self._version} | self._common
            self._histograms.find(names.CLIENT_SESSION, attributes).observe(time.monotonic() - self._began)

    def _begin(self, method: str, name: str | None, meta: JsonObject | None, parent: str | None) -> ClientSpan:
        """Make the span of a request, and the `_meta` that names it."""
        if parent is None:
            # A request of the gateway itself: it begins a trace.
            trace = new_trace_id()
            flags = "01" if self._observer.is_sampled(trace, None) else "00"
            traceparent = f"00-{trace}-{new_span_id()}-{flags}"
        else:
            # Written by the observer, so that it need not be parsed: version, trace, span, flags.
            traceparent = f"{parent[:36]}{new_span_id()}{parent[52:]}"
        span = ClientSpan(meta or ())
        span["traceparent"] = span.traceparent = traceparent
        span.transport = self
        span.method = method
        span.target = name
        span.number = 0
        span.began = time.monotonic_ns()
        return span

    async def _finish(self, span: ClientSpan, parent: str | None, answering: Any) -> bytes:
        status: int | None = None
        kind: str | None = None
        try:
            result: bytes = await answering
        except ServerRefused as refusal:
            status = refusal.code
            raise
        except ToolpostError as error:
            kind = error.code.value
            raise
        except asyncio.CancelledError:
            kind = "cancelled"
            raise
        except BaseException as error:
            kind = type(error).__qualname__
            raise
        else:
            if span.method == "tools/call" and b'"isError"' in result and _is_error(result):
                kind = names.TOOL_ERROR
            return result
        finally:
            self._observer.put(self._end(span, parent, time.monotonic_ns(), kind, status))

    def end_fast(self, span: ClientSpan, parent: str, ended: int, *, is_error: bool) -> list[Span]:
        """Count a request that the fast path sent, and return its span."""
        return self._end(span, parent, ended, names.TOOL_ERROR if is_error else None)

    def _end(
        self, span: ClientSpan, parent: str | None, ended: int, error: str | None, status: int | None = None
    ) -> list[Span]:
        """Count a request that is over, and return its span; nothing if its trace is not sampled."""
        target = span.target
        has_name = span.method in _NAMED
        template = self._template_of(ClientKind(span.method, target if has_name else None, error, status))
        template.series.observe((ended - span.began) / 1e9)
        traceparent = span.traceparent
        if traceparent[54] == "0" or span.method in _UNTRACED:
            return []
        own = _write_request_id(b"%d" % span.number)
        if target is not None and not has_name:
            own += _write_uri(target.encode())
        trace, span_id = read_ids(traceparent)
        parent_id = bytes.fromhex(parent[36:52]) if parent is not None else None
        return [Span(trace, span_id, parent_id, span.began, ended, template.constant, own)]

    def _template_of(self, kind: ClientKind) -> Template:
        if (template := self._templates.get(kind)) is not None:
            return template
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
        template = Template(constant, self._histograms.find(names.CLIENT_DURATION, attributes))
        if len(self._templates) >= _TEMPLATES_LIMIT:
            self._templates.clear()
        self._templates[kind] = template
        return template


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


def _is_error(raw: bytes) -> bool:
    try:
        return _outcome.decode(raw).isError
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
