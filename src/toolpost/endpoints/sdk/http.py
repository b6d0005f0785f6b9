"""The SDK over HTTP: the requests that it handles, and the sessions that it opens and closes."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from toolpost.base.caller import Caller, Scope
from toolpost.base.events import event
from toolpost.contracts.errors import ErrorCode, QueueOverloaded
from toolpost.discovery import View
from toolpost.endpoints.http.descriptors import is_out_of_descriptors, warn_exhausted
from toolpost.endpoints.http.paths import store_view
from toolpost.endpoints.http.refusal import Refused, overloaded
from toolpost.endpoints.http.request import HttpRequest, Receive, Send
from toolpost.endpoints.http.sessions import Session, Sessions
from toolpost.endpoints.sdk.lazy import LazySdk
from toolpost.endpoints.sdk.request_context import VIEWER, Viewer
from toolpost.fairness import Shares
from toolpost.protocol import rpc
from toolpost.protocol.era import STATELESS
from toolpost.protocol.shape import SDK_VALUE_LIMIT

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

SWEEP_S: Final = 60.0
FIRST_RETRY_S: Final = 1.0

_log = logging.getLogger("toolpost.http")

LISTEN: Final = "subscriptions/listen"


class SdkHttp:
    """Passes requests on to the SDK, which is loaded when the first one needs it."""

    def __init__(
        self, sdk: LazySdk, sessions: Sessions, streams: Shares, *, body_limit: int, preload_sdk: bool = True
    ) -> None:
        self._sdk = sdk
        self._preload_sdk = preload_sdk
        self._sessions = sessions
        self._streams = streams
        self._body_limit = body_limit
        self._lock = anyio.Lock()
        self._manager: StreamableHTTPSessionManager | None = None
        self._tasks: TaskGroup | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep the SDK's tasks running and end idle sessions, until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            if self._preload_sdk:
                tasks.start_soon(self._load_early)  # in the background, before a request has to wait for it
            task_status.started()
            while True:
                await anyio.sleep(SWEEP_S)
                self._sessions.remove_expired_logs()
                for session_id in self._sessions.list_idle():
                    await self.end(session_id)

    async def serve(
        self, request: HttpRequest, caller: Caller, receive: Receive, message: rpc.RpcMessage | None = None
    ) -> None:
        """Let the SDK answer a request, and follow the sessions that it opens and closes."""
        if self._sessions.is_foreign(request.session_id, caller, request.view):
            raise Refused(404, ErrorCode.NOT_FOUND, "Session not found")
        if message is not None:
            rpc.refuse_bad_shape(message.raw, value_limit=SDK_VALUE_LIMIT)
        manager = await self._start()
        store_view(request.scope, request.view)
        opening = message if message is not None and _opens_session(request, message) else None
        is_reserved = False

        def on_start(status: int, opened: str | None) -> None:
            nonlocal is_reserved
            # Before the response is sent: the client's next request may follow at once.
            if opening is not None and opened and status < 400:
                is_reserved = False
                params = rpc.params_object(opening)
                self._sessions.open(
                    opened,
                    caller=caller,
                    requested_version=params.get("protocolVersion"),
                    capabilities=params.get("capabilities"),
                    client_info=params.get("clientInfo"),
                    view=request.view,
                )
            if request.method == "DELETE" and status < 400:
                self._sessions.close(request.session_id)

        session = self._sessions.find(request.session_id, caller, request.view)
        VIEWER.set(Viewer(caller=session.caller if session else caller, view=request.view))
        is_stream = request.method == "GET" or (message is not None and message.method == LISTEN)
        try:
            with self._streams.held(caller.id) if is_stream else nullcontext():
                if opening is not None:
                    if (evictable := self._sessions.find_evictable(caller.id)) is not None:
                        await self.end(evictable)
                    self._sessions.reserve(caller.id)
                    is_reserved = True
                with _count_stream(session):
                    await manager.handle_request(request.scope, receive, _watch_start(request.send, on_start))
        except QueueOverloaded as error:
            raise overloaded(error) from error
        finally:
            if is_reserved:
                self._sessions.release(caller.id)

    async def notify_extension(self, message: rpc.RpcMessage, caller: Caller, view: View) -> None:
        """Pass on an extension's notification of a client of the stateless era, which the SDK would drop."""
        server = await self._sdk.server()
        await server.extensions.notify(message.method or "", rpc.params_object(message), caller, view)

    async def _load_early(self) -> None:
        """Load the SDK; retry if that fails: without it the server still answers tool calls."""
        wait_s = FIRST_RETRY_S
        while True:
            try:
                await self._start()
            except Exception as error:  # noqa: BLE001 (an import may raise anything)
                if is_out_of_descriptors(error):
                    warn_exhausted("loading the MCP SDK")
                else:
                    event(_log, logging.ERROR, "the MCP SDK could not be loaded", exception=error, retryS=wait_s)
                await anyio.sleep(wait_s)
                wait_s = min(2 * wait_s, SWEEP_S)
            else:
                return

    async def _start(self) -> "StreamableHTTPSessionManager":
        async with self._lock:
            if self._manager is None:
                assert self._tasks is not None, "the endpoint has not been started"
                server = await self._sdk.server()
                manager = server.http_manager(body_limit=self._body_limit)
                await self._tasks.start(_keep_running, manager)
                self._manager = manager
            return self._manager

    def update_views(self, scopes_of: Callable[[Caller], tuple[Scope, ...] | None]) -> None:
        """Update the views of open sessions and subscriptions after the callers were replaced."""
        if self._sdk.loaded is not None:
            self._sdk.loaded.subscribers.update_views(scopes_of)

    async def end(self, session_id: str) -> None:
        """End a session here and in the SDK, by a DELETE as a client would send it."""
        self._sessions.close(session_id)
        headers = [(b"mcp-session-id", session_id.encode()), (b"accept", b"application/json")]
        scope = {"type": "http", "method": "DELETE", "path": "/", "headers": headers, "query_string": b""}
        await (await self._start()).handle_request(scope, _receive_nothing, _discard)


async def _keep_running(
    manager: "StreamableHTTPSessionManager", *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    async with manager.run():
        task_status.started()
        await anyio.sleep_forever()


def _opens_session(request: HttpRequest, message: rpc.RpcMessage) -> bool:
    return message.method == "initialize" and not request.session_id and request.version != STATELESS.version


@contextmanager
def _count_stream(session: Session | None) -> Iterator[None]:
    if session is None:
        yield
        return
    session.streams += 1
    try:
        yield
    finally:
        session.streams -= 1


def _watch_start(send: Send, on_start: Callable[[int, str | None], None]) -> Send:
    """Call `on_start` with the status and the session id of a response before its head is sent."""

    async def watched(event: Any) -> None:
        if event["type"] == "http.response.start":
            opened = next((v.decode("latin-1") for k, v in event["headers"] if k.lower() == b"mcp-session-id"), None)
            on_start(event["status"], opened)
        await send(event)

    return watched


async def _receive_nothing() -> Any:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _discard(_event: Any) -> None:
    return None
