"""Many conversations over few sessions, for a while: nothing is left behind, no process, no memory, no file."""

import gc
import time

import anyio
import psutil
import pytest

from tests.parts.agents.asking import ADA, limit
from tests.parts.agents.test_acp import with_agent
from tests.waiting import until
from toolpost.app import open_app, open_http
from toolpost.base.ids import ThreadId
from toolpost.parts.agents.session_pool import PoolLimits
from toolpost.testing import conversations_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("count", "most", "lasts_s"), [(24, 3, 2.5), pytest.param(200, 8, 600.0, marks=pytest.mark.soak)]
)
async def test_many_threads_over_few_sessions_leave_nothing_behind(
    count: int, most: int, lasts_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = psutil.Process()
    limit(monkeypatch, pool=PoolLimits(size=most, waiting=1_000))
    config = with_agent()
    turns = 0
    async with open_app(config, bundled=False) as app, open_http(app):
        threads = [(await conversations_of(app).create_thread(ADA)).id for _ in range(count)]

        async def talk(thread: ThreadId, until: float) -> None:
            nonlocal turns
            while time.monotonic() < until:
                ended = await conversations_of(app).handle_message(ADA, thread, "count")
                assert ended.state == "done", ended.error
                turns += 1

        async def talk_all(seconds: float) -> None:
            async with anyio.create_task_group() as tasks:
                for thread in threads:
                    tasks.start_soon(talk, thread, time.monotonic() + seconds)

        await talk_all(lasts_s / 5)
        gc.collect()
        memory, files = me.memory_info().rss, me.num_fds()
        await talk_all(lasts_s * 4 / 5)
        gc.collect()
        opened = conversations_of(app).pool.metrics.agent_openings.value()
        grown_mib = (me.memory_info().rss - memory) / 1024 / 1024
        print(  # The figures of the long run are seen with `pytest -s`.
            f"{turns} turns of {count} threads, {opened:g} sessions opened, {memory / 1024 / 1024:.0f} MiB at a fifth of the"
            f" time, {grown_mib:+.1f} MiB at its end, {files} files and {me.num_fds() - files:+d}"
        )

        sessions = len(conversations_of(app).pool.sessions)
        assert sessions <= most
        assert len(me.children()) <= most + 1
        assert me.num_fds() <= files + 5
        assert me.memory_info().rss < memory * 1.25 + 16 * 1024 * 1024
        assert (conversations_of(app).pool.waiting, conversations_of(app).runs, len(conversations_of(app).queues)) == (
            0,
            [],
            0,
        )
    await until(lambda: not me.children(recursive=True))

    assert turns > count
