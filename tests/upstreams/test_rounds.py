"""Requests that take several rounds, and what clients and servers tell each other about them besides."""

import json
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import msgspec
import pytest
from mcp import MCPError
from mcp.server.lowlevel import Server

from tests.loaded import loaded
from tests.upstreams.behind import report, text_of
from tests.upstreams.servers.asking import application_of, ask
from tests.upstreams.servers.http_server import serving
from tests.upstreams.test_notifications import telling_behind
from tests.upstreams.test_questions import ASKING, BACKS, FRONTS, Person, asked_and_left, asking_behind, client_on
from tests.waiting import until
from tests.ways import AUTOMATIC, ENVELOPE, IN_MEMORY, STATELESS, Way
from tests.wire.test_bad_input import RawHttp
from toolpost.app import open_app, open_http
from toolpost.settings.model import StoreSettings
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_leaks"), pytest.mark.wire]

LEGACY_BACKS = [way for way in BACKS if way.mode == "legacy"]
LEGACY_FRONTS = [way for way in FRONTS if way.mode == "legacy"]
STATELESS_FRONTS = [way for way in FRONTS if way.mode == STATELESS]
ACCEPTED = types.ElicitResult(action="accept", content={"name": "Ada"})


# Prompts and resources


@pytest.mark.parametrize("back", [Way("stdio", "legacy"), Way("stdio", STATELESS)], ids=str)
@pytest.mark.parametrize("front", STATELESS_FRONTS, ids=str)
async def test_a_state_is_good_for_its_prompt_alone(front: Way, back: Way) -> None:
    person = Person()
    async with telling_behind(back) as app, client_on(app, front, **person.callbacks) as client:
        asked = await client.session.get_prompt("up__greet", allow_input_required=True)
        assert isinstance(asked, types.InputRequiredResult)
        state, key = asked.request_state or "", next(iter(asked.input_requests or {}))
        with pytest.raises(MCPError) as foreign:
            await client.session.read_resource("page://two", request_state=state)
        with pytest.raises(MCPError) as forged:
            await client.session.get_prompt("up__greet", request_state=f"AAAA{state[4:]}")
        prompt = await client.session.get_prompt("up__greet", input_responses={key: ACCEPTED}, request_state=state)

    assert state != "s", "a server's own state does not travel as it is"
    assert [refusal.value.error.data["reason"] for refusal in (foreign, forged)] == ["foreign", "forged"]
    assert prompt.messages[0].content.text == "Hi Ada"  # type: ignore[union-attr]


@pytest.mark.parametrize("front", FRONTS, ids=str)
async def test_a_prompt_ends_by_the_time_limit_of_its_server(front: Way) -> None:
    person = Person()
    person.thinks = anyio.Event()
    async with telling_behind(Way("stdio", "legacy"), timeout_s=2) as app:
        async with client_on(app, front, **person.callbacks) as client:
            if front.mode == STATELESS:
                asked = await client.session.get_prompt("up__greet", allow_input_required=True)
                assert isinstance(asked, types.InputRequiredResult)
                await anyio.sleep(2.2)  # longer than the time limit
                options: Any = {"request_state": asked.request_state}
            else:
                options = {}
            with pytest.raises(MCPError) as refusal:
                await client.session.get_prompt("up__greet", **options)

    assert refusal.value.error.data["code"] == "TOOL_TIMEOUT"


# Who may come back, and where


@pytest.mark.parametrize("front", STATELESS_FRONTS, ids=str)
@pytest.mark.parametrize("back", BACKS, ids=str)
async def test_a_tool_that_another_runs_may_ask_too(front: Way, back: Way) -> None:
    person = Person()
    async with asking_behind(back, config=AUTOMATIC) as app, client_on(app, front, **person.callbacks) as client:
        answer = await client.call_tool("automatic_eval", {"toolName": "up__ask", "arguments": {}})
        asked = await client.session.call_tool(
            "automatic_eval", {"toolName": "up__ask", "arguments": {}}, allow_input_required=True
        )
        assert isinstance(asked, types.InputRequiredResult)
        with pytest.raises(MCPError) as foreign:
            await client.session.call_tool(
                "automatic_eval", {"toolName": "up__wait", "arguments": {}}, request_state=asked.request_state
            )

    assert json.loads(text_of(answer))["content"] == {"name": "Ada"}
    assert foreign.value.error.data["reason"] == "foreign"


async def test_another_gateway_of_the_same_store_takes_the_next_round(tmp_path: Path) -> None:
    person = Person()
    config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=f"sqlite:{tmp_path / 'store.db'}"))
    spec = ServerSpec(name="up", command=loaded(ASKING))
    way = Way("http", STATELESS)
    async with open_app(config, bundled=False, servers=[spec]) as app:
        async with client_on(app, way, **person.callbacks) as client:
            asked = await client.session.call_tool("up__ask", {}, allow_input_required=True)
            assert isinstance(asked, types.InputRequiredResult)
    async with open_app(config, bundled=False, servers=[spec]) as app:
        async with client_on(app, way, **person.callbacks) as client:
            key = next(iter(asked.input_requests or {}))
            answer = await client.session.call_tool(
                "up__ask", {}, input_responses={key: ACCEPTED}, request_state=asked.request_state
            )

    assert json.loads(text_of(answer))["content"] == {"name": "Ada"}


@pytest.mark.parametrize("back", LEGACY_BACKS, ids=str)
@pytest.mark.parametrize("front", FRONTS, ids=str)
async def test_a_person_who_thinks_for_long_is_not_the_servers_fault(front: Way, back: Way) -> None:
    person = Person()
    person.thinks = anyio.Event()
    async with asking_behind(back, timeout_s=3) as app, client_on(app, front, **person.callbacks) as client:
        if front.mode == STATELESS:
            await asked_and_left(client, person)
        else:
            await client.call_tool("up__ask")
        await until(lambda: app.gateway.in_flight == 0)
        after_asking = report(app).last_error
        await client.call_tool("up__wait", {"seconds": 60})
        after_waiting = report(app).last_error
        person.thinks.set()

    assert after_asking is None
    assert "did not answer within" in (after_waiting or "")


async def test_a_held_call_is_given_up_if_its_next_round_has_other_headers() -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="move", input_schema=schema)])

    async def call_tool(context: Any, _params: Any) -> types.CallToolResult:
        await ask(context, "roots")
        return types.CallToolResult(content=[])

    server = Server[Any]("mirrors", on_list_tools=list_tools, on_call_tool=call_tool)
    async with application_of(server, is_stateless=False) as mirrors, serving(mirrors) as url:
        spec = ServerSpec(name="up", url=url)
        async with open_app(IN_MEMORY, bundled=False, servers=[spec]) as app, open_http(app) as own:
            http = RawHttp(int(own.split(":")[2].split("/", maxsplit=1)[0]))
            meta = ENVELOPE | {"io.modelcontextprotocol/clientCapabilities": {"roots": {}}}
            params: dict[str, Any] = {"name": "up__move", "arguments": {"region": "eu"}, "_meta": meta}

            async def call(region: str, **more: Any) -> tuple[int, Any]:
                message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params | more}
                body = json.dumps(message).encode()
                status, answer = await http.post(body, mcp_name="up__move", mcp_param_region=region)
                return status, json.loads(answer)

            _, asked = await call("eu")
            assert app.gateway.in_flight == 1
            status, refused = await call("us", requestState=asked["result"]["requestState"], inputResponses={})
            await until(lambda: app.gateway.in_flight == 0)

    assert (status, refused["error"]["code"]) == (400, -32020)


# What is told besides


@pytest.mark.parametrize("back", LEGACY_BACKS, ids=str)
@pytest.mark.parametrize("front", LEGACY_FRONTS, ids=str)
@pytest.mark.parametrize("sent_by", ["ask", "page_needed"])
async def test_a_page_that_is_done_with_is_told_to_whoever_was_sent_there(sent_by: str, front: Way, back: Way) -> None:
    ada, bob = Person("Ada"), Person("Bob")
    heard: dict[str, list[str]] = {"Ada": [], "Bob": []}

    def ear(name: str) -> Any:
        async def hear(message: Any) -> None:
            if isinstance(message, types.ElicitCompleteNotification):
                heard[name].append(message.params.elicitation_id)

        return hear

    async with (
        asking_behind(back) as app,
        client_on(app, front, message_handler=ear("Ada"), **ada.callbacks) as first,
        client_on(app, Way("memory", "legacy"), message_handler=ear("Bob"), **bob.callbacks) as second,
    ):
        if sent_by == "ask":
            await first.call_tool("up__ask", {"what": "url"})
        else:
            with pytest.raises(MCPError) as refusal:
                await first.call_tool("up__page_needed")
            assert refusal.value.code == -32042
        await until(lambda: front.transport != "http" or app.shares.streams.taken)  # the client's own stream
        await second.call_tool("up__page_done")
        await until(lambda: heard["Ada"])
        await second.call_tool("up__page_done")
        await anyio.sleep(0.2)  # what must not come would be here by now

    assert heard == {"Ada": ["e-1"], "Bob": []}


@pytest.mark.parametrize("back", LEGACY_BACKS, ids=str)
@pytest.mark.parametrize("front", LEGACY_FRONTS, ids=str)
async def test_a_server_that_knows_of_folders_learns_of_others(front: Way, back: Way) -> None:
    person, stranger = Person("Ada"), Person("Bob")
    async with (
        asking_behind(back) as app,
        client_on(app, front, **person.callbacks) as client,
        client_on(app, Way("memory", "legacy"), **stranger.callbacks) as other,
    ):
        before = len(json.loads(text_of(await client.call_tool("up__roots_seen"))))
        await client.call_tool("up__ask", {"what": "roots"})
        await until(lambda: front.transport != "http" or app.shares.streams.taken)  # the client's own stream
        person.name = "Grace"
        for each in (other, client):
            await each.session.send_notification(types.RootsListChangedNotification())
        seen: list[Any] = []
        with anyio.fail_after(30):
            while not seen:
                seen = json.loads(text_of(await client.call_tool("up__roots_seen")))[before:]
                await anyio.sleep(0.05)

    assert seen == [{"roots": [{"uri": "file:///Grace"}]}]
    assert stranger.asked == []
