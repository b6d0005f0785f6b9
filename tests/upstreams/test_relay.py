"""Resources, prompts and completions of a server reach a client of the gateway, on every way in and out."""

import sys
from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference

from tests.ways import IN_MEMORY, QUICK_WAYS, Way
from toolpost.app import open_app
from toolpost.upstreams.spec import ServerSpec

pytestmark = pytest.mark.anyio

LIBRARY = str(Path(__file__).parent / "servers" / "library.py")


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_what_a_server_has_besides_tools_passes_through(way: Way) -> None:
    specs = [
        ServerSpec(name="library", command=(sys.executable, LIBRARY)),
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
