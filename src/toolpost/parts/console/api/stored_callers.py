"""`/api/console/callers`: callers made and removed while the gateway runs, and what callers see. Only for administrators.

GET  /callers/tools?caller=  what a caller sees: its servers, with their tools
POST /callers/preview        {"tags", "tools", "mode"}: what a caller with these limits would see
POST /callers/add            {"name", "tags", "tools", "mode"}: make a caller; its token is in the answer, and nowhere else
POST /callers/remove         {"name"}: remove a caller of the store; its token is accepted no longer
"""

import msgspec

from toolpost import NotFound
from toolpost.base import Json, JsonObject, Scope
from toolpost.discovery import EVERYTHING
from toolpost.endpoints.http import Route, RouteRequest
from toolpost.parts.console.api.callers import list_callers
from toolpost.parts.console.context import Console, text_of


class Limits(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a caller is limited to, as in `[callers.NAME]`."""

    tags: list[str] | None = None
    tools: list[str] | None = None
    mode: str = "full"


class NewCaller(Limits, forbid_unknown_fields=True, kw_only=True):
    """A caller to make."""

    name: str


def routes_of(console: Console) -> list[Route]:
    """Make the paths."""
    stored = console.http.stored_callers

    async def show_tools(request: RouteRequest) -> Json:
        name = text_of(request, "caller")
        scopes = next((scopes for known, scopes in list_callers(console.http.access.roster) if known == name), None)
        if scopes is None:
            raise NotFound(f"There is no caller `{name[:128]}`.")
        return {"caller": name, **await _list_visible(console, scopes)}

    async def preview(request: RouteRequest) -> Json:
        limits: Limits = request.body
        scopes = stored.scopes_for(tags=limits.tags, tools=limits.tools, mode=limits.mode)
        return await _list_visible(console, scopes)

    async def add(request: RouteRequest) -> Json:
        new: NewCaller = request.body
        by = request.admission.caller.id
        token = await stored.add(new.name, tags=new.tags, tools=new.tools, mode=new.mode, made_by=by)
        return {"name": new.name, "token": token}

    async def remove(request: RouteRequest) -> Json:
        name = text_of(request, "name")
        await stored.remove(name, by=request.admission.caller.id)
        return {"name": name}

    return [
        console.read("/callers/tools", show_tools, is_for_admins=True),
        console.change("/callers/preview", preview, is_dry=True, body=Limits),
        # A caller outlives the token of the administrator who makes it.
        console.change("/callers/add", add, needs_session=True, body=NewCaller),
        console.change("/callers/remove", remove),
    ]


async def _list_visible(console: Console, scopes: tuple[Scope, ...]) -> JsonObject:
    visible = await console.http.finder.visible(EVERYTHING.within(scopes))
    servers: dict[str, list[Json]] = {}
    for name in visible.names:
        servers.setdefault(visible.entry(name).server, []).append(name)
    found = [{"name": server, "tools": tools} for server, tools in sorted(servers.items())]
    return {"total": len(visible.names), "servers": list[Json](found)}
