"""The HTTP API of conversations: threads, messages, turns and their events, prewarming.

Each method of `ConversationsApi` with `@_route` answers one operation; `ROUTES` has all of them. The type of its parameter `body`
and of its result are those of the request and the response, for decoding and for the OpenAPI description alike.

Every caller who may call tools may use it, and sees only their own threads. Agents may not: an agent could prompt itself without
end. Errors are sent as the error object, under `error`.
"""

import inspect
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import anyio
import msgspec

from toolpost import ErrorCode, Principal, QueueOverloaded, ToolpostError
from toolpost.base import JsonObject, ThreadId
from toolpost.endpoints.auth.access import Access
from toolpost.endpoints.http import Admission, HttpRequest, Refused, close_on_removal, forbidden, send_json
from toolpost.endpoints.http.descriptors import is_out_of_descriptors
from toolpost.endpoints.http.refusal import overload_status, retry_headers
from toolpost.endpoints.http.routes import READING
from toolpost.fairness import Shares
from toolpost.parts.agents.api import values
from toolpost.parts.agents.api.openapi import ApiOperation, describe_api
from toolpost.parts.agents.api.request import ConversationRequest
from toolpost.parts.agents.api.stream import TurnStream, watch_disconnect
from toolpost.parts.agents.ids import TurnId
from toolpost.parts.agents.service import Conversations
from toolpost.parts.agents.threads import Thread
from toolpost.parts.agents.turn import RunningTurn
from toolpost.parts.agents.turn_events import TurnEnded, encode_event
from toolpost.parts.agents.values import InvokeOptions
from toolpost.protocol import encode
from toolpost.protocol.rpc import internal_error

API: Final = "/api"
PAGE_LIMIT: Final = 200

_STATUS: Final[Mapping[ErrorCode, int]] = {
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.INVALID_PARAMS: 400,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.CANCELLED: 409,
    ErrorCode.QUEUE_OVERLOADED: 503,
    ErrorCode.UPSTREAM_UNAVAILABLE: 503,
    ErrorCode.CAPABILITY_MISSING: 503,
    ErrorCode.TOOL_TIMEOUT: 504,
    ErrorCode.HANDLER_ERROR: 502,
}
"""The HTTP status of an error code; any other is 500."""

_OVERLOADED: Final = (429, 503)
_AGENT_FAILED: Final = (*_OVERLOADED, 502, 504)

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])


@dataclass(frozen=True, kw_only=True)
class ApiRoute(ApiOperation):
    """An operation and the method of `ConversationsApi` that answers it."""

    handler: Callable[..., Awaitable[Any]]
    """Takes the API, the request and, if the operation has one, the body. Returns the response, None if it has sent it."""


_routes: list[ApiRoute] = []


def _route(method: str, path: str, summary: str, **options: Any) -> Callable[[Handler], Handler]:
    """Register a method of `ConversationsApi`; `options` are further fields of its `ApiOperation`."""

    def register(handler: Handler) -> Handler:
        signature = inspect.signature(handler)
        if "body" in signature.parameters:
            options["body"] = signature.parameters["body"].annotation
        result = signature.return_annotation
        if isinstance(result, type) and issubclass(result, msgspec.Struct):
            options["response"] = result
        _routes.append(ApiRoute(method=method, path=f"{API}{path}", summary=summary, handler=handler, **options))
        return handler

    return register


class ConversationsApi:
    """The operations of the API, and the dispatch to them."""

    def __init__(
        self,
        access: Access,
        conversations: Conversations,
        streams: Shares,
        *,
        body_limit: int,
        health: Callable[[], JsonObject],
        check_browser_write: Callable[[HttpRequest, Admission], None],
    ) -> None:
        self._check_change = check_browser_write
        self._access = access
        self._conversations = conversations
        self._streams = streams
        self._body_limit = body_limit
        self._health = health

    def serves(self, path: str) -> bool:
        return path == API or path.startswith(f"{API}/")

    async def answer(self, http: HttpRequest) -> None:
        """Answer a request; failures are sent as the error object."""
        try:
            route, thread = _find_route(http)
            admission = await self._access.admit(http)
            if admission.caller.is_agent:
                raise forbidden("An agent may use tools, but not start conversations")
            if http.method not in READING:
                self._check_change(http, admission)
            principal = Principal(caller=admission.caller, scopes=admission.scopes, is_admin=admission.is_admin)
            request = ConversationRequest(http=http, principal=principal, thread=thread, body_limit=self._body_limit)
            async with close_on_removal(http, self._access.roster, admission) if route.streams else nullcontext():
                body = [await request.read_body(route.body)] if route.body is not None else []
                response = await route.handler(self, request, *body)
        except Refused as refusal:
            error = {"code": refusal.code.value, "message": str(refusal)}
            await _send_error(http, error, refusal.status, refusal.headers)
        except QueueOverloaded as overload:
            await _send_error(http, overload.as_object(), overload_status(overload), retry_headers(overload))
        except ToolpostError as failure:
            await _send_error(http, failure.as_object(), _STATUS.get(failure.code, 500))
        except Exception as bug:
            # The HTTP application answers this one with 503.
            if is_out_of_descriptors(bug):
                raise
            message = internal_error(bug).message
            await _send_error(http, {"code": ErrorCode.INTERNAL.value, "message": message}, 500)
        else:
            if response is not None:
                await send_json(http.send, encode(response), status=route.status)

    # -- the server ------------------------------------------------------------------------------------------------------

    @_route("GET", "/openapi.json", "this description")
    async def describe(self, _: ConversationRequest) -> JsonObject:
        return describe_api(ROUTES)

    @_route("GET", "/health", "state of the server and of each plugin")
    async def show_health(self, request: ConversationRequest) -> JsonObject:
        # The details name servers and plugins, which a caller with limited scopes may not see.
        return {"status": "ok"} if request.principal.scopes else self._health()

    @_route("GET", "/agents", "list the agents")
    async def list_agents(self, _: ConversationRequest) -> values.AgentList:
        default = self._conversations.default_agent
        return values.AgentList(
            agents=[
                values.ShownAgent(name=each.name, kind=each.kind, model=each.model, is_default=each.name == default)
                for each in self._conversations.list_agents()
            ]
        )

    # -- threads ---------------------------------------------------------------------------------------------------------

    @_route("GET", "/threads", "list your conversations, the last changed first", query=("before", "limit"))
    async def list_threads(self, request: ConversationRequest) -> values.ThreadList:
        limit = int(request.read_number("limit", 50, PAGE_LIMIT))
        before = request.read_number("before", 0, 1e12)
        threads = await self._conversations.list_threads(request.principal, before=before or None, limit=limit)
        last = f"{threads[-1].changed_at!r}" if threads and len(threads) == limit else None
        return values.ThreadList(threads=[self._render_thread(thread) for thread in threads], next=last)

    @_route("POST", "/threads", "start a conversation", status=201, errors=_OVERLOADED)
    async def create_thread(self, request: ConversationRequest, body: values.NewThread) -> values.ShownThread:
        created = await self._conversations.create_thread(
            request.principal, title=body.title, agent=body.agent, model=body.model
        )
        return self._render_thread(created)

    @_route("GET", "/threads/{thread}", "show a conversation")
    async def show_thread(self, request: ConversationRequest) -> values.ShownThread:
        return self._render_thread(await self._conversations.find_thread(request.principal, request.thread))

    @_route("PATCH", "/threads/{thread}", "change the title, agent or model of a conversation")
    async def change_thread(self, request: ConversationRequest, body: values.ThreadChange) -> values.ShownThread:
        # In JSON, an absent field stays and null unsets it; for `change_thread`, these are None and an empty text.
        agent, model = [None if new is msgspec.UNSET else new or "" for new in (body.agent, body.model)]
        changed = await self._conversations.change_thread(
            request.principal, request.thread, title=body.title, agent=agent, model=model
        )
        return self._render_thread(changed)

    @_route("DELETE", "/threads/{thread}", "delete a conversation with its messages")
    async def delete_thread(self, request: ConversationRequest) -> JsonObject:
        request.refuse_forms()
        await self._conversations.delete_thread(request.principal, request.thread)
        return {}

    def _render_thread(self, thread: Thread) -> values.ShownThread:
        running = [str(turn) for turn in self._conversations.running_in(thread.id)]
        return values.render_thread(thread, is_warm=self._conversations.is_warm(thread.id), running=running)

    # -- messages and turns ----------------------------------------------------------------------------------------------

    @_route("GET", "/threads/{thread}/messages", "list messages, in order", query=("after", "limit"))
    async def list_messages(self, request: ConversationRequest) -> values.MessageList:
        after, limit = int(request.read_number("after", 0, 2**53)), int(request.read_number("limit", 100, PAGE_LIMIT))
        messages = await self._conversations.read_messages(request.principal, request.thread, after=after, limit=limit)
        return values.MessageList(messages=[values.render_message(message) for message in messages])

    @_route(
        "POST",
        "/threads/{thread}/messages",
        "send a message; the response is the end of its turn, or each event with `Accept: text/event-stream`",
        response=TurnEnded,
        streams=True,
        errors=_AGENT_FAILED,
    )
    async def send_message(self, request: ConversationRequest, body: values.NewMessage) -> None:
        http = request.http
        stream = TurnStream(http.receive, http.send)
        options = InvokeOptions(agent=body.agent, model=body.model, timeout_s=body.timeout_s, on_event=stream.put)
        is_streamed = b"text/event-stream" in http.headers.get(b"accept", b"")
        with self._streams.held(request.principal.caller.id) if is_streamed else nullcontext():
            run = await self._conversations.start_message(request.principal, request.thread, body.text, options)

            def handle_gone() -> None:
                if body.on_disconnect == "cancel":
                    run.stop("cancelled", "the client is gone")

            if is_streamed:
                await stream.serve(until_end=True, on_gone=handle_gone)
            else:
                await _send_end(http, run, handle_gone)

    @_route("GET", "/threads/{thread}/turns", "list turns, the latest first", query=("limit",))
    async def list_turns(self, request: ConversationRequest) -> values.TurnList:
        limit = int(request.read_number("limit", 50, PAGE_LIMIT))
        turns = await self._conversations.list_turns(request.principal, request.thread, limit=limit)
        return values.TurnList(turns=[values.render_turn(turn) for turn in turns])

    @_route(
        "GET",
        "/threads/{thread}/events",
        "follow the events of all turns in a conversation from now on",
        streams=True,
        errors=_OVERLOADED,
    )
    async def follow(self, request: ConversationRequest) -> None:
        await self._conversations.find_thread(request.principal, request.thread)
        stream = TurnStream(request.http.receive, request.http.send)
        held = self._streams.held(request.principal.caller.id)
        with held, self._conversations.open_listener(request.thread, stream.put):
            await stream.serve(until_end=False, on_gone=lambda: None)

    @_route("POST", "/threads/{thread}/cancel", "cancel a turn, or all that run or wait")
    async def cancel(self, request: ConversationRequest, body: values.Cancellation) -> values.Cancelled:
        turn = TurnId(body.turn) if body.turn is not None else None
        stopped = await self._conversations.cancel(request.principal, request.thread, turn)
        return values.Cancelled(cancelled=list(stopped))

    @_route(
        "POST", "/prewarm", "open the session of a conversation before its next message", errors=(404, *_AGENT_FAILED)
    )
    async def prewarm(self, request: ConversationRequest, body: values.Prewarming) -> values.Prewarmed:
        started = time.perf_counter()
        options = InvokeOptions(agent=body.agent, model=body.model)
        await self._conversations.prewarm(request.principal, ThreadId(body.thread_id), options)
        return values.Prewarmed(
            thread_id=body.thread_id, state="warm", took_ms=round((time.perf_counter() - started) * 1000, 3)
        )


ROUTES: Final = tuple(_routes)


def _find_route(http: HttpRequest) -> tuple[ApiRoute, ThreadId]:
    """Return the route of a request and the thread in its path; raises `Refused` (404 or 405)."""
    parts = http.path.split("/")
    methods = []
    for route in ROUTES:
        pattern = route.path.split("/")
        if len(parts) != len(pattern) or any(b not in (a, "{thread}") for a, b in zip(parts, pattern, strict=True)):
            continue
        if route.method == http.method:
            return route, ThreadId(parts[3] if "{thread}" in pattern else "")
        methods.append(route.method)
    if not methods:
        raise Refused(404, ErrorCode.NOT_FOUND, f"Not found; {API}/openapi.json lists all paths")
    allowed = ", ".join(methods)
    message = f"This path takes {allowed} only"
    raise Refused(405, ErrorCode.INVALID_REQUEST, message, headers=[(b"allow", allowed.encode())])


async def _send_end(http: HttpRequest, turn: RunningTurn, on_gone: Callable[[], None]) -> None:
    """Wait for the end of a turn and send it; a failed turn with the status of its error."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch_disconnect, http.receive, on_gone)
        await turn.done.wait()
        tasks.cancel_scope.cancel()
    ended = turn.ended
    assert ended is not None
    code = ErrorCode(ended.error["code"]) if ended.state == "failed" and ended.error else None
    retry_ms = (
        (ended.error or {}).get("details", {}).get("retryAfterMs") if code is ErrorCode.QUEUE_OVERLOADED else None
    )
    headers = [(b"retry-after", b"%d" % math.ceil(retry_ms / 1000))] if retry_ms is not None else None
    status = _STATUS.get(code, 500) if code is not None else 200
    await send_json(http.send, encode_event(ended), status=status, headers=headers)


async def _send_error(
    http: HttpRequest, error: JsonObject, status: int, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    await send_json(http.send, encode({"error": error}), status=status, headers=headers)
