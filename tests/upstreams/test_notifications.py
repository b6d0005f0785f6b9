"""What a server says by itself (changed lists, updated resources, logs) reaches the clients concerned, in both eras."""

import json
import shlex
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError

from tests.hostile.attacks import attack
from tests.loaded import loaded
from tests.upstreams.behind import text_of
from tests.upstreams.servers.http_server import serving
from tests.upstreams.servers.telling import Telling, telling_app
from tests.upstreams.test_questions import FRONTS, Person
from tests.waiting import until
from tests.ways import IN_MEMORY, ROOT, STATELESS, Way
from toolpost.app import App, open_app, open_http
from toolpost.app.open import OpenOptions
from toolpost.audit import AuditFilter
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.endpoints.sdk import subscribers
from toolpost.upstreams.spec import ServerSpec

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("nothing_leaks"),
    # The client warns of what only the handshake era has; here both eras are meant.
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
    pytest.mark.wire,
    pytest.mark.every_way,
]

LEGACY_FRONTS = [way for way in FRONTS if way.mode == "legacy"]
PAIRS = [
    (Way("memory", "legacy"), Way("stdio", "legacy")),
    (Way("memory", "legacy"), Way("http", STATELESS)),
    (Way("http", "legacy"), Way("http", "legacy")),
    (Way("http", "legacy"), Way("stdio", STATELESS)),
    (Way("memory", STATELESS), Way("http", "legacy")),
    (Way("memory", STATELESS), Way("stdio", STATELESS)),
    (Way("http", STATELESS), Way("stdio", "legacy")),
    (Way("http", STATELESS), Way("http", STATELESS)),
]
"""Every way in, in front of a server of each era; every transport behind, in each era."""


def telling_spec(back: Way, name: str = "up", **options: Any) -> ServerSpec:
    era = () if back.mode == STATELESS else ("handshake",)
    command = loaded("-m", "tests.upstreams.servers.telling", *era)
    return ServerSpec(name=name, command=command, env={"PYTHONPATH": str(ROOT)}, **options)


@asynccontextmanager
async def telling_behind(back: Way, **options: Any) -> AsyncIterator[App]:
    async with AsyncExitStack() as stack:
        spec = telling_spec(back, **options)
        if back.transport == "http":
            app = await stack.enter_async_context(telling_app(Telling(), is_stateless=back.mode == STATELESS))
            spec = ServerSpec(name="up", url=await stack.enter_async_context(serving(app)), **options)
        yield await stack.enter_async_context(
            open_app(IN_MEMORY, bundled=False, servers=[spec], options=OpenOptions(learn_limit_s=60))
        )


class Ear:
    """Hears everything that a client is told, by sessions and by subscriptions."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.logs: list[str] = []

    async def hear(self, message: Any) -> None:
        kind = type(message).__name__
        if "Updated" in kind:
            self.heard.append(f"updated {getattr(message, 'uri', None) or message.params.uri}")
        elif "Changed" in kind:
            self.heard.append("resources" if "Resource" in kind else "prompts" if "Prompt" in kind else "tools")

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logs.append(params.level)

    @asynccontextmanager
    async def client(self, app: App, way: Way, path: str = "", url: str = "", **options: Any) -> AsyncIterator[Client]:
        if way.mode != STATELESS:
            options["message_handler"] = self.hear
        options["logging_callback"] = self.log
        async with AsyncExitStack() as stack:
            where: Any = open_memory_endpoint(app.call_handler, app.sdk)
            if way.transport == "http":
                where = (url or await stack.enter_async_context(open_http(app))) + path
            yield await stack.enter_async_context(Client(where, mode=way.mode, **options))

    @asynccontextmanager
    async def following(self, client: Client, way: Way, *uris: str) -> AsyncIterator[None]:
        """Follow lists and resources, as the era has it."""
        if way.mode != STATELESS:
            for uri in uris:
                await client.subscribe_resource(uri)
            yield
            return
        listening = client.listen(
            prompts_list_changed=True, resources_list_changed=True, resource_subscriptions=list(uris)
        )
        async with listening as subscription, anyio.create_task_group() as tasks:

            async def follow() -> None:
                async for event in subscription:
                    await self.hear(event)

            tasks.start_soon(follow)
            yield
            tasks.cancel_scope.cancel()


async def touched_until_heard(client: Client, ear: Ear) -> int:
    """Change a page until its follower hears of it, once unless following has only just begun; returns how often."""
    for touched in range(1, 10):
        await client.call_tool("up__touch")
        with anyio.move_on_after(3):
            await until(lambda: "updated page://one" in ear.heard)
            return touched
    pytest.fail("nobody heard of it")


@pytest.mark.parametrize(("front", "back"), PAIRS, ids=str)
async def test_changes_reach_whoever_follows(front: Way, back: Way) -> None:
    ear = Ear()
    async with telling_behind(back) as app, ear.client(app, front) as client:
        async with ear.following(client, front, "page://one"):
            touched = await touched_until_heard(client, ear)
            await client.call_tool("up__touch", {"uri": "page://two"})
            await client.call_tool("up__grow")
            await until(lambda: {"resources", "prompts"} <= set(ear.heard))
            listed = {str(resource.uri) for resource in (await client.list_resources(cache_mode="bypass")).resources}
        if front.mode != STATELESS:
            await client.unsubscribe_resource("page://one")
        with anyio.fail_after(30):
            while json.loads(text_of(await client.call_tool("up__touch")))["followed"]:
                await anyio.sleep(0.05)

    assert "page://0" in listed
    assert 1 <= ear.heard.count("updated page://one") <= touched
    assert "updated page://two" not in ear.heard


@attack(
    "caller",
    "subscribes to one resource after another",
    "a session, and a `subscriptions/listen`, follows at most 1,000; existing subscriptions stay",
)
@pytest.mark.parametrize("front", FRONTS, ids=str)
async def test_the_resources_that_a_client_follows_are_bounded(front: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribers, "FOLLOWED_LIMIT", 2)
    ear = Ear()
    async with telling_behind(Way("stdio", "legacy")) as app, ear.client(app, front) as client:
        uris = ["page://one", "page://two", "page://three"]
        if front.mode == STATELESS:
            async with ear.following(client, front, *uris):
                followed = json.loads(text_of(await client.call_tool("up__reads")))["followed"]
        else:
            for uri in (*uris[:2], uris[0]):
                await client.subscribe_resource(uri)
            with pytest.raises(MCPError, match="subscribed to 2 resources already"):
                await client.subscribe_resource(uris[2])
            followed = json.loads(text_of(await client.call_tool("up__reads")))["followed"]
            await client.unsubscribe_resource(uris[0])
            await client.subscribe_resource(uris[2])

    assert followed == uris[:2]


@pytest.mark.parametrize("back", [Way("stdio", "legacy"), Way("stdio", STATELESS)], ids=str)
@pytest.mark.parametrize("front", FRONTS, ids=str)
async def test_what_was_followed_is_followed_again_after_a_crash(front: Way, back: Way) -> None:
    ear = Ear()
    async with telling_behind(back) as app, ear.client(app, front) as client:
        async with ear.following(client, front, "page://one"):
            await client.call_tool("up__crash")
            with anyio.fail_after(30):
                while "updated page://one" not in ear.heard:
                    await client.call_tool("up__touch")
                    await anyio.sleep(0.1)

    assert "updated page://one" in ear.heard


@pytest.mark.parametrize("front", FRONTS, ids=str)
async def test_a_resource_that_cannot_be_followed_says_so_where_it_can(front: Way) -> None:
    ear = Ear()
    async with telling_behind(Way("stdio", "legacy")) as app, ear.client(app, front) as client:
        if front.mode == STATELESS:
            async with ear.following(client, front, "page://nowhere"):
                await client.call_tool("up__touch")
        else:
            await client.unsubscribe_resource("page://never")
            await client.subscribe_resource("page://one")
            await client.subscribe_resource("page://one")
            followed = json.loads(text_of(await client.call_tool("up__reads")))["followed"]
            assert followed == ["page://one"]
    async with open_app(IN_MEMORY, bundled=False, servers=[]) as app, ear.client(app, front) as client:
        assert client.server_capabilities.resources is None
        assert client.server_capabilities.logging is None
        with pytest.raises(MCPError) as refusal:
            await client.list_resources()

    assert refusal.value.code == -32601


@pytest.mark.parametrize(("front", "back"), PAIRS, ids=str)
async def test_logs_reach_the_client_from_its_level_on(front: Way, back: Way) -> None:
    ear = Ear()
    options = {"log_level": "warning"} if front.mode == STATELESS else {}
    async with telling_behind(back) as app, ear.client(app, front, **options) as client:
        if front.mode != STATELESS:
            assert client.server_capabilities.logging is not None
            await client.set_logging_level("warning")
        for level in ("debug", "warning", "info", "error"):
            await client.call_tool("up__say", {"level": level})
        await until(lambda: len(ear.logs) >= 2)
        await anyio.sleep(0.1)  # what must not come would be here by now
        said = json.loads(text_of(await client.call_tool("up__reads")))

    assert ear.logs == ["warning", "error"]
    if back.mode != STATELESS:
        assert said["levels"] == ["warning"]


async def test_each_session_hears_its_own_level_of_what_it_sees() -> None:
    low, high, aside = Ear(), Ear(), Ear()
    specs = [
        telling_spec(Way("stdio", "legacy"), tags=frozenset({"a"})),
        telling_spec(Way("stdio", "legacy"), "other", tags=frozenset({"b"})),
    ]
    way = Way("http", "legacy")
    async with open_app(IN_MEMORY, bundled=False, servers=specs) as app, open_http(app) as url:
        async with (
            low.client(app, way, url=url) as first,
            high.client(app, way, "/tags/a", url=url) as second,
            aside.client(app, way, "/server/other", url=url) as third,
        ):
            await second.set_logging_level("error")
            await first.set_logging_level("info")
            await third.set_logging_level("debug")
            await until(lambda: app.shares.streams.taken == 3)
            for level in ("debug", "info", "error"):
                await first.call_tool("up__say", {"level": level})
            await first.call_tool("up__grow")
            await until(lambda: len(low.logs) == 2 and high.logs and "prompts" in high.heard)
            await anyio.sleep(0.2)  # what must not come would be here by now

    assert low.logs == ["info", "error"]
    assert high.logs == ["error"]
    assert aside.logs == []
    assert aside.heard == []


@pytest.mark.parametrize("way", [*LEGACY_FRONTS, Way("http", STATELESS)], ids=str)
async def test_servers_that_come_later_bring_everything_along(way: Way) -> None:
    ear = Ear()
    async with open_app(IN_MEMORY, bundled=False, servers=[]) as app, AsyncExitStack() as stack:
        url = await stack.enter_async_context(open_http(app)) if way.transport == "http" else ""
        await app.sdk.server()
        await app.servers.apply([telling_spec(Way("stdio", "legacy"))])
        client = await stack.enter_async_context(ear.client(app, way, url=url))
        page = await client.read_resource("page://one")
        prompts = await client.list_prompts()
        has_resources = client.server_capabilities.resources is not None

    assert page.contents[0].text == "read 1"  # type: ignore[union-attr]
    assert [prompt.name for prompt in prompts.prompts] == ["up__greet"]
    assert has_resources or way.mode == STATELESS


@pytest.mark.parametrize("way", LEGACY_FRONTS, ids=str)
async def test_resources_are_read_from_the_session_s_own_instance(way: Way) -> None:
    ears = Ear(), Ear()
    spec = telling_spec(Way("stdio", "legacy"), strategy="per_session")
    async with open_app(IN_MEMORY, bundled=False, servers=[spec]) as app, AsyncExitStack() as stack:
        url = await stack.enter_async_context(open_http(app)) if way.transport == "http" else ""
        first, second = [await stack.enter_async_context(ear.client(app, way, url=url)) for ear in ears]
        for _ in range(3):
            await first.read_resource("page://one", cache_mode="bypass")
        await second.read_resource("page://one")
        reads = [json.loads(text_of(await client.call_tool("up__reads")))["reads"] for client in (first, second)]

    assert reads == [3, 1]


@pytest.mark.parametrize("front", FRONTS, ids=str)
async def test_what_is_read_is_on_the_record(front: Way) -> None:
    ear = Ear()
    async with telling_behind(Way("stdio", "legacy")) as app, ear.client(app, front) as client:
        await client.read_resource("page://one")
        with pytest.raises(MCPError):
            await client.get_prompt("up__greet")  # it asks, and this client does not answer
        with pytest.raises(MCPError):
            await client.get_prompt("nobody__greet")  # of no server: in the log alone
        records = await app.store.audit.entries(AuditFilter(), limit=10)

    assert [(record.entry.tool, record.entry.outcome) for record in records] == [
        ("resources/read", "ok"),
        ("prompts/get", "error"),
    ]
    assert records[0].entry.source == "up"


@pytest.mark.parametrize(("front", "back"), PAIRS, ids=str)
async def test_a_prompt_and_a_resource_may_ask_too(front: Way, back: Way) -> None:
    ear, person = Ear(), Person()
    async with telling_behind(back) as app, ear.client(app, front, **person.callbacks) as client:
        prompt = await client.get_prompt("up__greet")
        page = await client.read_resource("page://two")

    assert prompt.messages[0].content.text == "Hi Ada"  # type: ignore[union-attr]
    assert page.contents[0].text == "Ada"  # type: ignore[union-attr]


@pytest.mark.parametrize("way", [Way("memory", "legacy"), Way("memory", STATELESS)], ids=str)
async def test_a_list_without_a_slow_server_is_followed_by_a_notification(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor has such a list a lifetime: whoever keeps it until then would miss what the server has."""
    monkeypatch.setattr("toolpost.providers.relay.LIST_LIMIT_S", 0.1)
    gate, ear = tmp_path / "gate", Ear()
    spec = telling_spec(Way("stdio", "legacy"))
    wait_and_start = f'until [ -e "{gate}" ]; do sleep 0.1; done; exec {shlex.join(spec.command or ())}'
    slow = replace(spec, command=("sh", "-c", wait_and_start))
    async with (
        open_app(IN_MEMORY, bundled=False, servers=[slow], options=OpenOptions(learn_limit_s=0.0)) as app,
        ear.client(app, way) as client,
        ear.following(client, way),
    ):
        early: list[Any] = [
            await client.list_prompts(),
            await client.list_resources(),
            await client.list_resource_templates(),
        ]
        gate.touch()
        await until(lambda: {"prompts", "resources"} <= {*ear.heard})
        monkeypatch.setattr("toolpost.providers.relay.LIST_LIMIT_S", 20.0)
        late = await client.list_prompts(), await client.list_resources()

    assert way.mode != STATELESS or [found.ttl_ms for found in early] == [0, 0, 0]
    assert not early[0].prompts
    assert not early[1].resources
    assert late[0].prompts
    assert late[1].resources
