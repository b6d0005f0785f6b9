"""The board as JSON: workers, queue, and blocked and dead tasks, for `toolpost bus --json` and the page `/bus`."""

from typing import Any

from toolpost.base.ids import JsonObject
from toolpost.parts.bus.status import Overview
from toolpost.parts.bus.tasks import BusTask, Worker


def render_board(overview: Overview) -> JsonObject:
    """Render the answer of `toolpost bus --json`."""
    now = overview.now
    return {
        "workers": [_render_worker(worker, overview) for worker in overview.workers],
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


def _render_worker(worker: Worker, overview: Overview) -> dict[str, Any]:
    held = overview.held.get(worker.task) if worker.task is not None else None
    rendered: dict[str, Any] = {
        "name": worker.name,
        "status": _status_of(worker, held, overview.now),
        "task": held.id if held is not None else None,
        "seconds": round(max(0.0, overview.now - (held.changed_at if held is not None else worker.idle_since)), 3),
    }
    if held is not None and held.expires_at is not None:
        rendered |= {"attempt": held.attempt, "lease_seconds_left": round(held.expires_at - overview.now, 3)}
    return rendered


def _status_of(worker: Worker, held: BusTask | None, now: float) -> str:
    if held is not None:
        return "executing" if held.state == "running" else "pending"
    return "polling" if worker.is_polling(now) else "idle"
