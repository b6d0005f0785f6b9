"""Calls of the stateless era that take several rounds: a question is the result of one, its answer comes with the next.

A server of the handshake era asks in the middle of a call. That call goes on here between the rounds, within its own time
limit; a server of the stateless era keeps nothing, and its state travels with the client.
"""

import asyncio
import itertools
import secrets
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Final

from toolpost.contracts.caller import Caller
from toolpost.contracts.ids import META_KEY, JsonObject
from toolpost.endpoints.request_state import PASSED_TTL_S, State, StateSeal, principal, refused
from toolpost.gateway import Answer
from toolpost.pipeline import Call, ProgressNote
from toolpost.protocol.era import CLIENT_CAPABILITIES, LOG_LEVEL
from toolpost.protocol.rpc import INVALID_PARAMS, ProtocolError, Resumption, encode
from toolpost.upstreams.asking import INTERNAL_ERROR, asked_for
from toolpost.upstreams.news import reaches
from toolpost.upstreams.wire import ServerRefused

HELD_LIMIT: Final = 1_000
HELD_BY_ONE_LIMIT: Final = 100
"""How many calls may wait for answers, of all callers and of one."""

KEPT_S: Final = 60.0
"""How long the answer of a call that ended meanwhile is kept for a client that comes back."""

Tell = Callable[[bytes], None]


class _Question:
    __slots__ = ("answer", "method", "params")

    def __init__(self, method: str, params: bytes) -> None:
        self.method = method
        self.params = params
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()


class Held:
    """A call of the stateless era as its server may turn to it; it is held here while a question is with the client."""

    takes_rounds = True

    def __init__(self, rounds: "Rounds", caller: Caller, meta: JsonObject, tell: Tell | None) -> None:
        self.id = secrets.token_urlsafe(16)
        self.caller = caller
        self.capabilities = asked_for(meta.get(CLIENT_CAPABILITIES))
        level = meta.get(LOG_LEVEL)
        self.log_level = level if isinstance(level, str) and tell is not None else None
        self.client: Hashable = (caller.id, _session_of(caller, meta) or self.id)
        self.call: Call | None = None
        self.task: asyncio.Task[Answer] | None = None
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

    def hears(self, level: str) -> bool:
        """Whether a log message of this level is wanted: only where the request has asked for it."""
        return self.log_level is not None and reaches(level, self.log_level)

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
        """Wait until the call has ended or has something to ask."""
        assert self.task is not None
        while not self.task.done() and not self.questions:
            self._news.clear()
            await self._news.wait()
            # What a server asks at once is asked at once.
            await asyncio.sleep(0)

    def wake(self, _task: object = None) -> None:
        """Say that something has happened."""
        self._news.set()


class Rounds:
    """The calls that wait for answers."""

    def __init__(self) -> None:
        self._seal = StateSeal()
        self._held: dict[str, Held] = {}
        self._tasks: set[asyncio.Task[Answer]] = set()

    def check_room(self, held: Held) -> None:
        """Refuse a question where too many wait already."""
        others = [other for other in self._held.values() if other is not held]
        own = sum(other.caller.id == held.caller.id for other in others)
        if len(others) >= HELD_LIMIT or own >= HELD_BY_ONE_LIMIT:
            raise ServerRefused(INTERNAL_ERROR, "Too many calls wait for their clients' answers")

    def resumed(self, resumption: Resumption, *, caller: Caller, tool: str, request_id: bytes) -> "Held | Resumption":
        """Find the call that a client comes back to; for a server that keeps nothing, what it is to be given."""
        if resumption.state is None:
            return resumption
        state = self._seal.opened(resumption.state, caller=caller, tool=tool, request_id=request_id)
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

    async def answered(self, held: Held, call: Call, passing: Callable[[Call], Awaitable[Answer]]) -> Answer | bytes:
        """Go on with a call until it ends or asks: its answer, or the result that asks."""
        if held.task is None:
            held.call = call
            held.task = asyncio.ensure_future(passing(call))
            held.task.add_done_callback(held.wake)
            self._tasks.add(held.task)
            held.task.add_done_callback(self._tasks.discard)
        try:
            await held.ended_or_asking()
        except asyncio.CancelledError:
            call.cancel("the client is gone")
            raise
        if held.task.done():
            return held.task.result()
        return self._asking(held, call)

    def end_of(self, caller: Caller) -> None:
        """Give up the calls of a client that is gone."""
        for held in tuple(self._held.values()):
            if held.caller == caller and held.call is not None:
                held.call.cancel("the client is gone")

    async def closed(self) -> None:
        """Wait for the end of calls that were cancelled."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def gone_on(self, held: Held, tell: Tell | None, emit: Callable[[ProgressNote], None] | None) -> Call:
        """Let a call that was held be heard again, in the round that is on now."""
        assert held.call is not None
        held.send = tell
        if held.call.progress is not None:
            held.call.progress.redirect(emit)
        return held.call

    def sealed_theirs(self, theirs: str, call: Call) -> str:
        """Seal a server's own state on its way through a client."""
        until = time.time() + PASSED_TTL_S
        tool = call.tool.contract.name
        return self._seal.sealed(State(caller=principal(call.caller), tool=tool, until=until, theirs=theirs))

    def _asking(self, held: Held, call: Call) -> bytes:
        loop = asyncio.get_running_loop()
        held.round += 1
        held.send = None
        if call.progress is not None:
            call.progress.redirect(None)
        self._held[held.id] = held
        left_s = max(0.0, call.started + call.tool.contract.timeout_s - loop.time()) + KEPT_S
        loop.call_later(left_s, self._forget, held, held.round)
        state = State(
            caller=principal(call.caller),
            tool=call.tool.contract.name,
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
