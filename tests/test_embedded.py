"""`Toolpost` in a program of somebody else's: by itself, below uvicorn, mounted into an application, and called in process."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import msgspec
import psutil
import pytest
from mcp import Client, StdioServerParameters
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.docs import reader_server
from tests.loaded import loaded
from tests.ways import ENVELOPE, STATELESS, server_environment
from toolpost import (
    Caller,
    CallerId,
    CallRequest,
    CallResult,
    Forbidden,
    InvalidArguments,
    Next,
    Plugin,
    ToolFailed,
    Toolpost,
    ToolpostError,
)
from toolpost.parts import Host, Part, Section
from toolpost.testing import data_of, error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

TEN_LINES = """\
from toolpost import Forbidden, Plugin, Toolpost
plugin = Plugin("shop", version="1.0.0")
@plugin.tool
async def price(item: str) -> int:
    "Say what an item costs."
    return len(item)
async def guard(call, proceed):
    if call.arguments.get("name") == "Eve": raise Forbidden("Not for Eve.")
    return await proceed(call)
app = Toolpost(servers={"mine": MINE}, plugins=[plugin], middleware=[guard])
"""

MOUNTED = (
    TEN_LINES
    + """
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
whole = Starlette(
    routes=[Route("/", lambda request: PlainTextResponse("ours")), Mount("/tools", app)], lifespan=app.lifespan
)
"""
)

BY_ITSELF = TEN_LINES + "\nif __name__ == '__main__':\n    app.run(OPTIONS)\n"


def mine() -> dict[str, Any]:
    """Return the settings of a server that greets."""
    command, *arguments = loaded(str(reader_server.__file__))
    return {"command": command, "args": arguments}


def write(folder: Path, text: str, options: str = "") -> None:
    (folder / "shop.py").write_text(text.replace("MINE", repr(mine())).replace("OPTIONS", options))


@dataclass(frozen=True)
class Program:
    """A program that runs, and where it serves."""

    process: "subprocess.Popen[str]"
    url: str

    def end(self) -> list[int]:
        """End it as a service manager does; returns the processes that it has left behind."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        assert children, "the server behind it runs in a process of its own"
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(20) in (0, -signal.SIGTERM)
        _, alive = psutil.wait_procs(children, timeout=30)
        return [child.pid for child in alive]


@contextmanager
def program(folder: Path, text: str, *command: str) -> Iterator[Program]:
    """Write a program into a folder, run it, and wait until it says where it serves."""
    write(folder, text, "listen='127.0.0.1:0'")
    environment = server_environment() | {"PYTHONPATH": str(folder), "PYTHONUNBUFFERED": "1"}
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=folder, env=environment, stdout=log, stderr=log, text=True
        )
    try:
        until = time.monotonic() + 60
        while not (found := re.search(r"http://[\d.:]+", (folder / "log.txt").read_text())):
            assert process.poll() is None, (folder / "log.txt").read_text()
            assert time.monotonic() < until, (folder / "log.txt").read_text()
            time.sleep(0.05)
        yield Program(process, found.group())
    finally:
        process.kill()
        process.wait()


async def check_tools(client: Client) -> None:
    """See that a plugin, a server and the middleware do their work."""
    assert {tool.name for tool in (await client.list_tools()).tools} == {"shop__price", "mine__greet"}
    assert data_of(await client.call_tool("shop__price", {"item": "lamp"})) == 4
    assert data_of(await client.call_tool("mine__greet", {"name": "Ada"})) == {"result": "Hello Ada!"}
    assert error_of(await client.call_tool("mine__greet", {"name": "Eve"}))["code"] == "FORBIDDEN"
    assert error_of(await client.call_tool("shop__price", {}))["code"] == "INVALID_PARAMS"


@pytest.mark.parametrize("mode", [pytest.param("legacy", marks=pytest.mark.soak), STATELESS])
@pytest.mark.parametrize(
    ("text", "command", "path"),
    [
        (TEN_LINES, ("-m", "uvicorn", "shop:app", "--port", "0"), "/mcp"),
        pytest.param(
            *(TEN_LINES, ("-m", "uvicorn", "shop:app", "--port", "0", "--root-path", "/behind"), "/mcp"),
            marks=pytest.mark.soak,
        ),
        (MOUNTED, ("-m", "uvicorn", "shop:whole", "--port", "0"), "/tools/mcp"),
        (BY_ITSELF, ("shop.py",), "/mcp"),
    ],
    ids=["uvicorn", "root-path", "mounted", "run"],
)
async def test_the_ten_lines_serve_and_end_cleanly(
    text: str, command: tuple[str, ...], path: str, mode: str, tmp_path: Path
) -> None:
    assert len(TEN_LINES.splitlines()) == 10
    with program(tmp_path, text, *command) as running:
        async with Client(running.url + path, mode=mode) as client:
            await check_tools(client)
        left = await anyio.to_thread.run_sync(running.end)

    assert left == []
    assert {file.name for file in tmp_path.iterdir()} <= {"shop.py", "log.txt", "__pycache__"}, "the store is in memory"


@pytest.mark.parametrize("mode", ["legacy", STATELESS])
async def test_the_ten_lines_serve_on_stdio(mode: str, tmp_path: Path) -> None:
    write(tmp_path, BY_ITSELF, "transport='stdio'")
    server = StdioServerParameters(command=sys.executable, args=["shop.py"], env=server_environment(), cwd=tmp_path)
    async with Client(server, mode=mode) as client:
        await check_tools(client)


async def test_a_client_that_listens_does_not_keep_uvicorn(tmp_path: Path) -> None:
    with program(tmp_path, TEN_LINES, "-m", "uvicorn", "shop:app", "--port", "0") as running:
        async with Client(f"{running.url}/mcp", mode="legacy") as client:
            await client.list_tools()
            # The client has its stream of notifications open: a GET that lasts as long as the session.
            with anyio.fail_after(30):
                assert await anyio.to_thread.run_sync(running.end) == []


# In this process: the same application, asked without a socket.

plugin = Plugin("shop", version="1.0.0")


@plugin.tool
async def price(item: str) -> int:
    """Say what an item costs."""
    if item == "broken":
        raise ToolFailed("No price.")
    return len(item)


def call_of(tool: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the body and the headers of a call in the stateless era."""
    params = {"name": tool, "arguments": arguments, "_meta": ENVELOPE}
    headers = {"mcp-protocol-version": STATELESS, "mcp-method": "tools/call", "mcp-name": tool}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, headers


@asynccontextmanager
async def browser(application: Any, base_url: str = "http://127.0.0.1:8000") -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(application), base_url=base_url) as client:
        yield client


async def post(application: Any, path: str = "/mcp", **headers: str) -> httpx2.Response:
    """Call a tool over an application's own interface; `server` is the address that the request came to."""
    server = headers.pop("server", "127.0.0.1")
    body, needed = call_of("shop__price", {"item": "lamp"})

    async def reached(scope: Any, receive: Any, send: Any) -> None:
        await application({**scope, "server": (server, 8000)}, receive, send)

    async with browser(reached) as client:
        return await client.post(path, json=body, headers=needed | headers)


def mounted(app: Toolpost, **options: Any) -> Starlette:
    return Starlette(routes=[Mount("/tools", app)], **options)


async def test_a_mounted_gateway_that_nobody_opened_says_how_to_open_it() -> None:
    app = Toolpost(plugins=[plugin])
    answer = await post(mounted(app), "/tools/mcp")

    assert answer.status_code == 503
    assert "lifespan=app.lifespan" in answer.json()["error"]["message"]

    async with app.open():
        opened = await post(mounted(app), "/tools/mcp")
    closed = await post(mounted(app), "/tools/mcp")

    assert opened.json()["result"]["structuredContent"] == {"ok": True, "data": 4}
    assert closed.status_code == 503


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "evil.example"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "http://localhost:3000"}, 200),
        ({"server": "192.168.1.5"}, 403),
        ({"server": "::1"}, 200),
    ],
)
async def test_without_a_token_only_this_machine_may_call(headers: dict[str, str], status: int) -> None:
    app = Toolpost(plugins=[plugin])
    async with app.open():
        assert (await post(mounted(app), "/tools/mcp", **headers)).status_code == status


async def test_an_application_that_checks_callers_may_let_others_in() -> None:
    app = Toolpost(plugins=[plugin], allow_anonymous=True, settings={"http": {"allowed_hosts": ["shop.example"]}})
    async with app.open():
        assert (await post(app, server="192.168.1.5", host="shop.example")).status_code == 200
        assert (await post(app, server="192.168.1.5", host="evil.example")).status_code == 421
        async with browser(app) as client:
            through = {"Host": "shop.example", "X-Forwarded-For": "203.0.113.7"}
            assert (await client.get("/api/servers", headers=through)).status_code == 200


async def test_a_token_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLPOST_TOKEN", "s3cret")
    app = Toolpost(plugins=[plugin])
    async with app.open():
        refused = [await post(app, server="192.168.1.5", authorization=shown) for shown in ("", "Bearer wrong")]
        served = await post(app, server="192.168.1.5", host="shop.example", authorization="Bearer s3cret")

    assert [answer.status_code for answer in refused] == [401, 401]
    assert served.status_code == 200


async def test_a_body_is_limited() -> None:
    app = Toolpost(plugins=[plugin], settings={"http": {"body_limit_bytes": 1024}})
    body, headers = call_of("shop__price", {"item": "x" * 2000})
    async with app.open(), browser(app) as client:
        declared = await client.post("/mcp", json=body, headers=headers)

        async def pieces() -> AsyncIterator[bytes]:
            yield json.dumps(body).encode()

        headers["content-type"] = "application/json"
        streamed = await client.post("/mcp", content=pieces(), headers=headers)

    assert (declared.status_code, streamed.status_code) == (413, 413)


async def test_other_paths_are_below_the_mount_too() -> None:
    app = Toolpost(plugins=[plugin])
    async with app.open(), browser(mounted(app)) as client:
        health = await client.get("/tools/healthz")
        nothing = await client.get("/tools/nothing")
        beside = await client.get("/toolsmcp")

    assert health.json()["tools"] == 1
    assert nothing.status_code == beside.status_code == 404


async def test_tools_are_called_in_process() -> None:
    seen: list[tuple[str, str]] = []

    async def watch(call: CallRequest, proceed: Next) -> CallResult:
        seen.append((call.tool, call.caller.id))
        if call.arguments.get("item") == "gold":
            raise Forbidden("Not for sale.")
        return await proceed(call)

    app = Toolpost(servers={"mine": mine()}, plugins=[plugin], middleware=[watch])
    ada = Caller(id=CallerId("ada"), transport="memory")
    async with app.open() as gateway:
        assert sorted(gateway.tools) == ["mine__greet", "shop__price"]
        assert (await gateway.call("shop__price", {"item": "lamp"}, caller=ada)).data == 4
        assert (await gateway.call("mine__greet", {"name": "Ada"})).data == {"result": "Hello Ada!"}
        for arguments, error in [
            ({}, InvalidArguments),
            ({"item": "gold"}, Forbidden),
            ({"item": "broken"}, ToolFailed),
        ]:
            with pytest.raises(error):
                await gateway.call("shop__price", arguments)
        with pytest.raises(ToolpostError, match="shop__prize"):
            await gateway.call("shop__prize")
        with pytest.raises(RuntimeError, match="open already"):
            async with app.open():
                pass

    assert seen[:2] == [("shop__price", "ada"), ("mine__greet", "application")]


async def test_it_is_opened_again_after_it_was_closed() -> None:
    app = Toolpost(plugins=[plugin])
    for _ in range(2):
        async with app.open() as gateway:
            assert (await gateway.call("shop__price", {"item": "lamp"})).data == 4


async def test_what_is_raised_while_it_is_open_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with Toolpost(plugins=[plugin]).open():
            raise ZeroDivisionError


# Settings.


class BellSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How loud."""

    rings: int = 1


BELL = Section(name="bell", struct=BellSettings, default=BellSettings())


@asynccontextmanager
async def open_bell(host: Host) -> AsyncIterator[Sequence[object]]:
    bell = Plugin("bell", version="1.0.0")

    @bell.tool
    async def ring() -> str:
        """Ring."""
        return "ding" * BELL.of(host.config).rings

    yield [bell]


BELL_PART = Part(name="bell", opens=open_bell, settings=(BELL,))


async def test_a_part_is_opened_with_its_settings(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text("[bell]\nrings = 3\n")
    given: list[tuple[dict[str, Any] | Path, int]] = [({"bell": {"rings": 2}}, 2), (tmp_path / "toolpost.toml", 3)]
    for settings, rings in given:
        async with Toolpost(parts=[BELL_PART], settings=settings).open() as gateway:
            assert (await gateway.call("bell__ring")).data == "ding" * rings


async def test_a_file_has_the_rest_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text("[limits]\ntimeout_s = 0.5\n[servers.other]\ncommand = 'other'\n")
    app = Toolpost(servers={"mine": mine()}, settings=str(tmp_path / "toolpost.toml"))

    assert app.config.limits.timeout_s == 0.5
    assert list(app.config.servers) == ["other", "mine"]
    assert app.config.store_url == f"sqlite:{tmp_path}/.toolpost/toolpost.db", "a file says where its store is"
    with pytest.raises(ToolpostError, match="`other` is in `servers` and in `settings`"):
        Toolpost(servers={"other": mine()}, settings=tmp_path / "toolpost.toml")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"servers": {"mine": {"comand": "x"}}}, r"Toolpost\(\): unknown setting `servers.mine.comand`"),
        ({"settings": {"limit": {}}}, r"Toolpost\(\): unknown setting `limit`"),
        ({"middleware": [len]}, "is not an `async def`"),
    ],
)
def test_mistakes_are_told_at_once(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ToolpostError, match=told):
        Toolpost(**arguments)


def test_nothing_is_loaded_before_it_is_used() -> None:
    code = "import sys, toolpost; print(sorted(name for name in sys.modules if name.startswith(('toolpost.', 'mcp', 'anyio'))))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )

    assert done.stdout.strip() == "['toolpost.base', 'toolpost.base.lazy_names']"
    assert importlib.import_module("toolpost").Toolpost is Toolpost
