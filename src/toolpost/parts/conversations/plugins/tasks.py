"""`tasks__*`: what is to be done, and what has to be done before it; no task ever waits for itself."""

import secrets
import time
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import anyio
from pydantic import Field
from pydantic.dataclasses import dataclass

from toolpost.authoring import Plugin
from toolpost.authoring.context import Context
from toolpost.base.ids import CallerId, JsonObject
from toolpost.base.version import __version__
from toolpost.contracts.errors import ErrorCode, InvalidRequest, NotFound, QueueOverloaded
from toolpost.parts.conversations.plugins.service import ConversationsHandle
from toolpost.store.key_values import Item, KeyValueStore

NAME: Final = "tasks"
LIMIT: Final = 1_000
"""Tasks that a caller may have."""

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
    """What has to be done before it."""
    is_ready: bool
    """Whether all of that is done."""
    notes: str = ""


def make() -> Plugin:
    """Make the plugin."""
    plugin = Plugin(NAME, version=__version__)
    desk = _TaskPlan(ConversationsHandle(plugin))
    _add_changes(plugin, desk)

    @plugin.tool(name="list", annotations={"readOnlyHint": True, "openWorldHint": False})
    async def list_tasks(ctx: Context, state: State | None = None, ready: bool = False) -> list[Task]:
        """List your tasks, the oldest first: all, those in a state, or those whose dependencies are all done."""
        found = [_render(item, known) for known in [await desk.all(ctx.caller.id)] for item in _by_age(known)]
        return [t for t in found if (state is None or t.state == state) and (not ready or _is_next(t))]

    return plugin


def _add_changes(plugin: Plugin, desk: "_TaskPlan") -> None:
    @plugin.tool(errors=[ErrorCode.NOT_FOUND, ErrorCode.QUEUE_OVERLOADED])
    async def add(ctx: Context, title: Title, notes: Notes = "", after: list[str] | None = None) -> Task:
        """Add a task; `after` names tasks that have to be done before it."""
        value: JsonObject = {"title": title, "state": "open", "notes": notes, "after": after or [], "at": time.time()}
        return await desk.add(ctx.caller.id, value)

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
        given = {"title": title, "state": state, "notes": notes, "after": after}
        return await desk.update(ctx.caller.id, task, {key: new for key, new in given.items() if new is not None})

    @plugin.tool(errors=[ErrorCode.NOT_FOUND, ErrorCode.INVALID_REQUEST])
    async def remove(ctx: Context, task: str) -> Task:
        """Forget a task that no other one waits for."""
        return await desk.remove(ctx.caller.id, task)


class _TaskPlan:
    """Everybody's tasks; one change at a time."""

    def __init__(self, lead: ConversationsHandle) -> None:
        self._lead = lead
        self._changing = anyio.Lock()
        """Held from the look at all tasks to the change of one: two changes at once could close a circle between them."""

    async def all(self, owner: CallerId) -> dict[str, Item]:
        return {item.id: item for item in await self._values.items(NAME, owner)}

    async def add(self, owner: CallerId, value: JsonObject) -> Task:
        async with self._changing:
            known = await self.all(owner)
            if len(known) >= LIMIT:
                raise QueueOverloaded(f"There are {LIMIT} tasks already.", retry_s=60, hint="remove some that are done")
            item = Item(owner=owner, id=f"k-{secrets.token_hex(4)}", value=value)
            _check(item.id, value, known)
            await self._values.put(NAME, item)
        return _render(item, {**known, item.id: item})

    async def update(self, owner: CallerId, task: str, given: JsonObject) -> Task:
        async with self._changing:
            known = await self.all(owner)
            item = _find(task, known)
            changed = Item(owner=owner, id=task, value=item.value | given)
            _check(task, changed.value, known)
            if not await self._values.swap(NAME, item, changed.value):
                raise InvalidRequest("The task was changed by another call.", hint="look at it, and try again")
            if given.get("after"):
                await self._undo_circle(item, changed)
        return _render(changed, {**known, task: changed})

    async def remove(self, owner: CallerId, task: str) -> Task:
        async with self._changing:
            known = await self.all(owner)
            item = _find(task, known)
            if waiting := [other.id for other in known.values() if task in other.value["after"]]:
                raise InvalidRequest("Other tasks wait for this one.", hint=f"change them first: {', '.join(waiting)}")
            await self._values.swap(NAME, item, None)
        return _render(item, known)

    async def _undo_circle(self, before: Item, after: Item) -> None:
        """Take a change back that closes a circle with one that another server made meanwhile."""
        try:
            _check(after.id, after.value, await self.all(after.owner))
        except (InvalidRequest, NotFound):
            await self._values.swap(NAME, after, before.value)
            raise

    @property
    def _values(self) -> KeyValueStore:
        return self._lead.conversations.key_values


def _find(task: str, known: Mapping[str, Item]) -> Item:
    if task not in known:
        raise NotFound(f"There is no task `{task[:64]}`.", hint="`tasks__list` lists yours")
    return known[task]


def _check(task: str, value: JsonObject, known: Mapping[str, Item]) -> None:
    """Refuse dependencies that are not there, and circles."""
    for other in value["after"]:
        if other != task:
            _find(other, known)
    way = _find_cycle(task, value["after"], known)
    if way is not None:
        raise InvalidRequest(f"A task would wait for itself: {' after '.join([task, *way])}.", cycle=[task, *way])


def _find_cycle(task: str, after: list[str], known: Mapping[str, Item]) -> list[str] | None:
    """Return how a task leads back to itself, if it does."""
    waiting, seen = [[other] for other in after], set[str]()
    while waiting:
        way = waiting.pop()
        if way[-1] == task:
            return way
        if way[-1] in seen or way[-1] not in known:
            continue
        seen.add(way[-1])
        waiting += [[*way, other] for other in known[way[-1]].value["after"]]
    return None


def _by_age(known: Mapping[str, Item]) -> list[Item]:
    return sorted(known.values(), key=lambda item: item.value["at"])


def _is_next(task: Task) -> bool:
    return task.is_ready and task.state in ("open", "doing")


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
