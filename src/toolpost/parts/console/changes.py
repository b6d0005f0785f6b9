"""Changes of `toolpost.toml` over HTTP: shown as a diff first, then applied."""

from collections.abc import Callable

from toolpost.admin import ConfigChange
from toolpost.base import Json, JsonObject
from toolpost.endpoints.http import Route, RouteRequest
from toolpost.parts.console.context import Console, text_of
from toolpost.parts.console.diff import side_by_side


def routes_of_changes(console: Console, path: str, plan: Callable[[RouteRequest], ConfigChange]) -> list[Route]:
    """Make `PATH/plan`, which shows what `plan` makes of a request, and `PATH/change`, which applies it."""

    async def show_plan(request: RouteRequest) -> Json:
        return _render(plan(request))

    async def change(request: RouteRequest) -> Json:
        planned = plan(request)
        base, caller = text_of(request, "base"), request.admission.caller.id
        await console.config_file.apply(planned, base=base, caller=caller)
        return _render(planned)

    return [
        console.change(f"{path}/plan", show_plan, needs_session=True, is_dry=True),
        console.change(f"{path}/change", change, needs_session=True),
    ]


def _render(change: ConfigChange) -> JsonObject:
    return {**change.to_json(), "diff": side_by_side(*change.conceal())}
