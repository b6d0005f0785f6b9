"""Shared by the handlers of the console's API: the gateway, the caller's view of it, and the check of changes."""

from dataclasses import dataclass

import msgspec

from toolpost import Forbidden
from toolpost.admin import ConfigFile
from toolpost.contracts import InvalidRequest
from toolpost.endpoints.http import Admission, EventSchema, Handler, HttpContext, HttpRequest, Route, RouteRequest
from toolpost.parts import Host
from toolpost.parts.console.memory import MemoryHistory
from toolpost.parts.console.sessions import (
    API_PATH,
    ConsoleSessions,
    check_browser_write,
    check_same_origin,
    may_write,
)
from toolpost.parts.console.settings import Role
from toolpost.parts.console.sign_in import SIGN_IN_PATH, People, is_fresh
from toolpost.parts.console.timings import CallTimings


@dataclass(frozen=True, kw_only=True)
class Console:
    """The gateway that is shown, and who may change it."""

    host: Host
    http: HttpContext
    sessions: ConsoleSessions
    people: People
    timings: CallTimings
    memory: MemoryHistory

    @property
    def config_file(self) -> ConfigFile:
        """The `toolpost.toml` of the gateway."""
        return ConfigFile(self.host.config_path, self.host.config, self.host.plugins, self.http.servers)

    @property
    def is_open(self) -> bool:
        """Whether no token is required: then changes and calls need the cookie."""
        return self.http.access.roster.anonymous is not None

    def may_write(self, request: RouteRequest) -> bool:
        """Whether a request has what changes need: the cookie where no token is required, or a role that changes something."""
        if (person := request.admission.person) is not None:
            return person.may("operator")
        return may_write(self.sessions, request.http, is_open=self.is_open)

    def read(self, path: str, handler: Handler, *, is_for_admins: bool = False) -> Route:
        """Make a route that answers GET and changes nothing: people see it in any role."""
        return Route(method="GET", path=f"{API_PATH}{path}", handler=handler, is_for_admins=is_for_admins)

    def change(
        self,
        path: str,
        handler: Handler,
        *,
        is_for_admins: bool = True,
        needs_session: bool = False,
        role: Role | None = None,
        is_dry: bool = False,
        body: type[msgspec.Struct] | None = None,
        events: EventSchema | None = None,
    ) -> Route:
        """Make a route that answers POST, and changes something or calls a tool: it needs the cookie, or a token.

        What decides about the commands that the gateway runs needs both (`needs_session`): a token is in the settings of every
        client, where the agents that use it can read it; it is not the right to run commands. A person who is signed in must be
        an administrator for it, who has proved a few minutes ago who they are.

        `role` is the least that people need, an administrator's for what is for administrators. `is_dry` changes nothing.
        """
        needs_fresh = needs_session and role is None

        def check(request: HttpRequest, admission: Admission) -> None:
            if admission.person is not None:
                check_same_origin(request)
                if needs_fresh and not is_fresh(admission.person.signed_in_at):
                    raise Forbidden("This needs you to sign in once more.", needs="sign-in", at=SIGN_IN_PATH)
                return
            check_browser_write(self.sessions, request, is_open=needs_session or self.is_open)

        return Route(
            method="POST",
            path=f"{API_PATH}{path}",
            handler=handler,
            is_for_admins=is_for_admins,
            role=role,
            is_dry=is_dry,
            check=check,
            body=body,
            events=events,
        )


def text_of(request: RouteRequest, name: str) -> str:
    """Return a text of the query (GET) or the body (POST); raise `InvalidRequest` without it."""
    given = request.query if request.http.method == "GET" else request.body
    value = given.get(name) if isinstance(given, dict) else None
    if not isinstance(value, str) or not value or "\0" in value:
        raise InvalidRequest(f"`{name}` is missing.", hint=f'send it as a text, such as "{name}": "…"')
    return value
