"""`/api/console/logs`: the log on disk, as `toolpost logs` shows it. `/api/console/events?logs=1` has what is added to it.

GET /logs?server=&caller=&call=&level=&since=&until=&before=&limit=   events, newest first; `next` of an answer is `&before=`
                                                                      for those before

What is read for an answer is bounded: one with `isCut` has looked at a part of the log, and found fewer than asked for.
"""

import re
from typing import Final

from toolpost.base import Json
from toolpost.contracts import InvalidRequest
from toolpost.endpoints.http import Route, RouteRequest
from toolpost.parts.console.context import Console
from toolpost.parts.console.log_view import LogView, Position

PAGE: Final = 200
PAGE_LIMIT: Final = 1_000
FILTERS: Final = ("server", "caller", "call", "trace", "level")
_LEVELS: Final = tuple(name.lower() for name in ("DEBUG", "INFO", "WARNING", "ERROR"))
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d(T\d\d(:\d\d(:\d\d(\.\d{1,6})?)?)?Z?)?")
_CURSOR: Final = re.compile(r"\d{1,20}:\d{1,15}(,\d{1,20}:\d{1,15}){0,99}")


def routes_of(console: Console) -> list[Route]:
    """Make the path."""

    async def list_events(request: RouteRequest) -> Json:
        log = LogView.of(console, request.admission)
        wanted = read_filters(request.query)
        may_read = console.may_write(request)
        if log is None or not may_read:
            return {"isKept": log is not None, "mayRead": may_read, "events": [], "next": None, "isCut": False}
        before = _read_cursor(request.query.get("before"))
        limit = int(request.read_number("limit", PAGE, PAGE_LIMIT)) or PAGE
        events, rest, is_cut = await log.read_back(wanted, limit=limit, before=before)
        return {
            "isKept": True,
            "mayRead": True,
            "events": events,
            "next": ",".join(f"{inode}:{at}" for inode, at in rest.items()) or None,
            "isCut": is_cut,
        }

    return [console.read("/logs", list_events)]


def read_filters(query: dict[str, str]) -> dict[str, str]:
    """Return the filters of a query; raises `InvalidRequest` for one that is none."""
    wanted = {name: query[name] for name in (*FILTERS, "since", "until") if query.get(name)}
    if wanted.get("level", "info") not in _LEVELS:
        raise InvalidRequest("`level` is not a level.", hint=f"known: {', '.join(_LEVELS)}")
    for name in ("since", "until"):
        if name in wanted and not _MOMENT.fullmatch(wanted[name]):
            raise InvalidRequest(f"`{name}` is not a time.", hint="write it as 2026-11-17T09:30:00Z")
    return wanted


def _read_cursor(text: str | None) -> Position | None:
    if not text:
        return None
    if not _CURSOR.fullmatch(text):
        raise InvalidRequest("`before` is not a position in the log.", hint="send `next` of the answer before")
    pairs = (each.split(":") for each in text.split(","))
    return {int(inode): int(at) for inode, at in pairs}
