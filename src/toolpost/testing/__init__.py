"""Testing for tool authors: a real client on an in-memory transport, and a check that each argument matters."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from mcp import Client
from mcp_types import CallToolResult

from toolpost.app import App, open_app
from toolpost.authoring import Plugin
from toolpost.base.ids import Json, JsonObject
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.manifest import Part, bundled_parts
from toolpost.parts.agents import PART as AGENTS_PART
from toolpost.parts.agents import Conversations
from toolpost.parts.agents.agent import Agent
from toolpost.parts.agents.part import open_agents
from toolpost.parts.agents.testing import ScriptedAgent, ScriptedSession, acp_agent_command, echo
from toolpost.settings import Config
from toolpost.settings.model import LimitSettings, StoreSettings
from toolpost.upstreams.in_process import ServerObject

__all__ = [
    "Config",
    "LimitSettings",
    "ScriptedAgent",
    "ScriptedSession",
    "StoreSettings",
    "acp_agent_command",
    "assert_each_argument_matters",
    "client_of",
    "conversations_of",
    "data_of",
    "echo",
    "error_of",
    "open_test_app",
]

IN_MEMORY = Config(store=StoreSettings(url="sqlite::memory:"))


@asynccontextmanager
async def open_test_app(
    *plugins: Plugin | ServerObject,
    config: Config = IN_MEMORY,
    agents: Mapping[str, Agent] | None = None,
    parts: Sequence[Part] = (),
) -> AsyncIterator[App]:
    """Open a gateway with only these plugins and agents, and a store in memory."""
    opening = open_app(config, plugins=plugins, bundled=False, parts=[*parts_with(agents), *parts])
    single: BaseException | None = None
    try:
        async with opening as app:
            yield app
    except BaseExceptionGroup as group:
        if (single := _single_error(group)) is None:
            raise
    if single is not None:
        # A failed assertion is shown without the task groups around it. Outside of the handler: raised inside, it would have
        # the group as its context, which is shown too.
        raise single


def parts_with(agents: Mapping[str, Agent] | None) -> list[Part]:
    """Return the parts that come with Toolpost, with these agents among those that answer."""
    answering = replace(AGENTS_PART, opens=partial(open_agents, agents=agents))
    return [answering if part is AGENTS_PART else part for part in bundled_parts()]


def conversations_of(app: App) -> Conversations:
    """Return the conversations service of a gateway in this process."""
    return app.service(Conversations)


@asynccontextmanager
async def client_of(
    *plugins: Plugin | ServerObject, mode: str = "auto", config: Config = IN_MEMORY, **options: Any
) -> AsyncIterator[Client]:
    """Connect the official SDK's client to these plugins; it validates every result against the listed schema.

    `mode` is the client's: `auto`, `legacy` for the handshake era, or a revision such as `2026-07-28`. Further options are the
    client's too, such as an `elicitation_callback`.
    """
    single: BaseException | None = None
    try:
        async with (
            # Not `open_test_app`: an error that it raised without its group would have the client's group as context.
            open_app(config, plugins=plugins, bundled=False, parts=parts_with(None)) as app,
            Client(open_memory_endpoint(app.call_handler, app.sdk), mode=mode, **options) as client,
        ):
            yield client
    except BaseExceptionGroup as group:
        if (single := _single_error(group)) is None:
            raise
    if single is not None:
        raise single


def _single_error(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """Return the only error in nested groups; None if there are several."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        if len(error.exceptions) > 1:
            return None
        error = error.exceptions[0]
    return error


def data_of(answer: CallToolResult) -> Json:
    """Return the tool's data; fails the test, with the message, if the answer is an error."""
    payload = _payload(answer)
    assert not answer.is_error, f"the call failed: {json.dumps(payload, ensure_ascii=False)}"
    return payload["data"] if isinstance(payload, dict) and payload.get("ok") is True else payload


def error_of(answer: CallToolResult) -> JsonObject:
    """Return the error object; fails the test if the answer is not an error."""
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
    refused: Mapping[str, str] = MappingProxyType({}),
    shown: Callable[[Json], Any] = lambda data: data,
) -> None:
    """Assert that every argument which the tool declares changes its result.

    For each declared argument the tool is called with `base` until it answers the same twice, so that effects of an earlier
    call do not count as a difference, and then with that one argument changed to its value in `changed`. Fails for an
    argument without a changed value or without effect, for a tool whose answers differ at random, and for an error, unless
    `refused` has the argument with the code of that error. Arguments marked `x-reserved` must be refused. `shown` selects
    the part of the data to compare, where some of it differs from call to call.
    """
    listed = {definition.name: definition for definition in (await client.list_tools()).tools}
    assert tool in listed, f"unknown tool `{tool}`; listed: {', '.join(listed)}"
    declared: JsonObject = listed[tool].input_schema.get("properties", {})
    strange = (changed.keys() | refused.keys()) - declared.keys()
    assert not strange, f"`{tool}` declares no {', '.join(f'`{name}`' for name in sorted(strange))}"
    await _settle(client, tool, base, shown)
    for name, value in declared.items():
        is_reserved = isinstance(value, dict) and value.get("x-reserved")
        assert is_reserved or name in changed, f"`{name}` is declared, and `changed` has no value to try for it"
        usual = None if is_reserved else await _settle(client, tool, base, shown)
        answer = await client.call_tool(tool, base | {name: changed.get(name)})
        expected = "INVALID_PARAMS" if is_reserved else refused.get(name)
        if expected is not None:
            code = error_of(answer)["code"]
            assert code == expected, f"`{name}` is to be refused with {expected}, and changing it gave {code}"
            continue
        assert not answer.is_error, f"changing `{name}` gave an error, which proves nothing: {error_of(answer)}"
        assert shown(data_of(answer)) != usual, f"`{name}` is declared, and changing it makes no difference"


async def _settle(client: Client, tool: str, base: JsonObject, shown: Callable[[Json], Any]) -> Any:
    """Return the answer to `base` once two in a row are the same."""
    before = shown(data_of(await client.call_tool(tool, base)))
    for _ in range(3):
        now = shown(data_of(await client.call_tool(tool, base)))
        if now == before:
            return now
        before = now
    raise AssertionError(f"`{tool}` answers the same call differently each time: `shown` picks what is to be compared")


def _payload(answer: CallToolResult) -> Json:
    if answer.structured_content is not None:
        return answer.structured_content
    text = next(block.text for block in answer.content if block.type == "text")
    try:
        return json.loads(text)
    except ValueError:
        return text
