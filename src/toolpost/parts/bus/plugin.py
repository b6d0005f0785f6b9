"""The tools of the bus: `bus__submit_task`, `bus__poll_task` and the others of `definitions.py`.

Here arguments become operations of `Bus`, and values become JSON; times are converted from the store's to the wall clock.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import msgspec

from toolpost import Context, InvalidArguments, Plugin, ResultStyle, __version__, tool
from toolpost.base import META_KEY, Json, JsonObject, format_time
from toolpost.parts.bus.definitions import (
    BUS_TOOLS,
    LIST_LIMIT,
    META_REGISTRATION_KEY,
    META_RENEWS_LEASE,
    META_WORKER_LEAVES,
    POLL_MS,
    TIMEOUT_S,
    parse_wait_s,
)
from toolpost.parts.bus.reports import ACTIVE, FINISHED, Attempt, Position, Summary, TaskPage, TaskReport
from toolpost.parts.bus.service import Bus
from toolpost.parts.bus.status import Overview
from toolpost.parts.bus.submission import Submission, SubmitResult
from toolpost.parts.bus.tasks import (
    DEFAULT_PRIORITY,
    BusTask,
    LeasedTask,
    State,
    TaskId,
    Worker,
    WorkerName,
    WorkerTask,
)

VALUE_LIMIT_BYTES: Final = 256 * 1024

Handler = Callable[[JsonObject, Context], Awaitable[JsonObject]]

LINK: Final = "bus.task"
"""What the calls about one task have in common, in telemetry."""


def make_bus_plugin(bus: Bus) -> Plugin:
    """Make the plugin that runs the tools on a bus."""
    handlers = _Handlers(bus)
    return make_plugin(lambda name: getattr(handlers, name))


def make_plugin(handler_of: Callable[[str], Handler]) -> Plugin:
    """Make the plugin of the bus from a handler for each tool: a server's run it, a client's forward it."""
    plugin = Plugin("bus", version=__version__)
    for definition in BUS_TOOLS:
        plugin.add(
            tool(
                name=definition.name,
                title=definition.title,
                description=definition.description,
                input_schema=definition.input_schema,
                output_schema=definition.output_schema,
                annotations=definition.annotations,
                errors=definition.errors,
                schema_version=definition.schema_version,
                timeout_s=TIMEOUT_S,
                style=ResultStyle.PLAIN,
            )(handler_of(definition.name))
        )
    return plugin


class _Handlers:
    """The handlers of a server: one method for each tool, of the same name."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def submit_task(self, arguments: JsonObject, context: Context) -> JsonObject:
        submission = Submission(
            task=TaskId(arguments["bead_id"]),
            priority=arguments.get("priority", DEFAULT_PRIORITY),
            payload=_encode_bounded(arguments, "payload"),
            needs=tuple(TaskId(needed) for needed in arguments.get("depends_on", ())),
            dedupe_key=arguments.get("dedupe_key"),
            by=context.caller.id,
        )
        submitted = await self._bus.submit(submission)
        context.link(LINK, submission.task, begins=True)
        return render_submission(submitted)

    async def worker_done(self, arguments: JsonObject, context: Context) -> JsonObject:
        result = _encode_bounded(arguments, "result")
        token = arguments.get("lease_token")
        context.link(LINK, arguments["bead_id"])
        task = await self._bus.complete(TaskId(arguments["bead_id"]), token, result, by=context.caller)
        return {"success": True, "bead_id": task.id, "worker": task.worker}

    async def get_status(self, _arguments: JsonObject, _context: Context) -> JsonObject:
        overview = await self._bus.overview()
        workers = [_render_worker(worker, overview, self._bus.wall) for worker in overview.workers]
        return {
            "workers": workers,
            "queued_tasks": overview.counts.get("queued", 0),
            "queue": [task.id for task in overview.queue],
            "polling_workers": sum(worker["status"] == "polling" for worker in workers),
            "pending_workers": sum(worker["status"] == "pending" for worker in workers),
            "waiting_tasks": overview.counts.get("waiting", 0),
            "dead": [task.id for task in overview.troubled if task.state == "dead"],
            "blocked": [
                {"bead_id": task.id, "reason": task.reason} for task in overview.troubled if task.state == "blocked"
            ],
        }

    async def reset_worker(self, arguments: JsonObject, context: Context) -> JsonObject:
        name = WorkerName(arguments["worker_name"])
        task = await self._bus.reset_worker(
            name, by=context.caller, leaves=_read_meta(context).get(META_WORKER_LEAVES) is True
        )
        return {"success": True, "worker": name, "previous_task": task}

    async def retry_task(self, arguments: JsonObject, context: Context) -> JsonObject:
        return render_submission(await self._bus.retry(TaskId(arguments["bead_id"]), by=context.caller))

    async def task_failed(self, arguments: JsonObject, context: Context) -> JsonObject:
        reason = arguments["reason"]
        token = arguments.get("lease_token")
        context.link(LINK, arguments["bead_id"])
        task = await self._bus.fail(TaskId(arguments["bead_id"]), token, reason, by=context.caller)
        return {"success": True, "bead_id": task.id, "status": "blocked", "reason": reason}

    async def register_worker(self, arguments: JsonObject, context: Context) -> JsonObject:
        requested = arguments["name"]
        # A client that sends a key may repeat the call when its answer was lost; any other call is a new registration.
        key = _read_meta(context).get(META_REGISTRATION_KEY)
        registration_key = (
            f"{context.caller.id} {key}" if isinstance(key, str) else f"{context.caller.id} {context.call_id}"
        )
        name = await self._bus.register(requested, registration_key, by=context.caller)
        message = f"you are `{name}`" if name == requested else f"`{requested}` is taken: you are `{name}`"
        return {"success": True, "worker": name, "message": message}

    async def poll_task(self, arguments: JsonObject, context: Context) -> JsonObject:
        wait_s = parse_wait_s(arguments)
        answer = await self._bus.poll(WorkerName(arguments["name"]), wait_s, by=context.caller)
        if answer.task is not None:
            context.link(LINK, answer.task.id)
            return {"task": self._render_offer(answer.task) | {"lease_seconds": self._bus.policy.offer_s}}
        if answer.was_reset:
            return {"task": None, "reset": True}
        return {"task": None, "superseded": True} if answer.is_superseded else {"task": None, "timeout": True}

    async def ack_task(self, arguments: JsonObject, context: Context) -> JsonObject:
        renews = _read_meta(context).get(META_RENEWS_LEASE) is True
        context.link(LINK, arguments["bead_id"])
        task = await self._bus.acknowledge(
            WorkerName(arguments["name"]),
            TaskId(arguments["bead_id"]),
            arguments.get("lease_token"),
            by=context.caller,
            renews=renews,
        )
        policy = self._bus.policy
        return {
            "success": True,
            "worker": task.worker,
            "bead_id": task.id,
            "attempt": task.attempt,
            **self._render_lease(task),
            "lease_seconds": policy.lease_s if renews else policy.lease_without_renewal_s,
        }

    async def get_task(self, arguments: JsonObject, context: Context) -> JsonObject:
        return render_report(await self._bus.read_task(TaskId(arguments["bead_id"]), by=context.caller), self._bus.wall)

    async def wait_tasks(self, arguments: JsonObject, context: Context) -> JsonObject:
        wants_all = arguments.get("all", True)
        tasks, results = await self._bus.wait_tasks(
            [TaskId(one) for one in arguments["bead_ids"]],
            arguments.get("timeout_ms", POLL_MS) / 1000,
            by=context.caller,
            wants_all=wants_all,
        )
        rendered = [_render_summary(one, self._bus.wall) for one in tasks]
        for one, summary in zip(tasks, rendered, strict=True):
            if one.id in results:
                summary["result"] = msgspec.json.decode(results[one.id])
            elif one.result_chars:
                summary["result_omitted"] = True
        answer: JsonObject = {"tasks": rendered}
        is_over = (all if wants_all else any)(one.has_ended for one in tasks)
        return answer if is_over else answer | {"timeout": True}

    async def list_tasks(self, arguments: JsonObject, context: Context) -> JsonObject:
        after = parse_cursor(arguments["cursor"]) if "cursor" in arguments else None
        page = await self._bus.list_tasks(
            parse_states(arguments.get("state")),
            by=context.caller,
            limit=arguments.get("limit", LIST_LIMIT),
            after=after,
        )
        return render_page(page, self._bus.wall)

    def _render_offer(self, task: WorkerTask) -> JsonObject:
        held: JsonObject = {
            "bead_id": task.id,
            "assigned_at": format_time(self._bus.wall(task.changed_at)),
            "attempt": task.attempt + 1,
            "priority": task.priority,
            **self._render_lease(task),
        }
        return held | ({"payload": task.payload_json} if task.payload is not None else {})

    def _render_lease(self, task: LeasedTask) -> JsonObject:
        return {"lease_token": task.token, "lease_expires_at": format_time(self._bus.wall(task.expires_at or 0))}


def _read_meta(context: Context) -> JsonObject:
    """Return what `bus connect` has added to `_meta` (`client.py`)."""
    meta = context.meta.get(META_KEY)
    return meta if isinstance(meta, dict) else {}


def render_submission(submitted: SubmitResult) -> JsonObject:
    """Render the answer of `submit_task` and `retry_task`."""
    answer: JsonObject = {
        "bead_id": submitted.task,
        "dispatched": submitted.worker is not None,
        "queued": submitted.worker is None,
    }
    if submitted.worker is not None:
        answer["worker"] = submitted.worker
    if submitted.position is not None and submitted.worker is None:
        answer["position"] = submitted.position
    if submitted.waits_for:
        answer["waits_for"] = list(submitted.waits_for)
    if submitted.is_duplicate:
        answer["duplicate"] = True
    return answer


def render_report(report: TaskReport, wall: Callable[[float], float]) -> JsonObject:
    """Render the answer of `get_task`: all of it, or what `get_status` shows to every caller."""
    task = report.task
    if not report.is_whole:
        return _render_public(task, wall)
    rendered = _render_summary(task, wall) | {"attempts": [_render_attempt(one, wall) for one in report.attempts]}
    if report.waits_for:
        rendered["waits_for"] = list(report.waits_for)
    if task.payload is not None:
        rendered["payload"] = task.payload_json
    if task.result is not None:
        rendered["result"] = task.result_json
    return rendered


def render_page(page: TaskPage, wall: Callable[[float], float]) -> JsonObject:
    """Render the answer of `list_tasks`."""
    rendered: JsonObject = {"tasks": [_render_summary(one, wall) for one in page.tasks]}
    if page.next is not None:
        rendered["next_cursor"] = urlsafe_b64encode(msgspec.json.encode(page.next)).decode()
    return rendered


def parse_states(name: str | None) -> tuple[State, ...]:
    """Return the states that an argument `state` of `list_tasks` names; all of them for None."""
    groups = {None: (*ACTIVE, *FINISHED), "active": ACTIVE, "finished": FINISHED}
    return groups[name] if name in groups else (cast("State", name),)


def _render_summary(task: BusTask | Summary, wall: Callable[[float], float]) -> JsonObject:
    rendered: JsonObject = {
        "bead_id": task.id,
        "state": task.state,
        "priority": task.priority,
        "attempt": task.attempt,
        "worker": task.worker,
        "submitted_at": format_time(wall(task.submitted_at)),
        "changed_at": format_time(wall(task.changed_at)),
    }
    if task.reason is not None:
        rendered["reason"] = task.reason
    if task.expires_at is not None:
        rendered["lease_expires_at"] = format_time(wall(task.expires_at))
    return rendered


def _render_public(task: BusTask, wall: Callable[[float], float]) -> JsonObject:
    rendered: JsonObject = {"bead_id": task.id, "state": task.state}
    if task.state in ("offered", "running"):
        rendered |= {"worker": task.worker, "attempt": task.attempt}
        rendered |= {"lease_expires_at": format_time(wall(task.expires_at))} if task.expires_at is not None else {}
    if task.state == "blocked" and task.reason is not None:
        rendered["reason"] = task.reason
    return rendered


def _render_attempt(attempt: Attempt, wall: Callable[[float], float]) -> JsonObject:
    rendered: JsonObject = {
        "attempt": attempt.number,
        "worker": attempt.worker,
        "started_at": format_time(wall(attempt.started_at)),
    }
    if attempt.ended_at is not None:
        rendered |= {"ended_at": format_time(wall(attempt.ended_at)), "outcome": attempt.outcome}
    return rendered | ({"error": attempt.error} if attempt.error is not None else {})


def parse_cursor(cursor: str) -> Position:
    """Decode a `next_cursor`; raises `InvalidArguments`."""
    try:
        position = msgspec.json.decode(urlsafe_b64decode(cursor.encode()), type=Position)
    except (ValueError, msgspec.DecodeError) as error:
        raise InvalidArguments(
            "`cursor` is not a cursor of `list_tasks`.",
            hint="send the `next_cursor` of an answer unchanged, or none to start with the newest",
            issues=[{"path": "/cursor", "keyword": "format", "message": "must be a `next_cursor`"}],
        ) from error
    return position


def _render_worker(worker: Worker, overview: Overview, wall: Callable[[float], float]) -> JsonObject:
    held = overview.find_held(worker)
    is_running = held is not None and held.state == "running"
    rendered: dict[str, Any] = {
        "name": worker.name,
        "status": overview.status_of(worker),
        "current_task": held.id if is_running and held is not None else None,
        "idle_seconds": None if held is not None else round(max(0.0, overview.now - worker.idle_since), 3),
        "pending_task": held.id if held is not None and not is_running else None,
    }
    if held is not None and held.expires_at is not None:
        rendered |= {"lease_expires_at": format_time(wall(held.expires_at)), "attempt": held.attempt}
    return rendered


def render_board(overview: Overview) -> JsonObject:
    """Render the board, for `toolpost bus --json` and the page `/bus`: workers, queue, and blocked and dead tasks."""
    now = overview.now
    return {
        "workers": [_render_board_worker(worker, overview) for worker in overview.workers],
        "queue": [
            {
                "bead_id": task.id,
                "priority": task.priority,
                "age_seconds": round(now - task.submitted_at, 3),
                "attempt": task.attempt,
                "retry_in_seconds": round(max(0.0, task.not_before - now), 3),
            }
            for task in overview.queue
        ],
        "counts": overview.counts,
        "oldest_seconds": round(max((now - task.submitted_at for task in overview.queue), default=0.0), 3),
        "troubled": [{"bead_id": task.id, "state": task.state, "reason": task.reason} for task in overview.troubled],
    }


def _render_board_worker(worker: Worker, overview: Overview) -> dict[str, Any]:
    held = overview.find_held(worker)
    rendered: dict[str, Any] = {
        "name": worker.name,
        "status": overview.status_of(worker),
        "task": held.id if held is not None else None,
        "seconds": round(max(0.0, overview.now - (held.changed_at if held is not None else worker.idle_since)), 3),
    }
    if held is not None and held.expires_at is not None:
        rendered |= {"attempt": held.attempt, "lease_seconds_left": round(held.expires_at - overview.now, 3)}
    return rendered


def _encode_bounded(arguments: JsonObject, name: str) -> str | None:
    """Encode an argument as JSON, None if it is absent; raises `InvalidArguments` over `VALUE_LIMIT_BYTES`."""
    if name not in arguments:
        return None
    value: Json = arguments[name]
    text = msgspec.json.encode(value)
    if len(text) > VALUE_LIMIT_BYTES:
        raise InvalidArguments(
            f"`{name}` has {len(text):,} bytes; at most {VALUE_LIMIT_BYTES:,} are allowed.",
            hint="write it to a file, and send its path",
            issues=[{"path": name, "keyword": "maxBytes", "message": f"at most {VALUE_LIMIT_BYTES} bytes"}],
        )
    return text.decode()
