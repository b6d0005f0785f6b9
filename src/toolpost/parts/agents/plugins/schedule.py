"""`schedule__*`: prompts that are sent to a conversation at a time or by a cron expression, also after a restart of the server.

Schedules are items of the key-value store, each with the time of its next run. Every server on the store waits for the next one,
and the server whose compare-and-swap moves that time sends the prompt, so that it is sent once. A schedule whose times passed
while no server ran is run once. `list_items` and `remove_item` are also for `toolpost chat schedules`, which works on the store.
"""

import asyncio
import logging
import secrets
import time
from datetime import datetime, timedelta
from typing import Annotated, Final
from zoneinfo import ZoneInfo

from pydantic import Field
from pydantic.dataclasses import dataclass

from toolpost import (
    Caller,
    CallerId,
    Context,
    ErrorCode,
    Item,
    NotFound,
    Plugin,
    Principal,
    QueueOverloaded,
    ToolpostError,
    __version__,
)
from toolpost.base import JsonObject, Scope, ThreadId, event, steady_s
from toolpost.contracts import InvalidRequest
from toolpost.parts.agents.plugins.conversations_handle import ConversationsHandle
from toolpost.store import KeyValueStore

_log = logging.getLogger("toolpost.plugins")

NAME: Final = "schedule"
LIMIT: Final = 100
"""How many schedules a caller may have."""

AHEAD: Final = timedelta(days=10 * 366)
"""How far ahead a prompt may be scheduled."""

JUMP_S: Final = 60.0
"""A change of the wall clock by more than this moves all schedules to their next time from now. Cron has minutes."""

LOOK_S: Final = 20.0
"""How often schedules of other servers are read."""

Prompt = Annotated[str, Field(min_length=1, max_length=50_000)]
Cron = Annotated[str, Field(max_length=200, description="five fields, as cron has them: `0 9 * * MON-FRI`")]
At = Annotated[str, Field(max_length=40, description="a moment in ISO 8601; without an offset, in the time zone given")]


@dataclass
class Schedule:
    """A scheduled prompt."""

    id: str
    thread: str
    prompt: str
    next_at: str
    cron: str | None = None


def make() -> Plugin:
    plugin = Plugin(NAME, version=__version__)
    scheduler = _Scheduler(ConversationsHandle(plugin))
    plugin.on_start(scheduler.start)
    plugin.on_stop(scheduler.stop)

    @plugin.tool(errors=[ErrorCode.INVALID_REQUEST, ErrorCode.QUEUE_OVERLOADED])
    async def add(
        ctx: Context, prompt: Prompt, cron: Cron | None = None, at: At | None = None, timezone: str = "UTC"
    ) -> Schedule:
        """Schedule a prompt for this conversation: repeatedly by `cron`, or once `at` a moment."""
        principal, thread = scheduler.handle.acting_principal(ctx)
        if len(await scheduler.values.items(NAME, principal.caller.id)) >= LIMIT:
            raise QueueOverloaded(f"There are {LIMIT} schedules already.", retry_s=60, hint="remove some")
        value: JsonObject = {
            "thread": thread,
            "prompt": prompt,
            "cron": cron,
            "timezone": timezone,
            "next": _find_first(cron, at, timezone),
            "standing": encode_principal(principal),
        }
        item = Item(owner=principal.caller.id, id=f"s-{secrets.token_hex(4)}", value=value)
        await scheduler.values.put(NAME, item)
        scheduler.changed.set()
        return render_schedule(item)

    @plugin.tool(name="list", annotations={"readOnlyHint": True, "openWorldHint": False})
    async def list_schedules(ctx: Context) -> list[Schedule]:
        """List your scheduled prompts, the next first."""
        return [render_schedule(item) for item in await list_items(scheduler.values, ctx.caller.id)]

    @plugin.tool(errors=[ErrorCode.NOT_FOUND])
    async def remove(ctx: Context, id: str) -> Schedule:  # noqa: A002 (the name of the argument)
        """Remove a scheduled prompt."""
        if (item := await remove_item(scheduler.values, ctx.caller.id, id)) is not None:
            return render_schedule(item)
        raise NotFound(f"Unknown schedule `{id[:64]}`.", hint="`schedule__list` lists yours")

    return plugin


async def list_items(values: KeyValueStore, owner: CallerId | None = None) -> list[Item]:
    """Return the schedules of a caller, or of all, the next first."""
    return sorted(await values.items(NAME, owner), key=lambda item: float(item.value["next"]))


async def remove_item(values: KeyValueStore, owner: CallerId, schedule: str) -> Item | None:
    """Remove a schedule, for every server on the store; returns None if there is none with this id."""
    # A server that runs the schedule at this moment changes the item: the swap fails, and is repeated with the new value.
    while (item := await values.find(NAME, owner, schedule)) is not None:
        if await values.swap(NAME, item, None):
            return item
    return None


class _Scheduler:
    """Sends prompts when they are due."""

    def __init__(self, handle: ConversationsHandle) -> None:
        self.handle = handle
        self.changed = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self._offset_s = time.time() - steady_s()
        """Wall clock minus steady clock, in seconds; it changes when the wall clock is set."""
        self._running: set[asyncio.Task[None]] = set()

    @property
    def values(self) -> KeyValueStore:
        return self.handle.conversations.key_values

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        tasks = [*self._running, *([self._loop] if self._loop else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self.changed.clear()
            try:
                pause_s = await self._run_due() if self.handle.is_ready else 0.1
            except ToolpostError as error:
                event(_log, logging.ERROR, "schedules could not be read", reason=error.message)
                pause_s = LOOK_S
            try:
                async with asyncio.timeout(pause_s):
                    await self.changed.wait()
            except TimeoutError:
                continue

    async def _run_due(self) -> float:
        """Send the prompts that are due; return after how many seconds to look again."""
        pause_s = LOOK_S
        before, self._offset_s = self._offset_s, time.time() - steady_s()
        has_jumped = abs(self._offset_s - before) > JUMP_S
        for item in await self.values.items(NAME, None):
            if has_jumped and item.value["cron"]:
                # Times that a jump forward skipped are not run, or all of them would be at once; after a jump back, the
                # stored next time may be days ahead.
                moved = {**item.value, "next": _find_next(item.value["cron"], item.value["timezone"])}
                if moved != item.value:
                    await self.values.swap(NAME, item, moved)
                    pause_s = 0.0
                    continue
            left_s = item.value["next"] - time.time()
            if left_s > 0:
                pause_s = min(pause_s, left_s)
                continue
            cron = item.value["cron"]
            later = {**item.value, "next": _find_next(cron, item.value["timezone"])} if cron else None
            # Of several servers only one succeeds to swap the item, and this one sends the prompt.
            if await self.values.swap(NAME, item, later):
                task = asyncio.get_running_loop().create_task(self._send_prompt(item))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
                pause_s = 0.0 if later else pause_s
        return pause_s

    async def _send_prompt(self, item: Item) -> None:
        thread = ThreadId(item.value["thread"])
        try:
            await self.handle.conversations.handle_message(decode_principal(item), thread, item.value["prompt"])
        except NotFound:
            # The thread was deleted: its schedule is removed, too.
            if (now := await self.values.find(NAME, item.owner, item.id)) is not None:
                await self.values.swap(NAME, now, None)
        except ToolpostError as error:
            event(_log, logging.ERROR, "scheduled prompt failed", thread=thread, id=item.id, reason=error.message)


def _find_first(cron: str | None, at: str | None, timezone: str) -> float:
    if (cron is None) == (at is None):
        raise InvalidRequest("Set either `cron` or `at`.")
    if cron is not None:
        return _find_next(cron, timezone)
    try:
        moment = datetime.fromisoformat(at or "")
    except ValueError as error:
        raise InvalidRequest("`at` is not a valid time.", hint="write it as 2030-01-31T09:00:00+01:00") from error
    moment = moment.replace(tzinfo=_zone(timezone)) if moment.tzinfo is None else moment
    if moment.timestamp() <= time.time():
        raise InvalidRequest("This time has passed.", now=datetime.now(_zone(timezone)).isoformat())
    if moment.timestamp() > time.time() + AHEAD.total_seconds():
        raise InvalidRequest("This time is more than ten years ahead.")
    return moment.timestamp()


def _find_next(cron: str, timezone: str) -> float:
    if len(cron.split()) != 5:
        raise InvalidRequest("A cron expression has five fields.", hint="every day at nine: `0 9 * * *`")
    from cronsim import CronSim, CronSimError  # at the first schedule: few gateways have one

    try:
        return float(next(CronSim(cron, datetime.fromtimestamp(time.time(), _zone(timezone)))).timestamp())
    except CronSimError as error:
        raise InvalidRequest(f"`{cron}` is not a cron expression: {error}.") from error
    except StopIteration:
        raise InvalidRequest(f"`{cron}` has no next time.") from None


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        raise InvalidRequest(f"Unknown time zone `{name[:64]}`.", hint="such as Europe/Berlin") from error


def encode_principal(principal: Principal) -> JsonObject:
    """Return what `decode_principal` needs, to be stored."""
    scopes = [
        {
            "tags": None if s.tags is None else sorted(s.tags),
            "tools": None if s.tools is None else list(s.tools),
            "is_read_only": s.is_read_only,
            "confirmed": sorted(s.confirmed),
        }
        for s in principal.scopes
    ]
    return {"transport": principal.caller.transport, "scopes": scopes}


def decode_principal(item: Item) -> Principal:
    """Return the caller who scheduled it, with the limits that they had then."""
    stored = item.value["standing"]
    scopes = [
        Scope(
            tags=None if s["tags"] is None else frozenset(s["tags"]),
            tools=None if s["tools"] is None else tuple(s["tools"]),
            is_read_only=s.get("is_read_only", False),
            confirmed=frozenset(s.get("confirmed", ())),
        )
        for s in stored["scopes"]
    ]
    return Principal(caller=Caller(id=item.owner, transport=stored["transport"]), scopes=tuple(scopes))


def render_schedule(item: Item) -> Schedule:
    """Convert an item; the next time is in the time zone of the schedule."""
    value = item.value
    moment = datetime.fromtimestamp(value["next"], _zone(value["timezone"])).isoformat(timespec="seconds")
    return Schedule(id=item.id, thread=value["thread"], prompt=value["prompt"], next_at=moment, cron=value["cron"])
