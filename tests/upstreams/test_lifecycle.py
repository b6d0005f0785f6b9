"""A server's life: started when needed, kept while used, ended when idle, held off when it fails, one for whom it should be."""

from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest

from tests.upstreams.behind import ERAS, ONE_OF_EACH, gateway, hostile, lines, report, retry_in_s, text_of
from tests.upstreams.test_stdio_faults import unavailable
from tests.waiting import until
from tests.ways import IN_MEMORY, Way, limited
from tests.wire.callers import refusal
from toolpost.app import App, open_app
from toolpost.base.ids import META_KEY
from toolpost.contracts.errors import LoginRequired
from toolpost.providers import learning, server_provider
from toolpost.settings.model import StoreSettings
from toolpost.testing import error_of
from toolpost.upstreams import failures, lifecycle
from toolpost.upstreams.handshake import Negotiation
from toolpost.upstreams.instance import Instance
from toolpost.upstreams.spec import ServerSpec
from toolpost.upstreams.supervisor import Supervisor

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_leaks"), pytest.mark.wire]


def supervisor_of(app: App, name: str = "up") -> Supervisor:
    return app.servers.providers[name].supervisor


def routed(key: str) -> Any:
    return {META_KEY: {"routingKey": key}}


async def pid_of(client: Any) -> int:
    return int(text_of(await client.call_tool("up__pid")))


@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_an_idle_server_is_ended_and_the_next_call_starts_it(way: Way) -> None:
    async with gateway(hostile(idle_s=0.3), way=way) as (app, client):
        first = await pid_of(client)
        await until(lambda: report(app).state == "stopped")
        await until(lambda: not psutil.pid_exists(first))
        listed = {tool.name for tool in (await client.list_tools()).tools}
        second = await pid_of(client)
        seen = report(app)

    assert "up__echo" in listed
    assert first != second
    assert seen.restarts >= 1
    assert seen.last_error is None


async def test_a_server_in_use_is_not_idle() -> None:
    async with gateway(hostile(idle_s=0.2)) as (app, client):
        before = seen = report(app)
        async with anyio.create_task_group() as tasks:

            async def look() -> None:
                nonlocal before, seen
                # On a slow day it was idle for long enough before anybody came.
                await until(lambda: report(app).in_flight)
                before = report(app)
                await anyio.sleep(0.8)  # four times as long as it may be idle
                seen = report(app)

            tasks.start_soon(look)
            answer = await client.call_tool("up__sleep", {"seconds": 1.5})

    assert text_of(answer) == "slept"
    assert (seen.restarts, seen.pids) == (before.restarts, before.pids)
    assert len(seen.pids) == 1
    assert seen.memory_bytes is not None
    assert seen.memory_bytes > 1_000_000


async def test_a_server_that_is_to_be_ready_is_kept_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "KEEP_READY_S", 0.05)
    async with gateway(hostile(idle_s=0.1, min_ready=1)) as (app, client):
        first = await pid_of(client)
        await anyio.sleep(0.5)  # several rounds of keeping it
        same = await pid_of(client)
        psutil.Process(first).kill()
        await until(lambda: report(app).state == "ready" and report(app).pids != (first,))
        second = await pid_of(client)

    assert first == same
    assert second != first


@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_sessions_find_as_many_ready_as_are_to_be(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "KEEP_READY_S", 0.05)
    async with gateway(hostile(strategy="per_session", idle_s=2, min_ready=3), way=way) as (app, client):
        await until(lambda: len(report(app).pids) == 3 and report(app).state == "ready")
        spare = set(report(app).pids)
        counted: list[str] = []
        used: set[int] = set()
        for key in ("a", "b", "a"):
            used.add(int(text_of(await client.call_tool("up__pid", meta=routed(key)))))
            counted.append(text_of(await client.call_tool("up__count", meta=routed(key))))
        # Those that were taken are replaced, and end when their sessions have been idle.
        await until(lambda: len(set(report(app).pids) - used) == 3)
        await until(lambda: not used & set(report(app).pids))
        await anyio.sleep(0.5)  # several rounds of keeping it
        kept = set(report(app).pids)

    assert counted == ["1", "1", "2"]
    assert used < spare, "sessions were given what was ready"
    assert len(kept) == 3
    assert not kept & used


async def test_what_is_to_be_ready_is_started_though_another_one_hangs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(learning, "KEEP_READY_S", 0.05)
    monkeypatch.setattr(learning, "LEARN_LIMIT_S", 0.3)
    config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=f"sqlite:{tmp_path}/toolpost.db"))
    async with gateway(hostile(), config=config) as (_, client):
        await client.list_tools()
    async with gateway(hostile(min_ready=1), hostile("slow", start="hang"), config=config) as (app, _):
        await until(lambda: report(app).state == "ready")
        first = report(app).pids[0]
        psutil.Process(first).kill()
        await until(lambda: report(app).state == "ready" and report(app).pids[0] != first)
        hangs = report(app, "slow").state

    assert hangs == "starting"


@pytest.mark.parametrize("version", ERAS)
async def test_an_idle_server_that_no_longer_hears_is_replaced(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "PING_S", 0.1)
    monkeypatch.setattr(lifecycle, "PING_LIMIT_S", 2)
    async with gateway(hostile(version=version)) as (app, client):
        first = await pid_of(client)
        await anyio.sleep(0.5)  # several rounds of keeping it
        same = await pid_of(client)
        answer = await client.call_tool("up__go_deaf")
        await until(lambda: not psutil.pid_exists(first))
        after = await pid_of(client)
        seen = report(app)

    assert same == first, "one that answers is left alone"
    assert text_of(answer) == "what?"
    assert after != first
    assert seen.last_error is not None
    assert "answered no ping" in seen.last_error


async def test_definitions_are_remembered_over_a_restart(tmp_path: Path) -> None:
    config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=f"sqlite:{tmp_path}/toolpost.db"))
    log = tmp_path / "log"
    async with gateway(hostile(log=log), config=config) as (_, client):
        before = (await client.list_tools()).tools
    starts = lines(log).count("eof")
    async with gateway(hostile(log=log), config=config) as (app, client):
        after = (await client.list_tools()).tools
        state = report(app).state
        answer = await client.call_tool("up__echo", {"text": "now it starts"})

    assert starts == 1
    assert before == after
    assert state == "stopped"
    assert text_of(answer) == "now it starts"


async def test_a_server_seen_again_is_remembered_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=f"sqlite:{tmp_path}/toolpost.db"))
    saved: list[str] = []
    monkeypatch.setattr(server_provider, "SEEN_S", 0.0)
    for _ in range(2):
        async with open_app(config, bundled=False, servers=[hostile()]) as app:
            remember = app.store.known_tools.remember

            async def remember_and_note(*known: Any, remember: Any = remember, **options: Any) -> None:
                saved.append(known[0])
                await remember(*known, **options)

            monkeypatch.setattr(app.store.known_tools, "remember", remember_and_note)
            await supervisor_of(app).ensure_ready()
            supervisor_of(app).restart()
            await supervisor_of(app).ensure_ready()

    assert len(saved) >= 2, "its day begins when it was last seen, not when it last changed"


async def test_failed_starts_are_held_off_longer_and_longer_and_then_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(failures, "FIRST_S", 0.1)
    config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=f"sqlite:{tmp_path}/toolpost.db"))
    async with gateway(hostile(), config=config) as (_, client):
        await client.list_tools()
    waits: list[tuple[float, float]] = []
    failed: Any = None
    async with gateway(hostile(start="exit"), config=config) as (app, client):
        keeper = supervisor_of(app)
        for _ in range(5):
            await until(lambda: retry_in_s(keeper) <= 0)
            began = anyio.current_time()
            failed = await client.call_tool("up__echo")
            waits.append((retry_in_s(keeper), anyio.current_time() - began))
        refused = await client.call_tool("up__echo")
        suspended = report(app).state
        keeper.start()
        again = report(app).state
        retried = await client.call_tool("up__echo")

    assert "I will not" in unavailable(failed)["message"]
    assert "I will not" in unavailable(failed)["stderr"]
    for index, (wait_s, took_s) in enumerate(waits):
        assert 0.1 * 2**index - took_s <= wait_s <= 0.1 * 2**index
    assert suspended == "suspended"
    assert "5 times" in unavailable(refused)["message"]
    assert "toolpost servers start up" in unavailable(refused)["hint"]
    assert again == "stopped"
    assert "exit code 1" in unavailable(retried)["message"]


@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_a_tool_of_a_server_that_never_started_is_met_with_where_to_look(way: Way) -> None:
    async with gateway(hostile(start="exit"), hostile("other"), way=way) as (_, client):
        await client.list_tools()
        refused = await refusal(client, "up__echo")
        misspelt = await refusal(client, "other__ehco")

    shown = "nothing is known of the tools of `up` yet; `toolpost servers` shows how it is doing"
    assert refused.error.data["hint"] == shown
    assert "did you mean `other__echo`" in misspelt.error.data["hint"]


async def test_the_longest_wait_is_half_a_minute() -> None:
    held = failures.Backoff()
    held.failures = 20
    held.note_failure(began_at=float("inf"))

    assert 29 < held.wait_s <= 30
    assert (failures.FIRST_S, failures.FAILURES_LIMIT) == (1.0, 5)


@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_a_restart_leaves_calls_in_flight_their_answers(way: Way) -> None:
    async with gateway(hostile(), way=way) as (app, client):
        first = await pid_of(client)
        answers: list[Any] = []

        async def call() -> None:
            answers.append(await client.call_tool("up__sleep", {"seconds": 0.6}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await until(lambda: report(app).in_flight == 1)
            supervisor_of(app).restart()
            draining = report(app).state
            second = await pid_of(client)
        await until(lambda: not psutil.pid_exists(first))

    assert text_of(answers[0]) == "slept"
    assert draining == "draining"
    assert second != first


async def test_a_stopped_server_stays_stopped_until_somebody_starts_it() -> None:
    async with gateway(hostile()) as (app, client):
        first = await pid_of(client)
        supervisor_of(app).stop()
        await until(lambda: not psutil.pid_exists(first))
        refused = await client.call_tool("up__pid")
        state = report(app).state
        supervisor_of(app).start()
        second = await pid_of(client)

    assert "it was stopped" in unavailable(refused)["message"]
    assert "toolpost servers start up" in unavailable(refused)["hint"]
    assert state == "stopped"
    assert second != first


async def test_a_server_can_be_stopped_while_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "LEARN_LIMIT_S", 0.3)
    async with gateway(hostile(start="hang")) as (app, _):
        starting = report(app).state
        supervisor_of(app).stop()
        await until(lambda: not report(app).pids)
        stopped = report(app)

    assert starting == "starting"
    assert (stopped.state, stopped.last_error) == ("stopped", None)


async def test_a_singleton_is_one_process_with_one_call_at_a_time(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with gateway(hostile(strategy="singleton", log=log)) as (app, client):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(client.call_tool, "up__sleep", {"seconds": 0.5})
            await until(lambda: app.gateway.in_flight == 3 and report(app).in_flight)
            in_flight = report(app).in_flight
        supervisor_of(app).restart()
        await client.call_tool("up__echo")
        ended_before_start = lines(log).index("eof") < max(i for i, x in enumerate(lines(log)) if x.startswith("start"))

    assert in_flight == 1
    assert ended_before_start


# A server of one's own


async def test_a_routing_key_names_a_server_of_its_own() -> None:
    async with gateway(hostile(strategy="per_session")) as (_, client):

        async def counted(key: str) -> str:
            return text_of(await client.call_tool("up__count", meta=routed(key)))

        said = [await counted(key) for key in ("a", "b", "a", "b", "b")]

    assert said == ["1", "1", "2", "2", "3"]


@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_sessions_never_see_each_others_state(transport: str) -> None:
    way = Way(transport, "legacy")
    async with open_app(IN_MEMORY, bundled=False, servers=[hostile(strategy="per_session")]) as app:
        async with way.client_of(app) as ada, way.client_of(app) as bob:
            said = [text_of(await client.call_tool("up__count")) for client in (ada, bob, ada, bob, bob)]

    assert said == ["1", "1", "2", "2", "3"]


async def test_a_server_of_ones_own_ends_with_its_time() -> None:
    async with gateway(hostile(strategy="per_session", idle_s=0.5), config=limited(instances=3)) as (app, client):
        for key in "abcd":
            await client.call_tool("up__count", meta=routed(key))
        many = len(report(app).pids)
        await until(lambda: not report(app).pids)
        anew = await client.call_tool("up__count", meta=routed("a"))

    assert many <= 4
    assert text_of(anew) == "1"


# The deadline


@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_the_deadline_covers_the_start(way: Way, tmp_path: Path) -> None:
    config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=f"sqlite:{tmp_path}/toolpost.db"))
    async with gateway(hostile(), config=config) as (_, client):
        await client.list_tools()
    async with gateway(hostile(start="hang", timeout_s=0.5), config=config, way=way) as (app, client):
        answer = await client.call_tool("up__echo")
        state = report(app).state

    assert error_of(answer)["code"] == "TOOL_TIMEOUT"
    assert state == "starting"


async def test_a_spec_admits_by_pattern() -> None:
    spec = ServerSpec(name="x", command=("x",), allow=("read_*",), deny=("*_secret",))

    assert [name for name in ("read_a", "read_secret", "write_a") if spec.admits(name)] == ["read_a"]


async def test_a_ping_that_needs_a_login_does_not_end_the_instance() -> None:
    class Transport:
        async def request(self, _request: object) -> bytes:
            raise LoginRequired("the token has expired")

    transport: Any = Transport()
    instance = Instance(key="", transport=transport, negotiation=Negotiation(version="2025-11-25", is_stateless=False))

    assert await instance.answers(30)
