"""What clients see of large results: over every transport, in both eras, from functions and from servers."""

import base64
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp_types import CallToolResult, ResourceLink, TextContent

from tests.endpoints.tasks.asking import AT_ONCE, Tasks
from tests.parts.results.conftest import LIMIT, limited, open_limited
from tests.plugins.bulk import plugin as bulk
from tests.proofs import proves
from tests.ways import BOTH, QUICK_WAYS, STATELESS, Way, stdio_server
from tests.wire.callers import Project, client_of
from toolpost.app import App, open_http
from toolpost.audit import AuditFilter
from toolpost.base.ids import META_KEY
from toolpost.contracts.digest import digest_of_bytes
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.parts.results.settings import LimitRule
from toolpost.settings import Config
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

SERVER = Path(__file__).parent / "server.py"
WHOLE: Any = {META_KEY: {"wholeResult": True}}


def large(version: str = STATELESS) -> ServerSpec:
    return ServerSpec(name="up", command=(sys.executable, "-S", "-E", str(SERVER), "--version", version))


@asynccontextmanager
async def served(way: Way, config: Config | None = None, *servers: ServerSpec) -> AsyncIterator[tuple[App, Client]]:
    async with open_limited(config or limited(), bulk, servers=servers) as app, way.client_of(app) as client:
        await client.list_tools()  # so that the client validates structured content
        yield app, client


def truncated(answer: CallToolResult) -> dict[str, Any]:
    """Return what an answer says of the rest; it says it three times."""
    assert answer.meta is not None
    facts: dict[str, Any] = answer.meta[META_KEY]["truncated"]
    notice, link = answer.content[-2:]
    assert isinstance(notice, TextContent)
    assert notice.text.startswith("[Truncated] ")
    assert facts["id"] in notice.text
    assert isinstance(link, ResourceLink)
    assert str(link.uri) == facts["uri"]
    return facts


def next_call(answer: CallToolResult) -> dict[str, Any]:
    """Return the arguments of the call that the notice tells to make."""
    notice = answer.content[-2]
    assert isinstance(notice, TextContent)
    text = notice.text
    return json.JSONDecoder().raw_decode(text, text.index("{"))[0]  # type: ignore[no-any-return]


async def read(client: Client, **arguments: Any) -> dict[str, Any]:
    answer = await client.call_tool("results__read", arguments)
    assert not answer.is_error, answer
    page: dict[str, Any] | None = answer.structured_content
    assert page is not None
    return page


async def read_on(client: Client, **arguments: Any) -> str:
    """Read to the end, page by page."""
    text: str = ""
    while True:
        page = await read(client, **arguments)
        text += str(page["text"])
        if page["next_offset"] is None:
            return text
        arguments["offset"] = page["next_offset"]


async def whole_of(client: Client, uri: str) -> bytes:
    contents = (await client.read_resource(uri)).contents[0]
    return contents.text.encode() if hasattr(contents, "text") else base64.b64decode(contents.blob)


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_functions_result_is_cut_and_the_rest_is_read(way: Way) -> None:
    async with served(way) as (_, client):
        answer = await client.call_tool("bulk__rows", {"count": 500})
        facts = truncated(answer)
        assert answer.structured_content is not None
        shown = answer.structured_content["data"]
        first = answer.content[0]
        assert isinstance(first, TextContent)
        assert json.loads(first.text) == answer.structured_content
        whole = await whole_of(client, facts["uri"])
        rest = await read_on(client, **next_call(answer))

    rows = [{"id": number, "name": f"row é {number}"} for number in range(500)]
    assert 10 < len(shown) < 100
    assert shown == rows[: len(shown)]
    assert json.loads(rest) == rows
    assert rest.encode() == whole


@pytest.mark.parametrize(("tool", "argument"), [("up__lie", "size"), ("bulk__lie", "count")])
@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_the_content_of_a_result_that_broke_its_schema_is_limited_too(way: Way, tool: str, argument: str) -> None:
    async with served(way, None, large()) as (_, client):
        answer = await client.call_tool(tool, {argument: 1_000})
        truncated(answer)
        rest = await read_on(client, **next_call(answer))
        short = await client.call_tool(tool, {argument: 10})
        whole = await client.call_tool(tool, {argument: 1_000}, meta=WHOLE)

    assert answer.is_error
    error, shown = answer.content[0], answer.content[1]
    assert isinstance(error, TextContent)
    assert isinstance(shown, TextContent)
    assert "OUTPUT_VALIDATION_FAILED" in error.text
    assert len(shown.text.encode()) <= LIMIT
    cut = shown.text.partition("… [")[0]
    assert cut + rest == "row é\n" * 1_000
    assert [block.text for block in short.content[1:]] == ["row é\n" * 10]  # type: ignore[union-attr]
    assert [block.text for block in whole.content[1:]] == ["row é\n" * 1_000]  # type: ignore[union-attr]


@pytest.mark.parametrize("version", ["2025-11-25", STATELESS])
@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_servers_result_is_cut_and_the_rest_is_read(way: Way, version: str) -> None:
    async with served(way, None, large(version)) as (_, client):
        answer = await client.call_tool("up__rows", {"size": 400})
        facts = truncated(answer)
        assert answer.structured_content is not None
        cut = answer.structured_content
        text = answer.content[0]
        assert isinstance(text, TextContent)
        rest = await read_on(client, **next_call(answer))
        whole = json.loads(await whole_of(client, facts["uri"]))

    rows = [{"id": number, "name": f"row é {number}"} for number in range(400)]
    assert cut["total"] == 400
    assert cut["rows"] == rows[: len(cut["rows"])]
    assert len(cut["rows"]) > 10
    said = json.dumps({"total": 400, "rows": rows})
    assert said.endswith(rest)
    assert text.text.partition("…")[0] + rest == said
    assert whole["structuredContent"] == {"total": 400, "rows": rows}


async def test_over_stdio_the_rest_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(f"[results]\nlimit_tokens = {LIMIT // 4}\n")
    server = stdio_server("tests.plugins.bulk:plugin", cwd=tmp_path)
    async with Client(server, mode="legacy") as client:
        answer = await client.call_tool("bulk__text", {"count": 300})
        facts = truncated(answer)
        rest = await read_on(client, **next_call(answer))
    # Another process, with the same store.
    async with Client(server, mode=STATELESS) as client:
        assert await read_on(client, id=facts["id"]) == rest

    assert rest == "".join(f'line {number} "ü😀"\n' for number in range(300))


async def test_what_is_kept_has_the_digest_of_the_audit(url: str) -> None:
    async with served(Way("memory", STATELESS), limited(url=url), large()) as (app, client):
        for tool in ("bulk__rows", "bulk__text", "bulk__exact", "up__rows", "up__echo"):
            arguments = {"size": 500} if tool.startswith("up") else {"count": 500}
            facts = truncated(await client.call_tool(tool, arguments))
            entries = await app.store.audit.entries(AuditFilter(), limit=100)
            (recorded_digest,) = {one.entry.result for one in entries if one.entry.tool == tool}
            whole = await whole_of(client, facts["uri"])
            assert digest_of_bytes(whole) == facts["digest"] == recorded_digest
            assert len(whole) == facts["bytes"]


async def test_gateways_of_one_store_and_their_successors_read_it(url: str) -> None:
    config = limited(url=url)
    async with served(Way("memory", STATELESS), config) as (_, one), served(Way("http", "legacy"), config) as (_, two):
        facts = truncated(await one.call_tool("bulk__rows", {"count": 500}))
        seen = await whole_of(two, facts["uri"])
    async with served(Way("memory", STATELESS), config) as (_, client):
        assert await whole_of(client, facts["uri"]) == seen


async def test_results_without_a_shorter_form_lose_their_structure_and_say_so() -> None:
    async with served(Way("memory", STATELESS), None, large()) as (app, client):
        for tool, arguments, pointer in [
            ("bulk__exact", {"count": 500}, "/data"),
            ("bulk__patterned", {"count": 5000}, "/data"),
            ("up__exact", {"size": 5000}, "/structuredContent"),
        ]:
            # The official client refuses a result without structured content, unless it says isError.
            answer = await client.call_tool(tool, arguments)
            truncated(answer)
            assert answer.is_error
            assert answer.structured_content is None
            notice = answer.content[-2]
            assert isinstance(notice, TextContent)
            assert "The call succeeded." in notice.text
            assert json.loads(await read_on(client, id=next_call(answer)["id"], select=pointer))
        codes = [record.entry.outcome for record in await app.store.audit.entries(AuditFilter(), limit=100)]
        shown = await app.monitor.scrape()

    assert set(codes) == {"ok"}
    assert 'toolpost_results_limited_total{answer="without structure"} 3.0' in shown


async def test_images_and_files_become_links() -> None:
    config = limited(limit_bytes=2_000, blob_bytes=20_000)
    image = base64.b64encode(bytes(range(256)) * 100).decode()
    blocks = [
        {"type": "image", "data": image[:8000], "mimeType": "image/png"},
        {"type": "audio", "data": image, "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": image, "mimeType": "x/y"}},
        {"type": "resource", "resource": {"uri": "file:///b.txt", "text": "é" * 5000, "mimeType": "text/plain"}},
        {"type": "text", "text": "short"},
        {"type": "resource_link", "uri": "file:///c", "name": "c"},
    ]
    async with served(Way("http", STATELESS), config, large()) as (_, client):
        answer = await client.call_tool("up__say", {"result": json.dumps({"content": blocks})})
        facts = truncated(answer)
        kinds = [block.type for block in answer.content]
        links = [block for block in answer.content if isinstance(block, ResourceLink)]
        read_back = [await whole_of(client, str(link.uri)) for link in links[:3]]
        picture = await client.call_tool("bulk__picture", {"count": 100})
        seen = await whole_of(client, str(picture.content[0].uri))  # type: ignore[union-attr]
        small = await client.call_tool("bulk__picture", {"count": 10})

    assert kinds == [
        "image",
        "resource_link",
        "resource_link",
        "resource_link",
        "text",
        "resource_link",
        "text",
        "resource_link",
    ]
    assert [link.mime_type for link in links[:3]] == ["audio/wav", "x/y", "text/plain"]
    assert [str(link.uri) for link in links[:3]] == [f"{facts['uri']}/content/{number}" for number in (1, 2, 3)]
    assert read_back == [bytes(range(256)) * 100, bytes(range(256)) * 100, ("é" * 5000).encode()]
    assert seen == bytes(range(256)) * 100
    assert [block.type for block in small.content] == ["image"]


async def test_errors_are_cut_too_and_stay_errors() -> None:
    async with served(Way("memory", STATELESS), None, large()) as (_, client):
        said = {
            "content": [{"type": "text", "text": "no " * 2000}],
            "isError": True,
            "structuredContent": {"a": "b" * 5000},
        }
        for answer in (
            await client.call_tool("up__say", {"result": json.dumps(said)}),
            await client.call_tool("bulk__fail", {"count": 2000}),
        ):
            truncated(answer)
            assert answer.is_error
            assert answer.structured_content is None


async def test_clients_and_callers_opt_out() -> None:
    async with served(Way("memory", STATELESS)) as (_, client):
        whole = await client.call_tool("bulk__rows", {"count": 500}, meta=WHOLE)
    config = limited(rules={"mine": LimitRule(callers=["local"], tools=["*__rows"], limit_tokens=0)})
    async with served(Way("memory", STATELESS), config) as (_, client):
        as_caller = await client.call_tool("bulk__rows", {"count": 500})
        truncated(await client.call_tool("bulk__text", {"count": 500}))
    for answer in (whole, as_caller):
        assert answer.structured_content is not None
        assert len(answer.structured_content["data"]) == 500


async def test_automatic_eval_and_tasks_are_limited_alike() -> None:
    config = limited(BOTH)
    async with served(Way("http", STATELESS), config, large()) as (_, client):
        for tool, arguments in (("bulk__rows", {"count": 500}), ("up__rows", {"size": 500})):
            answer = await client.call_tool("automatic_eval", {"toolName": tool, "arguments": arguments})
            facts = truncated(answer)
            page = await client.call_tool(
                "automatic_eval", {"toolName": "results__read", "arguments": {"id": facts["id"]}}
            )
            assert not page.is_error
    knowing = Tasks()
    async with open_limited(limited(AT_ONCE), bulk, servers=[large()]) as app:
        endpoint = open_memory_endpoint(app.call_handler, app.sdk)
        async with Client(endpoint, mode=STATELESS, extensions=[knowing]) as client:
            truncated(await client.call_tool("bulk__rows", {"count": 500}))
            truncated(await client.call_tool("up__rows", {"size": 500}))
    assert len(knowing.handles) == 2


@proves("results__read", "id", "select", "grep", "offset", "limit")
async def test_every_argument_of_the_tool_matters() -> None:
    async with served(Way("memory", STATELESS), None, large()) as (_, client):
        answer = await client.call_tool("bulk__text", {"count": 2000})
        name = truncated(answer)["id"]
        page = await read(client, id=name, limit=300, offset=100)
        found = await read(client, id=name, grep=r"line 19\d\d ", limit=200)
        more = await read(client, id=name, grep=r"line 19\d\d ", offset=found["next_offset"])
        there = await read(client, id=name, offset=found["matches"][1]["offset"], limit=100)
        rows = truncated(await client.call_tool("up__rows", {"size": 500}))["id"]
        one = await read(client, id=rows, select="/structuredContent/rows/250")
        every = await read(client, id=rows, select="/structuredContent/rows/*/id")
        missing = await client.call_tool("results__read", {"id": rows, "select": "/structuredContent/columns"})

    said = "".join(f'line {number} "ü😀"\n' for number in range(2000))
    assert len(page["text"].encode()) <= 300
    assert page["text"] in said
    assert not said.startswith(page["text"])
    assert [match["text"] for match in found["matches"]] == [
        f'line {number} "ü😀"' for number in range(1900, 1900 + len(found["matches"]))
    ]
    assert 5 < len(found["matches"]) < 20
    assert more["matches"][-1]["text"] == 'line 1999 "ü😀"'
    assert len(found["matches"]) + len(more["matches"]) == 100
    assert there["text"].startswith('line 1901 "ü😀"\nline 1902')
    assert json.loads(one["text"]) == {"id": 250, "name": "row é 250"}
    assert json.loads(every["text"]) == list(range(500))
    assert missing.is_error
    assert "rows" in str(missing.content)


async def test_what_is_read_is_not_cut_again() -> None:
    async with served(Way("memory", STATELESS)) as (_, client):
        answer = await client.call_tool("bulk__text", {"count": 5000})
        page = await read(client, id=truncated(answer)["id"], limit=50 * LIMIT)

    assert len(page["text"].encode()) > 20 * LIMIT


async def test_another_caller_is_told_that_it_is_not_there(tmp_path: Path) -> None:
    more = f"[results]\nlimit_tokens = {LIMIT // 4}\n[servers.up]\ncommand = {json.dumps(sys.executable)}\n"
    more += f'args = ["-S", "-E", {json.dumps(str(SERVER))}]\n'
    config = Project(tmp_path).write("ada", 'bob\ntools = ["up__rows"]', more=more).load()
    async with open_limited(config, bulk) as app, open_http(app) as url:
        async with client_of(url, "ada-token", STATELESS) as ada, client_of(url, "bob-token", "legacy") as bob:
            facts = truncated(await ada.call_tool("bulk__rows", {"count": 500}))
            refused = await bob.call_tool("results__read", {"id": facts["id"]})
            with pytest.raises(MCPError, match="There is no result"):
                await bob.read_resource(facts["uri"])
            with pytest.raises(MCPError, match="There is no result"):
                await bob.read_resource(facts["uri"] + "/content/0")
            # The tool is there for a caller whose other tools are listed one by one, and on a path of one server.
            theirs = truncated(await bob.call_tool("up__rows", {"size": 500}))
            assert json.loads(await whole_of(bob, theirs["uri"]))
            names = [tool.name for tool in (await bob.list_tools()).tools]
            async with client_of(f"{url}/server/up", "ada-token", STATELESS) as on_path:
                path_names = [tool.name for tool in (await on_path.list_tools()).tools]
                here = truncated(await on_path.call_tool("rows", {"size": 500}))
                assert (await read(on_path, id=here["id"]))["text"]

    assert refused.is_error
    assert "NOT_FOUND" in str(refused.content)
    assert names == ["results__read", "up__rows"]
    assert "results__read" in path_names
