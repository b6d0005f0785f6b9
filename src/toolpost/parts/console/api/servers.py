"""`/api/console/servers`: the servers behind the gateway.

GET  /servers               every server that the caller sees; all facts for administrators, name and state for others
GET  /server?name=          one, with its last output, and its settings for who may change something
POST /server/act            {"name", "action"}: `start`, `stop` or `restart` it
POST /servers/plan          {"text" or "name" and "entry" to add, or "remove"}: what would change in `toolpost.toml`
POST /servers/change        the same, with the `base` of the plan: change it

Secrets of servers are concealed in everything that is sent.
"""

import json
from typing import Any

import msgspec

from toolpost.base import Json
from toolpost.cli.clients.server_toml import non_default_values
from toolpost.contracts import InvalidRequest
from toolpost.endpoints.http import Route, RouteRequest
from toolpost.endpoints.http.admin import act_on_server, check_action, find_server, report_server
from toolpost.parts.console.context import Console, text_of
from toolpost.parts.console.toml import (
    ConfigChange,
    plan_addition,
    plan_removal,
    read_server_settings,
    routes_of_changes,
)
from toolpost.providers.server_provider import ServerProvider
from toolpost.settings import make_concealer
from toolpost.settings.secrets import rewrite_secrets


def routes_of(console: Console) -> list[Route]:
    """Make the paths."""
    servers = console.http.servers

    async def report(provider: ServerProvider) -> dict[str, Any]:
        reported = await report_server(provider, servers.watched_tools.findings, make_concealer(provider.spec))
        # A server that a person stopped stays so; any other starts with the next call, and is nothing to worry about.
        return reported | {"isHalted": any(supervisor.is_stopped for supervisor in provider.supervisors)}

    async def list_servers(request: RouteRequest) -> Json:
        found = list(servers.providers.values())
        if request.admission.is_admin:
            return {"servers": [await report(provider) for provider in found]}
        view = request.admission.view
        seen = [one for one in found if view.shows(one.name, one.spec.tags)]
        return {"servers": [{"name": one.name, "state": one.state.value} for one in seen]}

    async def show(request: RouteRequest) -> Json:
        provider = find_server(text_of(request, "name"), servers.providers)
        # A password among the arguments need not look like one, and the file may be readable for its owner alone.
        settings = read_server_settings(console.host, provider.name) if console.may_write(request) else None
        hint = provider.report().hint
        return {
            **await report(provider),
            "hint": hint,
            "settings": msgspec.to_builtins(non_default_values(rewrite_secrets(settings, _mask, is_strict=True)))
            if settings is not None
            else None,
            # A person can log in where it is configured so, or the server has asked for it.
            "takesLogin": (provider.spec.auth is not None and provider.spec.auth.needs_person)
            or "toolpost login" in (hint or ""),
        }

    async def act(request: RouteRequest) -> Json:
        action = text_of(request, "action")
        check_action(action)
        provider = find_server(text_of(request, "name"), servers.providers)
        await act_on_server(provider, action, request.admission.caller.id, make_concealer(provider.spec))
        return await report(provider)

    return [
        console.read("/servers", list_servers),
        console.read("/server", show, is_for_admins=True),
        console.change("/server/act", act, needs_session=True),
        *routes_of_changes(console, "/servers", lambda request: _plan(console, request)),
    ]


def _plan(console: Console, request: RouteRequest) -> ConfigChange:
    body = request.body if isinstance(request.body, dict) else {}
    if "remove" in body:
        return plan_removal(console.host, text_of(request, "remove"))
    if isinstance(entry := body.get("entry"), dict):
        # As a client's JSON has it: what is pasted and what is filled in are checked alike.
        text = json.dumps({"mcpServers": {text_of(request, "name"): entry}})
    elif "text" in body:
        text = text_of(request, "text")
    else:
        raise InvalidRequest("Send `text`, or `name` and `entry`, or `remove`.")
    return plan_addition(console.host, text, keep_secrets=body.get("keepSecrets") is True)


def _mask(_key: str, _name: str, _secret: str) -> str:
    return "…"
