"""Requests for what does not exist, or what the caller may not see, are seen by the operator and do not fill log or audit."""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.hostile.attacks import attack
from tests.upstreams.servers.skillful import write_skill
from tests.upstreams.wires import duplex_wire
from tests.ways import AUTOMATIC, BEHAVIOURS, ENVELOPE, IN_MEMORY, QUICK_WAYS, STATELESS, Way, plugin_of
from tests.wire.callers import ERAS, Project, client_of
from tests.wire.test_callers import ask, served
from tests.wire.test_visibility import small
from toolpost import Plugin
from toolpost.app import open_app
from toolpost.audit import AuditFilter
from toolpost.base.ids import META_KEY
from toolpost.refusals import LINES
from toolpost.terminal.logging import TextFormatter

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

FLOOD = 60


def named_in(fields: dict[str, Any]) -> Any:
    return next(
        fields[key]
        for key in ("tool", "prompt", "resource", "skill", "server", "endpoint", "target", "method")
        if key in fields
    )


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str, Any, Any]]:
    """Return level, event, name and caller of the lines about names."""
    found = [record for record in caplog.records if record.name == "toolpost.refusals"]
    return [
        (record.levelno, record.message, named_in(record.__dict__["fields"]), record.__dict__["fields"]["caller"])
        for record in found
    ]


async def refused(request: Awaitable[Any]) -> None:
    with pytest.raises(MCPError):
        await request


@attack(
    "caller",
    "tries names of tools, resources, prompts and endpoints that it may not see, or that do not exist",
    "every request is counted, and a log line has caller and name; one of a tool that exists is a warning",
)
@pytest.mark.parametrize("mode", ERAS)
async def test_probing_is_seen(mode: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    config = Project(tmp_path).write('bob\ntags = ["a"]').load()
    async with served(config, small("one", "a"), small("two", "b")) as (app, url):
        async with client_of(url, "bob-token", mode) as client:
            await refused(client.call_tool("two__echo", {"text": "x"}))
            await refused(client.call_tool("nobody__echo", {"text": "x"}))
            await refused(client.get_prompt("two__secret"))
            await refused(client.read_resource("two://secret"))
            status = (await ask(f"{url}/server/two", "bob-token", {"jsonrpc": "2.0", "id": 1, "method": "ping"}))[0]
        counted = dict(app.gateway.metrics.names_refused.values())
        audited = await app.store.audit.entries(AuditFilter(), limit=10)

    assert status == 404
    assert lines(caplog) == [
        (logging.WARNING, "hidden tool", "two__echo", "bob"),
        (logging.INFO, "unknown tool", "nobody__echo", "bob"),
        (logging.INFO, "unknown prompt", "two__secret", "bob"),
        # The only server that bob sees is asked for it, and does not know it either.
        (logging.INFO, "request refused", "two://secret", "bob"),
        (logging.INFO, "unknown endpoint", "/mcp/server/two", "bob"),
    ]
    assert counted == {"tool": 2, "prompt": 1, "endpoint": 1}
    # Only what reached a server is a request to record.
    assert [record.entry.tool for record in audited] == ["resources/read"]


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_tool_that_automatic_eval_is_to_run_is_named(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with open_app(AUTOMATIC, plugins=[plugin_of(BEHAVIOURS)], bundled=False) as app:
        async with way.client_of(app) as client:
            answer = await client.call_tool("automatic_eval", {"toolName": "does__nope", "arguments": {}})
            await refused(client.call_tool("does__echo", {"text": "it exists, under the two tools of this mode alone"}))
        audited = await app.store.audit.entries(AuditFilter(), limit=10)

    assert answer.is_error
    assert [line[:3] for line in lines(caplog)] == [
        (logging.INFO, "unknown tool", "does__nope"),
        (logging.INFO, "unknown tool", "does__echo"),
    ]
    assert [record.entry.tool for record in audited] == ["automatic_eval"]
    assert not [record for record in caplog.records if record.message in ("call failed", "tool failed")]


def offering() -> Plugin:
    """A plugin with a prompt and a resource, so that both methods exist."""
    plugin = Plugin("offers", version="1.0.0")

    @plugin.prompt
    def known() -> str:
        """A prompt."""
        return "known"

    @plugin.resource("offers://known")
    def words() -> str:
        """Words."""
        return "known"

    return plugin


FLOODS: dict[str, Callable[[Client, int], Awaitable[Any]]] = {
    "tool": lambda client, number: client.call_tool(f"does__{number}" + "\n\x1b[31m" + "x" * 1_000, {}),
    "prompt": lambda client, number: client.get_prompt(f"offers__{number}" + "\n\x1b[31m" + "x" * 1_000),
    "resource": lambda client, number: client.read_resource(f"offers://{number}-" + "x" * 1_000),
}


@attack(
    "caller",
    "asks for a thousand different names, long ones and with control characters",
    "ten log lines in ten seconds, each short and on one line, the next says how many it stands for; no audit entries",
)
@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_of_names_fills_neither_log_nor_audit(
    kind: str, way: Way, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    now = [100.0]
    monkeypatch.setattr("toolpost.base.log_limit.time", type("Clock", (), {"monotonic": staticmethod(lambda: now[0])}))
    async with open_app(IN_MEMORY, plugins=[offering()], bundled=False) as app:
        async with way.client_of(app) as client:
            for number in range(FLOOD):
                await refused(FLOODS[kind](client, number))
            now[0] += 10.0
            await refused(FLOODS[kind](client, FLOOD))
        counted = app.gateway.metrics.names_refused.value(kind)
        audited = await app.store.audit.entries(AuditFilter(), limit=10)

    found = [record for record in caplog.records if record.name == "toolpost.refusals"]
    assert counted == FLOOD + 1
    assert audited == []
    assert [record.__dict__["fields"]["requests"] for record in found] == [None] * LINES + [FLOOD - LINES + 1]
    texts = [TextFormatter().format(record) for record in found]
    assert max(map(len, texts)) < 400
    assert all(text.isprintable() for text in texts)


ASKED: dict[str, Callable[[int], tuple[str, dict[str, Any], dict[str, Any] | None]]] = {
    "skill": lambda number: ("skills/get", {"uri": f"skill://offers/{number}/SKILL.md"}, None),
    "method": lambda number: (f"vendor/{number}", {}, None),
    "server": lambda number: ("resources/read", {"uri": "offers://known"}, {META_KEY: {"server": str(number)}}),
}


@attack(
    "caller",
    "asks for skills, methods of extensions and servers by names that it makes up",
    "the same: ten log lines in ten seconds with caller and name, a counter, no audit entries",
)
@pytest.mark.parametrize("is_stateless", [False, True], ids=["handshake", "modern"])
@pytest.mark.parametrize("kind", ASKED)
async def test_other_names_are_limited_in_the_same_way(
    kind: str, is_stateless: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    plugin = offering()
    write_skill(tmp_path, "refunds")
    plugin.skills(tmp_path)
    async with open_app(IN_MEMORY, plugins=[plugin], bundled=False) as app:
        async with duplex_wire(app, {}, is_stateless=is_stateless, name="bob") as wire:
            for number in range(LINES + 2):
                assert "error" in await wire.ask(*ASKED[kind](number))
        counted = app.gateway.metrics.names_refused.value(kind)
        audited = await app.store.audit.entries(AuditFilter(), limit=10)

    assert counted == LINES + 2
    assert audited == []
    assert [line[1:] for line in lines(caplog)] == [
        (
            f"unknown {kind}",
            ASKED[kind](number)[1].get("uri", f"vendor/{number}") if kind != "server" else str(number),
            "bob",
        )
        for number in range(LINES)
    ]


async def test_notifications_for_nobody_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with open_app(IN_MEMORY, plugins=[offering()], bundled=False) as app:
        async with duplex_wire(app, {}, is_stateless=False, name="bob") as wire:
            for number in range(FLOOD):
                await wire.notify(f"notifications/vendor/{number}")
            await wire.ask("ping")

    assert (
        len([record for record in caplog.records if "notifications/vendor/" in str(record.__dict__.get("fields"))])
        == LINES
    )
    assert {line[3] for line in lines(caplog)} == {"bob"}


async def test_malformed_requests_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    headers = {"mcp_protocol_version": STATELESS, "mcp_method": "tools/call", "mcp_name": "does__echo"}
    async with served(IN_MEMORY) as (_, url):
        for number in range(LINES + 5):
            message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": 7, "_meta": ENVELOPE}}
            assert (await ask(url, "", message, **headers))[0] == 400

    assert len([record for record in caplog.records if record.message == "request refused"]) == LINES
