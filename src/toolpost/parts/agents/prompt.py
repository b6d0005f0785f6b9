"""Prompts agents: in the session that a message belongs to, with the part of the conversation that it does not know yet."""

import logging
from collections.abc import Awaitable, Callable, Sequence

from toolpost.base import event
from toolpost.parts.agents.agent import AgentGone, AgentOutputTooLong
from toolpost.parts.agents.agents import AgentRegistry, PooledSessionRequest
from toolpost.parts.agents.history import HistoryLimits, history_of
from toolpost.parts.agents.hooks import Hooks
from toolpost.parts.agents.session_pool import PooledSession, SessionPool
from toolpost.parts.agents.threads import ThreadMessage, Threads
from toolpost.parts.agents.turn import LiveTurn
from toolpost.parts.agents.turn_events import SessionReady
from toolpost.parts.agents.values import InvokeOptions

_log = logging.getLogger("toolpost.parts.agents")


class Prompter:
    """Prompts agents. A pooled session that turns out to have closed is replaced, once."""

    def __init__(
        self, pool: SessionPool, agents: AgentRegistry, threads: Threads, hooks: Hooks, limits: HistoryLimits
    ) -> None:
        self._pool = pool
        self._agents = agents
        self._threads = threads
        self._hooks = hooks
        self._limits = limits

    async def prompt(
        self, run: LiveTurn, prompt: str, seq: int, find_missing: Callable[[], Awaitable[str | None]]
    ) -> None:
        """Send the prompt of a message whose number in its thread is `seq`, and once more what `find_missing` then returns."""
        thread = run.thread
        assert thread is not None
        options = InvokeOptions(agent=run.info.agent, model=run.info.model)
        request = self._agents.request_session(run.principal, options, thread)
        self._pool.evict_thread(thread.id, but=request.key)

        async def send(session: PooledSession, is_warm: bool) -> None:
            await self._send(run, session, prompt, up_to=seq - 1, is_warm=is_warm)
            # While the session is leased: another one would not know what this turn is about.
            if run.stop_kind is None and (missing := await find_missing()) is not None:
                run.reopen()
                if run.stop_kind is None:
                    await run.prompt(session, missing)

        await self._send_in_session(run, request, send)

    async def prompt_unrecorded(self, run: LiveTurn, request: PooledSessionRequest) -> None:
        """Send a prompt that is no message of a thread; in the session of a thread, it comes after all of its messages."""

        async def send(session: PooledSession, is_warm: bool) -> None:
            thread = await self._threads.find(run.thread.id) if run.thread is not None else None
            up_to = thread.last_seq if thread is not None else 0
            await self._send(run, session, run.text, up_to=up_to, is_warm=is_warm)
            session.known_seq = max(session.known_seq, up_to)

        await self._send_in_session(run, request, send)

    async def _send_in_session(
        self, run: LiveTurn, request: PooledSessionRequest, send: Callable[[PooledSession, bool], Awaitable[None]]
    ) -> None:
        was_warm = self._pool.find(request.key) is not None
        try:
            async with self._pool.lease(request.key, request.opener) as session:
                await send(session, was_warm)
        except AgentGone as gone:
            # Once the agent has answered anything, or in a session that was opened just now, a second try could do the same
            # work twice or fail for the same reason.
            if run.events or not was_warm or run.stop_kind is not None or isinstance(gone, AgentOutputTooLong):
                raise
            event(_log, logging.INFO, "session had closed; another one is opened", **run.ids, reason=gone.message)
            is_warm = self._pool.find(request.key) is not None
            async with self._pool.lease(request.key, request.opener) as session:
                await send(session, is_warm)

    async def _send(self, run: LiveTurn, session: PooledSession, prompt: str, *, up_to: int, is_warm: bool) -> None:
        async def summarize(older: Sequence[ThreadMessage]) -> str | None:
            return await self._hooks.first("toolpost_summarize", turn=run.info, messages=older)

        history = await history_of(
            self._threads,
            run.info.thread,
            known_seq=session.known_seq,
            up_to=up_to,
            limits=self._limits,
            summarize=summarize,
        )
        run.notify(SessionReady(is_warm=is_warm, replayed=len(history.messages)))
        await run.prompt(session, history.before(prompt))
