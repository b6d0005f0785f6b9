"""`tasks__*`: a caller's list of tasks, with dependencies between them that never form a cycle.

Tasks are in the key-value store, so several servers may change them at once. Within a server, a lock makes checks and changes
atomic; between servers, a change is checked again after it was written, and undone if both together close a cycle.
"""

import secrets
import time
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import anyio
from pydantic import Field
from pydantic.dataclasses import dataclass

from toolpost import CallerId, Context, ErrorCode, Item, NotFound, Plugin, QueueOverloaded, __version__
from toolpost.base import JsonObject
from toolpost.contracts import InvalidRequest
from toolpost.parts.agents.plugins.conversations_handle import ConversationsHandle
from toolpost.store import KeyValueStore

NAME: Final = "tasks"
LIMIT: Final = 1_000
"""How many tasks a caller may have."""

State = Literal["open", "doing", "done", "dropped"]
Title = Annotated[str, Field(min_length=1, max_length=500)]
Notes = Annotated[str, Field(max_length=10_000)]


@dataclass
class Task:
    """Something to be done."""

    id: str
    title: str
    state: State
    after: list[str]
    """Tasks that have to be done before it."""
    is_ready: bool
    """Whether all of those are done or dropped."""
    notes: str = ""


def make() -> Plugin:
    plugin = Plugin(NAME, version=__version__)
    plan = _TaskPlan(ConversationsHandle(plugin))
    _add_changing_tools(plugin, plan)

    @plugin.tool(name="list", annotations={"readOnlyHint": True, "openWorldHint": False})
    async def list_tasks(ctx: Context, state: State | None = None, ready: bool = False) -> list[Task]:
        """List your tasks, the oldest first: all, those in a state, or those whose dependencies are all done."""
        known = await plan.read(ctx.caller.id)
        tasks = [_render(item, known) for item in sorted(known.values(), key=lambda item: item.value["at"])]
        return [
            task
            for task in tasks
            if (state is None or task.state == state)
            and (not ready or (task.is_ready and task.state in ("open", "doing")))
        ]

    return plugin


def _add_changing_tools(plugin: Plugin, plan: "_TaskPlan") -> None:
    @plugin.tool(errors=[ErrorCode.NOT_FOUND, ErrorCode.QUEUE_OVERLOADED])
    async def add(ctx: Context, title: Title, notes: Notes = "", after: list[str] | None = None) -> Task:
        """Add a task; `after` names tasks that have to be done before it."""
        value: JsonObject = {"title": title, "state": "open", "notes": notes, "after": after or [], "at": time.time()}
        return await plan.add(ctx.caller.id, value)

    @plugin.tool(errors=[ErrorCode.NOT_FOUND, ErrorCode.INVALID_REQUEST])
    async def update(
        ctx: Context,
        task: str,
        title: Title | None = None,
        state: State | None = None,
        notes: Notes | None = None,
        after: list[str] | None = None,
    ) -> Task:
        """Change a task; what is left out stays. A circle of tasks that wait for each other is refused."""
        changes = {"title": title, "state": state, "notes": notes, "after": after}
        return await plan.update(ctx.caller.id, task, {key: new for key, new in changes.items() if new is not None})

    @plugin.tool(errors=[ErrorCode.NOT_FOUND, ErrorCode.INVALID_REQUEST])
    async def remove(ctx: Context, task: str) -> Task:
        """Forget a task that no other one waits for."""
        return await plan.remove(ctx.caller.id, task)


class _TaskPlan:
    """Reads and changes the tasks of all callers, one change at a time."""

    def __init__(self, handle: ConversationsHandle) -> None:
        self._handle = handle
        self._changing = anyio.Lock()
        """Held from reading all tasks to writing one: two concurrent changes could form a cycle together."""

    async def read(self, owner: CallerId) -> dict[str, Item]:
        return {item.id: item for item in await self._values.items(NAME, owner)}

    async def add(self, owner: CallerId, value: JsonObject) -> Task:
        async with self._changing:
            known = await self.read(owner)
            if len(known) >= LIMIT:
                raise QueueOverloaded(f"There are {LIMIT} tasks already.", retry_s=60, hint="remove some that are done")
            item = Item(owner=owner, id=f"k-{secrets.token_hex(4)}", value=value)
            _check(item.id, value, known)
            await self._values.put(NAME, item)
        return _render(item, {**known, item.id: item})

    async def update(self, owner: CallerId, task: str, changes: JsonObject) -> Task:
        async with self._changing:
            known = await self.read(owner)
            item = _find(task, known)
            changed = Item(owner=owner, id=task, value=item.value | changes)
            _check(task, changed.value, known)
            if not await self._values.swap(NAME, item, changed.value):
                raise InvalidRequest(
                    "The task was changed by another call.", hint="read it again, and repeat the change"
                )
            if changes.get("after"):
                await self._undo_cycle(item, changed)
        return _render(changed, {**known, task: changed})

    async def remove(self, owner: CallerId, task: str) -> Task:
        async with self._changing:
            known = await self.read(owner)
            item = _find(task, known)
            if waiting := [other.id for other in known.values() if task in other.value["after"]]:
                raise InvalidRequest("Other tasks wait for this one.", hint=f"change them first: {', '.join(waiting)}")
            await self._values.swap(NAME, item, None)
        return _render(item, known)

    async def _undo_cycle(self, before: Item, after: Item) -> None:
        """Undo a change, and raise, if it forms a cycle with a concurrent change of another server."""
        try:
            _check(after.id, after.value, await self.read(after.owner))
        except (InvalidRequest, NotFound):
            await self._values.swap(NAME, after, before.value)
            raise

    @property
    def _values(self) -> KeyValueStore:
        return self._handle.conversations.key_values


def _find(task: str, known: Mapping[str, Item]) -> Item:
    if task not in known:
        raise NotFound(f"There is no task `{task[:64]}`.", hint="`tasks__list` lists yours")
    return known[task]


def _check(task: str, value: JsonObject, known: Mapping[str, Item]) -> None:
    """Raise `NotFound` for unknown dependencies, `InvalidRequest` for a cycle."""
    for other in value["after"]:
        if other != task:
            _find(other, known)
    cycle = _find_cycle(task, value["after"], known)
    if cycle is not None:
        raise InvalidRequest(f"A task would wait for itself: {' after '.join([task, *cycle])}.", cycle=[task, *cycle])


def _find_cycle(task: str, after: list[str], known: Mapping[str, Item]) -> list[str] | None:
    """Return the tasks from the first dependency back to `task`, None if none leads there."""
    waiting, seen = [[other] for other in after], set[str]()
    while waiting:
        path = waiting.pop()
        if path[-1] == task:
            return path
        if path[-1] in seen or path[-1] not in known:
            continue
        seen.add(path[-1])
        waiting += [[*path, other] for other in known[path[-1]].value["after"]]
    return None


def _render(item: Item, known: Mapping[str, Item]) -> Task:
    value = item.value
    before = [known[other].value["state"] for other in value["after"] if other in known]
    return Task(
        id=item.id,
        title=value["title"],
        state=value["state"],
        notes=value["notes"],
        after=value["after"],
        is_ready=all(state in ("done", "dropped") for state in before),
    )
