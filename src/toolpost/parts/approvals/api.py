"""`/api/approvals`: rounds and votes over HTTP, for pages and programs. Agents in conversations are refused.

GET  /api/approvals            rounds that wait for votes and that the caller may see; `?all=1` all of them
GET  /api/approvals/round?id=7 one round
POST /api/approvals/vote       {"round_id": "7", "choice": "approve"}
POST /api/approvals/gossip     what a peer sends; answered with what we have for it
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from toolpost.base.ids import Json
from toolpost.contracts.errors import InvalidRequest
from toolpost.endpoints.http.routes import HttpContext, JsonRoutes, Route, RouteRequest, Routes
from toolpost.parts.approvals.records import no_round
from toolpost.parts.approvals.results import may_see, render_round, render_vote
from toolpost.parts.approvals.service import Approvals, View, parse_round_id

if TYPE_CHECKING:
    from toolpost.parts.approvals.peers import Peers


def routes_of(http: HttpContext, approvals: Approvals, peers: "Peers") -> Sequence[Routes]:
    """Make the paths."""

    def sees(view: View, request: RouteRequest) -> bool:
        return may_see(view, request.admission.caller, is_admin=request.admission.is_admin)

    async def list_rounds(request: RouteRequest) -> Json:
        views = await approvals.list_rounds(only_open="all" not in _query(request))
        return {"rounds": [_json(render_round(approvals, view)) for view in views if sees(view, request)]}

    async def show(request: RouteRequest) -> Json:
        found = _query(request).get("id", "")
        view = await approvals.read(parse_round_id(found))
        if not sees(view, request):
            raise no_round(found)
        return _json(render_round(approvals, view))

    async def vote(request: RouteRequest) -> Json:
        body = request.body
        if not isinstance(body, dict) or not isinstance(body.get("round_id"), str) or "choice" not in body:
            raise InvalidRequest('Send {"round_id": "7", "choice": "approve"}.')
        cast = await approvals.vote(
            parse_round_id(body["round_id"]),
            body["choice"],
            by=request.admission.caller,
            signature=_text(body, "sig_b64"),
            signed_at=_text(body, "signed_at"),
        )
        shown = render_vote(cast.view, cast.vote)
        return {"vote": _json(shown), "round": _json(render_round(approvals, cast.view))}

    async def gossip(request: RouteRequest) -> Json:
        return await peers.receive(request.body)

    return [
        JsonRoutes(
            http,
            [
                Route(method="GET", path="/api/approvals", handler=list_rounds),
                Route(method="GET", path="/api/approvals/round", handler=show),
                Route(method="POST", path="/api/approvals/vote", handler=vote),
                Route(method="POST", path="/api/approvals/gossip", handler=gossip),
            ],
        )
    ]


def _json(model: Any) -> Json:
    return model.model_dump(mode="json")


def _text(body: dict[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidRequest(f"`{name}` is a text.")
    return value


def _query(request: RouteRequest) -> dict[str, str]:
    text = request.http.scope.get("query_string", b"").decode("latin-1")
    return {name: values[0] for name, values in parse_qs(text, keep_blank_values=True).items()}
