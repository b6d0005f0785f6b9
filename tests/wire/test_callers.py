"""Who sees what: each caller by their own token, within what the endpoint and the path show."""

import http.client
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from anyio.abc import TaskStatus
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

from tests.hostile.attacks import attack
from tests.loaded import loaded, loaded_toml, loaded_toolpost
from tests.upstreams.behind import hostile, text_of
from tests.waiting import until
from tests.ways import BEHAVIOURS, ENVELOPE, IN_MEMORY, STATELESS, plugin_of, server_environment
from tests.wire.callers import ERAS, Project, client_of, names, refusal
from tests.wire.test_visibility import LIBRARY, SMALL, small
from toolpost.app import App, open_app, open_http
from toolpost.app.reload import apply_config, follow_config
from toolpost.audit import AuditFilter
from toolpost.base.caller import Scope
from toolpost.contracts.errors import BadConfiguration
from toolpost.discovery import EVERYTHING, View
from toolpost.discovery.catalog import VIEWS_LIMIT
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.protocol.era import REVISIONS
from toolpost.settings import Config, load_config
from toolpost.testing import data_of
from toolpost.upstreams.notifications import PROMPTS_CHANGED, Notification
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

_SMALL = f'command = "{sys.executable}"\nargs = ["-S", "-E", "{SMALL}", "fine"]\n'
TWO = f'[servers.one]\ntags = ["a"]\n{_SMALL}[servers.two]\ntags = ["b"]\n{_SMALL}'
OPENING = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "0"}},
}
LISTING = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
THREE = (small("one", "a"), small("two", "b"), small("bare"))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@asynccontextmanager
async def served(config: Config, *specs: ServerSpec) -> AsyncIterator[tuple[App, str]]:
    plugins = [plugin_of(BEHAVIOURS)]
    async with open_app(config, plugins=plugins, bundled=False, servers=specs or None) as app, open_http(app) as url:
        yield app, url


async def ask(url: str, token: str, message: Any, verb: str = "POST", **headers: str) -> tuple[int, Any, str]:
    def asked() -> tuple[int, Any, str]:
        host, _, path = url.removeprefix("http://").partition("/")
        connection = http.client.HTTPConnection(host, timeout=20)
        fields = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            fields["authorization"] = f"Bearer {token}"
        try:
            connection.request(verb, f"/{path}", json.dumps(message) if message else None, fields)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        return answer.status, json.loads(body) if body[:1] == b"{" else body, answer.headers.get("mcp-session-id", "")

    return await anyio.to_thread.run_sync(asked)


@pytest.mark.parametrize("mode", ERAS)
async def test_each_caller_sees_what_they_may(mode: str, project: Project) -> None:
    project.write(
        "ada",
        'bob\ntags = ["a"]',
        'cy\ntools = ["two__*", "does__*", "!does__b*"]',
        'dan\ntags = ["a", "b"]\ntools = ["one__*"]',
        'eve\ntags = ["nobody-has-this"]',
        "fay\ntools = []",
        'gil\ntools = ["!does__*"]',
    )
    seen: dict[str, list[str]] = {}
    async with served(project.load(), *THREE) as (_, url):
        for name in ("ada", "bob", "cy", "dan", "eve", "fay", "gil"):
            async with client_of(url, f"{name}-token", mode) as client:
                seen[name] = await names(client)

    plugin = [name for name in seen["ada"] if name.startswith("does__")]
    assert {"one__echo", "two__echo", "bare__echo", "does__echo"} <= set(seen["ada"])
    assert seen["bob"] == ["one__echo"]
    assert seen["cy"] == [*(name for name in plugin if not name.startswith("does__b")), "two__echo"]
    assert seen["dan"] == ["one__echo"]
    assert seen["eve"] == seen["fay"] == []
    assert seen["gil"] == ["bare__echo", "one__echo", "two__echo"]


@attack(
    "caller",
    "calls tools outside its view by name",
    "they are unknown, never suggested, and answered exactly like missing names",
)
@pytest.mark.parametrize("mode", ERAS)
async def test_what_a_caller_does_not_see_is_unknown_and_is_not_suggested(mode: str, project: Project) -> None:
    project.write('bob\ntools = ["one__*"]')
    async with served(project.load(), *THREE) as (app, url), client_of(url, "bob-token", mode) as client:
        answer = await client.call_tool("one__echo", {"text": "x"})
        hidden = [await refusal(client, name, text="x") for name in ("two__echo", "does__echo", "bare__echo")]
        nowhere = await refusal(client, "tqo__echo", text="x")
        entries = await app.store.audit.entries(AuditFilter(), limit=10)

    assert data_of(answer) == {"text": "x"}
    assert {error.code for error in hidden} == {-32602}
    assert all(error.data["details"]["nearest"] in ([], ["one__echo"]) for error in (*hidden, nowhere))
    assert json.dumps(nowhere.data).replace("tqo", "two") == json.dumps(hidden[0].data), "nothing tells them apart"
    assert [record.entry.caller for record in entries] == ["bob"]


@attack(
    "caller",
    "asks for more by a path than its view has",
    "a path only ever shows less",
)
@pytest.mark.parametrize("mode", ERAS)
async def test_a_path_shows_the_part_of_it_that_the_caller_may_see(mode: str, project: Project) -> None:
    project.write('bob\ntools = ["one__*", "two__*"]', 'cy\ntags = ["a"]')
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with served(project.load(), *THREE) as (_, url):
        async with client_of(f"{url}/tags/b", "bob-token", mode) as client:
            tagged = await names(client)
            refused = await refusal(client, "one__echo", text="x")
        async with client_of(f"{url}/server/one", "cy-token", mode) as client:
            one = await names(client)
        hidden = [await ask(f"{url}{path}", "cy-token", ping) for path in ("/server/two", "/server/does", "/tags/b")]
        nobody = await ask(f"{url}/server/zzz", "cy-token", ping)

    assert tagged == ["two__echo"]
    assert refused.code == -32602
    assert one == ["echo"]
    assert [status for status, _, _ in (*hidden, nobody)] == [404] * 4
    assert "(the servers and plugins here: one)" in nobody[1]["error"]["message"]
    assert not any("bare" in str(answer) or "does__" in str(answer) for _, answer, _ in hidden)


@attack(
    "caller",
    "reads resources and prompts of servers outside its view",
    "they are not listed, and are unknown when asked for",
)
@pytest.mark.parametrize("mode", ERAS)
async def test_resources_prompts_and_completions_are_limited_too(mode: str, project: Project) -> None:
    library = ServerSpec(name="library", command=loaded(LIBRARY), tags=frozenset({"books"}))
    project.write(
        'all\ntags = ["books"]',
        'other\ntags = ["a"]',
        'whole\ntools = ["library__*"]',
        'some\ntools = ["library__review"]',
        'less\ntools = ["library__*", "!library__review"]',
    )
    found: dict[str, tuple[int, int, int, str, str]] = {}
    async with served(project.load(), library, small("one", "a")) as (_, url):
        for name in ("all", "other", "whole", "some", "less"):
            async with client_of(url, f"{name}-token", mode) as client:
                found[name] = (
                    len((await client.list_resources()).resources),
                    len((await client.list_resource_templates()).resource_templates),
                    len((await client.list_prompts()).prompts),
                    await _outcome(client.read_resource("book://one")),
                    await _outcome(client.get_prompt("library__review", {"title": "x"})),
                )

    full = found["all"]
    assert full[0] == 1
    assert full[2:] == (1, "given", "given")
    assert found["whole"] == full
    assert found["other"] == (0, 0, 0, unknown_resource(mode), "-32602")
    assert found["some"] == (0, 0, 1, unknown_resource(mode), "given"), "no pattern matches what has no name"
    assert found["less"] == (full[0], full[1], 0, "given", "-32602")


def unknown_resource(mode: str) -> str:
    """Return the code for a resource that does not exist, in this era."""
    return "-32002" if mode == "legacy" else "-32602"


async def _outcome(asking: Any) -> str:
    try:
        await asking
    except MCPError as error:
        return str(error.code)
    return "given"


@pytest.mark.parametrize("mode", ERAS)
async def test_an_endpoint_is_limited_for_everybody(mode: str, project: Project) -> None:
    project.write("ada", 'bob\ntags = ["a"]', more='[http]\ntools = ["two__*", "one__*"]\n')
    async with served(project.load(), *THREE) as (_, url):
        async with client_of(url, "ada-token", mode) as client:
            ada = await names(client)
        async with client_of(url, "bob-token", mode) as client:
            bob = await names(client)

    assert ada == ["one__echo", "two__echo"]
    assert bob == ["one__echo"]


@pytest.mark.parametrize("mode", ERAS)
async def test_an_endpoint_without_tokens_can_be_limited(mode: str, project: Project) -> None:
    project.write(more='[http]\ntags = ["b"]\n')
    async with served(project.load(), *THREE) as (_, url), Client(url, mode=mode) as client:
        listed = await client.list_tools()
        refused = await refusal(client, "one__echo", text="x")

    assert [tool.name for tool in listed.tools] == ["two__echo"]
    assert refused.code == -32602
    if mode == STATELESS:
        assert listed.cache_scope == "public"


@pytest.mark.parametrize("mode", ERAS)
async def test_stdio_is_limited_by_its_own_settings(mode: str, project: Project) -> None:
    library = f"[servers.library]\n{loaded_toml(LIBRARY)}"
    project.write(more=f'[stdio]\ntags = ["a"]\n{TWO}{library}')
    command, *arguments = loaded_toolpost("serve", "--stdio", "--config", str(project.path))
    start = StdioServerParameters(command=command, args=arguments, env=server_environment())
    async with Client(start, mode=mode) as client:
        listed = await names(client)
        answer = await client.call_tool("one__echo", {"text": "x"})
        refused = await refusal(client, "two__echo", text="x")
        resources = (await client.list_resources()).resources
        unread = await _outcome(client.read_resource("book://one"))

    assert listed == ["one__echo"]
    assert data_of(answer) == {"text": "x"}
    assert refused.code == -32602
    assert resources == []
    assert unread == unknown_resource(mode)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_connection_in_memory_can_be_limited(mode: str, project: Project) -> None:
    view = EVERYTHING.within((Scope(tags=frozenset({"b"})),))
    async with served(project.write().load(), *THREE) as (app, _):
        async with Client(open_memory_endpoint(app.call_handler, app.sdk, view=view), mode=mode) as client:
            assert await names(client) == ["two__echo"]


@attack(
    "caller",
    "uses a server with a state of its own for each caller",
    "it gets its own instance, for any claim about itself",
)
async def test_callers_never_see_each_others_state(project: Project) -> None:
    """The server of one's own is the caller's: by their name, whatever they say about themselves."""
    project.write("ada", "bob")
    counted = []
    async with served(project.load(), hostile(strategy="per_session")) as (app, url):
        for name in ("ada", "bob", "ada", "bob", "bob"):
            async with client_of(url, f"{name}-token", STATELESS) as client:
                counted.append(text_of(await client.call_tool("up__count", {})))
        pids = app.servers.providers["up"].supervisor.report().pids

    assert counted == ["1", "1", "2", "2", "3"]
    assert len(pids) == 2


@attack(
    "caller",
    "calls, lists and deletes under another caller's session id",
    "the session does not exist for other callers",
)
async def test_a_session_is_refused_to_another_token(project: Project) -> None:
    project.write("ada", "bob")
    calling = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "does__echo", "arguments": {"text": "x"}},
    }
    async with served(project.load()) as (_, url):
        _, _, session = await ask(url, "ada-token", OPENING)
        headers = {"mcp_session_id": session, "mcp_protocol_version": "2025-06-18"}
        foreign = [(await ask(url, "bob-token", message, **headers))[0] for message in (LISTING, calling)]
        ended = (await ask(url, "bob-token", None, "DELETE", **headers))[0]
        nameless = (await ask(url, "", LISTING, **headers))[0]
        own = [(await ask(url, "ada-token", message, **headers))[0] for message in (LISTING, calling)]

    assert foreign == [404, 404]
    assert ended == 404
    assert nameless == 401
    assert own == [200, 200]


@attack(
    "stranger",
    "guesses tokens: parts of one, other spellings, 9,000 characters",
    "401, and the answer does not repeat the guess",
)
@pytest.mark.parametrize("token", ["", "bob-toke", "bob-tokens", "BOB-TOKEN", "bob", "ünïcode", "a.b.c", "x" * 9000])
async def test_what_is_no_token_lets_nobody_in(token: str, project: Project) -> None:
    project.write("bob")
    async with served(project.load()) as (_, url):
        status, answer, _ = await ask(url, token, {"jsonrpc": "2.0", "id": 1, "method": "ping"})

    assert status == 401
    assert answer["error"]["data"] == {"code": "UNAUTHORIZED"}
    assert token == "" or token not in json.dumps(answer)


async def test_a_wrong_token_is_counted_and_logged(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    project.write("bob")
    async with served(project.load()) as (app, url):
        statuses = [
            (await ask(url, token, {"jsonrpc": "2.0", "id": 1, "method": "ping"}))[0] for token in ("bob-toke", "a.b.c")
        ]
        counted = app.gateway.metrics.tokens_rejected.value()

    assert statuses == [401, 401]
    assert counted == 2
    (line,) = [record for record in caplog.records if record.message == "token refused"]
    assert (line.__dict__["fields"]["path"], line.__dict__["fields"]["requests"]) == ("/mcp", 1)
    assert "bob-toke" not in caplog.text


async def test_the_one_token_is_a_caller_beside_the_others(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLPOST_TOKEN", "the-one")
    project.write('bob\ntags = ["a"]')
    async with served(project.load(), *THREE) as (_, url):
        async with client_of(url, "the-one", STATELESS) as client:
            everything = await names(client)
        async with client_of(url, "bob-token", STATELESS) as client:
            some = await names(client)

    assert set(some) < set(everything)


@attack(
    "caller",
    "looks at servers and stops them without being an administrator",
    "it is refused with 403",
)
async def test_administration_is_for_administrators(project: Project) -> None:
    project.write("ada\nadmin = true", "bob", 'cy\ntags = ["a"]')
    async with served(project.load(), small("one", "a")) as (_, url):
        servers = url.replace("/mcp", "/api/servers")
        looks = [(await ask(servers, f"{name}-token", None, "GET"))[0] for name in ("ada", "bob", "cy")]
        stops = [(await ask(f"{servers}/one/stop", f"{name}-token", {"a": 1}))[1] for name in ("bob", "cy", "ada")]
        health = [
            (await ask(url.replace("/mcp", "/healthz"), token, None, "GET"))[1]
            for token in ("bob-token", "cy-token", "nobody")
        ]

    assert looks == [200, 403, 403]
    assert [stop.get("error", {}).get("code") for stop in stops] == ["FORBIDDEN", "FORBIDDEN", None]
    assert "servers" in health[0]
    assert health[1:] == [{"status": "ok"}] * 2


@pytest.mark.parametrize("mode", ERAS)
async def test_a_plugin_is_seen_through_the_tags_it_was_given(mode: str, project: Project) -> None:
    project.write('bob\ntags = ["safe"]', more='[plugins]\ntags = {does = ["safe"]}\n')
    async with served(project.load(), *THREE) as (_, url), client_of(url, "bob-token", mode) as client:
        listed = await names(client)
        answer = await client.call_tool("does__echo", {"text": "x"})

    assert {name.partition("__")[0] for name in listed} == {"does"}
    assert data_of(answer) == "x"


@pytest.mark.parametrize("mode", ERAS)
async def test_what_a_server_may_not_offer_no_caller_is_offered(mode: str, project: Project) -> None:
    project.write("ada", 'bob\ntools = ["up__e*", "up__sleep", "up__refuse"]')
    server = hostile(allow=("e*", "r*", "sleep"), deny=("refuse",))
    seen: dict[str, list[str]] = {}
    codes: list[int] = []
    async with served(project.load(), server) as (_, url):
        for name in ("ada", "bob"):
            async with client_of(f"{url}/server/up", f"{name}-token", mode) as client:
                seen[name] = await names(client)
                codes.append((await refusal(client, "up__refuse")).code)

    assert {"echo", "sleep"} <= set(seen["bob"]) <= set(seen["ada"])
    assert "refuse" not in seen["ada"] + seen["bob"]
    assert all(name.startswith(("e", "r", "sleep")) for name in seen["ada"])
    assert codes == [-32602, -32602]


# While it runs


def calling(name: str, request_id: int = 1) -> bytes:
    params = {"name": name, "arguments": {"text": "x"}, "_meta": ENVELOPE}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}).encode()


class Kept:
    """One connection that is kept, as clients do."""

    def __init__(self, url: str, token: str) -> None:
        self._connection = http.client.HTTPConnection(url.split("/")[2], timeout=20)
        self._token = token

    def __enter__(self) -> "Kept":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    async def call(self, name: str) -> int:
        def asked() -> int:
            fields = {
                "content-type": "application/json",
                "authorization": f"Bearer {self._token}",
                "mcp-protocol-version": STATELESS,
                "mcp-method": "tools/call",
                "mcp-name": name,
            }
            self._connection.request("POST", "/mcp", calling(name), fields)
            answer = self._connection.getresponse()
            answer.read()
            return answer.status

        return await anyio.to_thread.run_sync(asked)


@attack(
    "caller",
    "goes on with a token that was removed, on a connection that is still open",
    "its next request is refused",
)
async def test_a_removed_token_stops_at_once_also_on_a_connection_that_is_open(project: Project) -> None:
    project.write("ada", "bob")
    async with served(project.load()) as (app, url):
        with Kept(url, "ada-token") as ada, Kept(url, "bob-token") as bob:
            before = [await ada.call("does__echo"), await bob.call("does__echo")]
            project.write("ada")
            await apply_config(app, project.load)
            after = [await ada.call("does__echo"), await bob.call("does__echo"), await bob.call("does__echo")]
            project.write("ada", "bob")
            await apply_config(app, project.load)
            again = await bob.call("does__echo")

    assert before == [200, 200]
    assert after == [200, 401, 401]
    assert again == 200


async def test_a_removed_caller_loses_their_session(project: Project) -> None:
    project.write("ada", "bob")
    statuses = []
    async with served(project.load()) as (app, url):
        sessions = {name: (await ask(url, f"{name}-token", OPENING))[2] for name in ("ada", "bob")}

        async def listed(name: str) -> int:
            headers = {"mcp_session_id": sessions[name], "mcp_protocol_version": "2025-06-18"}
            return (await ask(url, f"{name}-token", LISTING, **headers))[0]

        for known in (["ada", "bob"], ["ada"], ["ada", "bob"]):
            project.write(*known)
            await apply_config(app, project.load)
            statuses.append([await listed("ada"), await listed("bob")])

    assert statuses == [[200, 200], [200, 401], [200, 404]]


async def test_what_a_removed_caller_listens_to_ends(project: Project) -> None:
    project.write("ada", "bob")
    ended: list[str] = []
    async with served(project.load()) as (app, url), AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(anyio.create_task_group())

        async def listen(name: str, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
            async with client_of(url, f"{name}-token", STATELESS) as client:
                async with client.listen(tools_list_changed=True) as subscription:
                    task_status.started()
                    async for _ in subscription:
                        pass
            ended.append(name)

        for name in ("ada", "bob"):
            await tasks.start(listen, name)
        project.write("ada")
        await apply_config(app, project.load)
        await until(lambda: ended)
        await anyio.sleep(0.3)  # what must not come would be here by now
        tasks.cancel_scope.cancel()

    assert ended == ["bob"]


@pytest.mark.parametrize("mode", ERAS)
async def test_whoever_sees_less_hears_less(mode: str, project: Project) -> None:
    """A subscription, or a session, that was opened before goes by what its caller may see now."""
    project.write('ada\ntags = ["a", "b"]', more=TWO)
    heard: list[Any] = []

    async def hear(message: Any) -> None:
        heard.append(message)

    async with served(project.load()) as (app, url), AsyncExitStack() as stack:
        options = {"message_handler": hear} if mode == "legacy" else {}
        client = await stack.enter_async_context(client_of(url, "ada-token", mode, **options))
        await names(client)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        if mode != "legacy":
            subscription = await stack.enter_async_context(client.listen(prompts_list_changed=True))

            async def follow() -> None:
                async for event in subscription:
                    heard.append(event)

            tasks.start_soon(follow)
        project.write('ada\ntags = ["b"]', more=TWO)
        await apply_config(app, project.load)
        with anyio.fail_after(30):
            while mode == "legacy" and not app.shares.streams.taken:  # the stream of the session
                await anyio.sleep(0.01)
        await anyio.sleep(0.3)  # what the change itself announces has come
        heard.clear()
        subscribers = (await app.sdk.server()).subscribers
        for server in ("one", "two"):
            await subscribers.forward(Notification(server=server, key="", method=PROMPTS_CHANGED, params=b"{}"))
        await until(lambda: heard)
        await anyio.sleep(0.2)  # what must not come would be here by now
        tasks.cancel_scope.cancel()

    assert len(heard) == 1, "of the server that is out of sight nothing is heard"


@pytest.mark.parametrize("mode", ERAS)
async def test_a_changed_scope_is_seen_by_the_same_client(mode: str, project: Project) -> None:
    project.write('ada\ntags = ["a"]', more=TWO)
    async with served(project.load()) as (app, url), client_of(url, "ada-token", mode) as client:
        before = await names(client)
        project.write('ada\ntags = ["b"]', more=TWO)
        await apply_config(app, project.load)
        after = await names(client)
        refused = await refusal(client, "one__echo", text="x")

    assert (before, after) == (["one__echo"], ["two__echo"])
    assert refused.code == -32602


@pytest.mark.parametrize("mode", ERAS)
async def test_other_tags_of_a_server_show_it_to_others(mode: str, project: Project) -> None:
    project.write('ada\ntags = ["a"]', more=TWO)
    async with served(project.load()) as (app, url), client_of(url, "ada-token", mode) as client:
        before = await names(client)
        project.write('ada\ntags = ["a"]', more=TWO.replace('["b"]', '["b", "a"]'))
        await apply_config(app, project.load)
        with anyio.fail_after(30):
            while (after := await names(client)) == before:
                await anyio.sleep(0.02)

    assert (before, after) == (["one__echo"], ["one__echo", "two__echo"])


async def test_a_token_is_rotated_by_writing_its_file(project: Project) -> None:
    project.write("ada")
    async with served(project.load()) as (app, url), anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: follow_config(app, project.path, project.load, look_s=0.02))
        with Kept(url, "ada-token") as old, Kept(url, "rotated") as new:
            before = [await old.call("does__echo"), await new.call("does__echo")]
            (project.folder / "ada").write_text("rotated")
            with anyio.fail_after(30):
                while await new.call("does__echo") != 200:
                    await anyio.sleep(0.02)
            after = await old.call("does__echo")
        tasks.cancel_scope.cancel()

    assert before == [200, 401]
    assert after == 401


@pytest.mark.parametrize(
    "change",
    ["[callers.bob]\n", '[callers.bob]\ntoken = "${file:gone}"\n', '[callers.bob]\ntoken = "${NOT_SET_ANYWHERE}"\n'],
)
async def test_a_fault_leaves_the_callers_as_they_were(change: str, project: Project) -> None:
    project.write("ada")
    async with served(project.load()) as (app, url):
        project.path.write_text(change)
        await apply_config(app, project.load)

        with Kept(url, "ada-token") as ada:
            assert await ada.call("does__echo") == 200


@attack(
    "operator",
    "removes the last token from a configuration that listens to the network",
    "the change is refused, and the callers stay as they were",
)
async def test_a_change_never_opens_the_endpoint_to_the_world(project: Project, caplog: Any) -> None:
    project.write("ada", more='[http]\nlisten = "0.0.0.0:0"\n')
    config = msgspec.structs.replace(load_config(project.path), store=IN_MEMORY.store)
    async with served(config) as (app, url):
        project.path.write_text("")
        await apply_config(app, lambda: load_config(project.path))
        port = url.rsplit(":", 1)[1]
        status, _, _ = await ask(f"http://127.0.0.1:{port}", "", {"jsonrpc": "2.0", "id": 1, "method": "ping"})

    assert status == 401
    assert "not applied" in caplog.text


# What it costs


async def test_a_callers_share_is_prepared_once_however_many_there_are(project: Project) -> None:
    async with served(project.write().load(), *THREE) as (app, _):
        views = [EVERYTHING.within((Scope(tools=("one__*", f"x{number}")),)) for number in range(4 * VIEWS_LIMIT)]
        catalog, listing = app.gateway.catalog, app.call_handler.listing
        tools = [catalog.narrow(view) for view in views]
        pages = [listing.narrow(view).page(REVISIONS[STATELESS], None, request_id=b"1") for view in views]
        again = [catalog.narrow(view) for view in views]
        pages_again = [listing.narrow(view).page(REVISIONS[STATELESS], None, request_id=b"1") for view in views]
        shared = catalog.narrow(View(scopes=views[0].scopes))

    assert all(a is b for a, b in zip(tools, again, strict=True))
    assert all(a is b for a, b in zip(pages, pages_again, strict=True))
    assert shared is tools[0]


# What is wrong with a configuration


PUBLIC = '[http]\npublic_url = "https://b"\n'


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[callers.bob]\n", "callers.bob has no token"),
        ('[callers.token]\ntoken = "${A}"\n', "is reserved"),
        ('[callers."b:c"]\ntoken = "${A}"\n', "a caller's name may contain letters"),
        ('[callers.bob]\ntoken_env = "A"\n', '`callers.bob.token_env` is gone: write `token = "${VAR}"`'),
        ('[callers.bob]\ntoken = "${A}"\ntags = "x"\n', "callers.bob.tags must be a list"),
        ('[callers.bob]\ntoken = "${A}"\ntools = ["!"]\n', "callers.bob.tools: a pattern is empty"),
        ('[http]\ntags = [""]\n', "http.tags: a tag is empty"),
        ('[callers.bob]\nsubjects = ["A"]\n', "callers.bob is identified by OAuth claims"),
        ('[http.oauth.issuers.a]\nisuer = "x"\n', "did you mean `http.oauth.issuers.a.issuer`"),
        ('[http.oauth]\nothers = "allow"\n', "http.oauth has no issuer"),
        ('[http.oauth.issuers.a]\nissuer = "https://a"\n', "http.public_url is not set"),
        (f'{PUBLIC}[http.oauth.issuers.a]\nissuer = "http://a.example"\n', "issuer must be an https URL"),
        (f'{PUBLIC}[http.oauth.issuers.a]\nissuer = "https://a"\n', "not mapped to any caller"),
        (
            '[http]\npublic_url = "http://b"\n[http.oauth.issuers.a]\nissuer = "https://a"\n',
            "public_url must be an https",
        ),
        ('[http]\npublic_url = "https://b/mcp"\n[http.oauth.issuers.a]\nissuer = "https://a"\n', "leave `/mcp` out"),
        ("callers = 3\n", "callers must be a table"),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused(text: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(text)

    with pytest.raises(BadConfiguration) as refused:
        load_config(tmp_path / "toolpost.toml")
    assert fault in f"{refused.value.message} {refused.value.hint}"


def test_two_callers_may_not_share_a_token(project: Project) -> None:
    project.write("ada", "bob")
    (project.folder / "bob").write_text("ada-token")

    with pytest.raises(BadConfiguration, match=r"callers\.bob has the same token as callers\.ada") as refused:
        project.load().caller_tokens()
    assert "ada-token" not in str(refused.value)


@pytest.mark.parametrize("token", ["two words", "ünïcode", "tab\tbed"])
def test_a_token_that_no_client_could_send_is_refused(token: str, project: Project) -> None:
    project.write("ada")
    (project.folder / "ada").write_text(token)

    with pytest.raises(BadConfiguration, match="printable ASCII") as refused:
        project.load().caller_tokens()
    assert token not in str(refused.value)
