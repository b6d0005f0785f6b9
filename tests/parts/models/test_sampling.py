"""Sampling requests of servers are answered by the router where the client of the call has no model."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from tests.loaded import loaded
from tests.parts.models.endpoints import FakeEndpoint
from tests.upstreams.behind import SERVERS, text_of
from tests.ways import IN_MEMORY, QUICK_WAYS, STATELESS, Way
from toolpost import Context, Plugin
from toolpost.app import open_app, open_http
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.parts.models.router import Router
from toolpost.parts.models.sampling import RouterSampler
from toolpost.parts.models.settings import MODELS, ROUTER, ModelSettings, RouterSettings
from toolpost.testing import data_of
from toolpost.upstreams.server_requests import SAMPLING, with_sampling
from toolpost.upstreams.spec import ServerSpec
from toolpost.upstreams.transport import ServerRefused

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

CALLER = Caller(id=CallerId("local"), transport="memory")


@asynccontextmanager
async def opened(
    endpoint: FakeEndpoint, way: Way, era: str, *, sampling: bool = True, **callbacks: Any
) -> AsyncIterator[Client]:
    """Open a gateway with a server that asks, and a client that has only these callbacks."""
    config = MODELS.put(IN_MEMORY, {"small": ModelSettings(url=endpoint.url, model="good@small")})
    config = ROUTER.put(config, RouterSettings(sampling=sampling))
    options = () if era == STATELESS else ("handshake",)
    server = ServerSpec(name="up", command=loaded(str(SERVERS / "asking.py"), *options))
    async with open_app(config, servers=[server]) as app:
        if way.transport == "memory":
            async with Client(open_memory_endpoint(app.call_handler, app.sdk), mode=way.mode, **callbacks) as client:
                yield client
        else:
            async with open_http(app) as url, Client(url, mode=way.mode, **callbacks) as client:
                yield client


@pytest.mark.parametrize("era", ["2025-11-25", STATELESS])
@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_the_router_answers_for_a_client_without_a_model(way: Way, era: str, endpoint: FakeEndpoint) -> None:
    async with opened(endpoint, way, era) as client:
        answer = json.loads(text_of(await client.call_tool("up__ask", {"what": "sampling"})))

    assert answer["content"] == {"type": "text", "text": "the answer of good@small"}
    assert (answer["model"], answer["role"], answer["stopReason"]) == ("good@small", "assistant", "endTurn")
    assert endpoint.requests[0]["messages"] == [{"role": "user", "content": "Hello"}]
    assert endpoint.requests[0]["max_tokens"] == 10


@pytest.mark.parametrize("mode", ["legacy", STATELESS])
async def test_the_router_answers_a_plugin_whose_client_has_no_model(mode: str, endpoint: FakeEndpoint) -> None:
    plugin = Plugin("poet")

    @plugin.tool
    async def poem(ctx: Context) -> str:
        """Write a poem."""
        return (await ctx.sample("A poem", max_tokens=10)).text

    config = MODELS.put(IN_MEMORY, {"small": ModelSettings(url=endpoint.url, model="good@small")})
    config = ROUTER.put(config, RouterSettings(sampling=True))
    async with (
        open_app(config, plugins=[plugin], servers=[]) as app,
        Client(open_memory_endpoint(app.call_handler, app.sdk), mode=mode) as client,
    ):
        answer = await client.call_tool("poet__poem")

    assert data_of(answer) == "the answer of good@small"
    assert endpoint.requests[0]["messages"] == [{"role": "user", "content": "A poem"}]


@pytest.mark.parametrize("era", ["2025-11-25", STATELESS])
@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_the_router_answers_while_a_prompt_is_made_or_a_resource_read(
    way: Way, era: str, endpoint: FakeEndpoint
) -> None:
    async with opened(endpoint, way, era) as client:
        (message,) = (await client.get_prompt("up__ask")).messages
        (content,) = (await client.read_resource("ask://sampling")).contents

    assert isinstance(message.content, types.TextContent)
    assert isinstance(content, types.TextResourceContents)
    for text in (message.content.text, content.text):
        assert json.loads(text)["content"] == {"type": "text", "text": "the answer of good@small"}


@pytest.mark.parametrize("era", ["2025-11-25", STATELESS])
@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_client_that_has_a_model_answers_itself_and_other_requests_reach_it(
    way: Way, era: str, endpoint: FakeEndpoint
) -> None:
    async def sample(_context: Any, _params: Any) -> Any:
        return types.CreateMessageResult(role="assistant", content=types.TextContent(text="mine"), model="m")

    async def roots(_context: Any) -> Any:
        return types.ListRootsResult(roots=[types.Root.model_validate({"uri": "file:///here"})])

    async with opened(endpoint, way, era, sampling_callback=sample) as client:
        own = json.loads(text_of(await client.call_tool("up__ask", {"what": "sampling"})))
    async with opened(endpoint, way, era, list_roots_callback=roots) as client:
        both = json.loads(text_of(await client.call_tool("up__ask_twice", {"what": "sampling"})))

    assert own["content"]["text"] == "mine"
    assert both[0]["content"]["text"] == "the answer of good@small"
    assert both[1]["roots"][0]["uri"] == "file:///here"
    assert len(endpoint.requests) == 1


async def test_nothing_is_answered_unless_it_is_turned_on(endpoint: FakeEndpoint) -> None:
    async with opened(endpoint, QUICK_WAYS[0], "2025-11-25", sampling=False) as client:
        answer = json.loads(text_of(await client.call_tool("up__ask", {"what": "sampling"})))

    assert answer["refused"] == -32601
    assert endpoint.requests == []


@asynccontextmanager
async def sampler_of(endpoint: FakeEndpoint, **models: ModelSettings) -> AsyncIterator[RouterSampler]:
    config = MODELS.put(IN_MEMORY, dict(models))
    async with open_app(config) as app:
        router = app.service(Router)
        yield RouterSampler(
            router=router, timeout_s=5, models={name: model.model or name for name, model in models.items()}
        )


def request_of(**fields: Any) -> bytes:
    message = {"role": "user", "content": {"type": "text", "text": "Hello"}}
    return json.dumps({"messages": [message], "maxTokens": 10} | fields).encode()


async def test_the_server_states_its_preferences(endpoint: FakeEndpoint) -> None:
    cheap = ModelSettings(url=endpoint.url, model="good@haiku", input_price=0.1, preference=0.2)
    dear = ModelSettings(url=endpoint.url, model="good@opus", input_price=30.0, output_price=90.0, preference=0.9)
    async with sampler_of(endpoint, cheap=cheap, dear=dear) as sampler:

        async def model_for(**preferences: Any) -> str:
            answer = await sampler(request_of(modelPreferences=preferences), CALLER)
            return str(json.loads(answer)["model"])

        chosen = [
            await model_for(costPriority=1, intelligencePriority=0),
            await model_for(costPriority=0, intelligencePriority=1),
            await model_for(hints=[{"name": "Opus"}], costPriority=1),
            await model_for(hints=[{"name": "haiku"}, {"name": "opus"}], intelligencePriority=1),
            await model_for(hints=[{"name": "unknown"}, {}], costPriority=1, intelligencePriority=0),
        ]

    assert chosen == ["good@haiku", "good@opus", "good@opus", "good@haiku", "good@haiku"]


async def ask(sampler: RouterSampler, params: bytes) -> bytes:
    """Send a request as a server does whose client has no model."""
    return await with_sampling(None, CALLER, sampler).ask(SAMPLING, params)


async def test_requests_that_cannot_be_answered_are_refused(endpoint: FakeEndpoint) -> None:
    image = {"role": "user", "content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]}
    audio = {"role": "user", "content": {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}}
    async with sampler_of(endpoint, good=ModelSettings(url=endpoint.url)) as sampler:
        assert json.loads(await sampler(request_of(messages=[image]), CALLER))["model"] == "good"
        for params in (
            b"{}",
            b"nonsense",
            request_of(messages=[audio]),
            request_of(maxTokens=0),
            request_of(messages=3),
        ):
            with pytest.raises(ServerRefused) as caught:
                await ask(sampler, params)
            assert caught.value.code == -32602
    async with sampler_of(endpoint, broken=ModelSettings(url=endpoint.url)) as sampler:
        with pytest.raises(ServerRefused, match="No model answered") as caught:
            await ask(sampler, request_of())
        assert caught.value.code == -32603
    async with sampler_of(endpoint) as sampler:
        with pytest.raises(ServerRefused, match="No model is configured"):
            await ask(sampler, request_of())
