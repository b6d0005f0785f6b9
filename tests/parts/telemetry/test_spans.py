"""Spans of requests and of what happens inside, as a receiver gets them."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import msgspec
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.loaded import loaded_toolpost
from tests.parts.telemetry.receiver import ReceivedSpan, Receiver, open_grpc_receiver, open_receiver, read_attributes
from tests.ways import ENVELOPE, IN_MEMORY, QUICK_WAYS, STATELESS, Way, server_environment
from toolpost import Context, Plugin
from toolpost.app import App, open_app, open_http
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.parts.telemetry.settings import TELEMETRY, TelemetrySettings
from toolpost.settings import Config
from toolpost.settings.model import StoreSettings
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

TABLE = json.loads(Path(__file__).with_name("conventions.json").read_text())
SERVER = Path(__file__).with_name("meta_server.py")
OUTSIDE = Path(__file__).parents[4] / "shared/data/otel"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"

LOCAL = Caller(id=CallerId("local"), transport="memory")
plugin = Plugin("own", version="1.0.0")


@plugin.tool
async def meta(ctx: Context) -> dict[str, Any]:
    """Return `_meta`."""
    return {key: value for key, value in ctx.meta.items() if isinstance(value, str)}


@plugin.tool(concurrency="serial")
async def pay(amount: int, api_key: str = "") -> str:
    """Pay, one at a time."""
    return f"paid {amount}"


def up(version: str = "2025-11-25") -> ServerSpec:
    return ServerSpec(name="up", command=(sys.executable, str(SERVER), version))


def config_of(receiver: Receiver, *, store: str = "sqlite::memory:", **settings: Any) -> Config:
    config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=store))
    return TELEMETRY.put(config, TelemetrySettings(**{"endpoint": receiver.url} | settings))


@asynccontextmanager
async def open_gateway(receiver: Receiver, *servers: ServerSpec, **settings: Any) -> AsyncIterator[App]:
    """Open a gateway that exports; when it is left, everything was sent."""
    config = config_of(receiver, **settings)
    async with open_app(config, plugins=[plugin], bundled=False, servers=servers) as app:
        yield app


def children(receiver: Receiver, span: ReceivedSpan) -> dict[str, ReceivedSpan]:
    return {each.name: each for each in receiver.spans if each.parent == span.id}


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
@pytest.mark.parametrize("version", ["2025-11-25", STATELESS])
async def test_a_call_is_one_trace(way: Way, version: str) -> None:
    with open_receiver() as receiver:
        async with open_gateway(receiver, up(version)) as app, way.client_of(app) as client:
            result = await client.call_tool(
                "up__meta", {}, meta=cast("Any", {"traceparent": TRACEPARENT, "tracestate": "a=1"})
            )
        seen = json.loads(result.content[0].text)  # type: ignore[union-attr]
    server = receiver.one("tools/call up__meta", "SERVER")
    client_span = receiver.one("tools/call meta", "CLIENT")

    assert (server.trace, server.parent, server.state) == (TRACE, PARENT, "a=1")
    assert (client_span.trace, client_span.parent) == (TRACE, server.id)
    # The server continues our span, not that of our client.
    assert seen["traceparent"] == f"00-{TRACE}-{client_span.id}-01"
    assert seen["tracestate"] == "a=1"
    inside = children(receiver, server)
    assert {"toolpost.validation", "toolpost.audit", "tools/call meta"} <= inside.keys()
    assert server.began <= inside["toolpost.validation"].began <= inside["toolpost.validation"].ended
    assert client_span.began <= client_span.ended <= inside["toolpost.audit"].ended <= server.ended
    assert server.attributes["mcp.protocol.version"] == (STATELESS if way.mode == STATELESS else "2025-11-25")
    assert client_span.attributes["mcp.protocol.version"] == version
    assert server.attributes.get("network.transport") == {"memory": None, "http": "tcp"}[way.transport]
    assert client_span.attributes["network.transport"] == "pipe"


async def test_a_server_over_http_continues_our_span() -> None:
    with open_receiver() as receiver:
        async with open_app(IN_MEMORY, plugins=[plugin], bundled=False) as behind, open_http(behind) as url:
            async with open_gateway(receiver, ServerSpec(name="web", url=url)) as app:
                async with Way("memory", STATELESS).client_of(app) as client:
                    result = await client.call_tool("web__own__meta", {})
    span = receiver.one("tools/call own__meta", "CLIENT")
    server = receiver.one("tools/call web__own__meta", "SERVER")
    seen = (result.structured_content or {})["data"]

    assert seen["traceparent"] == f"00-{server.trace}-{span.id}-01"
    assert span.parent == server.id != span.id
    assert not server.parent
    address = urlsplit(url)
    assert span.attributes["server.address"] == address.hostname
    assert span.attributes["server.port"] == address.port
    assert span.attributes["network.protocol.name"] == "http"


async def test_the_call_of_a_function_has_a_queue() -> None:
    with open_receiver() as receiver:
        async with open_gateway(receiver) as app, Way("memory", STATELESS).client_of(app) as client:
            await client.call_tool("own__pay", {"amount": 3})
            result = await client.call_tool("own__meta", {})
    paid = receiver.one("tools/call own__pay")
    inside = children(receiver, paid)

    assert list(inside) == ["toolpost.queue", "toolpost.validation", "toolpost.audit"]
    assert inside["toolpost.queue"].ended <= inside["toolpost.validation"].ended <= inside["toolpost.audit"].began
    seen = (result.structured_content or {})["data"]
    assert seen["traceparent"].split("-")[2] == receiver.one("tools/call own__meta").id


PARENTS: list[tuple[Any, bool]] = [
    (TRACEPARENT, True),
    (f"cc-{TRACE}-{PARENT}-01-what-comes-later", True),
    (f"00-{TRACE}-{PARENT}-01-more", False),
    (f"ff-{TRACE}-{PARENT}-01", False),
    (f"00-{'0' * 32}-{PARENT}-01", False),
    (f"00-{TRACE}-{'0' * 16}-01", False),
    (f"00-{TRACE.upper()}-{PARENT}-01", False),
    ("nonsense", False),
    (7, False),
]


async def test_an_invalid_parent_is_ignored() -> None:
    ids = []
    with open_receiver() as receiver:
        async with open_gateway(receiver) as app:
            for traceparent, _ in PARENTS:
                meta = {"traceparent": traceparent, "tracestate": "a=1"}
                call = app.call_handler.admit(b"1", "own__meta", {}, meta, caller=LOCAL, notify=None)
                await app.gateway.call(call)
                ids.append(call.id)
    spans = {span.attributes["toolpost.call.id"]: span for span in receiver.named("tools/call own__meta")}

    for call_id, (traceparent, is_continued) in zip(ids, PARENTS, strict=True):
        span = spans[call_id]
        assert (span.trace == TRACE) == is_continued, traceparent
        assert span.parent == (PARENT if is_continued else "")
        assert span.state == ("a=1" if is_continued else "")


@pytest.mark.parametrize("is_plain", [True, False])
async def test_a_trace_may_come_in_http_headers(is_plain: bool) -> None:
    # One that takes progress is answered through ASGI.
    meta = {} if is_plain else {"progressToken": "p"}
    headers = {"traceparent": TRACEPARENT, "tracestate": "b=2"}
    with open_receiver() as receiver:
        async with open_gateway(receiver) as app, open_http(app) as url:
            await anyio.to_thread.run_sync(post, url, "own__meta", headers, meta)
            other = f"00-{'1' * 32}-{PARENT}-00"
            await anyio.to_thread.run_sync(post, url, "own__pay", headers, meta | {"traceparent": other})
    span = receiver.one("tools/call own__meta")

    assert (span.trace, span.parent, span.state) == (TRACE, PARENT, "b=2")
    # What `_meta` says comes first, here that the trace is not sampled.
    assert not receiver.named("tools/call own__pay")


def post(url: str, tool: str, headers: dict[str, str], meta: dict[str, Any]) -> Any:
    """Send a call of the stateless era with headers of its own."""
    where = urlsplit(url)
    connection = HTTPConnection(str(where.hostname), where.port)
    params = {"name": tool, "arguments": {"amount": 1} if "pay" in tool else {}, "_meta": ENVELOPE | meta}
    body = json.dumps({"jsonrpc": "2.0", "id": "é1", "method": "tools/call", "params": params})
    sent = {
        "content-type": "application/json",
        "mcp-protocol-version": STATELESS,
        "mcp-method": "tools/call",
        "mcp-name": tool,
        "accept": "application/json, text/event-stream",
    }
    connection.request("POST", where.path, body.encode(), sent | headers)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    assert "result" in answer, answer
    return answer


async def test_what_fails_is_an_error() -> None:
    with open_receiver() as receiver:
        async with open_gateway(receiver, up()) as app, Way("memory", STATELESS).client_of(app) as client:
            await client.call_tool("up__fail", {})
            for name in ("up__refuse", "up__nothing"):
                with pytest.raises(MCPError):
                    await client.call_tool(name, {})
            await client.call_tool("up__strict", {"n": "secret-7"})
    failed, refused = receiver.one("tools/call up__fail"), receiver.one("tools/call up__refuse")

    assert failed.is_error
    assert failed.attributes["error.type"] == receiver.one("tools/call fail").attributes["error.type"] == "tool_error"
    assert failed.attributes["toolpost.code"] == "HANDLER_ERROR"
    for span in (refused, receiver.one("tools/call refuse")):
        assert span.is_error
        assert span.attributes["error.type"] == span.attributes["rpc.response.status_code"] == "-32050"
    assert receiver.one("tools/call").attributes["error.type"] == "-32602"
    invalid = receiver.one("tools/call up__strict")
    assert invalid.attributes["toolpost.code"] == "INVALID_PARAMS"
    assert children(receiver, invalid)["toolpost.validation"].is_error
    assert "tools/call strict" not in {span.name for span in receiver.spans}
    # Errors have values of callers and servers in their messages.
    assert "secret-7" not in str(receiver.traces)


async def test_arguments_and_results_only_if_enabled() -> None:
    for is_enabled in (False, True):
        with open_receiver() as receiver:
            async with open_gateway(receiver, up(), content=is_enabled) as app:
                async with Way("memory", STATELESS).client_of(app) as client:
                    await client.call_tool("own__pay", {"amount": 4711, "api_key": "k-secret"})
                    await client.call_tool("up__meta", {"who": "eve-4711"})
        span, other = receiver.one("tools/call own__pay"), receiver.one("tools/call up__meta")
        assert ("gen_ai.tool.call.arguments" in span.attributes) == is_enabled
        # A number alone might be in a time stamp.
        assert ("eve-4711" in str(receiver.traces)) == is_enabled
        assert ("paid 4711" in str(receiver.traces)) == is_enabled
        assert "k-secret" not in str(receiver.traces)
        if not is_enabled:
            continue
        assert json.loads(span.attributes["gen_ai.tool.call.arguments"]) == {"amount": 4711, "api_key": "(redacted)"}
        assert "paid 4711" in span.attributes["gen_ai.tool.call.result"]
        assert "content" in other.attributes["gen_ai.tool.call.result"]


@pytest.mark.parametrize("mode", ["legacy", STATELESS])
async def test_other_requests_have_spans_too(mode: str) -> None:
    with open_receiver() as receiver:
        async with open_gateway(receiver, up()) as app, open_http(app) as url, Client(url, mode=mode) as client:
            await client.list_tools()
            read = await client.read_resource("memo://one")
            await client.get_prompt("up__greet")
    listed, prompt = receiver.named("tools/list", "SERVER"), receiver.one("prompts/get up__greet", "SERVER")
    resource = receiver.one("resources/read", "SERVER")
    asked = next(span for span in receiver.named("resources/read", "CLIENT"))

    assert listed
    assert prompt.attributes["gen_ai.prompt.name"] == "up__greet"
    assert resource.attributes["mcp.resource.uri"] == asked.attributes["mcp.resource.uri"] == "memo://one"
    assert (asked.trace, asked.parent) == (resource.trace, resource.id)
    assert asked.id in read.contents[0].text  # type: ignore[union-attr]
    assert all(span.attributes["jsonrpc.request.id"] for span in receiver.spans if span.kind != "INTERNAL")


async def test_everything_is_in_the_table_of_names() -> None:
    with open_receiver() as receiver:
        async with open_gateway(receiver, up(), content=True) as app, open_http(app) as url:
            async with Client(url, mode="legacy") as client:
                await client.list_tools()
                await client.call_tool("up__meta", {})
                await client.call_tool("up__fail", {})
                await client.call_tool("own__pay", {"amount": 1})
                await client.read_resource("memo://one")
                await client.get_prompt("up__greet")
    assert len({span.id for span in receiver.spans}) == len(receiver.spans)
    for span in receiver.spans:
        rules = TABLE["spans"][span.kind]
        names = {*rules["attributes"], *rules["own"]}
        assert span.attributes.keys() <= names, span
        if span.kind == "INTERNAL":
            assert span.name in rules["names"]
            continue
        target = span.attributes.get("gen_ai.tool.name") or span.attributes.get("gen_ai.prompt.name")
        method = span.attributes["mcp.method.name"]
        assert span.name == (f"{method} {target}" if target else method)
        assert span.is_error == ("error.type" in span.attributes)
        assert (span.attributes.get("gen_ai.operation.name") == "execute_tool") == (method == "tools/call")
    metrics = receiver.latest_metrics
    expected = TABLE["metrics"] | TABLE["own_metrics"]
    assert metrics.keys() == expected.keys()
    for name, metric in metrics.items():
        assert metric.unit == expected[name]["unit"]
        assert metric.HasField("histogram" if expected[name]["instrument"] == "histogram" else "sum")
        for point in metric.histogram.data_points:
            assert list(point.explicit_bounds) == TABLE["bounds"]
            assert sum(point.bucket_counts) == point.count > 0
            assert point.sum > 0
            assert read_attributes(point.attributes).keys() <= set(TABLE["metric_attributes"])
    calls = {
        read_attributes(point.attributes)["gen_ai.tool.name"]: point.count
        for point in metrics["mcp.server.operation.duration"].histogram.data_points
        if read_attributes(point.attributes)["mcp.method.name"] == "tools/call"
    }
    assert calls == {"up__meta": 1, "up__fail": 1, "own__pay": 1}


@pytest.mark.outside(OUTSIDE)
def test_the_table_is_that_of_the_conventions() -> None:
    yaml = pytest.importorskip("yaml")
    model = {
        group["id"]: group
        for name in ("common", "metrics", "spans")
        for group in yaml.safe_load((OUTSIDE / f"mcp-{name}.yaml").read_text())["groups"]
    }

    def attributes(name: str) -> set[str]:
        group = model[name]
        own = {each["ref"] for each in group.get("attributes", ())}
        return own | (attributes(group["extends"]) if "extends" in group else set())

    for kind in ("SERVER", "CLIENT"):
        assert model[f"span.mcp.{kind.lower()}"]["span_kind"] == kind.lower()
        # What a call was given and returned is in the conventions of the client's span, and in the examples of both.
        allowed = attributes(f"span.mcp.{kind.lower()}") | {"gen_ai.tool.call.arguments", "gen_ai.tool.call.result"}
        assert TABLE["spans"][kind]["attributes"].keys() <= allowed
    for name, rules in TABLE["metrics"].items():
        group = model[f"metric.{name}"]
        assert (group["unit"], group["instrument"]) == (rules["unit"], rules["instrument"])
    allowed = attributes("metric.mcp.client.operation.duration") | attributes("metric.mcp.client.session.duration")
    assert set(TABLE["metric_attributes"]) <= allowed
    assert f"`[ {', '.join(map(str, TABLE['bounds']))} ]`" in (OUTSIDE / "mcp.md").read_text()


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_both_stores(store: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}" if store == "sqlite" else request.getfixturevalue("postgres").new_url()
    with open_receiver() as receiver:
        async with open_gateway(receiver, up(), store=url) as app, Way("memory", STATELESS).client_of(app) as client:
            await client.call_tool("up__meta", {})
    server = receiver.one("tools/call up__meta")
    audit = children(receiver, server)["toolpost.audit"]

    assert server.began < audit.began < audit.ended <= server.ended


@pytest.mark.parametrize("is_stateless", [True, False])
def test_standard_variables_are_enough_on_stdio(is_stateless: bool, tmp_path: Path) -> None:
    with open_receiver() as receiver:
        environment = server_environment() | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20b",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_SERVICE_NAME": "front",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        }
        params = {"name": "time__current_time", "arguments": {}} | ({"_meta": ENVELOPE} if is_stateless else {})
        messages: list[dict[str, Any]] = [{"id": 1, "method": "tools/call", "params": params}]
        if not is_stateless:
            info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            messages = [
                {"id": 0, "method": "initialize", "params": info},
                {"method": "notifications/initialized"},
                *messages,
            ]
        lines = "".join(json.dumps({"jsonrpc": "2.0"} | message) + "\n" for message in messages)
        command = loaded_toolpost("serve", "--stdio")
        ran = subprocess.run(
            command, input=lines, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
    assert '"result"' in ran.stdout, ran.stderr
    (span,) = [each for each in receiver.spans if "tools/call" in each.name]

    assert span.attributes["network.transport"] == "pipe"
    assert receiver.resource()["service.name"] == "front"
    assert receiver.resource()["deployment.environment.name"] == "test"
    assert receiver.headers[0]["x-key"] == "a b"
    # A handshake begins a session; in the stateless era there is none.
    assert ("mcp.server.session.duration" in receiver.latest_metrics) != is_stateless
    assert os.environ.get("OTEL_SERVICE_NAME") is None


async def test_grpc() -> None:
    with open_grpc_receiver() as receiver:
        async with open_gateway(receiver, protocol="grpc") as app, Way("memory", STATELESS).client_of(app) as client:
            await client.call_tool("own__meta", {})
    assert receiver.one("tools/call own__meta").kind == "SERVER"
    assert "mcp.server.operation.duration" in receiver.latest_metrics


async def test_sampling_keeps_the_decision_of_a_caller() -> None:
    with open_receiver() as receiver:
        async with open_gateway(receiver, up(), sample=0.0) as app, Way("memory", STATELESS).client_of(app) as client:
            await client.call_tool("up__meta", {}, meta=cast("Any", {"traceparent": TRACEPARENT}))
            result = await client.call_tool("up__meta", {})
    assert [span.trace for span in receiver.named("tools/call up__meta")] == [TRACE]
    assert json.loads(result.content[0].text)["traceparent"].endswith("-00")  # type: ignore[union-attr]
    points = receiver.latest_metrics["mcp.server.operation.duration"].histogram.data_points
    assert sum(point.count for point in points if "gen_ai.tool.name" in read_attributes(point.attributes)) == 2
