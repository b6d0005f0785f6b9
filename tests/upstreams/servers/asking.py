"""A server that asks its client back, made with the official SDK: on stdio (`asking.py [handshake]`), or as an application."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
from mcp import MCPError, UrlElicitationRequiredError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.message import ServerMessageMetadata, SessionMessage

STATELESS = "2026-07-28"

FORM = types.ElicitRequestFormParams(
    message="Who are you?",
    requested_schema={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
)
URL = types.ElicitRequestURLParams(message="Go there", url="https://example.com/pay", elicitation_id="e-1")
SAMPLE = types.CreateMessageRequestParams(
    messages=[types.SamplingMessage(role="user", content=types.TextContent(text="Hello"))], max_tokens=10
)

QUESTIONS: dict[str, tuple[Any, Any]] = {
    "form": (types.ElicitRequest(params=FORM), types.ElicitResult),
    "url": (types.ElicitRequest(params=URL), types.ElicitResult),
    "sampling": (types.CreateMessageRequest(params=SAMPLE), types.CreateMessageResult),
    "roots": (types.ListRootsRequest(), types.ListRootsResult),
}

SEEN: list[Any] = []
"""Folders that were asked for because they had changed."""

TOOLS = [
    types.Tool(name=name, input_schema={"type": "object"})
    for name in ("ask", "ask_twice", "ask_apart", "wait", "leave", "page_done", "page_needed", "roots_seen")
]


def text(value: Any) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(text=value if isinstance(value, str) else json.dumps(value))]
    )


def said(answer: Any) -> Any:
    return answer.model_dump(by_alias=True, mode="json", exclude_none=True)


async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=TOOLS)


async def ask(context: ServerRequestContext[Any, Any], what: str, *, apart: bool = False) -> Any:
    """Ask as the handshake era does; `apart` from the call's own stream, where the transport has one."""
    request, result_type = QUESTIONS[what]
    related = ServerMessageMetadata(related_request_id=None if apart else context.request_id)
    try:
        return said(await context.session.send_request(request, result_type, metadata=related))
    except MCPError as error:
        return {"refused": error.code, "message": error.message}


async def call_tool(
    context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    arguments = params.arguments or {}
    what = arguments.get("what", "form")
    if params.name == "wait":
        await anyio.sleep(arguments.get("seconds", 0.5))
        return text("waited")
    if params.name == "roots_seen":
        return text(SEEN)
    if params.name == "page_done":
        await context.session.send_elicit_complete("e-1")
        return text("told")
    if params.name == "page_needed":
        raise UrlElicitationRequiredError([URL])
    if context.protocol_version == STATELESS:
        return in_rounds(params, what, 2 if params.name == "ask_twice" else 1)
    if params.name == "leave":
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, context, what)
            await anyio.sleep(0.3)
            tasks.cancel_scope.cancel()
        return text("left")
    answers = [await ask(context, what, apart=params.name == "ask_apart")]
    if params.name == "ask_twice":
        answers.append(await ask(context, "roots"))
    return text(answers if len(answers) > 1 else answers[0])


async def note_roots(context: Any, _params: Any) -> None:
    """Ask for the folders anew, outside any call; whoever asks for `roots_seen` is told."""
    SEEN.append(await ask(context, "roots", apart=True))


def in_rounds(
    params: types.CallToolRequestParams, what: str, rounds: int
) -> types.CallToolResult | types.InputRequiredResult:
    """Ask as the stateless era does: the state counts the rounds and keeps the answers."""
    answers = json.loads(params.request_state) if params.request_state else []
    answers += [said(answer) for answer in (params.input_responses or {}).values()]
    if len(answers) >= rounds:
        return text(answers if len(answers) > 1 else answers[0])
    question = QUESTIONS["roots" if answers else what][0]
    return types.InputRequiredResult(input_requests={"the-question": question}, request_state=json.dumps(answers))


async def find_answer(context: ServerRequestContext[Any, Any], params: Any) -> Any:
    """Ask for a completion, in the way of the era; None if it was asked for and is not there yet."""
    if context.protocol_version != STATELESS:
        return await ask(context, "sampling")
    return next((said(answer) for answer in (params.input_responses or {}).values()), None)


async def get_prompt(
    context: ServerRequestContext[Any, Any], params: types.GetPromptRequestParams
) -> types.GetPromptResult | types.InputRequiredResult:
    if (answer := await find_answer(context, params)) is None:
        return types.InputRequiredResult(input_requests={"q": QUESTIONS["sampling"][0]}, request_state="x")
    content = types.TextContent(text=json.dumps(answer))
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])


async def read_resource(
    context: ServerRequestContext[Any, Any], params: types.ReadResourceRequestParams
) -> types.ReadResourceResult | types.InputRequiredResult:
    if (answer := await find_answer(context, params)) is None:
        return types.InputRequiredResult(input_requests={"q": QUESTIONS["sampling"][0]}, request_state="x")
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text=json.dumps(answer))])


async def list_prompts(_context: Any, _params: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=[types.Prompt(name="ask")])


async def list_resources(_context: Any, _params: Any) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[types.Resource(uri="ask://sampling", name="ask")])


def make_server() -> "Server[Any]":
    server = Server[Any](
        "asking",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )
    server.add_notification_handler("notifications/roots/list_changed", types.NotificationParams, note_roots)
    return server


@asynccontextmanager
async def asking_app(*, is_stateless: bool) -> AsyncIterator[Any]:
    """Give the server as an ASGI application; one of the handshake era knows nothing of the other."""
    async with application_of(make_server(), is_stateless=is_stateless) as app:
        yield app


@asynccontextmanager
async def application_of(server: "Server[Any]", *, is_stateless: bool) -> AsyncIterator[Any]:
    """Give any server as an application."""
    manager = StreamableHTTPSessionManager(app=server)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        version = dict(scope["headers"]).get(b"mcp-protocol-version", b"").decode()
        if version == STATELESS and not is_stateless:
            await send({"type": "http.response.start", "status": 400, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await manager.handle_request(scope, receive, send)

    async with manager.run():
        yield app


async def without_discovery(reader: Any, writer: Any, forward: Any) -> None:
    """Refuse the one method that older servers do not know."""
    async with forward:
        async for item in reader:
            message: Any = getattr(item, "message", None)
            if getattr(message, "method", None) == "server/discover":
                error = types.ErrorData(code=-32601, message="Method not found")
                await writer.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error)))
            else:
                await forward.send(item)


async def main() -> None:
    from mcp.server.stdio import stdio_server

    server = make_server()
    async with stdio_server() as (reader, writer):
        if "handshake" not in sys.argv:
            await server.run(reader, writer, server.create_initialization_options())
            return
        send, receive = anyio.create_memory_object_stream[Any](100)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(without_discovery, reader, writer, send)
            await server.run(receive, writer, server.create_initialization_options())
            tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
