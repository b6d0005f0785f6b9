"""`delegate__*`: an agent hands work to other agents, with limits on how many run at once, their time and their tool calls."""

import asyncio
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

import anyio
from pydantic import Field
from pydantic import dataclasses as checked

from toolpost import Context, ErrorCode, NotFound, Plugin, Principal, QueueOverloaded, ToolpostError, __version__
from toolpost.base import ThreadId
from toolpost.contracts import InvalidRequest
from toolpost.parts.agents.plugins.conversations_handle import ConversationsHandle
from toolpost.parts.agents.turn_events import ToolUsed, TurnEvent
from toolpost.parts.agents.values import InvokeOptions

AT_ONCE: Final = 4
"""How many agents may work for one conversation at once."""

KEPT: Final = 50
"""How much work that has ended is remembered."""

TIMEOUT_S: Final = 300.0
Work = Annotated[str, Field(min_length=1, max_length=100_000, description="all that the other agent has to know")]
Seconds = Annotated[float, Field(gt=0, le=3600, description="how long it may take")]
Tools = Annotated[int, Field(ge=0, le=1_000, description="how many times it may use a tool")]


@checked.dataclass
class DelegateReport:
    """The state of delegated work."""

    id: str
    state: Literal["running", "done", "failed", "cancelled", "interrupted"]
    thread: str = ""
    """The thread of the work, with all of its messages."""
    answer: str = ""
    problem: str | None = None
    tools_used: int = 0


@dataclass(frozen=True, kw_only=True)
class _DelegatedWork:
    principal: Principal
    parent: ThreadId
    work: str
    agent: str | None
    timeout_s: float
    max_tools: int
    report: DelegateReport
    ended: asyncio.Event = field(default_factory=asyncio.Event)


def make() -> Plugin:
    plugin = Plugin("delegate", version=__version__)
    runner = _WorkRunner(ConversationsHandle(plugin))
    plugin.on_stop(runner.stop)

    @plugin.tool(errors=[ErrorCode.INVALID_REQUEST, ErrorCode.QUEUE_OVERLOADED])
    async def start(
        ctx: Context, work: Work, agent: str | None = None, timeout_s: Seconds = TIMEOUT_S, max_tools: Tools = 50
    ) -> DelegateReport:
        """Have another agent do a piece of work while you go on; `delegate__wait` has the answer. It knows nothing of yours."""
        return runner.start(ctx, work, agent, timeout_s, max_tools).report

    @plugin.tool(timeout_s=3700, errors=[ErrorCode.NOT_FOUND])
    async def wait(ctx: Context, id: str, timeout_s: Seconds = TIMEOUT_S) -> DelegateReport:  # noqa: A002 (what it is called)
        """Wait for a piece of work, and return what has become of it; one that still runs goes on."""
        delegated = runner.find(ctx, id)
        with anyio.move_on_after(timeout_s):
            await delegated.ended.wait()
        return delegated.report

    @plugin.tool(timeout_s=3700, errors=[ErrorCode.INVALID_REQUEST, ErrorCode.QUEUE_OVERLOADED])
    async def run(
        ctx: Context, work: Work, agent: str | None = None, timeout_s: Seconds = TIMEOUT_S, max_tools: Tools = 50
    ) -> DelegateReport:
        """Have another agent do a piece of work, and wait for it. Cancelling the call cancels the work."""
        delegated = runner.start(ctx, work, agent, timeout_s, max_tools)
        try:
            await delegated.ended.wait()
        finally:
            runner.cancel(delegated)
        return delegated.report

    @plugin.tool(errors=[ErrorCode.NOT_FOUND])
    async def cancel(ctx: Context, id: str) -> DelegateReport:  # noqa: A002
        """Stop a piece of work."""
        delegated = runner.find(ctx, id)
        runner.cancel(delegated)
        await delegated.ended.wait()
        return delegated.report

    return plugin


class _WorkRunner:
    """Runs delegated work in tasks of its own, each in a thread of its own."""

    def __init__(self, handle: ConversationsHandle) -> None:
        self._handle = handle
        self._works: dict[str, _DelegatedWork] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._children: set[ThreadId] = set()

    def start(self, ctx: Context, work: str, agent: str | None, timeout_s: float, max_tools: int) -> _DelegatedWork:
        principal, parent = self._handle.acting_principal(ctx)
        if parent in self._children:
            raise InvalidRequest("Delegated work cannot be delegated again.", hint="do the work yourself")
        running = [
            delegated
            for delegated in self._works.values()
            if delegated.parent == parent and not delegated.ended.is_set()
        ]
        if len(running) >= AT_ONCE:
            raise QueueOverloaded(
                f"{AT_ONCE} agents work for this conversation already.", retry_s=10, hint="wait for one, or cancel one"
            )
        if not self._handle.conversations.has_room_for(principal):
            # An agent that waits for delegated work keeps its session: if all sessions waited, none could do the work.
            raise QueueOverloaded(
                "All agent sessions are busy.", retry_s=10, hint="try again later, or do the work yourself"
            )
        name = f"d-{secrets.token_hex(4)}"
        delegated = _DelegatedWork(
            principal=principal,
            parent=parent,
            work=work,
            agent=agent,
            timeout_s=timeout_s,
            max_tools=max_tools,
            report=DelegateReport(id=name, state="running"),
        )
        self._forget_oldest()
        self._works[name] = delegated
        self._tasks[name] = asyncio.get_running_loop().create_task(self._run(delegated))
        return delegated

    def find(self, ctx: Context, name: str) -> _DelegatedWork:
        delegated = self._works.get(name)
        if delegated is None or delegated.principal.caller.id != ctx.caller.id:
            raise NotFound(f"Unknown delegated work `{name[:64]}`.", hint="it is lost when the server restarts")
        return delegated

    def cancel(self, delegated: _DelegatedWork) -> None:
        if (task := self._tasks.get(delegated.report.id)) is not None and not delegated.ended.is_set():
            task.cancel()

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, delegated: _DelegatedWork) -> None:
        report = delegated.report
        try:
            await self._prompt(delegated)
        except ToolpostError as error:
            report.state, report.problem = "failed", _join_hint(error.message, error.hint)
        finally:
            if report.state == "running":
                report.state = "cancelled"
            self._children.discard(ThreadId(report.thread))
            self._tasks.pop(report.id, None)
            delegated.ended.set()

    async def _prompt(self, delegated: _DelegatedWork) -> None:
        report, conversations = delegated.report, self._handle.conversations
        title = f"delegated: {delegated.work}"
        thread = await conversations.create_thread(delegated.principal, title=title, agent=delegated.agent)
        report.thread = thread.id
        self._children.add(thread.id)
        task = asyncio.current_task()
        assert task is not None

        def count(event: TurnEvent) -> None:
            if isinstance(event, ToolUsed) and event.state == "running":
                report.tools_used += 1
                if report.tools_used > delegated.max_tools:
                    report.state, report.problem = "failed", f"It used tools more than {delegated.max_tools} times."
                    task.cancel()

        options = InvokeOptions(timeout_s=delegated.timeout_s, on_event=count)
        ended = await conversations.handle_message(delegated.principal, thread.id, delegated.work, options)
        report.state = "failed" if ended.state == "running" else ended.state
        report.answer = ended.text
        report.problem = _join_hint(str(ended.error.get("message")), ended.error.get("hint")) if ended.error else None

    def _forget_oldest(self) -> None:
        ended = [name for name, delegated in self._works.items() if delegated.ended.is_set()]
        for name in ended[: max(0, len(ended) - KEPT)]:
            with suppress(KeyError):
                del self._works[name]


def _join_hint(problem: str, hint: str | None) -> str:
    return f"{problem} Hint: {hint}" if hint else problem
