"""Serves an open gateway: over HTTP, as an ASGI application, or on stdio. Leaving gives calls in flight their grace."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, cast

from anyio import CancelScope, create_task_group

from toolpost.admin.action_items import list_action_items
from toolpost.admin.api import make_server_api
from toolpost.admin.disks import list_full_disks
from toolpost.app.app import App
from toolpost.app.callers import check_stored_caller, mode_scope, read_callers, scopes_of
from toolpost.app.refresh import EVERY_SERVER
from toolpost.audit.failures import list_failures
from toolpost.base.action_items import ActionItem, ActionItems
from toolpost.base.caller import Principal
from toolpost.base.events import event
from toolpost.base.state_folder import STATE_FOLDER
from toolpost.discovery import EVERYTHING
from toolpost.endpoints.auth.access import Access, find_proxy_setting
from toolpost.endpoints.auth.rejected import RejectedTokens
from toolpost.endpoints.auth.roster import Admission, TokenIssuer
from toolpost.endpoints.auth.stored_callers import StoredCallers
from toolpost.endpoints.http import MCP_PATH, HttpRequest
from toolpost.endpoints.http.app import HttpEndpoint
from toolpost.endpoints.http.connection_limits import ConnectionLimits, Connections, default_total
from toolpost.endpoints.http.descriptors import raise_descriptor_limit
from toolpost.endpoints.http.listener import bind_socket, open_http_server
from toolpost.endpoints.http.routes import VIEW_GROUPS, Api, ConsoleView, HttpContext, Routes, WriteCheck, make_openapi
from toolpost.endpoints.http.server_login_pages import LoginPages
from toolpost.endpoints.observer import Observer
from toolpost.endpoints.stdio import StdioStreams, serve_stdio
from toolpost.endpoints.tasks.api import TASK_VIEW, make_task_routes
from toolpost.host.blame import make_part_failure
from toolpost.manifest import BadManifest, describe
from toolpost.settings import Config
from toolpost.settings.callers import Mode

_log = logging.getLogger("toolpost.app")

_ANSWER_S: Final = 6.0
"""How long a cancelled call may take to answer at shutdown: ending its processes takes up to 5 s (`processes.tree`)."""


def limits_of(config: Config) -> ConnectionLimits:
    """Make the limits on connections; their number follows from the limit on descriptors, which is raised first."""
    settings, total = config.http, default_total(raise_descriptor_limit())
    return ConnectionLimits(
        total=total,
        per_address=max(1, total // 4),
        trusted=settings.trusted_networks,
        head_timeout_s=settings.head_timeout_s,
        body_timeout_s=settings.body_timeout_s,
    )


@asynccontextmanager
async def open_http(app: App, *, preload_sdk: bool = True) -> AsyncIterator[str]:
    """Serve HTTP as configured; yields the URL. Leaving it gives calls in flight their grace, then `CANCELLED`.

    A short-lived server may leave the SDK unloaded until a request needs it (`preload_sdk`).
    """
    host, port = app.config.address
    app.roster.replace(read_callers(app.config, login=app.contributions.first(TokenIssuer)))
    connections = Connections(limits_of(app.config), app.gateway.metrics)
    stored = _make_stored_callers(app)
    endpoint = _make_endpoint(app, host, stored, connections, preload_sdk=preload_sdk)
    http = app.config.http
    setting = find_proxy_setting(allowed_hosts=http.allowed_hosts, trusted_proxies=http.trusted_proxies)
    if app.roster.members.is_open and setting is not None:
        hint = "set TOOLPOST_TOKEN: everyone who can reach the proxy may call every tool"
        event(_log, logging.WARNING, "a proxy, and no token", setting=setting, hint=hint)
    with bind_socket(host, port) as listener:
        async with stored.following(), open_http_server(endpoint, listener, connections):
            shown = f"[{host}]" if ":" in host else host
            url = f"http://{shown}:{listener.getsockname()[1]}{MCP_PATH}"
            _set_base_url(app, None if host in ("0.0.0.0", "::") else url)  # noqa: S104 (compared, not bound)
            try:
                with app.tokens.open_at(url):
                    yield url
            finally:
                with CancelScope(shield=True):
                    await app.gateway.drain(app.config.limits.grace_s, answer_s=_ANSWER_S)


def _set_base_url(app: App, listening: str | None) -> None:
    app.servers.logins.base_url = app.config.http.base_url(listening)


@asynccontextmanager
async def open_asgi(app: App, *, is_guarded: bool = False) -> AsyncIterator[HttpEndpoint]:
    """Open the ASGI application for a server that is not ours; leaving it gives calls in flight their grace.

    Which names that server goes by is not known here. Where every request shows a token they do not matter, as for a listener
    of Toolpost's off localhost; otherwise only local names and `http.allowed_hosts` are accepted.
    `is_guarded`: the application checks callers itself.
    """
    app.roster.replace(read_callers(app.config, login=app.contributions.first(TokenIssuer)))
    _set_base_url(app, None)
    host = "127.0.0.1" if app.roster.members.is_open else "0.0.0.0"  # noqa: S104 (nothing is bound)
    stored = _make_stored_callers(app)
    endpoint = _make_endpoint(app, host, stored, is_guarded=is_guarded)
    async with stored.following(), create_task_group() as tasks:
        await tasks.start(endpoint.run)
        try:
            yield endpoint
        finally:
            with CancelScope(shield=True):
                await app.gateway.drain(app.config.limits.grace_s, answer_s=_ANSWER_S)
            tasks.cancel_scope.cancel()


def _make_endpoint(
    app: App,
    host: str,
    stored: StoredCallers,
    connections: Connections | None = None,
    *,
    preload_sdk: bool = True,
    is_guarded: bool = False,
) -> HttpEndpoint:
    app.changes.is_served = True
    access = Access(
        host=host,
        roster=app.roster,
        allowed_hosts=app.config.http.allowed_hosts,
        allowed_origins=app.config.http.allowed_origins,
        is_guarded=is_guarded,
        rejected=RejectedTokens(app.gateway.metrics.tokens_rejected),
    )
    body_limit = app.config.http.body_limit_bytes
    contributions, observer = app.contributions, app.contributions.first(Observer)
    login = contributions.first(TokenIssuer)
    http = HttpContext(
        access=access,
        streams=app.shares.streams,
        body_limit=body_limit,
        gateway=app.gateway,
        servers=app.servers,
        finder=app.finder,
        find_action_items=partial(_find_action_items, app),
        views=[*contributions.all(ConsoleView), TASK_VIEW],
        stored_callers=stored,
        people=login.people if login is not None else None,
        person_finders=[each.find_person for each in contributions.all(WriteCheck) if each.find_person is not None],
        # An application in front of the endpoint knows its people itself.
        **({} if is_guarded else {"check_browser_write": partial(_check_write, contributions.all(WriteCheck))}),
    )
    own_routes: list[Routes] = [
        make_server_api(http),
        *make_task_routes(http, app.store),
        LoginPages(access, app.servers.logins),
    ]
    # Parts that opened later come first: those of packages before ours.
    part_routes = [
        routes for part, api in reversed(contributions.named(Api)) for routes in _make_part_routes(part, api, http)
    ]
    _check_views(contributions.named(ConsoleView))
    return HttpEndpoint(
        app.call_handler,
        app.sdk,
        access,
        body_limit=body_limit,
        health=app.monitor.health,
        metrics=lambda: app.monitor.scrape(connections),
        # Last: it answers all that is left of `/api`.
        routes=[*own_routes, *part_routes, make_openapi(http, [*own_routes, *part_routes], app.monitor.health)],
        shares=app.shares,
        preload_sdk=preload_sdk,
        continues_traces=observer is not None,
        on_session_end=app.call_handler.end_session if observer is not None else None,
    )


def _make_stored_callers(app: App) -> StoredCallers:
    return StoredCallers(
        app.store,
        app.roster,
        check=check_stored_caller,
        mode_scope=lambda mode: mode_scope(app.changes.config, cast("Mode", mode)),
        login=app.contributions.first(TokenIssuer),
        on_change=lambda: app.changes.note(EVERY_SERVER),
    )


def _make_part_routes(part: str, api: Api, http: HttpContext) -> Sequence[Routes]:
    try:
        made = api.make_routes(http)
        if not isinstance(made, list | tuple):
            raise BadManifest(f"it returned {describe(made)}, not a list of `JsonApi` and `Pages`")
        for routes in made:
            if not (hasattr(routes, "serves") and hasattr(routes, "answer")):
                raise BadManifest(
                    f"it returned {describe(routes)}: put each `Route` into a `JsonApi(http, [Route(…)])`"
                )
    except Exception as error:
        raise make_part_failure(part, "failed in `make_routes`", error) from error
    return made


def _check_views(views: Sequence[tuple[str, ConsoleView]]) -> None:
    for part, view in views:
        if not view.module.is_file():
            raise make_part_failure(part, f"has no file for its view {view.path}", BadManifest(f"{view.module}"))
        if view.group not in VIEW_GROUPS:
            groups = ", ".join(VIEW_GROUPS)
            raise make_part_failure(
                part,
                f"has an unknown group for its view {view.path}",
                BadManifest(f"`{view.group}`: known are {groups}"),
            )


def _check_write(checks: Sequence[WriteCheck], request: HttpRequest, admission: Admission) -> None:
    for each in checks:
        each.check(request, admission)


async def _find_action_items(app: App, principal: Principal) -> list[ActionItem]:
    found = await _find_own_items(app, time.time()) if principal.is_admin else []
    for part, each in app.contributions.named(ActionItems):
        try:
            found += await each.find(principal)
        except Exception as error:  # noqa: BLE001 (a part may raise anything; the items of the others are shown)
            event(_log, logging.ERROR, "action items failed", part=part, exception=error)
    return sorted(found, key=lambda item: not item.is_urgent)


async def _find_own_items(app: App, now: float) -> list[ActionItem]:
    folders = [Path(app.config.project) / STATE_FOLDER, app.config.log_path]
    return [
        *await list_failures(app.store.audit, now),
        *list_action_items(app.servers, app.plugins, now),
        *(await app.upkeep.list_late(now) if app.upkeep is not None else ()),
        *await list_full_disks(folder for folder in folders if folder is not None),
    ]


async def serve_on_stdio(app: App, wire: StdioStreams, stop: asyncio.Event) -> None:
    """Serve the client that started this process, until it closes its end or `stop` is set."""
    limits = app.config.limits
    message_limit = app.config.http.body_limit_bytes
    view = EVERYTHING.within(scopes_of(app.config.stdio))
    await serve_stdio(
        app.call_handler, app.sdk, wire, message_limit=message_limit, stop=stop, grace_s=limits.grace_s, view=view
    )
