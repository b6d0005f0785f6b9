"""`/api/console/tools`: what a caller sees of the tools, how it is found, what one is and was."""

from typing import Any

import anyio
import pytest

from tests.hostile.attacks import attack
from tests.parts.console.conftest import OpenSite
from toolpost.authoring import Plugin
from toolpost.base.ids import PluginName
from toolpost.contracts.contract import Contract, ToolDefinition, contract_of
from toolpost.parts.console import definitions
from toolpost.parts.console.definitions import KEPT, DefinitionHistory
from toolpost.store import open_store
from toolpost.store.part_migrations import migrate_part

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

CALLERS = """
[callers.ann]
token = "${TOKEN_ANN}"
admin = true
[callers.ben]
token = "${TOKEN_BEN}"
tools = ["shop__list_*"]
[callers.cal]
token = "${TOKEN_CAL}"
mode = "readonly"
"""
TOKENS = {name: f"the-token-of-{name}-with-32-characters" for name in ("ann", "ben", "cal")}


@pytest.fixture(autouse=True)
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, token in TOKENS.items():
        monkeypatch.setenv(f"TOKEN_{name.upper()}", token)


def make_shop() -> Plugin:
    plugin = Plugin("shop", version="1.0.0")

    @plugin.tool(annotations={"readOnlyHint": True})
    async def list_orders(customer: str) -> list[str]:
        """List the orders of a customer."""
        return [customer]

    @plugin.tool(annotations={"destructiveHint": True})
    async def cancel_order(number: int) -> bool:
        """Cancel an order, and refund what was paid."""
        return number > 0

    return plugin


async def test_tools_come_in_pages_and_by_server(site: OpenSite) -> None:
    other = Plugin("zoo", version="1.0.0")
    for number in range(30):

        @other.tool(name=f"feed_{number:02}")
        async def feed() -> str:
            """Feed an animal."""
            return ""

    async with site("", make_shop(), other) as opened:
        first = await opened.get("/tools", limit="10")
        rest = await opened.get("/tools", limit="100", offset="10")
        shop = await opened.get("/tools", server="shop")
        bad = await opened.http.get("/api/console/tools", params={"offset": "-1"})

    assert (first["total"], len(first["tools"]), len(rest["tools"])) == (32, 10, 22)
    names = [tool["name"] for tool in (*first["tools"], *rest["tools"])]
    assert names == sorted(names)
    assert [tool["name"] for tool in shop["tools"]] == ["shop__cancel_order", "shop__list_orders"]
    assert shop["tools"][0]["annotations"] == {"destructiveHint": True}
    assert (shop["total"], shop["all"], shop["servers"]) == (2, 32, ["shop", "zoo"])
    assert shop["tokens"] == sum(tool["tokens"] for tool in (*first["tools"], *rest["tools"]))
    assert bad.status_code == 400


async def test_a_search_is_that_of_an_agent_with_scores_and_reasons(site: OpenSite) -> None:
    async with site("", make_shop()) as opened:
        found = await opened.get("/tools/search", query="refund what was paid for an order")
        direct = await opened.app.finder.find("refund what was paid for an order", explain=True)

    assert [tool["name"] for tool in found["tools"]] == direct.names
    best = found["tools"][0]
    assert best["name"] == "shop__cancel_order"
    assert best["score"] == round(direct.hits[0].score, 4) > found["tools"][1]["score"]
    assert any(each["field"] == "description" and {"refund", "paid"} <= set(each["words"]) for each in best["why"])


async def test_callers_see_their_own_tools_and_administrators_who_sees_what(site: OpenSite) -> None:
    async with site(CALLERS, make_shop(), token=TOKENS["ann"]) as opened:
        every = await opened.get("/tool", name="shop__cancel_order")
        as_ben = await opened.get("/tools/search", query="cancel an order", caller="ben")
        nobody = await opened.http.get("/api/console/tools/search", params={"query": "x", "caller": "eve"})
        opened.http.headers["Authorization"] = f"Bearer {TOKENS['ben']}"
        own = await opened.get("/tools")
        mine = await opened.get("/tool", name="shop__list_orders")
        hidden = await opened.http.get("/api/console/tool", params={"name": "shop__cancel_order"})
        history = await opened.http.get("/api/console/tool/history", params={"name": "shop__cancel_order"})
        unknown = await opened.http.get("/api/console/tool", params={"name": "shop__cancel_ordex"})
        foreign = await opened.http.get("/api/console/tools/search", params={"query": "x", "caller": "ann"})
        listed = await opened.http.get("/api/console/callers")

    rows = {row["caller"]: row for row in every["callers"]}
    assert [(name, row["sees"]) for name, row in rows.items()] == [("ann", True), ("ben", False), ("cal", False)]
    assert "shop__list_*" in rows["ben"]["reason"]
    assert "read-only" in rows["cal"]["reason"]
    assert [tool["name"] for tool in as_ben["tools"]] == ["shop__list_orders"]
    assert nobody.status_code == 404
    assert [tool["name"] for tool in own["tools"]] == ["shop__list_orders"]
    assert mine["callers"] == [], "who else there is, is not told"
    # What is not seen does not exist.
    hidden_text = hidden.text.replace("cancel_order", "cancel_ordex")
    assert (hidden.status_code, hidden_text) == (unknown.status_code, unknown.text)
    assert history.status_code == hidden.status_code
    assert (foreign.status_code, listed.status_code) == (403, 403)


async def test_a_tool_has_its_contract_and_cost(site: OpenSite) -> None:
    async with site("", make_shop()) as opened:
        tool = await opened.get("/tool", name="shop__list_orders")

    assert tool["definition"]["inputSchema"]["required"] == ["customer"]
    assert tool["digest"].startswith("sha256:")
    assert (tool["server"], tool["isListed"], tool["schemaVersion"]) == ("shop", True, 1)
    assert 0 < tool["tokens"] <= tool["allTokens"]


def make_contract(version: int, build: str = "1.0.0") -> Contract:
    properties: dict[str, Any] = {"customer": {"type": "string"}} | {f"added_{n}": {} for n in range(version)}
    terms = ToolDefinition(
        name="list_orders",
        description="List the orders of a customer.",
        input_schema={"type": "object", "properties": properties},
        tooling_version=build,
    )
    return contract_of(terms, plugin=PluginName("shop"))


async def test_definitions_are_kept_as_they_change(store_url: str) -> None:
    async with open_store(store_url) as store:
        await migrate_part(store, store_url, "console", "toolpost.parts.console.migrations")
        history = DefinitionHistory(store)
        added = [await history.record([make_contract(version)]) for version in (1, 1, 2)]
        # Another gateway of this store, and this one after a restart.
        added.append(await DefinitionHistory(store).record([make_contract(2)]))
        added.append(await DefinitionHistory(store).record([make_contract(1)]))
        # A release of its code that changes nothing else.
        added.append(await DefinitionHistory(store).record([make_contract(1, "1.0.1")]))
        versions = await history.of_tool("shop__list_orders")
        for version in range(3, 3 + KEPT):
            await history.record([make_contract(version)])
        kept = await history.of_tool("shop__list_orders")

    assert added == [1, 0, 1, 0, 1, 0]
    assert [version.number for version in versions] == [3, 2, 1]
    assert [len(version.definition.input_schema["properties"]) for version in versions] == [2, 3, 2]  # type: ignore[index]
    assert versions[-1].judgement is None
    assert versions[1].judgement is not None
    assert versions[1].judgement.verdict.value == "compatible"
    assert versions[0].judgement is not None
    assert versions[0].judgement.verdict.value == "breaking"
    assert len(kept) == KEPT
    assert kept[0].number == 3 + KEPT


def make_named(name: str, text: str = "") -> Contract:
    terms = ToolDefinition(name=name, description=f"Do it. {text}", input_schema={"type": "object"})
    return contract_of(terms, plugin=PluginName(name.partition("_")[0]))


@attack(
    "server",
    "renames or changes its tools again and again, to fill the history of definitions",
    "20,000 names and 64 MB are kept of a server, the last seen; those of other servers stay",
)
async def test_the_names_that_were_seen_last_are_kept(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "NAMES_LIMIT", 10)
    async with open_store(store_url) as store:
        await migrate_part(store, store_url, "console", "toolpost.parts.console.migrations")

        async def list_kept() -> list[str]:
            rows = await store.scripts.read(definitions._read_sizes)
            return list(dict.fromkeys(tool.partition("__")[2] for tool, _, _ in rows))

        history = DefinitionHistory(store)
        await history.record([make_named("desk_other")])
        for number in range(25):
            await history.record([make_named("shop_always"), make_named(f"shop_{number}")])
        many = await list_kept()
        after_restart = DefinitionHistory(store)
        await after_restart.record([make_named("shop_always"), make_named("shop_25")])
        restarted = await list_kept()
        monkeypatch.setattr(definitions, "SIZE_LIMIT_BYTES", 4_000)
        for number in range(26, 36):
            await after_restart.record([make_named("shop_always"), make_named(f"shop_{number}", "x" * 1_000)])
        large = await list_kept()

    assert many == ["desk_other", "shop_always", *(f"shop_{number}" for number in range(16, 25))]
    assert restarted == ["desk_other", "shop_always", *(f"shop_{number}" for number in range(17, 26))]
    assert large == ["desk_other", "shop_always", *(f"shop_{number}" for number in range(33, 36))]


async def test_a_gateway_records_what_it_serves(
    site: OpenSite, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions, "LOOK_S", 0.01)
    async with site("", make_shop(), store=store_url) as opened:
        with anyio.fail_after(30):
            while not (found := await opened.get("/tool/history", name="shop__list_orders"))["versions"]:
                await anyio.sleep(0.02)

    (version,) = found["versions"]
    assert version["definition"]["name"] == "shop__list_orders"
    assert version["judgement"] is None
    assert version["seenAt"] > 1_700_000_000
