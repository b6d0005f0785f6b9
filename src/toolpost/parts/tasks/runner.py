"""Deferred calls on their way: begun, carried to their end, asked about, called off."""

import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Final, TypeVar

import anyio
from anyio.abc import TaskGroup

from toolpost.base.events import event
from toolpost.base.ids import META_KEY, CallerId, JsonObject
from toolpost.contracts.errors import ErrorCode, GatewayError, ToolpostError
from toolpost.gateway import Answer, Gateway
from toolpost.middleware import Call, ProgressNotification
from toolpost.parts.tasks import records
from toolpost.parts.tasks.orphans import HOLD_S, Orphans, task_topic
from toolpost.parts.tasks.owners import new_owner
from toolpost.parts.tasks.records import Deferred, DeferredId, Ending, Wanted
from toolpost.parts.tasks.results import CALLED_OFF, as_text, interrupted, may_be_repeated, refusal_of
from toolpost.parts.tasks.server_requests import LaterRespondent
from toolpost.shares import Callers
from toolpost.store import Store
from toolpost.store.scripts import Script
from toolpost.store.wakeups import Listener

_log = logging.getLogger("toolpost.parts.tasks")

RENEW_S: Final = 5.0
GRACE_S: Final = 1.0
RETRY_S: Final = 0.2
RETRY_LIMIT_S: Final = 5.0

_KEPT_META: Final = ("traceparent", "tracestate", "baggage", META_KEY)

Result = TypeVar("Result")
Write = Callable[[Answer], bytes]


class _Run:
    """A call that this process carries."""

    def __init__(self, call: Call, name: DeferredId) -> None:
        self.call = call
        self.id = name
        self.kept: Deferred | None = None
        self.message: str | None = None
        self.answer: Answer | None = None
        self.answered = anyio.Event()
        self.decided = anyio.Event()
        """Set when it is known whether the answer is kept or sent."""
        self.ended = anyio.Event()
        self.is_called_off = False


class DeferredCalls:
    """What begins deferred calls, carries them, and remembers them."""

    def __init__(
        self,
        store: Store,
        write: Write,
        *,
        ttl_s: float,
        after_s: float = 0.0,
        limit: int,
        callers: Callers,
    ) -> None:
        """Take `write`, which writes an answer as the result of a `tools/call`, and how many calls are kept at most."""
        self._limit = limit
        self._callers = callers
        self._store = store
        self._write = write
        self._ttl_s = ttl_s
        self._after_s = after_s
        self._owner = new_owner()
        self._runs: dict[DeferredId, _Run] = {}
        self._by_call: dict[str, _Run] = {}
        self._has_runs = anyio.Event()
        self._carrier: tuple[TaskGroup, Gateway] | None = None
        """Where calls run, and what they pass; None while none are carried."""

    @asynccontextmanager
    async def open_carrying(self, gateway: Gateway) -> AsyncIterator[None]:
        """Carry calls through this gateway for as long as this is open, and take over those that nobody carries."""
        orphans = Orphans(self._store, gateway, self._owner, ttl_s=self._ttl_s, carry=self._adopt, hear=self.hear)
        async with anyio.create_task_group() as tasks, anyio.create_task_group() as around:
            self._carrier = tasks, gateway
            around.start_soon(self._renew)
            around.start_soon(orphans.sweep)
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    await self._finish()
                self._carrier = None
                around.cancel_scope.cancel()
                tasks.cancel_scope.cancel()

    # What a client does

    async def begin(self, call: Call) -> Answer | Deferred:
        """Keep a call and let it run. Where quick calls are answered at once, return the answer of one that was."""
        run = _Run(call, DeferredId(secrets.token_urlsafe(24)))
        try:
            if not self._after_s:
                run.kept = await self._keep(run)
            self._carry(run)
            if run.kept is None:
                with anyio.move_on_after(self._after_s):
                    await run.answered.wait()
                if run.answer is not None:
                    return run.answer
                run.kept = await self._keep(run)
        except BaseException:
            call.cancel("it could not be kept")
            raise
        finally:
            run.decided.set()
        return run.kept

    def hear(self, note: ProgressNotification) -> None:
        """Take the progress of a call, to be shown to whoever asks for it."""
        if note.message is not None and (run := self._by_call.get(note.facts["id"])) is not None:
            run.message = note.message

    async def find(self, name: DeferredId, caller: CallerId) -> Deferred | None:
        """Find a call of this caller; None if there is none, or none any more."""
        run = self._own(name, caller)
        if run is not None and run.kept is not None and run.answer is None:
            return replace(run.kept, status_message=run.message) if run.message else run.kept
        return await self._run(lambda: records.find(name, caller))

    def questions(self, name: DeferredId, caller: CallerId) -> LaterRespondent | None:
        """Return who is asked what in the middle of a call; None of one that does not run here."""
        run = self._own(name, caller)
        client_channel = None if run is None else run.call.context.client_channel
        return client_channel if isinstance(client_channel, LaterRespondent) else None

    def open_listener(self, name: DeferredId) -> AbstractAsyncContextManager[Listener]:
        """Hear when a call's status may have changed, whichever gateway carries it."""
        return self._store.wakeups.open_listener(task_topic(name))

    def wall(self, at: float) -> float:
        """Return what the wall clock shows at a moment that a call has kept."""
        return self._store.scripts.wall(at)

    def _own(self, name: DeferredId, caller: CallerId) -> _Run | None:
        run = self._runs.get(name)
        return run if run is not None and run.call.caller.id == caller else None

    async def call_off(self, name: DeferredId, caller: CallerId) -> bool:
        """Have a call stopped, wherever it runs; False if this caller has no such call."""
        found = await self._run(lambda: records.call_off(name, caller))
        if found is None:
            return False
        if (run := self._runs.get(name)) is not None:
            self._stop(run)
        elif found.status == "working":
            self._store.wakeups.ring(_topic(found.owner))
        return True

    # How a call gets to its end

    async def _keep(self, run: _Run) -> Deferred:
        call = run.call
        contract = call.tool.contract
        is_repeatable = may_be_repeated(contract)
        wanted = Wanted(
            id=run.id,
            caller=call.caller.id,
            transport=call.caller.transport,
            tool=contract.name,
            # What is never run again need not lie in the store.
            arguments=as_text(call.arguments) if is_repeatable else None,
            meta=as_text(_kept(call.context.meta)) if is_repeatable else None,
            is_repeatable=is_repeatable,
        )
        keep_s = self._ttl_s + contract.timeout_s
        return await self._run(
            lambda: records.begin(
                wanted, self._owner, hold_s=HOLD_S, keep_s=keep_s, limit=self._limit, callers=self._callers
            )
        )

    def _carry(self, run: _Run) -> None:
        if self._carrier is None:
            raise GatewayError("Calls are not carried any more: the server is shutting down.")
        self._runs[run.id] = self._by_call[run.call.id] = run
        if isinstance(run.call.context.client_channel, LaterRespondent):
            run.call.context.client_channel.on_change = lambda: self._store.wakeups.ring(task_topic(run.id))
        self._has_runs.set()
        tasks, gateway = self._carrier
        tasks.start_soon(self._carried, run, gateway)

    def _adopt(self, kept: Deferred, call: Call) -> None:
        run = _Run(call, kept.id)
        run.kept = kept
        run.decided.set()
        self._carry(run)

    async def _carried(self, run: _Run, gateway: Gateway) -> None:
        try:
            run.answer = await gateway.call(run.call)
            run.answered.set()
            await run.decided.wait()
            if run.kept is not None:
                with anyio.CancelScope(shield=True):
                    await self._write_down(run, run.answer)
        finally:
            del self._runs[run.id], self._by_call[run.call.id]
            run.ended.set()
            if run.kept is not None:
                self._store.wakeups.ring(task_topic(run.id))

    async def _write_down(self, run: _Run, answer: Answer) -> None:
        if answer.code == ErrorCode.CANCELLED and not run.is_called_off and may_be_repeated(run.call.tool.contract):
            await self._persist(run, lambda: records.let_go(run.id, self._owner))
            return
        ending = self._ending(run, answer)
        if not await self._persist(run, lambda: records.end(run.id, self._owner, ending, keep_s=self._ttl_s)):
            event(_log, logging.WARNING, "a deferred call ended after it was taken over", task=run.id, call=run.call.id)

    def _ending(self, run: _Run, answer: Answer) -> Ending:
        if answer.code == ErrorCode.CANCELLED:
            return CALLED_OFF if run.is_called_off else interrupted(run.call.tool.contract.name, "was shut down")
        if (refusal := refusal_of(answer)) is not None:
            return refusal
        return Ending(status="completed", message=run.message, result=self._write(answer).decode())

    async def _persist(self, run: _Run, make: Callable[[], Script[Result]]) -> Result | None:
        """Write until it is written: a store that is away for a while must not cost the result."""
        wait_s = RETRY_S
        while self._carrier is not None or wait_s <= RETRY_LIMIT_S / 4:
            try:
                return await self._run(make)
            except ToolpostError as error:
                event(_log, logging.WARNING, "a deferred call not written down", task=run.id, reason=error.message)
                await anyio.sleep(wait_s)
                wait_s = min(RETRY_LIMIT_S, wait_s * 2)
        return None

    def _stop(self, run: _Run) -> None:
        run.is_called_off = True
        run.call.cancel("the client asked for it")

    async def _finish(self) -> None:
        """Give what runs a moment, then end it: it is taken over by the next gateway, or has failed."""
        with anyio.move_on_after(GRACE_S):
            await self._all_ended()
        for run in tuple(self._runs.values()):
            run.call.cancel("the server is shutting down")
        with anyio.move_on_after(RETRY_LIMIT_S):
            await self._all_ended()

    async def _all_ended(self) -> None:
        for run in tuple(self._runs.values()):
            await run.ended.wait()

    # What happens by itself

    async def _renew(self) -> None:
        """Go on owning what runs here, and hear of what was called off elsewhere."""
        while True:
            await self._has_runs.wait()
            async with self._store.wakeups.open_listener(_topic(self._owner)) as bell:
                while self._runs:
                    with anyio.move_on_after(RENEW_S):
                        await bell.wait()
                    try:
                        await self._renew_once()
                    except ToolpostError as error:
                        event(_log, logging.WARNING, "deferred calls not renewed", reason=error.message)
            self._has_runs = anyio.Event()
            if self._runs:
                self._has_runs.set()

    async def _renew_once(self) -> None:
        owned = await self._run(lambda: records.renew(self._owner, hold_s=HOLD_S))
        for name, is_called_off in owned.items():
            if is_called_off and (run := self._runs.get(name)) is not None:
                self._stop(run)

    async def _run(self, make: Callable[[], Script[Result]]) -> Result:
        return await self._store.scripts.run(make)


def _kept(meta: JsonObject) -> JsonObject:
    return {key: meta[key] for key in _KEPT_META if key in meta}


def _topic(owner: str) -> str:
    return f"deferred calls of {owner}"
