"""`POST /api/console/call`: runs a tool for the playground, and sends its events as server-sent events.

    {"tool": "time__current_time", "arguments": {"timezone": "UTC"}, "caller": "ben"}

    {"type": "started", "callId": "…"}, `progress` as it comes, then `result` with the result of `tools/call`,
    or `refused` with the error object of a server that answered with a protocol error

The page is a client that takes elicitations and `roots/list`. What the tool's server asks comes as

    {"type": "requests", "requests": {"elicitation-1": {"method": "elicitation/create", "params": {…}}}}

with all that wait for an answer, whenever that changes. `POST /api/console/call/answer` answers one of them:

    {"callId": "…", "key": "elicitation-1", "response": {"action": "accept", "content": {"name": "Ann"}}}

without `response` it is refused. Sampling is not for a person: a part that has models answers it, or it is refused.

A client that closes the stream cancels the call. It is an ordinary call: it passes the middleware and is audited. With
`caller`, for administrators alone, it has the rights of that caller, and the audit names both: `ann as ben`.
"""

import logging
from collections import deque
from typing import Any, Final

import anyio
import msgspec
from anyio import to_thread

from toolpost import CallerId, NotFound
from toolpost.base import CallId, Json, JsonObject, event
from toolpost.contracts import InvalidRequest
from toolpost.endpoints.http import (
    SSE_HEADERS,
    STREAMED,
    EventSchema,
    HttpRequest,
    PolledChannel,
    Route,
    RouteRequest,
    write_call_result,
)
from toolpost.gateway import Answer, Gateway
from toolpost.middleware import Call, ProgressNotification
from toolpost.parts.console.api.callers import act_as
from toolpost.parts.console.context import Console, text_of
from toolpost.protocol import encode
from toolpost.upstreams import ServerRefused

_log = logging.getLogger("toolpost.console")

KEEP_ALIVE_S: Final = 15.0
WAITING_LIMIT: Final = 1_000
"""Progress notifications that wait for a slow browser; older ones are dropped."""

CAPABILITIES: Final[JsonObject] = {"elicitation": {"form": {}, "url": {}}, "roots": {}}
"""What the person at the page can answer."""
DECLINED: Final = -1
"""The code that clients answer with when their user does not want a request to be answered, as in MCP."""


def routes_of(console: Console) -> list[Route]:
    """Make the paths."""
    open_calls: dict[CallId, tuple[CallerId, PolledChannel]] = {}

    async def call(request: RouteRequest) -> Json:
        arguments = request.body.get("arguments", {}) if isinstance(request.body, dict) else None
        if not isinstance(arguments, dict):
            raise InvalidRequest("`arguments` is an object.", hint='send {"tool": "…", "arguments": {}}')
        name, wanted = text_of(request, "tool"), request.body.get("caller")
        if wanted is not None and not isinstance(wanted, str):
            raise InvalidRequest("`caller` is the name of a caller.")
        caller, view = act_as(console.http.access.roster, request.admission, wanted)
        await to_thread.run_sync(console.http.gateway.catalog.narrow, view)
        channel = PolledChannel(caller.id, CAPABILITIES)
        stream = CallStream(request.http, channel)
        made = console.http.gateway.admit(
            caller=caller, name=name, arguments=arguments, view=view, on_progress=stream.put, client_channel=channel
        )
        if caller.acted_by is not None:
            event(_log, logging.WARNING, "run as another caller", call=made.id, caller=caller.recorded_as)
        with console.http.streams.held(request.admission.caller.id):
            open_calls[made.id] = (request.admission.caller.id, channel)
            try:
                await stream.run(console.http.gateway, made)
            finally:
                del open_calls[made.id]
        return STREAMED

    async def answer(request: RouteRequest) -> Json:
        call_id, key = text_of(request, "callId"), text_of(request, "key")
        owner, channel = open_calls.get(CallId(call_id), (None, None))
        # Whether another caller has such a call is not told.
        if channel is None or owner != request.admission.caller.id or key not in channel.pending:
            raise NotFound("This request does not wait for an answer.", hint="its call may have ended, or asks again")
        response = request.body.get("response")
        if response is None:
            channel.refuse(key, ServerRefused(DECLINED, "The user rejected the request"))
        elif isinstance(response, dict):
            channel.take({key: response})
        else:
            raise InvalidRequest("`response` is an object.", hint='send {"action": "decline"}, or leave it out')
        return {}

    return [
        console.change("/call", call, is_for_admins=False, events=EventSchema("CallEvent", dict[str, Any])),
        console.change("/call/answer", answer, is_for_admins=False),
    ]


class CallStream:
    """The events of one call, sent in order."""

    def __init__(self, http: HttpRequest, channel: PolledChannel) -> None:
        self._http = http
        self._channel = channel
        channel.on_change = self._note_requests
        self._waiting: deque[JsonObject] = deque(maxlen=WAITING_LIMIT)
        self._has_waiting = anyio.Event()
        self._has_new_requests = False

    def put(self, note: ProgressNotification) -> None:
        """Queue a progress notification; never waits."""
        self._waiting.append(
            {"type": "progress", "progress": note.progress, "total": note.total, "message": note.message}
        )
        self._has_waiting.set()

    def _note_requests(self) -> None:
        # Not queued: what is sent is always all that wait, so that none is lost and none is shown that is over.
        self._has_new_requests = True
        self._has_waiting.set()

    async def run(self, gateway: Gateway, call: Call) -> None:
        """Run the call, and send what happens until its result; a client that is gone cancels it."""
        await self._http.send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
        await self._send(encode({"type": "started", "callId": call.id}))
        last = b""

        async def work() -> None:
            nonlocal last
            last = _write_answer(await gateway.call(call))
            tasks.cancel_scope.cancel()

        async def watch() -> None:
            while (await self._http.receive())["type"] != "http.disconnect":
                continue
            call.cancel("the client is gone")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            tasks.start_soon(watch)
            await self._send_waiting()
        await self._flush()
        await self._send(last)
        await self._http.send({"type": "http.response.body", "body": b""})

    async def _send_waiting(self) -> None:
        while True:
            with anyio.move_on_after(KEEP_ALIVE_S):
                await self._has_waiting.wait()
            self._has_waiting = anyio.Event()
            # Shielded: an event that is cut in half by the end of the call would corrupt the stream.
            with anyio.CancelScope(shield=True):
                if not self._waiting and not self._has_new_requests:
                    await self._http.send(
                        {"type": "http.response.body", "body": b": still at work\n\n", "more_body": True}
                    )
                await self._flush()

    async def _flush(self) -> None:
        while self._waiting:
            await self._send(encode(self._waiting.popleft()))
        if self._has_new_requests:
            self._has_new_requests = False
            await self._send(encode({"type": "requests", "requests": self._channel.pending}))

    async def _send(self, data: bytes) -> None:
        if b"\n" in data:
            # What a server wrote is passed on as it came, also in several lines; an event has one.
            data = msgspec.json.format(data, indent=-1)
        await self._http.send({"type": "http.response.body", "body": b"data: %b\n\n" % data, "more_body": True})


def _write_answer(answer: Answer) -> bytes:
    if (refusal := answer.refusal) is not None:
        error: dict[str, Any] = {
            "code": refusal.rpc_code,
            "message": refusal.message,
            "details": {"data": refusal.data},
        }
        return encode({"type": "refused", "error": error})
    return b'{"type":"result","result":%b}' % write_call_result(answer)
