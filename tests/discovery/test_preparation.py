"""The index is made in the background: a search waits for it a while, and nothing else ever does."""

import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from tests.discovery.asking import ask, names_of, office
from tests.upstreams.behind import gateway, hostile
from tests.waiting import until
from tests.ways import AUTOMATIC, BOTH, QUICK_WAYS, Way
from toolpost.discovery import preparation
from toolpost.discovery.snapshot import Snapshot
from toolpost.testing import error_of

pytestmark = pytest.mark.anyio

PREPARE = Snapshot.prepare
MEMORY = Way("memory", "2026-07-28")


def prepared_by(monkeypatch: pytest.MonkeyPatch, before: Callable[[int], Any]) -> None:
    """Have something happen before each time that an index is made."""
    times = 0

    def prepare(*arguments: Any) -> Snapshot:
        nonlocal times
        times += 1
        before(times)
        return PREPARE(*arguments)

    monkeypatch.setattr(Snapshot, "prepare", prepare)


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_the_first_search_waits_and_calls_do_not(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on = threading.Event()
    prepared_by(monkeypatch, lambda _: may_go_on.wait(60))
    found: list[Any] = []
    async with office(BOTH) as app, way.client_of(app) as client:

        async def search() -> None:
            found.append(await ask(client, "list wiki pages"))

        direct = await client.call_tool(
            "automatic_eval", {"toolName": "wiki__list_page", "arguments": {"page_id": "1"}}
        )
        was_ready = app.finder.preparation.size
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(search)
            await anyio.sleep(0.3)  # what must not come would be here by now
            was_found = list(found)
            may_go_on.set()

    assert not direct.is_error
    assert was_ready == 0
    assert was_found == []
    assert names_of(found[0])[0] == "wiki__list_page"


async def test_a_search_that_waits_too_long_is_told_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on = threading.Event()
    prepared_by(monkeypatch, lambda _: may_go_on.wait(60))
    monkeypatch.setattr(preparation, "FIRST_WAIT_S", 0.1)
    async with office(AUTOMATIC) as app, MEMORY.client_of(app) as client:
        error = error_of(await client.call_tool("automatic_mcp", {"query": "page"}))
        may_go_on.set()
        await until(lambda: app.finder.preparation.size)
        found = await ask(client, "page")

    assert error["code"] == "NO_INDEX"
    assert "try again" in error["hint"]
    assert found["tools"]


async def test_an_index_that_cannot_be_made_leaves_calls_alone_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail_first(times: int) -> None:
        if times == 1:
            raise RuntimeError("a strange definition")

    prepared_by(monkeypatch, fail_first)
    async with office(AUTOMATIC) as app, MEMORY.client_of(app) as client:
        error = error_of(await client.call_tool("automatic_mcp", {"query": "page"}))
        call = await client.call_tool("automatic_eval", {"toolName": "wiki__list_page", "arguments": {"page_id": "1"}})
        app.finder.preparation.take(type(app.gateway.catalog)(app.plugins.providers))
        found = await ask(client, "page")

    assert error["code"] == "NO_INDEX"
    assert not call.is_error
    assert found["tools"]


@pytest.mark.wire
async def test_while_a_new_index_is_made_the_one_before_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "NEXT_WAIT_S", 0.1)
    may_go_on = threading.Event()
    may_go_on.set()
    prepared_by(monkeypatch, lambda _: may_go_on.wait(60))
    async with gateway(hostile(), config=BOTH) as (app, client):
        await until(lambda: len(app.gateway.catalog) > 1 and app.finder.preparation._is_current())
        before = await ask(client, "echo", sessionId="a")
        may_go_on.clear()
        await client.call_tool("up__change")
        await until(lambda: any(tool.contract.name == "up__fresh" for tool in app.gateway.catalog))
        meanwhile = await ask(client, "fresh", sessionId="b")
        may_go_on.set()
        await until(lambda: app.gateway.metrics.preparations.value() >= 2 and app.finder.preparation._is_current())
        after = await ask(client, "fresh", sessionId="c")

    assert meanwhile["etag"] == before["etag"] != after["etag"]
    assert "up__fresh" not in names_of(meanwhile)
    assert names_of(after)[0] == "up__fresh"


async def test_a_server_ends_without_waiting_for_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    is_made, may_go_on = threading.Event(), threading.Event()

    def hold(_: int) -> None:
        is_made.set()
        may_go_on.wait(30)

    prepared_by(monkeypatch, hold)
    began = time.monotonic()
    async with office(AUTOMATIC):
        await until(is_made.is_set)
    took_s = time.monotonic() - began
    may_go_on.set()

    assert took_s < 20
