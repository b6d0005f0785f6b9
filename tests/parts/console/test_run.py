"""`POST /api/console/call`: a call for the playground, as a browser sends it."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.parts.console.conftest import OpenSite, Site
from tests.parts.console.test_tools import CALLERS, TOKENS, make_shop, tokens
from tests.upstreams.behind import SERVERS
from toolpost.audit import AuditFilter
from toolpost.authoring import Context, Plugin
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.contracts.errors import Forbidden
from toolpost.credentials.vault import Vault
from toolpost.endpoints.http.request import HttpRequest
from toolpost.endpoints.tasks.polled_channel import PolledChannel
from toolpost.parts.approvals.rounds import RoundId
from toolpost.parts.approvals.service import Approvals
from toolpost.parts.console.api.run import CallStream
from toolpost.settings.key_place import key_place_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

__all__ = ["tokens"]  # a fixture


def make_slow() -> Plugin:
    plugin = Plugin("slow", version="1.0.0")

    @plugin.tool
    async def work(ctx: Context) -> str:
        """Work until it is cancelled."""
        ctx.progress(1, 3, "began")
        await anyio.sleep(60)
        return "never"

    @plugin.tool
    async def steps(ctx: Context) -> int:
        """Do three steps."""
        for step in range(3):
            ctx.progress(step + 1, 3, f"step {step + 1}")
            await anyio.sleep(0.01)
        return 3

    return plugin


async def run(opened: Site, **body: Any) -> list[dict[str, Any]]:
    """Call a tool; returns all events."""
    async with opened.http.stream("POST", "/api/console/call", json=body) as answer:
        assert answer.headers["content-type"] == "text/event-stream", await answer.aread()
        return [event async for event in events_of(answer)]


async def events_of(answer: Any) -> AsyncIterator[dict[str, Any]]:
    async for line in answer.aiter_lines():
        if line.startswith("data:"):
            yield json.loads(line[5:])


async def test_a_call_is_run_with_progress_and_audited(site: OpenSite) -> None:
    async with site("", make_slow(), log_in=True) as opened:
        started, *progress, last = await run(opened, tool="slow__steps", arguments={})
        (record,) = await opened.app.store.audit.entries(AuditFilter(), limit=10)

    assert started["type"] == "started"
    assert [event["message"] for event in progress] == ["step 1", "step 2", "step 3"]
    assert (last["type"], last["result"]["structuredContent"]) == ("result", {"ok": True, "data": 3})
    assert (record.entry.call_id, record.entry.caller, record.entry.outcome) == (started["callId"], "local", "ok")


async def test_arguments_that_are_refused_come_back_with_their_issues(site: OpenSite) -> None:
    async with site("", make_shop(), log_in=True) as opened:
        *_, last = await run(opened, tool="shop__cancel_order", arguments={"number": "12"})
        unknown = await opened.post("/call", tool="shop__nothing", arguments={})
        no_object = await opened.post("/call", tool="shop__cancel_order", arguments=[1])

    error = last["result"]["structuredContent"]["error"]
    assert error["code"] == "INVALID_PARAMS"
    assert [(issue["path"], issue["suggestion"]) for issue in error["details"]["issues"]] == [
        ("/number", "send 12 without quotes")
    ]
    assert (unknown.status_code, no_object.status_code) == (400, 400)
    assert "shop__" in unknown.json()["error"]["hint"] or "tools/list" in unknown.json()["error"]["hint"]


async def test_closing_the_stream_cancels_the_call(site: OpenSite) -> None:
    async with site("", make_slow(), log_in=True) as opened:
        body = {"tool": "slow__work", "arguments": {}}
        async with opened.http.stream("POST", "/api/console/call", json=body) as answer:
            events = events_of(answer)
            seen = [(await anext(events))["type"] for _ in range(2)]
        with anyio.fail_after(30):
            while not (found := await opened.app.store.audit.entries(AuditFilter(), limit=10)):
                await anyio.sleep(0.02)

    assert seen == ["started", "progress"]
    assert [(one.entry.tool, one.entry.outcome) for one in found] == [("slow__work", "cancelled")]


async def test_a_call_needs_the_secret_and_comes_from_the_page(site: OpenSite) -> None:
    async with site("", make_shop()) as opened:
        body = {"tool": "shop__list_orders", "arguments": {"customer": "x"}}
        without = await opened.post("/call", **body)
        await opened.log_in()
        foreign = [
            await opened.http.post("/api/console/call", json=body, headers=headers)
            for headers in ({"Origin": "http://127.0.0.1:9"}, {"Sec-Fetch-Site": "same-site"}, {"X-Toolpost": "0"})
        ]
        inside = await run(opened, **body)
        recorded = await opened.app.store.audit.entries(AuditFilter(), limit=10)

    assert without.status_code == 403
    assert without.json()["error"]["details"]["needs"] == "secret"
    assert [answer.status_code for answer in foreign] == [403] * 3
    assert inside[-1]["result"]["structuredContent"] == {"ok": True, "data": ["x"]}
    assert len(recorded) == 1


async def test_an_administrator_runs_with_the_rights_of_another_and_the_audit_names_both(site: OpenSite) -> None:
    async with site(CALLERS, make_shop(), token=TOKENS["ann"]) as opened:
        *_, last = await run(opened, tool="shop__list_orders", arguments={"customer": "x"}, caller="ben")
        beyond = await opened.post("/call", tool="shop__cancel_order", arguments={"number": 1}, caller="ben")
        nobody = await opened.post("/call", tool="shop__list_orders", arguments={"customer": "x"}, caller="eve")
        *_, own = await run(opened, tool="shop__cancel_order", arguments={"number": 1})
        opened.http.headers["Authorization"] = f"Bearer {TOKENS['ben']}"
        not_admin = await opened.post("/call", tool="shop__list_orders", arguments={"customer": "x"}, caller="ann")
        *_, bens = await run(opened, tool="shop__list_orders", arguments={"customer": "x"})
        recorded = await opened.app.store.audit.entries(AuditFilter(), limit=10)

    assert last["result"]["structuredContent"]["ok"]
    assert (beyond.status_code, nobody.status_code, not_admin.status_code) == (400, 404, 403)
    assert own["result"]["structuredContent"]["ok"]
    assert bens["result"]["structuredContent"]["ok"]
    assert [(one.entry.caller, one.entry.tool) for one in recorded] == [
        ("ann as ben", "shop__list_orders"),
        ("ann", "shop__cancel_order"),
        ("ben", "shop__list_orders"),
    ]


async def test_an_administrator_never_uses_the_credentials_of_another(site: OpenSite, tmp_path: Path) -> None:
    args = json.dumps(["-S", "-E", str(SERVERS / "whoami.py"), "--version", "2025-11-25"])
    server = f'[servers.who]\ncommand = "{sys.executable}"\nargs = {args}\nenv = {{WHOAMI_KEY = "${{caller:KEY}}"}}\n'
    open_to_all = CALLERS.replace('tools = ["shop__list_*"]\n', "")
    store = f"sqlite:{tmp_path / 'store.db'}"
    async with site(open_to_all + server, token=TOKENS["ann"], store=store) as opened:
        vault = Vault(opened.app.store, key_place_of(opened.app.config))
        await vault.put("who", "ben", "KEY", b"key-ben")
        await opened.app.servers.open_for("ben")
        without = await opened.post("/call", tool="who__whoami", arguments={}, caller="ben")
        await vault.put("who", "ann", "KEY", b"key-ann")
        await opened.app.servers.open_for("ann")
        *_, acted = await run(opened, tool="who__whoami", caller="ben")
        opened.http.headers["Authorization"] = f"Bearer {TOKENS['ben']}"
        *_, own = await run(opened, tool="who__whoami")

    assert "key-ben" not in json.dumps(acted)
    assert without.status_code == 400, without.text
    assert "key-ann" in json.dumps(acted)
    assert "key-ben" in json.dumps(own)


async def test_nobody_votes_or_asks_for_approval_as_another(site: OpenSite) -> None:
    rules = '[approvals.rules.money]\ntools = ["shop__cancel_order"]\nvoters = ["ann", "ben"]\nvotes = 1\n'
    open_to_all = CALLERS.replace('tools = ["shop__list_*"]\n', "")
    async with site(open_to_all + rules, make_shop(), token=TOKENS["ann"]) as opened:
        *_, asked = await run(opened, tool="shop__cancel_order", arguments={"number": 1}, caller="ben")
        waiting = (await opened.http.get("/api/approvals")).json()["rounds"]
        as_ben = Caller(id=CallerId("ben"), transport="http", acted_by=CallerId("ann"))
        with pytest.raises(Forbidden, match="by the voter alone"):
            await opened.app.service(Approvals).vote(RoundId(1), "approve", by=as_ben)

    error = asked["result"]["structuredContent"]["error"]
    assert (error["code"], "its caller alone" in error["message"]) == ("FORBIDDEN", True)
    assert waiting == []


async def test_what_a_server_wrote_in_several_lines_is_one_event() -> None:
    sent: list[bytes] = []

    async def send(event: dict[str, Any]) -> None:
        sent.append(event["body"])

    scope = {"method": "POST", "path": "/api/console/call", "headers": []}
    stream = CallStream(HttpRequest(scope, anyio.sleep_forever, send), PolledChannel(CallerId("ann"), {}))
    await stream._send(b'{"type": "result",\n\n"result": {"n": 1.50, "text": "a\\n\\nb"}}')

    assert sent == [b'data: {"type":"result","result":{"n":1.50,"text":"a\\n\\nb"}}\n\n']
