"""The part of a client's `_meta` that a server receives: all keys except those between the client and the gateway."""

from typing import Final

from toolpost.base.ids import META_KEY, JsonObject
from toolpost.base.trace_context import TRACE_KEYS
from toolpost.upstreams.spec import ServerSpec

_ENVELOPE: Final = "io.modelcontextprotocol/"
"""Revision, client and capabilities: the gateway writes its own."""
_OWN: Final = frozenset({META_KEY, "progressToken"})


def select_meta(meta: JsonObject, spec: ServerSpec) -> JsonObject:
    """Select the `_meta` for a server; without `client_meta`, the trace context alone."""
    if not spec.client_meta:
        return select_trace(meta)
    return {key: value for key, value in meta.items() if key not in _OWN and not key.startswith(_ENVELOPE)}


def select_trace(meta: JsonObject) -> JsonObject:
    """Select the trace context: what a list takes along, which goes to every server."""
    return {key: meta[key] for key in TRACE_KEYS if key in meta}
