"""`/api/bus`: the board of the bus, for the view `Bus` of the console. It shows, and changes nothing.

GET /api/bus                          workers, the queue, tasks that need a person, counts
GET /api/bus/tasks?state=&cursor=     tasks that the caller may read, the latest change first; `next_cursor` for more
GET /api/bus/task?id=                 one task, with its payload, result and attempts

A caller reads what the tools `bus__get_status`, `bus__list_tasks` and `bus__get_task` would tell it, and only if it sees them.
"""

from collections.abc import Sequence
from typing import Final

from toolpost import Forbidden
from toolpost.base import Json, PluginName
from toolpost.contracts import InvalidRequest
from toolpost.endpoints.http import Handler, HttpContext, JsonApi, Route, RouteRequest, Routes
from toolpost.parts.bus.plugin import parse_cursor, parse_states, render_board, render_page, render_report
from toolpost.parts.bus.reports import ACTIVE, FINISHED
from toolpost.parts.bus.service import Bus
from toolpost.parts.bus.tasks import TaskId

PAGE: Final = 100


def routes_of(http: HttpContext, bus: Bus) -> Sequence[Routes]:
    """Make the paths."""

    def route(path: str, tool: str, handler: Handler) -> Route:
        async def check_and_handle(request: RouteRequest) -> Json:
            view = request.admission.view
            tags = http.gateway.catalog.tags.get(PluginName("bus"), frozenset())
            if not view.shows("bus", tags) or not view.admits(tool):
                raise Forbidden(f"This view needs the tool `{tool}`.", hint="add it to `tools` of the caller")
            return await handler(request)

        return Route(method="GET", path=path, handler=check_and_handle)

    async def show_board(request: RouteRequest) -> Json:
        board = render_board(await bus.overview())
        if request.admission.is_admin:
            return board
        # Without what `bus__get_status` does not tell of the tasks of others.
        queue = [{"bead_id": task["bead_id"]} for task in board["queue"]]
        troubled = [task if task["state"] == "blocked" else task | {"reason": None} for task in board["troubled"]]
        return board | {"queue": queue, "troubled": troubled}

    async def list_tasks(request: RouteRequest) -> Json:
        state = request.query.get("state") or None
        if state not in (None, "active", "finished", *ACTIVE, *FINISHED):
            raise InvalidRequest("`state` is `active`, `finished`, or the state of a task.")
        cursor = request.query.get("cursor")
        after = parse_cursor(cursor) if cursor else None
        page = await bus.list_tasks(parse_states(state), by=request.admission.caller, limit=PAGE, after=after)
        return render_page(page, bus.wall)

    async def show_task(request: RouteRequest) -> Json:
        task = TaskId(request.query.get("id", ""))
        return render_report(await bus.read_task(task, by=request.admission.caller), bus.wall)

    return [
        JsonApi(
            http,
            [
                route("/api/bus", "bus__get_status", show_board),
                route("/api/bus/tasks", "bus__list_tasks", list_tasks),
                route("/api/bus/task", "bus__get_task", show_task),
            ],
        ),
    ]
