"""`/api/console/overview`: the state of the gateway, and items that need attention.

An administrator is told about all servers and calls; another caller about the servers of its view and its own calls.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from toolpost.base import Json, JsonObject, PluginName
from toolpost.endpoints.http import Route, RouteRequest
from toolpost.parts import ActionItem
from toolpost.parts.console.context import Console

MINUTES: Final = 60


class Timeline:
    """Calls, failures and mean durations of some minutes."""

    def __init__(self, minutes: Sequence[str]) -> None:
        self._calls, self._failed = dict.fromkeys(minutes, 0), dict.fromkeys(minutes, 0)
        self._spent_ms = dict.fromkeys(minutes, 0.0)

    def add(self, minute: str, calls: int, failed: int, mean_ms: float) -> None:
        """Add the calls of a minute; those of another minute are left out."""
        if minute in self._calls:
            self._calls[minute] += calls
            self._failed[minute] += failed
            self._spent_ms[minute] += mean_ms * calls

    def render(self) -> JsonObject:
        """Return a number for each minute, the oldest first."""
        means = [
            round(spent_ms / calls, 3) if calls else 0.0
            for spent_ms, calls in zip(self._spent_ms.values(), self._calls.values(), strict=True)
        ]
        return {"calls": [*self._calls.values()], "failed": [*self._failed.values()], "meanMs": [*means]}


def routes_of(console: Console) -> list[Route]:
    """Make the path."""

    async def show(request: RouteRequest) -> Json:
        admission = request.admission
        minutes = _list_minutes(time.time())
        only = None if admission.is_admin else admission.caller.id
        seen = [
            one
            for one in console.http.servers.providers.values()
            if admission.is_admin or admission.view.shows(one.name, one.spec.tags)
        ]
        total, by_server = Timeline(minutes), {one.name: Timeline(minutes) for one in seen}
        for each in await console.host.store.audit.activity(minutes[0], caller=only):
            for timeline in (total, by_server.get(PluginName(each.source))):
                if timeline is not None:
                    timeline.add(each.minute, each.calls, each.failed, each.mean_ms)
        return {
            "tools": len(console.http.gateway.catalog.narrow(admission.view)),
            "inFlight": console.http.gateway.in_flight if admission.is_admin else None,
            "total": total.render(),
            "servers": [{"name": one.name, "state": one.state.value, **by_server[one.name].render()} for one in seen],
            "actionItems": [_render(item) for item in await console.http.find_action_items(request.principal)],
        }

    return [console.read("/overview", show)]


def _list_minutes(now: float) -> list[str]:
    """Return the last minutes as the audit writes them, the oldest first."""
    last = int(now // 60)
    return [
        datetime.fromtimestamp(minute * 60, UTC).strftime("%Y-%m-%dT%H:%M")
        for minute in range(last - MINUTES + 1, last + 1)
    ]


def _render(item: ActionItem) -> JsonObject:
    return {
        "title": item.title,
        "text": item.text,
        "path": item.path,
        "command": item.command,
        "isUrgent": item.is_urgent,
        "lines": list[Json](item.lines),
    }
