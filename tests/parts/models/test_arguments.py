"""Each argument of each tool of the router does something, as a client sees it."""

from typing import Any

import pytest

from tests.parts.models.endpoints import FakeEndpoint
from tests.parts.models.test_tools import asked
from tests.proofs import proves
from tests.ways import IN_MEMORY, QUICK_WAYS
from toolpost.app import open_app
from toolpost.parts.models.settings import MODELS, ModelSettings

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


def poets_and_lawyers(endpoint: FakeEndpoint) -> Any:
    return MODELS.put(
        IN_MEMORY,
        {
            "poet": ModelSettings(url=endpoint.url, model="good@poet", domains=["poetry"], skills=["rhymes"]),
            "lawyer": ModelSettings(url=endpoint.url, model="good@law", domains=["law"], skills=["contracts"]),
            "small": ModelSettings(url=endpoint.url, model="good@small", context=10, preference=0.0),
        },
    )


@proves("models__router_score", "prompt", "context")
async def test_router_score(endpoint: FakeEndpoint) -> None:
    async with open_app(poets_and_lawyers(endpoint)) as app, QUICK_WAYS[0].client_of(app) as client:

        async def winner(prompt: str = "?", **context: Any) -> Any:
            return (await asked(client, "router_score", prompt=prompt, context=context))["winner"]

        by_prompt = [await winner("a poem with rhymes"), await winner("a contract under the law")]
        by_domain = [await winner(task={"domain": "poetry"}), await winner(task={"domain": "law"})]
        by_skill = [await winner(task={"skill": ["rhymes"]}), await winner(task={"skill": ["contracts"]})]
        by_preference = [await winner(operatorPreference={name: 1.0}) for name in ("poet", "lawyer")]
        roomy = await winner(operatorPreference={"small": 1.0, "poet": 0.0, "lawyer": 0.0}, task={"tokens": 1})
        full = await winner(operatorPreference={"small": 1.0, "poet": 0.0, "lawyer": 0.1}, task={"tokens": 11})
        await asked(client, "router_call", prompt="x", models=["poet"])
        scores = [
            (await asked(client, "router_score", prompt="x", context={"task": {"deadline_ms": ms}}))["factors"]["poet"]
            for ms in (1, 100_000)
        ]

    assert by_prompt == by_domain == by_skill == by_preference == ["poet", "lawyer"]
    assert roomy == "small"
    assert full == "lawyer"
    assert scores[0]["latency"] < scores[1]["latency"]


@proves("models__router_call", "prompt", "context", "system", "models", "max_tokens", "temperature")
async def test_router_call(endpoint: FakeEndpoint) -> None:
    async with open_app(poets_and_lawyers(endpoint)) as app, QUICK_WAYS[0].client_of(app) as client:
        by_context = [
            (await asked(client, "router_call", prompt="?", context={"task": {"domain": domain}}))["model"]
            for domain in ("law", "poetry")
        ]
        named = [
            (await asked(client, "router_call", prompt="?", models=[name]))["model"] for name in ("poet", "lawyer")
        ]
        await asked(client, "router_call", prompt="hi", system="be brief", max_tokens=7, temperature=0.25)

    assert (by_context, named) == (["lawyer", "poet"], ["poet", "lawyer"])
    sent = endpoint.requests[-1]
    assert [message["content"] for message in sent["messages"]] == ["be brief", "hi"]
    assert (sent["max_tokens"], sent["temperature"]) == (7, 0.25)


@proves("models__router_fallback", "reset")
@proves("models__router_stats")
async def test_router_fallback_and_stats(endpoint: FakeEndpoint) -> None:
    config = MODELS.put(IN_MEMORY, {name: ModelSettings(url=endpoint.url, model="broken") for name in ("a", "b")})
    async with open_app(config) as app, QUICK_WAYS[0].client_of(app) as client:
        for _ in range(3):
            await client.call_tool("models__router_call", {"prompt": "?"})
        states = [
            [one["state"] for one in (await asked(client, "router_fallback", **reset))["circuitState"].values()]
            for reset in ({}, {"reset": False}, {"reset": "b"}, {"reset": True})
        ]
        stats = await asked(client, "router_stats")

    assert states == [["open", "open"], ["open", "open"], ["open", "closed"], ["closed", "closed"]]
    assert [one["failures"] for one in stats["models"].values()] == [3, 3]
