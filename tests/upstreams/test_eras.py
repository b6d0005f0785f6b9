"""A server that knows both eras is met in the caller's: there alone it can ask a client of the handshake era something."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from mcp import Client, MCPError

from tests.loaded import loaded
from tests.upstreams.behind import SERVERS, report, text_of
from tests.upstreams.servers.asking import application_of
from tests.upstreams.servers.both_eras import make_server
from tests.upstreams.servers.http_server import HttpServer, serving
from tests.upstreams.test_questions import Person, client_on
from tests.ways import IN_MEMORY, ROOT, STATELESS, Way
from toolpost.app import App, open_app, open_http
from toolpost.app.open import OpenOptions
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

BOTH_ERAS = str(SERVERS / "both_eras.py")
FRONTS = ["memory", "http"]


@asynccontextmanager
async def behind(transport: str, **options: Any) -> AsyncIterator[App]:
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            env = {"PYTHONPATH": str(ROOT)}
            spec = ServerSpec(name="up", command=loaded(BOTH_ERAS), env=env, **options)
        else:
            app = await stack.enter_async_context(application_of(make_server(), is_stateless=True))
            spec = ServerSpec(name="up", url=await stack.enter_async_context(serving(app)), **options)
        yield await stack.enter_async_context(
            open_app(IN_MEMORY, bundled=False, servers=[spec], options=OpenOptions(learn_limit_s=60))
        )


@asynccontextmanager
async def clients_of(app: App, transport: str) -> AsyncIterator[Callable[..., Any]]:
    """Give what opens clients, of either era, over one endpoint."""
    if transport == "memory":
        yield lambda mode, **options: Client(open_memory_endpoint(app.call_handler, app.sdk), mode=mode, **options)
        return
    async with open_http(app) as url:
        yield lambda mode, **options: Client(url, mode=mode, **options)


async def seen(client: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text_of(await client.call_tool("up__version")))
    return found


@pytest.mark.parametrize("back", ["stdio", "http"])
@pytest.mark.parametrize("front", FRONTS)
async def test_a_client_of_the_handshake_era_is_asked(front: str, back: str) -> None:
    person = Person()
    async with behind(back) as app, clients_of(app, front) as client_in:
        async with client_in("legacy", **person.callbacks) as client:
            answers = [await client.call_tool("up__elicit") for _ in range(2)]
            old = await seen(client)
        async with client_in(STATELESS, **person.callbacks) as client:
            new = await seen(client)
        async with client_in("legacy") as client:
            mute = await seen(client)

    assert [json.loads(text_of(answer))["content"] for answer in answers] == [{"name": "Ada"}] * 2
    assert old["version"] == "2025-11-25"
    assert new["version"] == STATELESS
    # Whoever cannot be asked anything is served by the instance that is there.
    assert mute == new


@pytest.mark.parametrize("back", ["stdio", "http"])
@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize(
    ("mode", "tool"), [("legacy", "up__rounds"), (STATELESS, "up__ctx_elicit"), (STATELESS, "up__caught")]
)
async def test_a_tool_that_works_in_the_other_era_alone_is_called_there(
    mode: str, tool: str, front: str, back: str
) -> None:
    person = Person()
    async with behind(back) as app, clients_of(app, front) as client_in:
        async with client_in(mode, **person.callbacks) as client:
            answers = [await client.call_tool(tool) for _ in range(3)]
            own = await seen(client)

    assert [json.loads(text_of(answer))["content"] for answer in answers] == [{"name": "Ada"}] * 3
    assert person.asked == ["Who are you?"] * 3
    # Other tools stay in the caller's era.
    assert own["version"] == ("2025-11-25" if mode == "legacy" else STATELESS)


@pytest.mark.parametrize(("mode", "tool"), [(STATELESS, "up__ask"), ("legacy", "up__guard")])
async def test_so_is_one_of_fastmcp(mode: str, tool: str) -> None:
    pytest.importorskip("fastmcp")
    spec = ServerSpec(name="up", command=loaded(str(SERVERS / "fastmcp_asking.py")), env={"PYTHONPATH": str(ROOT)})
    person = Person()
    async with open_app(IN_MEMORY, bundled=False, servers=[spec], options=OpenOptions(learn_limit_s=60)) as app:
        async with client_on(app, Way("memory", mode), **person.callbacks) as client:
            answers = [text_of(await client.call_tool(tool)) for _ in range(2)]
            prompt = await client.get_prompt("up__ask_in_prompt") if mode == STATELESS else None

    assert answers == ["Ada"] * 2
    assert person.asked == ["Who are you?"] * (3 if mode == STATELESS else 2)
    assert prompt is None or "Ada" in str(prompt.messages)


async def test_no_other_era_is_tried_for_a_client_that_cannot_be_asked_or_by_a_setting() -> None:
    async with behind("stdio") as app, client_on(app, Way("memory", STATELESS)) as client:
        with pytest.raises(MCPError, match="back-channel"):
            await client.call_tool("up__ctx_elicit")
    async with behind("stdio", era="stateless") as app:
        async with client_on(app, Way("memory", STATELESS), **Person().callbacks) as client:
            with pytest.raises(MCPError, match="back-channel"):
                await client.call_tool("up__ctx_elicit")


@pytest.mark.parametrize(
    ("options", "version"),
    [({"era": "stateless"}, STATELESS), ({"era": "handshake"}, "2025-11-25"), ({"strategy": "singleton"}, STATELESS)],
    ids=str,
)
async def test_a_setting_decides(options: dict[str, Any], version: str) -> None:
    async with behind("stdio", **options) as app:
        async with client_on(app, Way("memory", "legacy"), **Person().callbacks) as client:
            old = await seen(client)
        async with client_on(app, Way("memory", STATELESS)) as client:
            new = await seen(client)

    assert old == new
    assert old["version"] == version


async def test_each_session_has_its_own_server_in_its_era() -> None:
    async with behind("stdio", strategy="per_session") as app, clients_of(app, "http") as client_in:
        async with client_in("legacy", **Person().callbacks) as client:
            first = [await seen(client) for _ in range(2)]
        async with client_in("legacy", **Person().callbacks) as client:
            second = await seen(client)

    assert first[0] == first[1]
    assert first[0]["version"] == second["version"] == "2025-11-25"
    assert first[0]["pid"] != second["pid"]


async def test_a_server_of_the_stateless_era_alone_serves_everybody() -> None:
    server = HttpServer()
    async with serving(server) as url:
        spec = ServerSpec(name="up", url=url)
        async with open_app(IN_MEMORY, bundled=False, servers=[spec]) as app:
            async with client_on(app, Way("memory", "legacy"), **Person().callbacks) as client:
                answers = [text_of(await client.call_tool("up__echo", {"text": str(n)})) for n in range(3)]
            state = report(app)

    assert answers == ["0", "1", "2"]
    assert state.state == "ready"
    assert server.methods.count("initialize") == 1


async def test_tools_are_not_learnt_twice() -> None:
    async with behind("http") as app:
        before = app.servers.providers["up"].definitions
        async with client_on(app, Way("memory", "legacy"), **Person().callbacks) as client:
            await seen(client)
            with pytest.raises(MCPError):
                await client.call_tool("up__nope")

        assert app.servers.providers["up"].definitions is before
