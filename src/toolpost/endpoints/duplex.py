"""One client on a two-way channel (stdio, memory): who is asking for what, in which era, and what is still in flight."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from toolpost.base.caller import Caller
from toolpost.base.ids import JsonObject
from toolpost.discovery import EVERYTHING, View
from toolpost.endpoints.calls import METHODS, Lane, log_refused
from toolpost.endpoints.client_session import Conversation, Correspondent
from toolpost.endpoints.in_flight import CANCEL_REQUEST, CANCELLED, InFlight
from toolpost.endpoints.sdk.lazy import LateSdk
from toolpost.endpoints.tasks import TASK_METHODS, Tasks
from toolpost.middleware import Call
from toolpost.protocol import era, rpc
from toolpost.protocol.rpc import Message, ProtocolError, Resumption
from toolpost.upstreams.server_requests import select_capabilities

if TYPE_CHECKING:
    from toolpost.endpoints.sdk.server import SdkConnection


class _Initialized(msgspec.Struct):
    class Result(msgspec.Struct):
        protocolVersion: str  # noqa: N815 (as on the wire)

    result: Result


_initialized = msgspec.json.Decoder(_Initialized)


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Why a connection ends, and how long its calls may go on."""

    grace_s: float
    reason: str


class Connection:
    """A client from its first byte to its last."""

    def __init__(
        self, lane: Lane, sdk: LateSdk, *, caller: Caller, send: Callable[[bytes], None], view: View = EVERYTHING
    ) -> None:
        self._lane = lane
        self._sdk = sdk
        self._caller = caller
        self._send = send
        self._view = view
        self._revision: era.Revision | None = None
        """Agreed in a handshake; None before one, and in the stateless era."""
        self._conversation: Conversation | None = None
        self._respondent: Correspondent | None = None
        """The client as servers may turn to it; None as long as there was no handshake."""
        self._calls = InFlight()
        self._asked: dict[str, anyio.Event] = {}
        """What the SDK has not answered yet."""
        self._idle = anyio.Event()
        self._has_ended = False
        self._running: set[asyncio.Task[None]] = set()

    async def serve(
        self, messages: AsyncIterator[bytes], *, grace_s: float, ending: Callable[[], Ending | None] = lambda: None
    ) -> None:
        """Answer until the client is gone, then give what is in flight a moment, then cancel it.

        `ending` is asked when the messages have ended: None for a client that is gone, else why and with what grace.
        """
        async with self._calls_seen_through(), AsyncExitStack() as stack:
            feed = _LateFeed(self._sdk, stack, self._deliver, self._caller, self._view)
            async for raw in messages:
                try:
                    await self._take(raw, feed)
                except ProtocolError as error:
                    log_refused(error, self._caller)
                    self._send(error.as_response())
                except Exception as error:  # noqa: BLE001 (a bug of ours must not end the connection)
                    self._send(rpc.internal_error(error).as_response())
            self._has_ended = True
            await self._finish(ending() or Ending(grace_s=grace_s, reason="the client is gone"))

    async def _finish(self, ending: Ending) -> None:
        if self._calls or self._asked:
            with anyio.move_on_after(ending.grace_s):
                await self._idle.wait()
        self._calls.cancel_all(ending.reason)
        self._lane.rounds.end_of(self._caller)

    def _end_if_idle(self) -> None:
        if self._has_ended and not self._calls and not self._asked:
            self._idle.set()

    async def _take(self, raw: bytes, feed: "_LateFeed") -> None:
        message = rpc.parse(raw) if len(raw) <= rpc.OFF_LOOP_BYTES else await rpc.parse_off_loop(raw)
        method = message.method
        if method in (CANCELLED, CANCEL_REQUEST) and self._calls.cancel(message):
            return
        if method in METHODS and message.id is not None:
            await self._lane.prepare(self._view)
            if method == "tools/list":
                cursor, meta = rpc.list_params(message)
                if (revision := self._revision_of(message.id, meta)) is not None:
                    self._send(self._lane.list_tools(message.id, cursor, revision, view=self._view))
                    return
            else:
                name, arguments, meta, resumption = rpc.call_params(message)
                if (revision := self._revision_of(message.id, meta)) is not None:
                    self._start(message, name, arguments, meta, resumption, revision)
                    return
        if method is None and message.id is not None and self._conversation and self._conversation.take(message):
            return
        if method in TASK_METHODS and self._is_about_task(message):
            return
        if method != CANCEL_REQUEST:
            await self._ask_sdk(message, feed)
        elif message.id is not None:
            self._send(rpc.result_response(message.id, b"{}"))

    def _revision_of(self, request_id: bytes, meta: JsonObject) -> era.Revision | None:
        """Say which revision a request speaks; None leaves it to the SDK to refuse."""
        if not era.has_modern_envelope(meta):
            return self._revision
        if self._revision is not None:
            return None
        era.check_modern_envelope(meta, request_id=request_id)
        return era.MODERN

    def _start(
        self,
        message: Message,
        name: str,
        arguments: JsonObject,
        meta: JsonObject,
        resumption: Resumption | None,
        revision: era.Revision,
    ) -> None:
        assert message.id is not None
        key = message.key
        self._calls.check_new(key)
        call = self._lane.admit(
            message.id,
            name,
            arguments,
            meta,
            caller=self._caller,
            notify=self._send,
            view=self._view,
            client_channel=self._respondent,
            resumption=resumption,
        )
        is_asked = self._lane.ask(call)
        self._calls.add(key, call)
        request_id = message.id
        if not is_asked:
            self._carry(self._run(request_id, key, call, revision))
            return

        def carry() -> None:
            self._carry(self._run(request_id, key, call, revision))

        def send(raw: bytes) -> None:
            if self._calls.remove(key):
                self._send(raw)
            self._end_if_idle()

        self._lane.begin(request_id, call, revision, carry=carry, send=send)

    def _carry(self, answering: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(answering)
        self._running.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._send(rpc.internal_error(error).as_response())

    @asynccontextmanager
    async def _calls_seen_through(self) -> AsyncIterator[None]:
        """Leave no call behind. A task group would do that too, at the cost of half a call for each."""
        try:
            yield
            while self._running:
                await asyncio.wait(self._running)
        finally:
            with anyio.CancelScope(shield=True):
                self._calls.cancel_all("the connection has ended")
                # One that had no task has its own now, which must have begun to be ended with its record.
                await asyncio.sleep(0)
                for task in self._running:
                    task.cancel()
                while self._running:
                    await asyncio.wait(self._running)

    async def _run(self, request_id: bytes, key: str, call: Call, revision: era.Revision) -> None:
        response = None
        try:
            response = await self._lane.answer(request_id, call, revision)
        except ProtocolError as error:
            response = error.as_response()
        finally:
            if self._calls.remove(key) and response is not None:
                self._send(response)
            self._end_if_idle()

    def _is_about_task(self, message: Message) -> bool:
        """Have a question about a task answered; False leaves it to the SDK, which knows of none."""
        meta = rpc.params_object(message).get("_meta")
        if message.id is None or self._lane.tasks is None or not isinstance(meta, dict):
            return False
        if self._revision_of(message.id, meta) is not era.MODERN:
            return False
        answering = self._answer_about_task(self._lane.tasks, message)
        self._carry(answering)
        return True

    async def _answer_about_task(self, lane: Tasks, message: Message) -> None:
        try:
            self._send(await lane.answer(message, self._caller))
        except ProtocolError as error:
            self._send(error.as_response())

    async def _ask_sdk(self, message: Message, feed: "_LateFeed") -> None:
        if message.id is None or message.method is None:
            await feed.send(message)
            return
        answered = self._asked[message.key] = anyio.Event()
        capabilities = rpc.params_object(message).get("capabilities") if message.method == "initialize" else None
        if select_capabilities(capabilities):
            self._caller = feed.caller = replace(self._caller, answers_handshake=True)
        try:
            await feed.send(message)
        except ProtocolError:
            del self._asked[message.key]
            raise
        if message.method == "logging/setLevel" and self._conversation is not None:
            self._conversation.note_level(rpc.params_object(message))
        if message.method == "initialize":
            self._conversation = Conversation((self._caller.id, self._caller.session), capabilities)
            self._respondent = Correspondent(self._conversation, self._send)
            # Nothing more is read until it is answered: what follows depends on the revision that is agreed.
            await answered.wait()

    def _deliver(self, raw: bytes) -> None:
        """Take what the SDK says to the client, and learn from it which revision was agreed."""
        message = rpc.parse_outgoing(raw)
        if message.id is not None and message.method is None and (answered := self._asked.pop(message.key, None)):
            if (agreed := _agreed_version(raw)) is not None:
                self._revision = era.REVISIONS.get(agreed)
            answered.set()
        self._send(raw)
        self._end_if_idle()


def _agreed_version(raw: bytes) -> str | None:
    try:
        return _initialized.decode(raw).result.protocolVersion
    except msgspec.DecodeError:
        return None


class _LateFeed:
    """The way to the SDK, opened when the first message needs it."""

    def __init__(
        self, sdk: LateSdk, stack: AsyncExitStack, deliver: Callable[[bytes], None], caller: Caller, view: View
    ) -> None:
        self.caller = caller
        self._sdk = sdk
        self._stack = stack
        self._deliver = deliver
        self._view = view
        self._connection: SdkConnection | None = None

    async def send(self, message: Message) -> None:
        """Pass a message on; what the SDK cannot read is refused with its id."""
        if self._connection is None:
            server = await self._sdk.server()
            connection = server.open_connection(self._deliver, caller=self.caller, view=self._view)
            self._connection = await self._stack.enter_async_context(connection)
        try:
            await self._connection.feed(message.raw)
        except ProtocolError as error:
            error.request_id = message.id or b"null"
            raise
