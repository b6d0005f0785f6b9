"""Resources, prompts and completions of servers, as handlers of the SDK's server."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from toolpost.contracts.errors import ToolpostError
from toolpost.contracts.ids import JsonObject
from toolpost.discovery.views import EVERYTHING, NOTHING, tags_of
from toolpost.endpoints.paths import view_of
from toolpost.protocol.rpc import INTERNAL_ERROR
from toolpost.sources.relay import Relay
from toolpost.upstreams.wire import ServerRefused

_COMPLETE: Final[JsonObject] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}

Handler = Callable[[Any, Any], Awaitable[JsonObject]]


def relay_handlers(relay: Relay) -> dict[str, Any]:
    """Return the handlers that the SDK's server takes, by their names there."""

    def seen(context: Any) -> Relay:
        """Choose the servers that the path of a request shows; without a path, on stdio, all of them."""
        view = view_of(context.request.scope["path"]) or NOTHING if context.request is not None else EVERYTHING
        if view is EVERYTHING:
            return relay
        return relay.among(frozenset(n for n, source in relay.sources.items() if view.shows(n, tags_of(source))))

    async def list_resources(context: Any, _params: Any) -> JsonObject:
        return {"resources": await seen(context).resources()}

    async def list_templates(context: Any, _params: Any) -> JsonObject:
        return {"resourceTemplates": await seen(context).templates()}

    async def list_prompts(context: Any, _params: Any) -> JsonObject:
        return {"prompts": await seen(context).prompts()}

    async def read_resource(context: Any, params: Any) -> JsonObject:
        return await seen(context).read(str(params.uri), _plain(params))

    async def get_prompt(context: Any, params: Any) -> JsonObject:
        return await seen(context).prompt(params.name, _plain(params))

    async def complete(context: Any, params: Any) -> JsonObject:
        return await seen(context).complete(_plain(params))

    return {
        "on_list_resources": _told(list_resources),
        "on_list_resource_templates": _told(list_templates),
        "on_list_prompts": _told(list_prompts),
        "on_read_resource": _told(read_resource),
        "on_get_prompt": _told(get_prompt),
        "on_completion": _told(complete),
    }


def _plain(params: BaseModel) -> JsonObject:
    return params.model_dump(by_alias=True, mode="json", exclude_none=True)


def _told(handler: Handler) -> Handler:
    """Pass a server's own protocol error on as it was; one of ours says its code in `data`."""

    @wraps(handler)
    async def told(context: Any, params: Any) -> JsonObject:
        try:
            # What an older server does not say; the SDK leaves out what an older client does not know.
            return _COMPLETE | await handler(context, params)
        except ServerRefused as refusal:
            raise MCPError(refusal.code, refusal.message, refusal.data) from refusal
        except ToolpostError as error:
            raise MCPError(INTERNAL_ERROR, error.message, error.as_object()) from error

    return told
