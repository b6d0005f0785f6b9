"""The console as a part of a gateway: on unless `[console] enabled = false`, open when HTTP is served."""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from toolpost.parts.console.settings import CONSOLE

if TYPE_CHECKING:
    from toolpost.endpoints.http import Admission, HttpContext, HttpRequest, Routes
    from toolpost.parts import Host


VIEWS: Final[tuple[tuple[str, str, str, Literal["observe", "tools", "administration"]], ...]] = (
    ("Overview", "/", "overview.js", "observe"),
    ("Calls", "/calls", "calls.js", "observe"),
    ("Logs", "/logs", "logs.js", "observe"),
    ("Tools", "/tools", "tools.js", "tools"),
    ("Servers", "/servers", "servers.js", "tools"),
    ("Contracts", "/contracts", "contracts.js", "tools"),
    ("Callers", "/callers", "callers.js", "administration"),
)
"""The console's own views: title, path, module and group."""


@asynccontextmanager
async def open_console(host: "Host") -> AsyncIterator[Sequence[object]]:
    """Serve the page and its API."""
    if not CONSOLE.of(host.config).enabled or host.for_one_command:
        yield ()
        return
    from toolpost.parts import Api, Background, ConsoleView, RecordListener, StartupLine, WriteCheck
    from toolpost.parts.console.gateway_id import make_gateway_id, port_of
    from toolpost.parts.console.memory import MemoryHistory
    from toolpost.parts.console.people import PeopleSessions
    from toolpost.parts.console.sessions import ConsoleSessions, check_browser, check_same_origin
    from toolpost.parts.console.sign_in import SIGN_IN_KEY, People
    from toolpost.parts.console.timings import CallTimings

    timings, memory = CallTimings(), MemoryHistory()
    sessions = ConsoleSessions(host.store, make_gateway_id(host.config))
    await sessions.open()
    key = await host.store.keys.of(SIGN_IN_KEY)
    people = People(PeopleSessions(host.store.scripts), CONSOLE.of(host.config).roles, key)

    def make(http: "HttpContext") -> "Sequence[Routes]":
        from toolpost.parts.console.api import make_routes

        memory.http = http
        return make_routes(host, http, sessions, people, timings, memory)

    def check_browser_write(request: "HttpRequest", admission: "Admission") -> None:
        if admission.is_anonymous:
            check_browser(sessions, request)
        elif admission.person is not None:
            check_same_origin(request)

    async def make_startup_line(url: str) -> str:
        if not sys.stderr.isatty():
            # A journal or the logs of a container keep what is printed, for others to read.
            return "console: `toolpost console` opens it"
        shown = host.config.http.base_url(url) or url
        return f"console: {shown}/#secret={await sessions.issue(port_of(url))}"

    @asynccontextmanager
    async def run() -> AsyncIterator[None]:
        import anyio

        from toolpost.parts.console.definitions import DefinitionHistory
        from toolpost.parts.console.gateways import register_gateway

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(DefinitionHistory(host.store).run, host.gateway)
            tasks.start_soon(memory.run)
            tasks.start_soon(register_gateway, host.store, host.gateway.call_prefix)
            yield
            tasks.cancel_scope.cancel()

    yield [
        Api(make),
        WriteCheck(check_browser_write, find_person=people.find),
        *(
            ConsoleView(title, path, Path(__file__).parent / "pages/views" / file, group)
            for title, path, file, group in VIEWS
        ),
        StartupLine(make_startup_line),
        Background(run),
        RecordListener(timings.note),
    ]
