"""Scripts: transactions written once. Those that come together share one, and none of them pays for another."""

import asyncio
import itertools
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.store.conftest import url_of
from toolpost.contracts.errors import GatewayError, InvalidRequest
from toolpost.store import open_store
from toolpost.store.scripts import NOW, Batch, Many, Script, Statement, Step, change, lock_name
from toolpost.store.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio

_ADD = "INSERT INTO verdicts (server, kind, rules, found) VALUES (?1, ?2, '', '') ON CONFLICT DO NOTHING"


def added(server: str, *, fails: bool = False) -> Callable[[], Script[str]]:
    def script() -> Script[str]:
        yield Statement(_ADD, (server, "x"))
        if fails:
            raise InvalidRequest(server)
        return server

    return script


def names() -> Script[list[str]]:
    rows = yield Statement("SELECT server FROM verdicts ORDER BY server")
    return [row[0] for row in rows]


async def test_of_those_that_come_together_one_fails_alone(url: str) -> None:
    async with open_store(url) as store:
        before = getattr(store, "commits", 0)
        said = await asyncio.gather(
            *(store.scripts.run(added(f"{n:02}", fails=n == 7), is_short=True) for n in range(20)),
            return_exceptions=True,
        )
        commits = getattr(store, "commits", 0) - before
        kept = await store.scripts.read(names)

    expected = [f"{n:02}" for n in range(20) if n != 7]
    assert isinstance(said[7], InvalidRequest)
    assert [one for one in said if isinstance(one, str)] == expected
    assert kept == expected
    assert commits <= 1


@pytest.mark.parametrize("step", [Statement(_ADD, ("a", "x")), change(_ADD, ("a", "x")), Many(_ADD, [("a", "x")])])
@pytest.mark.parametrize("kind", ["sqlite", "memory", "postgres"])
async def test_a_script_that_only_reads_writes_nothing(
    kind: str, step: Step, request: pytest.FixtureRequest, path: Path
) -> None:
    def script() -> Script[None]:
        yield NOW
        yield step

    async with open_store(url_of(kind, request, path)) as store:
        with pytest.raises(GatewayError):
            await store.scripts.read(script)
        assert await store.scripts.read(names) == []


async def test_what_is_asked_together_is_done_together(url: str) -> None:
    def script() -> Script[tuple[int, int, int, list[str]]]:
        first = yield change(_ADD, ("a", "x"))
        again = yield change(_ADD, ("a", "x"))
        rows = yield Batch((change(_ADD, ("b", "x")), Statement(_ADD, ("c", "x")), Statement(_ADD, ("d", "y"))))
        yield lock_name("the only one")
        found = yield Batch(
            (
                Statement("SELECT server FROM verdicts WHERE kind = ?1 ORDER BY server", ("x",)),
                Statement("DELETE FROM verdicts WHERE server = ?1", ("d",)),
            )
        )
        return len(first), len(again), len(rows), [row[0] for row in found]

    async with open_store(url) as store:
        for is_short in (True, False):
            said = await store.scripts.run(script, is_short=is_short)
            left = await store.scripts.read(names)
            await store.scripts.run(emptied, is_short=True)
            assert said == (1, 0, 1, ["a", "b", "c"])
            assert left == ["a", "b", "c"]


def emptied() -> Script[None]:
    yield Statement("DELETE FROM verdicts")


async def test_the_time_is_the_store_s_and_goes_on(url: str) -> None:
    def now() -> Script[float]:
        ((at,),) = yield NOW
        return float(at)

    async with open_store(url) as store, open_store(url) as elsewhere:
        said = []
        for _ in range(5):
            said.append(await store.scripts.run(now, is_short=True))
            await anyio.sleep(0.02)
            said.append(await elsewhere.scripts.run(now))

    assert all(later > sooner - 0.5 for sooner, later in itertools.pairwise(said))
    assert said[-1] - said[0] > -0.5
    assert abs(said[-1] - time.time()) < 5


async def test_a_caller_who_is_gone_leaves_its_script_done(url: str) -> None:
    async with open_store(url) as store:
        asked = [asyncio.ensure_future(store.scripts.run(added(f"{n}"), is_short=True)) for n in range(4)]
        await asyncio.sleep(0)
        asked[2].cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        await store.scripts.run(added("4"), is_short=True)
        kept = await store.scripts.read(names)

    assert kept == ["0", "1", "2", "3", "4"]


async def test_what_waits_is_committed_at_the_end_and_nothing_after_it(url: str) -> None:
    async with open_store(url) as store:
        asked = [asyncio.ensure_future(store.scripts.run(added(f"{n}"), is_short=True)) for n in range(50)]
        await asyncio.sleep(0)
    said = await asyncio.gather(*asked)
    with pytest.raises(GatewayError, match="closed"):
        await store.scripts.run(added("late"), is_short=True)
    async with open_store(url) as again:
        kept = await again.scripts.read(names)

    assert sorted(said) == kept
    assert len(kept) == 50


async def test_the_loop_goes_on_while_another_process_writes(path: Path) -> None:
    async with open_store(f"sqlite:{path}") as store:
        await store.scripts.run(added("first"), is_short=True)
        with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
            other.execute("BEGIN IMMEDIATE")
            asked = asyncio.ensure_future(store.scripts.run(added("second"), is_short=True))
            longest = last = 0.0
            for _ in range(20):
                last = time.monotonic()
                await asyncio.sleep(0.01)
                longest = max(longest, time.monotonic() - last)
            was_done, read = asked.done(), await store.scripts.read(names)
            other.execute("COMMIT")
        with anyio.fail_after(20):
            await asked

    assert not was_done
    assert read == ["first"]
    assert longest < 3  # a blocked loop would wait for the lock for ten times as long


async def test_many_that_wait_for_the_disk_share_few_commits(path: Path) -> None:
    store = await SqliteStore.open(path)
    try:
        before = store.commits
        for _ in range(10):
            await asyncio.gather(*(store.scripts.run(added(f"{n}"), is_short=True) for n in range(100)))
        commits = store.commits - before
    finally:
        await store.aclose()

    assert commits == 10
