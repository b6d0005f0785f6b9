"""`/api/console/servers`: the servers behind the gateway.

GET  /servers               every server that the caller sees; all facts for administrators, name and state for others
GET  /server?name=          one, with its last output, and its settings for who may change something
POST /server/act            {"name", "action"}: `start`, `stop` or `restart` it
POST /servers/plan          {"text" or "name" and "entry" to add, or "remove"}: what would change in `toolpost.toml`
POST /servers/change        the same, with the `base` of the plan: change it

Secrets of servers are concealed in everything that is sent.
"""

from typing import Any

import msgspec

from toolpost.base.ids import Json
from toolpost.cli.clients.server_toml import non_default_values
from toolpost.contracts.errors import InvalidRequest
from toolpost.endpoints.http.admin import act_on_server, check_action, find_server, report_server
from toolpost.endpoints.http.routes import Route, RouteRequest
from toolpost.parts.console.context import Console, text_of
from toolpost.parts.console.toml import (
    ConfigChange,
    carry_out,
    entry_text,
    plan_addition,
    plan_removal,
    read_server_settings,
)
from toolpost.providers.servers import ServerProvider
from toolpost.settings.masking import make_concealer
from toolpost.settings.secrets import rewrite_secrets
from toolpost.settings.servers import ServerSettings


def routes_of(console: Console) -> list[Route]:
    """Make the paths."""
    servers = console.http.servers

    async def report(provider: ServerProvider) -> dict[str, Any]:
        reported = await report_server(provider, servers.findings, make_concealer(provider.spec))
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
        settings = read_server_settings(console.host, provider.name) if console.may_change(request) else None
        hint = provider.report().hint
        return {
            **await report(provider),
            "hint": hint,
            "settings": _mask(settings) if settings is not None else None,
            "takesLogin": servers.logins is not None and _takes_login(provider, hint),
        }

    async def act(request: RouteRequest) -> Json:
        action = text_of(request, "action")
        check_action(action)
        provider = find_server(text_of(request, "name"), servers.providers)
        await act_on_server(provider, action, request.admission.caller.id, make_concealer(provider.spec))
        return await report(provider)

    async def show_plan(request: RouteRequest) -> Json:
        return _plan(console, request).to_json()

    async def change(request: RouteRequest) -> Json:
        planned = _plan(console, request)
        caller = request.admission.caller.id
        await carry_out(planned, console.host, servers, base=text_of(request, "base"), caller=caller)
        return planned.to_json()

    return [
        console.read("/servers", list_servers),
        console.read("/server", show, is_for_admins=True),
        console.change("/server/act", act, needs_cookie=True),
        console.change("/servers/plan", show_plan, needs_cookie=True),
        console.change("/servers/change", change, needs_cookie=True),
    ]


def _takes_login(provider: ServerProvider, hint: str | None) -> bool:
    """Whether a person can log in to a server: it is configured so, or has asked for it."""
    auth = provider.spec.auth
    return (auth is not None and auth.needs_person) or "toolpost login" in (hint or "")


def _plan(console: Console, request: RouteRequest) -> ConfigChange:
    body = request.body if isinstance(request.body, dict) else {}
    if "remove" in body:
        return plan_removal(console.host, text_of(request, "remove"))
    if isinstance(entry := body.get("entry"), dict):
        text = entry_text(text_of(request, "name"), entry)
    elif "text" in body:
        text = text_of(request, "text")
    else:
        raise InvalidRequest("Send `text`, or `name` and `entry`, or `remove`.")
    return plan_addition(console.host, text, keep_secrets=body.get("keepSecrets") is True)


def _mask(settings: ServerSettings) -> Json:
    """Return what is set, without secrets, and without anything that may be one."""
    masked = rewrite_secrets(settings, lambda _key, _name, _secret: "…", is_strict=True)
    return msgspec.to_builtins(non_default_values(masked))
