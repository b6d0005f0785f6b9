"""MCP tasks as a part: its section, and what keeps calls that outlive their requests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from toolpost.parts.base import Part
from toolpost.parts.tasks.settings import TASKS

if TYPE_CHECKING:
    from toolpost.host import Host, Provided


class TasksPart(Part):
    """Calls that outlive their requests, for clients that declare the tasks extension of MCP."""

    name = "tasks"
    sections = (TASKS,)

    @asynccontextmanager
    async def open(self, host: "Host") -> AsyncIterator["Provided"]:
        """Keep tasks in the store, and carry on those that no gateway carries."""
        from toolpost.endpoints.calls import write_call_result
        from toolpost.host import Provided
        from toolpost.parts.tasks.lane import TaskLane
        from toolpost.parts.tasks.runner import DeferredCalls
        from toolpost.protocol.era import MODERN

        chosen = TASKS.of(host.config)
        deferred = DeferredCalls(
            host.store,
            lambda answer: write_call_result(answer, MODERN),
            ttl_s=chosen.ttl_s,
            after_s=chosen.after_s,
            limit=host.config.limits.tasks,
            callers=host.callers,
        )
        yield Provided(tasks=TaskLane(deferred), run=deferred.open_carrying)
