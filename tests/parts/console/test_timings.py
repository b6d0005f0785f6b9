"""How long each step of a call took: noted for every call while the console is on, kept for the latest, shown with the call."""

import anyio
import pytest

from tests.parts.console.conftest import OpenSite, Site
from tests.parts.console.test_calls import call
from tests.parts.console.test_sessions import ANN, BOB, callers  # noqa: F401 (a fixture)
from tests.upstreams.behind import hostile
from tests.waiting import until
from toolpost import CallRequest, CallResult, Next, Plugin
from toolpost.parts.console import timings

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

HELD_S = 0.03
HELD_MS = HELD_S * 1000 - 5
"""What must be seen of it: the clock of an event loop is some milliseconds behind."""


def make_press() -> tuple[Plugin, anyio.Event]:
    """Return a plugin whose tool prints one page after the other, each when the event is set, and takes `HELD_S` for it."""
    plugin = Plugin("press", version="1.0.0")
    may_print = anyio.Event()

    @plugin.tool(concurrency="serial")
    async def print_page(copies: int) -> int:
        """Print a page."""
        await may_print.wait()
        await anyio.sleep(HELD_S)
        return copies

    return plugin, may_print


async def steps_of(site: Site, number: int) -> dict[str, float]:
    """Return the steps of the call with this number in the audit, and how many milliseconds each took."""
    calls = (await site.get("/calls"))["calls"]
    (call_id,) = [entry["call_id"] for entry in calls if entry["seq"] == number]
    shown = await site.get("/call", id=call_id)
    at = 0.0
    for step in shown["steps"]:
        assert step["startMs"] == pytest.approx(at)
        at = step["startMs"] + step["durationMs"]
    # The audit has the duration up to its own entry, looked at a little later.
    assert 0 < shown["steps"][-1]["startMs"] <= shown["duration_ms"] + 0.01
    return {step["step"]: step["durationMs"] for step in shown["steps"]}


async def test_each_step_of_a_function_is_shown(site: OpenSite) -> None:
    press, may_print = make_press()
    async with site("", press) as opened, anyio.create_task_group() as tasks:
        tasks.start_soon(call, opened, "press__print_page", {"copies": 1})
        tasks.start_soon(call, opened, "press__print_page", {"copies": 2})
        await until(lambda: opened.app.gateway.pipeline.waiting == 1)
        may_print.set()
        with anyio.fail_after(30):
            while len((await opened.get("/calls"))["calls"]) < 2:
                await anyio.sleep(0.01)
        await call(opened, "press__print_page", {"copies": "many"})
        first, second, refused = [await steps_of(opened, number) for number in (1, 2, 3)]

    assert list(first) == list(second) == ["admission", "queue", "validation", "function", "audit"]
    assert min(first["function"], second["function"]) >= HELD_MS
    assert second["queue"] >= HELD_MS
    assert list(refused) == ["admission", "queue", "validation", "audit"]


async def test_time_in_middleware_comes_before_the_queue(site: OpenSite) -> None:
    press, may_print = make_press()
    may_print.set()

    @press.middleware
    async def slow_down(request: CallRequest, proceed: Next) -> CallResult:
        await anyio.sleep(HELD_S)
        return await proceed(request)

    async with site("", press) as opened:
        await call(opened, "press__print_page", {"copies": 1})
        found = await steps_of(opened, 1)

    assert found["admission"] >= HELD_MS
    assert list(found) == ["admission", "queue", "validation", "function", "audit"]


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_call_to_a_server_stays_on_the_fast_path(site: OpenSite, version: str) -> None:
    command = hostile(version=version).command
    assert command is not None
    server = f'[servers.up]\ncommand = "{command[0]}"\nargs = {list(command[1:])}\n'
    async with site(server.replace("'", '"')) as opened:
        for _ in range(2):
            await call(opened, "up__echo", {"text": "x"})
        await call(opened, "up__sleep", {"seconds": 0.1})
        plain, slow = await steps_of(opened, 2), await steps_of(opened, 3)

    # Without a queue: one that is not sent at once waits for its lock, if only for a moment.
    assert list(plain) == ["validation", "server", "audit"]
    # It was left to a task while its server had the request: that time is the server's.
    assert list(slow) == ["validation", "server", "audit"]
    assert slow["server"] >= 90


async def test_steps_of_older_calls_are_not_kept(site: OpenSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timings, "KEPT", 2)
    press, may_print = make_press()
    may_print.set()
    async with site("", press) as opened:
        for copies in range(3):
            await call(opened, "press__print_page", {"copies": copies})
        *_, oldest = (await opened.get("/calls"))["calls"]
        shown = await opened.get("/call", id=oldest["call_id"])

    assert shown["steps"] is None
    assert shown["duration_ms"] > 0


async def test_steps_are_shown_to_who_sees_the_call(site: OpenSite, callers: str) -> None:  # noqa: F811
    press, may_print = make_press()
    may_print.set()
    async with site(callers, press, token=ANN) as opened:
        await call(opened, "press__print_page", {"copies": 1})
        (own,) = (await opened.get("/calls"))["calls"]
        hers = await opened.get("/call", id=own["call_id"])
        bob = {"Authorization": f"Bearer {BOB}"}
        his = await opened.http.get("/api/console/call", params={"id": own["call_id"]}, headers=bob)

    assert hers["steps"]
    assert his.status_code == 404
