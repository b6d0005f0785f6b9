"""`/api/tasks`: MCP tasks, for the view `Tasks` of the console. It shows, and changes nothing.

GET /api/tasks?status=&before=    tasks of the caller, of all callers for an administrator, the newest first
GET /api/tasks/task?id=           one task, with its result or error
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from toolpost.base import format_time
from toolpost.base.ids import Json, JsonObject
from toolpost.contracts.errors import InvalidRequest, NotFound
from toolpost.endpoints.http import HttpContext, JsonApi, Route, RouteRequest, Routes
from toolpost.endpoints.http.routes import ConsoleView
from toolpost.endpoints.tasks import records
from toolpost.endpoints.tasks.records import McpTaskId, TaskRecord
from toolpost.store.base import Store

TASK_VIEW: Final = ConsoleView("Tasks", "/tasks", Path(__file__).parent / "view/tasks.js")
PAGE: Final = 100
_STATUSES: Final = ("working", "completed", "failed", "cancelled")


def make_task_routes(http: HttpContext, store: Store) -> Sequence[Routes]:
    """Make the paths of the API."""

    async def list_tasks(request: RouteRequest) -> Json:
        query, admission = request.query, request.admission
        status = query.get("status") or None
        if status not in (None, *_STATUSES):
            raise InvalidRequest(f"`status` is one of {', '.join(_STATUSES)}.")
        before = _parse_position(query.get("before") or None)
        caller = None if admission.is_admin else admission.caller.id
        found = await store.scripts.read(lambda: records.list_newest(caller, status, before, PAGE + 1))
        shown = found[:PAGE]
        more = f"{shown[-1].created_at!r} {shown[-1].id}" if len(found) > PAGE else None
        return {"tasks": [_render(task, store) for task in shown], "next": more}

    async def show_task(request: RouteRequest) -> Json:
        admission = request.admission
        wanted = McpTaskId(request.query.get("id", ""))
        caller = None if admission.is_admin else admission.caller.id
        task = await store.scripts.read(lambda: records.read_one(wanted, caller))
        if task is None:
            raise NotFound("There is no such task, or it has expired.", hint="tasks are kept for `tasks.ttl_s`")
        return _render(task, store) | {"result": _decode(task.result), "error": _decode(task.error)}

    return [
        JsonApi(
            http,
            [
                Route(method="GET", path="/api/tasks", handler=list_tasks),
                Route(method="GET", path="/api/tasks/task", handler=show_task),
            ],
        ),
    ]


def _render(task: TaskRecord, store: Store) -> JsonObject:
    wall = store.scripts.wall
    return {
        "id": task.id,
        "caller": task.caller,
        "tool": task.tool,
        "status": task.status,
        "message": task.status_message,
        "attempts": task.attempts,
        "createdAt": format_time(wall(task.created_at)),
        "updatedAt": format_time(wall(task.updated_at)),
        "expiresAt": format_time(wall(task.expires_at)),
    }


def _decode(text: str | None) -> Json:
    return msgspec.json.decode(text) if text is not None else None


def _parse_position(text: str | None) -> tuple[float, str] | None:
    """Read the `next` of an answer: when its last task was created, and its id."""
    if text is None:
        return None
    at, _, task = text.partition(" ")
    try:
        return float(at), task
    except ValueError:
        raise InvalidRequest("`before` is the `next` of an answer.") from None
