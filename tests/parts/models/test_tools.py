"""The tools of the router as a client sees them, over every transport, in both eras, on both stores."""

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from mcp import Client

from tests.parts.models.endpoints import FakeEndpoint
from tests.ways import IN_MEMORY, QUICK_WAYS, WAYS, Way, stdio_server
from tests.wire.callers import ERAS, Project, client_of
from toolpost.app import open_app, open_http
from toolpost.parts.models.settings import MODELS, ROUTER, ModelSettings, RouterSettings
from toolpost.settings import Config
from toolpost.settings.model import PluginSettings, StoreSettings
from toolpost.testing import data_of, error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire, pytest.mark.every_store]

HASH = 64


def config_of(endpoint: FakeEndpoint, *models: str, url: str = "sqlite::memory:", **router: Any) -> Config:
    """Configure models that behave as their names say, the first of them preferred."""
    entries = {
        name: ModelSettings(url=endpoint.url, preference=1 - number / 10, input_price=1.0, output_price=2.0)
        for number, name in enumerate(models)
    }
    config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=url))
    return ROUTER.put(MODELS.put(config, entries), RouterSettings(**router))


async def asked(client: Client, tool: str, **arguments: Any) -> Any:
    return data_of(await client.call_tool(f"models__{tool}", arguments))


async def refused(client: Client, tool: str, **arguments: Any) -> Any:
    return error_of(await client.call_tool(f"models__{tool}", arguments))


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_the_calls_that_once_broke_every_client_work_without_any_model(way: Way, tmp_path: Path) -> None:
    async def check(client: Client) -> None:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert all(listed[f"models__router_{name}"].output_schema for name in ("score", "fallback", "stats"))
        assert listed["models__router_call"].output_schema is None
        assert await asked(client, "router_stats") == {"models": {}}
        scored = await asked(client, "router_score", prompt="haiku")
        assert (scored["scores"], scored["winner"], len(scored["rule_version_hash"])) == ({}, None, HASH)
        assert await asked(client, "router_fallback") == {"circuitState": {}}
        assert (await refused(client, "router_call", prompt="haiku"))["code"] == "CAPABILITY_MISSING"

    if way.transport == "stdio":
        (tmp_path / "toolpost.toml").write_text('[plugins]\nbundled = ["models"]\n')
        async with Client(stdio_server(cwd=tmp_path), mode=way.mode) as client:
            await check(client)
        return
    async with open_app(IN_MEMORY) as app, way.client_of(app) as client:
        await check(client)


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_the_best_model_answers(way: Way, endpoint: FakeEndpoint) -> None:
    config = config_of(endpoint, "good", "slow")
    async with open_app(config) as app, way.client_of(app) as client:
        scored = await asked(client, "router_score", prompt="haiku")
        answer = await asked(client, "router_call", prompt="haiku", system="be brief", max_tokens=9, temperature=0)
        named = await asked(client, "router_call", prompt="haiku", models=["slow"])
        stats = (await asked(client, "router_stats"))["models"]

    assert scored["winner"] == "good"
    assert list(scored["scores"]) == ["good", "slow"]
    assert answer["content"] == "the answer of good"
    assert (answer["model"], answer["input_tokens"], answer["output_tokens"]) == ("good", 11, 5)
    assert answer["cost"] == pytest.approx((11 * 1 + 5 * 2) / 1_000_000)
    assert named["model"] == "slow"
    assert (stats["good"]["calls"], stats["good"]["failures"], stats["good"]["input_tokens"]) == (1, 0, 11)
    assert stats["slow"]["latency_ms"]["p50"] >= 250
    assert endpoint.requests[0]["max_tokens"] == 9


@pytest.mark.parametrize(
    "bad", ["broken", "garbage", "not_http", "closes", "hangs", "very_busy", "refuses", "null_text"]
)
async def test_work_continues_when_a_model_fails(endpoint: FakeEndpoint, bad: str) -> None:
    async with (
        open_app(config_of(endpoint, bad, "good", attempt_s=2)) as app,
        QUICK_WAYS[-1].client_of(app) as client,
    ):
        answer = await asked(client, "router_call", prompt="haiku")
        stats = (await asked(client, "router_stats"))["models"]

    assert (answer["model"], [one["model"] for one in answer["failed"]]) == ("good", [bad])
    assert (stats[bad]["calls"], stats[bad]["failures"], stats["good"]["failures"]) == (1, 1, 0)


@pytest.mark.parametrize("bad", ["dies_in_stream", "ends_in_stream", "hangs_in_stream", "garbage", "error_in_stream"])
async def test_work_continues_when_a_stream_fails(endpoint: FakeEndpoint, bad: str) -> None:
    heard: list[str] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")

    async with (
        open_app(config_of(endpoint, bad, "good", attempt_s=2)) as app,
        QUICK_WAYS[-1].client_of(app) as client,
    ):
        answer = data_of(await client.call_tool("models__router_call", {"prompt": "haiku"}, progress_callback=note))

    assert isinstance(answer, dict)
    assert answer["model"] == "good"
    assert answer["content"].strip() == "the answer of good"
    assert all(request["stream"] for request in endpoint.requests)
    assert heard[-1].strip() == "the answer of good"


async def test_a_pause_that_the_endpoint_asks_for_is_kept(endpoint: FakeEndpoint) -> None:
    async with open_app(config_of(endpoint, "busy")) as app, QUICK_WAYS[0].client_of(app) as client:
        started = anyio.current_time()
        answer = await asked(client, "router_call", prompt="haiku")
        waited = anyio.current_time() - started

    assert answer["content"] == "the answer of busy"
    assert "status 429: slow down" in answer["failed"][0]["reason"]
    assert waited >= 1


@pytest.mark.parametrize("era", ERAS)
async def test_only_an_administrator_resets_circuits(era: str, tmp_path: Path, endpoint: FakeEndpoint) -> None:
    guarded = Project(tmp_path).write("ann", "boss\nadmin = true").load()
    config = msgspec.structs.replace(config_of(endpoint, "broken"), callers=guarded.callers, project=guarded.project)
    async with open_app(config) as app, open_http(app) as url:
        async with client_of(url, "ann-token", era) as ann, client_of(url, "boss-token", era) as boss:
            for _ in range(3):
                await refused(ann, "router_call", prompt="haiku")
            errors = [await refused(ann, "router_fallback", reset=reset) for reset in ("broken", True)]
            shown = [await asked(ann, "router_fallback", **reset) for reset in ({}, {"reset": False})]
            closed = await asked(boss, "router_fallback", reset="broken")

    assert [error["code"] for error in errors] == ["FORBIDDEN"] * 2
    assert all("toolpost models reset" in error["hint"] for error in errors)
    assert [one["circuitState"]["broken"]["state"] for one in (*shown, closed)] == ["open", "open", "closed"]


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_circuit_opens_and_is_reset(way: Way, endpoint: FakeEndpoint) -> None:
    async with open_app(config_of(endpoint, "broken")) as app, way.client_of(app) as client:
        error = [await refused(client, "router_call", prompt="haiku") for _ in range(4)][-1]
        opened = (await asked(client, "router_fallback"))["circuitState"]["broken"]
        unknown = await refused(client, "router_fallback", reset="brokn")
        closed = (await asked(client, "router_fallback", reset="broken"))["circuitState"]["broken"]
        await refused(client, "router_call", prompt="haiku")
        everything = (await asked(client, "router_fallback", reset=True))["circuitState"]["broken"]

    assert error["code"] == "UPSTREAM_UNAVAILABLE"
    assert "circuit is open" in error["details"]["attempts"][0]["reason"]
    assert (opened["state"], opened["failures"]) == ("open", 3)
    assert 50_000 < opened["retry_after_ms"] <= 60_000
    assert (unknown["code"], unknown["hint"]) == ("NOT_FOUND", "did you mean `broken`?")
    assert closed == {"state": "closed", "failures": 0, "retry_after_ms": 0}
    assert everything["failures"] == 0
    assert endpoint.count("broken") == 4


async def test_statistics_survive_a_restart_and_are_in_the_metrics(url: str, endpoint: FakeEndpoint) -> None:
    config = config_of(endpoint, "broken", "good", url=url)
    async with open_app(config) as app, open_http(app) as address, Client(address) as client:
        await asked(client, "router_call", prompt="haiku")
        text = app.monitor.metrics()
    async with open_app(config) as app, QUICK_WAYS[0].client_of(app) as client:
        stats = (await asked(client, "router_stats"))["models"]

    assert 'toolpost_model_attempts_total{model="good"} 1' in text
    assert 'toolpost_model_failures_total{model="broken"} 1' in text
    assert (stats["good"]["successes"], stats["good"]["output_tokens"], stats["broken"]["failures"]) == (1, 5, 1)
    assert stats["good"]["latency_ms"]["p50"] > 0


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_bad_input_is_refused_with_a_reason(way: Way, endpoint: FakeEndpoint) -> None:
    async with open_app(config_of(endpoint, "good")) as app, way.client_of(app) as client:
        errors = [
            await refused(client, "router_score"),
            await refused(client, "router_score", prompt="x", context={"tsk": {}}),
            await refused(client, "router_score", prompt="x", context={"task": {"tokens": -1}}),
            await refused(client, "router_score", prompt="x", context={"operatorPreference": {"good": 2}}),
            await refused(client, "router_call", prompt="x", models=[]),
        ]
        unknown = await refused(client, "router_score", prompt="x", context={"operatorPreference": {"goood": 1}})
        far = await asked(client, "router_score", prompt="", context={"task": {"tokens": 10**15, "deadline_ms": 1}})

    assert {error["code"] for error in errors} == {"INVALID_PARAMS"}
    assert (unknown["code"], unknown["hint"]) == ("NOT_FOUND", "did you mean `good`?")
    assert far["winner"] == "good"


async def test_a_deadline_of_the_task_ends_the_call(endpoint: FakeEndpoint) -> None:
    async with open_app(config_of(endpoint, "hangs")) as app, QUICK_WAYS[0].client_of(app) as client:
        error = await refused(client, "router_call", prompt="haiku", context={"task": {"deadline_ms": 200}})
        state = (await asked(client, "router_fallback"))["circuitState"]["hangs"]

    assert (error["code"], error["timeoutMs"]) == ("TOOL_TIMEOUT", 200)
    assert state["failures"] == 0


async def test_a_model_without_its_key_is_there_and_says_so(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-from-a-file\n")
    entries = {
        "keyless": ModelSettings(url=endpoint.url, key="${NO_SUCH_KEY}", preference=1.0),
        "good": ModelSettings(url=endpoint.url, key="${file:key}", preference=0.0),
    }
    config = msgspec.structs.replace(MODELS.put(IN_MEMORY, entries), project=str(tmp_path))
    async with open_app(config) as app, QUICK_WAYS[0].client_of(app) as client:
        answer = await asked(client, "router_call", prompt="haiku")

    assert "NO_SUCH_KEY is not set" in answer["failed"][0]["reason"]
    assert b"Bearer sk-from-a-file" in endpoint.heads[0]


async def test_a_key_that_an_endpoint_repeats_is_concealed(
    endpoint: FakeEndpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = "sk-0123456789-0123456789-0123456789"
    (tmp_path / "key").write_text(key)
    entries = {
        "echoes_key": ModelSettings(url=endpoint.url, key="${file:key}", preference=1.0),
        "good": ModelSettings(url=endpoint.url, preference=0.0),
    }
    config = msgspec.structs.replace(MODELS.put(IN_MEMORY, entries), project=str(tmp_path))
    async with open_app(config) as app, QUICK_WAYS[0].client_of(app) as client:
        answer = await asked(client, "router_call", prompt="haiku")
        error = await refused(client, "router_call", prompt="haiku", models=["echoes_key"])

    assert key.encode() in endpoint.heads[0]
    assert "status 401" in answer["failed"][0]["reason"]
    for shown in (str(answer), str(error), caplog.text):
        assert "0123456789" not in shown


@pytest.mark.parametrize("way", [way for way in WAYS if way.transport == "stdio"], ids=str)
async def test_a_model_answers_over_stdio(way: Way, tmp_path: Path, endpoint: FakeEndpoint) -> None:
    """A process of its own, with models at a real endpoint, of which the first one hangs in its stream."""
    entries = "".join(
        f'[models.{name}]\nurl = "{endpoint.url}"\npreference = {preference}\n'
        for name, preference in (("hangs_in_stream", 1.0), ("good", 0.1))
    )
    (tmp_path / "toolpost.toml").write_text(f"[router]\nattempt_s = 0.3\n{entries}")
    heard: list[str] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")

    async with Client(stdio_server(cwd=tmp_path), mode=way.mode) as client:
        whole = await asked(client, "router_call", prompt="haiku", models=["good"])
        streamed = data_of(await client.call_tool("models__router_call", {"prompt": "haiku"}, progress_callback=note))
        stats = (await asked(client, "router_stats"))["models"]

    assert (whole["content"], whole["model"]) == ("the answer of good", "good")
    assert isinstance(streamed, dict)
    assert (streamed["model"], streamed["failed"][0]["model"]) == ("good", "hangs_in_stream")
    assert (stats["good"]["failures"], stats["hangs_in_stream"]["failures"]) == (0, 1)
    assert "half of the" in heard


async def test_served_alone_the_tools_have_their_own_names(endpoint: FakeEndpoint) -> None:
    config = config_of(endpoint, "good")
    config = msgspec.structs.replace(config, plugins=PluginSettings(only="models"))
    async with open_app(config) as app, QUICK_WAYS[0].client_of(app) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        answer = data_of(await client.call_tool("router_call", {"prompt": "haiku"}))

    assert names == ["router_call", "router_fallback", "router_score", "router_stats"]
    assert isinstance(answer, dict)
    assert answer["content"] == "the answer of good"
