"""`/api/console/contracts`: tools that are not as promised by the lock, or by their pin. Only for administrators.

GET  /contracts            every such tool, with the verdict on its change
GET  /contract?tool=       both definitions side by side, each change with its rule and an example, findings
POST /contract/accept      {"tool", "digest"}: write it to the lock as it is now, as `toolpost lock --accept` does
POST /contract/plan        {"tool", "action"}: what would change in `toolpost.toml`: `reject` leaves the tool out (`deny`),
                           `quarantine` holds its server to its contracts (`contracts = "enforce"`)
POST /contract/change      the same, with the `base` of the plan: change it
"""

import glob
import hashlib
import json
import logging
from collections.abc import Iterator
from typing import Final

import msgspec
from anyio import to_thread

from toolpost import NotFound
from toolpost.base import Json, JsonObject, ToolName, event
from toolpost.cli.lock.command import accept_changes
from toolpost.cli.lock.states import LockFile, list_tools, read_pins
from toolpost.contracts import RULES, Change, Definition, InvalidRequest
from toolpost.endpoints.http import Route, RouteRequest
from toolpost.parts.console.context import Console, text_of
from toolpost.parts.console.diff import side_by_side
from toolpost.parts.console.toml import ConfigChange, plan_setting, read_list, routes_of_changes
from toolpost.providers.contract_watch import ContractStatus
from toolpost.providers.quarantine import PinnedPlugin
from toolpost.providers.server_provider import ServerProvider

_log = logging.getLogger("toolpost.console")

CHANGES_LIMIT: Final = 200

Watched = ServerProvider | PinnedPlugin


def routes_of(console: Console) -> list[Route]:
    """Make the paths."""
    servers = console.http.servers

    async def list_changes(_: RouteRequest) -> Json:
        found = [
            {"tool": name, "server": provider.name, **_summarize(provider, name, status)}
            for provider, name, status in _find_all(console)
        ]
        path = console.host.config.lock_path
        return {"hasLock": servers.watched_tools.watch.has_lock, "lockFile": str(path), "tools": found}

    async def show(request: RouteRequest) -> Json:
        provider, name, status = _find(console, text_of(request, "tool"))
        new = provider.define(name)
        # In a thread: a server decides how long a definition is.
        diff = await to_thread.run_sync(side_by_side, _write(status.promised), _write(new))
        changes = status.judgement.changes[:CHANGES_LIMIT] if status.judgement is not None else ()
        return {
            "tool": name,
            "server": provider.name,
            **_summarize(provider, name, status),
            "digest": _digest(new),
            "isCutShort": status.judgement.is_cut_short if status.judgement is not None else False,
            "changes": [_render_change(change) for change in changes],
            "findings": [finding.to_json() for finding in status.findings],
            "diff": diff,
        }

    async def accept(request: RouteRequest) -> Json:
        provider, name, _status = _find(console, text_of(request, "tool"))
        if _digest(provider.define(name)) != text_of(request, "digest"):
            raise InvalidRequest(f"`{name}` has changed again since it was shown.", hint="look at the changes again")
        caller = request.admission.caller.id
        event(_log, logging.INFO, "change accepted", caller=caller, server=provider.name, tool=name)
        return await _write_lock(console, name)

    return [
        console.read("/contracts", list_changes, is_for_admins=True),
        console.read("/contract", show, is_for_admins=True),
        console.change("/contract/accept", accept, needs_session=True),
        *routes_of_changes(console, "/contract", lambda request: _plan(console, request)),
    ]


async def _write_lock(console: Console, name: str) -> JsonObject:
    host, servers = console.host, console.http.servers
    live = list_tools(host.config, [*host.plugins.providers, *servers.providers.values()])
    file = LockFile.of(host.config, None)
    # Without a lock the pins are the baseline, and a tool without a pin is new: as in `toolpost lock --accept`.
    names = [provider.name for provider in servers.watched] if file.tools is None else []
    pinned = await read_pins(host.store.pins, names, lambda _: None)
    base = file.tools if file.tools is not None else {**live, **pinned}
    after = accept_changes(base, live, [glob.escape(name)])
    written = await to_thread.run_sync(file.replace, after)
    # At once, although the file is followed: the page shows what holds now.
    await servers.watched_tools.relock(after)
    return {"path": str(file.path), "written": written, "tools": len(after)}


def _find_all(console: Console) -> Iterator[tuple[Watched, ToolName, ContractStatus]]:
    for provider in console.http.servers.watched:
        for name, status in provider.statuses.items():
            yield provider, name, status


def _find(console: Console, tool: str) -> tuple[Watched, ToolName, ContractStatus]:
    for found in _find_all(console):
        if found[1] == tool:
            return found
    raise NotFound(f"`{tool[:128]}` is as it was promised, or not there.", hint="reload the list")


def _summarize(provider: Watched, name: ToolName, status: ContractStatus) -> JsonObject:
    is_quarantined = provider.is_quarantined(name)
    return {**status.as_object(), "isQuarantined": is_quarantined, "isHarmless": status.is_harmless}


def _render_change(change: Change) -> JsonObject:
    rule = RULES.get(change.rule)
    shown: JsonObject = msgspec.to_builtins(change)
    return {
        **shown,
        "explanation": rule.explanation if rule is not None else "",
        "summary": rule.summary if rule else "",
    }


def _write(definition: Definition) -> str:
    return json.dumps(definition.to_json(), indent=2, ensure_ascii=False, sort_keys=True)


def _digest(definition: Definition) -> str:
    return hashlib.sha256(_write(definition).encode("utf-8", "surrogatepass")).hexdigest()


def _plan(console: Console, request: RouteRequest) -> ConfigChange:
    action = text_of(request, "action")
    provider, name, _status = _find(console, text_of(request, "tool"))
    if action == "quarantine":
        return plan_setting(console.host, provider.name, "contracts", "enforce")
    if action == "reject":
        denied = read_list(console.host, provider.name, "deny")
        own = next(contract.terms.name for contract in provider.contracts if contract.name == name)
        return plan_setting(console.host, provider.name, "deny", [*denied, glob.escape(own)])
    raise InvalidRequest(f"There is no action `{action[:40]}`.", hint="known: reject, quarantine")
