"""`/api/console/overview`: how the gateway fares, and what needs attention.

An administrator is told about all servers and calls; another caller about the servers of its view and its own calls.
"""

import time
from datetime import UTC, datetime
from typing import Final

from toolpost import Principal
from toolpost.base import Json, JsonObject
from toolpost.endpoints.http import Admission, Route, RouteRequest
from toolpost.parts import ActionItem
from toolpost.parts.console.context import Console
from toolpost.providers.server_provider import ServerProvider
from toolpost.settings import make_concealer
from toolpost.store.audit_values import Activity
from toolpost.upstreams.report import ServerState

MINUTES: Final = 60
LINES: Final = 5
CHANGED_LIMIT: Final = 20
_DOWN: Final = (ServerState.FAILED, ServerState.SUSPENDED)


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
            "attention": [_render(item) for item in await _list_attention(console, admission)],
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


async def _list_attention(console: Console, admission: Admission) -> list[ActionItem]:
    principal = Principal(caller=admission.caller, scopes=admission.scopes, is_admin=admission.is_admin)
    found: list[ActionItem] = []
    if admission.is_admin:
        for provider in console.http.servers.providers.values():
            if provider.state in _DOWN:
                found.append(_describe_failed(provider))
            if (problem := provider.degraded) is not None:
                found.append(_describe_degraded(provider, problem))
        found += _describe_changed(console)
        found += [
            ActionItem(
                title=f"The plugin {plugin.name} could not be loaded",
                text="; ".join(plugin.problems),
                command=f"toolpost doctor {plugin.name}",
                is_urgent=True,
            )
            for plugin in console.host.plugins.plugins
            if plugin.state == "failed"
        ]
    return [*found, *await console.http.attention(principal)]


def _describe_failed(provider: ServerProvider) -> ActionItem:
    report, conceal = provider.report(), make_concealer(provider.spec)
    text = conceal(report.last_error or "it does not start")
    lines = [conceal(line) for line in report.stderr_tail[-LINES:]]
    return ActionItem(
        title=f"The server {provider.name} is not available",
        text=f"{text}; {report.hint}" if report.hint else text,
        path=f"/servers/{provider.name}",
        command=f"toolpost doctor {provider.name}",
        # The error quotes the last line: one line alone would be shown twice.
        lines=[] if len(lines) == 1 and lines[0] in text else lines,
        is_urgent=True,
    )


def _describe_degraded(provider: ServerProvider, problem: str) -> ActionItem:
    return ActionItem(
        title=f"The server {provider.name} is degraded",
        text=problem,
        path=f"/servers/{provider.name}",
        command=f"toolpost doctor {provider.name}",
    )


def _describe_changed(console: Console) -> list[ActionItem]:
    changed = [
        (name, status, provider.is_quarantined(name))
        for provider in console.http.servers.watched
        for name, status in provider.statuses.items()
        if not status.is_harmless
    ]
    items = [
        ActionItem(
            title=f"{name} has changed" + (" and is quarantined" if is_quarantined else ""),
            text=f"{status.as_object()['verdict']} since it was {status.since}",
            path=f"/contracts/{name}",
            command=f"toolpost lock --accept {name}",
            is_urgent=is_quarantined,
        )
        for name, status, is_quarantined in changed[:CHANGED_LIMIT]
    ]
    if (rest := len(changed) - CHANGED_LIMIT) > 0:
        items.append(ActionItem(title=f"{rest} more tools have changed", path="/contracts", command="toolpost diff"))
    return items


def _render(item: ActionItem) -> JsonObject:
    return {
        "title": item.title,
        "text": item.text,
        "path": item.path,
        "command": item.command,
        "isUrgent": item.is_urgent,
        "lines": list[Json](item.lines),
    }
