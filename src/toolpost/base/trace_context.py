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


class TraceParent(NamedTuple):
    """A valid `traceparent`."""

    trace_id: TraceId
    span_id: str
    is_sampled: bool


def parse_traceparent(value: object) -> TraceParent | None:
    """Parse a `traceparent`; None for anything that is not a valid one."""
    if not isinstance(value, str) or (found := _match(value)) is None:
        return None
    if len(value) > _LENGTH and value.startswith("00"):
        return None
    trace_id, span_id, flags = found.groups()
    return TraceParent(TraceId(trace_id), span_id, bool(int(flags, 16) & 1))


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


def read_tracestate(meta: JsonObject) -> str | None:
    """Return the `tracestate` of a request; None without one, and for one that is too long or no text."""
    state = meta.get("tracestate")
    return state if isinstance(state, str) and state and len(state) <= _TRACESTATE_LIMIT else None
