"""Spans as OTLP bytes, cheap enough to make some for each call.

A span here is mostly constant: its name, its kind and most of its attributes are the same for all calls of a tool. That part
is written once, by the official protobuf classes. Protobuf's format lets a message be written in pieces (the bytes of two
messages one after the other are their merger), so a span is: a fixed-size head with ids and times, the constant part, and perhaps
a few attributes of this one call. It costs a microsecond, where the SDK's spans cost fifty (docs/decisions/0056).
"""

import os
import random
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.proto.trace.v1.trace_pb2 import Status

INTERNAL: Final = trace_pb2.Span.SPAN_KIND_INTERNAL
SERVER: Final = trace_pb2.Span.SPAN_KIND_SERVER
CLIENT: Final = trace_pb2.Span.SPAN_KIND_CLIENT

# Tags of `Span` in opentelemetry/proto/trace/v1/trace.proto, each with its length where that is fixed.
_TRACE_ID, _SPAN_ID, _PARENT_ID = b"\x0a\x10", b"\x12\x08", b"\x22\x08"
_START, _END = b"\x39", b"\x41"
_STATE, _ATTRIBUTE, _LINK = b"\x1a", b"\x4a", b"\x6a"
_SPANS_OF_SCOPE: Final = b"\x12"

_CHILD: Final = struct.Struct("<2s16s2s8s2s8scQcQ").pack
_ROOT: Final = struct.Struct("<2s16s2s8scQcQ").pack
_CHILD_BYTES: Final = 56
_ROOT_BYTES: Final = 46

_bits: Final = random.Random(os.urandom(32)).getrandbits  # noqa: S311 (ids, not secrets)


def _write_varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


_VARINTS: Final = [_write_varint(number) for number in range(4096)]


def write_varint(number: int) -> bytes:
    """Write a length as protobuf does."""
    return _VARINTS[number] if number < len(_VARINTS) else _write_varint(number)


def new_raw_id() -> bytes:
    """Return the id of a span that only we know of."""
    return (_bits(64) or 1).to_bytes(8, "big")


def new_span_id() -> str:
    """Return 16 hexadecimal digits that are not all zero."""
    return f"{_bits(64) or 1:016x}"


def read_ids(traceparent: str) -> tuple[bytes, bytes]:
    """Return the ids of trace and span that a `traceparent` names."""
    return bytes.fromhex(traceparent[3:35]), bytes.fromhex(traceparent[36:52])


def key_values(attributes: Mapping[str, Any]) -> list[KeyValue]:
    """Return attributes as messages; None leaves one out."""
    return [
        KeyValue(key=key, value=AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value))
        for key, value in attributes.items()
        if value is not None
    ]


def write_constant_part(
    name: str, kind: trace_pb2.Span.SpanKind.ValueType, attributes: Mapping[str, Any], *, is_error: bool = False
) -> bytes:
    """Write what all spans of this kind have in common."""
    span = trace_pb2.Span(name=name, kind=kind, attributes=key_values(attributes), flags=0x101)
    if is_error:
        span.status.code = Status.STATUS_CODE_ERROR
    return span.SerializeToString()


def write_message(message: str) -> bytes:
    """Write the description of an error's status. The code has to be repeated: the last status of a span counts."""
    return trace_pb2.Span(status=Status(code=Status.STATUS_CODE_ERROR, message=message)).SerializeToString()


class TextAttribute:
    """Writes an attribute whose value is text; for short values what comes before them is in a table."""

    __slots__ = ("_heads", "_key")

    def __init__(self, key: str) -> None:
        self._key = b"\x0a%b%b\x12" % (write_varint(len(key)), key.encode())
        self._heads = [self._write_head(length) for length in range(128)]

    def __call__(self, value: bytes) -> bytes:
        """Write it, given the value in UTF-8."""
        length = len(value)
        return (self._heads[length] if length < 128 else self._write_head(length)) + value

    def _write_head(self, length: int) -> bytes:
        text = b"\x0a%b" % write_varint(length)
        pair = b"%b%b%b" % (self._key, write_varint(len(text) + length), text)
        return b"%b%b%b" % (_ATTRIBUTE, write_varint(len(pair) + length), pair)


def write_state(tracestate: str) -> bytes:
    """Write the `tracestate` of a span."""
    raw = tracestate.encode()
    return b"%b%b%b" % (_STATE, write_varint(len(raw)), raw)


def write_links(links: Sequence[tuple[str, str]]) -> bytes:
    """Write links to spans, given by trace id and span id."""
    made = [trace_pb2.Span.Link(trace_id=bytes.fromhex(trace), span_id=bytes.fromhex(span)) for trace, span in links]
    return trace_pb2.Span(links=made).SerializeToString()


class Span(NamedTuple):
    """A span that is over. Times are of the monotonic clock."""

    trace: bytes
    id: bytes
    parent: bytes | None
    began_ns: int
    ended_ns: int
    constant: bytes
    """What it has in common with others: `write_constant_part`."""
    own: bytes = b""
    """Attributes of this one alone."""

    def write(self, offset_ns: int) -> bytes:
        """Write it, framed as one of those of a scope; `offset_ns` is from the monotonic clock to the time of day."""
        trace, span, parent, began_ns, ended_ns, constant, own = self
        began_ns, ended_ns = began_ns + offset_ns, ended_ns + offset_ns
        if parent is None:
            head = _ROOT(_TRACE_ID, trace, _SPAN_ID, span, _START, began_ns, _END, ended_ns)
            length = _ROOT_BYTES + len(constant) + len(own)
        else:
            head = _CHILD(_TRACE_ID, trace, _SPAN_ID, span, _PARENT_ID, parent, _START, began_ns, _END, ended_ns)
            length = _CHILD_BYTES + len(constant) + len(own)
        return b"%b%b%b%b%b" % (_SPANS_OF_SCOPE, write_varint(length), head, constant, own)
