"""What a conversation costs beside the agent's own time. `python -m bench.agents` does it by itself."""

import http.client
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import uvloop
from anyio import to_thread

from bench.figures import COUNT, MS, OURS, Figures, Metric, Pace, Part, Target, at_most, say
from toolpost.app import App, open_app, open_http
from toolpost.base.caller import Caller, Principal
from toolpost.base.ids import CallerId, JsonObject
from toolpost.parts.agents import InvokeOptions
from toolpost.parts.agents.acp_agent import AcpAgent
from toolpost.parts.agents.agent import AgentSpec, SessionOptions
from toolpost.parts.agents.settings import ALL_AGENTS, AgentSettings, AllAgentsSettings
from toolpost.settings import Config
from toolpost.settings.model import HttpSettings, StoreSettings
from toolpost.testing import acp_agent_command, conversations_of

WARM: Final = "a warm turn"
FIRST: Final = "the first turn of a thread"
AFTER: Final = "a warm thread's, as soon after a prewarming"
TURNS: Final = 60
ME: Final = Principal(caller=Caller(id=CallerId("local"), transport="http"))


def measure(figures: Figures, pace: Pace) -> None:
    """Measure turns in both ways, with an agent that answers at once."""
    for number in range(1, pace.rounds + 1):
        say(f"round {number}/{pace.rounds}: agents")
        uvloop.run(_measured(figures))


async def _measured(figures: Figures) -> None:
    own_ms = await _own_time()
    figures.add(Metric(WARM, "the agent's own time", MS), OURS, own_ms)
    with tempfile.TemporaryDirectory(prefix="toolpost-bench-") as folder:
        async with _site(Path(folder)) as (app, client):
            thread = (await conversations_of(app).create_thread(ME)).id
            await conversations_of(app).handle_message(ME, thread, "say ready")
            in_process = [await _timed_turn(app, thread) for _ in range(TURNS)]
            over_http = [await _timed_post(client, thread) for _ in range(TURNS)]
            figures.add(Metric(WARM, "added to it", MS), OURS, statistics.median(in_process) - own_ms)
            figures.add(Metric(WARM, "added to it, over HTTP", MS), OURS, statistics.median(over_http) - own_ms)
            await _first_turns(app, client, figures)


async def _own_time() -> float:
    """Ask an agent with nothing in between."""
    agent = AcpAgent(AgentSpec(name="script", kind="acp", command=acp_agent_command()))
    order = SessionOptions(
        thread=None, model=None, cwd=Path.cwd(), permissions="deny", gateway=None, resume=None, on_gone=lambda _: None
    )
    times = []
    async with agent.open(order) as session:
        for _ in range(TURNS):
            started = time.perf_counter()
            async for _ in session.prompt("say ready"):
                pass
            times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times)


@asynccontextmanager
async def _site(folder: Path) -> AsyncIterator[tuple[App, "_Client"]]:
    command, *args = acp_agent_command()
    config = Config(
        project=str(folder),
        store=StoreSettings(url=f"sqlite:{folder}/bench.db"),
        http=HttpSettings(listen="127.0.0.1:0"),
        parts={
            "agents": {"script": AgentSettings(command=command, args=args)},
            # None is ended to make room for another: that would be measured, too.
            ALL_AGENTS.key: AllAgentsSettings(sessions=64),
        },
    )
    async with open_app(config, bundled=False) as app, open_http(app) as url:
        client = _Client(url.split("/")[2])
        try:
            yield app, client
        finally:
            client.close()


class _Client:
    """Python's own HTTP client on a connection that is kept, in a thread: what it costs itself is little, and not ours."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=60)
        self.close = self._connection.close

    async def post(self, path: str, body: JsonObject) -> tuple[JsonObject, float]:
        """Return what is answered, and after how many milliseconds."""
        return await to_thread.run_sync(self._post, path, json.dumps(body).encode())

    def _post(self, path: str, body: bytes) -> tuple[JsonObject, float]:
        started = time.perf_counter()
        self._connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        raw = answer.read()
        took_ms = (time.perf_counter() - started) * 1000
        if answer.status >= 300:
            raise RuntimeError(f"{path} was answered with {answer.status}: {raw[:500]!r}")
        return json.loads(raw), took_ms


async def _timed_turn(app: App, thread: str, text: str = "say ready") -> float:
    started = time.perf_counter()
    ended = await conversations_of(app).handle_message(ME, thread, text, InvokeOptions())  # type: ignore[arg-type]
    if ended.state != "done":
        raise RuntimeError(f"a turn ended as {ended.state}: {ended.error}")
    return (time.perf_counter() - started) * 1000


async def _timed_post(client: "_Client", thread: str) -> float:
    _, took_ms = await client.post(f"/api/threads/{thread}/messages", {"text": "say ready"})
    return took_ms


async def _new_thread(client: "_Client") -> str:
    return str((await client.post("/api/threads", {}))[0]["id"])


async def _prewarmed_thread(client: "_Client") -> str:
    thread = await _new_thread(client)
    await client.post("/api/prewarm", {"threadId": thread})
    return thread


async def _first_turns(app: App, client: "_Client", figures: Figures) -> None:
    cold, prewarmed, warm, alike = [], [], [], []
    turns = conversations_of(app).pool.metrics.agent_turns
    found, asked = 0.0, 0
    for _ in range(8):
        cold.append(await _timed_post(client, await _new_thread(client)))
        thread = await _prewarmed_thread(client)
        before = turns.value("warm")
        prewarmed.append(await _timed_post(client, thread))
        warm += [await _timed_post(client, thread) for _ in range(9)]
        found, asked = found + turns.value("warm") - before, asked + 10
        # To start a process costs whatever comes next something, be it a first turn or any other one.
        await _prewarmed_thread(client)
        alike.append(await _timed_post(client, thread))
    figures.add(Metric(FIRST, "nobody was prepared", MS), OURS, statistics.median(cold))
    figures.add(Metric(FIRST, "prewarmed", MS), OURS, statistics.median(prewarmed))
    figures.add(Metric(FIRST, AFTER, MS), OURS, statistics.median(alike))
    figures.add(Metric(FIRST, "any later turn", MS), OURS, statistics.median(warm))
    figures.add(Metric(FIRST, "turns of ten that found it warm, once prewarmed", COUNT), OURS, 10 * found / asked)


def _targets(figures: Figures) -> list[Target]:
    targets = []
    for name in ("added to it", "added to it, over HTTP"):
        if (added := figures.median(Metric(WARM, name, MS), OURS)) is not None:
            targets.append(at_most(f"{WARM}: {name}", added, 5, MS))
    found = figures.median(Metric(FIRST, "turns of ten that found it warm, once prewarmed", COUNT), OURS)
    if found is not None:
        aim = Target(
            what="ten turns once prewarmed", aim="10 warm", found=found, shown=f"{found:g}", is_reached=found == 10
        )
        targets.append(aim)
    first, other = (figures.median(Metric(FIRST, name, MS), OURS) for name in ("prewarmed", AFTER))
    if first is not None and other is not None:
        targets.append(
            at_most("a prewarmed first turn beyond any other at that moment", max(0.0, first - other), 1, MS)
        )
    return targets


PART = Part(
    name="agents",
    title="Conversations",
    measure=measure,
    targets=_targets,
    method="an agent as a process that answers at once, asked directly, through the gateway, and over the HTTP API",
)


def main() -> None:
    """Measure, and print medians."""
    figures = Figures()
    measure(figures, Pace(rounds=3, seconds=1))
    for metric, by_whom in figures.values.items():
        print(f"{metric}: {statistics.median(by_whom[OURS]):.2f} {metric.unit}  {[round(v, 2) for v in by_whom[OURS]]}")
    for target in _targets(figures):
        print(f"{'reached' if target.is_reached else 'missed'}: {target.what}, {target.aim}: {target.shown}")


if __name__ == "__main__":
    main()
