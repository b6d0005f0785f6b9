"""`/api/console/session`: who is looking, and the exchange of a one-time secret for a cookie.

GET   {caller, isAdmin, mayChange, hasSession, person, role, version, ...}
POST  {"secret": "…"}   sets the cookie, and returns the `sessionSecret` that is sent with it as `X-Toolpost-Session-Secret`
POST  …/end             ends the session: the cookie is no longer valid
"""

from toolpost import Forbidden, __version__
from toolpost.base import Json
from toolpost.endpoints.http import Admission, HttpRequest, Route, RouteRequest
from toolpost.parts.console.context import Console, text_of
from toolpost.parts.console.sessions import SESSION_PATH, check_same_origin


def routes_of(console: Console) -> list[Route]:
    """Make the paths."""

    async def show(request: RouteRequest) -> Json:
        admission, person = request.admission, request.admission.person
        return {
            "caller": admission.caller.id,
            "isAdmin": admission.is_admin,
            "mayChange": admission.is_admin and console.may_write(request),
            "hasSession": person is not None or console.sessions.has_cookie(request.http),
            "person": person.name if person is not None else None,
            "role": person.role if person is not None else "administrator" if admission.is_admin else None,
            "isOpen": console.is_open,
            "version": __version__,
            "hasServers": bool(console.http.servers.providers),
        }

    async def begin(request: RouteRequest) -> Json:
        if not await console.sessions.redeem(text_of(request, "secret"), request.http):
            raise Forbidden(
                "This secret was used already, or is too old.",
                hint="run `toolpost console` for a new one",
                needs="secret",
                at=SESSION_PATH,
            )
        cookie, session_secret = console.sessions.make_cookie(request.http)
        request.answer_headers.append((b"set-cookie", cookie))
        return {"mayChange": request.admission.is_admin, "sessionSecret": session_secret}

    async def end(request: RouteRequest) -> Json:
        request.answer_headers.append((b"set-cookie", await console.sessions.end(request.http)))
        if (forget := await console.people.end(request.http)) is not None:
            request.answer_headers.append((b"set-cookie", forget))
        return {}

    def check(request: HttpRequest, _: Admission) -> None:
        check_same_origin(request)

    return [
        console.read("/session", show),
        Route(method="POST", path=SESSION_PATH, handler=begin, role="viewer", check=check),
        Route(method="POST", path=f"{SESSION_PATH}/end", handler=end, role="viewer", check=check),
    ]
