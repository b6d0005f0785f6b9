"""A changed configuration, taken over while the gateway runs: servers and callers, as a whole or not at all."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from toolpost.app import specs_of
from toolpost.base.events import event
from toolpost.base.ids import JsonObject
from toolpost.contracts.errors import BadLock, GatewayError, ToolpostError
from toolpost.endpoints.auth.access import check_exposure
from toolpost.endpoints.auth.roster import Members
from toolpost.members import members_of
from toolpost.running import EVERY_SERVER, App
from toolpost.settings import Config
from toolpost.settings.lock import read_lock

_log = logging.getLogger("toolpost.reload")

LOOK_S: Final = 1.0
SETTLE_S: Final = 0.2
"""How long a file must be left alone before it is read: whoever writes it may have emptied it first."""

Stamps = dict[Path, tuple[int, int, int] | None]


async def follow_config(
    app: App, path: Path, load: Callable[[], Config], *, look_s: float = LOOK_S, settle_s: float = SETTLE_S
) -> None:
    """Look at the file now and then, and take over what has changed in it, until cancelled."""
    was_there = _stamp(path) is not None
    # Servers take their time to start: what has changed since the file was read is a change too.
    seen: Stamps = {} if was_there else _stamps(app, path)
    while True:
        await anyio.sleep(look_s)
        if _stamps(app, path) == seen:
            continue
        found = await _settled(app, path, settle_s)
        was_there = was_there or found[path] is not None
        if found[path] is None and was_there:
            event(_log, logging.WARNING, "configuration is gone; the one before goes on", path=str(path))
            seen = found
            continue
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_taken_over, app, load, found, tasks.cancel_scope)
            # A server that takes its time to start does not keep a better configuration waiting.
            while _are_still(found):  # noqa: ASYNC110 (a file tells nobody)
                await anyio.sleep(look_s)
            tasks.cancel_scope.cancel()
        # By now other files may say who may come in; one that has changed meanwhile is read again.
        seen = {file: found.get(file, stamp) for file, stamp in _stamps(app, path).items()}


async def follow_lock(app: App, *, look_s: float = LOOK_S) -> None:
    """Look at the lock now and then, and hold the tools to what it says now, until cancelled."""
    path = app.config.lock_path
    # Servers take their time to start: what has changed since the lock was read is a change too.
    seen = None
    while True:
        await anyio.sleep(look_s)
        if (stamp := _stamp(path)) == seen:
            continue
        seen = stamp
        try:
            locked = await anyio.to_thread.run_sync(read_lock, path)
        except BadLock as error:
            event(_log, logging.WARNING, "lock not taken over; the one before goes on", reason=error.message)
            continue
        if locked is None:
            event(_log, logging.WARNING, "lock is gone; the one before goes on", path=str(path))
            continue
        if await app.servers.relock(locked):
            event(_log, logging.INFO, "lock taken over", tools=len(locked))


async def _taken_over(app: App, load: Callable[[], Config], found: Stamps, scope: anyio.CancelScope) -> None:
    await take_over(app, load, is_still=lambda: _are_still(found))
    scope.cancel()


async def take_over(app: App, load: Callable[[], Config], *, is_still: Callable[[], bool] = lambda: True) -> None:
    """Take over servers and callers of a changed configuration; a fault in it leaves everything as it was."""
    try:
        config = load()
        if not is_still():
            return  # It was being written while it was read.
        members = await _members(app, config)
        applied = await app.servers.apply(specs_of(config, app.host))
    except (ToolpostError, ExceptionGroup) as raised:
        error = _first(raised)
        told: JsonObject = {"reason": error.message} | ({"hint": error.hint} if error.hint else {})
        event(_log, logging.WARNING, "configuration not taken over; the one before goes on", **told)
        return
    _let_in(app, config, members)
    if others := _changed_beside_servers(app.config, config):
        event(_log, logging.WARNING, "takes effect at the next start", settings=others)
    if not applied.is_nothing:
        event(
            _log,
            logging.INFO,
            "configuration taken over",
            added=applied.added,
            removed=applied.removed,
            restarted=applied.restarted,
            revised=applied.revised,
        )


async def _members(app: App, config: Config) -> Members:
    """Read who may come in from now on; what would open the endpoint to everybody who reaches it is a fault."""
    if not app.changes.is_served:
        return app.roster.members
    # Files are read, and perhaps what judges access tokens is loaded.
    members = await anyio.to_thread.run_sync(members_of, config, app.roster.members)
    check_exposure(app.config.address[0], is_open=members.is_open)
    return members


def _let_in(app: App, config: Config, members: Members) -> None:
    app.changes.config = config
    if members == app.roster.members:
        return
    before, after = ({caller.name: caller for caller in each.callers} for each in (app.roster.members, members))
    app.roster.replace(members)
    app.changes.note(EVERY_SERVER)
    event(
        _log,
        logging.INFO,
        "callers taken over",
        added=sorted(after.keys() - before.keys()),
        removed=sorted(before.keys() - after.keys()),
        changed=sorted(name for name in after.keys() & before.keys() if after[name] != before[name]),
    )


def _changed_beside_servers(old: Config, new: Config) -> list[str]:
    taken_over = ("servers", "callers", "project", "parts")
    names = [field.name for field in msgspec.structs.fields(Config) if field.name not in taken_over]
    old, new = _without_members(old), _without_members(new)
    sections = {**old.parts, **new.parts}
    return [name for name in names if getattr(old, name) != getattr(new, name)] + [
        name for name in sections if old.parts.get(name) != new.parts.get(name)
    ]


def _without_members(config: Config) -> Config:
    http = msgspec.structs.replace(config.http, token_file=None, tags=None, tools=None, oauth=None)
    return msgspec.structs.replace(config, http=http)


def _first(raised: Exception) -> ToolpostError:
    """Return what went wrong first; several servers may fail to start at once."""
    while isinstance(raised, ExceptionGroup):
        raised = raised.exceptions[0]
    return raised if isinstance(raised, ToolpostError) else GatewayError(str(raised) or type(raised).__name__)


def _stamps(app: App, path: Path) -> Stamps:
    """Tell by their times whether the configuration, or a file that it names a token by, has changed."""
    return {file: _stamp(file) for file in (path, *app.changes.config.secret_files)}


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _are_still(found: Stamps) -> bool:
    return all(_stamp(file) == stamp for file, stamp in found.items())


async def _settled(app: App, path: Path, settle_s: float) -> Stamps:
    """Wait until the files are left alone."""
    found = _stamps(app, path)
    while True:
        await anyio.sleep(settle_s)
        if (now := _stamps(app, path)) == found:
            return now
        found = now
