"""What a path shows: `/mcp` everything, `/mcp/server/NAME` one source, `/mcp/tags/a,b` servers that carry one of the tags."""

import http.client
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.loaded import loaded
from tests.upstreams.behind import SERVERS, hostile
from tests.ways import BEHAVIOURS, ENVELOPE, IN_MEMORY, STATELESS, plugin_of
from toolpost.app import App, open_app, open_http
from toolpost.discovery import View
from toolpost.discovery.catalog import VIEWS_LIMIT
from toolpost.protocol.era import REVISIONS
from toolpost.settings import Config
from toolpost.settings.model import HttpSettings
from toolpost.testing import data_of
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

SMALL = Path(__file__).parents[1] / "cli" / "servers" / "small.py"
LIBRARY = str(SERVERS / "library.py")
ERAS = ["legacy", STATELESS]


def small(name: str, *tags: str) -> ServerSpec:
    return ServerSpec(name=name, command=(sys.executable, "-S", "-E", str(SMALL), "fine"), tags=frozenset(tags))


@dataclass(frozen=True)
class Gateway:
    """Three servers and a plugin behind one endpoint."""

    app: App
    url: str

    async def names(self, path: str, mode: str) -> set[str]:
        async with Client(self.url + path, mode=mode) as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    async def ask(self, path: str, message: Any = None, verb: str = "POST", **headers: str) -> tuple[int, Any, str]:
        return await anyio.to_thread.run_sync(lambda: self._ask(path, message, verb, headers))

    def _ask(self, path: str, message: Any, verb: str, headers: dict[str, str]) -> tuple[int, Any, str]:
        connection = http.client.HTTPConnection(self.url.split("/")[2], timeout=20)
        fields = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(verb, f"/mcp{path}", json.dumps(message) if message else None, fields)
            answer = connection.getresponse()
            body = answer.read()
            session = answer.headers.get("mcp-session-id", "")
        finally:
            connection.close()
        return answer.status, json.loads(body) if body.startswith(b"{") else body, session


@asynccontextmanager
async def gateway(*specs: ServerSpec, config: Config = IN_MEMORY) -> AsyncIterator[Gateway]:
    plugins = [plugin_of(BEHAVIOURS)]
    async with open_app(config, plugins=plugins, bundled=False, servers=specs) as app, open_http(app) as url:
        yield Gateway(app, url)


THREE = (small("one", "a"), small("two", "b", "c"), small("bare"))


@pytest.mark.parametrize("mode", ERAS)
async def test_each_path_lists_what_it_shows(mode: str) -> None:
    async with gateway(*THREE) as served:
        everything = await served.names("", mode)
        one = await served.names("/server/one", mode)
        plugin = await served.names("/server/does", mode)
        tagged = await served.names("/tags/a", mode)
        either = await served.names("/tags/c,a", mode)

    assert {"one__echo", "two__echo", "bare__echo", "does__echo"} <= everything
    assert one == {"echo"}
    assert plugin == {name.removeprefix("does__") for name in everything if name.startswith("does__")}
    assert tagged == {"one__echo"}
    assert either == {"one__echo", "two__echo"}


@pytest.mark.parametrize("mode", ERAS)
async def test_a_path_of_one_server_serves_its_own_names(mode: str) -> None:
    async with gateway(*THREE) as served, Client(f"{served.url}/server/one", mode=mode) as client:
        own = await client.call_tool("echo", {"text": "x"})
        full = await client.call_tool("one__echo", {"text": "x"})
        with pytest.raises(MCPError) as refused:
            await client.call_tool("ecko", {"text": "x"})

    assert data_of(own) == data_of(full) == {"text": "x"}
    assert "deprecated" not in str(own.meta)
    assert refused.value.data["details"]["nearest"] == ["echo"]


@pytest.mark.parametrize("mode", ERAS)
async def test_what_is_not_shown_is_unknown(mode: str) -> None:
    async with gateway(*THREE) as served, Client(f"{served.url}/tags/a", mode=mode) as client:
        answer = await client.call_tool("one__echo", {"text": "x"})
        refusals = []
        for name in ("two__echo", "bare__echo", "does__echo", "nobody__echo"):
            with pytest.raises(MCPError) as refused:
                await client.call_tool(name, {"text": "x"})
            refusals.append(refused.value)

    assert data_of(answer) == {"text": "x"}
    assert {refusal.code for refusal in refusals} == {-32602}
    assert {name for refusal in refusals for name in refusal.data["details"]["nearest"]} == {"one__echo"}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/server/onne", "Unknown server or plugin `onne`. (did you mean `one`?)"),
        ("/server/", "Unknown server or plugin ``. (the servers and plugins here: bare, does, one, two)"),
        ("/server/one/more", "Unknown server or plugin `one/more`. (did you mean `one`?)"),
        ("/tags/a,zebra", "No server has the tag `zebra`. (the tags here: a, b, c)"),
        ("/tags/", "The path has no tag. (name one or more, with commas between them)"),
        ("/nothing", "Not found; MCP is at /mcp"),
    ],
)
async def test_path_to_nobody_is_not_found(path: str, message: str) -> None:
    async with gateway(*THREE) as served:
        answers = [await served.ask(path, {"jsonrpc": "2.0", "id": 1, "method": "ping"}) for _ in range(2)]
        status, _, _ = await served.ask(path, verb="GET")

    for got, answer, _ in answers:
        assert got == 404
        assert answer["error"]["data"] == {"code": "NOT_FOUND"}
        assert answer["error"]["message"] == message
    assert status == 404


async def test_paths_below_ask_for_the_same_token_and_names() -> None:
    http_settings = HttpSettings(listen="127.0.0.1:0", token="${file:token}")
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with anyio.TemporaryDirectory() as folder:
        await anyio.Path(folder, "token").write_text("s3cret")
        config = msgspec.structs.replace(IN_MEMORY, project=folder, http=http_settings)
        async with gateway(config=config) as served:
            # Whoever may not come in does not learn which names there are.
            unknown, _, _ = await served.ask("/server/nobody", message)
            known, _, _ = await served.ask("/server/does", message)
            rebound, _, _ = await served.ask("/server/does", message, host="evil.example")
            let_in, _, _ = await served.ask("/server/nobody", message, authorization="Bearer s3cret")

    assert (unknown, known, rebound, let_in) == (401, 401, 421, 404)


async def test_session_is_of_the_path_that_opened_it() -> None:
    paths = ("", "/server/one", "/tags/a", "/tags/b")
    async with gateway(*THREE) as served:
        sessions = {path: await _opened(served, path) for path in paths}
        statuses = {
            (opened, used): (await _listed(served, used, session))[0]
            for opened, session in sessions.items()
            for used in paths
        }
        deleted, _, _ = await served.ask("", verb="DELETE", mcp_session_id=sessions["/tags/a"])
        after, answer = await _listed(served, "/tags/a", sessions["/tags/a"])
        swapped, _ = await _listed(served, "/tags/c,b", await _opened(served, "/tags/b,c"))

    assert statuses == {(opened, used): 200 if opened == used else 404 for opened in paths for used in paths}
    assert deleted == 404
    assert after == 200
    assert [tool["name"] for tool in answer["result"]["tools"]] == ["one__echo"]
    assert swapped == 200


async def _opened(served: Gateway, path: str) -> str:
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "0"}}
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    status, _, session = await served.ask(path, message)
    assert status == 200
    return session


async def _listed(served: Gateway, path: str, session: str) -> tuple[int, Any]:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    status, answer, _ = await served.ask(path, message, mcp_session_id=session, mcp_protocol_version="2025-06-18")
    return status, answer


async def test_discovery_works_below_too() -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": ENVELOPE}}
    async with gateway(*THREE) as served:
        status, answer, _ = await served.ask(
            "/tags/b", message, mcp_protocol_version=STATELESS, mcp_method="server/discover"
        )

    assert status == 200
    assert answer["result"]["supportedVersions"] == [STATELESS]


async def test_view_is_prepared_once_and_few_are_kept() -> None:
    async with gateway(*THREE) as served:
        listing = served.app.call_handler.listing
        pages = [listing.narrow(View(source="one")).page(REVISIONS[STATELESS], None, request_id=b"1") for _ in range(2)]
        catalog = served.app.gateway.catalog
        for number in range(2 * VIEWS_LIMIT):
            catalog.narrow(View(tags=frozenset({"a", "b", "c"}), source=("one", "two")[number % 2]))
        seen = catalog.narrow(View(tags=frozenset({"a"})))

    assert pages[0] is pages[1]
    assert len(seen) == 1
    assert catalog._narrow_cached.cache_info().currsize <= VIEWS_LIMIT


@pytest.mark.parametrize("mode", ERAS)
async def test_resources_and_prompts_are_seen_where_their_server_is(mode: str) -> None:
    library = ServerSpec(name="library", command=loaded(LIBRARY), tags=frozenset({"books"}))
    async with gateway(library, small("one", "a")) as served:
        async with Client(f"{served.url}/tags/books", mode=mode) as client:
            shown = [str(found.uri) for found in (await client.list_resources()).resources]
            book = await client.read_resource("book://one")
            prompts = [found.name for found in (await client.list_prompts()).prompts]
        async with Client(f"{served.url}/server/library", mode=mode) as client:
            own = [found.name for found in (await client.list_prompts()).prompts]
            review = await client.get_prompt("review", {"title": "x"})
        for path in ("/server/one", "/tags/a", "/server/does"):
            async with Client(served.url + path, mode=mode) as client:
                resources = (await client.list_resources()).resources
                templates = (await client.list_resource_templates()).resource_templates
                with pytest.raises(MCPError) as unread:
                    await client.read_resource("book://one")
                with pytest.raises(MCPError) as unknown:
                    await client.get_prompt("library__review", {"title": "x"})

            assert (resources, templates) == ([], [])
            assert unread.value.code == (-32002 if mode == "legacy" else -32602)
            # On its own path a server without prompts says itself that it knows no such method.
            assert unknown.value.code in (-32602, -32601)

    assert shown == ["book://one"]
    assert book.contents[0].uri == "book://one"
    assert prompts == ["library__review"]
    assert own == ["review"]
    assert review.messages


async def test_view_follows_the_tools_of_its_server() -> None:
    async with gateway(hostile("up", tags=frozenset({"a"})), small("one", "a")) as served:
        async with Client(f"{served.url}/tags/a", mode=STATELESS) as client:
            before = {tool.name for tool in (await client.list_tools()).tools}
            await client.call_tool("up__change", {})
            after = before
            with anyio.fail_after(30):
                while after == before:
                    await anyio.sleep(0.05)
                    after = {tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools}

    assert after - before == {"up__fresh"}
    assert before - after == {"up__refuse"}
