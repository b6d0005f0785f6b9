"""Paths of the HTTP endpoint, and the one router for those that answer in JSON.

The kernel's own paths come first, so no part can take one of them. A `JsonApi` admits the caller, finds the route, decodes the
body, calls the handler, and sends what it returns, or the error object with the status of its code (`statuses.py`).
"""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol, get_args
from urllib.parse import parse_qs

import anyio
import msgspec

from toolpost.base import Json, JsonObject, event, nearest_name
from toolpost.base.action_items import ActionItem
from toolpost.base.caller import Principal
from toolpost.contracts.errors import CallCancelled, ErrorCode, InvalidRequest, ToolpostError
from toolpost.discovery.finder import Finder
from toolpost.endpoints.auth.access import Access, parse_bearer
from toolpost.endpoints.auth.people import PersonProvider, Role
from toolpost.endpoints.auth.roster import Admission
from toolpost.endpoints.auth.stored_callers import StoredCallers
from toolpost.endpoints.http.descriptors import is_out_of_descriptors
from toolpost.endpoints.http.disconnect import close_on_removal
from toolpost.endpoints.http.exchange import PRIVATE_HEADERS, send_json
from toolpost.endpoints.http.openapi import describe_routes
from toolpost.endpoints.http.paths import OPENAPI_PATH
from toolpost.endpoints.http.refusal import Headers, Refused, forbidden
from toolpost.endpoints.http.request import HttpRequest
from toolpost.endpoints.http.statuses import headers_of, status_of
from toolpost.fairness import Shares
from toolpost.gateway import Gateway
from toolpost.protocol.rpc import conceal_cause, encode, internal_error
from toolpost.protocol.shape import BadShape, check_shape, decode
from toolpost.providers.servers import Servers

_log = logging.getLogger("toolpost.changes")

_UNKNOWN_FIELD: Final = re.compile(r"unknown field `(.+)`")


class Routes(Protocol):
    """Some paths of the HTTP endpoint, and their handler."""

    def serves(self, path: str) -> bool: ...

    async def answer(self, request: HttpRequest) -> None:
        """Answer a request. Must call `access.admit` before it sends data of any caller."""
        ...


PersonFinder = Callable[[HttpRequest], Awaitable[Admission | None]]
"""Returns the admission of a person who signed in in a browser, None for any other request. It holds for seconds, so that the end
of a session is noticed."""


@dataclass(frozen=True, kw_only=True)
class HttpContext:
    """The arguments of a part's routes, made when HTTP begins to be served."""

    access: Access
    """The access rules of the endpoint."""
    streams: Shares
    """Counts open event streams, per caller and in total."""
    body_limit: int
    gateway: Gateway
    servers: Servers
    finder: Finder
    find_action_items: Callable[[Principal], Awaitable[Sequence[ActionItem]]]
    """Returns what waits for a person in all parts, as far as a caller may know it."""
    stored_callers: StoredCallers
    """Makes and removes callers while the gateway runs."""
    people: PersonProvider | None = None
    """Says who people are who sign in in a browser; None without one."""
    person_finders: Sequence[PersonFinder] = ()
    """Recognize people by what their browsers send."""
    views: Sequence["ConsoleView"] = ()
    """The views of all parts, for the console."""
    check_browser_write: Callable[[HttpRequest, Admission], None] = lambda _request, _admission: None
    """Raises for a request that would change something and may not: one of a browser that has shown no secret, where no token is
    required. `JsonApi` calls it, before the body is read; other routes do so themselves."""

    async def admit(self, request: HttpRequest) -> Admission:
        """Authenticate a request to a JSON API, which people may use who signed in in a browser; raises `Refused`."""
        if parse_bearer(request.headers) is None and (found := await self.find_person(request)) is not None:
            self.access.check_host_and_origin(request.headers)
            request.note_admitted()
            return found
        return await self.access.admit(request)

    async def find_person(self, request: HttpRequest) -> Admission | None:
        """Return the admission of a person who signed in in a browser; None for any other request."""
        for find in self.person_finders:
            if (found := await find(request)) is not None:
                return found
        return None


@dataclass(frozen=True)
class Api:
    """The paths of a part."""

    make_routes: Callable[[HttpContext], Sequence[Routes]]
    """Called when HTTP begins to be served. Returns `JsonApi` for an API, `Pages` for files."""


@dataclass(frozen=True)
class WriteCheck:
    """Checks each request to the API of any part that would change something."""

    check: Callable[[HttpRequest, Admission], None]
    """Raises for a request that may not change anything."""
    find_person: PersonFinder | None = None
    """Recognizes the people whose requests it checks: JSON APIs admit them as well as callers."""


ViewGroup = Literal["observe", "tools", "products", "administration"]
VIEW_GROUPS: Final[tuple[str, ...]] = get_args(ViewGroup)


@dataclass(frozen=True)
class ConsoleView:
    """A view of the console, for people: its frame links to it from everywhere, and shows it at its path and below."""

    title: str
    path: str
    module: Path
    """The ES module that exports the component `View`. Its folder is served below `/views`, under the name of the path."""
    group: ViewGroup = "products"
    """The heading under which it is linked to."""


@dataclass(frozen=True)
class StartupLine:
    """A line that `toolpost serve` prints on stderr when it begins to serve HTTP."""

    make: Callable[[str], Awaitable[str]]
    """Takes the URL without a path. The line may have a secret only if stderr is a terminal."""


@dataclass(frozen=True, kw_only=True)
class RouteRequest:
    """A request of an authenticated caller."""

    http: HttpRequest
    admission: Admission
    """The caller, its view, and whether it is an administrator."""
    body: Any
    """The body, decoded as the type of its route, or as any JSON; None without one."""
    path: Mapping[str, str] = field(default_factory=dict)
    """What the path has in place of each `{name}`."""
    replaced: anyio.Event = field(default_factory=anyio.Event)
    """Set when the callers are replaced after this one was admitted: it may see less from then on."""
    answer_headers: Headers = field(default_factory=list)
    """Sent with the answer: a handler may add some."""

    @property
    def principal(self) -> Principal:
        """The caller with its limits."""
        return Principal(caller=self.admission.caller, scopes=self.admission.scopes, is_admin=self.admission.is_admin)

    @property
    def query(self) -> dict[str, str]:
        """What follows `?` in the address, the first value of each name; raises `InvalidRequest` for a zero byte."""
        text = self.http.scope.get("query_string", b"").decode("latin-1")
        found = {name: values[0] for name, values in parse_qs(text, keep_blank_values=True).items()}
        if any("\0" in value for value in found.values()):
            # PostgreSQL keeps no such text, and no name has one.
            raise InvalidRequest("The query has a zero byte, which no name has.")
        return found

    def read_number(self, name: str, default: float, largest: float) -> float:
        """Return a number of the query; raises `InvalidRequest` if it is none, or not between 0 and `largest`."""
        text = self.query.get(name)
        if text is None:
            return default
        try:
            number = float(text)
        except ValueError as error:
            raise InvalidRequest(f"`{name}` must be a number.") from error
        if not 0 <= number <= largest:
            raise InvalidRequest(f"`{name}` must be between 0 and {largest:g}.")
        return number


Handler = Callable[[RouteRequest], Awaitable[Any]]

READING: Final = frozenset({"GET", "HEAD"})
"""Methods of requests that change nothing."""

STREAMED: Final[Json] = object()
"""Returned by a handler that has sent the answer itself, such as a stream of events."""


class EventSchema(NamedTuple):
    """The server-sent events of a route: the name of their schema, and their type."""

    name: str
    type: Any


@dataclass(frozen=True, kw_only=True)
class Route:
    """A method of a path, answered in JSON."""

    method: str
    path: str
    """`{name}` stands for one segment that is not empty."""
    handler: Handler
    """Returns the value to send as JSON, a struct or plain values. A ToolpostError is sent as the error object, under `error`."""
    is_for_admins: bool = False
    role: Role | None = None
    """The least role of people who signed in in a browser, see `required_role`."""
    is_dry: bool = False
    """Whether a method that usually changes something changes nothing here, such as one that makes a plan."""
    check: Callable[[HttpRequest, Admission], None] | None = None
    """Raises for a request that may not be answered, before its body is read; in place of `HttpContext.check_browser_write`."""
    body: type[msgspec.Struct] | None = None
    """The type of the body; an empty one is decoded as `{}`. None takes any JSON."""
    status: int = 200
    """Of a success."""
    events: EventSchema | None = None
    """The events that it streams to clients that accept them. The handler must wait on `http.receive` while it sends: the stream
    of a caller that is removed ends as if the client had disconnected."""
    summary: str = ""
    """For the OpenAPI description, as are the next three; without it, the name of the handler."""
    query: Mapping[str, type] = field(default_factory=dict)
    response: type[msgspec.Struct] | None = None
    errors: tuple[int, ...] = ()
    """Statuses beyond those that every route has. A route that streams may send them with its `response`: what failed."""

    @property
    def title(self) -> str:
        """Its summary."""
        return self.summary or getattr(self.handler, "__name__", "").strip("_").replace("_", " ")

    @property
    def is_reading(self) -> bool:
        """Whether it changes nothing."""
        return self.method in READING

    @property
    def required_role(self) -> Role:
        """The least role of people: any to read, an administrator where callers must be that, else an operator."""
        if self.role is not None:
            return self.role
        return "viewer" if self.is_reading else "administrator" if self.is_for_admins else "operator"

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names in its path."""
        return tuple(re.findall(r"\{(\w+)\}", self.path))


class JsonApi:
    """Routes that take and return JSON. Agents in conversations may not use them."""

    def __init__(self, http: HttpContext, routes: Sequence[Route], *, prefix: str | None = None) -> None:
        """All paths below `prefix` are answered, those without a route with 404."""
        self.routes = tuple(routes)
        self._http = http
        self._prefix = prefix
        self._exact: dict[str, list[Route]] = {}
        self._patterns: dict[re.Pattern[str], list[Route]] = {}
        for route in routes:
            if not (route.path.startswith("/") and route.method.isupper()):
                raise ValueError(f"a route is `GET /path`, not `{route.method} {route.path}`")
            if route.parameters:
                pattern = re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(route.path)), re.DOTALL)
                self._patterns.setdefault(pattern, []).append(route)
            else:
                self._exact.setdefault(route.path, []).append(route)

    def serves(self, path: str) -> bool:
        if self._prefix is not None and (path == self._prefix or path.startswith(f"{self._prefix}/")):
            return True
        return bool(self._match(path)[0])

    async def answer(self, request: HttpRequest) -> None:
        """Answer a request; failures are sent as the error object."""
        try:
            result, status, headers = await self._result(request)
            # What cannot be sent is a bug of the handler.
            encoded = b"" if result is STREAMED else encode(result)
        except Refused as refusal:
            error: JsonObject = {"code": refusal.code.value, "message": str(refusal)}
            await _send_error(request, error, refusal.status, refusal.headers)
        except ToolpostError as failure:
            failure = conceal_cause(failure)
            await _send_error(request, failure.as_object(), status_of(failure), headers_of(failure))
        except Exception as bug:
            # A bug gets an answer too; the HTTP application answers a lack of descriptors with 503.
            if is_out_of_descriptors(bug):
                raise
            message = internal_error(bug).message
            await _send_error(request, {"code": ErrorCode.INTERNAL.value, "message": message}, 500)
        else:
            if result is not STREAMED:
                await send_json(request.send, encoded, status=status, headers=[*PRIVATE_HEADERS, *headers])

    async def _result(self, request: HttpRequest) -> tuple[Any, int, Headers]:
        roster = self._http.access.roster
        # Before the caller is known: callers that are replaced from here on may have lost what this one is shown.
        replaced = roster.replaced
        admission = await self._http.admit(request)
        if admission.caller.is_agent:
            raise forbidden("An agent may use tools, and nothing else")
        route, found = self._find(request)
        if route.is_for_admins and not admission.is_admin:
            raise forbidden("Only a caller with `admin = true` may use this path")
        if (person := admission.person) is not None and not person.may(route.required_role):
            raise forbidden(f"This needs the role {route.required_role}, and {person.name} is {person.role}")
        if route.check is not None:
            route.check(request, admission)
        elif not route.is_reading:
            self._http.check_browser_write(request, admission)
        body = None if route.is_reading else await self._read_body(request, route)
        asked = RouteRequest(http=request, admission=admission, body=body, path=found, replaced=replaced)
        leaving = close_on_removal(request, roster, admission, self._http.find_person)
        async with leaving if route.events is not None else nullcontext():
            result = await route.handler(asked)
        if person is not None and not route.is_reading and not route.is_dry:
            facts: JsonObject = {"caller": admission.caller.id, "person": person.name, "role": person.role}
            event(_log, logging.INFO, "changed by a person", request=f"{request.method} {request.path}", **facts)
        return result, route.status, asked.answer_headers

    def _match(self, path: str) -> tuple[list[Route], dict[str, str]]:
        """Return the routes of a path, one for each method, and what it has in place of names; none if there is no such path."""
        if (exact := self._exact.get(path)) is not None:
            return exact, {}
        for pattern, routes in self._patterns.items():
            if found := pattern.fullmatch(path):
                return routes, found.groupdict()
        return [], {}

    def _find(self, request: HttpRequest) -> tuple[Route, dict[str, str]]:
        routes, found = self._match(request.path)
        if not routes:
            raise Refused(404, ErrorCode.NOT_FOUND, f"Not found; {OPENAPI_PATH} lists all paths")
        for route in routes:
            if route.method == request.method:
                return route, found
        allowed = ", ".join(route.method for route in routes)
        headers = [(b"allow", allowed.encode())]
        raise Refused(405, ErrorCode.INVALID_REQUEST, f"This path takes {allowed} only", headers=headers)

    async def _read_body(self, request: HttpRequest, route: Route) -> Any:
        if not request.is_json and request.headers.get(b"x-toolpost") != b"1":
            # A page of another origin can send neither without a preflight request, which is never allowed.
            raise Refused(415, ErrorCode.INVALID_REQUEST, "Send `Content-Type: application/json` or `X-Toolpost: 1`")
        raw = await request.body(self._http.body_limit)
        if raw is None:
            raise CallCancelled("The client disconnected while it sent its request.")
        if route.body is not None:
            return _decode_as(route.body, raw or b"{}")
        try:
            return decode(raw) if raw else None
        except (BadShape, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"The body is not JSON: {error}.") from error


def make_openapi(http: HttpContext, apis: Sequence[Routes], health: Callable[[], JsonObject]) -> JsonApi:
    """Make `/api/openapi.json`, which describes all JSON APIs, `/api/health`, and the answer of all other paths below `/api`."""
    described: list[JsonObject] = []

    async def describe(_: RouteRequest) -> Json:
        if not described:
            known = [each for each in (*apis, own) if isinstance(each, JsonApi)]
            described.append(describe_routes(route for each in known for route in each.routes))
        return described[0]

    async def show_health(request: RouteRequest) -> Json:
        # The details name servers and plugins, which a caller with limited scopes may not see.
        return {"status": "ok"} if request.admission.scopes else health()

    own = JsonApi(
        http,
        [
            Route(method="GET", path=OPENAPI_PATH, handler=describe, summary="this description"),
            Route(
                method="GET", path="/api/health", handler=show_health, summary="state of the server and of each plugin"
            ),
        ],
        prefix="/api",
    )
    return own


def _decode_as(kind: type[msgspec.Struct], raw: bytes) -> msgspec.Struct:
    try:
        check_shape(raw)
        return msgspec.json.decode(raw, type=kind)
    except (BadShape, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            f"The body does not match the schema of this path: {error}.", hint=_make_hint(str(error), kind)
        ) from error


def _make_hint(problem: str, kind: type[msgspec.Struct]) -> str:
    known = kind.__struct_encode_fields__
    unknown = _UNKNOWN_FIELD.search(problem)
    if unknown and (near := nearest_name(unknown[1][:64], known)):
        return f"did you mean `{near}`?"
    return f"an object with: {', '.join(known)}"


async def _send_error(request: HttpRequest, error: JsonObject, status: int, headers: Headers | None = None) -> None:
    fields = [*PRIVATE_HEADERS, *(headers or ())]
    await send_json(request.send, encode({"error": error}), status=status, headers=fields)
