"""Agent skills of plugins (SEP-2640), as middleware of the SDK's server: `skills/list` and `skills/get`.

The files of skills are resources, and read as those are. What plugins do not have is left to whatever else answers.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError

from toolpost.authoring.skill import EXTENSION, Skill
from toolpost.base.ids import JsonObject
from toolpost.discovery import View
from toolpost.discovery.views import tags_of
from toolpost.endpoints.http.paths import read_view
from toolpost.endpoints.listing import SERVER_STAMP
from toolpost.endpoints.sdk.relay import wrap_handler
from toolpost.endpoints.sdk.request_context import VIEWER
from toolpost.protocol.era import STATELESS
from toolpost.protocol.rpc import INVALID_PARAMS
from toolpost.providers.plugin_contents import PluginContents
from toolpost.providers.relay import Relay
from toolpost.providers.requester import Requester
from toolpost.shares import Shares
from toolpost.upstreams.transport import ServerRefused

LIST: Final = "skills/list"
GET: Final = "skills/get"
_HANDLED: Final = frozenset({LIST, GET, "initialize", "server/discover"})


class SkillsMiddleware:
    """Answers the two methods where a plugin has skills that the caller sees."""

    def __init__(self, relay: Relay, calls: Shares) -> None:
        self._relay = relay
        self._get = wrap_handler(relay, calls, self._describe_one)
        self._list = wrap_handler(relay, calls, self._describe_all)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Answer the two methods, announce them, and pass everything else on."""
        if ctx.method not in _HANDLED or not has_skills(self._relay, _view_of(ctx)):
            return await call_next(ctx)
        if ctx.method == LIST:
            return _shape(ctx, await self._list_all(ctx, call_next))
        if ctx.method == GET:
            uri = (ctx.params or {}).get("uri")
            if all(skill.uri != uri for _, skill in find_skills(self._relay, _view_of(ctx))):
                refusal = MCPError(INVALID_PARAMS, f"No skill is served at {str(uri)[:200]}")
                return await self._ask_others(ctx, call_next, refusal)
            return _shape(ctx, await self._get(ctx, uri))
        return _announce(await call_next(ctx))

    async def _list_all(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> JsonObject:
        """List the skills of plugins, on the first page, and those that something else lists."""
        is_first = (ctx.params or {}).get("cursor") is None
        own = await self._list(ctx, None) if is_first else {"skills": []}
        others = await self._ask_others(ctx, call_next, None)
        if not isinstance(others, dict) or not isinstance(listed := others.get("skills"), list):
            return own
        return others | {"skills": [*own["skills"], *listed]}

    async def _ask_others(self, ctx: Any, call_next: CallNext, otherwise: MCPError | None) -> HandlerResult:
        try:
            return await call_next(ctx)
        except MCPError:
            # Nothing else answers: there is no such method, or no server that has it.
            if otherwise is not None:
                raise otherwise from None
            return None

    async def _describe_one(self, context: Any, uri: Any) -> JsonObject:
        requester = Requester(caller=VIEWER.get().caller)
        for contents, skill in find_skills(self._relay, _view_of(context)):
            if skill.uri == uri:
                return {"skill": await contents.describe_skill(skill, requester)}
        raise MCPError(INVALID_PARAMS, "No such skill")

    async def _describe_all(self, context: Any, _params: Any) -> JsonObject:
        requester = Requester(caller=VIEWER.get().caller)
        listed = []
        for contents, skill in list(find_skills(self._relay, _view_of(context))):
            with suppress(ServerRefused):  # one that cannot be read is in the log, and must not hide the others
                listed.append(await contents.describe_skill(skill, requester))
        return {"skills": listed}


def has_skills(relay: Relay, view: View) -> bool:
    """Whether a plugin that is visible has skills."""
    return next(find_skills(relay, view), None) is not None


def find_skills(relay: Relay, view: View) -> Iterator[tuple[PluginContents, Skill]]:
    """Yield the skills of all plugins of which everything is visible."""
    for name, provider in relay.providers.items():
        if isinstance(provider, PluginContents) and view.shows_whole(name, tags_of(provider)):
            for skill in provider.skills.values():
                yield provider, skill


def _announce(result: HandlerResult) -> HandlerResult:
    if not isinstance(result, dict):
        return result
    capabilities: JsonObject = result.get("capabilities") or {}
    # The settings of servers that have skills too are kept.
    extensions = {EXTENSION: {}, **(capabilities.get("extensions") or {})}
    return result | {"capabilities": capabilities | {"extensions": extensions}}


def _shape(ctx: ServerRequestContext[Any, Any], result: JsonObject) -> JsonObject:
    if ctx.protocol_version != STATELESS.version:
        return result
    stamp: JsonObject = msgspec.json.decode(SERVER_STAMP)
    return result | {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "_meta": stamp}


def _view_of(context: Any) -> View:
    return read_view(context.request.scope)
