"""`/api/logins`: which clients are logged in, and an end to it.

GET  /api/logins          the caller's own logins; all of them for an administrator
POST /api/logins/revoke   {"login": ID}, {"client": ID} or {"caller": NAME}, or several of them, which must all apply

A token from a login is refused here, as everywhere outside of MCP: a client must not end, or see, the others of its person.
"""

from dataclasses import replace

import msgspec

from toolpost import NotFound
from toolpost.base import JsonObject, format_second
from toolpost.contracts import InvalidRequest
from toolpost.endpoints.http import HttpContext, JsonApi, Route, RouteRequest
from toolpost.parts.authorization_server.records import LoginInfo, Which
from toolpost.parts.authorization_server.server import AuthorizationServer
from toolpost.store import Store

PATH = "/api/logins"


class _RevocationBody(msgspec.Struct, forbid_unknown_fields=True):
    login: str | None = None
    caller: str | None = None
    client: str | None = None


def routes_of(http: HttpContext, server: AuthorizationServer, store: Store) -> JsonApi:
    """Make the paths."""

    async def list_logins(request: RouteRequest) -> JsonObject:
        found = await server.list_logins(_limit(Which(), request))
        return {"logins": [render_login(one, store) for one in found]}

    async def revoke(request: RouteRequest) -> JsonObject:
        try:
            body = msgspec.convert(request.body, _RevocationBody)
        except msgspec.ValidationError as error:
            raise InvalidRequest(
                f"The body is not as it must be: {error}.", hint='send {"login": ID}, for example'
            ) from error
        if body == _RevocationBody():
            raise InvalidRequest("Name a login, a caller or a client.", hint='send {"login": ID}, for example')
        which = Which(login=body.login, caller=body.caller, client=body.client)
        revoked = await server.revoke_all(_limit(which, request))
        if not revoked:
            raise NotFound("There is no such login.", hint="GET /api/logins lists yours")
        return {"revoked": [render_login(one, store) for one in revoked]}

    return JsonApi(
        http,
        [
            Route(method="GET", path=PATH, handler=list_logins),
            Route(method="POST", path=f"{PATH}/revoke", handler=revoke),
        ],
    )


def _limit(which: Which, request: RouteRequest) -> Which:
    admission = request.admission
    return which if admission.is_admin else replace(which, owner=admission.caller.id)


def render_login(one: LoginInfo, store: Store) -> JsonObject:
    """Describe a login to people and programs."""
    wall = store.scripts.wall
    return {
        "id": one.id,
        "caller": one.caller,
        "client": one.client,
        "clientName": one.client_name,
        "scopes": [*one.scopes],
        "resource": one.resource,
        "since": format_second(wall(one.created_at)),
        "lastUsed": None if one.used_at is None else format_second(wall(one.used_at)),
        "until": format_second(wall(one.expires_at)),
    }
