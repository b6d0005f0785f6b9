"""`/api/console/contracts`: tools that are not as promised by the lock, or by their pin. Only for administrators.

GET  /contracts            every such tool, with the verdict on its change
GET  /contract?tool=       both definitions side by side, each change with its rule and an example, findings
POST /contract/accept      {"tool", "digest"}: write it to the lock as it is now, as `toolpost lock --accept` does
POST /contract/plan        {"tool", "action"}: what would change in `toolpost.toml`: `reject` leaves the tool out (`deny`),
                           `quarantine` holds its server to its contracts (`contracts = "enforce"`)
POST /contract/change      the same, with the `base` of the plan: change it
"""

import glob
from typing import Final

import msgspec
from anyio import to_thread

from toolpost.admin import ConfigChange, ContractChanges
from toolpost.base import Json, JsonObject
from toolpost.contracts import RULES, Change, InvalidRequest
from toolpost.endpoints.http import Route, RouteRequest
from toolpost.parts.console.changes import routes_of_changes
from toolpost.parts.console.context import Console, text_of
from toolpost.parts.console.diff import side_by_side

CHANGES_LIMIT: Final = 200


def routes_of(console: Console) -> list[Route]:
    """Make the paths."""
    tools = _changes_of(console)

    async def list_changes(_: RouteRequest) -> Json:
        path = console.host.config.lock_path
        found = [tool.to_json() for tool in tools.list()]
        return {"hasLock": tools.has_lock, "lockFile": str(path), "tools": found}

    async def show(request: RouteRequest) -> Json:
        tool = tools.find(text_of(request, "tool"))
        status, digest = tool.status, tool.digest
        # In a thread: a server decides how long a definition is.
        diff = await to_thread.run_sync(side_by_side, *tool.write())
        changes = status.judgement.changes[:CHANGES_LIMIT] if status.judgement is not None else ()
        return {
            **tool.to_json(),
            "digest": digest,
            "isCutShort": status.judgement.is_cut_short if status.judgement is not None else False,
            "changes": [_render_change(change) for change in changes],
            "findings": [finding.to_json() for finding in status.findings],
            "diff": diff,
        }

    async def accept(request: RouteRequest) -> Json:
        name, digest = text_of(request, "tool"), text_of(request, "digest")
        return await tools.accept(name, digest=digest, caller=request.admission.caller.id)

    return [
        console.read("/contracts", list_changes, is_for_admins=True),
        console.read("/contract", show, is_for_admins=True),
        console.change("/contract/accept", accept, needs_session=True),
        *routes_of_changes(console, "/contract", lambda request: _plan(console, request)),
    ]


def _changes_of(console: Console) -> ContractChanges:
    host = console.host
    return ContractChanges(config=host.config, store=host.store, plugins=host.plugins, servers=console.http.servers)


def _render_change(change: Change) -> JsonObject:
    rule = RULES.get(change.rule)
    shown: JsonObject = msgspec.to_builtins(change)
    return {
        **shown,
        "explanation": rule.explanation if rule is not None else "",
        "summary": rule.summary if rule else "",
    }


def _plan(console: Console, request: RouteRequest) -> ConfigChange:
    action, file = text_of(request, "action"), console.config_file
    tool = _changes_of(console).find(text_of(request, "tool"))
    if action == "quarantine":
        return file.plan_setting(tool.server, "contracts", "enforce")
    if action == "reject":
        denied = file.read_list(tool.server, "deny")
        return file.plan_setting(tool.server, "deny", [*denied, glob.escape(tool.own_name)])
    raise InvalidRequest(f"There is no action `{action[:40]}`.", hint="known: reject, quarantine")
