"""What a tool's author tests with: a real client on an in-memory transport, and a proof that each argument matters."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client
from mcp_types import CallToolResult

from toolpost.app import open_app
from toolpost.authoring import Plugin
from toolpost.config import Config, StoreSettings
from toolpost.contracts.ids import Json, JsonObject
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.harness import Agent
from toolpost.running import App
from toolpost.testing.agents import ScriptedAgent, ScriptedSession, acp_agent_command, echo

__all__ = [
    "ScriptedAgent",
    "ScriptedSession",
    "acp_agent_command",
    "assert_each_argument_matters",
    "client_of",
    "data_of",
    "echo",
    "error_of",
    "open_test_app",
]

IN_MEMORY = Config(store=StoreSettings(url="sqlite::memory:"))


@asynccontextmanager
async def open_test_app(
    *plugins: Plugin, config: Config = IN_MEMORY, agents: Mapping[str, Agent] | None = None
) -> AsyncIterator[App]:
    """Open a Toolpost that serves these plugins alone, has these agents answer, and remembers nothing."""
    async with open_app(config, plugins=plugins, bundled=False, agents=agents) as app:
        yield app


@asynccontextmanager
async def client_of(*plugins: Plugin, mode: str = "auto", config: Config = IN_MEMORY) -> AsyncIterator[Client]:
    """Serve these plugins to the official SDK's client, which validates every result against the listed schema.

    `mode` is the client's: `auto`, `legacy` for the handshake era, or a revision such as `2026-07-28`.
    """
    async with (
        open_test_app(*plugins, config=config) as app,
        Client(open_memory_endpoint(app.lane, app.sdk), mode=mode) as client,
    ):
        yield client


def data_of(answer: CallToolResult) -> Json:
    """Return what the tool returned; an answer that is an error fails the test, with its message."""
    payload = _payload(answer)
    assert not answer.is_error, f"the call failed: {json.dumps(payload, ensure_ascii=False)}"
    return payload["data"] if isinstance(payload, dict) and payload.get("ok") is True else payload


def error_of(answer: CallToolResult) -> JsonObject:
    """Return the error object; an answer that is no error fails the test."""
    payload = _payload(answer)
    assert answer.is_error, f"the call succeeded: {json.dumps(payload, ensure_ascii=False)}"
    assert isinstance(payload, dict)
    error = payload.get("error", payload)
    assert isinstance(error, dict)
    return error


async def assert_each_argument_matters(
    client: Client,
    tool: str,
    *,
    base: JsonObject,
    changed: Mapping[str, Json],
    shown: Callable[[Json], Any] = lambda data: data,
) -> None:
    """Prove that every argument which the tool declares changes what it does.

    Calls the tool with `base`, then once per declared argument with that argument changed to its value in `changed`, and
    fails for an argument that has no changed value, is refused, or makes no difference. Arguments marked `x-reserved` must
    be refused. `shown` picks the part of the data to compare, where some of it differs from call to call by itself.
    """
    schema = await _input_schema(client, tool)
    usual = shown(data_of(await client.call_tool(tool, base)))
    for name, declared in schema.get("properties", {}).items():
        if isinstance(declared, dict) and declared.get("x-reserved"):
            refusal = error_of(await client.call_tool(tool, base | {name: changed.get(name)}))
            assert refusal["code"] == "INVALID_PARAMS", f"`{name}` is reserved, and setting it gave {refusal['code']}"
            continue
        assert name in changed, f"`{name}` is declared, and `changed` has no value to try for it"
        answer = await client.call_tool(tool, base | {name: changed[name]})
        if answer.is_error:
            assert error_of(answer)["code"] != "INVALID_PARAMS", f"`{name}`: {error_of(answer)['message']}"
            continue
        assert shown(data_of(answer)) != usual, f"`{name}` is declared, and changing it makes no difference"


async def _input_schema(client: Client, tool: str) -> JsonObject:
    listed = {definition.name: definition for definition in (await client.list_tools()).tools}
    assert tool in listed, f"no tool is called `{tool}`; listed: {', '.join(listed)}"
    return listed[tool].input_schema


def _payload(answer: CallToolResult) -> Json:
    if answer.structured_content is not None:
        return answer.structured_content
    text = next(block.text for block in answer.content if block.type == "text")
    try:
        return json.loads(text)
    except ValueError:
        return text
