"""The client of `toolpost bus connect`: forwards the tools to a bus server, and keeps leases for the agents that call them.

Agents need not know of lease tokens or renewals: this process adds the token to a call, and renews the lease of every running
task for as long as it lives. When it ends, offered tasks that were not started are queued again.
"""

import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import TaskGroup

from toolpost import Context, Forbidden, NotFound, Plugin, ToolpostError
from toolpost.base import META_KEY, JsonObject, event
from toolpost.contracts import CallerError, InvalidRequest
from toolpost.parts.bus.connection import BusConnection, make_meta
from toolpost.parts.bus.definitions import META_REGISTRATION_KEY, META_RENEWS_LEASE, META_WORKER_LEAVES, parse_wait_s
from toolpost.parts.bus.errors import StaleLease
from toolpost.parts.bus.plugin import Handler, make_plugin
from toolpost.parts.bus.settings import BUS

_log = logging.getLogger("toolpost.parts.bus")

SHUTDOWN_S: Final = 0.8
"""How long releasing the workers may take at the end: MCP clients kill a server about two seconds after they close its stdin."""

LEASES_LIMIT: Final = 1_000
"""The most leases that are remembered, ended ones included."""

_PAUSE_S: Final = 0.1

_REPEATABLE: Final = frozenset(
    {
        "submit_task",
        "worker_done",
        "get_status",
        "reset_worker",
        "task_failed",
        "register_worker",
        "poll_task",
        "ack_task",
        "get_task",
        "list_tasks",
    }
)
"""Tools that may be called again after an answer was lost. Not `retry_task`, which would take the task from its next worker."""

_LONG_POLLS: Final = frozenset({"poll_task", "wait_tasks"})
_NEEDS_TOKEN: Final = frozenset({"ack_task", "worker_done", "task_failed"})
_EXTRA_META: Final[dict[str, Callable[[], JsonObject]]] = {
    "ack_task": lambda: {META_RENEWS_LEASE: True},
    "register_worker": lambda: {META_REGISTRATION_KEY: uuid.uuid4().hex},
}
"""What is added to `_meta` of a call, under the key of Toolpost."""

_FORWARDED_META: Final[tuple[str, ...]] = ("traceparent", "tracestate", "baggage")


@dataclass(kw_only=True)
class _HeldLease:
    worker: str
    task: str
    token: str
    lease_s: float
    is_running: bool = False
    is_over: bool = False


class BusClient:
    """Forwards calls, and keeps the leases of the workers that were registered through this process."""

    def __init__(self, connection: BusConnection) -> None:
        self._connection = connection
        self._workers: set[str] = set()
        self._leases: OrderedDict[tuple[str, str], _HeldLease] = OrderedDict()
        """By task and worker, ended ones included: a repeated or late call is sent with the token that it had."""
        self._task_group: TaskGroup | None = None

    def plugin(self) -> Plugin:
        """Make the plugin whose tools forward to the server."""

        def make_forwarder(tool: str) -> Handler:
            async def forward(arguments: JsonObject, context: Context) -> JsonObject:
                meta = {key: context.meta[key] for key in _FORWARDED_META if key in context.meta}
                return await (self._poll if tool in _LONG_POLLS else self._call)(tool, arguments, meta)

            return forward

        return make_plugin(make_forwarder)

    @asynccontextmanager
    async def open_running(self) -> AsyncIterator[None]:
        """Renew leases until the block is left; then release the workers."""
        async with anyio.create_task_group() as tasks:
            self._task_group = tasks
            tasks.start_soon(self._connection.connect_early)
            try:
                yield
            finally:
                self._task_group = None
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    with anyio.move_on_after(SHUTDOWN_S):
                        # Offered tasks are queued again, running ones keep their lease.
                        async with anyio.create_task_group() as resets:
                            for worker in sorted(self._workers) if self._connection.is_up else ():
                                resets.start_soon(self._release_worker, worker)
                    await self._connection.aclose()

    async def _call(self, tool: str, arguments: JsonObject, meta: JsonObject) -> JsonObject:
        if tool in _NEEDS_TOKEN:
            arguments = self._add_token(tool, arguments)
        if tool in _EXTRA_META:
            meta = meta | make_meta(**_EXTRA_META[tool]())
        repeats: list[None] = []
        try:
            answer = await self._connection.call_tool(
                tool, arguments, meta=meta, may_repeat=tool in _REPEATABLE, on_repeat=lambda: repeats.append(None)
            )
        except InvalidRequest as refusal:
            if tool != "submit_task" or not repeats or refusal.details.get("state") != "running":
                raise
            # The first try was stored, its answer was lost, and a worker has started the task since.
            answer = {"bead_id": arguments["bead_id"], "dispatched": True, "queued": False}
            answer |= {"worker": refusal.details["worker"]} if refusal.details.get("worker") else {}
        except StaleLease:
            self._end_leases(arguments["bead_id"], token=arguments.get("lease_token"))
            raise
        self._track_answer(tool, arguments, answer)
        return answer

    async def _poll(self, tool: str, arguments: JsonObject, meta: JsonObject) -> JsonObject:
        """Forward a long poll; if the server restarts, poll again for the rest of the time."""
        until = time.monotonic() + parse_wait_s(arguments)
        while True:
            left_s = max(0.0, until - time.monotonic())
            try:
                answer = await self._connection.call_tool(
                    tool,
                    arguments | {"timeout_ms": round(left_s * 1000)},
                    meta=meta,
                    may_repeat=False,
                    retry_s=max(left_s, self._connection.retry_s),
                )
            except ToolpostError as error:
                if isinstance(error, CallerError) or time.monotonic() >= until:
                    raise
                event(_log, logging.DEBUG, "poll begun again", tool=tool, reason=error.message)
                await anyio.sleep(_PAUSE_S)
                continue
            self._track_answer(tool, arguments, answer)
            return answer

    def _add_token(self, tool: str, arguments: JsonObject) -> JsonObject:
        """Add the token of the task's lease, unless several workers of this process have had it: any of them may be calling."""
        if "lease_token" in arguments:
            return arguments
        leases = [lease for lease in self._leases.values() if lease.task == arguments["bead_id"]]
        if tool == "ack_task":
            leases = [lease for lease in leases if lease.worker == arguments["name"]]
        return arguments | {"lease_token": leases[0].token} if len(leases) == 1 else arguments

    def _track_answer(self, tool: str, arguments: JsonObject, answer: JsonObject) -> None:
        """Update workers and leases from the answer to a call."""
        match tool:
            case "register_worker":
                self._workers.add(answer["worker"])
            case "poll_task" if answer.get("task"):
                task, worker = answer["task"], arguments["name"]
                self._workers.add(worker)
                lease_s = task.get("lease_seconds", 15.0)
                self._remember(
                    _HeldLease(worker=worker, task=task["bead_id"], token=task["lease_token"], lease_s=lease_s)
                )
            case "ack_task":
                self._mark_running(arguments["name"], arguments["bead_id"], answer)
            case "worker_done" | "task_failed" | "retry_task":
                self._end_leases(arguments["bead_id"])
            case "reset_worker":
                for lease in self._leases.values():
                    lease.is_over = lease.is_over or lease.worker == arguments["worker_name"]

    def _mark_running(self, worker: str, task: str, answer: JsonObject) -> None:
        lease = self._leases.get((task, worker))
        if lease is None or lease.token != answer["lease_token"]:
            lease = _HeldLease(worker=worker, task=task, token=answer["lease_token"], lease_s=0)
            self._remember(lease)
        lease.lease_s = answer.get("lease_seconds", BUS.default.lease_s)
        if not lease.is_running:
            lease.is_running = True
            if self._task_group is not None:
                self._task_group.start_soon(self._renew, lease)

    def _remember(self, lease: _HeldLease) -> None:
        if (previous := self._leases.get((lease.task, lease.worker))) is not None:
            previous.is_over = True
        self._leases[lease.task, lease.worker] = lease
        # The oldest first: a process that lives for weeks must not remember every task that it ever had.
        while len(self._leases) > LEASES_LIMIT:
            self._leases.popitem(last=False)

    def _end_leases(self, task: str, *, token: str | None = None) -> None:
        for lease in self._leases.values():
            if lease.task == task and token in (None, lease.token):
                lease.is_over = True

    async def _renew(self, lease: _HeldLease) -> None:
        """Renew a lease after each third of its time, until it is over or lost; after a failure, at least every second."""
        arguments = {"name": lease.worker, "bead_id": lease.task, "lease_token": lease.token}
        pause_s = lease.lease_s / 3
        while True:
            await anyio.sleep(pause_s)
            if lease.is_over:
                return
            try:
                answer = await self._connection.call_tool(
                    "ack_task", arguments, meta=make_meta(renews=True), may_repeat=True, retry_s=lease.lease_s / 3
                )
            except (StaleLease, Forbidden, NotFound, InvalidRequest) as error:
                lease.is_over = True
                event(_log, logging.WARNING, "lease lost", task=lease.task, worker=lease.worker, reason=error.message)
                return
            except ToolpostError as error:
                pause_s = min(1.0, lease.lease_s / 3)
                event(_log, logging.WARNING, "lease not renewed", task=lease.task, reason=error.message)
            else:
                pause_s = answer.get("lease_seconds", lease.lease_s) / 3

    async def _release_worker(self, worker: str) -> None:
        try:
            await self._connection.call_tool(
                "reset_worker",
                {"worker_name": worker},
                meta={META_KEY: {META_WORKER_LEAVES: True}},
                may_repeat=False,
                retry_s=0,
            )
        except ToolpostError as error:
            event(_log, logging.DEBUG, "worker not let go", worker=worker, reason=error.message)
