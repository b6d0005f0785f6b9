"""Requests of the stateless era that take several rounds (`input_required`).

A server of the handshake era asks in the middle of a request. In the stateless era there is no channel for that: the server's
request becomes the *result* of the client's request, and its response comes with the client's next request, which names the
first one by its `requestState`. Between these rounds the call keeps running here, within its own time limit. A server of the
stateless era keeps nothing; its own state travels with the client.

Example: `tools/call` → the server asks for an elicitation → the client gets `{"resultType": "input_required",
"inputRequests": {"elicitation-1": …}, "requestState": …}` → the client calls again with `inputResponses` and that state → the
server's request is answered, the call goes on, and its result is the second answer.
"""

import asyncio
import itertools
import secrets
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, Protocol, TypeVar

from toolpost.base.caller import Caller
from toolpost.base.ids import META_KEY, JsonObject
from toolpost.endpoints.client_session import OpenRequest, write_notification
from toolpost.endpoints.request_state import PASSED_TTL_S, RequestState, StateSeal, principal, reject_state
from toolpost.protocol.era import CLIENT_CAPABILITIES, LOG_LEVEL
from toolpost.protocol.rpc import INVALID_PARAMS, ProtocolError, Resumption, encode
from toolpost.upstreams.notifications import is_level_at_least
from toolpost.upstreams.server_requests import INTERNAL_ERROR, select_capabilities
from toolpost.upstreams.transport import ServerRefused

WAITING_LIMIT: Final = 1_000
WAITING_LIMIT_PER_CALLER: Final = 100
"""How many requests may wait for responses, in total and of one caller."""

KEPT_S: Final = 60.0
"""For how many seconds a waiting request is kept after its time limit, for a client that comes back for its result."""

Send = Callable[[bytes], None]

_T = TypeVar("_T")


class PausableOperation(Protocol):
    """A call or a read that may wait for the client's input."""

    @property
    def ends_at(self) -> float:
        """When its time limit is reached, by the clock of the event loop."""
        ...

    def cancel(self, reason: str) -> None: ...

    def detach_progress(self) -> None:
        """Stop sending progress: the round is over, and the next one may attach a new receiver."""
        ...


class RoundsChannel:
    """One request of the stateless era through all its rounds; the channel for requests of its server."""

    takes_input_required = True

    def __init__(
        self, rounds: "RoundsChannels", caller: Caller, meta: JsonObject, tell: Send | None, *, bound_to: str
    ) -> None:
        """`bound_to` names the tool, prompt or resource that its state is valid for."""
        self.id = secrets.token_urlsafe(16)
        self.caller = caller
        self.bound_to = bound_to
        self.capabilities = select_capabilities(meta.get(CLIENT_CAPABILITIES))
        level = meta.get(LOG_LEVEL)
        self.log_level = level if isinstance(level, str) and tell is not None else None
        self.client: Hashable = (caller.id, _session_of(caller, meta) or self.id)
        self.operation: PausableOperation | None = None
        self.task: asyncio.Task[Any] | None = None
        self.round = 0
        self.send = tell
        self._rounds = rounds
        self._numbers = itertools.count(1)
        self._requests: dict[str, OpenRequest] = {}
        self._changed = asyncio.Event()

    @property
    def open_requests(self) -> dict[str, OpenRequest]:
        """Server requests without a response."""
        return {
            key: server_request for key, server_request in self._requests.items() if not server_request.answer.done()
        }

    @property
    def can_tell(self) -> bool:
        """Whether a round is open whose response takes notifications."""
        return self.send is not None

    @property
    def has_open_request(self) -> bool:
        """Whether a server request is with the client."""
        return bool(self._requests)

    async def ask(self, method: str, params: bytes, *, key: str | None = None) -> bytes:
        """Make the server's request part of the result of this round, and wait for the round that brings the response."""
        self._rounds.check_capacity(self)
        if key is None or key in self._requests:
            key = f"{method.partition('/')[0]}-{next(self._numbers)}"
        server_request = self._requests[key] = OpenRequest(method, params)
        self._changed.set()
        try:
            return await server_request.answer
        finally:
            del self._requests[key]

    def wants_log(self, level: str) -> bool:
        """Whether a log message of this level is sent: only if the request has asked for logs."""
        return self.log_level is not None and is_level_at_least(level, self.log_level)

    def tell(self, method: str, params: bytes) -> None:
        """Send a notification, during a round only."""
        if self.send is not None:
            self.send(write_notification(method, params))

    def take_responses(self, responses: JsonObject) -> None:
        """Take the responses of a round; server requests without one are sent again."""
        for key, server_request in self._requests.items():
            if key in responses and not server_request.answer.done():
                server_request.answer.set_result(encode(responses[key]))

    async def wait_for_round(self) -> None:
        """Wait until the request has ended or its server asks for input."""
        assert self.task is not None
        while not self.task.done() and not self.open_requests:
            self._changed.clear()
            await self._changed.wait()
            # One more turn of the loop: requests that a server sends together go out in one result.
            await asyncio.sleep(0)

    def end(self, task: "asyncio.Task[Any]") -> None:
        """Wake the waiter. The task's exception is retrieved here, because the client may never come back for it."""
        if not task.cancelled():
            task.exception()
        self._changed.set()


class RoundsChannels:
    """All requests that wait for responses."""

    def __init__(self, key: bytes) -> None:
        """`key` signs the states."""
        self._seal = StateSeal(key)
        self._process = secrets.token_hex(4)
        self._waiting: dict[str, RoundsChannel] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def check_capacity(self, request: RoundsChannel) -> None:
        """Raise `ServerRefused` if too many requests wait already."""
        others = [other for other in self._waiting.values() if other is not request]
        own = sum(other.caller.id == request.caller.id for other in others)
        if len(others) >= WAITING_LIMIT or own >= WAITING_LIMIT_PER_CALLER:
            raise ServerRefused(INTERNAL_ERROR, "Too many calls wait for their clients' answers")

    def resume(
        self, resumption: Resumption, *, caller: Caller, bound_to: str, request_id: bytes
    ) -> "RoundsChannel | Resumption":
        """Return the waiting request that a client continues.

        For a server of the stateless era, which keeps nothing, return what to send it. Raises `ProtocolError` for a state
        that is not valid.
        """
        if resumption.state is None:
            return resumption
        state = self._seal.open(resumption.state, caller=caller, tool=bound_to, request_id=request_id)
        if not state.call:
            return Resumption(responses=resumption.responses, state=state.theirs)
        request = self._waiting.get(state.call)
        if request is None and state.process != self._process:
            # What waits is a running function or a server's request, which cannot be handed to another process.
            raise reject_state(
                "belongs to a call that waits in another process, or that ended when its process did",
                "elsewhere",
                request_id,
            )
        if request is None or request.round != state.round:
            raise reject_state("has been used already, or its call has ended", "used", request_id)
        if not all(isinstance(response, dict) for response in resumption.responses.values()):
            raise ProtocolError(INVALID_PARAMS, "Each of inputResponses is an object", request_id=request_id)
        # Removed before it goes on, so that two requests with the same state cannot both continue it.
        del self._waiting[state.call]
        request.take_responses(resumption.responses)
        return request

    async def run_round(
        self, request: RoundsChannel, operation: PausableOperation, run: Callable[[], Awaitable[_T]]
    ) -> _T | bytes:
        """Run a request until it ends or asks: return its answer, or the fields of an `input_required` result."""
        if request.task is None:
            request.operation = operation
            # A task of its own: this request ends with the round, the call goes on.
            request.task = asyncio.ensure_future(run())
            request.task.add_done_callback(request.end)
            self._tasks.add(request.task)
            request.task.add_done_callback(self._tasks.discard)
        try:
            await request.wait_for_round()
        except asyncio.CancelledError:
            operation.cancel("the client is gone")
            raise
        if request.task.done():
            result: _T = request.task.result()
            return result
        return self._pause(request, operation)

    def cancel_all_of(self, caller: Caller) -> None:
        """Cancel the waiting requests of a client that has disconnected."""
        for request in tuple(self._waiting.values()):
            if request.caller == caller and request.operation is not None:
                request.operation.cancel("the client is gone")

    async def close(self) -> None:
        """Cancel all waiting requests, and wait for their tasks."""
        for request in tuple(self._waiting.values()):
            if request.operation is not None:
                request.operation.cancel("the server is shutting down")
        if self._tasks:
            await asyncio.wait(self._tasks)

    def seal_server_state(self, theirs: str, request: RoundsChannel) -> str:
        """Sign a server's own state before a client carries it."""
        until = time.time() + PASSED_TTL_S
        return self._seal.seal(
            RequestState(caller=principal(request.caller), tool=request.bound_to, until=until, theirs=theirs)
        )

    def _pause(self, request: RoundsChannel, operation: PausableOperation) -> bytes:
        loop = asyncio.get_running_loop()
        # A state is valid for one round: a replayed one finds another number.
        request.round += 1
        request.send = None
        operation.detach_progress()
        self._waiting[request.id] = request
        kept_s = max(0.0, operation.ends_at - loop.time()) + KEPT_S
        loop.call_later(kept_s, self._forget, request, request.round)
        state = RequestState(
            caller=principal(request.caller),
            tool=request.bound_to,
            until=time.time() + kept_s,
            call=request.id,
            round=request.round,
            process=self._process,
        )
        asked = b",".join(
            b'%b:{"method":%b,"params":%b}' % (encode(key), encode(server_request.method), server_request.params)
            for key, server_request in request.open_requests.items()
        )
        return b'"resultType":"input_required","inputRequests":{%b},"requestState":%b' % (
            asked,
            encode(self._seal.seal(state)),
        )

    def _forget(self, request: RoundsChannel, number: int) -> None:
        if request.round == number:
            self._waiting.pop(request.id, None)


def _session_of(caller: Caller, meta: JsonObject) -> str | None:
    """Identify the client among those of its caller, where that is possible; else every call counts as a client of its own."""
    facts = meta.get(META_KEY)
    chosen = facts.get("routingKey") if isinstance(facts, dict) else None
    return chosen if isinstance(chosen, str) else caller.session
