"""Extensions pass the gateway: what is declared, methods, requests and notifications, in both directions, eras and transports."""

import json
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import mcp_types
import msgspec
import pytest
from mcp.client.extension import advertise

from tests.hostile.attacks import attack
from tests.loaded import loaded
from tests.upstreams.behind import ONE_OF_EACH, SERVERS
from tests.upstreams.extended import CLIENT, META, VENDOR, extending, wire_to
from tests.upstreams.raw import raw_stdio
from tests.upstreams.servers.asking import application_of
from tests.upstreams.servers.http_server import serving
from tests.upstreams.servers.skilled import IDENTIFIER, ListSkillsParams
from tests.upstreams.servers.skilled import server as skilled
from tests.upstreams.test_questions import client_on
from tests.upstreams.wires import Wire, duplex_wire
from tests.waiting import until
from tests.ways import IN_MEMORY, TOOLPOST, Way
from toolpost.app import open_app
from toolpost.app.open import OpenOptions
from toolpost.audit import AuditFilter
from toolpost.base.caller import READ_ONLY, Scope
from toolpost.discovery import View
from toolpost.settings.callers import CallerSettings
from toolpost.settings.model import StoreSettings
from toolpost.upstreams.notifications import EXTENSION_BURST
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

WAYS = [("duplex", False), ("duplex", True), ("http", False), ("http", True)]
ERAS = ["handshake", "modern"]

each_way = pytest.mark.parametrize(
    ("transport", "is_stateless"), WAYS, ids=["duplex", "duplex-modern", "http", "http-modern"]
)


def seen(tmp_path: Path, name: str = "up", method: str | None = None) -> list[dict[str, Any]]:
    """Return what a server got."""
    path = tmp_path / name
    messages = [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []
    return [message for message in messages if method in (None, message.get("method"))]


@each_way
@pytest.mark.parametrize("era", ERAS)
async def test_everything_of_an_extension_passes(transport: str, is_stateless: bool, era: str, tmp_path: Path) -> None:
    async with wire_to(transport, extending(tmp_path, era=era), is_stateless=is_stateless) as (_, wire):
        echoed = await wire.ask("vendor/echo", {"a": [None, 1]}, {"com.example/key": 7, "traceparent": "00-1-2-03"})
        answered = await wire.ask("vendor/ask")
        called = await wire.ask("tools/call", {"name": "up__do", "arguments": {"what": "ask"}})
        told = await wire.ask("vendor/tell", {"secret": "mine"})
        await wire.notify("notifications/vendor/hello", {"from": "the client"})
        await until(lambda: seen(tmp_path, method="notifications/vendor/hello"))
        unknown = await wire.ask("vendor/unknown")

    assert wire.greeting["capabilities"]["extensions"]["com.example/vendor"] == {"types": ["a"]}
    assert wire.greeting["_meta"][META] == {"extensions": {"com.example/vendor": ["up"]}}
    result = echoed["result"]
    assert (result["server"], result["params"]["a"], result["x-odd"]) == ("up", [None, 1], None)
    assert result["params"]["_meta"]["com.example/key"] == 7
    assert META not in result["params"]["_meta"]
    assert (result.get("resultType") == "complete") is is_stateless
    assert ("io.modelcontextprotocol/serverInfo" in result.get("_meta", {})) is is_stateless
    assert answered["result"]["answered"] == {"seen": {"n": 1}}
    assert json.loads(called["result"]["content"][0]["text"])["answered"] == {"seen": {"n": 1}}
    assert [asked["method"] for asked in wire.asked] == ["vendor/question"] * 2
    assert told["result"]["told"] is True
    (event,) = [message for message in wire.told if "list_changed" not in message["method"]]
    assert (event["method"], event["params"]["secret"]) == ("notifications/vendor/event", "mine")
    assert seen(tmp_path, method="notifications/vendor/hello")[0]["params"] == {"from": "the client"}
    assert unknown["error"]["code"] == -32601
    if era == "modern":
        (message, *_) = seen(tmp_path, method="vendor/echo")
        declared = message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        assert declared == {"extensions": {"com.example/vendor": {"v": 2}}, "experimental": {"x": {}}}


async def test_a_client_without_extensions_is_neither_asked_nor_told(tmp_path: Path) -> None:
    async with wire_to("duplex", extending(tmp_path), is_stateless=False, capabilities={}) as (_, wire):
        asked = await wire.ask("tools/call", {"name": "up__do", "arguments": {"what": "ask"}})
        await wire.ask("vendor/tell")
        await wire.ask("vendor/announce")

    assert json.loads(asked["result"]["content"][0]["text"])["error"]["code"] == -32601
    # A server that is slow to start has its tools announced.
    assert [message for message in wire.told if "list_changed" not in message["method"]] == wire.asked == []


@pytest.mark.parametrize("is_stateless", [False, True], ids=["handshake", "modern"])
async def test_a_method_reaches_the_server_that_it_is_for(is_stateless: bool, tmp_path: Path) -> None:
    specs = [
        extending(tmp_path, "one", uris=["one://a"], capabilities={**VENDOR, "resources": {}}),
        extending(tmp_path, "two", capabilities={"extensions": {"com.example/vendor": {"types": ["b"]}}}),
        extending(tmp_path, "three", capabilities={"experimental": {"other": {}}}),
        extending(tmp_path, "plain", capabilities={}),
    ]
    async with wire_to("http", *specs, is_stateless=is_stateless) as (_, wire):
        by_method = await wire.ask("other/echo")
        by_meta = await wire.ask("vendor/echo", {}, {META: {"server": "two"}})
        by_name = await wire.ask("vendor/echo", {"name": "two__do"})
        by_uri = await wire.ask("vendor/echo", {"uri": "one://a"})
        ambiguous = await wire.ask("vendor/echo")
        unmatched = await wire.ask("nobody/echo")
        unknown = await wire.ask("vendor/echo", {}, {META: {"server": "nowhere"}})
        without = await wire.ask("vendor/echo", {}, {META: {"server": "plain"}})

    assert [answer["result"]["server"] for answer in (by_method, by_meta, by_name, by_uri)] == [
        "three",
        "two",
        "two",
        "one",
    ]
    assert by_name["result"]["params"]["name"] == "do"
    assert ambiguous["error"]["code"] == -32602
    assert ambiguous["error"]["data"]["servers"] == ["one", "two"]
    assert META in ambiguous["error"]["data"]["hint"]
    assert unmatched["error"]["code"] == -32601
    assert unmatched["error"]["data"]["servers"] == ["one", "two", "three"]
    assert unknown["error"]["code"] == -32602
    assert without["error"]["code"] == -32601
    extensions = wire.greeting["capabilities"]["extensions"]
    assert extensions["com.example/vendor"] == {"types": ["a", "b"]}
    assert wire.greeting["capabilities"]["experimental"] == {"other": {}}
    assert wire.greeting["_meta"][META] == {"extensions": {"com.example/vendor": ["one", "two"], "other": ["three"]}}
    assert not [message for message in seen(tmp_path, "plain") if "echo" in str(message.get("method"))]


async def test_without_extensions_a_method_is_unknown(tmp_path: Path) -> None:
    async with wire_to("http", extending(tmp_path, capabilities={}), is_stateless=True) as (_, wire):
        answer = await wire.ask("vendor/echo")
        task = await wire.ask("tasks/list")

    assert answer["error"]["code"] == task["error"]["code"] == -32601
    assert "experimental" not in wire.greeting["capabilities"]
    assert not seen(tmp_path, method="vendor/echo")


@pytest.mark.parametrize("scope", [READ_ONLY, Scope(tools=("up__get_*",)), Scope(tags=frozenset({"other"}))])
async def test_a_caller_reaches_only_servers_that_it_sees_whole(scope: Scope, tmp_path: Path) -> None:
    async with open_app(IN_MEMORY, bundled=False, servers=[extending(tmp_path)]) as app:
        view = View(scopes=(scope,))
        async with duplex_wire(app, CLIENT, is_stateless=False, name="ann", view=view) as wire:
            answer = await wire.ask("vendor/echo")
            await wire.notify("notifications/vendor/hello")
            await wire.ask("ping")

    assert answer["error"]["code"] in (-32601, -32603)
    assert ("extensions" in wire.greeting["capabilities"]) is (scope is READ_ONLY)
    assert not [message for message in seen(tmp_path) if "vendor" in str(message.get("method"))]


async def test_a_server_whose_extensions_are_turned_off_has_none(tmp_path: Path) -> None:
    spec = extending(tmp_path, era="modern", spec={"extensions": False})
    async with wire_to("duplex", spec, is_stateless=False) as (_, wire):
        answer = await wire.ask("vendor/echo")
        called = await wire.ask("tools/call", {"name": "up__do", "arguments": {"what": "tell"}})
        asked = await wire.ask("tools/call", {"name": "up__do", "arguments": {"what": "ask"}})

    assert answer["error"]["code"] == -32601
    assert json.loads(called["result"]["content"][0]["text"]) == {"told": True}
    assert asked["result"]["isError"] is True
    # A server that is slow to start is told of by that.
    assert [told for told in wire.told if told["method"] != "notifications/tools/list_changed"] == wire.asked == []
    assert "extensions" not in wire.greeting["capabilities"]
    (first, *_) = seen(tmp_path, method="tools/call")
    assert not first["params"].get("_meta", {}).get("io.modelcontextprotocol/clientCapabilities")


async def test_every_request_leaves_an_audit_entry(tmp_path: Path) -> None:
    async with wire_to("duplex", extending(tmp_path), is_stateless=False) as (app, wire):
        await wire.ask("vendor/echo", {"a": 1})
        await wire.ask("vendor/unknown")
        entries = await app.store.audit.entries(AuditFilter(), limit=10)

    assert {(each.entry.tool, each.entry.source, each.entry.outcome) for each in entries} == {
        ("vendor/echo", "up", "ok"),
        ("vendor/unknown", "up", "error"),
    }


@each_way
async def test_a_method_that_is_never_answered_ends_at_its_deadline(
    transport: str, is_stateless: bool, tmp_path: Path
) -> None:
    spec = extending(tmp_path, spec={"timeout_s": 0.3})
    async with wire_to(transport, spec, is_stateless=is_stateless) as (_, wire):
        answer = await wire.ask("vendor/never")
        await until(lambda: seen(tmp_path, method="notifications/cancelled"))
        alive = await wire.ask("vendor/echo")

    assert answer["error"]["data"]["code"] == "TOOL_TIMEOUT"
    assert alive["result"]["server"] == "up"


async def test_a_request_that_is_cancelled_is_cancelled_at_the_server(tmp_path: Path) -> None:
    async with wire_to("duplex", extending(tmp_path), is_stateless=False) as (app, wire):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wire.ask, "vendor/never")
            await until(lambda: seen(tmp_path, method="vendor/never"))
            await wire.notify("notifications/cancelled", {"requestId": next(wire.ids) - 1})
            await until(lambda: seen(tmp_path, method="notifications/cancelled"))
            tasks.cancel_scope.cancel()
        entries = await app.store.audit.entries(AuditFilter(), limit=10)

    assert [(each.entry.tool, each.entry.outcome) for each in entries] == [("vendor/never", "error")]


async def test_what_one_caller_is_told_no_other_hears(tmp_path: Path) -> None:
    """One process serves ann and bob: what it sends during ann's call is ann's, what it sends of nobody's is bob's too."""
    config = msgspec.structs.replace(IN_MEMORY, callers={"ann": CallerSettings(), "bob": CallerSettings()})
    async with (
        open_app(config, bundled=False, servers=[extending(tmp_path)]) as app,
        duplex_wire(app, CLIENT, is_stateless=False, name="ann") as ann,
        duplex_wire(app, CLIENT, is_stateless=False, name="bob") as bob,
    ):
        await ann.ask("vendor/tell", {"secret": "ann's"})
        await ann.ask("tools/call", {"name": "up__do", "arguments": {"what": "tell"}})
        await ann.ask("vendor/announce")
        await until(lambda: [message for message in bob.told if "vendor" in message["method"]])

    methods = {message["method"] for message in bob.told} - {"notifications/tools/list_changed"}
    assert methods == {"notifications/vendor/list_changed"}
    assert [message["params"]["secret"] for message in ann.told if message.get("params")] == [
        "ann's",
        "s",
    ]


async def test_a_subscription_hears_what_extensions_send(tmp_path: Path) -> None:
    async with (
        open_app(IN_MEMORY, bundled=False, servers=[extending(tmp_path)]) as app,
        duplex_wire(app, CLIENT, is_stateless=True, name="ann") as ann,
        duplex_wire(app, CLIENT, is_stateless=True, name="bob") as bob,
    ):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bob.ask, "subscriptions/listen", {"notifications": {}})
            await until(lambda: bob.told)
            await ann.ask("tools/call", {"name": "up__do", "arguments": {"what": "tell"}})
            await ann.ask("tools/call", {"name": "up__do", "arguments": {"what": "announce"}})
            await until(lambda: len(bob.told) > 1)
            tasks.cancel_scope.cancel()

    acknowledged, event = bob.told
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert event["method"] == "notifications/vendor/list_changed"
    assert event["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"]


@pytest.mark.parametrize(
    ("strategy", "declared"), [("per_session", {**CLIENT}), ("shared", None)], ids=["per-session", "shared"]
)
async def test_a_handshake_declares_the_extensions_of_its_own_client_alone(
    strategy: str, declared: dict[str, Any] | None, tmp_path: Path
) -> None:
    spec = extending(tmp_path, spec={"strategy": strategy, "client_extensions": {"com.example/set": {"by": "us"}}})
    config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=f"sqlite:{tmp_path / 'store.db'}"))
    for _ in range(2):
        # The second time its tools are known, so that it is this client's request that starts it.
        async with wire_to("duplex", spec, is_stateless=False, config=config) as (_, wire):
            await wire.ask("vendor/echo")

    greeted = [message["params"]["capabilities"] for message in seen(tmp_path, method="initialize")]
    last = {key: greeted[-1].get(key) for key in ("extensions", "experimental")}
    assert last["extensions"]["com.example/set"] == {"by": "us"}
    assert last["extensions"].get("com.example/vendor") == (
        declared["extensions"]["com.example/vendor"] if declared else None
    )
    assert last["experimental"] == (declared["experimental"] if declared else None)
    assert "elicitation" in greeted[-1]


async def test_what_a_server_declared_is_announced_while_it_is_down(tmp_path: Path) -> None:
    config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=f"sqlite:{tmp_path / 'store.db'}"))
    spec = extending(tmp_path, greeting={"instructions": "Call `do` first."})
    async with wire_to("duplex", spec, is_stateless=False, config=config):
        pass
    (tmp_path / "up").unlink()
    async with wire_to("duplex", spec, is_stateless=False, config=config) as (_, wire):
        assert not seen(tmp_path)
        answer = await wire.ask("vendor/echo")

    assert wire.greeting["capabilities"]["extensions"] == VENDOR["extensions"]
    assert "> Call `do` first." in wire.greeting["instructions"]
    assert answer["result"]["server"] == "up"


@attack(
    "server", "declares thousands of extensions and megabytes of settings", "each server and all together are bounded"
)
async def test_huge_declarations_are_cut(tmp_path: Path) -> None:
    many = {f"com.example/e{number}": {"n": number} for number in range(5_000)}
    declared = {"extensions": {"com.example/huge": {"x": "y" * 1_000_000}, **many}, "experimental": {"odd": []}}
    async with wire_to("duplex", extending(tmp_path, capabilities=declared), is_stateless=True) as (_, wire):
        answer = await wire.ask("com.example/e3/echo")

    assert len(json.dumps(wire.greeting)) < 64 * 1024
    assert len([name for name in wire.greeting["capabilities"]["extensions"] if name in many]) == 64
    assert answer["result"]["server"] == "up"


@attack("server", "floods a client with notifications of extensions", "a burst passes, the rest is dropped and counted")
async def test_a_flood_of_notifications_is_thinned_out(tmp_path: Path) -> None:
    async with wire_to("duplex", extending(tmp_path), is_stateless=False) as (app, wire):
        await wire.ask("tools/call", {"name": "up__do", "arguments": {"what": "flood"}})
        alive = await wire.ask("vendor/echo")
        protocol_errors = app.servers.providers["up"].report().protocol_errors

    events = [message["params"]["number"] for message in wire.told if message["method"] == "notifications/vendor/event"]
    assert EXTENSION_BURST <= len(events) < 3_000
    assert events[:100] == list(range(100))
    assert (alive["result"]["server"], protocol_errors) == ("up", 1)


@attack(
    "caller", "sends a method that breaks out of the message or header it is written into", "it is no method at all"
)
@pytest.mark.parametrize("method", ['vendor/echo","id":7,"x":"', "vendor/echo\r\nx-evil: 1", "vendor//echo", "a" * 200])
async def test_a_method_cannot_break_out_of_its_message(method: str, tmp_path: Path) -> None:
    async with wire_to("duplex", extending(tmp_path), is_stateless=True) as (_, wire):
        answer = await wire.ask(method)

    assert answer["error"]["code"] == -32601
    assert not [message for message in seen(tmp_path) if "echo" in str(message.get("method"))]


async def test_a_uri_that_no_server_lists_is_told_to_none(tmp_path: Path) -> None:
    capabilities: dict[str, Any] = {"resources": {}}
    specs = [
        extending(tmp_path, "one", uris=["one://a"], capabilities=capabilities),
        extending(tmp_path, "two", uris=["two://a"], capabilities=capabilities),
    ]
    codes, named = [], {}
    for is_stateless in (False, True):
        async with wire_to("duplex", *specs, is_stateless=is_stateless) as (_, wire):
            codes.append((await wire.ask("resources/read", {"uri": "secret://mine"}))["error"]["code"])
            named = await wire.ask("resources/read", {"uri": "secret://ours"}, {META: {"server": "two"}})
    opened = [specs[0], replace(specs[1], unlisted_resources=True)]
    async with wire_to("duplex", *opened, is_stateless=False) as (_, wire):
        guessed = await wire.ask("resources/read", {"uri": "secret://ours"})

    assert codes == [-32002, -32602]
    assert named["result"]["contents"][0]["text"] == guessed["result"]["contents"][0]["text"] == "two"
    assert not seen(tmp_path, "one", "resources/read")
    assert {message["params"]["uri"] for message in seen(tmp_path, "two", "resources/read")} == {"secret://ours"}


class ListedSkills(mcp_types.Result):
    skills: list[dict[str, Any]]
    declared: dict[str, Any] | None = None


@pytest.mark.parametrize("back", ["stdio", "http"])
@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_an_extension_of_the_sdk_works_through_the_gateway(way: Way, back: str) -> None:
    """The official client and server speak an extension with each other, and neither sees that there is a gateway."""
    request = mcp_types.Request[ListSkillsParams, str](method="skills/list", params=ListSkillsParams(topic="sums"))
    extensions = [advertise(IDENTIFIER, {"depth": 3})]
    async with AsyncExitStack() as stack:
        spec = ServerSpec(name="up", command=loaded(str(SERVERS / "skilled.py")))
        if back == "http":
            served = application_of(skilled._lowlevel_server, is_stateless=True)
            spec = ServerSpec(
                name="up", url=await stack.enter_async_context(serving(await stack.enter_async_context(served)))
            )
        app = await stack.enter_async_context(
            open_app(IN_MEMORY, bundled=False, servers=[spec], options=OpenOptions(learn_limit_s=60))
        )
        client = await stack.enter_async_context(client_on(app, way, extensions=extensions))
        listed = await client.session.send_request(request, ListedSkills)
        announced, instructions = client.server_capabilities, client.instructions

    assert listed.skills == [{"name": "about sums"}]
    assert listed.declared == {"depth": 3}
    if way.mode == "legacy":  # in the other era this client asks for nothing first
        assert announced is not None
        assert (announced.extensions or {})[IDENTIFIER] == {"formats": ["markdown"]}
        assert "> List the skills before anything else." in str(instructions)


@pytest.mark.parametrize("is_stateless", [False, True], ids=["handshake", "modern"])
async def test_what_a_server_sends_over_http_reaches_the_client_of_its_request(is_stateless: bool) -> None:
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(application_of(skilled._lowlevel_server, is_stateless=True))
        spec = ServerSpec(name="up", url=await stack.enter_async_context(serving(served)))
        app = await stack.enter_async_context(
            open_app(IN_MEMORY, bundled=False, servers=[spec], options=OpenOptions(learn_limit_s=60))
        )
        ann, bob = [
            # A client that can be asked is served by a handshake, one of the stateless era without.
            await stack.enter_async_context(
                duplex_wire(app, {**CLIENT, "elicitation": {}}, is_stateless=is_stateless, name=name)
            )
            for name in ("ann", "bob")
        ]
        taught: dict[str, Any] = {}

        async def teach(name: str, wire: Wire) -> None:
            taught[name] = (await wire.ask("skills/teach", {"topic": name}))["result"]["answer"]

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(teach, "ann", ann)
            tasks.start_soon(teach, "bob", bob)

    assert taught == {"ann": {"about": "ann"}, "bob": {"about": "bob"}}
    for name, wire in (("ann", ann), ("bob", bob)):
        told = [message["params"] for message in wire.told if message["method"] == "notifications/skills/seen"]
        assert told == [{"topic": name}]


async def test_a_client_on_stdio_speaks_an_extension_too(tmp_path: Path) -> None:
    command, *arguments = extending(tmp_path).command or ()
    settings = f"[servers.up]\ncommand = {json.dumps(command)}\nargs = {json.dumps(arguments)}\n"
    (tmp_path / "toolpost.toml").write_text(settings)
    async with raw_stdio([TOOLPOST, "serve", "--stdio"], is_stateless=True, cwd=tmp_path) as ask:
        greeting = await ask("server/discover", {})
        echoed = await ask("vendor/echo", {"a": 1})

    assert greeting["result"]["capabilities"]["extensions"]["com.example/vendor"] == {"types": ["a"]}
    assert (echoed["result"]["server"], echoed["result"]["params"]["a"]) == ("up", 1)
