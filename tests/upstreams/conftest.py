"""What tests of servers behind the gateway may ask for."""

import asyncio
import time
from collections.abc import AsyncIterator

import anyio
import psutil
import pytest

from tests.upstreams.behind import warmed_up

LONGEST_S = 40.0
"""How long what is left may take to end; it is a matter of milliseconds, but on a machine that does much else."""


@pytest.fixture
async def nothing_leaks() -> AsyncIterator[None]:
    """See that a test leaves no process, no task and no open file behind."""
    await warmed_up()
    # What a failed test left behind is its own fault alone.
    before = set(psutil.Process().children(recursive=True))
    # Every loop opens one or two for itself when it first serves HTTP; a process that is left takes four.
    tasks, files = len(running()), open_files() + 2
    yield
    until = time.monotonic() + LONGEST_S
    while time.monotonic() < until:
        left = set(psutil.Process().children(recursive=True)) - before
        if not left and len(running()) <= tasks and open_files() <= files:
            return
        await anyio.sleep(0.02)
    assert set(psutil.Process().children(recursive=True)) - before == set()
    assert len(running()) <= tasks, running()
    assert open_files() <= files


def running() -> "list[asyncio.Task[object]]":
    """Return the tasks that somebody has started, without the one that sse-starlette keeps for itself."""
    return [task for task in asyncio.all_tasks() if "_shutdown_watcher" not in repr(task.get_coro())]


def open_files() -> int:
    return psutil.Process().num_fds()
