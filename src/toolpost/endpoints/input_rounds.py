"""Requests of the stateless era that take several rounds: a question is the result of one, its answer comes with the next.

A server of the handshake era asks in the middle of a request. That request goes on here between the rounds, within its own
time limit; a server of the stateless era keeps nothing, and its state travels with the client.
"""

import asyncio
import itertools
import secrets
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, Protocol, TypeVar

from toolpost.base.caller import Caller
from toolpost.base.ids import META_KEY, JsonObject
from toolpost.endpoints.request_state import PASSED_TTL_S, State, StateSeal, principal, refused
from toolpost.protocol.era import CLIENT_CAPABILITIES, LOG_LEVEL
from toolpost.protocol.rpc import INVALID_PARAMS, ProtocolError, Resumption, encode
from toolpost.upstreams.notifications import is_level_at_least
from toolpost.upstreams.server_requests import INTERNAL_ERROR, select_capabilities
from toolpost.upstreams.transport import ServerRefused

HELD_LIMIT: Final = 1_000
HELD_BY_ONE_LIMIT: Final = 100
"""How many requests may wait for answers, of all callers and of one."""

KEPT_S: Final = 60.0
"""How long the answer of a request that ended meanwhile is kept for a client that comes back."""

Tell = Callable[[bytes], None]

_T = TypeVar("_T")


class Wish(Protocol):
    """What a client asked for, as far as it matters while it is held."""

    @property
    def ends_at(self) -> float:
        """When its time limit is reached, by the clock of the loop."""
        ...

    def cancel(self, reason: str) -> None:
        """Give it up."""
        ...

    def is_left(self) -> None:
        """Take note that the round is over, and nobody hears of its progress until the next."""
        ...


class _Question:
    __slots__ = ("answer", "method", "params")

    def __init__(self, method: str, params: bytes) -> None:
        self.method = method
        self.params = params
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()


class Held:
    """A request of the stateless era as its server may turn to it; it is held here while a question is with the client."""

    takes_input_required = True

    def __init__(self, rounds: "Rounds", caller: Caller, meta: JsonObject, tell: Tell | None, *, bound_to: str) -> None:
        """Take also what its state is good for: `bound_to` names it."""
        self.id = secrets.token_urlsafe(16)
        self.caller = caller
        self.bound_to = bound_to
        self.capabilities = select_capabilities(meta.get(CLIENT_CAPABILITIES))
        level = meta.get(LOG_LEVEL)
        self.log_level = level if isinstance(level, str) and tell is not None else None
        self.client: Hashable = (caller.id, _session_of(caller, meta) or self.id)
        self.wish: Wish | None = None
        self.task: asyncio.Task[Any] | None = None
        self.round = 0
        self.send = tell
        self._rounds = rounds
        self._numbers = itertools.count(1)
        self._questions: dict[str, _Question] = {}
        self._news = asyncio.Event()

    @property
    def questions(self) -> dict[str, _Question]:
        """What has not been answered yet."""
        return {key: question for key, question in self._questions.items() if not question.answer.done()}

    @property
    def has_open_request(self) -> bool:
        """Whether a question is with the client."""
        return bool(self._questions)

    async def ask(self, method: str, params: bytes) -> bytes:
        """Let the question be the result of the round that is on, and wait for the one that brings the answer."""
        self._rounds.check_room(self)
        key = f"{method.partition('/')[0]}-{next(self._numbers)}"
        question = self._questions[key] = _Question(method, params)
        self._news.set()
        try:
            return await question.answer
        finally:
            del self._questions[key]

    def wants_log(self, level: str) -> bool:
        """Whether a log message of this level is wanted: only where the request has asked for it."""
        return self.log_level is not None and is_level_at_least(level, self.log_level)

    def tell(self, method: str, params: bytes) -> None:
        """Pass a notification on, while a round is on."""
        if self.send is not None:
            self.send(b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (encode(method), params))

    def take(self, responses: JsonObject) -> None:
        """Take the answers that a round has brought; what they do not answer is asked again."""
        for key, question in self._questions.items():
            if key in responses and not question.answer.done():
                question.answer.set_result(encode(responses[key]))

    async def ended_or_asking(self) -> None:
        """Wait until the request has ended or has something to ask."""
        assert self.task is not None
        while not self.task.done() and not self.questions:
            self._news.clear()
            await self._news.wait()
            # What a server asks at once is asked at once.
            await asyncio.sleep(0)

    def end(self, task: "asyncio.Task[Any]") -> None:
        """Take note that the request has ended; how it did is for the client that comes back, if one does."""
        if not task.cancelled():
            task.exception()
        self._news.set()


class Rounds:
    """The requests that wait for answers."""

    def __init__(self, key: bytes) -> None:
        """Take the key that states are signed with."""
        self._seal = StateSeal(key)
        self._held: dict[str, Held] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def check_room(self, held: Held) -> None:
        """Refuse a question where too many wait already."""
        others = [other for other in self._held.values() if other is not held]
        own = sum(other.caller.id == held.caller.id for other in others)
        if len(others) >= HELD_LIMIT or own >= HELD_BY_ONE_LIMIT:
            raise ServerRefused(INTERNAL_ERROR, "Too many calls wait for their clients' answers")

    def resumed(
        self, resumption: Resumption, *, caller: Caller, bound_to: str, request_id: bytes
    ) -> "Held | Resumption":
        """Find the request that a client comes back to; for a server that keeps nothing, what it is to be given."""
        if resumption.state is None:
            return resumption
        state = self._seal.opened(resumption.state, caller=caller, tool=bound_to, request_id=request_id)
        if not state.call:
            return Resumption(responses=resumption.responses, state=state.theirs)
        held = self._held.get(state.call)
        if held is None or held.round != state.round:
            raise refused("has been used already, or its call has ended", "used", request_id)
        if not all(isinstance(response, dict) for response in resumption.responses.values()):
            raise ProtocolError(INVALID_PARAMS, "Each of inputResponses is an object", request_id=request_id)
        del self._held[state.call]
        held.take(resumption.responses)
        return held

    async def answered(self, held: Held, wish: Wish, passing: Callable[[], Awaitable[_T]]) -> _T | bytes:
        """Go on with a request until it ends or asks: its answer, or the result that asks."""
        if held.task is None:
            held.wish = wish
            held.task = asyncio.ensure_future(passing())
            held.task.add_done_callback(held.end)
            self._tasks.add(held.task)
            held.task.add_done_callback(self._tasks.discard)
        try:
            await held.ended_or_asking()
        except asyncio.CancelledError:
            wish.cancel("the client is gone")
            raise
        if held.task.done():
            result: _T = held.task.result()
            return result
        return self._asking(held, wish)

    def end_of(self, caller: Caller) -> None:
        """Give up what a client that is gone has left behind."""
        for held in tuple(self._held.values()):
            if held.caller == caller and held.wish is not None:
                held.wish.cancel("the client is gone")

    async def closed(self) -> None:
        """Give up what is still held, and wait for its end."""
        for held in tuple(self._held.values()):
            if held.wish is not None:
                held.wish.cancel("the server is shutting down")
        if self._tasks:
            await asyncio.wait(self._tasks)

    def sealed_theirs(self, theirs: str, held: Held) -> str:
        """Seal a server's own state on its way through a client."""
        until = time.time() + PASSED_TTL_S
        return self._seal.sealed(State(caller=principal(held.caller), tool=held.bound_to, until=until, theirs=theirs))

    def _asking(self, held: Held, wish: Wish) -> bytes:
        loop = asyncio.get_running_loop()
        held.round += 1
        held.send = None
        wish.is_left()
        self._held[held.id] = held
        left_s = max(0.0, wish.ends_at - loop.time()) + KEPT_S
        loop.call_later(left_s, self._forget, held, held.round)
        state = State(
            caller=principal(held.caller),
            tool=held.bound_to,
            until=time.time() + left_s,
            call=held.id,
            round=held.round,
        )
        asked = b",".join(
            b'%b:{"method":%b,"params":%b}' % (encode(key), encode(question.method), question.params)
            for key, question in held.questions.items()
        )
        return b'"resultType":"input_required","inputRequests":{%b},"requestState":%b' % (
            asked,
            encode(self._seal.sealed(state)),
        )

    def _forget(self, held: Held, number: int) -> None:
        if held.round == number:
            self._held.pop(held.id, None)


def _session_of(caller: Caller, meta: JsonObject) -> str | None:
    """Say which of a caller's clients this is, where that can be known: else every call is a client of its own."""
    facts = meta.get(META_KEY)
    chosen = facts.get("routingKey") if isinstance(facts, dict) else None
    return chosen if isinstance(chosen, str) else caller.session
