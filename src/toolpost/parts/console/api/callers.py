"""`/api/console/callers`: callers, with their visible tools and numbers of calls.

GET  /callers               the names of all callers, for administrators
GET  /callers/usage?age=    each caller with its limits and its calls of the last `1h`, `24h` or `7d`; a caller that is no
                            administrator is told of itself

A caller of `toolpost.toml` wins over one of the store with its name, which `isShadowed` tells.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from anyio import to_thread

from toolpost import Caller, CallerId, Forbidden, NotFound
from toolpost.base import Json, JsonObject, Scope
from toolpost.contracts import InvalidRequest
from toolpost.discovery import EVERYTHING, View
from toolpost.endpoints.http import Admission, KnownCaller, Roster, Route, RouteRequest
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
        if only is None:
            await _add_stored(console, rows)
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


async def _add_stored(console: Console, rows: dict[str, JsonObject]) -> None:
    admitted = {known.name for known in console.http.access.roster.members.callers if known.is_stored}
    for one in await console.http.stored_callers.all():
        made_at = datetime.fromtimestamp(console.host.store.scripts.wall(one.made_at), UTC)
        row = rows.setdefault(one.name, {"caller": one.name, "isConfigured": False})
        row |= {
            "isStored": True,
            "isShadowed": one.name not in admitted,
            "madeBy": one.made_by,
            "madeAt": f"{made_at:%Y-%m-%dT%H:%M:%SZ}",
        }


async def _describe(
    console: Console, name: CallerId, scopes: tuple[Scope, ...], known: KnownCaller | None
) -> JsonObject:
    catalog = console.http.gateway.catalog
    seen = await to_thread.run_sync(catalog.narrow, EVERYTHING.within(scopes))
    anonymous = console.http.access.roster.anonymous
    ways = []
    if known is not None:
        ways = [
            *(["token"] if known.has_own_token else []),
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


def list_callers(roster: Roster) -> Sequence[tuple[CallerId, tuple[Scope, ...]]]:
    """Return the configured callers and their limits; where no token is required, the one caller of all requests."""
    if roster.anonymous is not None:
        return [(roster.anonymous.caller.id, roster.anonymous.scopes)]
    known = [*roster.members.callers, *filter(None, [roster.members.others])]
    callers = [Caller(id=CallerId(one.name), transport="http") for one in known]
    return [(caller.id, roster.scopes_of(caller) or ()) for caller in callers]


def act_as(roster: Roster, admission: Admission, name: str | None) -> tuple[Caller, View]:
    """Return who calls, and what it sees: the caller of a request, or for an administrator the one that `name` names.

    The credentials that a caller has at servers are its own, and no other caller uses them: an administrator sees the tools
    that servers list for the administrator, as far as the other may see them. Raises `Forbidden` and `NotFound`.
    """
    if name is None or name == admission.caller.id:
        return admission.caller, admission.view
    if not admission.is_admin or not (admission.person is None or admission.person.may("administrator")):
        raise Forbidden("Only an administrator may call with the rights of another.")
    known = next((one for one in list_callers(roster) if one[0] == name), None)
    if known is None:
        raise NotFound(f"There is no caller `{name[:128]}`.", hint="the callers are those of [callers.NAME]")
    caller, scopes = known
    acting = Caller(id=caller, transport="http", acted_by=admission.caller.id)
    return acting, EVERYTHING.within(scopes).of_owner(admission.view.owner)
