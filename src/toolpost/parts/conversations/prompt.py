"""An agent is asked: in the session that the message belongs to, after what it does not know yet of the conversation."""

import logging
from collections.abc import Awaitable, Callable

from toolpost.authoring.conversation import InvokeOptions
from toolpost.base.events import event
from toolpost.base.turns import SessionReady
from toolpost.parts.conversations.agent import AgentGone, AgentOutputTooLong
from toolpost.parts.conversations.agents import Crew, Wanted
from toolpost.parts.conversations.history import History, HistoryLimits, history_of
from toolpost.parts.conversations.hooks import Hooks
from toolpost.parts.conversations.session_pool import Pool
from toolpost.parts.conversations.turn import TurnRun
from toolpost.store.threads import Threads

_log = logging.getLogger("toolpost.parts.conversations")


class Asking:
    """Asks agents. A warm session that turns out to have closed under us is replaced, once."""

    def __init__(self, pool: Pool, crew: Crew, threads: Threads, hooks: Hooks, limits: HistoryLimits) -> None:
        self._pool = pool
        self._crew = crew
        self._threads = threads
        self._hooks = hooks
        self._limits = limits

    async def ask(self, run: TurnRun, prompt: str, seq: int) -> None:
        """Ask what is the message of this number in its thread."""
        thread = run.thread
        assert thread is not None
        options = InvokeOptions(agent=run.info.agent, model=run.info.model)
        wanted = self._crew.session_for(run.standing, options, thread)
        self._pool.evict_thread(thread.id, but=wanted.key)
        await self._retried(run, wanted, lambda: self._ask_once(run, wanted, prompt, seq))

    async def ask_aside(self, run: TurnRun, wanted: Wanted) -> None:
        """Ask what is in no thread; in the session of one, it is asked after all that was said there."""
        await self._retried(run, wanted, lambda: self._ask_aside_once(run, wanted))

    async def _retried(self, run: TurnRun, wanted: Wanted, ask: Callable[[], Awaitable[None]]) -> None:
        was_warm = self._pool.find(wanted.key) is not None
        try:
            await ask()
        except AgentGone as gone:
            if run.heard or not was_warm or run.stop_kind is not None or isinstance(gone, AgentOutputTooLong):
                raise
            event(_log, logging.INFO, "session had closed; another one is opened", **run.ids, reason=gone.message)
            await ask()

    async def _ask_once(self, run: TurnRun, wanted: Wanted, prompt: str, seq: int) -> None:
        is_warm = self._pool.find(wanted.key) is not None
        async with self._pool.lease(wanted.key, wanted.opener) as warm:
            history = await self._history(run, told=warm.told, up_to=seq - 1)
            run.tell(SessionReady(is_warm=is_warm, told=len(history.messages)))
            await run.ask(warm, history.before(prompt))

    async def _ask_aside_once(self, run: TurnRun, wanted: Wanted) -> None:
        is_warm = self._pool.find(wanted.key) is not None
        async with self._pool.lease(wanted.key, wanted.opener) as warm:
            thread = await self._threads.find(run.thread.id) if run.thread is not None else None
            up_to = thread.last_seq if thread is not None else 0
            history = await self._history(run, told=warm.told, up_to=up_to)
            run.tell(SessionReady(is_warm=is_warm, told=len(history.messages)))
            await run.ask(warm, history.before(run.text))
            warm.told = max(warm.told, up_to)

    async def _history(self, run: TurnRun, *, told: int, up_to: int) -> History:
        return await history_of(
            self._threads,
            run.info.thread,
            told=told,
            up_to=up_to,
            limits=self._limits,
            summarise=lambda older: self._hooks.first("toolpost_summarise", turn=run.info, messages=older),
        )
