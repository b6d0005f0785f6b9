"""`schedule__*`: prompts that come by themselves, once or by a cron expression, also after the server was restarted.

Times that passed while no server ran are made up for once. Of several servers with one store, one fires.
`list_items` and `remove_item` are for `toolpost schedules` too, which works on the store while servers run.
"""

import asyncio
import importlib.util
import logging
import secrets
import time
from datetime import datetime, timedelta
from typing import Annotated, Final
from zoneinfo import ZoneInfo

from pydantic import Field
from pydantic.dataclasses import dataclass

from toolpost.authoring import Plugin
from toolpost.authoring.context import Context
from toolpost.base.caller import Caller, Principal, Scope
from toolpost.base.clocks import steady_s
from toolpost.base.events import event
from toolpost.base.ids import CallerId, JsonObject, ThreadId
from toolpost.base.version import __version__
from toolpost.contracts.errors import (
    CapabilityMissing,
    ErrorCode,
    InvalidRequest,
    NotFound,
    QueueOverloaded,
    ToolpostError,
)
from toolpost.parts.conversations.plugins.service import ConversationsHandle
from toolpost.store.key_values import Item, KeyValueStore

_log = logging.getLogger("toolpost.plugins")

NAME: Final = "schedule"
LIMIT: Final = 100
"""Schedules that a caller may have."""

AHEAD: Final = timedelta(days=10 * 366)
"""How far ahead something may be scheduled."""

JUMP_S: Final = 60.0
"""By how much the wall clock must have jumped for schedules to be counted anew: cron knows minutes."""

LOOK_S: Final = 20.0
"""How often it is looked for what other servers have scheduled."""

Prompt = Annotated[str, Field(min_length=1, max_length=50_000)]
Cron = Annotated[str, Field(max_length=200, description="five fields, as cron has them: `0 9 * * MON-FRI`")]
At = Annotated[str, Field(max_length=40, description="a moment in ISO 8601; without an offset, in the time zone given")]


@dataclass
class Schedule:
    """A prompt that comes by itself."""

    id: str
    thread: str
    prompt: str
    next_at: str
    cron: str | None = None


def make() -> Plugin:
    """Make the plugin; raises `CapabilityMissing` without cronsim, since tools that cannot run are not listed."""
    if importlib.util.find_spec("cronsim") is None:
        raise CapabilityMissing("`schedule` needs cronsim, which is missing: pip install 'toolpost[harness]' brings it")
    plugin = Plugin(NAME, version=__version__)
    clock = _Clock(ConversationsHandle(plugin))
    plugin.on_start(clock.start)
    plugin.on_stop(clock.stop)

    @plugin.tool(errors=[ErrorCode.INVALID_REQUEST, ErrorCode.QUEUE_OVERLOADED])
    async def add(
        ctx: Context, prompt: Prompt, cron: Cron | None = None, at: At | None = None, timezone: str = "UTC"
    ) -> Schedule:
        """Have a prompt come to this conversation by itself: again and again by `cron`, or once `at` a moment."""
        principal, thread = clock.lead.actor(ctx)
        if len(await clock.items(principal.caller.id)) >= LIMIT:
            raise QueueOverloaded(f"There are {LIMIT} schedules already.", retry_s=60, hint="remove some")
        value: JsonObject = {
            "thread": thread,
            "prompt": prompt,
            "cron": cron,
            "timezone": timezone,
            "next": _first(cron, at, timezone),
            "standing": _kept(principal),
        }
        item = Item(owner=principal.caller.id, id=f"s-{secrets.token_hex(4)}", value=value)
        await clock.lead.conversations.key_values.put(NAME, item)
        clock.changed.set()
        return shown(item)

    @plugin.tool(name="list", annotations={"readOnlyHint": True, "openWorldHint": False})
    async def list_schedules(ctx: Context) -> list[Schedule]:
        """List what you have scheduled, the next first."""
        return [shown(item) for item in await list_items(clock.lead.conversations.key_values, ctx.caller.id)]

    @plugin.tool(errors=[ErrorCode.NOT_FOUND])
    async def remove(ctx: Context, id: str) -> Schedule:  # noqa: A002 (what it is called)
        """Have a prompt come no more."""
        if (item := await remove_item(clock.lead.conversations.key_values, ctx.caller.id, id)) is not None:
            return shown(item)
        raise NotFound(f"Unknown schedule `{id[:64]}`.", hint="`schedule__list` lists yours")

    return plugin


async def list_items(values: KeyValueStore, owner: CallerId | None = None) -> list[Item]:
    """Return what a caller has scheduled, or everybody, the next first."""
    return sorted(await values.items(NAME, owner), key=lambda item: float(item.value["next"]))


async def remove_item(values: KeyValueStore, owner: CallerId, schedule: str) -> Item | None:
    """Have a prompt come no more, at whichever server; None if nothing is scheduled under this id."""
    # A server that fires meanwhile changes the item, and the removal is tried on what it has become.
    while (item := await values.find(NAME, owner, schedule)) is not None:
        if await values.swap(NAME, item, None):
            return item
    return None


class _Clock:
    """Waits for what is due, and says it."""

    def __init__(self, lead: ConversationsHandle) -> None:
        self.lead = lead
        self.changed = asyncio.Event()
        self._ticking: asyncio.Task[None] | None = None
        self._offset_s = time.time() - steady_s()
        """Of the wall clock, by which schedules go, from a steady one: it changes when somebody sets the clock."""
        self._fired: set[asyncio.Task[None]] = set()

    async def items(self, owner: CallerId | None) -> list[Item]:
        return await self.lead.conversations.key_values.items(NAME, owner)

    async def start(self) -> None:
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    async def stop(self) -> None:
        tasks = [*self._fired, *([self._ticking] if self._ticking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _tick(self) -> None:
        while True:
            self.changed.clear()
            try:
                pause_s = await self._fire_what_is_due() if self.lead.is_ready else 0.1
            except ToolpostError as error:
                event(_log, logging.ERROR, "schedules could not be read", reason=error.message)
                pause_s = LOOK_S
            try:
                async with asyncio.timeout(pause_s):
                    await self.changed.wait()
            except TimeoutError:
                continue

    async def _fire_what_is_due(self) -> float:
        """Fire, and say how long there is to wait."""
        pause_s = LOOK_S
        has_jumped = self._has_clock_jumped()
        for item in await self.items(None):
            if has_jumped and item.value["cron"]:
                # Nobody lived through the times that it has passed over: they are not made up for, all at once.
                # And what was to come next may be days ahead by now.
                moved = {**item.value, "next": _next(item.value["cron"], item.value["timezone"])}
                if moved != item.value:
                    await self.lead.conversations.key_values.swap(NAME, item, moved)
                    pause_s = 0.0
                    continue
            left_s = item.value["next"] - time.time()
            if left_s > 0:
                pause_s = min(pause_s, left_s)
                continue
            cron = item.value["cron"]
            later = {**item.value, "next": _next(cron, item.value["timezone"])} if cron else None
            # Whoever gets to write it down is the one who fires.
            if await self.lead.conversations.key_values.swap(NAME, item, later):
                task = asyncio.get_running_loop().create_task(self._fire(item))
                self._fired.add(task)
                task.add_done_callback(self._fired.discard)
                pause_s = 0.0 if later else pause_s
        return pause_s

    def _has_clock_jumped(self) -> bool:
        before, self._offset_s = self._offset_s, time.time() - steady_s()
        return abs(self._offset_s - before) > JUMP_S

    async def _fire(self, item: Item) -> None:
        thread = ThreadId(item.value["thread"])
        try:
            await self.lead.conversations.handle_message(_standing(item), thread, item.value["prompt"])
        except NotFound:
            # The thread was deleted, and what was scheduled for it goes with it.
            if (now := await self.lead.conversations.key_values.find(NAME, item.owner, item.id)) is not None:
                await self.lead.conversations.key_values.swap(NAME, now, None)
        except ToolpostError as error:
            event(_log, logging.ERROR, "scheduled prompt failed", thread=thread, id=item.id, reason=error.message)


def _first(cron: str | None, at: str | None, timezone: str) -> float:
    if (cron is None) == (at is None):
        raise InvalidRequest("Set either `cron` or `at`.")
    if cron is not None:
        return _next(cron, timezone)
    try:
        moment = datetime.fromisoformat(at or "")
    except ValueError as error:
        raise InvalidRequest("`at` is not a valid time.", hint="write it as 2030-01-31T09:00:00+01:00") from error
    moment = moment.replace(tzinfo=_zone(timezone)) if moment.tzinfo is None else moment
    if moment.timestamp() <= time.time():
        raise InvalidRequest("This moment has passed.", now=datetime.now(_zone(timezone)).isoformat())
    if moment.timestamp() > time.time() + AHEAD.total_seconds():
        raise InvalidRequest("This moment is more than ten years ahead.")
    return moment.timestamp()


def _next(cron: str, timezone: str) -> float:
    if len(cron.split()) != 5:
        raise InvalidRequest("A cron expression has five fields.", hint="every day at nine: `0 9 * * *`")
    from cronsim import CronSim, CronSimError  # optional: `make` has seen that it is there

    try:
        return float(next(CronSim(cron, datetime.fromtimestamp(time.time(), _zone(timezone)))).timestamp())
    except CronSimError as error:
        raise InvalidRequest(f"`{cron}` is not a cron expression: {error}.") from error
    except StopIteration:
        raise InvalidRequest(f"`{cron}` never comes.") from None


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        raise InvalidRequest(f"Unknown time zone `{name[:64]}`.", hint="such as Europe/Berlin") from error


def _kept(principal: Principal) -> JsonObject:
    scopes = [
        {"tags": None if s.tags is None else sorted(s.tags), "tools": None if s.tools is None else list(s.tools)}
        for s in principal.scopes
    ]
    return {"transport": principal.caller.transport, "scopes": scopes}


def _standing(item: Item) -> Principal:
    """Say in whose name it is said: of whoever scheduled it, with the limits that they had."""
    kept = item.value["standing"]
    scopes = [
        Scope(
            tags=None if s["tags"] is None else frozenset(s["tags"]),
            tools=None if s["tools"] is None else tuple(s["tools"]),
        )
        for s in kept["scopes"]
    ]
    return Principal(caller=Caller(id=item.owner, transport=kept["transport"]), scopes=tuple(scopes))


def shown(item: Item) -> Schedule:
    """Show what is scheduled; its next moment in its own time zone."""
    value = item.value
    moment = datetime.fromtimestamp(value["next"], _zone(value["timezone"])).isoformat(timespec="seconds")
    return Schedule(id=item.id, thread=value["thread"], prompt=value["prompt"], next_at=moment, cron=value["cron"])
