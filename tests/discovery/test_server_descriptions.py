"""Tools are found by the words of their server's title, description and instructions, which nobody is shown."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from mcp import Client

from tests.discovery.asking import ask, names_of
from tests.loaded import loaded
from tests.upstreams.behind import gateway
from tests.upstreams.servers.http_server import HttpServer, serving
from tests.waiting import until
from tests.ways import BOTH, STATELESS
from toolpost import Plugin
from toolpost.app import open_app
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.settings import Config
from toolpost.settings.model import StoreSettings
from toolpost.upstreams.handshake import DESCRIPTION_LIMIT, Negotiation
from toolpost.upstreams.spec import Era, ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_leaks"), pytest.mark.wire]

SERVER = Path(__file__).parent / "described_server.py"
ERAS: list[Era] = ["handshake", "stateless"]


class Described:
    """A server on stdio, and the file that it describes itself by."""

    def __init__(self, folder: Path, name: str, **described: str) -> None:
        self.name = name
        self._path = folder / f"{name}.json"
        self.says(**described)

    def says(self, **described: str) -> None:
        self._path.write_text(json.dumps(described))

    def spec(self, **options: Any) -> ServerSpec:
        return ServerSpec(name=self.name, command=loaded(str(SERVER), str(self._path)), **options)


def kept(folder: Path) -> Config:
    return msgspec.structs.replace(BOTH, store=StoreSettings(url=f"sqlite:{folder / 'store.db'}"))


async def best(client: Client, query: str) -> str:
    """Return the server that most of the first three tools are of: by its meaning, one may be of any server."""
    found = await ask(client, query, limit=3, forceRefresh=True)
    servers = Counter(name.partition("__")[0] for name in names_of(found))
    return servers.most_common(1)[0][0]


async def until_best(client: Client, query: str, server: str) -> None:
    with anyio.fail_after(20):
        while await best(client, query) != server:
            await anyio.sleep(0.02)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "field",
    ["instructions", *(pytest.param(field, marks=pytest.mark.soak) for field in ("title", "description"))],
)
async def test_on_stdio_a_tool_is_found_by_what_its_server_says(era: Era, field: str, tmp_path: Path) -> None:
    zoo = Described(tmp_path, "b", **{field: "Look after quokkas and wombats."})
    other = Described(tmp_path, "a", **{field: "Look after ferns and mosses."})
    async with gateway(other.spec(era=era), zoo.spec(era=era), config=BOTH) as (_, client):
        found = await ask(client, "quokka", limit=3)
        listed = await client.list_tools()

        assert await best(client, "quokka") == "b"
        assert await best(client, "fern") == "a"
    assert "quokkas" not in json.dumps(found) + listed.model_dump_json(), "it is indexed, and not shown"


@pytest.mark.parametrize("version", ["2025-11-25", STATELESS])
async def test_over_http_a_tool_is_found_by_what_its_server_says(version: str) -> None:
    zoo, other = HttpServer(version=version), HttpServer(version=version)
    zoo.instructions, other.instructions = "Look after quokkas.", "Look after ferns."
    async with (
        serving(other) as a,
        serving(zoo) as b,
        gateway(ServerSpec(name="a", url=a), ServerSpec(name="b", url=b), config=BOTH) as (_, client),
    ):
        assert await best(client, "quokka") == "b"
        assert await best(client, "fern") == "a"


@pytest.mark.parametrize("era", ["stateless", pytest.param("handshake", marks=pytest.mark.soak)])
async def test_the_index_follows_a_server_that_starts_again(era: Era, tmp_path: Path) -> None:
    zoo, other = Described(tmp_path, "b", instructions="Quokkas."), Described(tmp_path, "a", instructions="Ferns.")
    async with gateway(other.spec(era=era), zoo.spec(era=era), config=BOTH) as (app, client):
        was_best = await best(client, "quokka")
        zoo.says(instructions="Ferns.")
        other.says(instructions="Quokkas.")
        for source in app.servers.providers.values():
            source.supervisor.restart()
            await source.supervisor.ensure_ready()
        await until_best(client, "quokka", "a")
        await until_best(client, "fern", "b")

    assert was_best == "b"


async def test_the_index_follows_a_stateless_server_that_tells_of_a_change() -> None:
    zoo, other = HttpServer(), HttpServer()
    other.instructions = "Look after ferns."
    async with (
        serving(other) as a,
        serving(zoo) as b,
        gateway(ServerSpec(name="a", url=a), ServerSpec(name="b", url=b), config=BOTH) as (_, client),
    ):
        await until(lambda: zoo.listeners)
        was_best = await best(client, "fern")
        zoo.instructions, other.instructions = "Look after ferns and quokkas.", ""
        await client.call_tool("b__change")
        await until_best(client, "quokka", "b")

    assert was_best == "a"


async def test_other_words_alone_are_no_news_of_other_tools(tmp_path: Path) -> None:
    """Some servers put the time into their instructions: clients are not to list everything again at each start."""
    zoo = Described(tmp_path, "b", instructions="It is noon.")
    told: list[str] = []

    async def hear(message: Any) -> None:
        told.append(getattr(message, "method", ""))

    async with open_app(BOTH, bundled=False, servers=[zoo.spec(), Described(tmp_path, "a").spec()]) as app:
        endpoint = open_memory_endpoint(app.call_handler, app.sdk)
        async with Client(endpoint, mode="legacy", message_handler=hear) as client:
            await best(client, "noon")
            await anyio.sleep(0.3)  # what was learnt at the start is announced
            told.clear()
            zoo.says(instructions="Quokkas are awake.")
            app.servers.providers["b"].supervisor.restart()
            await app.servers.providers["b"].supervisor.ensure_ready()
            await until_best(client, "quokka", "b")
            await anyio.sleep(0.3)  # what must not come would be here by now

    assert "notifications/tools/list_changed" not in told


async def test_the_words_are_known_while_the_server_is_down(tmp_path: Path) -> None:
    zoo, other = Described(tmp_path, "b", instructions="Quokkas."), Described(tmp_path, "a", instructions="Ferns.")
    async with gateway(other.spec(), zoo.spec(), config=kept(tmp_path)):
        pass
    async with gateway(other.spec(), zoo.spec(), config=kept(tmp_path)) as (app, client):
        found = await best(client, "quokka")
        pids = [source.supervisor.report().pids for source in app.servers.providers.values()]

    assert found == "b"
    assert pids == [(), ()]


async def test_a_tool_is_found_by_what_its_plugin_says() -> None:
    plugins = [Plugin("a", description="Look after ferns."), Plugin("b", description="Look after quokkas.")]
    for plugin in plugins:

        @plugin.tool
        async def run() -> str:
            """Do it."""
            return "done"

    async with open_app(BOTH, plugins=plugins, bundled=False) as app:
        async with Client(open_memory_endpoint(app.call_handler, app.sdk), mode=STATELESS) as client:
            assert await best(client, "quokka") == "b"
            assert await best(client, "fern") == "a"


@pytest.mark.parametrize(
    ("info", "instructions", "description"),
    [
        ({}, None, ""),
        ({"title": 7, "description": ["x"]}, "Use it.", "Use it."),
        ({"title": "A", "description": "B"}, "C", "A\nB\nC"),
        ({"description": "d" * 10_000}, "never reached", "d" * DESCRIPTION_LIMIT),
        ({"title": "t"}, "i" * 1_000_000, "t\n" + "i" * (DESCRIPTION_LIMIT - 2)),
    ],
)
async def test_a_description_is_a_text_of_bounded_length(info: Any, instructions: Any, description: str) -> None:
    assert (
        Negotiation(version=STATELESS, is_stateless=True, info=info, instructions=instructions).description
        == description
    )
