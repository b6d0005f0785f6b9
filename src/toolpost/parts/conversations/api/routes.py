"""The API of conversations: threads, messages, what happens in a turn, prewarming. `ROUTES` is all of it.

Whoever may call tools may lead conversations, and sees their own alone. An agent may not: it would talk to itself. Errors are
the error object of the wire, under `error`.
"""

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

import anyio
import msgspec

from toolpost.authoring.conversation import AcceptedTurn, Conversations, InvokeOptions
from toolpost.base.caller import Principal
from toolpost.base.ids import JsonObject, ThreadId, TurnId
from toolpost.base.turns import TurnEnded, encode_event
from toolpost.contracts.errors import ErrorCode, QueueOverloaded, ToolpostError
from toolpost.endpoints.auth.access import Access
from toolpost.endpoints.http.descriptors import has_run_out
from toolpost.endpoints.http.disconnect import close_on_removal
from toolpost.endpoints.http.exchange import send_json
from toolpost.endpoints.http.refusal import Refused, forbidden, overload_status, retry_headers
from toolpost.endpoints.http.request import HttpRequest
from toolpost.parts.conversations.api import values
from toolpost.parts.conversations.api.openapi import Described, description
from toolpost.parts.conversations.api.request import Ask
from toolpost.parts.conversations.api.stream import TurnStream
from toolpost.protocol.rpc import encode, internal_error
from toolpost.shares import Shares

API: Final = "/api"
PAGE_LIMIT: Final = 200

_STATUS: Final[Mapping[ErrorCode, int]] = {
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.INVALID_PARAMS: 400,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.CANCELLED: 409,
    ErrorCode.QUEUE_OVERLOADED: 503,
    ErrorCode.UPSTREAM_UNAVAILABLE: 503,
    ErrorCode.CAPABILITY_MISSING: 503,
    ErrorCode.TOOL_TIMEOUT: 504,
    ErrorCode.HANDLER_ERROR: 502,
}
"""What a code is in HTTP; any other is 500."""


Handler = Callable[["ConversationsApi", Ask], Awaitable[Any]]


@dataclass(frozen=True, kw_only=True)
class ApiRoute(Described):
    """One thing that can be asked, and who answers it."""

    handler: Handler


class ConversationsApi:
    """The paths of conversations."""

    def __init__(
        self,
        access: Access,
        conversations: Conversations,
        streams: Shares,
        *,
        body_limit: int,
        health: Callable[[], JsonObject],
    ) -> None:
        self._access = access
        self._conversations = conversations
        self._streams = streams
        self._body_limit = body_limit
        self._health = health

    def serves(self, path: str) -> bool:
        """Whether a path is one of these."""
        return path == API or path.startswith(f"{API}/")

    async def answer(self, request: HttpRequest) -> None:
        """Answer a request, one that fails with the error object."""
        try:
            route, thread = _find_route(request)
            admission = await self._access.admit(request)
            if admission.caller.thread is not None:
                raise forbidden("An agent may use tools, but not start conversations")
            principal = Principal(caller=admission.caller, scopes=admission.scopes, is_admin=admission.is_admin)
            ask = Ask(request=request, principal=principal, thread=thread, body_limit=self._body_limit)
            async with close_on_removal(request, self._access.roster, admission) if route.streams else nullcontext():
                given = await route.handler(self, ask)
        except Refused as refusal:
            error = {"code": refusal.code.value, "message": str(refusal)}
            await _send_error(request, error, refusal.status, refusal.headers)
        except QueueOverloaded as full:
            await _send_error(request, full.as_object(), overload_status(full), retry_headers(full))
        except ToolpostError as failure:
            await _send_error(request, failure.as_object(), _STATUS.get(failure.code, 500))
        except Exception as bug:
            # A bug of ours gets an answer too.
            if has_run_out(bug):
                raise
            told = internal_error(bug).message
            await _send_error(request, {"code": ErrorCode.INTERNAL.value, "message": told}, 500)
        else:
            if given is not None:
                await send_json(request.send, encode(given), status=route.status)

    # -- threads ---------------------------------------------------------------------------------------------------------

    async def list_agents(self, _: Ask) -> values.AgentList:
        """Say who answers."""
        default = self._conversations.default_agent
        return values.AgentList(
            agents=[
                values.ShownAgent(name=each.name, kind=each.kind, model=each.model, is_default=each.name == default)
                for each in self._conversations.list_agents()
            ]
        )

    async def list_threads(self, ask: Ask) -> values.ThreadList:
        """Show a page of the caller's threads."""
        limit = int(ask.number("limit", 50, PAGE_LIMIT))
        before = ask.number("before", 0, 1e12)
        found = await self._conversations.list_threads(ask.principal, before=before or None, limit=limit)
        last = f"{found[-1].changed_at!r}" if found and len(found) == limit else None
        return values.ThreadList(threads=[self._shown(thread) for thread in found], next=last)

    async def create_thread(self, ask: Ask) -> values.ShownThread:
        """Begin a conversation."""
        body = await ask.body(values.NewThread)
        created = await self._conversations.create_thread(
            ask.principal, title=body.title, agent=body.agent, model=body.model
        )
        return self._shown(created)

    async def show_thread(self, ask: Ask) -> values.ShownThread:
        """Show one thread."""
        return self._shown(await self._conversations.find_thread(ask.principal, ask.thread))

    async def change_thread(self, ask: Ask) -> values.ShownThread:
        """Change what may be changed of a thread."""
        body = await ask.body(values.ThreadChange)
        # Below, None stays as it is and nothing at all is forgotten; on the wire that is left out, and null.
        agent, model = [None if new is msgspec.UNSET else new or "" for new in (body.agent, body.model)]
        changed = await self._conversations.change_thread(
            ask.principal, ask.thread, title=body.title, agent=agent, model=model
        )
        return self._shown(changed)

    async def delete_thread(self, ask: Ask) -> JsonObject:
        """Forget a thread."""
        ask.check_not_a_form()
        await self._conversations.delete_thread(ask.principal, ask.thread)
        return {}

    async def list_messages(self, ask: Ask) -> values.MessageList:
        """Show what was said."""
        after, limit = int(ask.number("after", 0, 2**53)), int(ask.number("limit", 100, PAGE_LIMIT))
        found = await self._conversations.read_messages(ask.principal, ask.thread, after=after, limit=limit)
        return values.MessageList(messages=[values.render_message(message) for message in found])

    async def list_turns(self, ask: Ask) -> values.TurnList:
        """Show how each message was answered."""
        limit = int(ask.number("limit", 50, PAGE_LIMIT))
        found = await self._conversations.list_turns(ask.principal, ask.thread, limit=limit)
        return values.TurnList(turns=[values.render_turn(turn) for turn in found])

    # -- turns -----------------------------------------------------------------------------------------------------------

    async def say(self, ask: Ask) -> None:
        """Answer a message: as a stream of events, or at once when it has ended."""
        body = await ask.body(values.NewMessage)
        request = ask.request
        stream = TurnStream(request.receive, request.send)
        options = InvokeOptions(agent=body.agent, model=body.model, timeout_s=body.timeout_s, on_event=stream.tell)
        is_streamed = b"text/event-stream" in request.headers.get(b"accept", b"")
        with self._streams.held(ask.principal.caller.id) if is_streamed else nullcontext():
            run = await self._conversations.start_message(ask.principal, ask.thread, body.text, options)

            def leave() -> None:
                if body.on_disconnect == "cancel":
                    run.stop("cancelled", "the client is gone")

            if is_streamed:
                await stream.serve(until_end=True, on_gone=leave)
            else:
                await _answer_whole(request, run, leave)

    async def follow(self, ask: Ask) -> None:
        """Tell all that happens in a thread, for as long as the client listens."""
        await self._conversations.find_thread(ask.principal, ask.thread)
        stream = TurnStream(ask.request.receive, ask.request.send)
        with self._streams.held(ask.principal.caller.id), self._conversations.open_listener(ask.thread, stream.tell):
            await stream.serve(until_end=False, on_gone=lambda: None)

    async def cancel(self, ask: Ask) -> values.Cancelled:
        """Stop what runs or waits in a thread."""
        body = await ask.body(values.Cancellation)
        turn = TurnId(body.turn) if body.turn is not None else None
        stopped = await self._conversations.cancel(ask.principal, ask.thread, turn)
        return values.Cancelled(cancelled=list(stopped))

    async def prewarm(self, ask: Ask) -> values.Prewarmed:
        """Have the session of a thread ready, by the same key as its next message."""
        body = await ask.body(values.Prewarming)
        started = time.perf_counter()
        options = InvokeOptions(agent=body.agent, model=body.model)
        await self._conversations.prewarm(ask.principal, ThreadId(body.thread_id), options)
        return values.Prewarmed(
            thread_id=body.thread_id, state="warm", took_ms=round((time.perf_counter() - started) * 1000, 3)
        )

    async def show_health(self, ask: Ask) -> JsonObject:
        """Say how the server and its plugins are doing."""
        # Whoever may not see everything learns that the server is up, and nothing about it.
        return {"status": "ok"} if ask.principal.scopes else self._health()

    async def describe(self, _: Ask) -> JsonObject:
        """Describe all of this."""
        return description(ROUTES)

    def _shown(self, thread: Any) -> values.ShownThread:
        running = [str(turn) for turn in self._conversations.running_in(thread.id)]
        return values.render_thread(thread, is_warm=self._conversations.is_warm(thread.id), running=running)


_THREAD: Final = f"{API}/threads/{{thread}}"

ROUTES: Final = (
    ApiRoute(
        method="GET",
        path=f"{API}/openapi.json",
        summary="this description",
        handler=ConversationsApi.describe,
    ),
    ApiRoute(
        method="GET",
        path=f"{API}/health",
        summary="how the server and each plugin is doing",
        handler=ConversationsApi.show_health,
    ),
    ApiRoute(
        method="GET",
        path=f"{API}/agents",
        summary="who answers",
        handler=ConversationsApi.list_agents,
        gives=values.AgentList,
    ),
    ApiRoute(
        method="GET",
        path=f"{API}/threads",
        summary="your conversations, those that changed last first",
        handler=ConversationsApi.list_threads,
        gives=values.ThreadList,
        query=("before", "limit"),
    ),
    ApiRoute(
        method="POST",
        path=f"{API}/threads",
        summary="begin a conversation",
        handler=ConversationsApi.create_thread,
        takes=values.NewThread,
        gives=values.ShownThread,
        status=201,
        refuses=(429, 503),
    ),
    ApiRoute(
        method="GET",
        path=_THREAD,
        summary="one conversation",
        handler=ConversationsApi.show_thread,
        gives=values.ShownThread,
    ),
    ApiRoute(
        method="PATCH",
        path=_THREAD,
        summary="rename a conversation, or have another agent or model answer",
        handler=ConversationsApi.change_thread,
        takes=values.ThreadChange,
        gives=values.ShownThread,
    ),
    ApiRoute(
        method="DELETE",
        path=_THREAD,
        summary="forget a conversation with all that was said in it",
        handler=ConversationsApi.delete_thread,
    ),
    ApiRoute(
        method="GET",
        path=f"{_THREAD}/messages",
        summary="what was said, in order",
        handler=ConversationsApi.list_messages,
        gives=values.MessageList,
        query=("after", "limit"),
    ),
    ApiRoute(
        method="POST",
        path=f"{_THREAD}/messages",
        summary="say something; answered when the turn has ended, or event by event to `Accept: text/event-stream`",
        handler=ConversationsApi.say,
        takes=values.NewMessage,
        gives=TurnEnded,
        streams=True,
        refuses=(429, 502, 503, 504),
    ),
    ApiRoute(
        method="GET",
        path=f"{_THREAD}/turns",
        summary="how each message was answered, the latest first",
        handler=ConversationsApi.list_turns,
        gives=values.TurnList,
        query=("limit",),
    ),
    ApiRoute(
        method="GET",
        path=f"{_THREAD}/events",
        summary="all that happens in a conversation from now on, whoever speaks",
        handler=ConversationsApi.follow,
        streams=True,
        refuses=(429, 503),
    ),
    ApiRoute(
        method="POST",
        path=f"{_THREAD}/cancel",
        summary="stop a turn, or all that run or wait",
        handler=ConversationsApi.cancel,
        takes=values.Cancellation,
        gives=values.Cancelled,
    ),
    ApiRoute(
        method="POST",
        path=f"{API}/prewarm",
        summary="have the session of a conversation ready before its next message",
        handler=ConversationsApi.prewarm,
        takes=values.Prewarming,
        gives=values.Prewarmed,
        refuses=(404, 429, 502, 503, 504),
    ),
)
"""Every path, and what it does."""


def _find_route(request: HttpRequest) -> tuple[ApiRoute, ThreadId]:
    parts = request.path.split("/")
    methods = []
    for route in ROUTES:
        wanted = route.path.split("/")
        if len(parts) != len(wanted) or any(b not in (a, "{thread}") for a, b in zip(parts, wanted, strict=True)):
            continue
        if route.method == request.method:
            return route, ThreadId(parts[3] if "{thread}" in wanted else "")
        methods.append(route.method)
    if not methods:
        raise Refused(404, ErrorCode.NOT_FOUND, f"Not found; {API}/openapi.json says what there is")
    allowed = ", ".join(methods)
    message = f"This path takes {allowed} only"
    raise Refused(405, ErrorCode.INVALID_REQUEST, message, headers=[(b"allow", allowed.encode())])


async def _answer_whole(request: HttpRequest, turn: AcceptedTurn, leave: Callable[[], None]) -> None:
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                continue
            leave()

        tasks.start_soon(watch)
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
    await send_json(request.send, encode_event(ended), status=status, headers=headers)


async def _send_error(
    request: HttpRequest, error: JsonObject, status: int, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    await send_json(request.send, encode({"error": error}), status=status, headers=headers)
