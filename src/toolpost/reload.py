"""A changed configuration, taken over while the gateway runs: as a whole, or not at all."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import msgspec

from toolpost.app import App, specs_of
from toolpost.config import Config
from toolpost.contracts.errors import GatewayError, ToolpostError
from toolpost.contracts.events import event

_log = logging.getLogger("toolpost.reload")

LOOK_S: Final = 1.0


async def follow_config(app: App, path: Path, load: Callable[[], Config], *, look_s: float = LOOK_S) -> None:
    """Look at the file now and then, and take over what has changed in it, until cancelled."""
    seen = _stamp(path)
    while True:
        await anyio.sleep(look_s)
        if (stamp := _stamp(path)) != seen:
            seen = stamp
            await take_over(app, load)


async def take_over(app: App, load: Callable[[], Config]) -> None:
    """Take over the servers of a changed configuration; a fault in it leaves everything as it was."""
    try:
        config = load()
        applied = await app.servers.apply(specs_of(config, app.host))
    except (ToolpostError, ExceptionGroup) as raised:
        error = _first(raised)
        event(
            _log,
            logging.WARNING,
            "configuration not taken over; the one before goes on",
            reason=error.message,
            hint=error.hint,
        )
        return
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


def _changed_beside_servers(old: Config, new: Config) -> list[str]:
    names = [field.name for field in msgspec.structs.fields(Config) if field.name not in ("servers", "project")]
    return [name for name in names if getattr(old, name) != getattr(new, name)]


def _first(raised: Exception) -> ToolpostError:
    """Return what went wrong first; several servers may fail to start at once."""
    while isinstance(raised, ExceptionGroup):
        raised = raised.exceptions[0]
    return raised if isinstance(raised, ToolpostError) else GatewayError(str(raised) or type(raised).__name__)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
