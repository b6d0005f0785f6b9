"""The console's paths: its frame at the paths of all views, its files below `/console`, its JSON API below `/api/console`.

session    who is looking, and whether they may change anything
frame      the views there are, and their files
tools      the tools, found as an agent finds them; what is known of one
run        a call, for the playground
overview   what needs attention
servers    states, output, start and stop; changes of `toolpost.toml`
contracts  tools that are not as promised
calls      the audit
logs       the log on disk
callers    who may call, and how much each has
stored_callers  those that are made here, with their tokens
events     what has changed, as it changes
"""

from collections.abc import Sequence
from typing import Final

from toolpost.endpoints.http import HttpContext, JsonApi, Routes
from toolpost.parts import Host
from toolpost.parts.console.api import (
    callers,
    calls,
    contracts,
    events,
    frame,
    logs,
    overview,
    run,
    servers,
    session,
    stored_callers,
    tools,
)
from toolpost.parts.console.context import Console
from toolpost.parts.console.memory import MemoryHistory
from toolpost.parts.console.sessions import ConsoleSessions
from toolpost.parts.console.sign_in import People, SignInRoutes
from toolpost.parts.console.timings import CallTimings

_MODULES: Final = (
    session,
    frame,
    overview,
    tools,
    run,
    servers,
    contracts,
    calls,
    logs,
    callers,
    stored_callers,
    events,
)


def make_routes(
    host: Host,
    http: HttpContext,
    sessions: ConsoleSessions,
    people: People,
    timings: CallTimings,
    memory: MemoryHistory,
) -> Sequence[Routes]:
    """Make all paths of the console."""
    people.serve(http)
    console = Console(host=host, http=http, sessions=sessions, people=people, timings=timings, memory=memory)
    return [
        SignInRoutes(http, people),
        JsonApi(http, [route for module in _MODULES for route in module.routes_of(console)]),
        *frame.make_pages(http),
    ]
