"""`/api/approvals`: rounds and votes over HTTP, for pages and programs. Agents in conversations are refused.

GET  /api/approvals            rounds that wait for votes and that the caller may see, the newest 100; `?all=1` all of them;
                               `next` of an answer is `?before=` for those before, also where it has fewer than 100
GET  /api/approvals/round?id=7 one round
POST /api/approvals/vote       {"round_id": "7", "choice": "approve"}
POST /api/approvals/gossip     what a peer sends; answered with what we have for it
"""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from anyio import to_thread

from toolpost import Principal
from toolpost.base import Json
from toolpost.contracts import InvalidRequest
from toolpost.endpoints.http import HttpContext, JsonApi, Route, RouteRequest, Routes
from toolpost.parts import ActionItem
from toolpost.parts.approvals.records import no_round
from toolpost.parts.approvals.results import may_see, render_round, render_vote
from toolpost.parts.approvals.rounds import Round
from toolpost.parts.approvals.service import Approvals, parse_round_id

if TYPE_CHECKING:
    from toolpost.parts.approvals.peers import Peers

PAGE: Final = 100
VOTE_PATH: Final = "/approvals"


def routes_of(http: HttpContext, approvals: Approvals, peers: "Peers") -> Sequence[Routes]:
    """Make the paths."""

    def sees(found: Round, request: RouteRequest) -> bool:
        return may_see(found, request.admission.caller, is_admin=request.admission.is_admin)

    async def list_rounds(request: RouteRequest) -> Json:
        query = request.query
        before = parse_round_id(query["before"]) if "before" in query else None
        found, last = await approvals.list_visible(
            lambda one: sees(one, request), only_open="all" not in query, limit=PAGE, before=before
        )
        # In a thread: contents of hundreds of kilobytes take longer than a call may wait.
        shown = await to_thread.run_sync(lambda: [_json(render_round(approvals, view)) for view in found])
        return {
            "caller": request.admission.caller.id,
            "rounds": shown,
            "next": str(last) if last is not None else None,
        }

    async def show(request: RouteRequest) -> Json:
        found = request.query.get("id", "")
        view = await approvals.read(parse_round_id(found))
        if not sees(view.round, request):
            raise no_round(found)
        return _json(render_round(approvals, view))

    async def vote(request: RouteRequest) -> Json:
        body = request.body
        if not isinstance(body, dict) or not isinstance(body.get("round_id"), str) or "choice" not in body:
            raise InvalidRequest(
                "The body must name a round and a choice.", hint='send {"round_id": "7", "choice": "approve"}'
            )
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
        JsonApi(
            http,
            [
                Route(method="GET", path="/api/approvals", handler=list_rounds),
                Route(method="GET", path="/api/approvals/round", handler=show),
                Route(method="POST", path="/api/approvals/vote", handler=vote),
                Route(method="POST", path="/api/approvals/gossip", handler=gossip),
            ],
        ),
    ]


async def find_waiting(approvals: Approvals, principal: Principal) -> Sequence[ActionItem]:
    """Return the rounds that wait for the vote of a caller."""
    caller = principal.caller
    found, _ = await approvals.list_visible(lambda one: caller.id in one.voters, only_open=True, limit=PAGE)
    waiting = [view for view in found if all(vote.voter != caller.id for vote in view.votes)]
    return [
        ActionItem(
            kind="approval",
            title=f"{view.round.caller} waits for your vote",
            text=f"round {view.round.id}: {view.round.tool or 'a proposal'}",
            since=datetime.fromisoformat(approvals.wall(view.round.created_at)).timestamp(),
            action="Vote",
            path=VOTE_PATH,
            command=f"toolpost approvals show {view.round.id}",
        )
        for view in waiting
    ]


def _json(model: Any) -> Json:
    return model.model_dump(mode="json")


def _text(body: dict[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidRequest(f"`{name}` is a text.", hint="leave it out, or send it in quotes")
    return value
