"""The official SDK's server, for everything but `tools/call` and `tools/list`. Imported only by `lazy.py`."""

import logging
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NoReturn

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import validate_mcp_param_headers
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from pydantic import ValidationError

from toolpost.base.caller import Caller
from toolpost.base.ids import JsonObject
from toolpost.base.version import __version__
from toolpost.discovery import EVERYTHING, View
from toolpost.discovery.views import tags_of
from toolpost.endpoints.http.event_log import RETRY_MS
from toolpost.endpoints.http.paths import store_view
from toolpost.endpoints.listing import SERVER_NAME
from toolpost.endpoints.sdk.client import SessionChannel
from toolpost.endpoints.sdk.extensions import ExtensionMiddleware
from toolpost.endpoints.sdk.handshake import agree_revision
from toolpost.endpoints.sdk.lazy import SdkParts
from toolpost.endpoints.sdk.passthrough import restore_result
from toolpost.endpoints.sdk.relay import Handler, RelayHandlers, wrap_handler
from toolpost.endpoints.sdk.request_context import VIEWER, Viewer
from toolpost.endpoints.sdk.skills import SkillsMiddleware
from toolpost.endpoints.sdk.subscribers import Subscribers
from toolpost.endpoints.tasks.extension import EXTENSION
from toolpost.protocol.era import STATELESS
from toolpost.protocol.rpc import INVALID_REQUEST, ProtocolError, refuse_bad_shape
from toolpost.protocol.shape import SDK_VALUE_LIMIT
from toolpost.providers.relay import Relay, capabilities_of
from toolpost.upstreams.server_requests import ROOTS_CHANGED

EVENTS_KEPT: Final = 100
"""How many events of the SDK's streams can be replayed, per session."""
EVENTS_BYTES: Final = 64 * 1024
"""Their size. A session that its client has left holds them for half an hour: without this bound, every one of them held the
last hundred resources that it had read. A read that cannot be resumed can be repeated."""

logging.getLogger("mcp").setLevel(logging.WARNING)

INSTRUCTIONS = (
    "Every tool here is held to its JSON Schema. A refused call names each fault by path and says what was expected: "
    "fix the arguments and call again."
)


_RELAYED: Final = ("prompts", "resources", "completions", "logging")
"""Capabilities that only some plugins and upstream servers have."""


async def _not_reached(*_: Any) -> NoReturn:
    """Registered for `tools/list` and `tools/call`, so that the capability is announced; `CallHandler` answers both."""
    raise AssertionError("this method does not reach the SDK")


class _AnnouncingServer(Server[Any]):
    """Announces `listChanged`, and the capabilities that plugins and upstream servers have at the moment."""

    relay: Relay

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Announce every `listChanged` unless told otherwise."""
        options = notification_options or NotificationOptions(
            tools_changed=True, prompts_changed=True, resources_changed=True
        )
        return super().create_initialization_options(options, experimental_capabilities, extensions)

    def get_capabilities(self, *arguments: Any, **options: Any) -> mcp_types.ServerCapabilities:
        """Leave out what no plugin or server offers; announce tasks in the stateless era."""
        if options.get("protocol_version") == STATELESS.version:
            options["extensions"] = {EXTENSION: {}}
        capabilities = super().get_capabilities(*arguments, **options)
        return capabilities.model_copy(update={name: None for name in _RELAYED if name not in self._list_offered()})

    def _list_offered(self) -> Collection[str]:
        """Return what the plugins and servers that this client sees offer besides tools.

        A server that has not been started yet may offer all of it.
        """
        viewer = VIEWER.get(None)
        offered: set[str] = set()
        for name, provider in self.relay.providers.items():
            is_visible = viewer is None or viewer.view.shows(name, tags_of(provider))
            if is_visible or name in self.relay.for_everyone:
                capabilities = capabilities_of(provider)
                offered.update(_RELAYED if capabilities is None else capabilities)
        return offered


class SdkServer:
    """The SDK's server, for duplex connections and for HTTP."""

    def __init__(self, parts: SdkParts) -> None:
        relay, calls = parts.relay, parts.shares.calls
        self.subscribers = Subscribers(relay, parts.shares, parts.tasks)
        handlers = RelayHandlers(relay, parts.audit, parts.rounds, calls)
        self._server = _AnnouncingServer(
            SERVER_NAME,
            version=__version__,
            title="Toolpost",
            instructions=parts.instructions or INSTRUCTIONS,
            on_list_tools=_not_reached,
            on_call_tool=_not_reached,
            on_subscriptions_listen=self.subscribers.listen,
            on_subscribe_resource=_without_result(wrap_handler(relay, calls, self.subscribers.subscribe)),
            on_unsubscribe_resource=_without_result(wrap_handler(relay, calls, self.subscribers.unsubscribe)),
            **handlers.by_name(),
        )
        self.extensions = ExtensionMiddleware(
            relay,
            handlers,
            calls,
            steps=parts.steps,
            mode=parts.mode,
            instructions_limit=parts.instructions_limit,
            stamp=lambda: self._server.server_info_stamp,
        )
        skills = SkillsMiddleware(relay, handlers, calls, parts.mode)
        self._server.middleware += [agree_revision, *parts.middleware, restore_result, skills, self.extensions]
        self._server.relay = relay
        self._server.add_request_handler(
            "logging/setLevel",
            mcp_types.SetLevelRequestParams,
            _without_result(wrap_handler(relay, calls, self.subscribers.set_level)),
        )
        self._server.add_notification_handler(
            "notifications/initialized", mcp_types.NotificationParams, self._note_session
        )
        self._server.add_notification_handler(ROOTS_CHANGED, mcp_types.NotificationParams, self._note_roots)

    async def _note_roots(self, context: ServerRequestContext[Any, Any], _params: Any) -> None:
        await self.subscribers.roots_changed(SessionChannel(context, VIEWER.get().caller))

    async def _note_session(self, context: ServerRequestContext[Any, Any], _params: Any) -> None:
        self.subscribers.session_of(context)

    @asynccontextmanager
    async def open_connection(
        self, deliver: Callable[[bytes], None], *, caller: Caller, view: View = EVERYTHING
    ) -> AsyncIterator["SdkConnection"]:
        """Serve one duplex connection; `deliver` is called with what the SDK sends to the client."""
        VIEWER.set(Viewer(caller=caller, view=view))
        to_sdk, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](64)
        to_client, from_sdk = anyio.create_memory_object_stream[SessionMessage](64)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_deliver_all, from_sdk, deliver)
            tasks.start_soon(self._server.run, from_client, to_client, self._server.create_initialization_options())
            try:
                yield SdkConnection(to_sdk, view)
            finally:
                to_sdk.close()
                tasks.cancel_scope.cancel()

    def http_manager(self, *, body_limit: int) -> StreamableHTTPSessionManager:
        """Return the SDK's HTTP handler. It neither limits nor ends sessions: `Sessions` does, because the SDK does not see
        tool calls.
        """
        return _SessionManager(
            app=self._server,
            session_idle_timeout=None,
            max_request_body_size=body_limit,
            max_sessions=None,
            retry_interval=RETRY_MS,
        )


class _SessionManager(StreamableHTTPSessionManager):
    """Gives each session an event store of its own.

    The SDK names streams by request ids, and the stream of no request always the same: with one store for all, a session
    would be sent the events of the others.
    """

    @property
    def event_store(self) -> EventStore:
        """A new store: the SDK reads this once for each session that it opens."""
        return RecentEvents()

    @event_store.setter
    def event_store(self, _value: EventStore | None) -> None:
        """Ignored: the SDK sets one for all sessions."""


class RecentEvents(EventStore):
    """The latest events of one session's SDK streams, for a client that reconnects."""

    def __init__(self) -> None:
        self._events: OrderedDict[str, tuple[str, bytes]] = OrderedDict()
        """Stream and message of each event, the oldest first. Bytes take a fraction of what the SDK's models do."""
        self._size = 0

    async def store_event(self, stream_id: str, message: mcp_types.JSONRPCMessage | None) -> str:
        """Store an event and return its id; the oldest make room, and one that is too large is not stored itself."""
        event_id = secrets.token_urlsafe(16)
        raw = b"" if message is None else message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        self._events[event_id] = (stream_id, raw)
        self._size += len(raw)
        while len(self._events) > EVENTS_KEPT or self._size > EVENTS_BYTES:
            # Only ever from the beginning: what follows an event that is stored is complete.
            self._size -= len(self._events.popitem(last=False)[1][1])
        return event_id

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send what came after an event on its stream; return None if the event is no longer stored."""
        if last_event_id not in self._events:
            return None
        stream_id = self._events[last_event_id][0]
        is_later = False
        for event_id, (stream, raw) in tuple(self._events.items()):
            if is_later and stream == stream_id and raw:
                message = mcp_types.jsonrpc_message_adapter.validate_json(raw, by_name=False)
                await send_callback(EventMessage(message, event_id))
            is_later = is_later or event_id == last_event_id
        return stream_id


class _DuplexRequest:
    """In the place of the HTTP request: handlers read the client's view from its scope."""

    def __init__(self, view: View) -> None:
        self.scope: dict[str, Any] = {}
        store_view(self.scope, view)


def _without_result(handler: Handler) -> Any:
    """Wrap a handler whose result is empty."""

    async def answer(context: Any, params: Any) -> mcp_types.EmptyResult:
        await handler(context, params)
        return mcp_types.EmptyResult()

    return answer


class SdkConnection:
    """One client's messages to the SDK."""

    def __init__(self, stream: MemoryObjectSendStream[SessionMessage | Exception], view: View) -> None:
        self._stream = stream
        self._metadata = ServerMessageMetadata(request_context=_DuplexRequest(view))

    async def feed(self, raw: bytes) -> None:
        """Pass a message on; raise `ProtocolError` if it is not a JSON-RPC request."""
        refuse_bad_shape(raw, value_limit=SDK_VALUE_LIMIT)
        try:
            message = mcp_types.jsonrpc_message_adapter.validate_json(raw, by_name=False)
        except ValidationError as error:
            raise ProtocolError(INVALID_REQUEST, "The message is not a JSON-RPC request") from error
        await self._stream.send(SessionMessage(message, metadata=self._metadata))


async def _deliver_all(stream: MemoryObjectReceiveStream[SessionMessage], deliver: Callable[[bytes], None]) -> None:
    async with stream:
        async for item in stream:
            deliver(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode())


def parameter_header_problem(
    schema: JsonObject | bool, arguments: JsonObject, headers: Mapping[str, str]
) -> str | None:
    """Return where `Mcp-Param-*` headers and arguments disagree, for the rare schema that mirrors arguments into headers."""
    rejection = validate_mcp_param_headers(schema, arguments, headers)
    return rejection.message if rejection else None
