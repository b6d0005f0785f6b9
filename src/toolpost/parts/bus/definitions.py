"""The contracts of the tools of the bus. A server that runs them and a client that forwards them list the same definitions."""

from dataclasses import dataclass, field
from typing import Any, Final

from toolpost import ErrorCode
from toolpost.base import JsonObject
from toolpost.parts.bus.reports import ATTEMPTS_SHOWN

POLL_MS: Final = 30_000
POLL_LIMIT_MS: Final = 55_000
TIMEOUT_S: Final = 60.0
LIST_LIMIT: Final = 20

META_RENEWS_LEASE: Final = "renews"
"""In `_meta` of `ack_task`: the forwarding process renews the lease for as long as it lives."""
META_WORKER_LEAVES: Final = "leaves"
"""In `_meta` of `reset_worker`: the worker's process ends, and its name is free again."""
META_REGISTRATION_KEY: Final = "once"
"""In `_meta` of `register_worker`: the same key is the same registration."""

_NO_CONTROL_CHARACTERS: Final = r"^[^\x00-\x1f\x7f]*$"
_TASK: Final = {"type": "string", "minLength": 1, "maxLength": 256, "pattern": _NO_CONTROL_CHARACTERS}
_WORKER: Final = {
    "type": "string",
    "minLength": 1,
    "maxLength": 64,
    "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$",
    "examples": ["z.ai1"],
}
_TOKEN: Final = {
    "type": "string",
    "minLength": 1,
    "maxLength": 64,
    "description": "The `lease_token` that `poll_task` gave: shows that the task is still yours",
}
_NULLABLE_NAME: Final = {"type": ["string", "null"]}
_SUCCESS: Final = {"const": True}
_READ_ONLY: Final = {"readOnlyHint": True, "openWorldHint": False}

_SUBMITTED: Final = {
    "type": "object",
    "properties": {
        "bead_id": {"type": "string"},
        "dispatched": {"type": "boolean", "description": "a worker has it already"},
        "worker": {"type": "string"},
        "queued": {"type": "boolean"},
        "position": {"type": "integer", "minimum": 1, "description": "its place in the queue"},
        "waits_for": {"type": "array", "items": {"type": "string"}, "description": "tasks that must be done first"},
        "duplicate": {"type": "boolean", "description": "the task that was submitted under this `dedupe_key` before"},
    },
    "required": ["bead_id", "dispatched", "queued"],
    "additionalProperties": False,
}
_OFFER: Final = {
    "type": "object",
    "properties": {
        "bead_id": {"type": "string"},
        "assigned_at": {"type": "string", "format": "date-time"},
        "lease_token": {"type": "string"},
        "lease_expires_at": {"type": "string", "format": "date-time"},
        "lease_seconds": {"type": "number", "description": "how long the lease lasted when it was given"},
        "attempt": {"type": "integer", "minimum": 1},
        "priority": {"type": "integer", "minimum": 0, "maximum": 4},
        "payload": {},
    },
    "required": ["bead_id", "assigned_at"],
    "additionalProperties": False,
}
_STATES: Final = ["waiting", "queued", "offered", "running", "done", "blocked", "dead", "cancelled"]
_DATE_TIME: Final = {"type": "string", "format": "date-time"}
_WAIT_MS: Final = {"type": "integer", "minimum": 0, "maximum": POLL_LIMIT_MS, "default": POLL_MS}
_SUMMARY: Final[dict[str, Any]] = {
    "bead_id": {"type": "string"},
    "state": {"enum": _STATES},
    "priority": {"type": "integer", "minimum": 0, "maximum": 4},
    "attempt": {"type": "integer", "minimum": 0, "description": "how often it was begun since it was last retried"},
    "worker": _NULLABLE_NAME | {"description": "who has it, or ended it"},
    "reason": {"type": "string", "description": "why it is blocked, dead or cancelled"},
    "submitted_at": _DATE_TIME,
    "changed_at": _DATE_TIME | {"description": "since when it is in this state"},
    "lease_expires_at": _DATE_TIME,
}


@dataclass(frozen=True, kw_only=True)
class BusTool:
    """The terms of one tool, as it is listed."""

    name: str
    title: str
    description: str
    properties: JsonObject
    required: tuple[str, ...] = ()
    output_schema: JsonObject
    errors: tuple[ErrorCode, ...] = ()
    annotations: dict[str, Any] = field(default_factory=dict)
    schema_version: int = 1

    @property
    def input_schema(self) -> JsonObject:
        schema: JsonObject = {"type": "object", "properties": self.properties, "additionalProperties": False}
        return schema | ({"required": list(self.required)} if self.required else {})


def parse_wait_s(arguments: JsonObject) -> float:
    """Return how long `poll_task` waits, in seconds, within the limits whatever number its caller sent."""
    # Limited before it is divided: an integer in JSON may be too large for a float.
    timeout_ms: float = arguments.get("timeout_ms", POLL_MS)
    return max(0, min(timeout_ms, POLL_LIMIT_MS)) / 1000


def _object(required: tuple[str, ...], **properties: Any) -> JsonObject:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


BUS_TOOLS: Final = (
    BusTool(
        name="submit_task",
        title="Submit a task",
        description=(
            "Submit a bead task to be dispatched to an available worker. Submitting it again while it waits changes nothing."
        ),
        properties={
            "bead_id": _TASK | {"description": "The bead ID to submit"},
            "priority": {
                "type": "integer",
                "minimum": 0,
                "maximum": 4,
                "default": 2,
                "description": "0 is the most urgent; what waits long rises",
            },
            "depends_on": {
                "type": "array",
                "items": _TASK,
                "maxItems": 100,
                "uniqueItems": True,
                "description": "Tasks that must be done first; they may be submitted later",
            },
            "dedupe_key": _TASK | {"description": "While a task with this key is not over, it answers instead"},
            "payload": {"description": "Whatever the worker needs to know, at most 256 KiB of JSON"},
        },
        required=("bead_id",),
        output_schema=_SUBMITTED,
        errors=(ErrorCode.INVALID_REQUEST, ErrorCode.NOT_FOUND, ErrorCode.QUEUE_OVERLOADED),
    ),
    BusTool(
        name="worker_done",
        title="Task done",
        description=(
            "Signal that a worker has completed its task. Saying it twice is saying it once; another result is refused."
        ),
        properties={
            "bead_id": _TASK | {"description": "The bead ID completed"},
            "lease_token": _TOKEN,
            "result": {"description": "What came of it, at most 256 KiB of JSON; kept with the task"},
        },
        required=("bead_id",),
        output_schema=_object(
            ("success", "bead_id", "worker"), success=_SUCCESS, bead_id={"type": "string"}, worker=_NULLABLE_NAME
        ),
        errors=(ErrorCode.INVALID_REQUEST, ErrorCode.NOT_FOUND, ErrorCode.FORBIDDEN, ErrorCode.STALE_LEASE),
        schema_version=2,
        annotations={"idempotentHint": True},
    ),
    BusTool(
        name="get_status",
        title="Status",
        description="Get current status of all workers and task queue.",
        properties={},
        output_schema=_object(
            ("workers", "queued_tasks", "queue", "polling_workers", "pending_workers"),
            workers={
                "type": "array",
                "items": _object(
                    ("name", "status", "current_task", "idle_seconds", "pending_task"),
                    name={"type": "string"},
                    status={"enum": ["idle", "polling", "pending", "executing"]},
                    current_task=_NULLABLE_NAME,
                    idle_seconds={"type": ["number", "null"]},
                    pending_task=_NULLABLE_NAME,
                    lease_expires_at={"type": "string", "format": "date-time"},
                    attempt={"type": "integer"},
                ),
            },
            queued_tasks={"type": "integer"},
            queue={"type": "array", "items": {"type": "string"}, "description": "the first hundred, in their order"},
            polling_workers={"type": "integer"},
            pending_workers={"type": "integer"},
            waiting_tasks={"type": "integer", "description": "for other tasks"},
            dead={"type": "array", "items": {"type": "string"}, "description": "given up; `retry_task` revives them"},
            blocked={
                "type": "array",
                "items": _object(("bead_id", "reason"), bead_id={"type": "string"}, reason=_NULLABLE_NAME),
            },
        ),
        annotations=_READ_ONLY,
    ),
    BusTool(
        name="reset_worker",
        title="Reset a worker",
        description="Force a stuck worker back to idle. Its task goes back to the queue, its poll is answered.",
        properties={"worker_name": _WORKER | {"description": "The worker to reset"}},
        required=("worker_name",),
        output_schema=_object(
            ("success", "worker", "previous_task"),
            success=_SUCCESS,
            worker={"type": "string"},
            previous_task=_NULLABLE_NAME,
        ),
        errors=(ErrorCode.NOT_FOUND, ErrorCode.FORBIDDEN),
        schema_version=2,
    ),
    BusTool(
        name="retry_task",
        title="Retry a task",
        description="Re-queue an in_progress task, or one that is over: done, blocked, dead or cancelled.",
        properties={"bead_id": _TASK | {"description": "The bead ID to retry"}},
        required=("bead_id",),
        output_schema=_SUBMITTED,
        errors=(ErrorCode.NOT_FOUND, ErrorCode.FORBIDDEN),
        schema_version=2,
    ),
    BusTool(
        name="task_failed",
        title="Task failed",
        description="Mark task blocked, free worker.",
        properties={
            "bead_id": _TASK | {"description": "The bead ID that failed"},
            "reason": {"type": "string", "maxLength": 4_000, "description": "Reason for failure"},
            "lease_token": _TOKEN,
        },
        required=("bead_id", "reason"),
        output_schema=_object(
            ("success", "bead_id", "status", "reason"),
            success=_SUCCESS,
            bead_id={"type": "string"},
            status={"const": "blocked"},
            reason={"type": "string"},
        ),
        errors=(ErrorCode.INVALID_REQUEST, ErrorCode.NOT_FOUND, ErrorCode.FORBIDDEN, ErrorCode.STALE_LEASE),
        schema_version=2,
        annotations={"idempotentHint": True},
    ),
    BusTool(
        name="register_worker",
        title="Register a worker",
        description=(
            "Register a worker with the bus (for polling-based dispatch). A taken name gets a number: use the one in the answer."
        ),
        properties={"name": _WORKER | {"description": "The worker name (e.g., z.ai1)"}},
        required=("name",),
        output_schema=_object(
            ("success", "worker", "message"), success=_SUCCESS, worker={"type": "string"}, message={"type": "string"}
        ),
        errors=(ErrorCode.QUEUE_OVERLOADED,),
    ),
    BusTool(
        name="poll_task",
        title="Poll for a task",
        description="Long-poll for a task assignment. Acknowledge a task within 15 seconds, or it goes to somebody else.",
        properties={
            "name": _WORKER | {"description": "The worker name"},
            "timeout_ms": {
                "type": "number",
                "default": POLL_MS,
                "description": "Timeout in ms (default: 30000); taken as 0 below that, as 55000 above it",
            },
        },
        required=("name",),
        output_schema=_object(
            ("task",),
            task={"anyOf": [{"type": "null"}, _OFFER]},
            timeout={"const": True},
            reset={"const": True, "description": "somebody reset this worker"},
            superseded={"const": True, "description": "another poll under this name has taken the place of this one"},
        ),
        errors=(ErrorCode.INVALID_REQUEST, ErrorCode.NOT_FOUND, ErrorCode.FORBIDDEN),
        schema_version=2,
    ),
    BusTool(
        name="ack_task",
        title="Acknowledge a task",
        description="Acknowledge receipt of a task before execution. Repeated, it extends the lease.",
        properties={
            "name": _WORKER | {"description": "The worker name"},
            "bead_id": _TASK | {"description": "The bead ID being acknowledged"},
            "lease_token": _TOKEN,
        },
        required=("name", "bead_id"),
        output_schema=_object(
            ("success", "worker", "bead_id"),
            success=_SUCCESS,
            worker={"type": "string"},
            bead_id={"type": "string"},
            attempt={"type": "integer"},
            lease_token={"type": "string"},
            lease_expires_at={"type": "string", "format": "date-time"},
            lease_seconds={"type": "number"},
        ),
        errors=(ErrorCode.INVALID_REQUEST, ErrorCode.NOT_FOUND, ErrorCode.FORBIDDEN, ErrorCode.STALE_LEASE),
        schema_version=2,
        annotations={"idempotentHint": True},
    ),
    BusTool(
        name="get_task",
        title="Read a task",
        description=(
            "Read what became of a task: its state, its result or why it failed, and every attempt."
            " Of another caller's task only what `get_status` shows."
        ),
        properties={"bead_id": _TASK | {"description": "The bead ID to read"}},
        required=("bead_id",),
        output_schema=_object(
            ("bead_id", "state"),
            **_SUMMARY,
            waits_for={"type": "array", "items": {"type": "string"}, "description": "tasks that must be done first"},
            payload={"description": "what was submitted with it"},
            result={"description": "what `worker_done` was given"},
            attempts={
                "type": "array",
                "description": f"the last {ATTEMPTS_SHOWN}, the first one first; numbers begin anew after a retry",
                "items": _object(
                    ("attempt", "worker", "started_at"),
                    attempt={"type": "integer", "minimum": 1},
                    worker=_NULLABLE_NAME,
                    started_at=_DATE_TIME,
                    ended_at=_DATE_TIME,
                    outcome={"enum": ["done", "failed", "lease_expired", "taken_away", "reset", "cancelled"]},
                    error={"type": "string"},
                ),
            },
        ),
        errors=(ErrorCode.NOT_FOUND, ErrorCode.FORBIDDEN),
        annotations=_READ_ONLY,
    ),
    BusTool(
        name="wait_tasks",
        title="Wait for tasks",
        description=(
            "Wait until tasks are over (done, blocked, dead or cancelled), and read their results. Answers with `timeout` and how"
            " they stand if that takes longer: call it again."
        ),
        properties={
            "bead_ids": {
                "type": "array",
                "items": _TASK,
                "minItems": 1,
                "maxItems": 100,
                "uniqueItems": True,
                "description": "The bead IDs to wait for",
            },
            "timeout_ms": _WAIT_MS | {"description": "Timeout in ms (default: 30000)"},
            "all": {
                "type": "boolean",
                "default": True,
                "description": "false: answer as soon as one of them is over",
            },
        },
        required=("bead_ids",),
        output_schema=_object(
            ("tasks",),
            tasks={
                "type": "array",
                "description": "in the order of `bead_ids`",
                "items": _object(
                    ("bead_id", "state"),
                    **_SUMMARY,
                    result={"description": "what `worker_done` was given"},
                    result_omitted={"const": True, "description": "too much for one answer: `get_task` has it"},
                ),
            },
            timeout={"const": True},
        ),
        errors=(ErrorCode.NOT_FOUND, ErrorCode.FORBIDDEN),
        annotations=_READ_ONLY,
    ),
    BusTool(
        name="list_tasks",
        title="List tasks",
        description=(
            "List the tasks that you submitted or whose worker is yours, those first whose state changed last."
            " Administrators see all."
        ),
        properties={
            "state": {
                "enum": ["finished", "active", *_STATES],
                "description": "Only these; `finished` is done, blocked, dead and cancelled, `active` the others",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": 100,
                "default": LIST_LIMIT,
                "description": "At most so many",
            },
            "cursor": {
                "type": "string",
                "minLength": 1,
                "maxLength": 2_000,
                "description": "The `next_cursor` of the answer before: goes on after it",
            },
        },
        output_schema=_object(
            ("tasks",),
            tasks={"type": "array", "items": _object(("bead_id", "state"), **_SUMMARY)},
            next_cursor={"type": "string", "description": "there are more"},
        ),
        annotations=_READ_ONLY,
    ),
)
"""In the order of the documentation; `tools/list` sorts them by name."""
