"""The pipe of a process that is stopped while it ends."""

import asyncio
import os

import anyio
import pytest

from toolpost.processes.pipes import PipeReader

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


@pytest.mark.parametrize("first", [True, False])
async def test_a_pipe_may_end_in_the_turn_in_which_its_reader_is_cancelled(first: bool) -> None:
    loop = asyncio.get_running_loop()
    raised: list[object] = []
    loop.set_exception_handler(lambda _loop, context: raised.append(context))
    ours, its = os.pipe()
    os.set_blocking(ours, False)
    bell, ring = os.pipe()
    reader = PipeReader(os.fdopen(ours, "rb", buffering=0))

    def cancel() -> None:
        loop.remove_reader(bell)
        reading.cancel()

    if first:
        loop.add_reader(bell, cancel)
    reading = asyncio.create_task(reader.read_into(lambda _chunk: None))
    await anyio.wait_all_tasks_blocked()
    if not first:
        loop.add_reader(bell, cancel)
        await asyncio.sleep(0)
    # Both are ready when the loop polls next: the future is cancelled, and its callback follows in the same turn.
    os.write(ring, b"x")
    os.close(its)
    await asyncio.wait([reading])
    await reader.aclose()
    for end in (bell, ring):
        os.close(end)
    assert raised == []
