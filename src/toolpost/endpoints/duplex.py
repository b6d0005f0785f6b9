"""One client on a two-way channel (stdio, memory): its era, its calls in flight, and the SDK for every other request."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from toolpost.base.caller import Caller, parse_client_info
from toolpost.base.ids import JsonObject
from toolpost.discovery import EVERYTHING, View
from toolpost.endpoints.calls import METHODS, CallHandler
from toolpost.endpoints.client_session import HandshakeClient, HandshakeClientChannel
from toolpost.endpoints.in_flight import CANCEL_REQUEST, CANCELLED, InFlight
from toolpost.endpoints.sdk.lazy import LazySdk
from toolpost.endpoints.tasks.extension import TASK_METHODS
from toolpost.middleware.call import Call
from toolpost.protocol import era, rpc
from toolpost.protocol.rpc import ProtocolError, Resumption, RpcMessage
from toolpost.upstreams.server_requests import takes_server_requests

if TYPE_CHECKING:
    from toolpost.endpoints.sdk.server import SdkConnection


class _InitializeResponse(msgspec.Struct):
    class InitializeResult(msgspec.Struct):
        protocolVersion: str  # noqa: N815 (as on the wire)

    result: InitializeResult


_initialize_decoder = msgspec.json.Decoder(_InitializeResponse)


@dataclass(frozen=True, kw_only=True)
class CloseReason:
    """Why a connection is closed, and how many seconds its calls may go on."""

    grace_s: float
    reason: str


class ClientConnection:
    """The connection of one client, from its first message to its last."""

    def __init__(
        self,
        handler: CallHandler,
        sdk: LazySdk,
        *,
        caller: Caller,
        send: Callable[[bytes], None],
        view: View = EVERYTHING,
    ) -> None:
        self._handler = handler
        self._opened_at = time.monotonic()
        self._sdk = sdk
        self._caller = caller
        self._send = send
        self._view = view
        self._revision: era.Revision | None = None
        """Agreed in a handshake; None before one, and in the stateless era."""
        self._client: HandshakeClient | None = None
        self._client_channel: HandshakeClientChannel | None = None
        """The client, for server requests; None before a handshake."""
        self._calls = InFlight()
        self._sdk_requests: dict[str, anyio.Event] = {}
        """Requests that the SDK has not answered yet."""
        self._idle = anyio.Event()
        self._has_ended = False
        self._running: set[asyncio.Task[None]] = set()

    async def serve(
        self,
        messages: AsyncIterator[bytes],
        *,
        grace_s: float,
        close_reason: Callable[[], CloseReason | None] = lambda: None,
    ) -> None:
        """Answer until the messages end, then give calls in flight `grace_s` seconds, then cancel them.

        `close_reason` is called when the messages have ended: None if the client disconnected, else the reason and its own grace.
        """
        async with self._finish_calls(), AsyncExitStack() as stack:
            sdk = _SdkChannel(self._sdk, stack, self._deliver, self._caller, self._view)
            async for raw in messages:
                try:
                    await self._take(raw, sdk)
                except ProtocolError as error:
                    self._handler.note_refused(error, self._caller)
                    self._send(error.as_response())
                except Exception as error:  # noqa: BLE001 (a bug must not end the connection)
                    self._send(rpc.internal_error(error).as_response())
            self._has_ended = True
            await self._finish(close_reason() or CloseReason(grace_s=grace_s, reason="the client is gone"))
            if self._revision is not None:
                self._handler.end_session(self._caller.transport, self._revision, time.monotonic() - self._opened_at)

    async def _finish(self, close: CloseReason) -> None:
        if self._calls or self._sdk_requests:
            with anyio.move_on_after(close.grace_s):
                await self._idle.wait()
        self._calls.cancel_all(close.reason)
        self._handler.rounds.cancel_all_of(self._caller)

    def _end_if_idle(self) -> None:
        if self._has_ended and not self._calls and not self._sdk_requests:
            self._idle.set()

    async def _take(self, raw: bytes, sdk: "_SdkChannel") -> None:
        message = rpc.parse(raw) if len(raw) <= rpc.OFF_LOOP_BYTES else await rpc.parse_off_loop(raw)
        method = message.method
        # A cancellation of anything but a tool call is for the SDK, which has that request.
        if method in (CANCELLED, CANCEL_REQUEST) and self._calls.cancel(message):
            return
        if method in METHODS and message.id is not None:
            await self._handler.prepare(self._view)
            if method == "tools/list":
                cursor, meta = rpc.list_params(message)
                if (revision := self._revision_of(message.id, meta)) is not None:
                    page = self._handler.list_tools(
                        message.id, cursor, revision, caller=self._caller, meta=meta, view=self._view
                    )
                    self._send(page)
                    return
            else:
                name, arguments, meta, resumption = rpc.call_params(message)
                if (revision := self._revision_of(message.id, meta)) is not None:
                    self._start(message, name, arguments, meta, resumption, revision)
                    return
        if method is None and message.id is not None and self._client and self._client.take_response(message):
            return
        if method in TASK_METHODS and self._try_task_method(message):
            return
        if method != CANCEL_REQUEST:
            await self._forward_to_sdk(message, sdk)
        elif message.id is not None:
            self._send(rpc.result_response(message.id, b"{}"))

    def _revision_of(self, request_id: bytes, meta: JsonObject) -> era.Revision | None:
        """Return the revision of a request; None leaves it to the SDK, which refuses it."""
        if not era.has_stateless_envelope(meta):
            return self._revision
        if self._revision is not None:
            return None  # the `_meta` of the stateless era after a handshake
        era.check_stateless_envelope(meta, request_id=request_id)
        return era.STATELESS

    def _start(
        self,
        message: RpcMessage,
        name: str,
        arguments: JsonObject,
        meta: JsonObject,
        resumption: Resumption | None,
        revision: era.Revision,
    ) -> None:
        assert message.id is not None
        key = message.key
        # Before anything is sent for it: two calls with one id could not be told apart afterwards.
        self._calls.check_new(key)
        call = self._handler.admit(
            message.id,
            name,
            arguments,
            meta,
            caller=self._caller,
            notify=self._send,
            view=self._view,
            client_channel=self._client_channel,
            resumption=resumption,
        )
        self._calls.add(key, call)
        request_id = message.id

        def start_task() -> None:
            self._start_task(self._run(request_id, key, call, revision))

        def send(raw: bytes) -> None:
            if self._calls.remove(key):
                self._send(raw)
            self._end_if_idle()

        if not self._handler.try_fast_path(request_id, call, revision, start_task=start_task, send=send):
            start_task()

    def _start_task(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._running.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._send(rpc.internal_error(error).as_response())

    @asynccontextmanager
    async def _finish_calls(self) -> AsyncIterator[None]:
        """Leave no call running. A task group would do that too, at the cost of half a call for each."""
        try:
            yield
            while self._running:
                await asyncio.wait(self._running)
        finally:
            with anyio.CancelScope(shield=True):
                self._calls.cancel_all("the connection has ended")
                # A call of the fast path has a task by now. It must have begun before it is cancelled, to leave an audit entry.
                await asyncio.sleep(0)
                for task in self._running:
                    task.cancel()
                while self._running:
                    await asyncio.wait(self._running)

    async def _run(self, request_id: bytes, key: str, call: Call, revision: era.Revision) -> None:
        response = None
        try:
            try:
                response = await self._handler.answer(request_id, call, revision)
            except ProtocolError as error:
                response = error.as_response()
            if self._caller.transport == "stdio" and call.progress and (delay_s := call.progress.answer_delay_s) > 0:
                await asyncio.sleep(delay_s)
        finally:
            if self._calls.remove(key) and response is not None:
                self._send(response)
            self._end_if_idle()

    def _try_task_method(self, message: RpcMessage) -> bool:
        """Answer one of MCP's task methods; False leaves it to the SDK, which refuses them."""
        meta = rpc.params_object(message).get("_meta")
        if message.id is None or not isinstance(meta, dict):
            return False
        if self._revision_of(message.id, meta) is not era.STATELESS:
            return False
        self._start_task(self._answer_task_method(message))
        return True

    async def _answer_task_method(self, message: RpcMessage) -> None:
        try:
            self._send(await self._handler.tasks.answer(message, self._caller))
        except ProtocolError as error:
            self._send(error.as_response())

    async def _forward_to_sdk(self, message: RpcMessage, sdk: "_SdkChannel") -> None:
        if message.id is None or message.method is None:
            await sdk.send(message)
            return
        answered = self._sdk_requests[message.key] = anyio.Event()
        capabilities = None
        if message.method == "initialize":
            params = rpc.params_object(message)
            capabilities = params.get("capabilities")
            self._caller = sdk.caller = replace(
                self._caller,
                takes_server_requests=takes_server_requests(capabilities),
                client=parse_client_info(
                    params.get("clientInfo"),
                    capabilities,
                    revision=era.agree_version(params.get("protocolVersion")).version,
                ),
            )
        try:
            await sdk.send(message)
        except ProtocolError:
            del self._sdk_requests[message.key]
            raise
        if message.method == "logging/setLevel" and self._client is not None:
            self._client.set_log_level(rpc.params_object(message))
        if message.method == "initialize":
            self._client = HandshakeClient((self._caller.id, self._caller.session), capabilities)
            self._client_channel = HandshakeClientChannel(self._client, self._send)
            # Read no further message until this is answered: how it is read depends on the revision that is agreed.
            await answered.wait()

    def _deliver(self, raw: bytes) -> None:
        """Send what the SDK writes to the client, and note the revision that was agreed."""
        message = rpc.parse_outgoing(raw)
        if (
            message.id is not None
            and message.method is None
            and (answered := self._sdk_requests.pop(message.key, None))
        ):
            if (agreed := _read_agreed_version(raw)) is not None:
                self._revision = era.REVISIONS.get(agreed)
            answered.set()
        self._send(raw)
        self._end_if_idle()


def _read_agreed_version(raw: bytes) -> str | None:
    try:
        return _initialize_decoder.decode(raw).result.protocolVersion
    except msgspec.DecodeError:
        return None


class _SdkChannel:
    """The channel to the SDK, opened with the first message that needs it."""

    def __init__(
        self, sdk: LazySdk, stack: AsyncExitStack, deliver: Callable[[bytes], None], caller: Caller, view: View
    ) -> None:
        self.caller = caller
        self._sdk = sdk
        self._stack = stack
        self._deliver = deliver
        self._view = view
        self._connection: SdkConnection | None = None

    async def send(self, message: RpcMessage) -> None:
        """Pass a message on; raises `ProtocolError` with the message's id if the SDK cannot read it."""
        if self._connection is None:
            server = await self._sdk.server()
            connection = server.open_connection(self._deliver, caller=self.caller, view=self._view)
            self._connection = await self._stack.enter_async_context(connection)
        try:
            await self._connection.feed(message.raw)
        except ProtocolError as error:
            error.request_id = message.id or b"null"
            raise
