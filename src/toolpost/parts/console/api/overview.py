"""`/api/console/overview`: how the gateway fares, and what needs attention.

An administrator is told about all servers and calls; another caller about the servers of its view and its own calls.
"""

import time
from datetime import UTC, datetime
from typing import Final

from toolpost.base import Json, JsonObject
from toolpost.endpoints.http import Route, RouteRequest
from toolpost.parts import ActionItem
from toolpost.parts.console.context import Console
from toolpost.store.audit_values import Activity

MINUTES: Final = 60


def routes_of(console: Console) -> list[Route]:
    """Make the path."""

    async def show(request: RouteRequest) -> Json:
        admission = request.admission
        minutes = _list_minutes(time.time())
        only = None if admission.is_admin else admission.caller.id
        activity = await console.host.store.audit.activity(minutes[0], caller=only)
        seen = [
            one
            for one in console.http.servers.providers.values()
            if admission.is_admin or admission.view.shows(one.name, one.spec.tags)
        ]
        return {
            "tools": len(console.http.gateway.catalog.narrow(admission.view)),
            "inFlight": console.http.gateway.in_flight if admission.is_admin else None,
            "total": _summarize(activity, minutes),
            "servers": [
                {
                    "name": one.name,
                    "state": one.state.value,
                    **_summarize([each for each in activity if each.source == one.name], minutes),
                }
                for one in seen
            ],
            "attention": [_render(item) for item in await console.http.attention(request.principal)],
        }

    return [console.read("/overview", show)]


def _list_minutes(now: float) -> list[str]:
    """Return the last minutes as the audit writes them, the oldest first."""
    last = int(now // 60)
    return [
        datetime.fromtimestamp(minute * 60, UTC).strftime("%Y-%m-%dT%H:%M")
        for minute in range(last - MINUTES + 1, last + 1)
    ]


def _summarize(activity: list[Activity], minutes: list[str]) -> JsonObject:
    """Return calls, failures and mean durations of each minute."""
    calls, failed, spent = (dict.fromkeys(minutes, 0.0) for _ in range(3))
    for each in activity:
        if each.minute in calls:
            calls[each.minute] += each.calls
            failed[each.minute] += each.failed
            spent[each.minute] += each.mean_ms * each.calls
    return {
        "calls": [int(calls[minute]) for minute in minutes],
        "failed": [int(failed[minute]) for minute in minutes],
        "meanMs": [round(spent[minute] / calls[minute], 3) if calls[minute] else 0.0 for minute in minutes],
    }


def _render(item: ActionItem) -> JsonObject:
    return {
        "title": item.title,
        "text": item.text,
        "path": item.path,
        "command": item.command,
        "isUrgent": item.is_urgent,
        "lines": list[Json](item.lines),
    }
