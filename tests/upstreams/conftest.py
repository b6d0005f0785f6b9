"""What tests of servers behind the gateway may ask for."""

import asyncio
import time
from collections.abc import AsyncIterator

import anyio
import psutil
import pytest

from tests.upstreams.behind import warmed_up


@pytest.fixture
async def nothing_leaks() -> AsyncIterator[None]:
    """See that a test leaves no process, no task and no open file behind."""
    await warmed_up()
    # Every loop opens one or two for itself when it first serves HTTP; a process that is left takes four.
    tasks, files = len(running()), open_files() + 2
    yield
    until = time.monotonic() + 6
    while time.monotonic() < until:
        left = psutil.Process().children(recursive=True)
        if not left and len(running()) <= tasks and open_files() <= files:
            return
        await anyio.sleep(0.02)
    assert psutil.Process().children(recursive=True) == []
    assert len(running()) <= tasks, running()
    assert open_files() <= files


def running() -> "list[asyncio.Task[object]]":
    """Return the tasks that somebody has started, without the one that sse-starlette keeps for itself."""
    return [task for task in asyncio.all_tasks() if "_shutdown_watcher" not in repr(task.get_coro())]


def open_files() -> int:
    return psutil.Process().num_fds()
