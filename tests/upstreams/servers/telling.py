"""A server that tells of changes and logs, made with the SDK: on stdio (`telling.py [handshake]`), or as an application."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
)
from mcp.shared.message import ServerMessageMetadata

from tests.upstreams.servers.asking import QUESTIONS, STATELESS, said, text, without_discovery

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
LOG_LEVEL = "io.modelcontextprotocol/logLevel"


class Telling:
    """The server and what it has."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.levels: list[str] = []
        self.followed: list[str] = []
        self.extra: list[str] = []
        self.reads = 0
        tools = ("touch", "grow", "say", "crash", "reads")
        self.server: Server[Any] = Server(
            "telling",
            version="1",
            on_list_tools=_given(
                types.ListToolsResult(tools=[types.Tool(name=n, input_schema={"type": "object"}) for n in tools])
            ),
            on_call_tool=self.call,
            on_list_resources=self.list_resources,
            on_read_resource=self.read,
            on_list_prompts=self.list_prompts,
            on_get_prompt=self.prompt,
            on_subscribe_resource=self.subscribe,
            on_unsubscribe_resource=self.unsubscribe,
            on_subscriptions_listen=ListenHandler(self.bus),
        )
        self.server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self.set_level)

    @property
    def options(self) -> Any:
        changes = NotificationOptions(tools_changed=True, prompts_changed=True, resources_changed=True)
        return self.server.create_initialization_options(changes)

    async def list_resources(self, _context: Any, _params: Any) -> types.ListResourcesResult:
        names = ["page://one", "page://two", *self.extra]
        return types.ListResourcesResult(resources=[types.Resource(uri=name, name=name) for name in names])

    async def read(self, context: Any, params: Any) -> Any:
        self.reads += 1
        if str(params.uri) == "page://two":
            return await self.asked(
                context, params, lambda name: types.ReadResourceResult(contents=[_contents(params, name)])
            )
        return types.ReadResourceResult(contents=[_contents(params, f"read {self.reads}")])

    async def list_prompts(self, _context: Any, _params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[types.Prompt(name=name) for name in ("greet", *self.extra)])

    async def prompt(self, context: Any, params: Any) -> Any:
        message: Any = lambda name: types.PromptMessage(role="user", content=types.TextContent(text=f"Hi {name}"))  # noqa: E731
        return await self.asked(context, params, lambda name: types.GetPromptResult(messages=[message(name)]))

    async def asked(self, context: Any, params: Any, answer: Any) -> Any:
        """Ask who it is, as the era has it."""
        request, result_type = QUESTIONS["form"]
        if context.protocol_version != STATELESS:
            related = ServerMessageMetadata(related_request_id=context.request_id)
            found = said(await context.session.send_request(request, result_type, metadata=related))
        elif not params.input_responses:
            return types.InputRequiredResult(input_requests={"who": request}, request_state="s")
        else:
            found = said(params.input_responses["who"])
        return answer(found["content"]["name"])

    async def subscribe(self, _context: Any, params: Any) -> types.EmptyResult:
        self.followed.append(str(params.uri))
        return types.EmptyResult()

    async def unsubscribe(self, _context: Any, params: Any) -> types.EmptyResult:
        self.followed.remove(str(params.uri))
        return types.EmptyResult()

    async def set_level(self, _context: Any, params: Any) -> types.EmptyResult:
        self.levels.append(params.level)
        return types.EmptyResult()

    async def call(self, context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        if params.name == "touch":
            await self.touch(context, arguments.get("uri", "page://one"))
        elif params.name == "grow":
            await self.grow(context, f"page://{len(self.extra)}")
        elif params.name == "say":
            await self.say(context, arguments["level"])
        elif params.name == "crash":
            os._exit(1)
        return text({"followed": self.followed, "levels": self.levels, "reads": self.reads})

    async def touch(self, context: Any, uri: str) -> None:
        if context.protocol_version == STATELESS:
            await self.bus.publish(ResourceUpdated(uri=uri))
        elif uri in self.followed:
            await context.session.send_resource_updated(uri)

    async def grow(self, context: Any, name: str) -> None:
        self.extra.append(name)
        if context.protocol_version == STATELESS:
            await self.bus.publish(ResourcesListChanged())
            await self.bus.publish(PromptsListChanged())
        else:
            await context.session.send_resource_list_changed()
            await context.session.send_prompt_list_changed()

    async def say(self, context: Any, level: Any) -> None:
        if context.protocol_version == STATELESS:
            wanted = (context.meta or {}).get(LOG_LEVEL)
            is_wanted = wanted is not None and LEVELS.index(level) >= LEVELS.index(wanted)
        else:
            is_wanted = not self.levels or LEVELS.index(level) >= LEVELS.index(self.levels[-1])
        if is_wanted:
            params = types.LoggingMessageNotificationParams(level=level, data=f"a {level}")
            notification = types.LoggingMessageNotification(params=params)
            await context.session.send_notification(notification, related_request_id=context.request_id)


def _given(result: Any) -> Any:
    async def give(_context: Any, _params: Any) -> Any:
        return result

    return give


def _contents(params: Any, what: str) -> types.TextResourceContents:
    return types.TextResourceContents(uri=params.uri, text=what)


@asynccontextmanager
async def telling_app(telling: Telling, *, is_stateless: bool) -> AsyncIterator[Any]:
    """Give the server as an ASGI application; one of the handshake era knows nothing of the other."""
    # The manager asks for the options of every session by itself.
    telling.server.create_initialization_options = lambda *_a, **_o: Server.create_initialization_options(  # type: ignore[method-assign]
        telling.server, NotificationOptions(tools_changed=True, prompts_changed=True, resources_changed=True)
    )
    manager = StreamableHTTPSessionManager(app=telling.server)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        version = dict(scope["headers"]).get(b"mcp-protocol-version", b"").decode()
        if version == STATELESS and not is_stateless:
            await send({"type": "http.response.start", "status": 400, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await manager.handle_request(scope, receive, send)

    async with manager.run():
        yield app


async def main() -> None:
    from mcp.server.stdio import stdio_server

    telling = Telling()
    async with stdio_server() as (reader, writer), anyio.create_task_group() as tasks:
        source: Any = reader
        if "handshake" in sys.argv:
            send, source = anyio.create_memory_object_stream[Any](100)
            tasks.start_soon(without_discovery, reader, writer, send)
        await telling.server.run(source, writer, telling.options)
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
