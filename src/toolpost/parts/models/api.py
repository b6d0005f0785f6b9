"""`/api/models`: circuits and statistics over HTTP, for administrators.

GET  /api/models        every candidate with its circuit, and what it was asked
POST /api/models/reset  {"name": "small"} closes a circuit; {} closes all
"""

from collections.abc import Sequence

from toolpost.base import Json, JsonObject
from toolpost.contracts import InvalidRequest
from toolpost.endpoints.http import HttpContext, JsonApi, Route, RouteRequest, Routes
from toolpost.parts.models.plugin import render_circuit, render_totals
from toolpost.parts.models.router import Router
from toolpost.parts.models.stats import Totals


def routes_of(http: HttpContext, router: Router) -> Sequence[Routes]:
    """Make the paths."""

    async def show(_request: RouteRequest) -> Json:
        return {"models": await render_models(router)}

    async def reset(request: RouteRequest) -> Json:
        name = request.body.get("name") if isinstance(request.body, dict) else None
        if not isinstance(request.body, dict) or not isinstance(name, str | None):
            raise InvalidRequest("The body must name a model.", hint='send {"name": "small"}, or {} for all')
        router.reset_circuits(name)
        return {"models": await render_models(router)}

    return [
        JsonApi(
            http,
            [
                Route(method="GET", path="/api/models", handler=show, is_for_admins=True),
                Route(method="POST", path="/api/models/reset", handler=reset, is_for_admins=True),
            ],
        )
    ]


async def render_models(router: Router) -> list[JsonObject]:
    """Show every candidate, by name: its circuit, and its statistics in all gateways of the store."""
    known = await router.stats.read()
    return [
        {"name": name, "circuit": render_circuit(breaker), **render_totals(known.get(name, Totals()))}
        for name, breaker in sorted(router.breakers.items())
    ]
