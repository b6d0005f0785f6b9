"""MCP tasks as a part: its section, and the endpoint that serves them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from toolpost.parts.tasks.settings import TASKS

if TYPE_CHECKING:
    from toolpost.endpoints.http import HttpContext, Routes
    from toolpost.parts import Host


@asynccontextmanager
async def open_tasks(host: "Host") -> AsyncIterator[Sequence[object]]:
    """Store tasks, and run those again whose gateway ended."""
    from toolpost.endpoints.calls import write_call_result
    from toolpost.parts import Api, Background, Page
    from toolpost.parts.tasks.endpoint import TaskEndpoint
    from toolpost.parts.tasks.runner import TaskRunner
    from toolpost.protocol import STATELESS

    chosen = TASKS.of(host.config)
    runner = TaskRunner(
        host.store,
        lambda answer: write_call_result(answer, STATELESS),
        ttl_s=chosen.ttl_s,
        after_s=chosen.after_s,
        limit=host.config.limits.tasks,
        callers=host.callers,
    )

    def make_routes(http: "HttpContext") -> "Sequence[Routes]":
        from toolpost.parts.tasks.api import routes_of

        return routes_of(http, host.store)

    yield [
        TaskEndpoint(runner),
        Api(make_routes),
        Page("Tasks", "/tasks"),
        Background(lambda: runner.open_running(host.gateway)),
    ]
