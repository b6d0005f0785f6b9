"""Results of upstream servers other than tools', past the SDK's models: every field, in the order in which it came.

The SDK's models have the fields of their revision only, and drop the others. So the SDK validates the request and makes the
envelope of the response around an empty result, and the server's own result is put in afterwards.
"""

from contextvars import ContextVar
from typing import Any, Final

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from toolpost.base.ids import META_KEY, JsonObject
from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.protocol.era import SERVER_INFO, STATELESS

_STASHED: Final[ContextVar[list[JsonObject]]] = ContextVar("toolpost_found")

_STATELESS_FIELDS: Final = frozenset({"resultType", "ttlMs", "cacheScope"})
"""Fields that only a result of the stateless era has."""

_EMPTY: Final[dict[str, JsonObject]] = {
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/read": {"contents": []},
    "prompts/list": {"prompts": []},
    "prompts/get": {"messages": []},
    "completion/complete": {"completion": {"values": []}},
}
"""The least that the SDK accepts as a result, by method."""


async def restore_result(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Put the server's own result into the envelope that the SDK made. Middleware of the SDK's server."""
    stashed: list[JsonObject] = []
    _STASHED.set(stashed)
    shaped = await call_next(ctx)
    if not stashed or not isinstance(shaped, dict):
        return shaped
    return merge_envelope(stashed[0], shaped, is_stateless=ctx.protocol_version == STATELESS.version)


def stash_result(method: str, result: JsonObject) -> JsonObject:
    """Store a result for `restore_result`, and return the empty one for the SDK; raise `UpstreamUnavailable` if it is
    malformed.
    """
    empty = _EMPTY[method]
    if result.get("resultType") != "input_required":
        for field, value in empty.items():
            if type(result.get(field)) is not type(value):
                raise UpstreamUnavailable(
                    f"The server answered {method} with a malformed result: it has no {field}",
                    hint="this is an error of the server, not of the request",
                )
    _STASHED.get().append(result)
    return empty


def merge_envelope(result: JsonObject, shaped: JsonObject, *, is_stateless: bool) -> JsonObject:
    """Add what the client's era puts around a result, and leave out what only the other era has."""
    kept = {key: value for key, value in result.items() if is_stateless or key not in _STATELESS_FIELDS}
    if not is_stateless:
        return kept
    is_asking = kept.get("resultType") == "input_required"
    for key in _STATELESS_FIELDS & shaped.keys():
        if key == "resultType" or not is_asking:
            kept.setdefault(key, shaped[key])
    theirs = kept.get("_meta")
    others = theirs if isinstance(theirs, dict) else {}
    stamp: JsonObject = shaped.get("_meta") or {}
    kept["_meta"] = {key: value for key, value in others.items() if key not in (META_KEY, SERVER_INFO)} | stamp
    return kept
