"""`/api/console/events`: what changes, as server-sent events, for as long as a page is open.

Each event is a JSON object with a `kind`:

servers   the states of all servers that the caller sees, first and whenever one has changed
calls     calls that have ended since the last event, oldest first (`?calls=1`); an administrator's are those of all callers
output    the last lines that one server wrote to stderr, and its state (`?server=NAME`); only for administrators

Everything is read from the running state and the audit, once a second for each page that looks: calls pay nothing for it.
"""

from typing import Final

import anyio

from toolpost import ErrorCode, QueueOverloaded
from toolpost.base import JsonObject
from toolpost.endpoints.http import (
    SSE_HEADERS,
    Admission,
    HttpRequest,
    Refused,
    RouteRequest,
    close_on_removal,
    forbidden,
)
from toolpost.endpoints.http.refusal import overloaded
from toolpost.parts.console.api.calls import render_call
from toolpost.parts.console.context import Console
from toolpost.parts.console.sessions import API_PATH
from toolpost.protocol import encode
from toolpost.settings import make_concealer
from toolpost.store import AuditFilter

LOOK_S: Final = 1.0
KEEP_ALIVE_LOOKS: Final = 15
CALLS_LIMIT: Final = 200
"""Calls in one event; of more, the newest, and the page loads the rest when it is looked at."""


class ConsoleEvents:
    """The stream of events."""

    def __init__(self, console: Console, *, look_s: float = LOOK_S) -> None:
        self._console = console
        self._look_s = look_s

    def serves(self, path: str) -> bool:
        return path == f"{API_PATH}/events"

    async def answer(self, request: HttpRequest) -> None:
        access = self._console.http.access
        # Before the caller is known: callers that are replaced from here on may have lost what this one is shown.
        replaced = access.roster.replaced
        admission = await access.admit(request)
        if admission.caller.is_agent:
            raise forbidden("An agent may use tools, and nothing else")
        if request.method != "GET":
            raise Refused(405, ErrorCode.INVALID_REQUEST, "This path takes GET only", headers=[(b"allow", b"GET")])
        query = RouteRequest(http=request, admission=admission, body=None).query
        if "server" in query and not admission.is_admin:
            raise forbidden("Only a caller with `admin = true` may see what servers write")
        try:
            with self._console.http.streams.held(admission.caller.id):
                async with close_on_removal(request, access.roster, admission):
                    await self._serve(request, admission, query, replaced)
        except QueueOverloaded as error:
            raise overloaded(error) from error

    async def _serve(
        self, request: HttpRequest, admission: Admission, query: dict[str, str], replaced: anyio.Event
    ) -> None:
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                while (await request.receive())["type"] != "http.disconnect":
                    continue
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            await request.send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
            look = _Look(self._console, admission, query)
            await look.begin()
            quiet = 0
            while True:
                found = await look.collect()
                if replaced.is_set():
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
                await anyio.sleep(self._look_s)


class _Look:
    """What one page has been sent, and what is new since."""

    def __init__(self, console: Console, admission: Admission, query: dict[str, str]) -> None:
        self._console = console
        self._admission = admission
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
            conceal, report = make_concealer(provider.spec), provider.report()
            output: JsonObject = {
                "kind": "output",
                "state": report.state.value,
                "pids": list(report.pids),
                "memoryBytes": report.memory_bytes,
                "restarts": report.restarts,
                "lastError": conceal(report.last_error) if report.last_error is not None else None,
                "degraded": report.degraded,
                "lines": [conceal(line) for line in report.stderr_tail],
            }
            if output != self._output:
                self._output = output
                events.append(output)
        if self._follows_calls:
            events += await self._collect_calls()
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
