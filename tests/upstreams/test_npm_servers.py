"""npm's own servers, directly and through `toolpost serve`: the same tools, calls, resources, prompts, completions and errors,
and the same questions to the client, logs and updates.

`scripts/node-servers` puts them into `.venv/node`. They know only the handshake; clients of both eras come to them.
"""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters

from tests.upstreams.comparing import (
    Compared,
    Script,
    Seen,
    calls,
    configured,
    differences,
    on_stdio,
    seen_by,
    seen_directly,
    serving_http,
    through_http,
    through_stdio,
)
from tests.upstreams.test_notifications import Ear
from tests.upstreams.test_questions import Person
from tests.waiting import until
from tests.ways import IN_MEMORY, STATELESS, Way, server_environment
from tests.wire.callers import names
from toolpost.app import open_app, open_http
from toolpost.contracts import Definition
from toolpost.contracts.findings import inspect_definition
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.providers.server_provider import ServerProvider
from toolpost.upstreams.spec import ServerSpec

PLACE = Path(sys.prefix) / "node" / "node_modules" / "@modelcontextprotocol"
NODE = shutil.which("node")


def missing() -> str | None:
    """Say what is not here."""
    if NODE is None:
        return "Node.js is not installed"
    names = [name for name in ("server-everything", "server-filesystem") if not (PLACE / name).exists()]
    return f"npm's {' and '.join(names)} are not in {PLACE}: scripts/node-servers puts them there" if names else None


pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
    pytest.mark.wire,
]

ASKING_BACK: Final = frozenset(
    {
        *("get-roots-list", "trigger-elicitation-request", "trigger-url-elicitation", "trigger-sampling-request"),
        *("trigger-sampling-request-async", "trigger-elicitation-request-async", "simulate-research-query"),
    }
)
"""Tools that are offered to a client with the capabilities for them alone: the one that asks directly here has none."""

LISTS: Final = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")


def prompt(name: str, **arguments: str) -> tuple[str, dict[str, Any]]:
    return "prompts/get", {"name": name, "arguments": arguments}


def completion(ref: dict[str, str], name: str, value: str, **known: str) -> tuple[str, dict[str, Any]]:
    context = {"context": {"arguments": known}} if known else {}
    return "completion/complete", {"ref": ref, "argument": {"name": name, "value": value}, **context}


TEAM: Final = {"type": "ref/prompt", "name": "completable-prompt"}
TEMPLATE: Final = {"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"}

EVERYTHING: Script = [
    *calls(
        ("echo", {"message": "grüezi \u2028 😀"}),
        ("get-annotated-message", {"messageType": "error", "includeImage": True}),
        ("get-resource-links", {"count": 4}),
        ("get-resource-reference", {"resourceType": "Text", "resourceId": 1}),
        ("get-structured-content", {"location": "Chicago"}),
        ("get-sum", {"a": 1, "b": 2.5}),
        ("get-tiny-image", {}),
        (
            "gzip-file-as-resource",
            {"name": "a.gz", "data": "data:text/plain;base64,aGVsbG8=", "outputType": "resource"},
        ),
        ("gzip-file-as-resource", {"name": "b.gz", "data": "https://nowhere.invalid/", "outputType": "resource"}),
    ),
    (
        "tools/call",
        {
            "name": "trigger-long-running-operation",
            "arguments": {"duration": 2, "steps": 3},
            "_meta": {"progressToken": "long"},
        },
    ),
    ("resources/read", {"uri": "demo://resource/static/document/structure.md"}),
    ("resources/read", {"uri": "demo://resource/dynamic/blob/3"}),
    prompt("simple-prompt"),
    prompt("args-prompt", city="Zürich"),
    prompt("resource-prompt", resourceType="Text", resourceId="2"),
    prompt("resource-prompt", resourceType="Nonsense", resourceId="2"),
    completion(TEAM, "department", "S"),
    completion(TEAM, "name", "", department="Sales"),
    completion(TEMPLATE, "resourceId", "4"),
]


def files_script(folder: Path) -> Script:
    file = str(folder / "notes.txt")
    return calls(
        ("list_allowed_directories", {}),
        ("write_file", {"path": file, "content": "eins\nzwei\n"}),
        ("read_text_file", {"path": file, "head": 1}),
        ("edit_file", {"path": file, "edits": [{"oldText": "zwei", "newText": "drei"}], "dryRun": True}),
        ("read_media_file", {"path": str(folder / "pixel.png")}),
        ("list_directory", {"path": str(folder)}),
        ("search_files", {"path": str(folder), "pattern": "**/*.txt"}),
        ("read_text_file", {"path": "/etc/passwd"}),
        ("read_text_file", {"path": str(folder / "not there")}),
        ("move_file", {"source": str(folder / "not there"), "destination": file}),
    )


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> list[Compared]:
    """Return the servers on stdio; `server-everything` runs over HTTP too."""
    folder = tmp_path_factory.mktemp("files").resolve()
    (folder / "pixel.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    everything = [NODE or "", str(PLACE / "server-everything" / "dist" / "index.js"), "stdio"]
    files = [NODE or "", str(PLACE / "server-filesystem" / "dist" / "index.js"), str(folder)]
    return [
        on_stdio("everything", everything, EVERYTHING, lists=LISTS, leaves_out=ASKING_BACK),
        on_stdio("files", files, files_script(folder)),
    ]


@pytest.fixture(scope="module", params=["streamableHttp", "sse"])
def web(request: pytest.FixtureRequest) -> Iterator[Compared]:
    path = {"streamableHttp": "mcp", "sse": "sse"}[request.param]
    with everything_on_a_port(request.param) as port:
        where = {"url": f"http://127.0.0.1:{port}/{path}"}
        yield Compared(name="web", where=where, script=EVERYTHING, lists=LISTS, leaves_out=ASKING_BACK)


@contextmanager
def everything_on_a_port(transport: str) -> Iterator[int]:
    with socket.socket() as spare:
        spare.bind(("127.0.0.1", 0))
        port: int = spare.getsockname()[1]
    command = [NODE or "", str(PLACE / "server-everything" / "dist" / "index.js"), transport]
    environment = server_environment() | {"PORT": str(port)}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        until = time.monotonic() + 30
        while time.monotonic() < until and not answers(port):
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


_direct: dict[str, Seen] = {}


async def expected_of(servers: list[Compared]) -> dict[str, Seen]:
    """Say what the servers themselves answer; they are asked once for all tests."""
    if not _direct:
        _direct.update(await seen_directly(servers, is_stateless=False))
    return _direct


@pytest.mark.parametrize(
    "is_stateless", [pytest.param(False, id="handshake"), pytest.param(True, id="modern", marks=pytest.mark.soak)]
)
async def test_servers_on_stdio_are_the_same_on_stdio(
    is_stateless: bool, servers: list[Compared], tmp_path: Path
) -> None:
    path = tmp_path / "toolpost.toml"
    path.write_text(configured(servers))
    expected = await expected_of(servers)
    async with through_stdio(path, servers, is_stateless=is_stateless) as ask:
        for server in servers:
            told = differences(
                await seen_by(ask, server, is_direct=False),
                expected[server.name],
                in_order=not is_stateless,
                eras_differ=is_stateless,
                on_pipe=True,
            )
            assert not told, f"{server.name}: {''.join(told)}"


@pytest.mark.soak
@pytest.mark.parametrize("is_stateless", [False, True], ids=["handshake", "modern"])
async def test_servers_are_the_same_over_http(
    is_stateless: bool, web: Compared, servers: list[Compared], tmp_path: Path
) -> None:
    path = tmp_path / "toolpost.toml"
    path.write_text(configured([web]))
    # The same server over SSE has nobody here who could ask it directly: what it answers on stdio is what it is.
    expected = (await expected_of(servers))["everything"]
    with serving_http(path) as url:
        async with through_http(url, [web], is_stateless=is_stateless) as ask:
            found = await seen_by(ask, web, is_direct=False)

    told = differences(found, expected, in_order=not is_stateless, eras_differ=is_stateless)
    assert not told, "".join(told)


QUESTIONS: Script = calls(
    ("trigger-elicitation-request", {}),
    ("trigger-url-elicitation", {"url": "https://example.com/", "elicitationId": "e-1"}),
    ("trigger-sampling-request", {"prompt": "grüezi", "maxTokens": 7}),
    ("get-roots-list", {}),
    ("trigger-url-elicitation", {"url": "https://example.com/", "elicitationId": "e-2", "errorPath": True}),
)
PAGE: Final = "demo://resource/dynamic/text/1"


@dataclass
class Told:
    """What a client was answered, asked and told."""

    answers: list[Any]
    asked: list[str]
    heard: set[str]
    has_logs: bool


@asynccontextmanager
async def asked_client(where: Any, way: Way, person: Person, ear: Ear) -> AsyncIterator[Client]:
    options: dict[str, Any] = {"logging_callback": ear.log, **person.callbacks}
    options |= {"log_level": "debug"} if way.mode == STATELESS else {"message_handler": ear.hear}
    async with Client(where, mode=way.mode, **options) as client:
        if way.mode != STATELESS:
            await client.set_logging_level("debug")
        yield client


async def told_to(where: Any, way: Way, prefix: str = "") -> Told:
    """Let the server ask everything that it can, and tell what it tells."""
    person, ear, answers = Person(), Ear(), []
    async with asked_client(where, way, person, ear) as client:
        with anyio.fail_after(60):
            # They are offered only once the server knows whom it talks to.
            while f"{prefix}get-roots-list" not in await names(client):
                await anyio.sleep(0.1)
            for _, params in QUESTIONS:
                answers.append(await answer_of(client, prefix + params["name"], params["arguments"]))
            async with ear.following(client, way, PAGE):
                await anyio.sleep(0.3)  # the subscription has reached the server
                await client.call_tool(f"{prefix}toggle-subscriber-updates")
                await until(lambda: f"updated {PAGE}" in ear.heard, limit_s=30)
                await client.call_tool(f"{prefix}toggle-subscriber-updates")
            ear.logs.clear()
            await client.call_tool(f"{prefix}toggle-simulated-logging")
            await until(lambda: ear.logs, limit_s=30)
            await client.call_tool(f"{prefix}toggle-simulated-logging")
    asked = [question for question in person.asked if question != "roots"]
    return Told(answers, asked, {told for told in ear.heard if told.startswith("updated")}, bool(ear.logs))


async def answer_of(client: Client, tool: str, arguments: dict[str, Any]) -> Any:
    try:
        answer = await client.call_tool(tool, arguments)
    except MCPError as refusal:
        # The page that it names first has another id each time.
        return [refusal.code, refusal.message, len(refusal.error.data["elicitations"])]
    return [getattr(block, "text", None) for block in answer.content]


FRONTS = [Way(transport, mode) for transport in ("memory", "http") for mode in ("legacy", STATELESS)]
CORE = {("stdio", Way("http", STATELESS)), ("streamableHttp", Way("memory", "legacy"))}
"""What is behind and in front outside of soak: both transports on either side, both eras."""


@pytest.mark.parametrize(
    ("back", "front"),
    [
        pytest.param(back, front, id=f"{back}-{front}", marks=() if (back, front) in CORE else pytest.mark.soak)
        for back in ("stdio", "streamableHttp", "sse")
        for front in FRONTS
    ],
)
async def test_what_it_asks_and_tells_is_the_same(back: str, front: Way, servers: list[Compared]) -> None:
    command = (servers[0].where["command"], *servers[0].where["args"])
    itself = StdioServerParameters(command=command[0], args=list(command[1:]), env=server_environment())
    with everything_on_a_port(back) if back != "stdio" else nullcontext(0) as port:
        spec = ServerSpec(name="npm", command=command)
        if back != "stdio":
            path = {"streamableHttp": "mcp", "sse": "sse"}[back]
            spec = ServerSpec(name="npm", url=f"http://127.0.0.1:{port}/{path}")
        async with open_app(IN_MEMORY, bundled=False, servers=[spec]) as app, AsyncExitStack() as stack:
            where: Any = open_memory_endpoint(app.call_handler, app.sdk)
            if front.transport == "http":
                where = await stack.enter_async_context(open_http(app))
            found = await told_to(where, front, "npm__")
    if "told" not in _itself:
        _itself["told"] = await told_to(itself, Way("stdio", "legacy"))

    assert found == _itself["told"]
    assert found.has_logs
    assert len(found.asked) == 3


_itself: dict[str, Told] = {}


def _has_tools(provider: ServerProvider) -> bool:
    return bool(provider.contracts)


async def test_nothing_in_them_is_suspicious(servers: list[Compared]) -> None:
    specs = [ServerSpec(name=each.name, command=(each.where["command"], *each.where["args"])) for each in servers]
    async with open_app(IN_MEMORY, bundled=False, servers=specs) as app:
        shown, found = {}, {}
        for name, provider in app.servers.providers.items():
            await until(partial(_has_tools, provider))
            shown[name] = provider.instructions.shown
            for contract in provider.contracts:
                found[contract.name] = inspect_definition(Definition.from_contract(contract))

    # The demonstration server asks for a certain answer to a question about its instructions: a description of them, no order.
    assert any(text.startswith("# Everything Server") for text in shown.values())
    assert len(found) > 20
    assert {name: findings for name, findings in found.items() if findings} == {}
