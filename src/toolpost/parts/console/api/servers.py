"""`/api/console/servers`: the servers behind the gateway.

GET  /servers               what `/api/servers` answers to administrators; the servers that others see, with name and state
GET  /server?name=          what `/api/servers/NAME` answers, its memory in each minute of the last hour, and the settings of the
                            server for who may change something
POST /server/act            {"name", "action"}: `start`, `stop` or `restart` it
POST /servers/plan          {"text" or "name" and "entry" to add, "remove", or "name" and "settings" to change; null takes a
                            setting back}: what would change in `toolpost.toml`
POST /servers/change        the same, with the `base` of the plan: change it

Secrets of servers are concealed in everything that is sent.
"""

import json

from toolpost.admin import ConfigChange, act_on_server, report_server
from toolpost.base import Json
from toolpost.contracts import InvalidRequest
from toolpost.endpoints.http import Route, RouteRequest
from toolpost.parts.console.changes import routes_of_changes
from toolpost.parts.console.context import Console, text_of


def routes_of(console: Console) -> list[Route]:
    """Make the paths."""
    servers = console.http.servers

    async def list_servers(request: RouteRequest) -> Json:
        if request.admission.is_admin:
            return {"servers": [await report_server(servers, name) for name in [*servers.providers]]}
        view = request.admission.view
        seen = [one for one in servers.providers.values() if view.shows(one.name, one.spec.tags)]
        return {"servers": [{"name": one.name, "state": one.state.value} for one in seen]}

    async def show(request: RouteRequest) -> Json:
        report = await report_server(servers, text_of(request, "name"))
        # A password among the arguments need not look like one, and the file may be readable for its owner alone.
        settings = console.config_file.show_server(report["name"]) if console.may_write(request) else None
        return {**report, "settings": settings, "memory": console.memory.of(report["name"])}

    async def act(request: RouteRequest) -> Json:
        caller = request.admission.caller.id
        return await act_on_server(servers, text_of(request, "name"), text_of(request, "action"), caller=caller)

    return [
        console.read("/servers", list_servers),
        console.read("/server", show, is_for_admins=True),
        console.change("/server/act", act, needs_session=True, role="operator"),
        *routes_of_changes(console, "/servers", lambda request: _plan(console, request)),
    ]


def _plan(console: Console, request: RouteRequest) -> ConfigChange:
    body = request.body if isinstance(request.body, dict) else {}
    if "remove" in body:
        return console.config_file.plan_removal(text_of(request, "remove"))
    if isinstance(settings := body.get("settings"), dict):
        return console.config_file.plan_settings(text_of(request, "name"), settings)
    if isinstance(entry := body.get("entry"), dict):
        # As a client's JSON has it: what is pasted and what is filled in are checked alike.
        text = json.dumps({"mcpServers": {text_of(request, "name"): entry}})
    elif "text" in body:
        text = text_of(request, "text")
    else:
        raise InvalidRequest("Send `text`, or `name` and `entry`, or `name` and `settings`, or `remove`.")
    return console.config_file.plan_addition(text, keep_secrets=body.get("keepSecrets") is True)
