"""How the tests ask for tools."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from mcp import Client
from mcp_types import CallToolResult, TextContent

from tests.plugins.office import OFFICE
from tests.ways import BOTH, plugin_of
from toolpost.app import App, open_app
from toolpost.base.ids import META_KEY
from toolpost.settings import Config
from toolpost.settings.model import StoreSettings

KEYS = {"etag", "tools", "totalAvailable", "filtered", "known"}


async def ask(client: Client, query: str | None = None, **arguments: Any) -> dict[str, Any]:
    """Search, see that text and structured content say the same, and return the answer."""
    if query is not None:
        arguments["query"] = query
    answer = await client.call_tool("automatic_mcp", arguments)
    assert not answer.is_error, answer
    found: dict[str, Any] = json.loads(text_of(answer))
    assert answer.structured_content == found
    assert found.keys() - {"more", "note"} == KEYS
    assert found["filtered"] == len(found["tools"])
    return found


def text_of(answer: CallToolResult) -> str:
    block = answer.content[0]
    assert isinstance(block, TextContent)
    return block.text


def names_of(found: dict[str, Any]) -> list[str]:
    return [definition["name"] for definition in found["tools"]]


def tokens_of(answer: CallToolResult) -> dict[str, int]:
    assert answer.meta is not None
    tokens: dict[str, int] = answer.meta[META_KEY]["tokens"]
    return tokens


@asynccontextmanager
async def office(config: Config = BOTH, **options: Any) -> AsyncIterator[App]:
    """Open a gateway with the sixty tools of an office."""
    async with open_app(config, plugins=[plugin_of(r) for r in OFFICE], bundled=False, **options) as app:
        yield app


def stored(path: Path, config: Config = BOTH) -> Config:
    """Return a configuration that remembers."""
    return msgspec.structs.replace(config, store=StoreSettings(url=f"sqlite:{path}"))
