"""Runs the hooks of plugins. Each has a time limit, and one that fails or hangs neither stops the others nor the turn."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import anyio
import anyio.to_thread

from toolpost import ToolFailed
from toolpost.base import event
from toolpost.parts import HookImplementation
from toolpost.parts.agents.values import TurnInfo

_log = logging.getLogger("toolpost.parts.agents")

LIMITS_S: Final[Mapping[str, float]] = {
    "toolpost_conversations": 10.0,
    "toolpost_on_message": 2.0,
    "toolpost_classify": 10.0,
    "toolpost_before_invoke": 10.0,
    "toolpost_check_answer": 10.0,
    "toolpost_after_invoke": 5.0,
    "toolpost_on_complete": 5.0,
    "toolpost_on_tool_call": 2.0,
    "toolpost_summarize": 30.0,
}

UNWIND_S: Final = 0.5
"""How long a hook that was cancelled may take to end, in seconds."""

_FAILED: Final = object()


class Hooks:
    """Calls the hooks of all plugins. A failure is logged, and marks its plugin as degraded."""

    def __init__(
        self,
        find: Callable[[str], Sequence[HookImplementation]],
        *,
        limits_s: Mapping[str, float] = LIMITS_S,
        threads: int = 16,
    ) -> None:
        self._find = find
        self._limits_s = {**LIMITS_S, **limits_s}
        self._threads = anyio.CapacityLimiter(threads)

    def has(self, hook: str) -> bool:
        """Whether any plugin implements a hook."""
        return bool(self._find(hook))

    async def notify(self, hook: str, *, turn: TurnInfo | None = None, **arguments: Any) -> None:
        """Call the hook of every plugin, one after the other; results are ignored."""
        for implementation in self._find(hook):
            await self._run(hook, implementation, turn, arguments)

    async def chain(self, hook: str, name: str, value: str, *, turn: TurnInfo) -> str:
        """Pass a text through the hook of each plugin; one that fails or returns no text leaves it unchanged."""
        for implementation in self._find(hook):
            changed = await self._run(hook, implementation, turn, {name: value})
            value = changed if isinstance(changed, str) else value
        return value

    async def first(self, hook: str, *, turn: TurnInfo, **arguments: Any) -> str | None:
        """Return the text of the first plugin that returns one, None if none does; later plugins are not called."""
        for implementation in self._find(hook):
            answer = await self._run(hook, implementation, turn, arguments)
            if isinstance(answer, str):
                return answer
        return None

    async def require(self, hook: str, *, turn: TurnInfo, **arguments: Any) -> str | None:
        """Return the text of the first plugin that returns one, None if none does; raises `ToolFailed` if a plugin fails."""
        for implementation in self._find(hook):
            answer = await self._run(hook, implementation, turn, arguments)
            if answer is _FAILED:
                raise ToolFailed(
                    f"The plugin `{implementation.plugin}` could not check whether the turn may end.",
                    hint=f"the server's log has more under trace id {turn.trace_id}",
                )
            if isinstance(answer, str):
                return answer
        return None

    async def _run(
        self, hook: str, implementation: HookImplementation, turn: TurnInfo | None, arguments: Mapping[str, Any]
    ) -> Any:
        # A hook may leave out parameters that it does not need.
        offered = {"turn": turn, **arguments}
        taken = [offered[name] for name in implementation.takes]
        try:
            return await _run_within(self._limits_s[hook], self._call(implementation, taken))
        except Exception as error:  # noqa: BLE001 (a plugin may raise anything)
            implementation.degrade(f"failed in `{hook}`", error)
            event(
                _log,
                logging.ERROR,
                "hook failed",
                plugin=implementation.plugin,
                hook=hook,
                thread=turn.thread if turn is not None else None,
                trace=turn.trace_id if turn is not None else None,
                reason=str(error) or type(error).__name__,
                exception=error,
            )
            return _FAILED

    async def _call(self, implementation: HookImplementation, arguments: list[Any]) -> Any:
        function = implementation.function
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        # In a thread, a synchronous hook cannot block the event loop.
        answer = await anyio.to_thread.run_sync(function, *arguments, limiter=self._threads, abandon_on_cancel=True)
        return await answer if inspect.isawaitable(answer) else answer


async def _run_within(limit_s: float, work: Awaitable[Any]) -> Any:
    """Return the result of `work`; raises `TimeoutError` after `limit_s`. Work that ignores its cancellation is abandoned."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=limit_s)
        if not done:
            task.cancel()
            await asyncio.wait({task}, timeout=UNWIND_S)
            raise TimeoutError(f"it took longer than {limit_s:g} s and was cancelled")
    finally:
        if not task.done():
            task.cancel()
            # Without a reader of its exception, asyncio would log an abandoned task as an error.
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    if task.cancelled():
        raise TimeoutError("it cancelled itself")
    return task.result()
