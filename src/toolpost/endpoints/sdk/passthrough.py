"""What servers answer besides results of tools, past the SDK's models: every field, in the order in which it came.

The SDK still judges the request and makes the envelope of the answer; it is given an empty result for that. Its models know the
fields of their revision alone, and drop the others.
"""

from contextvars import ContextVar
from typing import Any, Final

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from toolpost.base.ids import META_KEY, JsonObject
from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.protocol.era import MODERN, SERVER_INFO

_FOUND: Final[ContextVar[list[JsonObject]]] = ContextVar("toolpost_found")

_ERA_ALONE: Final = frozenset({"resultType", "ttlMs", "cacheScope"})
"""What only a result of the stateless era has."""

_EMPTY: Final[dict[str, JsonObject]] = {
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/read": {"contents": []},
    "prompts/list": {"prompts": []},
    "prompts/get": {"messages": []},
    "completion/complete": {"completion": {"values": []}},
}
"""The least that is a result."""


async def as_it_came(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Answer with what a handler has found, in the envelope that the SDK makes. Middleware of the SDK's server."""
    found: list[JsonObject] = []
    _FOUND.set(found)
    shaped = await call_next(ctx)
    if not found or not isinstance(shaped, dict):
        return shaped
    return _enveloped(found[0], shaped, is_modern=ctx.protocol_version == MODERN.version)


def leave(method: str, result: JsonObject) -> JsonObject:
    """Leave a result for `as_it_came`, and return what the SDK is to be given in its stead."""
    empty = _EMPTY[method]
    if result.get("resultType") != "input_required":
        for field, value in empty.items():
            if type(result.get(field)) is not type(value):
                raise UpstreamUnavailable(
                    f"The server answered {method} with an invalid result: `{field}` is missing",
                    hint="this is an error of the server, not of the request",
                )
    _FOUND.get().append(result)
    return empty


def _enveloped(result: JsonObject, shaped: JsonObject, *, is_modern: bool) -> JsonObject:
    kept = {key: value for key, value in result.items() if is_modern or key not in _ERA_ALONE}
    if not is_modern:
        return kept
    is_asking = kept.get("resultType") == "input_required"
    for key in _ERA_ALONE & shaped.keys():
        if key == "resultType" or not is_asking:
            kept.setdefault(key, shaped[key])
    theirs = kept.get("_meta")
    others = theirs if isinstance(theirs, dict) else {}
    stamp: JsonObject = shaped.get("_meta") or {}
    kept["_meta"] = {key: value for key, value in others.items() if key not in (META_KEY, SERVER_INFO)} | stamp
    return kept
