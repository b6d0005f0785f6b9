"""Middleware that says which tools it applies to is left out of the calls of all others, which keep the fast path."""

import logging
from typing import Any

import pytest

from tests.upstreams.behind import gateway, hostile
from tests.ways import Way
from toolpost import CallRequest, CallResult, Forbidden, Next, Plugin
from toolpost.authoring.middleware import ToolInfo
from toolpost.middleware.fast_path import FastPath
from toolpost.testing import error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

HTTP = Way("http", "2026-07-28")


class Refusal:
    """Refuses calls of tools whose name has a word in it."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.asked: list[str] = []

    def may_apply(self, tool: ToolInfo) -> bool:
        self.asked.append(tool.name)
        return self.word in tool.name

    async def __call__(self, call: CallRequest, proceed: Next) -> CallResult:
        raise Forbidden("Not this one.")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tools whose calls the fast path has sent."""
    names: list[str] = []
    start = FastPath.start

    def note(path: FastPath, call: Any, delivery: Any) -> bool:
        if is_sent := start(path, call, delivery):
            names.append(call.tool.contract.name)
        return is_sent

    monkeypatch.setattr(FastPath, "start", note)
    return names


async def test_tools_that_middleware_does_not_apply_to_keep_the_fast_path(sent: list[str]) -> None:
    refusal = Refusal("pid")
    async with gateway(hostile(), way=HTTP, plugins=[Plugin("around", middleware=[refusal])]) as (_, client):
        await client.call_tool("up__echo", {"text": "started"})
        sent.clear()
        refusal.asked.clear()
        for _ in range(3):
            assert not (await client.call_tool("up__echo", {"text": "hi"})).is_error
        refused = error_of(await client.call_tool("up__pid", {}))

    assert sent == ["up__echo"] * 3
    assert refused["code"] == "FORBIDDEN"
    assert refusal.asked.count("up__echo") <= 1, "evaluated once for each tool"


async def test_middleware_without_a_predicate_applies_to_every_tool(sent: list[str]) -> None:
    async def look(call: CallRequest, proceed: Next) -> CallResult:
        return await proceed(call)

    async with gateway(hostile(), way=HTTP, plugins=[Plugin("around", middleware=[look])]) as (_, client):
        for _ in range(3):
            assert not (await client.call_tool("up__echo", {"text": "hi"})).is_error

    assert sent == []


async def test_a_predicate_that_returns_nothing_means_that_it_applies() -> None:
    class Forgetful(Refusal):
        def may_apply(self, tool: ToolInfo) -> bool:
            return None  # type: ignore[return-value]

    async with gateway(hostile(), plugins=[Plugin("around", middleware=[Forgetful("")])]) as (_, client):
        refused = error_of(await client.call_tool("up__echo", {"text": "hi"}))

    assert refused["code"] == "FORBIDDEN"


async def test_a_predicate_that_fails_means_that_it_applies(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Refusal):
        def may_apply(self, tool: ToolInfo) -> bool:
            raise RuntimeError("a bug")

    with caplog.at_level(logging.ERROR):
        async with gateway(hostile(), plugins=[Plugin("around", middleware=[Broken("")])]) as (_, client):
            refused = error_of(await client.call_tool("up__echo", {"text": "hi"}))

    assert refused["code"] == "FORBIDDEN"
    assert "may_apply failed" in caplog.text
