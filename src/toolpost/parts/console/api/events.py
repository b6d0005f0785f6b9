"""`/api/console/events`: changes, as server-sent events, for as long as a page is open.

Each event is a JSON object with a `kind`:

servers   the states of all servers that the caller sees, first and whenever one has changed
calls     calls that have ended since the last event, oldest first (`?calls=1`); an administrator's are those of all callers
logs      events of the log since the last event, oldest first (`?logs=1`, with the filters of `/logs` under their names with
          `log.` before them, such as `log.server`); an administrator's are all, another caller's those of its own calls
server    the state and processes of one server with its last output (`?server=NAME`), in the keys of `/api/servers/NAME`;
          only for administrators

Everything is read from the running state and the audit, once a second for each page that looks: calls pay nothing for it.
"""

from typing import Any, Final

import anyio

from toolpost import Forbidden
from toolpost.admin import report_process
from toolpost.audit import AuditFilter
from toolpost.base import Json, JsonObject
from toolpost.endpoints.http import SSE_HEADERS, STREAMED, EventSchema, Route, RouteRequest
from toolpost.parts.console.api.calls import render_call
from toolpost.parts.console.api.logs import read_filters
from toolpost.parts.console.context import Console
from toolpost.parts.console.log_view import LogView, Position
from toolpost.parts.console.sessions import API_PATH
from toolpost.protocol import encode

LOOK_S: Final = 1.0
KEEP_ALIVE_LOOKS: Final = 15
CALLS_LIMIT: Final = 200
"""Calls in one event; of more, the newest, and the page loads the rest when it is looked at."""

LINES_LIMIT: Final = 500
"""Lines of the log in one event; of more, the newest."""


def routes_of(console: Console, *, look_s: float = LOOK_S) -> list[Route]:
    """Make the path."""

    async def follow(request: RouteRequest) -> Json:
        if "server" in request.query and not request.admission.is_admin:
            raise Forbidden("Only a caller with `admin = true` may see what servers write.")
        _read_log_filters(request.query)  # raises, before the answer begins
        with console.http.streams.held(request.admission.caller.id):
            await _serve(console, request, look_s)
        return STREAMED

    return [
        Route(
            method="GET", path=f"{API_PATH}/events", handler=follow, events=EventSchema("ConsoleEvent", dict[str, Any])
        )
    ]


async def _serve(console: Console, asked: RouteRequest, look_s: float) -> None:
    request = asked.http
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                continue
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        await request.send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
        look = _Look(console, asked)
        await look.begin()
        quiet = 0
        while True:
            found = await look.collect()
            if asked.replaced.is_set():
                # The caller may no longer be an administrator, or see less: the page asks again, and is shown what it may.
                await request.send({"type": "http.response.body", "body": b"", "more_body": False})
                tasks.cancel_scope.cancel()
                return
            quiet = 0 if found else quiet + 1
            data = b"".join(b"data: %b\n\n" % encode(event) for event in found)
            if quiet >= KEEP_ALIVE_LOOKS:
                quiet, data = 0, b": still here\n\n"
            if data:
                await request.send({"type": "http.response.body", "body": data, "more_body": True})
            await anyio.sleep(look_s)


def _read_log_filters(query: dict[str, str]) -> dict[str, str]:
    return read_filters({name.removeprefix("log."): value for name, value in query.items() if name.startswith("log.")})


class _Look:
    """What one page has been sent, and what is new since."""

    def __init__(self, console: Console, asked: RouteRequest) -> None:
        query, admission = asked.query, asked.admission
        self._console = console
        self._admission = admission
        follows_logs = "logs" in query and console.may_write(asked)
        self._log = LogView.of(console, admission) if follows_logs else None
        self._wanted = _read_log_filters(query)
        self._log_at: Position = {}
        self._server = query.get("server")
        self._follows_calls = "calls" in query
        caller = None if admission.is_admin else admission.caller.id
        self._matching = AuditFilter(caller=caller, tool=query.get("tool") or None, last=CALLS_LIMIT)
        self._seen = 0
        self._states: JsonObject | None = None
        self._output: JsonObject | None = None

    async def begin(self) -> None:
        if self._follows_calls:
            self._seen = await self._console.host.store.audit.newest()
        if self._log is not None:
            self._log_at = await self._log.find_end()

    async def collect(self) -> list[JsonObject]:
        """Return the events since the last time."""
        events: list[JsonObject] = []
        view = self._admission.view
        providers = self._console.http.servers.providers
        states: JsonObject = {
            name: one.state.value for name, one in providers.items() if view.shows(name, one.spec.tags)
        }
        if states != self._states:
            self._states = states
            events.append({"kind": "servers", "states": states})
        if self._server is not None and (provider := providers.get(self._server)) is not None:
            output: JsonObject = {"kind": "server", **report_process(provider)}
            if output != self._output:
                self._output = output
                events.append(output)
        if self._follows_calls:
            events += await self._collect_calls()
        if self._log is not None:
            found, self._log_at, is_cut = await self._log.read_on(self._wanted, self._log_at)
            if found:
                is_cut = is_cut or len(found) > LINES_LIMIT
                events.append({"kind": "logs", "events": found[-LINES_LIMIT:], "isCut": is_cut})
        return events

    async def _collect_calls(self) -> list[JsonObject]:
        audit = self._console.host.store.audit
        # The head first: a call that is added in between comes next time, and none twice.
        newest = await audit.newest()
        if newest <= self._seen:
            return []
        found = [
            one for one in await audit.entries(self._matching, after=self._seen, limit=CALLS_LIMIT) if one.seq <= newest
        ]
        self._seen = newest
        return [{"kind": "calls", "calls": [render_call(record) for record in found]}] if found else []
