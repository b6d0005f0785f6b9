"""What a stream has said can be asked for again, to its end, within bounds."""

import anyio
import pytest

from toolpost.endpoints.http import event_log
from toolpost.endpoints.http.event_log import EventLogs

pytestmark = pytest.mark.anyio


async def test_what_came_after_an_event_is_followed_to_the_end() -> None:
    logs = EventLogs()
    log = logs.open("s", primes=True)
    log.add(b"1")
    log.add(b"2")
    found = logs.find("s:1")
    assert found is not None
    seen: list[bytes] = []

    async def follow() -> None:
        async for event in found[0].follow(found[1]):
            seen.append(event)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        await anyio.wait_all_tasks_blocked()
        log.add(b"3")
        await anyio.wait_all_tasks_blocked()
        log.end(b"4")

    assert [event.split(b"data: ")[1].strip() for event in seen] == [b"2", b"3", b"4"]
    assert [event.split(b"\r\n")[0] for event in seen] == [b"id: s:2", b"id: s:3", b"id: s:4"]


@pytest.mark.parametrize("event_id", ["", "s", "s:", "s:-1", "s:3", "s:x", "t:1", "s:" + "9" * 40])
async def test_an_event_that_never_was_is_not_found(event_id: str) -> None:
    logs = EventLogs()
    log = logs.open("s", primes=False)
    log.add(b"1")

    assert logs.find("s:1") is not None
    assert logs.find(event_id) is None


async def test_logs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "SIZE_LIMIT", 200)
    logs = EventLogs()
    long = logs.open("long", primes=False)
    for _ in range(10):
        long.add(b"x" * 50)
    assert logs.find("long:1") is None
    assert logs.find("long:10") is not None

    for number in range(event_log.LOGS_LIMIT):
        logs.open(str(number), primes=False)
    assert logs.find("long:10") is None


async def test_a_client_before_2025_11_25_gets_no_empty_event() -> None:
    logs = EventLogs()

    assert b"data" not in logs.open("s", primes=False).prime()
    assert logs.open("t", primes=True).prime() == b"id: t:0\r\nretry: 1000\r\ndata: \r\n\r\n"


async def test_what_ended_calls_keep_is_bounded_for_the_whole_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "ENDED_BYTES", 1_000)
    logs = EventLogs()
    running = logs.open("running", primes=False)
    running.add(b"x" * 2_000)
    for number in range(20):
        logs.open(str(number), primes=False).end(b"x" * 100)
    logs.open("last", primes=False)

    kept = [number for number in range(20) if logs.find(f"{number}:0") is not None]
    assert kept == list(range(20 - len(kept), 20))
    assert 0 < len(kept) * 100 <= 1_000
    assert logs.find("running:0") is not None


async def test_logs_of_ended_calls_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = EventLogs()
    logs.open("ended", primes=False).end(b"1")
    logs.open("running", primes=False).add(b"1")
    monkeypatch.setattr(event_log, "KEPT_S", -1.0)
    logs.remove_expired()

    assert (logs.find("ended:0"), logs.find("running:0") is None) == (None, False)
