"""`/api/trail`: sessions shown, verified and proven over HTTP. Read-only; agents in conversations are refused.

GET /api/trail                              the newest sessions of the caller; of all callers for an administrator
GET /api/trail/session?id=work&after=0      a session and its records past a seq, `limit` of them
GET /api/trail/verify?id=work               whether it is as it was written; without `id`, all sessions
GET /api/trail/prove?id=work&record=7       that a record is in it; `&first=5` that the first 5 are as they were
GET /api/trail/prove?call=c-…               that a call is in the session that has recorded it

`caller=NAME` chooses whose sessions, for an administrator. For others, only their own exist.
"""

from collections.abc import Sequence
from typing import Final

from toolpost import CallerId, Forbidden
from toolpost.base import Json
from toolpost.contracts import InvalidRequest
from toolpost.endpoints.http import HttpContext, JsonApi, Route, RouteRequest, Routes
from toolpost.parts.trail.export import export_proof
from toolpost.parts.trail.plugin import render_record, render_session, render_verdict
from toolpost.parts.trail.service import Trail

LIMIT: Final = 100
MOST: Final = 1_000


def routes_of(http: HttpContext, trail: Trail) -> Sequence[Routes]:
    """Make the paths."""

    async def list_sessions(request: RouteRequest) -> Json:
        query = request.query
        found = await trail.sessions(_owner(request, query), limit=_limit(query))
        return {"sessions": [render_session(session) for session in found], "public_key": trail.public_key}

    async def show(request: RouteRequest) -> Json:
        query = request.query
        session = await trail.find(_owner(request, query), _required(query, "id"))
        records = await trail.read_page(session, after=_number(query, "after", 0), limit=_limit(query))
        return {**render_session(session), "records": [render_record(session.id, record) for record in records]}

    async def verify(request: RouteRequest) -> Json:
        query = request.query
        owner = _owner(request, query)
        if "id" in query:
            return render_verdict(await trail.verify(await trail.find(owner, query["id"])))
        return render_verdict(await trail.verify_all(owner, query.get("task_id")))

    async def prove(request: RouteRequest) -> Json:
        query = request.query
        if "call" in query:
            recorded = await trail.find_of_call(_owner(request, query), query["call"])
            return await export_proof(trail, recorded, await trail.prove_inclusion(recorded, query["call"]))
        if ("record" in query) == ("first" in query):
            raise InvalidRequest("Name a `record`, or how many `first` records.", hint="?id=work&record=7")
        session = await trail.find(_owner(request, query), _required(query, "id"))
        size = _number(query, "size", session.size)
        if "record" in query:
            proof = await trail.prove_inclusion(session, query["record"], size)
        else:
            proof = await trail.prove_consistency(session, _number(query, "first", 0), size)
        return await export_proof(trail, session, proof)

    paths = {"": list_sessions, "/session": show, "/verify": verify, "/prove": prove}
    return [
        JsonApi(
            http,
            [Route(method="GET", path=f"/api/trail{path}", handler=handler) for path, handler in paths.items()],
        )
    ]


def _owner(request: RouteRequest, query: dict[str, str]) -> CallerId | None:
    """Return the owner of the requested sessions; None for all owners."""
    own, named = request.admission.caller.id, query.get("caller")
    if request.admission.is_admin:
        return None if named is None else CallerId(named)
    if named not in (None, own):
        raise Forbidden("Only a caller with `admin = true` may see the sessions of others.", hint="leave `caller` out")
    return own


def _required(query: dict[str, str], name: str) -> str:
    if name not in query:
        raise InvalidRequest(f"`{name}` is missing.", hint="?id=work; GET /api/trail lists the sessions")
    return query[name]


def _number(query: dict[str, str], name: str, default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise InvalidRequest(f"`{name}` is a whole number.", hint=f"such as {name}=7")
    return int(text)


def _limit(query: dict[str, str]) -> int:
    return max(1, min(MOST, _number(query, "limit", LIMIT)))
