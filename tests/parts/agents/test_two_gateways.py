"""Two gateways on one store: a conversation goes on at either, and what is scheduled comes once."""

import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import msgspec
import pytest

from tests.parts.agents.asking import ADA, asked
from tests.parts.agents.test_api import start_server
from tests.parts.agents.test_bundled_plugins import CONFIG, opened, used_by_agent
from tests.store.conftest import url_of
from tests.waiting import until
from tests.ways import IN_MEMORY
from toolpost.contracts.errors import NotFound
from toolpost.parts.agents.other_processes import LOOK_S
from toolpost.settings.model import StoreSettings
from toolpost.testing import ScriptedAgent, acp_agent_command, conversations_of, open_test_app

pytestmark = [pytest.mark.anyio, pytest.mark.wire, pytest.mark.every_store]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_conversation_goes_on_at_another_gateway(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = url_of(kind, request, tmp_path / "store.db")
    config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=url))
    here, there = ScriptedAgent(), ScriptedAgent()
    async with (
        open_test_app(config=config, agents={"main": here}) as one,
        open_test_app(config=config, agents={"main": there}) as two,
    ):
        thread = (await conversations_of(one).create_thread(ADA)).id
        await asked(one, thread, "red")
        await asked(two, thread, "green")
        await asked(one, thread, "blue")
        said = [m.text for m in await conversations_of(two).read_messages(ADA, thread) if m.role == "user"]
        await conversations_of(one).delete_thread(ADA, thread)
        with pytest.raises(NotFound):
            await asked(two, thread, "anybody?")

    assert said == ["red", "green", "blue"]
    assert '"text":"red"' in there.prompts[0]
    (session,) = here.sessions
    assert '"text":"green"' in session.prompts[1], "what was said elsewhere meanwhile is told to a warm session"
    assert '"text":"red"' not in session.prompts[1], "and what it knows is not told again"


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_turn_is_cancelled_at_either_gateway(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    ended: list[Any] = []

    async def ask(client: httpx2.AsyncClient, path: str, text: str) -> None:
        ended.append((await client.post(f"{path}/messages", json={"text": text})).json())

    async with two_servers(url_of(kind, request, tmp_path / "store.db"), tmp_path) as (one, two):
        path = f"/api/threads/{(await one.post('/api/threads', json={})).json()['id']}"
        await one.post(f"{path}/messages", json={"text": "say ready"})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, one, path, "hang")
            await running(one, path, 1)
            tasks.start_soon(ask, one, path, "say this is never said")
            await running(one, path, 2)
            started = time.monotonic()
            stopped = (await two.post(f"{path}/cancel", json={})).json()["cancelled"]
        took_s = time.monotonic() - started
        unknown = await two.post(f"{path}/cancel", json={"turn": stopped[0]})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, one, path, "hang")
            (again,) = await running(one, path, 1)
            tasks.start_soon(ask, one, path, "say this comes next")
            await running(one, path, 2)
            named = (await two.post(f"{path}/cancel", json={"turn": again})).json()["cancelled"]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, one, path, "hang")
            await running(one, path, 1)
            gone = await two.delete(path, headers={"X-Toolpost": "1"})

    assert [(each["state"], each.get("text", "")) for each in ended] == [
        ("cancelled", ""),
        ("cancelled", ""),
        ("cancelled", ""),
        ("done", "this comes next"),
        ("cancelled", ""),
    ]
    assert ended[0]["error"]["message"] == "The turn was cancelled: a cancellation was requested."
    assert (len(stopped), named, gone.status_code) == (1, [again], 200)
    assert took_s < LOOK_S  # it is told at once, and not found by chance
    assert unknown.status_code == 404


async def running(client: httpx2.AsyncClient, path: str, number: int) -> list[str]:
    with anyio.fail_after(20):
        while len(found := (await client.get(path)).json().get("running", [])) != number:
            await anyio.sleep(0.02)
        # It has to be in the store, too: a message is there a moment after it was taken.
        while "running" not in [turn["state"] for turn in (await client.get(f"{path}/turns")).json()["turns"]]:
            await anyio.sleep(0.02)
    return [str(turn) for turn in found]


@asynccontextmanager
async def two_servers(url: str, folder: Path) -> AsyncIterator[tuple[httpx2.AsyncClient, httpx2.AsyncClient]]:
    command, *args = acp_agent_command()
    agent = f'[agents.script]\ncommand = "{command}"\nargs = {json.dumps(args)}\n'
    servers = []
    try:
        for name in ("one", "two"):
            (folder / name).mkdir()
            told = f'{agent}[store]\nurl = "{url}"\n[http]\nlisten = "127.0.0.1:0"\n'
            (folder / name / "toolpost.toml").write_text(told)
            servers.append(await anyio.to_thread.run_sync(start_server, folder / name))
        async with (
            httpx2.AsyncClient(base_url=servers[0][1], timeout=60) as one,
            httpx2.AsyncClient(base_url=servers[1][1], timeout=60) as two,
        ):
            yield one, two
    finally:
        for server, _ in servers:
            server.send_signal(signal.SIGTERM)
            server.wait(60)


async def test_what_is_scheduled_comes_once(tmp_path: Path) -> None:
    config = msgspec.structs.replace(CONFIG, store=StoreSettings(url=f"sqlite:{tmp_path / 'store.db'}"))
    async with opened(config) as (one, _), opened(config) as (two, _):
        thread = (await conversations_of(one).create_thread(ADA)).id
        await asked(one, thread, "say ready")
        soon = (datetime.now(UTC) + timedelta(seconds=5)).isoformat()
        assert "id" in await used_by_agent(one, thread, "schedule__add", prompt="count", at=soon)

        async def has_come() -> bool:
            return "count" in [m.text for m in await conversations_of(two).read_messages(ADA, thread)]

        await until(has_come)
        await anyio.sleep(0.5)  # what must not come would be here by now
        messages = await conversations_of(one).read_messages(ADA, thread)

    assert [m.text for m in messages].count("count") == 1
