"""Resources, prompts and completions of a server reach a client of the gateway, on every way in and out."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference

from tests.loaded import loaded
from tests.upstreams.behind import SERVERS
from tests.upstreams.raw import raw_http
from tests.upstreams.servers import unusual
from tests.ways import IN_MEMORY, QUICK_WAYS, Way
from toolpost.app import open_app, open_http
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

LIBRARY = str(Path(__file__).parent / "servers" / "library.py")


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_what_a_server_has_besides_tools_passes_through(way: Way) -> None:
    specs = [
        ServerSpec(name="library", command=loaded(LIBRARY)),
        ServerSpec(name="absent", command=("no-such-command-anywhere",)),
    ]
    async with open_app(IN_MEMORY, bundled=False, servers=specs) as app, way.client_of(app) as client:
        resources = await client.list_resources()
        templates = await client.list_resource_templates()
        prompts = await client.list_prompts()
        book = await client.read_resource("book://one")
        shelf = await client.read_resource("book://shelf/7")
        prompt = await client.get_prompt("library__review", {"title": "Moby-Dick"})
        completed = await client.complete(
            PromptReference(type="ref/prompt", name="library__review"), {"name": "title", "value": "Mo"}
        )
        with pytest.raises(MCPError) as unknown:
            await client.get_prompt("nowhere__review", {})
        with pytest.raises(MCPError):
            await client.read_resource("book://nowhere/at/all")

    assert [str(resource.uri) for resource in resources.resources] == ["book://one"]
    assert [template.uri_template for template in templates.resource_templates] == ["book://shelf/{number}"]
    assert [prompt.name for prompt in prompts.prompts] == ["library__review"]
    assert book.contents[0].text == "the first book"  # type: ignore[union-attr]
    assert shelf.contents[0].text == "shelf 7"  # type: ignore[union-attr]
    assert prompt.messages[0].content.text == "Review Moby-Dick."  # type: ignore[union-attr]
    assert completed.completion.values == ["Mo!"]
    assert unknown.value.code == -32602


ASKED: list[tuple[str, dict[str, Any]]] = [
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "odd://one"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "up__greet"}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "up__greet"}, "argument": {"name": "w", "value": ""}},
    ),
]


@pytest.mark.parametrize("server_era", ["handshake", "modern"])
@pytest.mark.parametrize("is_stateless", [False, True], ids=["handshake", "modern"])
async def test_fields_that_no_revision_knows_survive_in_their_order(is_stateless: bool, server_era: str) -> None:
    command = (sys.executable, "-S", "-E", str(SERVERS / "unusual.py"), server_era)
    async with open_app(IN_MEMORY, bundled=False, servers=[ServerSpec(name="up", command=command)]) as app:
        async with open_http(app) as url, raw_http(url, is_stateless=is_stateless) as ask:
            found = {method: (await ask(method, params))["result"] for method, params in ASKED}
            nonsense = await ask("resources/read", {"uri": "odd://nonsense"})

    era = {"resultType", "ttlMs", "cacheScope", "_meta"}
    for method, result in found.items():
        shown = json.dumps({key: value for key, value in result.items() if key not in era}).replace("up__", "")
        expected = {key: value for key, value in unusual.RESULTS[method].items() if key not in era}
        assert shown == json.dumps(expected)
        assert ("resultType" in result) == is_stateless
    meta = found["resources/read"]["_meta"]
    assert [key for key in meta if len(key) == 1] == ["b", "a"]
    assert ("io.modelcontextprotocol/serverInfo" in meta) == is_stateless
    assert nonsense["error"]["data"]["code"] == "UPSTREAM_UNAVAILABLE"
