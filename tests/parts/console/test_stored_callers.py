"""`/api/console/callers`: callers that are made and removed while gateways run, with tokens of which only hashes are stored."""

import json
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from tests.hostile.attacks import attack
from tests.parts.console.conftest import API, OpenSite, Site
from tests.parts.console.test_tools import TOKENS, make_shop, tokens
from tests.waiting import until
from tests.wire.callers import client_of, names
from toolpost.authoring import Plugin
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.endpoints.auth import roster, stored_callers
from toolpost.store.callers import hash_token

pytestmark = [pytest.mark.anyio, pytest.mark.wire, pytest.mark.every_store]

__all__ = ["tokens"]  # a fixture

CALLERS = """
[callers.ann]
token = "${TOKEN_ANN}"
admin = true
[callers.ben]
token = "${TOKEN_BEN}"
"""


def make_zoo(name: str = "zoo") -> Plugin:
    plugin = Plugin(name, version="1.0.0")

    @plugin.tool
    async def feed(animal: str) -> str:
        """Feed an animal."""
        return animal

    return plugin


PLUGINS = (make_shop(), make_zoo(), make_zoo("farm"))


async def status_of(site: Site, token: str, path: str = "/api/console/views") -> int:
    """Return 200 for a token that is accepted, 401 for any other; each time on the same connection."""
    return (await site.http.get(path, headers={"Authorization": f"Bearer {token}"})).status_code


async def rows_of(site: Site) -> dict[str, dict[str, Any]]:
    return {row["caller"]: row for row in (await site.get("/callers/usage"))["callers"]}


async def test_a_new_caller_has_a_token_and_sees_what_it_was_given(
    site: OpenSite, store_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = {"tools": ["zoo__*", "shop__*"], "mode": "readonly"}
    async with site(CALLERS, *PLUGINS, token=TOKENS["ann"], store=store_url, log_in=True) as opened:
        preview = await opened.change("/callers/preview", **limits)
        made = await opened.change("/callers/add", name="cleo", **limits)
        seen = await opened.get("/callers/tools", caller="cleo")
        row = (await rows_of(opened))["cleo"]
        async with client_of(f"{opened.http.base_url}/mcp", made["token"], "2026-07-28") as client:
            listed = await names(client)
        own = {"Authorization": f"Bearer {made['token']}"}
        session = (await opened.http.get(f"{API}/session", headers=own)).json()
        stored = str(await opened.app.store.callers.all()) + (await _dump(opened))

    assert listed == ["shop__list_orders"], "the zoo has no tool that only reads"
    assert preview == {"total": 1, "servers": [{"name": "shop", "tools": listed}]}
    assert seen == {"caller": "cleo", **preview}
    assert (row["isStored"], row["isShadowed"], row["isConfigured"], row["madeBy"]) == (True, False, True, "ann")
    assert (row["ways"], row["tools"]) == (["token"], 1)
    assert (session["caller"], session["isAdmin"]) == ("cleo", False)
    assert len(made["token"]) >= 43
    assert "cleo" in stored
    assert made["token"] not in stored
    assert all(made["token"].encode() not in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert made["token"] not in caplog.text


async def _dump(site: Site) -> str:
    from toolpost.store.tables import TABLES

    found = next(table for table in TABLES if table.name == "callers")
    return str(await site.app.store.tables.up_to(found, None, None))


async def test_a_removed_caller_is_out_at_once_here_and_soon_at_the_other_gateways(
    site: OpenSite, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_callers, "LOOK_S", 3_600.0)  # it is woken
    async with site(CALLERS, *PLUGINS, token=TOKENS["ann"], store=store_url, log_in=True) as one:
        async with site(CALLERS, *PLUGINS, token=TOKENS["ann"], store=store_url) as two:
            made = await one.change("/callers/add", name="cleo", tools=["zoo__*"])
            token = made["token"]

            async def is_known_there() -> bool:
                return await status_of(two, token) == 200

            async def is_unknown_there() -> bool:
                return await status_of(two, token) == 401

            assert await status_of(one, token) == 200
            await until(is_known_there)
            await one.change("/callers/remove", name="cleo")
            assert await status_of(one, token) == 401, "at once, on a connection that is open"
            await until(is_unknown_there)
            again = await one.post("/callers/remove", name="cleo")
            left = await rows_of(one)
    assert again.status_code == 404
    assert list(left) == ["ann", "ben"]


async def test_what_a_removed_caller_has_open_ends(site: OpenSite) -> None:
    async with site(CALLERS, *PLUGINS, token=TOKENS["ann"], log_in=True) as opened:
        token = (await opened.change("/callers/add", name="cleo"))["token"]
        headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
        ended, is_open = anyio.Event(), anyio.Event()

        async def listen() -> None:
            async with opened.http.stream("GET", f"{API}/events", headers=headers) as stream:
                async for _ in stream.aiter_bytes():
                    is_open.set()
            ended.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            await is_open.wait()
            # Another caller comes and goes: that ends nothing.
            await opened.change("/callers/add", name="dan")
            await opened.change("/callers/remove", name="dan")
            await anyio.wait_all_tasks_blocked()
            assert not ended.is_set()
            await opened.change("/callers/remove", name="cleo")
            with anyio.fail_after(60):
                await ended.wait()


async def test_a_token_is_still_valid_after_a_restart_and_a_reload(site: OpenSite, store_url: str) -> None:
    async with site(CALLERS, *PLUGINS, token=TOKENS["ann"], store=store_url, log_in=True) as opened:
        token = (await opened.change("/callers/add", name="cleo", tags=["x"]))["token"]
    async with site(CALLERS, *PLUGINS, token=TOKENS["ann"], store=store_url) as opened:
        assert await status_of(opened, token) == 200
        path = opened.folder / "toolpost.toml"
        path.write_text(path.read_text().replace("[callers.ben]", "[callers.bob]"))

        async def has_bob() -> bool:
            return "bob" in await rows_of(opened)

        await until(has_bob)
        assert await status_of(opened, token) == 200
        assert (await rows_of(opened))["cleo"]["limits"] == ["tags x"]


async def test_a_caller_of_the_file_wins(site: OpenSite) -> None:
    async with site(CALLERS, *PLUGINS, token=TOKENS["ann"], log_in=True) as opened:
        taken = await opened.post("/callers/add", name="ben")
        token = (await opened.change("/callers/add", name="cleo"))["token"]
        twice = await opened.post("/callers/add", name="cleo")
        path = opened.folder / "toolpost.toml"
        before = path.read_text()
        path.write_text(before.replace("[callers.ben]", "[callers.cleo]"))

        async def is_shadowed() -> bool:
            return bool((await rows_of(opened))["cleo"]["isShadowed"])

        async def is_back() -> bool:
            return not await is_shadowed()

        await until(is_shadowed)
        statuses = [await status_of(opened, each) for each in (token, TOKENS["ben"])]
        whose = (await opened.http.get(f"{API}/session", headers={"Authorization": f"Bearer {TOKENS['ben']}"})).json()
        path.write_text(before)
        await until(is_back)
        statuses.append(await status_of(opened, token))

    assert [answer.status_code for answer in (taken, twice)] == [400, 400]
    assert "toolpost.toml" in taken.json()["error"]["message"]
    assert (statuses, whose["caller"]) == ([401, 200, 200], "cleo")


async def test_where_no_token_is_required_there_are_no_callers_to_make(site: OpenSite, store_url: str) -> None:
    async with site("", *PLUGINS, store=store_url, log_in=True) as opened:
        refused = await opened.post("/callers/add", name="cleo")
    assert refused.status_code == 400
    assert "TOOLPOST_TOKEN" in refused.json()["error"]["hint"]

    # The first caller does not shut out who needed no token, and the last does not let everybody in.
    async with site(CALLERS, *PLUGINS, token=TOKENS["ann"], store=store_url, log_in=True) as opened:
        token = (await opened.change("/callers/add", name="cleo"))["token"]
        kept = (await opened.change("/callers/add", name="dan"))["token"]
        await opened.change("/callers/remove", name="cleo")
        assert (await status_of(opened, token), await status_of(opened, kept)) == (401, 200)
    async with site("", *PLUGINS, store=store_url) as opened:
        assert (await opened.get("/session"))["caller"] == "local"
        row = (await rows_of(opened))["dan"]
    assert (row["isStored"], row["isShadowed"], row["isConfigured"]) == (True, True, False)


BAD = {
    "no name": {},
    "a reserved name": {"name": "token"},
    "the name of people": {"name": "cleo:sub"},
    "an unknown mode": {"name": "cleo", "mode": "root"},
    "an empty tag": {"name": "cleo", "tags": [""]},
    "an empty pattern": {"name": "cleo", "tools": ["!"]},
    "an administrator": {"name": "cleo", "admin": True},
    "a token of its own": {"name": "cleo", "token": "guessable"},
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
async def test_what_no_caller_can_be(site: OpenSite, body: dict[str, Any]) -> None:
    async with site(CALLERS, *PLUGINS, token=TOKENS["ann"], log_in=True) as opened:
        refused = await opened.post("/callers/add", **body)
        left = await opened.app.store.callers.all()
    assert (refused.status_code, left) == (400, [])


@attack(
    "caller",
    "has a caller's token, an agent's or an administrator's without the secret, and makes a caller that outlives it",
    "a caller is made by an administrator whose browser has the terminal's secret, and never has `admin`",
)
async def test_who_may_make_callers(site: OpenSite) -> None:
    async with site(CALLERS, *PLUGINS, token=TOKENS["ann"]) as opened:
        answers = [await opened.post("/callers/add", name="eve")]
        await opened.log_in()
        token = (await opened.change("/callers/add", name="cleo"))["token"]
        agent = "tpd-" + "a" * 43
        opened.app.roster.delegate(agent.encode(), Caller(id=CallerId("ann"), transport="agent", is_admin=True), ())
        for each in (TOKENS["ben"], token, agent):
            own = {"Authorization": f"Bearer {each}"}
            for path in ("add", "remove", "preview"):
                body = {"name": "cleo"} if path != "preview" else {}
                answers.append(await opened.http.post(f"{API}/callers/{path}", json=body, headers=own))
            answers.append(await opened.http.get(f"{API}/callers/tools?caller=ann", headers=own))
        rows = await rows_of(opened)
        own = {"Authorization": f"Bearer {token}"}
        usage = (await opened.http.get(f"{API}/callers/usage", headers=own)).json()
    assert [answer.status_code for answer in answers] == [403] * len(answers)
    assert answers[0].json()["error"]["details"]["needs"] == "secret"
    assert sorted(rows) == ["ann", "ben", "cleo"]
    assert [row["caller"] for row in usage["callers"]] == ["cleo"], "nobody else is told of"


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the tokens whose hashes were computed."""
    seen: list[bytes] = []

    def note(token: bytes) -> str:
        seen.append(token)
        return hash_token(token)

    monkeypatch.setattr(roster, "hash_token", note)
    return seen


async def test_a_call_costs_the_look_up_that_it_costs_anyway(site: OpenSite, hashed: list[bytes]) -> None:
    async with site(CALLERS, *PLUGINS, token=TOKENS["ann"], log_in=True) as opened:
        token = (await opened.change("/callers/add", name="cleo"))["token"]
        for _ in range(5):
            async with httpx2.AsyncClient(base_url=opened.http.base_url) as fresh:
                message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
                headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
                assert (await fresh.post("/mcp", content=json.dumps(message), headers=headers)).status_code != 401
                assert (await fresh.get("/api/console/views", headers=headers)).status_code == 200
    assert hashed == [token.encode()]
