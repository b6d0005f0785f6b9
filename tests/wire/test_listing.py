"""`tools/list`: one order, pages with opaque cursors, and for each revision only what it knows."""

from typing import Any, Literal

import msgspec
import pytest
from mcp.shared.exceptions import MCPError

from tests.ways import BEHAVIOURS, IN_MEMORY, QUICK_WAYS, SHAPES, STATELESS, Way, plugin_of, stdio_peer
from toolpost.app import open_app
from toolpost.base.ids import META_KEY
from toolpost.discovery.catalog import Catalog
from toolpost.endpoints import listing
from toolpost.endpoints.listing import Listing
from toolpost.protocol.era import HANDSHAKE_VERSIONS, REVISIONS


@pytest.mark.anyio
@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_tools_come_in_one_order_page_by_page(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "PAGE_SIZE", 7)
    async with way.client(BEHAVIOURS, SHAPES) as client:
        pages = [await client.list_tools()]
        while cursor := pages[-1].next_cursor:
            pages.append(await client.list_tools(cursor=cursor))
        with pytest.raises(MCPError) as refused:
            await client.list_tools(cursor="nonsense")
        from_the_start = await client.list_tools(cursor="")

    names = [tool.name for page in pages for tool in page.tools]
    assert names == sorted(set(names))
    assert {"does__echo", "shapes__count_uses"} <= set(names)
    assert all(len(page.tools) == 7 for page in pages[:-1])
    assert refused.value.code == -32602
    assert [tool.name for tool in from_the_start.tools] == names[:7]
    if way.mode == STATELESS:
        assert (pages[0].ttl_ms, pages[0].cache_scope) == (60_000, "public")


@pytest.mark.anyio
async def test_the_listing_is_prepared_once_and_follows_the_revision() -> None:
    async with open_app(IN_MEMORY, plugins=[plugin_of(SHAPES)], bundled=False) as app:
        listing = Listing(Catalog(app.plugins.providers), scope="public")
    pages = {version: listing.page(revision, None, request_id=b"1") for version, revision in REVISIONS.items()}
    again = listing.page(REVISIONS[STATELESS], None, request_id=b"1")
    fields = {version: set(msgspec.json.decode(page)["tools"][0]) for version, page in pages.items()}

    assert again is pages[STATELESS]
    assert all("_meta" in known for known in fields.values())
    assert fields["2024-11-05"] == {"name", "description", "inputSchema", "_meta"}
    assert fields["2025-06-18"] == {"name", "description", "inputSchema", "outputSchema", "_meta"}
    assert msgspec.json.decode(pages["2025-11-25"]).keys() == {"tools"}
    assert msgspec.json.decode(pages[STATELESS])["resultType"] == "complete"


@pytest.mark.wire
def test_versions_ride_in_meta(tmp_path: Any) -> None:
    with stdio_peer(BEHAVIOURS, cwd=tmp_path) as peer:
        tools = peer.request("tools/list")["result"]["tools"]

    by_name = {tool["name"]: tool for tool in tools}
    assert by_name["does__echo"]["_meta"][META_KEY] == {"schemaVersion": 1, "toolingVersion": "2.1.0"}
    assert {name.partition("__")[0] for name in by_name} == {"does"}


@pytest.mark.wire
@pytest.mark.parametrize("requested", ["2024-11-05", "2025-03-26"])  # the second has batches, and is not agreed on
def test_older_revisions_get_no_structured_content(requested: str, tmp_path: Any) -> None:
    with stdio_peer(BEHAVIOURS, cwd=tmp_path) as peer:
        agreed = peer.shake_hands(requested)
        peer.send({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "does__nothing"}})
        answer = peer.receive()
        peer.send({"jsonrpc": "2.0", "id": 4, "method": "tools/list"})
        listed = peer.receive()

    assert agreed["result"]["protocolVersion"] == "2024-11-05"
    assert "structuredContent" not in answer["result"]
    assert answer["result"]["content"][0]["text"] == '{"ok":true,"data":"0 arguments"}'
    assert not any("outputSchema" in tool for tool in listed["result"]["tools"])
    assert all(tool["_meta"][META_KEY]["schemaVersion"] >= 1 for tool in listed["result"]["tools"])


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("version", "transport"),
    [
        *((version, "memory") for version in sorted(HANDSHAKE_VERSIONS)),
        pytest.param("2025-03-26", "http", marks=pytest.mark.wire),
    ],
)
async def test_a_client_of_any_revision_reads_the_version_of_a_tool(
    version: str, transport: Literal["memory", "http"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp.client.session.LATEST_HANDSHAKE_VERSION", version)
    async with Way(transport, "legacy").client(BEHAVIOURS) as client:
        agreed = client.protocol_version
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}

    # The one revision with batches is not agreed on.
    assert agreed == ("2024-11-05" if version == "2025-03-26" else version)
    assert (listed["does__echo"].meta or {})[META_KEY] == {"schemaVersion": 1, "toolingVersion": "2.1.0"}
