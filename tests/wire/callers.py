"""A gateway that knows several callers, and clients who are each of them."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError

from tests.ways import IN_MEMORY
from toolpost.settings import Config, load_config
from toolpost.settings.callers import CallerSettings
from toolpost.settings.model import StoreSettings

ERAS = ["legacy", "2026-07-28"]


class Project:
    """A folder with a configuration, in which every caller's token is in a file of their name: `NAME-token`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "toolpost.toml"

    def write(self, *callers: str, more: str = "") -> "Project":
        """Write a caller each: the name, and further settings on the lines after it."""
        tables = []
        for name, _, settings in (caller.partition("\n") for caller in callers):
            (self.folder / name).write_text(f"{name}-token\n")
            tables.append(f'[callers.{name}]\ntoken = "${{file:{name}}}"\n{settings}\n')
        self.path.write_text("".join(tables) + more)
        return self

    def load(self) -> Config:
        config = load_config(self.path)
        http = msgspec.structs.replace(config.http, listen=IN_MEMORY.http.listen)
        return msgspec.structs.replace(config, store=IN_MEMORY.store, http=http)


@asynccontextmanager
async def client_of(url: str, token: str, mode: str, **options: Any) -> AsyncIterator[Client]:
    """Connect with a token."""
    async with create_mcp_http_client(headers={"authorization": f"Bearer {token}"}) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode, **options) as client:
            yield client


async def names(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]


async def refusal(client: Client, tool: str, **arguments: Any) -> MCPError:
    """Call what must be refused."""
    try:
        answer = await client.call_tool(tool, arguments)
    except MCPError as error:
        return error
    raise AssertionError(answer)


def three_callers(folder: Path, url: str) -> Config:
    """Make a gateway of three callers with tokens, of whom ben is an administrator."""
    for name in ("ann", "ben", "eve"):
        (folder / name).write_text(f"token-of-{name}")
    callers = {name: CallerSettings(token=f"${{file:{name}}}", admin=name == "ben") for name in ("ann", "ben", "eve")}
    return msgspec.structs.replace(IN_MEMORY, callers=callers, project=str(folder), store=StoreSettings(url=url))


async def request(url: str, path: str, name: str, method: str = "GET") -> tuple[int, Any]:
    sent = urllib.request.Request(
        url.removesuffix("/mcp") + path, headers={"Authorization": f"Bearer token-of-{name}"}, method=method
    )

    def send() -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(sent, timeout=20) as answer:
                text = answer.read().decode()
                return answer.status, json.loads(text) if text.startswith("{") else text
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    return await asyncio.to_thread(send)
