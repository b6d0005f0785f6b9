"""`/api/console/overview`: the state of the gateway, and items that need attention.

An administrator is told about all servers and calls; another caller about the servers of its view and its own calls.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qs, urlsplit

from anyio import to_thread

from toolpost.base import Json, JsonObject
from toolpost.endpoints.http import Route, RouteRequest
from toolpost.parts import ActionItem
from toolpost.parts.console.context import Console
from toolpost.parts.console.definitions import DefinitionHistory
from toolpost.parts.console.figures import MINUTES, summarize
from toolpost.parts.console.log_view import LogView, find_error

CAUSES: Final = 3
"""Items about failures whose cause is looked up in the log."""
CAUSE_S: Final = 300.0
CAUSE_CHARS: Final = 300

_CONTRACT: Final = "/contracts/"
"""Begins the paths of items about one tool."""


def routes_of(console: Console) -> list[Route]:
    """Make the path."""
    history = DefinitionHistory(console.host.store)

    async def show(request: RouteRequest) -> Json:
        admission = request.admission
        seen = [
            one
            for one in console.http.servers.providers.values()
            if admission.is_admin or admission.view.shows(one.name, one.spec.tags)
        ]
        minutes = list_minutes(time.time(), 2 * MINUTES)
        only = None if admission.is_admin else admission.caller.id
        sample = await console.host.store.audit.sample(minutes[0], caller=only)
        # In a thread: thousands of durations are sorted.
        figures = await to_thread.run_sync(
            lambda: summarize(
                sample.calls, sample.weight, minutes=minutes[MINUTES:], servers=[one.name for one in seen]
            )
        )
        by_server = figures.pop("servers")
        items = await console.http.find_action_items(request.principal)
        return {
            "tools": len(console.http.gateway.catalog.narrow(admission.view)),
            "inFlight": console.http.gateway.in_flight if admission.is_admin else None,
            "servers": [{"name": one.name, "state": one.state.value, **by_server[one.name]} for one in seen],
            "actionItems": [
                _render(item) for item in await _add_changes(history, await _add_causes(console, request, items))
            ],
            "topTools": figures.pop("tools"),
            **figures,
        }

    return [console.read("/overview", show)]


def list_minutes(now: float, count: int) -> list[str]:
    """Return the last minutes as the audit writes them, the oldest first."""
    last = int(now // 60)
    return [
        datetime.fromtimestamp(minute * 60, UTC).strftime("%Y-%m-%dT%H:%M")
        for minute in range(last - count + 1, last + 1)
    ]


async def _add_causes(console: Console, request: RouteRequest, items: Sequence[ActionItem]) -> list[ActionItem]:
    """Add the message of the last failed call to items about failures: the audit has codes alone."""
    log = LogView.of(console, request.admission)
    since = datetime.fromtimestamp(time.time() - CAUSE_S, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    found = [*items]
    about_failures = [at for at, item in enumerate(items) if item.kind == "failures"]
    for at in about_failures[:CAUSES] if log is not None else ():
        item = items[at]
        asked = parse_qs(urlsplit(item.path or "").query)
        (tool,), code = asked["tool"], asked.get("code", [""])[0]
        owner = {"server": tool.removesuffix("__*")} if tool.endswith("__*") else {"tool": tool}
        assert log is not None
        lines, _, _ = await log.read_back({**owner, "code": code, "since": since}, limit=1)
        if (error := find_error(lines)) is not None and error["message"]:
            found[at] = replace(item, text=f"{item.text.removesuffix('.')}: {error['message'][:CAUSE_CHARS]}")
    return found


async def _add_changes(history: DefinitionHistory, items: Sequence[ActionItem]) -> list[ActionItem]:
    """Add since when tools have changed: only the console keeps that."""
    tools = [_find_tool(item) for item in items]
    changed_at = await history.changed_at([tool for tool in tools if tool])
    return [
        replace(item, since=changed_at.get(tool)) if tool else item for item, tool in zip(items, tools, strict=True)
    ]


def _find_tool(item: ActionItem) -> str:
    """Return the tool whose contract an item is about; empty if it is about something else."""
    return item.path.removeprefix(_CONTRACT) if item.path and item.path.startswith(_CONTRACT) else ""


def _render(item: ActionItem) -> JsonObject:
    return {
        "kind": item.kind,
        "title": item.title,
        "text": item.text,
        "since": datetime.fromtimestamp(item.since, UTC).isoformat(timespec="seconds") if item.since else None,
        "action": item.action,
        "path": item.path,
        "command": item.command,
        "isUrgent": item.is_urgent,
        "lines": list[Json](item.lines),
    }
