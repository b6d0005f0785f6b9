"""`automatic_mcp`: whole definitions, those that the task needs and that this session has not been sent."""

import json
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from mcp import Client

from tests.discovery.asking import ask, names_of, office, stored, text_of, tokens_of
from tests.hostile.attacks import attack
from tests.plugins.office import OFFICE
from tests.proofs import proves
from tests.upstreams.behind import gateway, hostile
from tests.waiting import until
from tests.ways import AUTOMATIC, BEHAVIOURS, BOTH, QUICK_WAYS, SHAPES, STATELESS, WAYS, Way, plugin_of
from tests.wire.callers import client_of
from toolpost import Plugin
from toolpost.app import open_app, open_http
from toolpost.base.ids import META_KEY
from toolpost.discovery import View
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.settings.callers import CallerSettings

pytestmark = pytest.mark.anyio

HTTP = Way("http", STATELESS)
MEMORY = Way("memory", STATELESS)
QUERY = "create an event in the calendar"


@proves("automatic_mcp", "forceRefresh")
@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_definitions_come_as_they_are_listed_and_only_once(way: Way) -> None:
    async with way.client(*OFFICE, config=BOTH) as client:
        listed = {
            tool.name: tool.model_dump(by_alias=True, mode="json", exclude_unset=True) for tool in await all_of(client)
        }
        first = await ask(client, QUERY)
        second = await ask(client, QUERY)
        third = await ask(client, QUERY, forceRefresh=True)

    assert names_of(first)[0] == "calendar__create_event"
    assert 5 <= len(first["tools"]) <= 15
    assert all(definition == listed[definition["name"]] for definition in first["tools"])
    assert not set(first["more"]) & set(names_of(first))
    assert 10 <= len(first["more"]) <= 35
    assert first["totalAvailable"] == len(listed) - 2
    assert first["known"] == []
    assert second["tools"] == []
    assert second["known"] == names_of(first)
    assert "forceRefresh" in second["note"]
    assert third["tools"] == first["tools"]
    assert third["known"] == []
    assert first["etag"] == second["etag"] == third["etag"]


async def all_of(client: Client) -> list[Any]:
    tools, cursor = [], None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        if (cursor := page.next_cursor) is None:
            return tools


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_definition_is_the_same_in_a_listing_a_search_and_a_refusal(way: Way) -> None:
    async with way.client(BEHAVIOURS, config=BOTH) as client:
        listed = {
            tool.name: tool.model_dump(by_alias=True, mode="json", exclude_unset=True) for tool in await all_of(client)
        }
        found = {
            name: (await ask(client, name.replace("__", " "), forceRefresh=True, limit=50))["tools"]
            for name in ("does__plain", "does__ship")
        }
        call = {"toolName": "does__ship", "arguments": {"parcel": 1}}
        refusal = json.loads(text_of(await client.call_tool("automatic_eval", call)))

    returned = {definition["name"]: definition for tools in found.values() for definition in tools}
    assert returned == {name: listed[name] for name in returned}
    for name in found:
        assert "outputSchema" in returned[name], name
        assert returned[name]["_meta"][META_KEY]["schemaVersion"] == 1
    assert refusal["toolSchema"] == returned["does__ship"]


@pytest.mark.wire
@pytest.mark.parametrize("mode", ["legacy", STATELESS])
async def test_a_definition_is_the_same_on_the_path_of_one_server(mode: str) -> None:
    def dump(tool: Any) -> Any:
        return tool.model_dump(by_alias=True, mode="json", exclude_unset=True)

    async with (
        open_app(BOTH, plugins=[plugin_of(reference) for reference in (*OFFICE, BEHAVIOURS)], bundled=False) as app,
        open_http(app) as url,
        Client(f"{url}/server/does", mode=mode) as client,
    ):
        listed = {tool.name: dump(tool) for tool in await all_of(client)}
        first = await ask(client, "ship a parcel")
        second = await ask(client, "ship a parcel")
        named = await ask(client, "ship", forceRefresh=True, limit=1)
        call = {"toolName": "ship", "arguments": {"parcel": 1}}
        refusal = json.loads(text_of(await client.call_tool("automatic_eval", call)))

    assert first["tools"] == [listed[name] for name in names_of(first)]
    assert {*second["known"], *first.get("more", [])} <= listed.keys()
    assert second["known"] == names_of(first)
    assert names_of(named) == ["ship"]
    assert refusal["toolSchema"] == listed["ship"]


@proves("automatic_mcp", "query", "sessionId")
@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_another_query_sends_what_is_new_and_names_what_is_known(way: Way) -> None:
    async with way.client(*OFFICE, config=AUTOMATIC) as client:
        first = await ask(client, "create a calendar event", sessionId="s")
        second = await ask(client, "delete a calendar event", sessionId="s")
        elsewhere = await ask(client, "delete a calendar event", sessionId="t")

    assert "calendar__delete_event" in names_of(elsewhere)
    assert set(names_of(first)) & set(second["known"])
    assert not set(names_of(first)) & set(names_of(second))
    assert set(names_of(elsewhere)) == set(names_of(second)) | set(second["known"])


async def test_without_a_query_what_is_new_comes_a_few_at_a_time_until_all_is_known() -> None:
    async with MEMORY.client(*OFFICE, config=AUTOMATIC) as client:
        await client.call_tool("automatic_eval", {"toolName": "wiki__list_page", "arguments": {"page_id": "1"}})
        answers = [await ask(client)]
        while answers[-1]["tools"]:
            answers.append(await ask(client, ""))

    sent = [name for answer in answers for name in names_of(answer)]
    assert sent[0] == "wiki__list_page"
    assert {name.split("__")[0] for name in sent[1:5]} == {"calendar", "mail", "shop", "wiki"}
    assert len(sent) == len(set(sent)) == answers[0]["totalAvailable"]
    assert all(len(answer["tools"]) <= 15 for answer in answers)
    assert "more tools" in answers[0]["note"]
    assert set(answers[1]["known"]) == set(names_of(answers[0]))
    assert set(answers[-1]["known"]) == set(sent)


async def test_of_a_few_tools_all_are_sent_whatever_the_query() -> None:
    async with MEMORY.client(SHAPES, config=AUTOMATIC) as client:
        found = await ask(client, "how often was each model called")

    assert names_of(found)[0] == "shapes__count_uses"
    assert len(found["tools"]) == found["totalAvailable"] < 15


@pytest.mark.wire
async def test_a_definition_that_changed_is_sent_again_and_the_etag_with_it(tmp_path: Path) -> None:
    async with gateway(hostile(log=tmp_path / "log"), config=BOTH) as (app, client):
        first = await ask(client, "echo")
        quiet = await ask(client, "echo")
        await client.call_tool("up__change")
        await until(lambda: any(tool.contract.name == "up__fresh" for tool in app.gateway.catalog))
        changed = await ask(client, "fresh")
        again = await ask(client, "fresh")

    assert first["etag"] == quiet["etag"] != changed["etag"] == again["etag"]
    assert "up__fresh" in names_of(changed)
    assert "up__fresh" in again["known"]


@pytest.mark.wire
@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_changed_description_is_a_changed_definition(way: Way, tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(CHANGING)
    words = tmp_path / "words"
    words.write_text("the first words")
    spec = spec_of(server, words)
    async with gateway(spec, way=way, config=BOTH) as (app, client):
        first = await ask(client, "tool", sessionId="s")
        known = await ask(client, "tool", sessionId="s")
        words.write_text("the second words")
        await client.call_tool("automatic_eval", {"toolName": "up__reword"})
        await until(lambda: app.gateway.catalog.find("up__reword").contract.terms.description == "the second words")
        second = await ask(client, "tool", sessionId="s")

    assert names_of(first) == ["up__reword", "up__same"] or names_of(first) == ["up__same", "up__reword"]
    assert known["tools"] == []
    assert [definition["description"] for definition in second["tools"]] == ["the second words"]
    assert second["known"] == ["up__same"]
    assert known["etag"] != second["etag"]


@pytest.mark.wire
async def test_memory_survives_a_restart_and_serves_two_gateways(tmp_path: Path) -> None:
    config = stored(tmp_path / "store.db")
    async with office(config) as app, HTTP.client_of(app) as client:
        first = await ask(client, QUERY, sessionId="kept")
    async with office(config) as app, office(config) as other:
        async with HTTP.client_of(app) as client, HTTP.client_of(other) as elsewhere:
            again = await ask(client, QUERY, sessionId="kept")
            there = await ask(elsewhere, QUERY, sessionId="kept")

    assert again["tools"] == there["tools"] == []
    assert again["known"] == there["known"] == names_of(first)
    assert first["etag"] == again["etag"]


@pytest.mark.wire
@attack(
    "caller",
    "chooses the session name of another caller, to learn which definitions it received",
    "sessions of two callers are never the same",
)
@pytest.mark.parametrize("mode", ["legacy", STATELESS])
async def test_two_callers_who_choose_the_same_session_do_not_see_each_other(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers = {name: CallerSettings(token=f"${{{name}_TOKEN}}") for name in ("ada", "bob")}
    for name in callers:
        monkeypatch.setenv(f"{name}_TOKEN", f"{name}-token-{'x' * 32}")
    found = []
    async with office(msgspec.structs.replace(BOTH, callers=callers)) as app, open_http(app) as url:
        for name in callers:
            async with client_of(url, f"{name}-token-{'x' * 32}", mode) as client:
                found.append(await ask(client, QUERY, sessionId="mine"))

    assert names_of(found[0]) == names_of(found[1]) != []


@pytest.mark.wire
@attack(
    "caller",
    "finds and runs tools outside its view through `automatic_mcp` and `automatic_eval`",
    "they are neither found nor named nor run",
)
@pytest.mark.parametrize("mode", ["legacy", STATELESS])
async def test_a_limited_caller_finds_only_what_they_may_call(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = ["wiki__*", "mail__list_*", "!wiki__delete_*"]
    callers = {"eve": CallerSettings(token="${EVE_TOKEN}", tools=tools)}
    monkeypatch.setenv("EVE_TOKEN", f"eve-token-{'x' * 32}")
    async with office(msgspec.structs.replace(AUTOMATIC, callers=callers)) as app, open_http(app) as url:
        async with client_of(url, f"eve-token-{'x' * 32}", mode) as client:
            listed = (await client.list_tools()).tools
            found = [await ask(client, query, forceRefresh=True) for query in ("delete a wiki page", "calendar event")]
            hidden = await client.call_tool("automatic_eval", {"toolName": "wiki__delete_page"})

    shown = json.dumps([found, [tool.description for tool in listed]])
    assert found[0]["totalAvailable"] == 15
    assert "wiki__delete_page" not in shown
    assert "calendar__" not in shown
    assert "Servers here: mail, wiki." in (listed[1].description or "")
    assert json.loads(text_of(hidden))["code"] == "INVALID_REQUEST"


@pytest.mark.parametrize("mode", ["legacy", STATELESS])
async def test_two_connections_that_name_no_session_do_not_keep_tools_from_each_other(mode: str) -> None:
    async with office() as app:
        async with Client(open_memory_endpoint(app.call_handler, app.sdk), mode=mode) as one:
            first = await ask(one, QUERY)
        async with Client(open_memory_endpoint(app.call_handler, app.sdk), mode=mode) as other:
            second = await ask(other, QUERY)

    assert names_of(first) == names_of(second)


@pytest.mark.wire
@pytest.mark.parametrize("mode", ["legacy", STATELESS])
async def test_a_path_finds_only_what_it_shows(mode: str) -> None:
    async with office(AUTOMATIC) as app, open_http(app) as url:
        async with Client(f"{url}/server/mail", mode=mode) as client:
            found = await ask(client, "create a calendar event", sessionId="s")
            listed = (await client.list_tools()).tools
            hidden = await client.call_tool("automatic_eval", {"toolName": "calendar__create_event"})
        async with Client(url, mode=mode) as client:
            everything = await ask(client, "create a calendar event", sessionId="s")

    # Under the names that are listed on this path.
    assert {f"mail__{name}" for name in names_of(found)} <= {tool.contract.name for tool in app.gateway.catalog}
    assert found["totalAvailable"] == 16
    assert found["etag"] != everything["etag"]
    assert "calendar" not in json.dumps([tool.description for tool in listed])
    assert hidden.is_error
    assert "calendar__" not in text_of(hidden).replace("calendar__create_event", "")


async def test_what_a_view_finds_is_what_a_gateway_with_nothing_else_would() -> None:
    async with office() as app:
        through = await app.finder.find("delete a mail message", View(source="mail"))
    async with MEMORY.client(OFFICE[1], config=AUTOMATIC) as client:
        alone = await ask(client, "delete a mail message")

    assert through.names == names_of(alone)


@proves("automatic_mcp", "limit")
@pytest.mark.parametrize("limit", [1, 3, 30])
async def test_a_limit_is_kept(limit: int) -> None:
    async with MEMORY.client(*OFFICE, config=AUTOMATIC) as client:
        asked = await ask(client, QUERY, limit=limit, sessionId="a")
        unasked = await ask(client, limit=limit, sessionId="b")
        refused = await client.call_tool("automatic_mcp", {"query": QUERY, "limit": 51})

    assert 1 <= len(asked["tools"]) <= limit
    assert 1 <= len(unasked["tools"]) <= limit
    assert names_of(asked)[0] == "calendar__create_event"
    assert refused.is_error


async def test_where_nothing_matches_the_answer_is_short() -> None:
    async with MEMORY.client(*OFFICE, config=AUTOMATIC) as client:
        found = await ask(client, "\u2603")

    assert found["tools"] == []
    assert found["more"]
    assert found["note"].startswith("No tool matches.")
    assert "calendar, mail, shop, wiki" in found["note"]


async def test_a_weak_match_is_named_as_weak_and_nothing_is_kept_back() -> None:
    async with MEMORY.client(*OFFICE, config=AUTOMATIC) as client:
        found = await ask(client, "zebra quantum spectroscopy")
        strong = await ask(client, "search for a customer order in the shop", forceRefresh=True)

    assert "strong match" in found["note"]
    assert "calendar, mail, shop, wiki" in found["note"]
    assert names_of(strong)[0] == "shop__search_order"
    assert "note" not in strong


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_an_answer_says_what_it_cost_and_what_it_saved(way: Way) -> None:
    async with office() as app, way.client_of(app) as client:
        listed = await all_of(client)
        answer = await client.call_tool("automatic_mcp", {"query": QUERY})
        tokens = tokens_of(answer)
        sent, saved = app.gateway.metrics.tokens_sent.value(), app.gateway.metrics.tokens_saved.value()
        page = app.monitor.metrics()

    whole = sum(
        len(msgspec.json.encode(tool.model_dump(by_alias=True, mode="json", exclude_unset=True)))
        for tool in listed
        if not tool.name.startswith("automatic_")
    )
    assert tokens["listing"] == pytest.approx(whole / 4, rel=0.01)
    assert tokens["sent"] == pytest.approx(len(text_of(answer)) / 4, abs=1)
    assert tokens["saved"] == tokens["listing"] - tokens["sent"] > 0.5 * tokens["listing"]
    assert (sent, saved) == (tokens["sent"], tokens["saved"])
    assert 'toolpost_searches_total{match="' in page
    assert "\ntoolpost_index_tools 61.0\n" in page


async def test_the_first_search_waits_for_the_index_and_the_index_is_made_once() -> None:
    async with office() as app:
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(app.finder.find, "order")
        made = app.gateway.metrics.preparations.value()

    assert made == 1


def spec_of(server: Path, words: Path) -> Any:
    import sys

    from toolpost.upstreams.spec import ServerSpec

    return ServerSpec(name="up", command=(sys.executable, "-S", "-E", str(server), str(words)))


CHANGING = """
import json, sys
from pathlib import Path

def tools():
    schema = {"type": "object"}
    return [
        {"name": "reword", "description": Path(sys.argv[1]).read_text(), "inputSchema": schema},
        {"name": "same", "description": "always the same tool", "inputSchema": schema},
    ]

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    match message["method"]:
        case "initialize":
            answer["result"] = {
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "changing", "version": "1"},
            }
        case "tools/list":
            answer["result"] = {"tools": tools()}
        case "tools/call":
            answer["result"] = {"content": [{"type": "text", "text": "done"}]}
            print(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}), flush=True)
        case _:
            answer["error"] = {"code": -32601, "message": "no such method"}
    print(json.dumps(answer), flush=True)
"""


async def test_a_definition_over_a_third_of_the_budget_is_named_and_sent_by_its_name() -> None:
    hub = Plugin("hub", version="1")

    @hub.tool(description="Create a pull request. " + "A pull request has a head and a base. " * 200)
    async def create_pull_request(title: str) -> str:
        return title

    async with (
        open_app(AUTOMATIC, plugins=[*map(plugin_of, OFFICE), hub], bundled=False) as app,
        MEMORY.client_of(app) as client,
    ):
        found = await ask(client, "create a pull request")
        named = await ask(client, "hub__create_pull_request")

    assert "hub__create_pull_request" not in names_of(found)
    assert found["more"][0] == "hub__create_pull_request"
    assert "hub__create_pull_request" in found["note"]
    assert len(found["tools"]) >= 5
    assert names_of(named)[0] == "hub__create_pull_request"
    assert len(named["tools"][0]["description"]) > 7_000


@pytest.mark.parametrize("words", [200, 2_000])
async def test_of_a_few_tools_large_ones_are_named_where_all_together_are_over_the_budget(words: int) -> None:
    hub = Plugin("hub", version="1")

    @hub.tool(description="Create a pull request. " + "Pull. " * words)
    async def create_pull_request(title: str) -> str:
        return title

    @hub.tool(description="List pull requests. " + "Pull. " * words)
    async def list_pull_requests() -> list[str]:
        return []

    @hub.tool
    async def close(number: int) -> str:
        """Close a pull request."""
        return str(number)

    async with open_app(AUTOMATIC, plugins=[hub], bundled=False) as app, MEMORY.client_of(app) as client:
        found = await ask(client, "create a pull request")
        named = await ask(client, "hub__create_pull_request")

    large = {"hub__create_pull_request", "hub__list_pull_requests"}
    is_over = words > 1_000
    assert set(names_of(found)) == ({"hub__close"} if is_over else {"hub__close", *large})
    assert set(found.get("more", [])) == (large if is_over else set())
    assert "hub__create_pull_request" in names_of(named) + named["known"]
