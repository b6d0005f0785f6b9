"""Resources, prompts and completions of servers, as handlers of the SDK's server."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from toolpost.contracts.errors import ToolpostError
from toolpost.contracts.ids import JsonObject
from toolpost.discovery import EVERYTHING, View
from toolpost.discovery.views import tags_of
from toolpost.endpoints.paths import shown_by
from toolpost.protocol.rpc import INTERNAL_ERROR
from toolpost.sources.relay import Relay, unknown_prompt
from toolpost.upstreams.wire import ServerRefused

_COMPLETE: Final[JsonObject] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}

Handler = Callable[[Any, Any], Awaitable[JsonObject]]


def relay_handlers(relay: Relay) -> dict[str, Any]:
    """Return the handlers that the SDK's server takes, by their names there."""

    def seen(context: Any, *, whole: bool = False) -> Relay:
        """Choose the servers that whoever asks sees; `whole` those of which they see what has no name to match."""
        if (view := _view(context)) is EVERYTHING:
            return relay
        shows = view.shows_whole if whole else view.shows
        return relay.among(frozenset(n for n, source in relay.sources.items() if shows(n, tags_of(source))))

    async def list_resources(context: Any, _params: Any) -> JsonObject:
        return {"resources": await seen(context, whole=True).resources()}

    async def list_templates(context: Any, _params: Any) -> JsonObject:
        return {"resourceTemplates": await seen(context, whole=True).templates()}

    async def list_prompts(context: Any, _params: Any) -> JsonObject:
        view = _view(context)
        return {"prompts": [prompt for prompt in await seen(context).prompts() if view.admits(prompt["name"])]}

    async def read_resource(context: Any, params: Any) -> JsonObject:
        return await seen(context, whole=True).read(str(params.uri), _plain(params))

    async def get_prompt(context: Any, params: Any) -> JsonObject:
        _check_prompt(params.name, _view(context))
        return await seen(context).prompt(params.name, _plain(params))

    async def complete(context: Any, params: Any) -> JsonObject:
        if params.ref.type != "ref/prompt":
            return await seen(context, whole=True).complete(_plain(params))
        _check_prompt(params.ref.name, _view(context))
        return await seen(context).complete(_plain(params))

    return {
        "on_list_resources": _told(list_resources),
        "on_list_resource_templates": _told(list_templates),
        "on_list_prompts": _told(list_prompts),
        "on_read_resource": _told(read_resource),
        "on_get_prompt": _told(get_prompt),
        "on_completion": _told(complete),
    }


def _view(context: Any) -> View:
    return shown_by(context.request.scope)


def _check_prompt(name: str, view: View) -> None:
    if not view.admits(name):
        raise unknown_prompt(name)


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
