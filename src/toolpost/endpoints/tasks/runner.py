"""Runs tasks: starts their calls, stores the outcomes, finds and cancels them, and renews the ownership of those that run here.

A call that ends within `after_s` is answered directly, and never stored. Otherwise its client gets a handle, and the outcome is
stored for `ttl_s`:

    begin -> the call runs -> ended within after_s?  yes: its answer is returned
                                                     no:  a TaskRecord is stored and returned; later its outcome
"""

import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Final, TypeVar

import anyio
from anyio.abc import TaskGroup

from toolpost.base import event, redact
from toolpost.base.ids import META_KEY, CallerId, JsonObject
from toolpost.contracts.errors import CallCancelled, ErrorCode, ToolpostError
from toolpost.endpoints.tasks import records
from toolpost.endpoints.tasks.orphans import HOLD_S, Orphans, task_topic
from toolpost.endpoints.tasks.owners import new_owner
from toolpost.endpoints.tasks.polled_channel import PolledChannel
from toolpost.endpoints.tasks.records import McpTaskId, NewTask, TaskOutcome, TaskRecord
from toolpost.endpoints.tasks.results import CANCELLED, encode_text, make_interruption, may_be_repeated, refusal_of
from toolpost.fairness import Callers
from toolpost.gateway import Answer, Gateway
from toolpost.middleware import Call, ProgressNotification
from toolpost.protocol.era import CLIENT_CAPABILITIES
from toolpost.store import Listener, Script, Store
from toolpost.upstreams.server_requests import select_capabilities

_log = logging.getLogger("toolpost.endpoints.tasks")

TASKS_LIMIT: Final = 20_000
"""Tasks that are stored at once."""
RENEW_S: Final = 5.0
GRACE_S: Final = 1.0
"""How long running calls may take to end when the runner closes."""
RETRY_S: Final = 0.2
RETRY_LIMIT_S: Final = 5.0

_STORED_META: Final = ("traceparent", "tracestate", "baggage", META_KEY)

Result = TypeVar("Result")
Write = Callable[[Answer], bytes]


class TaskClientChannel(PolledChannel):
    """Stands for a client that is not connected while its call runs, and polls.

    Requests of a server are kept until the client reads them with `tasks/get` and answers with `tasks/update`.
    """

    def __init__(self, caller: CallerId, meta: JsonObject) -> None:
        super().__init__(caller, select_capabilities(meta.get(CLIENT_CAPABILITIES)))


class _RunningTask:
    """A task that runs in this process."""

    def __init__(self, call: Call, name: McpTaskId) -> None:
        self.call = call
        self.id = name
        self.record: TaskRecord | None = None
        self.message: str | None = None
        self.answer: Answer | None = None
        self.answered = anyio.Event()
        self.decided = anyio.Event()
        """Set when it is decided whether the answer is stored or sent."""
        self.ended = anyio.Event()
        self.is_cancelled = False


class TaskRunner:
    """Starts, runs and stores tasks."""

    def __init__(
        self,
        store: Store,
        write: Write,
        *,
        ttl_s: float,
        after_s: float = 0.0,
        callers: Callers,
    ) -> None:
        """Take `write`, which encodes an answer as the result of a `tools/call`."""
        self._callers = callers
        self._store = store
        self._write = write
        self._ttl_s = ttl_s
        self._after_s = after_s
        self._owner = new_owner()
        self._runs: dict[McpTaskId, _RunningTask] = {}
        self._by_call: dict[str, _RunningTask] = {}
        self._has_runs = anyio.Event()
        self._open: tuple[TaskGroup, Gateway] | None = None
        """The task group and the gateway of calls; None before the runner is open, and once it has closed."""

    @asynccontextmanager
    async def open_running(self, gateway: Gateway) -> AsyncIterator[None]:
        """Run tasks through this gateway until the block is left, those whose process ended included."""
        orphans = Orphans(
            self._store, gateway, self._owner, ttl_s=self._ttl_s, run_again=self._run_again, on_progress=self.hear
        )
        async with anyio.create_task_group() as calls, anyio.create_task_group() as periodic:
            self._open = calls, gateway
            periodic.start_soon(self._renew)
            periodic.start_soon(orphans.sweep)
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    await self._finish()
                self._open = None
                periodic.cancel_scope.cancel()
                calls.cancel_scope.cancel()

    # -- requests of clients

    async def begin(self, call: Call) -> Answer | TaskRecord:
        """Start a call; return its stored task, or its answer if it ended within `after_s`.

        A call whose task cannot be stored is cancelled.
        """
        run = _RunningTask(call, McpTaskId(secrets.token_urlsafe(24)))
        try:
            if not self._after_s:
                run.record = await self._store_task(run)
            self._start(run)
            if run.record is None:
                with anyio.move_on_after(self._after_s):
                    await run.answered.wait()
                if run.answer is not None:
                    return run.answer
                run.record = await self._store_task(run)
        except BaseException:
            call.cancel("its task could not be stored")
            raise
        finally:
            run.decided.set()
        return run.record

    def hear(self, note: ProgressNotification) -> None:
        """Take the progress of a call as the message of its task."""
        if note.message is not None and (run := self._by_call.get(note.facts["id"])) is not None:
            run.message = note.message

    async def find(self, name: McpTaskId, caller: CallerId) -> TaskRecord | None:
        """Find a task of this caller; None if there is none, or it has expired."""
        run = self._find_run(name, caller)
        if run is not None and run.record is not None and run.answer is None:
            return replace(run.record, status_message=run.message) if run.message else run.record
        return await self._run(lambda: records.find(name, caller))

    def find_requests(self, name: McpTaskId, caller: CallerId) -> TaskClientChannel | None:
        """Return the server requests of a task; None if it does not run in this process."""
        run = self._find_run(name, caller)
        client_channel = None if run is None else run.call.context.client_channel
        return client_channel if isinstance(client_channel, TaskClientChannel) else None

    def open_listener(self, name: McpTaskId) -> AbstractAsyncContextManager[Listener]:
        """Listen for changes of a task's status, whichever gateway runs it."""
        return self._store.wakeups.open_listener(task_topic(name))

    def wall(self, at: float) -> float:
        """Convert a time of the store to the wall clock."""
        return self._store.scripts.wall(at)

    def _find_run(self, name: McpTaskId, caller: CallerId) -> _RunningTask | None:
        run = self._runs.get(name)
        return run if run is not None and run.call.caller.id == caller else None

    async def cancel(self, name: McpTaskId, caller: CallerId) -> bool:
        """Cancel a task, whichever gateway runs it; return False if this caller has no such task."""
        found = await self._run(lambda: records.request_cancel(name, caller))
        if found is None:
            return False
        if (run := self._runs.get(name)) is not None:
            self._stop(run)
        elif found.status == "working":
            self._store.wakeups.ring(_owner_topic(found.owner))
        return True

    # -- running a task

    async def _store_task(self, run: _RunningTask) -> TaskRecord:
        call = run.call
        contract = call.tool.contract
        # Arguments with a secret are not written down, so such a call cannot be run again. Nor is that of an agent, whose limits
        # end with its conversation: a record of the call does not have them.
        is_secret = redact(call.arguments) is not call.arguments
        is_repeatable = may_be_repeated(contract) and not is_secret and not call.caller.is_agent
        meta = {key: value for key, value in call.context.meta.items() if key in _STORED_META}
        task = NewTask(
            id=run.id,
            caller=call.caller.id,
            transport=call.caller.transport,
            tool=contract.name,
            # Needed only to run the call again.
            arguments=encode_text(call.arguments) if is_repeatable else None,
            meta=encode_text(meta) if is_repeatable else None,
            is_repeatable=is_repeatable,
        )
        keep_s = self._ttl_s + contract.timeout_s
        return await self._run(
            lambda: records.begin(
                task, self._owner, hold_s=HOLD_S, keep_s=keep_s, limit=TASKS_LIMIT, callers=self._callers
            )
        )

    def _start(self, run: _RunningTask) -> None:
        if self._open is None:
            raise CallCancelled("The server is shutting down: no task can be started.")
        self._runs[run.id] = self._by_call[run.call.id] = run
        if isinstance(run.call.context.client_channel, TaskClientChannel):
            run.call.context.client_channel.on_change = lambda: self._store.wakeups.ring(task_topic(run.id))
        self._has_runs.set()
        calls, gateway = self._open
        calls.start_soon(self._run_call, run, gateway)

    def _run_again(self, record: TaskRecord, call: Call) -> None:
        run = _RunningTask(call, record.id)
        run.record = record
        run.decided.set()
        self._start(run)

    async def _run_call(self, run: _RunningTask, gateway: Gateway) -> None:
        try:
            run.answer = await gateway.call(run.call)
            run.answered.set()
            await run.decided.wait()
            if run.record is not None:
                with anyio.CancelScope(shield=True):
                    await self._store_answer(run, run.answer)
        finally:
            del self._runs[run.id], self._by_call[run.call.id]
            run.ended.set()
            if run.record is not None:
                self._store.wakeups.ring(task_topic(run.id))

    async def _store_answer(self, run: _RunningTask, answer: Answer) -> None:
        # Cancelled by our shutdown and not by the client: the task is given up, so that another gateway adopts it at once.
        if answer.code == ErrorCode.CANCELLED and not run.is_cancelled and may_be_repeated(run.call.tool.contract):
            await self._persist(run, lambda: records.release(run.id, self._owner))
            return
        if answer.code == ErrorCode.CANCELLED:
            name = run.call.tool.contract.name
            outcome = CANCELLED if run.is_cancelled else make_interruption(name, "was shut down")
        elif (refusal := refusal_of(answer)) is not None:
            outcome = refusal
        else:
            outcome = TaskOutcome(status="completed", message=run.message, result=self._write(answer).decode())
        if not await self._persist(run, lambda: records.end(run.id, self._owner, outcome, keep_s=self._ttl_s)):
            event(
                _log,
                logging.WARNING,
                "a task ended after another gateway had adopted it",
                task=run.id,
                call=run.call.id,
            )

    async def _persist(self, run: _RunningTask, make: Callable[[], Script[Result]]) -> Result | None:
        """Retry until it is stored, so that an unavailable store does not lose the result. None if the runner closes first."""
        wait_s = RETRY_S
        # While the runner closes, a few more tries: the shutdown waits for them, and must not wait for a store that is away.
        while self._open is not None or wait_s <= RETRY_LIMIT_S / 4:
            try:
                return await self._run(make)
            except ToolpostError as error:
                event(_log, logging.WARNING, "outcome of a task not stored", task=run.id, reason=error.message)
                await anyio.sleep(wait_s)
                wait_s = min(RETRY_LIMIT_S, wait_s * 2)
        return None

    def _stop(self, run: _RunningTask) -> None:
        run.is_cancelled = True
        run.call.cancel("the client cancelled the task")

    async def _finish(self) -> None:
        """Wait `GRACE_S` for running calls, then cancel them: another gateway adopts those that may be repeated, others fail."""
        with anyio.move_on_after(GRACE_S):
            await self._wait_all()
        # A copy: a call that ends removes itself.
        for run in tuple(self._runs.values()):
            run.call.cancel("the server is shutting down")
        with anyio.move_on_after(RETRY_LIMIT_S):
            await self._wait_all()

    async def _wait_all(self) -> None:
        for run in tuple(self._runs.values()):
            await run.ended.wait()

    # -- ownership

    async def _renew(self) -> None:
        """Extend the ownership of tasks that run here, and cancel those that clients cancelled through other gateways."""
        while True:
            await self._has_runs.wait()
            async with self._store.wakeups.open_listener(_owner_topic(self._owner)) as listener:
                while self._runs:
                    with anyio.move_on_after(RENEW_S):
                        await listener.wait()
                    try:
                        owned = await self._run(lambda: records.renew(self._owner, hold_s=HOLD_S))
                        for name, is_cancelled in owned.items():
                            if is_cancelled and (run := self._runs.get(name)) is not None:
                                self._stop(run)
                    except ToolpostError as error:
                        event(_log, logging.WARNING, "ownership of tasks not renewed", reason=error.message)
            # Without an await in between, so that a task that starts now is not missed.
            self._has_runs = anyio.Event()
            if self._runs:
                self._has_runs.set()

    async def _run(self, make: Callable[[], Script[Result]]) -> Result:
        return await self._store.scripts.run(make)


def _owner_topic(owner: str) -> str:
    # Gateways of earlier versions use it too, so it stays as it is.
    return f"deferred calls of {owner}"
