"""MCP Apps of servers, on the raw wire: two instances of one server stay apart, and calls of an app reach its own server."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.upstreams.behind import SERVERS
from tests.upstreams.raw import Ask, raw_http, raw_stdio
from tests.upstreams.servers.board import META, PAGE, URI
from tests.waiting import until
from tests.ways import BOTH, IN_MEMORY, TOOLPOST
from toolpost.app import open_app, open_http
from toolpost.providers.app_pages import add_script
from toolpost.settings import Config
from toolpost.settings.model import HttpSettings
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

BARE = msgspec.structs.replace(IN_MEMORY, http=HttpSettings(listen="127.0.0.1:0"))

ERAS = pytest.mark.parametrize("is_stateless", [False, True], ids=["handshake", "modern"])


def board(name: str, *options: str) -> ServerSpec:
    return ServerSpec(name=name, command=(sys.executable, "-S", "-E", str(SERVERS / "board.py"), name, *options))


@asynccontextmanager
async def open_http_client(
    *names: str, is_stateless: bool, config: Config = IN_MEMORY, path: str = ""
) -> AsyncIterator[Ask]:
    # One instance of each era: the gateway is between them.
    servers = [board(name, *(["handshake"] if number % 2 else [])) for number, name in enumerate(names)]
    async with open_app(config, bundled=False, servers=servers) as app:
        await until(lambda: len(app.gateway.catalog) == 5 * len(names))
        async with open_http(app) as url, raw_http(f"{url}{path}", is_stateless=is_stateless) as ask:
            yield ask


async def call(ask: Ask, name: str) -> Any:
    answer = await ask("tools/call", {"name": name, "arguments": {}})
    return answer["result"]["content"][0]["text"] if "result" in answer else answer["error"]


async def read(ask: Ask, uri: str) -> Any:
    answer = await ask("resources/read", {"uri": uri})
    return answer["result"]["contents"][0] if "result" in answer else answer["error"]


async def check_two_instances(ask: Ask) -> None:
    tools = {tool["name"]: tool for tool in (await ask("tools/list", {}))["result"]["tools"]}
    resources = (await ask("resources/list", {}))["result"]["resources"]
    templates = (await ask("resources/templates/list", {}))["result"]["resourceTemplates"]

    for name in ("left", "right"):
        listed_uri = f"ui://{name}__board/app.html"
        meta = tools[f"{name}__show"]["_meta"]
        assert meta["ui"] == {"resourceUri": listed_uri, "prefersBorder": True}
        assert meta["ui/resourceUri"] == listed_uri
        assert meta["dev.example/own"] == URI
        assert tools[f"{name}__move"]["_meta"]["ui"] == {"visibility": ["app"]}
        contents = await read(ask, listed_uri)
        assert contents["uri"] == listed_uri
        assert contents["_meta"] == META
        assert contents["text"] == add_script(PAGE + name, name, {"board.reset": f"{name}__board_reset"})
        assert await call(ask, f"{name}__move") == f"{name} move"
        assert await call(ask, f"{name}__board_reset") == f"{name} board.reset"
    assert [resource["uri"] for resource in resources] == [f"ui://{n}__board/app.html" for n in ("left", "right")]
    assert [template["uriTemplate"] for template in templates] == [
        f"ui://{n}__board/{{id}}.html" for n in ("left", "right")
    ]
    assert (await read(ask, "ui://right__board/7.html"))["uri"] == "ui://right__board/7.html"

    ambiguous = await call(ask, "move")
    assert ambiguous["code"] == -32602
    assert ambiguous["data"]["code"] == "INVALID_REQUEST"
    assert ambiguous["data"]["hint"] == "call `left__move` or `right__move`"
    assert "ui://left__board/app.html or ui://right__board/app.html" in (await read(ask, URI))["message"]


@ERAS
async def test_two_instances_of_one_server_stay_apart(is_stateless: bool) -> None:
    async with open_http_client("left", "right", is_stateless=is_stateless) as ask:
        await check_two_instances(ask)
        reference = {"type": "ref/resource", "uri": "ui://right__board/{id}.html"}
        completed = await ask("completion/complete", {"ref": reference, "argument": {"name": "id", "value": ""}})
    assert completed["result"]["completion"]["values"] == ["right", "ui://board/{id}.html"]


@pytest.mark.parametrize(
    "is_stateless", [pytest.param(False, marks=pytest.mark.soak), True], ids=["handshake", "modern"]
)
async def test_on_stdio_too(is_stateless: bool, tmp_path: Path) -> None:
    python, *arguments = board("NAME").command or ()
    for name in ("left", "right"):
        with (tmp_path / "toolpost.toml").open("a") as file:
            given = json.dumps([name if part == "NAME" else part for part in arguments])
            file.write(f'[servers.{name}]\ncommand = "{python}"\nargs = {given}\n')
    async with raw_stdio([TOOLPOST, "serve", "--stdio"], is_stateless=is_stateless, cwd=tmp_path) as ask:
        await check_two_instances(ask)


@ERAS
async def test_a_name_that_one_server_has_needs_no_server_in_front(is_stateless: bool) -> None:
    async with open_http_client("left", is_stateless=is_stateless, config=BOTH) as ask:
        assert await call(ask, "move") == "left move"
        assert await call(ask, "board.reset") == "left board.reset"
        assert await call(ask, "plain") == "left plain"
        assert (await read(ask, URI))["uri"] == "ui://left__board/app.html"
        model_only, unknown = await call(ask, "advise"), await call(ask, "mov")
        found = await ask("tools/call", {"name": "automatic_mcp", "arguments": {"query": "move show advise"}})
        run = await ask("tools/call", {"name": "automatic_eval", "arguments": {"toolName": "left__move"}})
        run_bare = await ask("tools/call", {"name": "automatic_eval", "arguments": {"toolName": "move"}})

    assert model_only["data"]["hint"] == "did you mean `left__advise`?"
    assert "left__move" not in json.dumps(unknown)
    assert "left__show" in found["result"]["content"][0]["text"]
    assert "left__move" not in found["result"]["content"][0]["text"]
    for refused in (run, run_bare):
        assert refused["result"]["isError"] is True
        assert "for the app of its server, not for models" in refused["result"]["content"][0]["text"]


@ERAS
async def test_a_server_on_its_own_path_has_its_own_names_and_pages(is_stateless: bool) -> None:
    async with open_http_client("left", "right", is_stateless=is_stateless, path="/server/right", config=BARE) as ask:
        assert await call(ask, "move") == "right move"
        page = await read(ask, "ui://right__board/app.html")
        assert page["text"] == PAGE + "right"
        assert (await read(ask, URI))["text"] == PAGE + "right"
