"""Calls as SERVER spans, with child spans for what happened inside, made when the calls have ended.

What is known by then: the times at which a call reached each step, which it has noted itself. Spans are made for many calls at
once, because code that runs again and again takes half the time of code that runs now and then.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from toolpost import Caller, ErrorCode, InvalidArguments, ToolpostError
from toolpost.base import CallId, redact
from toolpost.middleware import Call
from toolpost.parts.telemetry import conventions as names
from toolpost.parts.telemetry.client_attributes import NETWORK, CallerAttributes, read_id
from toolpost.parts.telemetry.histograms import Histograms
from toolpost.parts.telemetry.spans import (
    INTERNAL,
    SERVER,
    Span,
    TextAttribute,
    new_raw_id,
    read_ids,
    write_constant_part,
    write_links,
    write_message,
    write_state,
)
from toolpost.parts.telemetry.templates import Template, Templates

CONTENT_LIMIT_BYTES: Final = 4_096
"""Of arguments and of a result, each; more is cut off."""

_TEMPLATES_LIMIT: Final = 20_000

_write_request_id: Final = TextAttribute(names.REQUEST_ID)
_write_call_id: Final = TextAttribute(names.CALL_ID)
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

    @property
    def is_error(self) -> bool:
        return self.kind.code is not None


class Step(NamedTuple):
    """A part of a call that has a span of its own."""

    constant: bytes
    began_ns: int
    ended_ns: int


def end_call(
    call: Call, record: CallRecord, error: ToolpostError | None, content: bytes, *, is_error: bool, status: int | None
) -> ObservedCall:
    """Take from a call that ends now what its spans are made of."""
    ended_ns, caller, tool = time.monotonic_ns(), call.caller, call.tool
    code = error.code.value if error is not None else _FAILED if is_error else None
    return ObservedCall(
        record,
        CallKind(tool.contract.name, tool.provider, caller.transport, record.version, code, status),
        call.id,
        caller,
        getattr(call.context, "links", None),
        content,
        int(call.started * 1e9),
        call.queued_ns,
        call.locked_ns,
        call.checked_ns,
        call.answered_ns,
        call.recorded_ns,
        ended_ns,
    )


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


class CallSpans:
    """Makes the spans of ended calls."""

    def __init__(self, histograms: Histograms, callers: CallerAttributes) -> None:
        self._histograms = histograms
        self._callers = callers
        self._templates = Templates(self._make_template, limit=_TEMPLATES_LIMIT)

    def make(self, call: ObservedCall) -> Iterator[Span]:
        """Count a call, and make its spans if its trace is sampled: its own, and its steps'."""
        record = call.record
        template = self._templates[call.kind]
        template.series.observe((call.ended_ns - call.began_ns) / 1e9)
        if not record.is_sampled:
            return
        trace, span = read_ids(record.traceparent)
        parent = bytes.fromhex(record.parent) if record.parent is not None else None
        yield Span(trace, span, parent, call.began_ns, call.ended_ns, template.constant, self._write_own_part(call))
        for constant, began, ended in steps_of(call):
            yield Span(trace, new_raw_id(), span, began, ended, constant)
        if call.links is not None:
            yield from _make_linked(record, call.links, call.ended_ns)

    def _make_template(self, kind: CallKind) -> Template:
        attributes = {
            names.METHOD: "tools/call",
            names.TOOL_NAME: kind.tool,
            names.OPERATION: names.EXECUTE_TOOL,
            names.PROTOCOL_VERSION: kind.version,
            **NETWORK.get(kind.transport, {}),
            **_describe_error(kind.code, kind.status),
        }
        described = attributes | {names.SERVER: kind.provider, names.CODE: kind.code}
        constant = write_constant_part(f"tools/call {kind.tool}", SERVER, described, is_error=bool(kind.code))
        return Template(constant, self._histograms.find(names.SERVER_DURATION, attributes))

    def _write_own_part(self, call: ObservedCall) -> bytes:
        record = call.record
        own = self._callers.write(call.caller) + _write_call_id(call.id.encode())
        if record.request_id is not None:
            own += _write_request_id(read_id(record.request_id))
        if record.state is not None:
            own += write_state(record.state)
        if call.links is not None:
            own += _write_links(call.links)
        return own + call.content


def write_content(call: Call, error: ToolpostError | None, payload: bytes) -> bytes:
    """Write the arguments and the result of a call as attributes, without secrets."""
    written = _write_arguments(_encode(redact(call.arguments))[:CONTENT_LIMIT_BYTES])
    written += _write_result(_redact_json(payload)[:CONTENT_LIMIT_BYTES])
    return written + (write_message(error.message) if error is not None else b"")


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


def _redact_json(payload: bytes) -> bytes:
    try:
        return _encode(redact(msgspec.json.decode(payload)))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return b"(not JSON)"
