"""W3C trace context: the trace and the span that a request belongs to, as `traceparent` carries them."""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from toolpost.base.ids import JsonObject, TraceId

TRACE_KEYS: Final = ("traceparent", "tracestate", "baggage")
"""The keys of a request's `_meta` that say which trace it belongs to; servers always get them."""

_LENGTH: Final = 55
"""Of a `traceparent` of version 00, which is the only one yet."""

_TRACESTATE_LIMIT: Final = 512

# A version after 00 may append fields; `ff` is no version, and ids of zeros are no ids.
_match = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:\Z|-)").match


class TraceContext(NamedTuple):
    """The span of a client that a request belongs to, and the client's own notes on its trace."""

    trace_id: TraceId
    span_id: str
    is_sampled: bool
    state: str | None = None
    """The `tracestate`."""


def parse_traceparent(value: object) -> TraceContext | None:
    """Parse a `traceparent`, without a state; None for anything that is not a valid one."""
    if not isinstance(value, str) or (found := _match(value)) is None:
        return None
    if len(value) > _LENGTH and value.startswith("00"):
        return None
    trace_id, span_id, flags = found.groups()
    return TraceContext(TraceId(trace_id), span_id, bool(int(flags, 16) & 1))


def continue_from_headers(meta: JsonObject, headers: Mapping[bytes, bytes]) -> JsonObject:
    """Return `_meta` with the trace context of HTTP headers, unless `_meta` has a valid one itself."""
    if (header := headers.get(b"traceparent")) is None or parse_traceparent(meta.get("traceparent")) is not None:
        return meta
    traceparent = header.decode("latin-1")
    if parse_traceparent(traceparent) is None:
        return meta
    carried: dict[str, Any] = {key: value for key, value in meta.items() if key != "tracestate"}
    carried["traceparent"] = traceparent
    if (state := headers.get(b"tracestate")) is not None and len(state) <= _TRACESTATE_LIMIT:
        carried["tracestate"] = state.decode("latin-1")
    return carried


def read_trace_context(meta: JsonObject) -> TraceContext | None:
    """Return the trace context of a request; None without a valid one. A state that is too long or no text is left out."""
    if "traceparent" not in meta or (context := parse_traceparent(meta["traceparent"])) is None:
        return None
    state = meta.get("tracestate")
    if not isinstance(state, str) or not state or len(state) > _TRACESTATE_LIMIT:
        return context
    return context._replace(state=state)
