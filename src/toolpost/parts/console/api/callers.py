"""`/api/console/callers`: who may call, what each of them sees, and how much it has called.

GET /callers               the names of all callers, for administrators
GET /callers/usage?age=    each caller with its limits and its calls of the last `1h`, `24h` or `7d`; a caller that is no
                           administrator is told of itself
"""

import time
from datetime import UTC, datetime
from typing import Final

from anyio import to_thread

from toolpost.base.caller import Scope
from toolpost.base.ids import CallerId, Json, JsonObject
from toolpost.contracts.errors import InvalidRequest
from toolpost.discovery import EVERYTHING
from toolpost.endpoints.auth.roster import KnownCaller
from toolpost.endpoints.http.routes import Route, RouteRequest
from toolpost.parts.console.callers import list_callers
from toolpost.parts.console.context import Console

AGES: Final = {"1h": 3_600, "24h": 86_400, "7d": 7 * 86_400}


def routes_of(console: Console) -> list[Route]:
    """Make the paths."""
    roster = console.http.access.roster

    async def name_callers(_: RouteRequest) -> Json:
        return {"callers": [name for name, _ in list_callers(roster)]}

    async def show_usage(request: RouteRequest) -> Json:
        age = request.query.get("age") or "24h"
        if age not in AGES:
            raise InvalidRequest(f"`age` is one of {', '.join(AGES)}.")
        since = datetime.fromtimestamp(time.time() - AGES[age], UTC).strftime("%Y-%m-%dT%H:%M:%S")
        admission = request.admission
        only = None if admission.is_admin else admission.caller.id
        usage, is_cut = await console.host.store.audit.usage(since, caller=only)
        known = {one.name: one for one in roster.members.callers}
        rows: dict[str, JsonObject] = {}
        for name, scopes in list_callers(roster):
            if only is None or name == only.partition(":")[0]:
                rows[name] = {"caller": name, **await _describe(console, name, scopes, known.get(name))}
        for each in usage:
            # Agents, the command line, people of an authorization server: they call, and are not configured by their names.
            row = rows.setdefault(each.caller, {"caller": each.caller, "isConfigured": False})
            row |= {
                "calls": each.calls,
                "failed": each.failed,
                "meanMs": round(each.mean_ms, 3),
                "lastAt": each.last_at,
            }
        return {"callers": list(rows.values()), "age": age, "isCut": is_cut}

    return [
        console.read("/callers", name_callers, is_for_admins=True),
        console.read("/callers/usage", show_usage),
    ]


async def _describe(
    console: Console, name: CallerId, scopes: tuple[Scope, ...], known: KnownCaller | None
) -> JsonObject:
    catalog = console.http.gateway.catalog
    seen = await to_thread.run_sync(catalog.narrow, EVERYTHING.within(scopes))
    anonymous = console.http.access.roster.anonymous
    ways = []
    if known is not None:
        ways = [
            *(["token"] if known.token is not None else []),
            *(["passphrase"] if known.passphrase is not None else []),
            *(["access token"] if known.issuer is not None else []),
        ]
    return {
        "isConfigured": True,
        "isAdmin": known.is_admin if known is not None else anonymous is not None and anonymous.caller.id == name,
        "ways": ways,
        "tools": len(seen),
        "limits": [text for scope in scopes for text in _words(scope)],
    }


def _words(scope: Scope) -> list[str]:
    """Say what a scope is limited to."""
    found = []
    if scope.tags is not None:
        found.append(f"tags {', '.join(sorted(scope.tags)) or '(none)'}")
    if scope.tools is not None:
        found.append(f"tools {', '.join(scope.tools) or '(none)'}")
    if scope.is_read_only:
        found.append("read-only tools")
    return found
