"""A call through a running gateway, over MCP. Nothing is started here.

A tool can be called although it is not listed: by a former name, or in the mode `automatic`, where a gateway lists only its own
two tools. Then no schema says how to parse `count=3`. Every value is sent as a string first; a tool that takes another type
refuses it, the refusal carries the schema, and the call is sent again with parsed values.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

import anyio
import msgspec

from toolpost.base.ids import JsonObject
from toolpost.cli.call.answer import CallAnswer, make_failed_answer, parse_result
from toolpost.cli.call.arguments import arguments_of
from toolpost.cli.call.in_process import RequestedCall, cancel_on_signal
from toolpost.cli.call.progress import ShowProgress, open_progress
from toolpost.cli.call.questions import TerminalChannel, open_terminal_channel
from toolpost.contracts.errors import (
    CallCancelled,
    CapabilityMissing,
    ErrorCode,
    ToolFailed,
    UnknownTool,
    UpstreamUnavailable,
)
from toolpost.discovery.automatic import AUTOMATIC_EVAL
from toolpost.middleware.progress import ProgressNotification
from toolpost.protocol.mirrored import BadAnnotation, Headers, MirroredArguments
from toolpost.protocol.rpc import Resumption
from toolpost.providers.input_required import Fields, answer_input_requests, is_input_required, write_resumption
from toolpost.terminal import NoGateway, RunningGateway
from toolpost.terminal.failures import is_debugging
from toolpost.terminal.logging import set_up_logging
from toolpost.terminal.running_gateway import parse_error
from toolpost.upstreams.client import McpClient, write_call
from toolpost.upstreams.lists import ListReader
from toolpost.upstreams.transport import ConnectionLost, ProgressListener, ServerRefused, encode

_NO_GATEWAY_HINT: Final = "start one with `toolpost serve`, or give its address with --url"


class _Progress(msgspec.Struct):
    progress: float
    total: float | None = None
    message: str | None = None


class GatewayClient:
    """Lists and calls the tools of a gateway, for a command."""

    def __init__(self, client: McpClient) -> None:
        self.url = client.url
        self._client = client

    async def list_tools(self, *, until: str | None = None) -> list[JsonObject]:
        """Return the listed definitions; with `until`, stops after the page that has this tool."""
        reader, cursor = ListReader("gateway", "tools"), None
        while True:
            fields = b"" if cursor is None else b'"cursor":%b' % encode(cursor)
            try:
                cursor = await reader.take(await self._ask("tools/list", fields))
            except UpstreamUnavailable as error:
                # Something answers, but not as a gateway does.
                raise NoGateway(
                    f"The server at {self.url} is not a Toolpost gateway: {error.message}.", hint=_NO_GATEWAY_HINT
                ) from error
            if cursor is None or any(tool.get("name") == until for tool in reader.items):
                return reader.items

    async def call_tool(
        self,
        name: str,
        arguments: JsonObject,
        *,
        mirrored: Headers = (),
        show: ShowProgress | None = None,
        terminal: TerminalChannel | None = None,
    ) -> CallAnswer:
        """Call a tool, which may ask the person at the `terminal`; cancelling this coroutine cancels the call."""
        fields = write_call(name, arguments)
        on_progress = None if show is None else _make_progress_listener(show)
        options = {"name": name, "mirrored": mirrored, "on_progress": on_progress, "client_channel": terminal}

        async def resume(resumption: Resumption) -> Fields:
            return _parse_fields(await self._ask("tools/call", fields + write_resumption(resumption), **options))

        try:
            raw = await self._ask("tools/call", fields, **options)
            if terminal is not None and b'"input_required"' in raw and is_input_required(parsed := _parse_fields(raw)):
                raw = encode(await answer_input_requests(parsed, terminal, "gateway", resume))
        except UpstreamUnavailable as error:
            raise UpstreamUnavailable(
                f"Lost the connection to the gateway at {self.url} before it answered: {error.message}.",
                hint="the tool may have run: check with `toolpost audit` on the gateway's machine",
            ) from error
        try:
            return parse_result(raw)
        except ValueError as error:
            raise ToolFailed(f"The answer from {self.url} is not a tool result: {error}.") from error

    async def _ask(self, method: str, fields: bytes, **options: Any) -> bytes:
        try:
            return await self._client.request(method, fields, **options)
        except ServerRefused as refusal:
            data = refusal.data if isinstance(refusal.data, dict) else {}
            raise parse_error({"message": refusal.message, **data}) or ToolFailed(refusal.message) from refusal
        except ConnectionLost as lost:
            if lost.was_sent:
                raise
            raise NoGateway(
                f"Cannot connect to a gateway at {self.url}: {lost.message}.", hint=_NO_GATEWAY_HINT
            ) from lost


@asynccontextmanager
async def open_client(gateway: RunningGateway) -> AsyncIterator[GatewayClient]:
    """Connect to the MCP endpoint of a gateway."""
    set_up_logging("debug" if is_debugging() else "critical")
    async with McpClient("gateway", gateway.mcp_url, token=gateway.token, network=gateway.network) as client:
        yield GatewayClient(client)


async def call_gateway(gateway: RunningGateway, request: RequestedCall) -> CallAnswer:
    """Call a tool through a running gateway; interruption and timeout are answers, not exceptions."""
    reason: str | None = None
    with anyio.CancelScope() as scope:

        def cancel(why: str) -> None:
            nonlocal reason
            reason = reason or why
            scope.cancel()

        with cancel_on_signal(cancel, limit_s=request.limit_s) as is_timed_out:
            async with open_client(gateway) as client:
                try:
                    return await _call(client, request)
                except CapabilityMissing as error:
                    # In the stateless era an error of the protocol; for the command line the answer of the tool all the same.
                    return make_failed_answer(error)
    cancelled = CallCancelled(f"The call was cancelled: {reason}.")
    return make_failed_answer(cancelled, is_timed_out=is_timed_out.is_set())


async def _call(client: GatewayClient, request: RequestedCall) -> CallAnswer:
    listed = {str(tool.get("name")): tool for tool in await client.list_tools(until=request.tool)}
    definition = listed.get(request.tool)
    is_automatic = definition is None and AUTOMATIC_EVAL in listed

    async def attempt(arguments: JsonObject, mirrored: Headers = ()) -> CallAnswer:
        if is_automatic:
            wrapped = {"toolName": request.tool, "arguments": arguments}
            return await client.call_tool(AUTOMATIC_EVAL, wrapped, show=progress.show, terminal=terminal)
        return await client.call_tool(request.tool, arguments, mirrored=mirrored, show=progress.show, terminal=terminal)

    with open_progress(request.tool, quiet=request.quiet) as progress, _hint_at_tool_list(client.url):
        terminal = open_terminal_channel(request.tool, progress.pause)
        schema = _schema_of(definition)
        arguments = arguments_of(request.words, schema)
        answer = await attempt(arguments, _mirrored_headers(schema, arguments))
        if definition is not None or (sent_along := _schema_in(answer)) is None:
            return answer
        typed = arguments_of(request.words, sent_along)
        return answer if typed == arguments else await attempt(typed, _mirrored_headers(sent_along, typed))


@contextmanager
def _hint_at_tool_list(url: str) -> Iterator[None]:
    """Add to an `UnknownTool` how to list the tools of this gateway."""
    try:
        yield
    except UnknownTool as error:
        if "server" in error.details:
            # Nothing is known of the tools of its server: the gateway's own hint says what to do.
            raise
        near = (error.details.get("nearest") or [None])[0]
        meant = f"did you mean `{near}`? " if near else ""
        raise UnknownTool(error.message, hint=f"{meant}`toolpost tools --url {url}` lists all of them") from error


def _mirrored_headers(schema: JsonObject, arguments: JsonObject) -> Headers:
    """Return the arguments that the protocol repeats in headers."""
    try:
        return MirroredArguments(schema).headers_for(arguments)
    except BadAnnotation:
        return ()


def _schema_in(answer: CallAnswer) -> JsonObject | None:
    """Return the input schema that a refusal of arguments carries, else None."""
    error = answer.error or {}
    if error.get("code") != ErrorCode.INVALID_PARAMS:
        return None
    return _schema_of(error.get("toolSchema") or error.get("details"))


def _schema_of(definition: object) -> JsonObject:
    schema = definition.get("inputSchema") if isinstance(definition, dict) else None
    return schema if isinstance(schema, dict) else {}


def _parse_fields(raw: bytes) -> Fields:
    try:
        return msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError as error:
        raise ToolFailed(f"The gateway's answer is not a result: {error}.") from error


def _make_progress_listener(show: ShowProgress) -> ProgressListener:
    def take(_method: str, params: bytes) -> None:
        with suppress(msgspec.DecodeError):
            note = msgspec.json.decode(params, type=_Progress)
            show(ProgressNotification(progress=note.progress, total=note.total, message=note.message, facts={}))

    return take
