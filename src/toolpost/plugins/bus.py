"""`bus__submit_task` and eight more: tasks handed to agent workers, as tools."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from toolpost.authoring import Context, Plugin, tool
from toolpost.bus.bus import Bus
from toolpost.bus.definitions import BUS_TOOLS, LEAVES, ONCE, RENEWS, TIMEOUT_S, poll_wait_s
from toolpost.bus.looking import Overview
from toolpost.bus.submitting import Submitted, Wish
from toolpost.bus.tasks import USUAL_PRIORITY, Lease, Offered, TaskId, Worker, WorkerName
from toolpost.contracts.envelope import ResultStyle
from toolpost.contracts.errors import InvalidArguments
from toolpost.contracts.ids import META_KEY, Json, JsonObject
from toolpost.contracts.version import __version__

VALUE_LIMIT_BYTES: Final = 256 * 1024

Handler = Callable[[JsonObject, Context], Awaitable[JsonObject]]


def bus_plugin(bus: Bus) -> Plugin:
    """Make the plugin that runs the nine tools on a bus."""
    handlers = _Handlers(bus)
    return plugin_of(lambda name: getattr(handlers, name))


def plugin_of(handler_of: Callable[[str], Handler]) -> Plugin:
    """Make a plugin of the nine tools, whoever runs them: each is what `definitions` says."""
    plugin = Plugin("bus", version=__version__)
    for definition in BUS_TOOLS:
        plugin.add(
            tool(
                name=definition.name,
                title=definition.title,
                description=definition.description,
                input_schema=definition.input_schema,
                output_schema=definition.gives,
                annotations=definition.annotations,
                errors=definition.errors,
                schema_version=definition.schema_version,
                timeout_s=TIMEOUT_S,
                style=ResultStyle.PLAIN,
            )(handler_of(definition.name))
        )
    return plugin


class _Handlers:
    """What each tool does, under its own name."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def submit_task(self, arguments: JsonObject, context: Context) -> JsonObject:
        wish = Wish(
            task=TaskId(arguments["bead_id"]),
            priority=arguments.get("priority", USUAL_PRIORITY),
            payload=_written(arguments, "payload"),
            needs=tuple(TaskId(needed) for needed in arguments.get("depends_on", ())),
            dedupe_key=arguments.get("dedupe_key"),
            by=context.caller.id,
        )
        return shown_submission(await self._bus.submit(wish))

    async def worker_done(self, arguments: JsonObject, context: Context) -> JsonObject:
        result = _written(arguments, "result")
        token = arguments.get("lease_token")
        task = await self._bus.done(TaskId(arguments["bead_id"]), token, result, by=context.caller)
        return {"success": True, "bead_id": task.id, "worker": task.worker}

    async def get_status(self, _arguments: JsonObject, _context: Context) -> JsonObject:
        return _status(await self._bus.overview(), self._bus.wall)

    async def reset_worker(self, arguments: JsonObject, context: Context) -> JsonObject:
        name = WorkerName(arguments["worker_name"])
        task = await self._bus.reset_worker(name, by=context.caller, leaves=_facts(context).get(LEAVES) is True)
        return {"success": True, "worker": name, "previous_task": task}

    async def retry_task(self, arguments: JsonObject, context: Context) -> JsonObject:
        return shown_submission(await self._bus.retry(TaskId(arguments["bead_id"]), by=context.caller))

    async def task_failed(self, arguments: JsonObject, context: Context) -> JsonObject:
        reason = arguments["reason"]
        token = arguments.get("lease_token")
        task = await self._bus.failed(TaskId(arguments["bead_id"]), token, reason, by=context.caller)
        return {"success": True, "bead_id": task.id, "status": "blocked", "reason": reason}

    async def register_worker(self, arguments: JsonObject, context: Context) -> JsonObject:
        wanted = arguments["name"]
        # Whoever sends a key of its own may ask again when the answer got lost.
        key = _facts(context).get(ONCE)
        owner = f"{context.caller.id} {key}" if isinstance(key, str) else f"{context.caller.id} {context.call_id}"
        name = await self._bus.register(wanted, owner, by=context.caller)
        message = f"you are `{name}`" if name == wanted else f"`{wanted}` is taken: you are `{name}`"
        return {"success": True, "worker": name, "message": message}

    async def poll_task(self, arguments: JsonObject, context: Context) -> JsonObject:
        wait_s = poll_wait_s(arguments)
        polled = await self._bus.poll(WorkerName(arguments["name"]), wait_s, by=context.caller)
        if polled.task is not None:
            return {"task": self._held(polled.task) | {"lease_seconds": self._bus.times.offer_s}}
        if polled.was_reset:
            return {"task": None, "reset": True}
        return {"task": None, "superseded": True} if polled.is_superseded else {"task": None, "timeout": True}

    async def ack_task(self, arguments: JsonObject, context: Context) -> JsonObject:
        renews = _facts(context).get(RENEWS) is True
        task = await self._bus.acknowledge(
            WorkerName(arguments["name"]),
            TaskId(arguments["bead_id"]),
            arguments.get("lease_token"),
            by=context.caller,
            renews=renews,
        )
        times = self._bus.times
        return {
            "success": True,
            "worker": task.worker,
            "bead_id": task.id,
            "attempt": task.attempt,
            **self._lease(task),
            "lease_seconds": times.run_s if renews else times.stuck_s,
        }

    def _held(self, task: Offered) -> JsonObject:
        held: JsonObject = {
            "bead_id": task.id,
            "assigned_at": _moment(self._bus.wall(task.changed_at)),
            "attempt": task.attempt + 1,
            "priority": task.priority,
            **self._lease(task),
        }
        return held | ({"payload": task.payload_json} if task.payload is not None else {})

    def _lease(self, task: Lease) -> JsonObject:
        return {"lease_token": task.token, "lease_expires_at": _moment(self._bus.wall(task.expires_at or 0))}


def _facts(context: Context) -> JsonObject:
    """Read what a forwarding process says besides the arguments."""
    facts = context.meta.get(META_KEY)
    return facts if isinstance(facts, dict) else {}


def shown_submission(submitted: Submitted) -> JsonObject:
    """Say what became of a submission."""
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


def _status(overview: Overview, wall: Callable[[float], float]) -> JsonObject:
    workers = [_worker(worker, overview, wall) for worker in overview.workers]
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


def _worker(worker: Worker, overview: Overview, wall: Callable[[float], float]) -> JsonObject:
    held = overview.held.get(worker.task) if worker.task is not None else None
    is_running = held is not None and held.state == "running"
    status = "executing" if is_running else "pending" if held is not None else None
    shown: dict[str, Any] = {
        "name": worker.name,
        "status": status or ("polling" if worker.is_polling(overview.now) else "idle"),
        "current_task": held.id if is_running and held is not None else None,
        "idle_seconds": None if held is not None else round(max(0.0, overview.now - worker.idle_since), 3),
        "pending_task": held.id if held is not None and not is_running else None,
    }
    if held is not None and held.expires_at is not None:
        shown |= {"lease_expires_at": _moment(wall(held.expires_at)), "attempt": held.attempt}
    return shown


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _written(arguments: JsonObject, name: str) -> str | None:
    """Write a value as JSON, bounded."""
    if name not in arguments:
        return None
    value: Json = arguments[name]
    text = msgspec.json.encode(value)
    if len(text) > VALUE_LIMIT_BYTES:
        raise InvalidArguments(
            f"`{name}` has {len(text):,} bytes, and {VALUE_LIMIT_BYTES:,} are the most.",
            hint="keep it in a file, and send its path",
            issues=[{"path": name, "keyword": "maxBytes", "message": f"at most {VALUE_LIMIT_BYTES} bytes"}],
        )
    return text.decode()
