"""`delegate__*`: an agent has others do a part of the work: so many at once, for so long, with so many tools."""

import asyncio
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

import anyio
from pydantic import Field
from pydantic import dataclasses as checked

from toolpost.authoring import Plugin
from toolpost.authoring.context import Context
from toolpost.authoring.conversation import InvokeOptions
from toolpost.base.caller import Principal
from toolpost.base.ids import ThreadId
from toolpost.base.turns import ToolUsed, TurnEvent
from toolpost.base.version import __version__
from toolpost.contracts.errors import ErrorCode, InvalidRequest, NotFound, QueueOverloaded, ToolpostError
from toolpost.parts.conversations.plugins.service import ConversationsHandle

AT_ONCE: Final = 4
"""How many agents may work for one conversation at once."""

KEPT: Final = 50
"""How many that have ended are remembered."""

TIMEOUT_S: Final = 300.0
Work = Annotated[str, Field(min_length=1, max_length=100_000, description="all that the other agent has to know")]
Seconds = Annotated[float, Field(gt=0, le=3600, description="how long it may take")]
Tools = Annotated[int, Field(ge=0, le=1_000, description="how many times it may use a tool")]


@checked.dataclass
class DelegateReport:
    """What has become of a piece of work."""

    id: str
    state: Literal["running", "done", "failed", "cancelled", "interrupted"]
    thread: str = ""
    """Where all of it can be read."""
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
    """Make the plugin."""
    plugin = Plugin("delegate", version=__version__)
    office = _WorkRunner(ConversationsHandle(plugin))
    plugin.on_stop(office.stop)

    @plugin.tool(errors=[ErrorCode.INVALID_REQUEST, ErrorCode.QUEUE_OVERLOADED])
    async def start(
        ctx: Context, work: Work, agent: str | None = None, timeout_s: Seconds = TIMEOUT_S, max_tools: Tools = 50
    ) -> DelegateReport:
        """Have another agent do a piece of work while you go on; `delegate__wait` has the answer. It knows nothing of yours."""
        return office.start(ctx, work, agent, timeout_s, max_tools).report

    @plugin.tool(timeout_s=3700, errors=[ErrorCode.NOT_FOUND])
    async def wait(ctx: Context, id: str, timeout_s: Seconds = TIMEOUT_S) -> DelegateReport:  # noqa: A002 (what it is called)
        """Wait for a piece of work, and return what has become of it; one that still runs goes on."""
        order = office.find(ctx, id)
        with anyio.move_on_after(timeout_s):
            await order.ended.wait()
        return order.report

    @plugin.tool(timeout_s=3700, errors=[ErrorCode.INVALID_REQUEST, ErrorCode.QUEUE_OVERLOADED])
    async def run(
        ctx: Context, work: Work, agent: str | None = None, timeout_s: Seconds = TIMEOUT_S, max_tools: Tools = 50
    ) -> DelegateReport:
        """Have another agent do a piece of work, and wait for it. Cancelling the call cancels the work."""
        order = office.start(ctx, work, agent, timeout_s, max_tools)
        try:
            await order.ended.wait()
        finally:
            office.cancel(order)
        return order.report

    @plugin.tool(errors=[ErrorCode.NOT_FOUND])
    async def cancel(ctx: Context, id: str) -> DelegateReport:  # noqa: A002
        """Stop a piece of work."""
        order = office.find(ctx, id)
        office.cancel(order)
        await order.ended.wait()
        return order.report

    return plugin


class _WorkRunner:
    """All work that was given away."""

    def __init__(self, lead: ConversationsHandle) -> None:
        self._lead = lead
        self._orders: dict[str, _DelegatedWork] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._children: set[ThreadId] = set()

    def start(self, ctx: Context, work: str, agent: str | None, timeout_s: float, max_tools: int) -> _DelegatedWork:
        principal, parent = self._lead.actor(ctx)
        if parent in self._children:
            raise InvalidRequest("Delegated work cannot be delegated again.", hint="do it yourself")
        running = [order for order in self._orders.values() if order.parent == parent and not order.ended.is_set()]
        if len(running) >= AT_ONCE:
            raise QueueOverloaded(
                f"{AT_ONCE} agents work for this conversation already.", retry_s=10, hint="wait for one, or cancel one"
            )
        if not self._lead.conversations.has_room_for(principal):
            # Whoever waits for others holds a session meanwhile: if all do, nobody would ever be asked.
            raise QueueOverloaded("All agent sessions are busy.", retry_s=10, hint="do it yourself")
        name = f"d-{secrets.token_hex(4)}"
        order = _DelegatedWork(
            principal=principal,
            parent=parent,
            work=work,
            agent=agent,
            timeout_s=timeout_s,
            max_tools=max_tools,
            report=DelegateReport(id=name, state="running"),
        )
        self._forget_some()
        self._orders[name] = order
        self._tasks[name] = asyncio.get_running_loop().create_task(self._carry_out(order))
        return order

    def find(self, ctx: Context, name: str) -> _DelegatedWork:
        order = self._orders.get(name)
        if order is None or order.principal.caller.id != ctx.caller.id:
            raise NotFound(f"No work is called `{name[:64]}`.", hint="the server forgets it when it ends")
        return order

    def cancel(self, order: _DelegatedWork) -> None:
        if (task := self._tasks.get(order.report.id)) is not None and not order.ended.is_set():
            task.cancel()

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry_out(self, order: _DelegatedWork) -> None:
        report = order.report
        try:
            await self._ask(order)
        except ToolpostError as error:
            report.state, report.problem = "failed", _join_hint(error.message, error.hint)
        finally:
            if report.state == "running":
                report.state = "cancelled"
            self._children.discard(ThreadId(report.thread))
            self._tasks.pop(report.id, None)
            order.ended.set()

    async def _ask(self, order: _DelegatedWork) -> None:
        report, conversations = order.report, self._lead.conversations
        title = f"delegated: {order.work}"
        thread = await conversations.create_thread(order.principal, title=title, agent=order.agent)
        report.thread = thread.id
        self._children.add(thread.id)
        asking = asyncio.current_task()
        assert asking is not None

        def count(event: TurnEvent) -> None:
            if isinstance(event, ToolUsed) and event.state == "running":
                report.tools_used += 1
                if report.tools_used > order.max_tools:
                    report.state, report.problem = "failed", f"It used tools more than {order.max_tools} times."
                    asking.cancel()

        options = InvokeOptions(timeout_s=order.timeout_s, on_event=count)
        ended = await conversations.handle_message(order.principal, thread.id, order.work, options)
        report.state = "failed" if ended.state == "running" else ended.state
        report.answer = ended.text
        report.problem = _join_hint(str(ended.error.get("message")), ended.error.get("hint")) if ended.error else None

    def _forget_some(self) -> None:
        ended = [name for name, order in self._orders.items() if order.ended.is_set()]
        for name in ended[: max(0, len(ended) - KEPT)]:
            with suppress(KeyError):
                del self._orders[name]


def _join_hint(problem: str, hint: str | None) -> str:
    return f"{problem} Hint: {hint}" if hint else problem
