"""Applies a changed configuration and lock while the gateway runs: servers, callers and sections of parts, completely or not
at all.
"""

import logging
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from toolpost.admin.specs import specs_of
from toolpost.app.app import App
from toolpost.app.callers import note_needs, read_callers
from toolpost.app.refresh import EVERY_SERVER
from toolpost.base import JsonObject, event
from toolpost.base.stamps import Stamp, read_stamp
from toolpost.contracts.errors import BadLock, ToolpostError, first_error
from toolpost.endpoints.auth.access import check_exposure
from toolpost.endpoints.auth.roster import CallerTable, TokenIssuer
from toolpost.host.blame import make_part_failure
from toolpost.host.contributions import Reload
from toolpost.settings import Config
from toolpost.settings.lock import read_lock

_log = logging.getLogger("toolpost.reload")

LOOK_S: Final = 1.0
SETTLE_S: Final = 0.2
"""How long a file must be unchanged before it is read: an editor may truncate it before writing."""

Stamps = dict[Path, Stamp | None]


async def follow_config(
    app: App, path: Path, load: Callable[[], Config], *, look_s: float = LOOK_S, settle_s: float = SETTLE_S
) -> None:
    """Poll the configuration file, and the token files it names, and apply changes, until cancelled."""
    was_there = read_stamp(path) is not None
    # Starting servers takes time: a change since the file was first read must not be missed.
    seen: Stamps = {} if was_there else _read_stamps(app, path)
    while True:
        await anyio.sleep(look_s)
        if _read_stamps(app, path) == seen:
            continue
        found = await _wait_until_settled(app, path, settle_s)
        was_there = was_there or found[path] is not None
        if found[path] is None and was_there:
            event(
                _log, logging.WARNING, "configuration file is missing; the previous configuration stays", path=str(path)
            )
            seen = found
            continue
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_apply_then_cancel, app, load, found, tasks.cancel_scope)
            # A newer configuration does not wait for slow servers of this one.
            while _are_unchanged(found):  # noqa: ASYNC110 (files are polled)
                await anyio.sleep(look_s)
            tasks.cancel_scope.cancel()
        # The new configuration may name other token files; one that has changed since is read again.
        seen = {file: found.get(file, stamp) for file, stamp in _read_stamps(app, path).items()}


async def follow_lock(app: App, *, look_s: float = LOOK_S) -> None:
    """Poll the lock file and apply changes, until cancelled."""
    path = app.config.lock_path
    # Starting servers takes time: a change since the lock was first read must not be missed.
    seen = None
    while True:
        await anyio.sleep(look_s)
        if (stamp := read_stamp(path)) == seen:
            continue
        seen = stamp
        try:
            locked = await anyio.to_thread.run_sync(read_lock, path)
        except BadLock as error:
            event(_log, logging.WARNING, "lock not applied; the previous one stays", reason=error.message)
            continue
        if locked is None:
            event(_log, logging.WARNING, "lock file is missing; the previous lock stays", path=str(path))
            continue
        if await app.servers.watched_tools.relock(locked):
            event(_log, logging.INFO, "lock applied", tools=len(locked))


async def _apply_then_cancel(app: App, load: Callable[[], Config], found: Stamps, scope: anyio.CancelScope) -> None:
    await apply_config(app, load, is_still=lambda: _are_unchanged(found))
    scope.cancel()


async def apply_config(app: App, load: Callable[[], Config], *, is_still: Callable[[], bool] = lambda: True) -> None:
    """Apply the servers, callers and parts of a changed configuration; an error in it is logged and changes nothing."""
    try:
        config = load()
        if not is_still():
            return  # The file changed while it was read.
        members = await _read_members(app, config)
        reloads = {each.section: (part, each) for part, each in app.contributions.named(Reload)}
        prepared = [(part, await _prepare(part, reload, config)) for part, reload in reloads.values()]
        applied = await app.servers.apply(specs_of(config, app.plugins))
    except (ToolpostError, ExceptionGroup) as raised:
        error = first_error(raised)
        facts: JsonObject = {"reason": error.message} | ({"hint": error.hint} if error.hint else {})
        event(_log, logging.WARNING, "configuration not applied; the previous one stays", **facts)
        return
    with anyio.CancelScope(shield=True), app.changes.waiting():
        for part, put_in_force in prepared:
            if put_in_force is None:
                continue
            try:
                await put_in_force()
            except Exception as error:  # noqa: BLE001 (a part may raise anything; the others must have the new configuration)
                event(_log, logging.ERROR, "change of a part failed", part=part, exception=error)
    _replace_callers(app, config, members)
    if others := _list_other_changes(app.config, config, reloads):
        event(_log, logging.WARNING, "takes effect at the next start", settings=others)
    if not applied.is_nothing:
        event(
            _log,
            logging.INFO,
            "configuration applied",
            added=applied.added,
            removed=applied.removed,
            restarted=applied.restarted,
            revised=applied.revised,
        )


async def _prepare(part: str, reload: Reload, config: Config) -> Callable[[], Awaitable[None]] | None:
    try:
        return await reload.prepare(config)
    except (ToolpostError, ExceptionGroup):
        raise
    except Exception as error:
        raise make_part_failure(part, f"could not prepare the change of [{reload.section}]", error) from error


async def _read_members(app: App, config: Config) -> CallerTable:
    """Read the callers; raises if that would open a network endpoint to everyone."""
    if not app.changes.is_served:
        return app.roster.configured
    # In a thread: it reads files, and may import the OAuth code.
    members = await anyio.to_thread.run_sync(
        read_callers, config, app.roster.configured, app.contributions.first(TokenIssuer)
    )
    check_exposure(app.config.address[0], is_open=members.is_open)
    return members


def _replace_callers(app: App, config: Config, members: CallerTable) -> None:
    app.changes.config = config
    is_same = members == app.roster.configured
    if not note_needs(app.roster, app.servers) and is_same:
        return
    before, after = ({caller.name: caller for caller in each.callers} for each in (app.roster.configured, members))
    app.roster.replace(members)
    app.changes.note(EVERY_SERVER)
    if is_same:
        return
    event(
        _log,
        logging.INFO,
        "callers applied",
        added=sorted(after.keys() - before.keys()),
        removed=sorted(before.keys() - after.keys()),
        changed=sorted(name for name in after.keys() & before.keys() if after[name] != before[name]),
    )


def _list_other_changes(old: Config, new: Config, reloaded: Collection[str]) -> list[str]:
    taken_over = ("servers", "callers", "project", "parts")
    names = [field.name for field in msgspec.structs.fields(Config) if field.name not in taken_over]
    old, new = _drop_caller_settings(old), _drop_caller_settings(new)
    sections = {**old.parts, **new.parts}
    return [name for name in names if getattr(old, name) != getattr(new, name)] + [
        name for name in sections if name not in reloaded and old.parts.get(name) != new.parts.get(name)
    ]


def _drop_caller_settings(config: Config) -> Config:
    http = msgspec.structs.replace(config.http, token=None, tags=None, tools=None, oauth=None)
    return msgspec.structs.replace(config, http=http)


def _read_stamps(app: App, path: Path) -> Stamps:
    """Return what identifies the state of the configuration file and of each token file."""
    return {file: read_stamp(file) for file in (path, *app.changes.config.secret_files)}


def _are_unchanged(found: Stamps) -> bool:
    return all(read_stamp(file) == stamp for file, stamp in found.items())


async def _wait_until_settled(app: App, path: Path, settle_s: float) -> Stamps:
    """Wait until the files stop changing."""
    found = _read_stamps(app, path)
    while True:
        await anyio.sleep(settle_s)
        if (now := _read_stamps(app, path)) == found:
            return now
        found = now
