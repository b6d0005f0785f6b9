"""Everything that a plugin offers, as the official client gets it on every transport and in both eras."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import msgspec
import pytest
from mcp import Client, MCPError

from tests.plugins.offers import PNG, plugin
from tests.upstreams.behind import text_of
from tests.upstreams.test_notifications import Ear
from tests.waiting import until
from tests.ways import IN_MEMORY, QUICK_WAYS, STATELESS, WAYS, Way, stdio_server
from toolpost import CallRequest, CallResult, Next, Plugin, ToolFailed, Toolpost
from toolpost.app import App, open_app, open_http
from toolpost.app.open import OpenOptions
from toolpost.audit import AuditFilter
from toolpost.base.caller import Scope
from toolpost.discovery import EVERYTHING
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.settings import Config
from toolpost.settings.model import LimitSettings, PluginSettings, StoreSettings
from toolpost.testing import data_of, error_of

pytestmark = [
    pytest.mark.anyio,
    # The client warns of what only the handshake era has; here both eras are meant.
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

OFFERS = "tests.plugins.offers:plugin"
IMAGE = base64.b64encode(PNG).decode()
MISSING_CAPABILITY = -32021


class Guest:
    """A user who fills in forms, and whose client has a model and a folder."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {"name": "Ada", "value": True, **answers}
        self.asked: list[Any] = []
        self.waits_s = 0.0

    async def elicit(self, _context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params)
        await anyio.sleep(self.waits_s)
        if params.mode == "url":
            return types.ElicitResult(action="accept")
        fields = params.requested_schema["properties"]
        content: Any = {name: value for name, value in self.answers.items() if name in fields}
        if fields.get("value", {}).get("type") == "string":
            content = {"value": "Ada"}
        return types.ElicitResult(action="accept", content=content)

    async def sample(self, _context: Any, params: Any) -> types.CreateMessageResult:
        self.asked.append(params)
        return types.CreateMessageResult(role="assistant", content=types.TextContent(text="roses"), model="m")

    async def roots(self, _context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root.model_validate({"uri": "file:///home/ada", "name": "home"})])

    @property
    def callbacks(self) -> dict[str, Any]:
        return {
            "elicitation_callback": self.elicit,
            "sampling_callback": self.sample,
            "list_roots_callback": self.roots,
        }


@asynccontextmanager
async def open_client(way: Way, folder: Path, config: Config = IN_MEMORY, **options: Any) -> AsyncIterator[Client]:
    if way.transport == "stdio":
        async with Client(stdio_server(OFFERS, cwd=folder), mode=way.mode, **options) as client:
            yield client
        return
    async with open_app(config, plugins=[plugin], bundled=False) as app, client_on(app, way, **options) as client:
        yield client


@asynccontextmanager
async def client_on(app: App, way: Way, **options: Any) -> AsyncIterator[Client]:
    if way.transport == "memory":
        async with Client(open_memory_endpoint(app.call_handler, app.sdk), mode=way.mode, **options) as client:
            yield client
    else:
        async with open_http(app) as url, Client(url, mode=way.mode, **options) as client:
            yield client


def kinds(answer: types.CallToolResult) -> list[str]:
    return [block.type for block in answer.content]


# Results


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_content_is_what_the_tool_returned(way: Way, tmp_path: Path) -> None:
    async with open_client(way, tmp_path) as client:
        image = await client.call_tool("offers__image")
        mixed = await client.call_tool("offers__mixed")
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}

    assert kinds(image) == ["image"]
    assert image.structured_content is None
    assert image.content[0].annotations is not None
    definition = listed["offers__image"]
    assert definition.output_schema is None
    assert definition.icons is not None
    assert [icon.src for icon in definition.icons] == ["https://example.com/image.png", "data:,"]
    assert definition.meta is not None
    assert definition.meta["dev.example/kind"] == "image"
    blocks: list[Any] = mixed.content
    assert kinds(mixed) == ["text", "image", "audio", "resource", "resource", "resource_link", "text"]
    assert blocks[0].text == "before"
    assert blocks[1].data == IMAGE
    assert (blocks[3].resource.text, blocks[3].resource.mime_type) == ("a,b", "text/csv")
    assert base64.b64decode(blocks[4].resource.blob) == b"\x00\x01"
    assert (str(blocks[5].uri), blocks[5].title) == ("offers://today", "Today")
    assert blocks[6].meta == {"dev.example/last": True}
    assert mixed.structured_content is None


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_data_beside_content_is_held_to_the_listed_schema(way: Way, tmp_path: Path) -> None:
    async with open_client(way, tmp_path) as client:
        await client.list_tools()  # so that the client validates what it gets
        measured = await client.call_tool("offers__measured")
        wrong = await client.call_tool("offers__measured", {"width": "wide"})
        plain = await client.call_tool("offers__plain_measured")
        forgetful = await client.call_tool("offers__forgetful")

    assert data_of(measured) == {"width": 1}
    assert kinds(measured) == ["text", "image"]
    assert measured.meta is not None
    assert measured.meta["dev.example/by"] == "ruler"
    assert error_of(wrong)["code"] == "OUTPUT_VALIDATION_FAILED"
    assert plain.structured_content == {"n": 1}
    assert json.loads(text_of(plain)) == {"n": 1}
    assert error_of(forgetful)["code"] == "OUTPUT_VALIDATION_FAILED"


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_an_error_may_have_content_of_its_own(way: Way, tmp_path: Path) -> None:
    async with open_app(IN_MEMORY, plugins=[plugin], bundled=False) as app:
        async with client_on(app, way) as client:
            broken = await client.call_tool("offers__broken")
            with_data = await client.call_tool("offers__broken", {"style": "data"})
            plain = await client.call_tool("offers__plain_broken")
            missing = await client.call_tool("offers__missing_file")
            with pytest.raises(MCPError) as refused:
                await client.call_tool("offers__refuse")
        records = await app.store.audit.entries(AuditFilter(tool="offers__broken"), limit=10)
        entries = [record.entry for record in records]

    assert broken.is_error
    assert kinds(broken) == ["text", "image"]
    # An envelope has its error in structured content too: a client may read `ok` wherever there is any.
    expected = {"ok": False, "error": {"code": "HANDLER_ERROR", "message": "It broke here:"}}
    assert broken.structured_content == expected
    assert error_of(with_data)["details"] == {"line": 3}
    assert plain.is_error
    told: Any = plain.content[0]
    assert (told.text, plain.structured_content) == ("It broke.", None)
    assert "/nowhere" not in str(error_of(missing)["message"])
    assert (refused.value.code, refused.value.message) == (-32050, "Not today")
    assert refused.value.error.data == {"until": "tomorrow"}
    assert [(entry.outcome, entry.code) for entry in entries] == [("error", "HANDLER_ERROR")] * 2
    assert all(entry.result for entry in entries)


# Resources, prompts, completions


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_resources_are_listed_and_read(way: Way, tmp_path: Path) -> None:
    async with open_client(way, tmp_path) as client:
        listed = {str(resource.uri): resource for resource in (await client.list_resources()).resources}
        templates = (await client.list_resource_templates()).resource_templates
        logo, today, everything, found = [
            (await client.read_resource(uri)).contents[0]
            for uri in ("offers://logo", "offers://notes/today", "offers://notes", "offers://search?text=bread&most=1")
        ]
        refused = {}
        for uri in ("offers://notes/never", "offers://notes/..%2Fkeys", "offers://nothing", "offers://broken"):
            with pytest.raises(MCPError) as error:
                await client.read_resource(uri)
            refused[uri] = error.value

    assert {"offers://logo", "offers://notes", "offers://slow"} <= listed.keys()
    assert (listed["offers://logo"].mime_type, listed["offers://logo"].size) == ("image/png", len(PNG))
    assert listed["offers://logo"].icons
    assert {template.uri_template for template in templates} == {
        "offers://notes/{title}",
        "offers://search{?text,most}",
    }
    assert isinstance(logo, types.BlobResourceContents)
    assert logo.blob == IMAGE
    assert isinstance(today, types.TextResourceContents)
    assert (today.text, today.mime_type, str(today.uri)) == ("buy bread", "text/plain", "offers://notes/today")
    assert isinstance(everything, types.TextResourceContents)
    assert {"title": "today", "text": "buy bread"} in json.loads(everything.text)
    assert everything.mime_type == "application/json"
    assert isinstance(found, types.TextResourceContents)
    assert json.loads(found.text) == ["today"]
    codes = [error.code for error in refused.values()]
    unknown = -32602 if way.mode == STATELESS else -32002
    assert codes == [-32602, unknown, unknown, -32603]
    assert refused["offers://notes/never"].error.data["hint"] == "offers://notes lists them"
    assert refused["offers://broken"].error.data["details"] == {"exception": "RuntimeError"}


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_prompts_are_listed_and_completed(way: Way, tmp_path: Path) -> None:
    prompt = types.PromptReference(name="offers__summarize")
    template = types.ResourceTemplateReference(uri="offers://notes/{title}")
    async with open_client(way, tmp_path) as client:
        listed = {one.name: one for one in (await client.list_prompts()).prompts}
        got = await client.get_prompt("offers__summarize", {"title": "today", "words": "7"})
        completed = [
            (await client.complete(prompt, {"name": "tone", "value": "w"})).completion.values,
            (await client.complete(prompt, {"name": "title", "value": "t"}, {"tone": "dry"})).completion.values,
            (await client.complete(template, {"name": "title", "value": "to"})).completion.values,
            (await client.complete(template, {"name": "title", "value": "x"})).completion.values,
        ]
        refused = []
        for name, arguments in (
            ("offers__summarize", {}),
            ("offers__summarize", {"title": "today", "words": "many"}),
            ("offers__summarize", {"title": "today", "wrods": "7"}),
            ("offers__sumarize", {"title": "today"}),
        ):
            with pytest.raises(MCPError) as error:
                await client.get_prompt(name, arguments)
            refused.append(error.value)

    summarize = listed["offers__summarize"]
    assert summarize.title == "Summarize"
    assert summarize.icons
    assert [(one.name, one.required, one.description) for one in summarize.arguments or ()] == [
        ("title", True, "which note"),
        ("tone", False, None),
        ("words", False, None),
    ]
    messages: list[Any] = got.messages
    assert [(message.role, message.content.type) for message in messages] == [
        ("user", "resource"),
        ("user", "text"),
        ("assistant", "text"),
    ]
    assert messages[1].content.text == "Summarize it in 7 dry words."
    assert completed == [["warm"], ["today dry"], ["today"], []]
    assert [error.code for error in refused] == [-32602] * 4
    assert "many" not in refused[1].message
    assert "did you mean `offers__summarize`?" in refused[3].message


# The client is asked


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_a_tool_asks_its_client(way: Way, tmp_path: Path) -> None:
    guest = Guest(guests=3)
    async with open_client(way, tmp_path, **guest.callbacks) as client:
        booked = data_of(await client.call_tool("offers__book"))
        thread = data_of(await client.call_tool("offers__book_in_thread"))
        at_once = data_of(await client.call_tool("offers__by_schema"))
        paid = data_of(await client.call_tool("offers__pay"))
        folders = data_of(await client.call_tool("offers__folders"))
        who = data_of(await client.call_tool("offers__who"))
        prompt: Any = (await client.get_prompt("offers__personal")).messages[0].content
        resource: Any = (await client.read_resource("offers://private")).contents[0]

    booking = {"name": "Ada", "guests": 3, "table": "inside", "note": None}
    assert booked == {"action": "accept", "booking": booking, "sure": True}
    assert guest.asked[0].requested_schema == {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "guests": {"type": "integer", "minimum": 1, "maximum": 8, "default": 2},
            "table": {"type": "string", "enum": ["inside", "outside"], "default": "inside"},
            "note": {"type": "string"},
        },
        "required": ["name"],
    }
    assert guest.asked[1].message == "A table for 3?"
    assert thread == "Ada"
    assert at_once == {"name": {"name": "Ada"}, "poem": "roses"}
    sampled = next(params for params in guest.asked if isinstance(params, types.CreateMessageRequestParams))
    assert (sampled.system_prompt, sampled.max_tokens, len(sampled.messages)) == ("Be brief", 9, 2)
    assert paid == "accept"
    assert folders == ["file:///home/ada"]
    revision = STATELESS if way.mode == STATELESS else "2025-11-25"
    assert who == {"name": "mcp", "revision": revision, "can": [True, True, True, True]}
    assert prompt.text == "I am Ada."
    assert resource.text == "shown"


@pytest.mark.parametrize("way", [way for way in QUICK_WAYS if way.mode != STATELESS], ids=str)
async def test_a_client_is_told_that_an_address_is_done_with(way: Way, tmp_path: Path) -> None:
    guest, told = Guest(), list[str]()

    async def hear(message: Any) -> None:
        if isinstance(message, types.ElicitCompleteNotification):
            told.append(message.params.elicitation_id)

    async with open_client(way, tmp_path, message_handler=hear, **guest.callbacks) as client:
        await client.call_tool("offers__pay")
        await until(lambda: bool(told))

    assert told == [guest.asked[0].elicitation_id]


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_client_that_cannot_be_asked(way: Way, tmp_path: Path) -> None:
    async with open_client(way, tmp_path) as client:
        careful = data_of(await client.call_tool("offers__careful"))
        who = data_of(await client.call_tool("offers__who"))
        if way.mode == STATELESS:
            # Here the protocol has an error of its own, by which the client learns what is missing.
            with pytest.raises(MCPError) as missing:
                await client.call_tool("offers__folders")
            code, data = missing.value.code, missing.value.error.data
            with pytest.raises(MCPError) as prompt:
                await client.get_prompt("offers__personal")
            assert prompt.value.code == MISSING_CAPABILITY
        else:
            code, data = 0, error_of(await client.call_tool("offers__folders"))

    assert careful == "not asked"
    assert who["can"] == [False, False, False, False]
    assert data["code"] == "CAPABILITY_MISSING"
    if way.mode == STATELESS:
        assert code == MISSING_CAPABILITY
        assert data["requiredCapabilities"] == {"roots": {}}


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_the_time_limit_stands_still_while_the_user_thinks(way: Way, tmp_path: Path) -> None:
    guest = Guest()
    guest.waits_s = 0.8  # twice in a tool whose limit is 1 s
    async with open_client(way, tmp_path, **guest.callbacks) as client:
        booked = data_of(await client.call_tool("offers__book"))

    assert booked["sure"] is True


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_an_answer_that_does_not_fit_the_form_is_refused(way: Way, tmp_path: Path) -> None:
    guest = Guest(guests=99)
    async with open_client(way, tmp_path, **guest.callbacks) as client:
        error = error_of(await client.call_tool("offers__book"))

    assert error["code"] == "HANDLER_ERROR"
    assert error["details"]["issues"][0]["path"] == "/guests"


@pytest.mark.wire
async def test_a_round_that_comes_after_a_restart_is_told_to_begin_again(tmp_path: Path) -> None:
    config = msgspec.structs.replace(
        IN_MEMORY,
        store=StoreSettings(url=f"sqlite:{tmp_path / 'store.db'}"),
        limits=LimitSettings(grace_s=0.1),  # a call waits when the gateway ends
    )
    way, guest = Way("http", STATELESS), Guest()
    async with open_client(way, tmp_path, config, **guest.callbacks) as client:
        asked = await client.session.call_tool("offers__book", {}, allow_input_required=True)
        assert isinstance(asked, types.InputRequiredResult)
    assert list(asked.input_requests or {}) == ["booking"]
    accepted = types.ElicitResult(action="accept", content={"name": "Ada"})
    async with open_client(way, tmp_path, config, **guest.callbacks) as client:
        with pytest.raises(MCPError) as refused:
            await client.session.call_tool(
                "offers__book", {}, input_responses={"booking": accepted}, request_state=asked.request_state
            )
        # A client that answers a named request with its call saves a round.
        asked = await client.session.call_tool(
            "offers__book", {}, input_responses={"booking": accepted}, allow_input_required=True
        )

    assert refused.value.code == -32602
    assert refused.value.error.data["reason"] == "elsewhere"
    assert "without requestState" in refused.value.error.data["hint"]
    assert isinstance(asked, types.InputRequiredResult)
    assert list(asked.input_requests or {}) == ["elicitation-1"]


# Logs, changes, limits


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_logs_reach_the_client_that_wants_them(way: Way, tmp_path: Path) -> None:
    heard: list[Any] = []

    async def hear(params: Any) -> None:
        heard.append((params.level, params.logger, params.data))

    is_stateless = way.mode == STATELESS
    options: dict[str, Any] = {"log_level": "info"} if is_stateless else {}
    async with open_client(way, tmp_path, logging_callback=hear, **options) as client:
        if not is_stateless:
            await client.call_tool("offers__logs")
            await until(lambda: len(heard) == 3)
            heard.clear()
            await client.set_logging_level("info")
        assert data_of(await client.call_tool("offers__logs")) == "logged"
        await until(lambda: len(heard) >= 2)

    assert heard == [("info", "kitchen", {"at": "info"}), ("error", "kitchen", {"at": "error"})]


@pytest.mark.wire
async def test_logs_reach_no_other_client_of_the_caller() -> None:
    heard: dict[str, list[str]] = {"caller": [], "other": []}

    def ear(name: str) -> Any:
        async def hear(params: Any) -> None:
            heard[name].append(params.level)

        return hear

    # Neither client declares a capability or sets a level: the messages come on the streams of their sessions.
    async with open_app(IN_MEMORY, plugins=[plugin], bundled=False) as app, open_http(app) as url:
        async with (
            Client(url, mode="legacy", logging_callback=ear("caller")) as client,
            Client(url, mode="legacy", logging_callback=ear("other")) as other,
        ):
            await other.call_tool("offers__image")
            await until(lambda: app.shares.streams.taken == 2)
            await client.call_tool("offers__logs")
            await until(lambda: len(heard["caller"]) == 3)
            await anyio.sleep(0.1)  # what must not come would be here by now

    assert heard["other"] == []


async def test_a_program_gets_data_and_content() -> None:
    async with Toolpost(plugins=[plugin], settings={"store": {"url": "sqlite::memory:"}}).open() as gateway:
        image = await gateway.call("offers__image")
        measured = await gateway.call("offers__measured")
        with pytest.raises(ToolFailed, match="It broke here:"):
            await gateway.call("offers__broken")

    assert (image.data, [block["type"] for block in image.content]) == (None, ["image"])
    assert (measured.data, [block["type"] for block in measured.content]) == ({"width": 1}, ["image"])


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_what_is_added_and_removed_at_run_time_is_announced(way: Way, tmp_path: Path) -> None:
    ear = Ear()
    async with open_app(IN_MEMORY, plugins=[plugin], bundled=False) as app, ear.client(app, way) as client:
        async with ear.following(client, way, "offers://notes/today"), following_tools(ear, client, way):
            before = {tool.name for tool in (await client.list_tools()).tools}
            for what in ("tools", "prompts", "resources"):
                await client.call_tool("offers__change", {"what": what})
            await until(lambda: {"tools", "prompts", "resources"} <= set(ear.heard))
            added = data_of(await client.call_tool("offers__added"))
            prompt: Any = (await client.get_prompt("offers__added_prompt")).messages[0].content
            resource: Any = (await client.read_resource("offers://added")).contents[0]
            ear.heard.clear()
            for what in ("tools", "prompts", "resources"):
                await client.call_tool("offers__change", {"what": what, "add": False})
            await until(lambda: {"tools", "prompts", "resources"} <= set(ear.heard))
            with pytest.raises(MCPError):
                await client.call_tool("offers__added")
            with pytest.raises(MCPError):
                await client.get_prompt("offers__added_prompt")
            after = {tool.name for tool in (await client.list_tools()).tools}
            await client.call_tool("offers__write", {"title": "today", "text": "buy bread"})
            await client.call_tool("offers__write", {"title": "other", "text": "unfollowed"})
            await until(lambda: "updated offers://notes/today" in ear.heard)
            await anyio.sleep(0.1)  # what must not come would be here by now

    assert (added, prompt.text, resource.text) == ("added", "added", "added")
    assert before == after
    assert "updated offers://notes/other" not in ear.heard


@asynccontextmanager
async def following_tools(ear: Ear, client: Client, way: Way) -> AsyncIterator[None]:
    """Follow the list of tools, which a session of the handshake era does anyway."""
    if way.mode != STATELESS:
        yield
        return
    async with client.listen(tools_list_changed=True) as subscription, anyio.create_task_group() as tasks:

        async def follow() -> None:
            async for event in subscription:
                await ear.hear(event)

        tasks.start_soon(follow)
        yield
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_reads_end_at_their_time_limit_and_are_audited(way: Way, tmp_path: Path) -> None:
    async with open_app(IN_MEMORY, plugins=[plugin], bundled=False) as app:
        async with client_on(app, way) as client:
            with pytest.raises(MCPError) as late, anyio.fail_after(30):
                await client.read_resource("offers://slow")
            await client.read_resource("offers://logo")
            await client.get_prompt("offers__summarize", {"title": "today"})
        entries = [record.entry for record in await app.store.audit.entries(AuditFilter(), limit=10)]

    assert late.value.error.data["code"] == "TOOL_TIMEOUT"
    assert late.value.error.data["timeoutMs"] == 200
    assert [(entry.tool, entry.source, entry.outcome, entry.code) for entry in entries] == [
        ("resources/read", "offers", "error", "TOOL_TIMEOUT"),
        ("resources/read", "offers", "ok", None),
        ("prompts/get", "offers", "ok", None),
    ]


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_read_that_is_cancelled_ends(way: Way) -> None:
    began, ended = anyio.Event(), anyio.Event()
    waiting = Plugin("waiting")

    @waiting.resource("waiting://forever")
    async def forever() -> str:
        """Wait."""
        began.set()
        try:
            await anyio.sleep(60)
        finally:
            ended.set()
        return "late"

    async with open_app(IN_MEMORY, plugins=[waiting], bundled=False) as app:
        async with client_on(app, way) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(client.read_resource, "waiting://forever")
            with anyio.fail_after(30):
                await began.wait()
                tasks.cancel_scope.cancel()
        with anyio.fail_after(30):
            await ended.wait()


async def test_middleware_sees_and_replaces_content() -> None:
    seen: list[Any] = []

    async def blur(call: CallRequest, proceed: Next) -> CallResult:
        result = await proceed(call)
        seen.append((result.data, [block["type"] for block in result.content], result.is_error))
        if call.tool == "offers__image":
            return result.replace(content=[{"type": "text", "text": "(blurred)"}])
        return result

    async with open_app(IN_MEMORY, plugins=[plugin], bundled=False, options=OpenOptions(middleware=[blur])) as app:
        async with client_on(app, Way("memory", STATELESS)) as client:
            await client.list_tools()
            image = await client.call_tool("offers__image")
            measured = await client.call_tool("offers__measured")
            broken = await client.call_tool("offers__broken")

    assert (text_of(image), image.structured_content, kinds(image)) == ("(blurred)", None, ["text"])
    assert data_of(measured) == {"width": 1}
    assert kinds(broken) == ["text", "image"]
    assert seen == [
        (None, ["image"], False),
        ({"width": 1}, ["text", "image"], False),
        (None, ["text", "image"], True),
    ]


async def test_a_plugin_that_is_served_alone_has_bare_names() -> None:
    config = msgspec.structs.replace(IN_MEMORY, plugins=PluginSettings(only="offers"))
    async with open_app(config, plugins=[plugin], bundled=False) as app:
        async with client_on(app, Way("memory", STATELESS)) as client:
            prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
            got = await client.get_prompt("summarize", {"title": "today"})

    assert {"summarize", "personal"} <= prompts
    assert len(got.messages) == 3


@pytest.mark.parametrize("mode", ["legacy", STATELESS])
@pytest.mark.parametrize(
    ("tools", "prompts", "has_resources"),
    [
        (("offers__*",), {"offers__summarize", "offers__personal"}, True),
        (("offers__summ*",), {"offers__summarize"}, False),
        (("other__*",), set(), False),
    ],
)
async def test_resources_and_prompts_follow_the_view_of_the_caller(
    mode: str, tools: tuple[str, ...], prompts: set[str], has_resources: bool
) -> None:
    view = EVERYTHING.within((Scope(tools=tools),))
    async with open_app(IN_MEMORY, plugins=[plugin], bundled=False) as app:
        endpoint = open_memory_endpoint(app.call_handler, app.sdk, view=view)
        async with Client(endpoint, mode=mode) as client:
            listed = {prompt.name for prompt in (await client.list_prompts()).prompts}
            resources = (await client.list_resources()).resources
            if not has_resources:
                with pytest.raises(MCPError):
                    await client.read_resource("offers://logo")
            if "offers__personal" not in prompts:
                with pytest.raises(MCPError, match="Unknown prompt"):
                    await client.get_prompt("offers__personal")

    assert listed == prompts
    assert bool(resources) is has_resources
