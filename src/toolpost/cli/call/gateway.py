"""A call of a tool of a gateway that runs already: over MCP, as any client makes it. Nothing is started here.

A tool may be called that is not listed: by a former name, or in the mode `automatic`, where a gateway lists its own two tools
alone. Then no schema says how `count=3` is read. Every text is sent as a string first: a tool that takes something else refuses
it and sends its schema along, and the call is made once more.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import msgspec

from toolpost.base.ids import JsonObject
from toolpost.cli.call.answer import CallAnswer, failed_answer, read_result
from toolpost.cli.call.arguments import arguments_of
from toolpost.cli.call.here import CallRequest, cancelling
from toolpost.cli.call.progress import Show, open_progress
from toolpost.cli.logs import set_up_logging
from toolpost.cli.options import is_debugging
from toolpost.cli.servers.client import MCP_PATH, NoGateway, RunningGateway, base_url, read_error
from toolpost.contracts.errors import CallCancelled, ErrorCode, ToolFailed, UnknownTool, UpstreamUnavailable
from toolpost.discovery import automatic_eval
from toolpost.middleware import ProgressNotification
from toolpost.protocol.era import CLIENT_CAPABILITIES, CLIENT_INFO, MODERN, PROTOCOL_VERSION
from toolpost.protocol.mirrored import BadAnnotation, Headers, MirroredArguments
from toolpost.upstreams.handshake import CLIENT
from toolpost.upstreams.http.client import HttpClient
from toolpost.upstreams.http.transport import HttpTransport
from toolpost.upstreams.lists import ListReader
from toolpost.upstreams.transport import ConnectionLost, ProgressListener, ServerRefused, encode

_ELSEWHERE: Final = "`toolpost serve` starts one; --url names another"


class _Progress(msgspec.Struct):
    progress: float
    total: float | None = None
    message: str | None = None


class GatewayClient:
    """Asks a gateway at an address, each request by itself."""

    def __init__(self, url: str, wire: HttpTransport) -> None:
        self.url = url
        self._wire = wire

    async def list_tools(self, *, until: str | None = None) -> list[JsonObject]:
        """Return the definitions that the gateway lists; those after the tool `until` may be missing."""
        reader, cursor = ListReader("gateway", "tools"), None
        while True:
            fields = b"" if cursor is None else b'"cursor":%b' % encode(cursor)
            try:
                cursor = await reader.take(await self._ask("tools/list", fields))
            except UpstreamUnavailable as error:
                # It answers, in a way that no gateway does.
                raise NoGateway(
                    f"What answers at {self.url} is no Toolpost: {error.message}.", hint=_ELSEWHERE
                ) from error
            if cursor is None or any(tool.get("name") == until for tool in reader.items):
                return reader.items

    async def call_tool(
        self, name: str, arguments: JsonObject, *, mirrored: Headers = (), show: Show | None = None
    ) -> CallAnswer:
        """Call a tool and read its answer; cancelling this cancels the call."""
        fields = b'"name":%b,"arguments":%b' % (encode(name), encode(arguments))
        on_progress = None if show is None else _telling(show)
        try:
            raw = await self._ask("tools/call", fields, name=name, mirrored=mirrored, on_progress=on_progress)
        except UpstreamUnavailable as error:
            raise UpstreamUnavailable(
                f"The gateway at {self.url} was lost before it answered: {error.message}.",
                hint="the tool may have run all the same: `toolpost audit`, where the gateway runs, says whether",
            ) from error
        try:
            return read_result(raw)
        except ValueError as error:
            raise ToolFailed(f"The answer of {self.url} is no result of a tool: {error}.") from error

    async def _ask(self, method: str, fields: bytes, **options: Any) -> bytes:
        try:
            return await self._wire.request(method, fields, **options)
        except ServerRefused as refusal:
            told = refusal.data if isinstance(refusal.data, dict) else {}
            raise read_error({"message": refusal.message, **told}) or ToolFailed(refusal.message) from refusal
        except ConnectionLost as lost:
            if lost.was_sent:
                raise
            raise NoGateway(f"No gateway answers at {self.url}: {lost.message}.", hint=_ELSEWHERE) from lost


@asynccontextmanager
async def open_client(gateway: RunningGateway) -> AsyncIterator[GatewayClient]:
    """Keep a connection to a gateway whose `url` is that of MCP."""
    set_up_logging("debug" if is_debugging() else "critical")
    headers = {"authorization": f"Bearer {gateway.token}"} if gateway.token else {}
    async with HttpClient(gateway.url, headers=headers) as http:
        wire = HttpTransport("gateway", http, on_notification=lambda *_: None)
        envelope = {PROTOCOL_VERSION: MODERN.version, CLIENT_INFO: CLIENT, CLIENT_CAPABILITIES: {}}
        wire.use(envelope=envelope, headers={"mcp-protocol-version": MODERN.version})
        yield GatewayClient(gateway.url, wire)


def mcp_url(url: str) -> str:
    """Read the address of a gateway, with or without the path of MCP; `/mcp/server/NAME` and `/mcp/tags/a,b` are kept."""
    base = base_url(url)
    return base if f"{MCP_PATH}/" in urlsplit(base).path else f"{base}{MCP_PATH}"


async def call_gateway(gateway: RunningGateway, request: CallRequest) -> CallAnswer:
    """Call a tool of a gateway that runs, showing its progress."""
    reason: str | None = None
    with anyio.CancelScope() as scope:

        def cancel(why: str) -> None:
            nonlocal reason
            reason = reason or why
            scope.cancel()

        with cancelling(cancel, limit_s=request.limit_s) as has_run_out:
            async with open_client(gateway) as client:
                return await _call(client, request)
    cancelled = CallCancelled(f"The call was cancelled: {reason}.")
    return failed_answer(cancelled, has_run_out=has_run_out.is_set())


async def _call(client: GatewayClient, request: CallRequest) -> CallAnswer:
    listed = {str(tool.get("name")): tool for tool in await client.list_tools(until=request.tool)}
    definition = listed.get(request.tool)
    is_found_by_need = definition is None and automatic_eval.NAME in listed

    async def attempt(arguments: JsonObject, mirrored: Headers = ()) -> CallAnswer:
        if is_found_by_need:
            asked = {"toolName": request.tool, "arguments": arguments}
            return await client.call_tool(automatic_eval.NAME, asked, show=show)
        return await client.call_tool(request.tool, arguments, mirrored=mirrored, show=show)

    with open_progress(request.tool, quiet=request.quiet) as show, _naming_the_list(client.url):
        schema = _schema_of(definition)
        arguments = arguments_of(request.words, schema)
        answer = await attempt(arguments, _mirrored(schema, arguments))
        if definition is not None or (sent_along := _schema_in(answer)) is None:
            return answer
        typed = arguments_of(request.words, sent_along)
        return answer if typed == arguments else await attempt(typed, _mirrored(sent_along, typed))


@contextmanager
def _naming_the_list(url: str) -> Iterator[None]:
    """Say of an unknown tool where the known ones are found."""
    try:
        yield
    except UnknownTool as error:
        near = (error.details.get("nearest") or [None])[0]
        meant = f"did you mean `{near}`? " if near else ""
        raise UnknownTool(error.message, hint=f"{meant}`toolpost tools --url {url}` lists all of them") from error


def _mirrored(schema: JsonObject, arguments: JsonObject) -> Headers:
    """Return the arguments that the protocol has repeated in headers."""
    try:
        return MirroredArguments(schema).headers_for(arguments)
    except BadAnnotation:
        return ()


def _schema_in(answer: CallAnswer) -> JsonObject | None:
    """Return the schema that a refusal of arguments carries."""
    error = answer.error or {}
    if error.get("code") != ErrorCode.INVALID_PARAMS:
        return None
    return _schema_of(error.get("toolSchema") or error.get("details"))


def _schema_of(definition: object) -> JsonObject:
    schema = definition.get("inputSchema") if isinstance(definition, dict) else None
    return schema if isinstance(schema, dict) else {}


def _telling(show: Show) -> ProgressListener:
    def take(_method: str, params: bytes) -> None:
        with suppress(msgspec.DecodeError):
            told = msgspec.json.decode(params, type=_Progress)
            show(ProgressNotification(progress=told.progress, total=told.total, message=told.message, facts={}))

    return take
