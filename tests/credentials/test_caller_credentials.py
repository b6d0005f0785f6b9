"""Callers use a server with credentials of their own, and nothing of one reaches another: processes, sessions, lists, logs."""

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest
from anyio import to_thread
from mcp_types import LoggingMessageNotificationParams, ResourceUpdatedNotification, TextResourceContents

from tests.hostile.attacks import attack
from tests.upstreams.behind import SERVERS
from tests.upstreams.servers import whoami
from tests.upstreams.servers.http_server import serving
from tests.upstreams.servers.whoami import WhoamiHttp
from tests.waiting import until
from tests.ways import IN_MEMORY, STATELESS
from tests.wire.callers import client_of
from toolpost.app import App, open_app, open_http
from toolpost.app.reload import apply_config
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.credentials.vault import Vault
from toolpost.providers.credential_changes import SETTLE_S
from toolpost.settings import Config, ServerSettings
from toolpost.settings.callers import CallerSettings
from toolpost.settings.key_place import key_place_of
from toolpost.settings.model import LimitSettings, StoreSettings
from toolpost.terminal.running_gateway import RunningGateway

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

WHOAMI = SERVERS / "whoami.py"
ERAS = ["2025-11-25", STATELESS]


def token_of(name: str) -> str:
    return f"{name}-token-{'x' * 32}"


def on_stdio(version: str = STATELESS, **more: Any) -> ServerSettings:
    args = ["-S", "-E", str(WHOAMI), "--version", version]
    return ServerSettings(command=sys.executable, args=args, env={"WHOAMI_KEY": "${caller:KEY}"}, **more)


def over_http(url: str, **more: Any) -> ServerSettings:
    return ServerSettings(url=url, headers={"x-key": "${caller:KEY}"}, **more)


class Peer:
    """A client of the stateless era on one connection, as one caller."""

    def __init__(self, url: str, name: str) -> None:
        self.name = name
        host, _, self._path = url.removeprefix("http://").partition("/")
        self._host, _, self._port = host.partition(":")
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(self, method: str, **params: Any) -> Any:
        reader, writer = self._streams = self._streams or await asyncio.open_connection(self._host, int(self._port))
        meta = {
            "io.modelcontextprotocol/protocolVersion": STATELESS,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "peer", "version": "1"},
        }
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}).encode()
        name = params.get("name") or params.get("uri")
        named = f"mcp-name: {name}\r\n" if name else ""
        head = (
            f"POST /{self._path} HTTP/1.1\r\nhost: {self._host}:{self._port}\r\nauthorization: Bearer {token_of(self.name)}\r\n"
            "content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
            f"mcp-protocol-version: {STATELESS}\r\nmcp-method: {method}\r\n{named}content-length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        answered = await reader.readuntil(b"\r\n\r\n")
        length = int(answered.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return json.loads(await reader.readexactly(length))

    async def call(self, tool: str, **arguments: Any) -> Any:
        return await self.request("tools/call", name=tool, arguments=arguments)

    async def text(self, tool: str) -> str:
        answered = await self.call(tool)
        assert not answered["result"].get("isError"), answered
        return str(answered["result"]["content"][0]["text"])

    async def tools(self) -> list[str]:
        return sorted(tool["name"] for tool in (await self.request("tools/list"))["result"]["tools"])

    async def error(self, tool: str) -> Any:
        answered = await self.call(tool)
        assert answered["result"]["isError"], answered
        return json.loads(answered["result"]["content"][0]["text"])

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


class Office:
    """A gateway with named callers in front."""

    def __init__(self, app: App, url: str, config: Config) -> None:
        self.app = app
        self.vault = Vault(app.store, key_place_of(config)) if "memory" not in config.store_url else _vault_of(app)
        self.url = url
        self._peers: dict[str, Peer] = {}

    def peer(self, name: str) -> Peer:
        return self._peers.setdefault(name, Peer(self.url, name))

    def another(self, name: str) -> Peer:
        peer = self._peers[f"{name} {len(self._peers)}"] = Peer(self.url, name)
        return peer

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()


def _vault_of(app: App) -> Vault:
    return app.servers._access.vault


def config_of(
    names: Sequence[str], servers: dict[str, ServerSettings], monkeypatch: pytest.MonkeyPatch, **more: Any
) -> Config:
    for name in names:
        monkeypatch.setenv(f"{name}_TOKEN", token_of(name))
    callers = {name: CallerSettings(token=f"${{{name}_TOKEN}}") for name in names}
    return msgspec.structs.replace(IN_MEMORY, callers=callers, servers=servers, **more)


@asynccontextmanager
async def office(config: Config) -> AsyncIterator[Office]:
    async with open_app(config, bundled=False) as app, open_http(app) as url:
        opened = Office(app, url, config)
        try:
            yield opened
        finally:
            opened.close()


def processes() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if str(WHOAMI) in child.cmdline():
                found.append(child)
        except psutil.Error:
            pass
    return found


@pytest.mark.parametrize("version", ERAS)
async def test_each_caller_is_served_with_its_own_value(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    web = WhoamiHttp(version)
    async with serving(web) as url:
        config = config_of(["ann", "bob", "cyd"], {"up": on_stdio(version), "web": over_http(url)}, monkeypatch)
        async with office(config) as here:
            for name in ("ann", "bob"):
                for server in ("up", "web"):
                    await here.vault.put(server, name, "KEY", f"{name}-{server}".encode())
            async with anyio.create_task_group() as tasks:
                for name in ("ann", "bob"):
                    for tool in ("up__whoami", "web__whoami"):
                        for _ in range(5):
                            tasks.start_soon(_see, here.another(name), tool, f"{name}-{tool.partition('__')[0]}")
            assert len(processes()) == 2
            assert web.mixed == []
            # One without a value is told how to set it, and still sees the tools that the others have.
            error = await here.peer("cyd").error("up__whoami")
            assert error["code"] == "CREDENTIAL_REQUIRED"
            assert "toolpost auth set up KEY --caller cyd" in error["hint"]
            assert error["details"] == {"server": "up", "names": ["KEY"]}
            await until_async(lambda: _has(here.peer("cyd"), "up__whoami"))
            assert await here.peer("cyd").tools() == await here.peer("ann").tools()
            assert len(processes()) == 2


async def _see(peer: Peer, tool: str, key: str) -> None:
    assert await peer.text(tool) == key


def _has_call(app: App) -> bool:
    """Whether the server of some caller has a call."""
    by_owner = app.servers.providers["up"].by_owner
    return by_owner is not None and any(provider.supervisor.report().in_flight for provider in by_owner)


async def _has(peer: Peer, tool: str) -> bool:
    return tool in await peer.tools()


async def until_async(holds: Any, limit_s: float = 30) -> None:
    with anyio.fail_after(limit_s):
        while not await holds():
            await anyio.sleep(0.02)


async def test_the_value_of_callers_without_a_name_is_not_used_for_named_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLPOST_TOKEN", token_of("token"))
    async with office(config_of(["ann"], {"up": on_stdio()}, monkeypatch)) as here:
        await here.vault.put("up", "", "KEY", b"nobody")
        await until_async(lambda: _has(here.peer("token"), "up__whoami"))
        assert await here.peer("token").text("up__whoami") == "nobody"
        assert (await here.peer("ann").error("up__whoami"))["code"] == "CREDENTIAL_REQUIRED"
        await here.vault.put("up", "ann", "KEY", b"ann-own")
        await until_async(lambda: _answers(here.peer("ann"), "ann-own"))
        assert await here.peer("token").text("up__whoami") == "nobody"


async def _answers(peer: Peer, key: str) -> bool:
    answered = await peer.call("up__whoami")
    return bool(answered["result"]["content"][0]["text"] == key)


@pytest.mark.parametrize("version", ERAS)
async def test_tools_are_listed_and_found_by_credential(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    discovery = msgspec.structs.replace(IN_MEMORY.discovery, mode="both")
    async with serving(WhoamiHttp(version)) as url:
        servers = {"up": on_stdio(version), "web": over_http(url)}
        async with office(config_of(["ann", "bob", "cyd"], servers, monkeypatch, discovery=discovery)) as here:
            for server in servers:
                await here.vault.put(server, "ann", "KEY", b"ann-vip")
                await here.vault.put(server, "bob", "KEY", b"bob")
            ann, bob, cyd = (here.peer(name) for name in ("ann", "bob", "cyd"))
            listed = await bob.tools()
            assert {"up__only_ann-vip", "web__only_ann-vip"} <= set(await ann.tools())
            assert {"up__whoami", "web__whoami"} <= set(listed)
            assert not [name for name in listed if "only" in name]
            assert await ann.text("up__only_ann-vip") == "ann-vip"
            answered = await bob.call("up__only_ann-vip")
            assert answered["error"]["code"] == -32602
            assert "only_ann" not in json.dumps(answered["error"]["data"].get("nearest"))
            for peer, expected in ((ann, True), (bob, False)):
                found = (await peer.call("automatic_mcp", query="only vip"))["result"]["structuredContent"]
                names = [tool["name"] for tool in found["tools"]]
                assert any("only_ann" in name for name in names) is expected
            # Of a caller without a value, those tools that the others have in common.
            await until_async(lambda: _has(cyd, "up__whoami"))
            assert not [name for name in await cyd.tools() if "only" in name]


async def test_the_list_of_a_single_caller_is_shown_to_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with office(config_of(["ann", "bob", "cyd"], {"up": on_stdio()}, monkeypatch)) as here:
        ann, bob, cyd = (here.peer(name) for name in ("ann", "bob", "cyd"))
        await here.vault.put("up", "ann", "KEY", b"ann-vip")
        assert "up__only_ann-vip" in await ann.tools()
        await cyd.tools()
        await anyio.sleep(3 * SETTLE_S)
        while_alone = await cyd.tools()
        await here.vault.put("up", "bob", "KEY", b"bob")
        await bob.tools()
        await until_async(lambda: _has(cyd, "up__whoami"))
        in_common = await cyd.tools()

    assert [name for name in while_alone if name.startswith("up__")] == []
    assert "up__only_ann-vip" not in in_common


async def test_lists_are_remembered_by_credential(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = StoreSettings(url=f"sqlite:{tmp_path / 'store.db'}")
    config = config_of(["ann", "bob"], {"up": on_stdio()}, monkeypatch, store=store)
    async with office(config) as here:
        await here.vault.put("up", "ann", "KEY", b"ann-vip")
        await here.vault.put("up", "bob", "KEY", b"bob")
        assert "up__only_ann-vip" in await here.peer("ann").tools()
        assert "up__only_ann-vip" not in await here.peer("bob").tools()
    async with office(config) as here:
        assert "up__only_ann-vip" in await here.peer("ann").tools()
        assert "up__only_ann-vip" not in await here.peer("bob").tools()
        assert processes() == []
        await here.vault.remove("up", "ann")
        # Its tools stay listed, from the last time that they were.
        assert (await here.peer("ann").error("up__whoami"))["code"] == "CREDENTIAL_REQUIRED"
        assert "up__only_ann-vip" in await here.peer("ann").tools()


async def test_a_changed_value_takes_effect_and_a_removed_one_stops_its_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with office(config_of(["ann", "bob"], {"up": on_stdio()}, monkeypatch)) as here:
        await here.vault.put("up", "ann", "KEY", b"ann-1")
        await here.vault.put("up", "bob", "KEY", b"bob-1")
        assert await here.peer("ann").text("up__whoami") == "ann-1"
        assert await here.peer("bob").text("up__whoami") == "bob-1"
        (of_bob,) = [p.pid for p in processes() if p.environ().get("WHOAMI_KEY") == "bob-1"]
        in_flight = asyncio.create_task(here.another("ann").text("up__slow"))
        await until(lambda: _has_call(here.app))
        await here.vault.put("up", "ann", "KEY", b"ann-2")
        await until_async(lambda: _answers(here.peer("ann"), "ann-2"))
        assert await in_flight == "ann-1"
        # Another account may be listed other tools.
        assert "up__only_ann-vip" not in await here.peer("ann").tools()
        await here.vault.put("up", "ann", "KEY", b"ann-vip")
        await until_async(lambda: _answers(here.peer("ann"), "ann-vip"))
        await until_async(lambda: _has(here.peer("ann"), "up__only_ann-vip"))
        await here.vault.remove("up", "ann")
        await until(lambda: [p.pid for p in processes()] == [of_bob])
        assert (await here.peer("ann").error("up__whoami"))["code"] == "CREDENTIAL_REQUIRED"
        assert await here.peer("bob").text("up__whoami") == "bob-1"


async def test_a_singleton_takes_one_call_at_a_time_for_each_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = {"up": on_stdio(strategy="singleton")}
    async with office(config_of(["ann", "bob"], servers, monkeypatch)) as here:
        for name in ("ann", "bob"):
            await here.vault.put("up", name, "KEY", name.encode())
            assert await here.peer(name).text("up__whoami") == name
        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(_see, here.another("ann"), "up__slow", "ann")
        assert anyio.current_time() - began >= 0.75
        in_flight = asyncio.create_task(here.another("ann").call("up__slow", seconds=60))
        await until(lambda: here.app.gateway.in_flight == 1)
        assert await here.peer("bob").text("up__whoami") == "bob"
        assert not in_flight.done()
        in_flight.cancel()


async def test_a_shared_value_can_come_from_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = {"up": on_stdio(credentials="shared")}
    async with office(config_of(["ann", "bob"], servers, monkeypatch)) as here:
        assert (await here.peer("ann").request("tools/list"))["result"]["tools"] == []
        await here.vault.put("up", "", "KEY", b"all")
        await until_async(lambda: _has(here.peer("ann"), "up__whoami"))
        assert await here.peer("ann").text("up__whoami") == await here.peer("bob").text("up__whoami") == "all"
        assert len(processes()) == 1


async def test_idle_servers_of_others_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"c{number}" for number in range(6)]
    config = config_of(names, {"up": on_stdio()}, monkeypatch, limits=LimitSettings(instances=2))
    most = 0
    async with office(config) as here:
        for name in names:
            await here.vault.put("up", name, "KEY", name.encode())
        for _ in range(2):
            for name in names:
                assert await here.peer(name).text("up__whoami") == name
                most = max(most, len(processes()))
        assert most <= 2
        # Two that are busy cannot make room.
        async with anyio.create_task_group() as tasks:
            for name in names[:2]:
                assert await here.peer(name).text("up__whoami") == name
            for name in names[:2]:
                tasks.start_soon(here.another(name).call, "up__slow")
            await until(lambda: here.app.gateway.in_flight == 2)
            assert (await here.peer("c5").error("up__whoami"))["code"] == "QUEUE_OVERLOADED"
        assert await here.peer("c5").text("up__whoami") == "c5"


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_resources_and_notifications_are_separate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bob is an administrator, who hears what servers that all callers share log about others."""
    config = config_of(["ann", "bob"], {"up": on_stdio("2025-11-25")}, monkeypatch)
    bob = msgspec.structs.replace(config.callers["bob"], admin=True)
    config = msgspec.structs.replace(config, callers={**config.callers, "bob": bob})
    async with office(config) as here, AsyncExitStack() as stack:
        ears = [Ear(name) for name in ("ann", "bob")]
        for ear in ears:
            await here.vault.put("up", ear.name, "KEY", ear.name.encode())
            await stack.enter_async_context(ear.open(here.url))
        for ear in ears:
            await ear.client.set_logging_level("debug")
            (listed,) = (await ear.client.list_resources()).resources
            assert str(listed.uri) == f"key://{ear.name}"
            (read,) = (await ear.client.read_resource("key://all")).contents
            assert isinstance(read, TextResourceContents)
            assert read.text == ear.name
            await ear.client.subscribe_resource("key://all")
        await ears[0].client.call_tool("up__shout")
        await until(lambda: len(ears[0].heard) == 2)
        await anyio.sleep(0.3)  # what must not come would be here by now
        assert [sorted(ear.heard) for ear in ears] == [["I am ann", "updated"], []]


class Ear:
    """A client of the handshake era that notes what it is told."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.heard: list[str] = []

    @asynccontextmanager
    async def open(self, url: str) -> AsyncIterator[None]:
        options = {"logging_callback": self._hear, "message_handler": self._take}
        async with client_of(url, token_of(self.name), "legacy", **options) as self.client:
            yield

    async def _hear(self, params: LoggingMessageNotificationParams) -> None:
        self.heard.append(str(params.data))

    async def _take(self, message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            self.heard.append("updated")


async def test_a_reload_separates_callers_and_keeps_their_servers_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    before = config_of(["ann", "bob"], {}, monkeypatch)
    after = config_of(["ann", "bob"], {"up": on_stdio()}, monkeypatch)
    stricter = config_of(["ann", "bob"], {"up": on_stdio(deny=["slow"])}, monkeypatch)
    async with office(before) as here:
        for name in ("ann", "bob"):
            await here.vault.put("up", name, "KEY", f"{name}-vip".encode())
            assert await here.peer(name).tools() == []
        await apply_config(here.app, lambda: after)
        for name in ("ann", "bob"):
            await until_async(lambda name=name: _has(here.peer(name), f"up__only_{name}-vip"))
            assert await here.peer(name).text("up__whoami") == f"{name}-vip"
        in_flight = asyncio.create_task(here.another("ann").text("up__slow"))
        await until(lambda: _has_call(here.app))
        await apply_config(here.app, lambda: stricter)
        # From the first moment on, and with those tools that were looked up before.
        assert await here.peer("ann").text("up__whoami") == "ann-vip"
        assert await in_flight == "ann-vip"
        for name in ("ann", "bob"):
            await until_async(lambda name=name: _lacks(here.peer(name), "up__slow"))
            assert f"up__only_{name}-vip" in await here.peer(name).tools()
            assert await here.peer(name).text("up__whoami") == f"{name}-vip"
        await until(lambda: len(processes()) == 2)
        await apply_config(here.app, lambda: before)
        await until(lambda: processes() == [])


async def test_a_tool_that_was_looked_up_before_a_reload_uses_no_shared_value(monkeypatch: pytest.MonkeyPatch) -> None:
    before = config_of(["ann"], {"up": on_stdio(credentials="shared")}, monkeypatch)
    after = config_of(["ann"], {"up": on_stdio()}, monkeypatch)
    async with office(before) as here:
        await here.vault.put("up", "", "KEY", b"nobody")
        await until(lambda: "up__whoami" in [tool.contract.name for tool in here.app.gateway.catalog])
        ann = Caller(id=CallerId("ann"), transport="http")
        calls = [here.app.gateway.admit(caller=ann, name="up__whoami", arguments={}) for _ in range(2)]
        assert b"nobody" in (await here.app.gateway.call(calls[0])).payload
        await apply_config(here.app, lambda: after)
        late = (await here.app.gateway.call(calls[1])).payload

    assert b"CREDENTIAL_REQUIRED" in late


async def test_a_method_that_a_server_has_for_one_caller_alone_is_not_hidden_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse_ann(version: str, method: str, params: dict[str, Any], key: str) -> dict[str, Any]:
        is_refused = key == "ann" and method == "resources/list"
        return answer(version, "none" if is_refused else method, params, key)

    answer = whoami.answer
    monkeypatch.setattr(whoami, "answer", refuse_ann)
    async with (
        serving(WhoamiHttp()) as url,
        office(config_of(["ann", "bob"], {"up": over_http(url)}, monkeypatch)) as here,
    ):
        listed = []
        for name in ("ann", "bob"):
            await here.vault.put("up", name, "KEY", name.encode())
            answered = await here.peer(name).request("resources/list")
            listed.append([resource["uri"] for resource in answered["result"]["resources"]])

    assert listed == [[], ["key://bob"]]


@attack(
    "caller",
    "reads a URI that the account of another caller lists",
    "the answer is the same as for an unlisted URI",
)
async def test_a_uri_that_another_account_lists_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two servers: the only one there is would be asked for a URI that nobody lists.
    async with serving(WhoamiHttp()) as url, serving(WhoamiHttp()) as other:
        servers = {"up": over_http(url), "web": over_http(other)}
        async with office(config_of(["ann", "bob"], servers, monkeypatch)) as here:
            for name in ("ann", "bob"):
                await here.vault.put("up", name, "KEY", name.encode())
                await here.vault.put("web", name, "KEY", f"{name}2".encode())
            own = await here.peer("ann").request("resources/read", uri="key://ann")
            asked = [await here.peer("bob").request("resources/read", uri=f"key://{name}") for name in ("ann", "eve")]

    assert own["result"]["contents"][0]["text"] == "ann"
    assert "error" in asked[1]
    assert json.loads(json.dumps(asked[0]).replace("key://ann", "key://eve")) == asked[1]


async def test_an_operator_sees_and_stops_the_servers_of_all_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLPOST_TOKEN", token_of("token"))
    async with office(config_of(["ann", "bob", "cyd"], {"up": on_stdio()}, monkeypatch)) as here:
        for name in ("ann", "bob", "cyd"):
            await here.vault.put("up", name, "KEY", name.encode())
        for name in ("ann", "bob"):
            assert await here.peer(name).text("up__whoami") == name
        gateway = RunningGateway(url=here.url.removesuffix("/mcp"), token=token_of("token"))
        (report,) = await to_thread.run_sync(gateway.servers)
        assert (report["state"], sorted(report["pids"])) == ("ready", sorted(p.pid for p in processes()))
        stopped = await to_thread.run_sync(gateway.act, "up", "stop")
        assert stopped["state"] in ("stopped", "draining")
        await until(lambda: processes() == [])
        for name in ("ann", "cyd"):  # Cyd comes for the first time
            answered = await here.peer(name).call("up__whoami")
            assert "stopped" in json.dumps(answered)
        await to_thread.run_sync(gateway.act, "up", "start")
        for name in ("ann", "cyd"):
            assert await here.peer(name).text("up__whoami") == name


async def _lacks(peer: Peer, tool: str) -> bool:
    return tool not in await peer.tools()


async def test_a_tool_that_was_found_for_another_caller_is_run_for_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts and middleware find tools without saying for whom: what counts is who calls."""
    async with office(config_of(["ann", "bob"], {"up": on_stdio()}, monkeypatch)) as here:
        for name in ("", "ann"):
            await here.vault.put("up", name, "KEY", (name or "nobody").encode())
        await until(lambda: "up__whoami" in [tool.contract.name for tool in here.app.gateway.catalog])
        for name, expected in (("ann", "ann"), ("bob", "CREDENTIAL_REQUIRED"), ("local", "nobody")):
            caller = Caller(id=CallerId(name), transport="http")
            call = here.app.gateway.admit(caller=caller, name="up__whoami", arguments={})
            assert expected in (await here.app.gateway.call(call)).payload.decode()


async def _outcome(here: Office, name: str, server: str, key: str) -> str:
    """Call once, on a new connection, and return `ok` or the code of the error."""
    peer = Peer(here.url, name)
    answered = (await peer.call(f"{server}__whoami"))["result"]
    peer.close()
    text = str(answered["content"][0]["text"])
    if answered.get("isError"):
        return str(json.loads(text)["code"])
    assert text == key
    return "ok"


CALLS = [1_000, pytest.param(100_000, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]


@pytest.mark.parametrize("calls", CALLS)
async def test_a_hundred_callers_never_get_the_credential_of_another(
    calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With restarts and evictions: fewer servers may run than there are callers."""
    names = [f"c{number}" for number in range(100)]
    web = WhoamiHttp()
    rng = random.Random(7)
    outcomes: Counter[str] = Counter()
    most = 0
    async with serving(web) as url:
        is_soak = calls > 10_000
        servers = {"up": on_stdio(), "web": over_http(url)}
        limits = LimitSettings(instances=60 if is_soak else 24, share=1.0)
        async with office(config_of(names, servers, monkeypatch, limits=limits)) as here:
            for name in names:
                for server in servers:
                    # Shorter than what is masked in answers.
                    await here.vault.put(server, name, "KEY", f"{name}-{server}".encode())
            left = iter(range(calls))

            async def work(number: int) -> None:
                while next(left, None) is not None:
                    # Mostly some of the callers, as elsewhere: servers of the others are evicted, and come back.
                    name = names[number] if rng.random() < (0.9 if is_soak else 0.96) else rng.choice(names)
                    server = "up" if rng.random() < (0.5 if is_soak else 0.3) else "web"
                    outcomes[await _outcome(here, name, server, f"{name}-{server}")] += 1

            async def disturb() -> None:
                nonlocal most
                while True:
                    await anyio.sleep(0.3)
                    most = max(most, len(processes()))
                    provider = here.app.servers.providers[rng.choice(("up", "web"))]
                    assert provider.by_owner is not None
                    rng.choice([*provider.by_owner]).supervisor.restart()
                    if is_soak and (running := processes()):
                        rng.choice(running).kill()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(disturb)
                async with anyio.create_task_group() as workers:
                    for number in range(30 if is_soak else 16):
                        workers.start_soon(work, number)
                tasks.cancel_scope.cancel()
    assert sum(outcomes.values()) == calls
    assert outcomes["ok"] > (0.97 if is_soak else 0.9) * calls, outcomes
    assert set(outcomes) <= {"ok", "UPSTREAM_UNAVAILABLE", "QUEUE_OVERLOADED"}
    assert web.mixed == []
    assert 0 < most <= 100
