"""The supervisors of all servers, run in one task group. One that is retired ends after its calls in flight."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVarTuple, Unpack

import anyio
from anyio.abc import TaskGroup, TaskStatus

from toolpost.upstreams.supervisor import Supervisor

Ts = TypeVarTuple("Ts")


class Supervisors:
    """Runs supervisors, and what has to happen beside them. Use it within `open_running`."""

    def __init__(self) -> None:
        self._tasks: TaskGroup | None = None
        self._running: dict[Supervisor, anyio.CancelScope] = {}

    @asynccontextmanager
    async def open_running(self) -> AsyncIterator[None]:
        """Let supervisors be started; call `cancel` before leaving, which waits for all of them."""
        async with anyio.create_task_group() as self._tasks:
            yield

    def cancel(self) -> None:
        """End all supervisors and tasks."""
        assert self._tasks is not None
        self._tasks.cancel_scope.cancel()

    @property
    def is_open(self) -> bool:
        return self._tasks is not None

    def start_soon(self, function: Callable[[Unpack[Ts]], Coroutine[Any, Any, object]], *arguments: *Ts) -> None:
        """Run a function in the background; before `open_running` nothing happens, since no server runs."""
        if self._tasks is not None:
            self._tasks.start_soon(function, *arguments)

    async def start(self, supervisor: Supervisor) -> None:
        """Run a supervisor until it is retired; returns once it takes requests."""
        assert self._tasks is not None, "the servers are not running"
        await self._tasks.start(self._run, supervisor)

    def retire(self, supervisor: Supervisor) -> None:
        """Let a supervisor refuse further requests, and end it after the calls in flight."""
        supervisor.stop("it is no longer configured", hint="list the tools again")
        self.start_soon(self._end, supervisor)

    async def _end(self, supervisor: Supervisor) -> None:
        while supervisor.report().pids or supervisor.report().in_flight:  # noqa: ASYNC110 (rare, and in the background)
            await anyio.sleep(0.1)
        supervisor.leave()
        if (scope := self._running.get(supervisor)) is not None:
            scope.cancel()

    async def _run(self, supervisor: Supervisor, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        with anyio.CancelScope() as self._running[supervisor]:
            try:
                await supervisor.run(task_status=task_status)
            finally:
                del self._running[supervisor]
