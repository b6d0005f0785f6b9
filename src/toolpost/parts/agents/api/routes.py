"""The HTTP API of conversations: agents, threads, messages, turns and their events, prewarming.

Each method of `ConversationsApi` with `@_route` answers one operation. The types of its parameter `body` and of its result are
those of the request and the response, for decoding and for the OpenAPI description alike.

Every caller who may call tools may use it, and sees only their own threads. Agents may not: an agent could prompt itself without
end.
"""

import inspect
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import msgspec

from toolpost import ErrorCode
from toolpost.base import JsonObject, ThreadId
from toolpost.endpoints.http import (
    STATUSES,
    STREAMED,
    EventSchema,
    HttpContext,
    HttpRequest,
    JsonApi,
    Route,
    RouteRequest,
    send_json,
)
from toolpost.fairness import Shares
from toolpost.parts.agents.api import values
from toolpost.parts.agents.api.stream import TurnStream, watch_disconnect
from toolpost.parts.agents.conversations import Conversations
from toolpost.parts.agents.ids import TurnId
from toolpost.parts.agents.threads import Thread
from toolpost.parts.agents.turn import LiveTurn
from toolpost.parts.agents.turn_events import TurnEnded, TurnEvent, encode_event
from toolpost.parts.agents.values import InvokeOptions

API: Final = "/api"
PAGE_LIMIT: Final = 200

_EVENTS: Final = EventSchema("TurnEvent", TurnEvent)
_OVERLOADED: Final = (429, 503)
_AGENT_FAILED: Final = (*_OVERLOADED, 502, 504)

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])

_routes: list[Callable[["ConversationsApi"], Route]] = []


def _route(method: str, path: str, summary: str, **options: Any) -> Callable[[Handler], Handler]:
    """Register a method of `ConversationsApi`; `options` are further fields of its `Route`."""

    def register(handler: Handler) -> Handler:
        signature = inspect.signature(handler)
        if "body" in signature.parameters:
            options["body"] = signature.parameters["body"].annotation
        result = signature.return_annotation
        if isinstance(result, type) and issubclass(result, msgspec.Struct):
            options["response"] = result

        async def handle(api: "ConversationsApi", request: RouteRequest) -> Any:
            response = await handler(api, request, *([request.body] if "body" in options else []))
            return STREAMED if response is None else response

        _routes.append(
            lambda api: Route(
                method=method, path=f"{API}{path}", summary=summary, handler=partial(handle, api), **options
            )
        )
        return handler

    return register


def routes_of(http: HttpContext, conversations: Conversations) -> JsonApi:
    """Make the paths."""
    api = ConversationsApi(conversations, http.streams)
    return JsonApi(http, [make(api) for make in _routes])


class ConversationsApi:
    """The operations of the API. Those that return None have sent the response themselves."""

    def __init__(self, conversations: Conversations, streams: Shares) -> None:
        self._conversations = conversations
        self._streams = streams

    @_route("GET", "/agents", "list the agents")
    async def list_agents(self, _: RouteRequest) -> values.AgentList:
        default = self._conversations.default_agent
        return values.AgentList(
            agents=[
                values.ShownAgent(name=each.name, kind=each.kind, model=each.model, is_default=each.name == default)
                for each in self._conversations.list_agents()
            ]
        )

    # -- threads ---------------------------------------------------------------------------------------------------------

    @_route(
        "GET", "/threads", "list your conversations, the last changed first", query={"before": float, "limit": float}
    )
    async def list_threads(self, request: RouteRequest) -> values.ThreadList:
        limit = int(request.read_number("limit", 50, PAGE_LIMIT))
        before = request.read_number("before", 0, 1e12)
        threads = await self._conversations.list_threads(request.principal, before=before or None, limit=limit)
        last = f"{threads[-1].changed_at!r}" if threads and len(threads) == limit else None
        return values.ThreadList(threads=[self._render_thread(thread) for thread in threads], next=last)

    @_route("POST", "/threads", "start a conversation", status=201, errors=_OVERLOADED)
    async def create_thread(self, request: RouteRequest, body: values.NewThread) -> values.ShownThread:
        created = await self._conversations.create_thread(
            request.principal, title=body.title, agent=body.agent, model=body.model
        )
        return self._render_thread(created)

    @_route("GET", "/threads/{thread}", "show a conversation")
    async def show_thread(self, request: RouteRequest) -> values.ShownThread:
        return self._render_thread(await self._conversations.find_thread(request.principal, _thread_of(request)))

    @_route("PATCH", "/threads/{thread}", "change the title, agent or model of a conversation")
    async def change_thread(self, request: RouteRequest, body: values.ThreadChange) -> values.ShownThread:
        # In JSON, an absent field stays and null unsets it; for `change_thread`, these are None and an empty text.
        agent, model = [None if new is msgspec.UNSET else new or "" for new in (body.agent, body.model)]
        changed = await self._conversations.change_thread(
            request.principal, _thread_of(request), title=body.title, agent=agent, model=model
        )
        return self._render_thread(changed)

    @_route("DELETE", "/threads/{thread}", "delete a conversation with its messages")
    async def delete_thread(self, request: RouteRequest) -> JsonObject:
        await self._conversations.delete_thread(request.principal, _thread_of(request))
        return {}

    def _render_thread(self, thread: Thread) -> values.ShownThread:
        running = [str(turn) for turn in self._conversations.running_in(thread.id)]
        return values.render_thread(thread, is_warm=self._conversations.is_warm(thread.id), running=running)

    # -- messages and turns ----------------------------------------------------------------------------------------------

    @_route("GET", "/threads/{thread}/messages", "list messages, in order", query={"after": float, "limit": float})
    async def list_messages(self, request: RouteRequest) -> values.MessageList:
        after, limit = int(request.read_number("after", 0, 2**53)), int(request.read_number("limit", 100, PAGE_LIMIT))
        messages = await self._conversations.read_messages(
            request.principal, _thread_of(request), after=after, limit=limit
        )
        return values.MessageList(messages=[values.render_message(message) for message in messages])

    @_route(
        "POST",
        "/threads/{thread}/messages",
        "send a message; the response is the end of its turn, or each event with `Accept: text/event-stream`",
        response=TurnEnded,
        events=_EVENTS,
        errors=_AGENT_FAILED,
    )
    async def send_message(self, request: RouteRequest, body: values.NewMessage) -> None:
        http = request.http
        stream = TurnStream(http)
        options = InvokeOptions(agent=body.agent, model=body.model, timeout_s=body.timeout_s, on_event=stream.put)
        is_streamed = b"text/event-stream" in http.headers.get(b"accept", b"")
        with self._streams.held(request.principal.caller.id) if is_streamed else nullcontext():
            run = await self._conversations.start_message(request.principal, _thread_of(request), body.text, options)

            def handle_gone() -> None:
                if body.on_disconnect == "cancel":
                    run.stop("cancelled", "the client is gone")

            if is_streamed:
                await stream.serve(until_end=True, on_gone=handle_gone)
            else:
                await _send_end(http, run, handle_gone)

    @_route("GET", "/threads/{thread}/turns", "list turns, the latest first", query={"limit": float})
    async def list_turns(self, request: RouteRequest) -> values.TurnList:
        limit = int(request.read_number("limit", 50, PAGE_LIMIT))
        turns = await self._conversations.list_turns(request.principal, _thread_of(request), limit=limit)
        return values.TurnList(turns=[values.render_turn(turn) for turn in turns])

    @_route(
        "GET",
        "/threads/{thread}/events",
        "follow the events of all turns in a conversation from now on",
        events=_EVENTS,
        errors=_OVERLOADED,
    )
    async def follow(self, request: RouteRequest) -> None:
        await self._conversations.find_thread(request.principal, _thread_of(request))
        stream = TurnStream(request.http)
        held = self._streams.held(request.principal.caller.id)
        with held, self._conversations.open_listener(_thread_of(request), stream.put):
            await stream.serve(until_end=False, on_gone=lambda: None)

    @_route("POST", "/threads/{thread}/cancel", "cancel a turn, or all that run or wait")
    async def cancel(self, request: RouteRequest, body: values.Cancellation) -> values.Cancelled:
        turn = TurnId(body.turn) if body.turn is not None else None
        stopped = await self._conversations.cancel(request.principal, _thread_of(request), turn)
        return values.Cancelled(cancelled=list(stopped))

    @_route(
        "POST", "/prewarm", "open the session of a conversation before its next message", errors=(404, *_AGENT_FAILED)
    )
    async def prewarm(self, request: RouteRequest, body: values.Prewarming) -> values.Prewarmed:
        started = time.perf_counter()
        options = InvokeOptions(agent=body.agent, model=body.model)
        await self._conversations.prewarm(request.principal, ThreadId(body.thread_id), options)
        return values.Prewarmed(
            thread_id=body.thread_id, state="warm", took_ms=round((time.perf_counter() - started) * 1000, 3)
        )


def _thread_of(request: RouteRequest) -> ThreadId:
    return ThreadId(request.path["thread"])


async def _send_end(http: HttpRequest, turn: LiveTurn, on_gone: Callable[[], None]) -> None:
    """Wait for the end of a turn and send it; a failed turn with the status of its error."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch_disconnect, http, on_gone)
        await turn.done.wait()
        tasks.cancel_scope.cancel()
    ended = turn.ended
    assert ended is not None
    code = ErrorCode(ended.error["code"]) if ended.state == "failed" and ended.error else None
    retry_ms = (
        (ended.error or {}).get("details", {}).get("retryAfterMs") if code is ErrorCode.QUEUE_OVERLOADED else None
    )
    headers = [(b"retry-after", b"%d" % math.ceil(retry_ms / 1000))] if retry_ms is not None else None
    status = STATUSES[code] if code is not None else 200
    await send_json(http.send, encode_event(ended), status=status, headers=headers)
