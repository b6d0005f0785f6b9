"""Ten thousand calls, called off and timed out at random: one terminal answer each, an entry each, nothing left behind."""

import asyncio
import json
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from mcp import Client

from tests.hostile.attacks import attack
from tests.waiting import until
from tests.ways import BEHAVIOURS, ENVELOPE, IN_MEMORY, plugin_of, stdio_peer
from toolpost.app import open_app
from toolpost.audit import AuditFilter
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.settings.locations import state_folder
from toolpost.store import open_store

pytestmark = pytest.mark.wire

CALLS = 10_000
IN_FLIGHT = 400


class Load:
    """Sends calls of every kind and counts what comes back."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.answers: Counter[int] = Counter()
        self.codes: dict[int, str] = {}
        self.silenced: set[int] = set()
        self.room = threading.Semaphore(IN_FLIGHT)
        self.extra: list[Any] = []

    def messages(self, number: int) -> list[dict[str, Any]]:
        kind = self.random.random()
        if kind < 0.6:
            return [request(number, "does__echo", {"text": f"t{number}"})]
        if kind < 0.7:
            return [request(number, "does__sleep", {"seconds": self.random.random() / 20})]
        if kind < 0.75:
            return [request(number, "does__late", {"seconds": self.random.random() * 0.6})]
        if kind < 0.8:
            return [request(number, "does__echo", {"txt": 1})]
        if kind < 0.85:
            return [request(number, "does__serial", {"seconds": 0.0005})]
        call = request(number, "does__sleep", {"seconds": self.random.choice([0.0, 0.01, 20.0])})
        if kind < 0.95:
            return [call, {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": str(number)}}]
        self.silenced.add(number)
        return [call, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}]

    def take(self, message: dict[str, Any]) -> None:
        if "result" not in message or "isError" not in message["result"]:
            self.extra.append(message)
            return
        number = message["id"]
        self.answers[number] += 1
        structured = message["result"]["structuredContent"]
        self.codes[number] = "ok" if structured["ok"] else structured["error"]["code"]
        if number not in self.silenced:
            self.room.release()


def request(number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments, "_meta": ENVELOPE}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


@attack(
    "caller",
    "sends 10,000 calls, cancels and times out at random",
    "each has one terminal answer and one entry in the audit; nothing is left behind",
)
@pytest.mark.timeout(180)
def test_every_call_gets_one_terminal_answer_and_one_entry(tmp_path: Path) -> None:
    load = Load(seed=20260728)
    config = tmp_path / "toolpost.toml"
    config.write_text("[limits]\nwaiting = 1000\ncalls = 2000\n")
    with stdio_peer(BEHAVIOURS, cwd=tmp_path) as peer:
        stdout = peer.process.stdout
        assert stdout is not None

        def read() -> None:
            for line in stdout:
                load.take(json.loads(line))

        reader = threading.Thread(target=read)
        reader.start()
        for number in range(CALLS):
            messages = load.messages(number)
            if number not in load.silenced:
                assert load.room.acquire(timeout=60), "answers stopped coming"
            for message in messages:
                peer.send(message)
        for _ in range(IN_FLIGHT):
            assert load.room.acquire(timeout=60), "an answer never came"
        children = psutil.Process(peer.process.pid).children(recursive=True)
        assert peer.process.stdin is not None
        peer.process.stdin.close()
        assert peer.process.wait(60) == 0
        reader.join(15)

    expected = [number for number in range(CALLS) if number not in load.silenced]
    assert load.extra == []
    assert [number for number in expected if load.answers[number] != 1] == []
    assert max(load.answers.values()) == 1
    assert set(load.codes.values()) == {"ok", "CANCELLED", "TOOL_TIMEOUT", "INVALID_PARAMS"}
    assert children == []

    async def audit() -> tuple[int, bool]:
        async with open_store(f"sqlite:{state_folder(tmp_path)}/toolpost.db") as store:
            count, after = 0, 0
            while page := await store.audit.entries(AuditFilter(), after=after, limit=5000):
                count, after = count + len(page), page[-1].seq
            return count, (await store.audit.verify()).is_intact

    assert anyio.run(audit) == (CALLS, True)


@pytest.mark.anyio
async def test_no_task_is_left_behind() -> None:
    async with open_app(IN_MEMORY, plugins=[plugin_of(BEHAVIOURS)], bundled=False) as app:
        async with Client(open_memory_endpoint(app.call_handler, app.sdk), mode="legacy") as client:
            await client.list_tools()
            before = len(asyncio.all_tasks())

            async def give_up(number: int) -> None:
                with anyio.move_on_after(random.Random(number).random() / 5):
                    await client.call_tool("does__sleep", {"seconds": random.Random(number + 1).random() / 5})

            async with anyio.create_task_group() as tasks:
                for number in range(500):
                    tasks.start_soon(give_up, number)
            await until(lambda: not app.gateway.in_flight)
            await until(lambda: len(asyncio.all_tasks()) <= before)
