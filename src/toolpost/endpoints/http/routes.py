"""Paths that parts add to the HTTP endpoint. The kernel's own paths come first, so no part can take one of them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import parse_qs

import msgspec

from toolpost.base.attention import ActionItem
from toolpost.base.caller import Principal
from toolpost.base.ids import Json, JsonObject
from toolpost.contracts.errors import (
    ErrorCode,
    Forbidden,
    InvalidRequest,
    NotFound,
    QueueOverloaded,
    ToolpostError,
    UpstreamUnavailable,
)
from toolpost.discovery.finder import Finder
from toolpost.endpoints.auth.access import Access
from toolpost.endpoints.auth.roster import Admission
from toolpost.endpoints.http.descriptors import is_out_of_descriptors
from toolpost.endpoints.http.exchange import PRIVATE_HEADERS, send_json
from toolpost.endpoints.http.refusal import Headers, Refused, forbidden, overload_status, retry_headers
from toolpost.endpoints.http.request import HttpRequest
from toolpost.fairness import Shares
from toolpost.gateway import Gateway
from toolpost.protocol.rpc import encode, internal_error
from toolpost.protocol.shape import BadShape, decode
from toolpost.providers.servers import Servers


class Routes(Protocol):
    """Some paths of the HTTP endpoint, and their handler."""

    def serves(self, path: str) -> bool: ...

    async def answer(self, request: HttpRequest) -> None:
        """Answer a request. Must call `access.admit` before it sends data of any caller."""
        ...


@dataclass(frozen=True, kw_only=True)
class HttpContext:
    """What a part's routes are made with, when HTTP begins to be served."""

    access: Access
    """The access rules of the endpoint."""
    streams: Shares
    """Counts open event streams, per caller and in total."""
    body_limit: int
    health: Callable[[], JsonObject]
    gateway: Gateway
    servers: Servers
    finder: Finder
    attention: Callable[[Principal], Awaitable[Sequence[ActionItem]]]
    """Returns what waits for a person in all parts, as far as a caller may know it."""
    pages: Mapping[str, str] = field(default_factory=dict)
    """Paths of the pages that all parts have for people, by title."""
    check_browser_write: Callable[[HttpRequest, Admission], None] = lambda _request, _admission: None
    """Raises for a request that would change something and may not: one of a browser that has shown no secret, where no token is
    required. `JsonApi` calls it, before the body is read; other routes do so themselves."""


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


@dataclass(frozen=True)
class Page:
    """A page for people: all pages link to it."""

    title: str
    path: str


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
    """The JSON of the body; None without one."""
    answer_headers: Headers = field(default_factory=list)
    """Sent with the answer: a handler may add some."""

    @property
    def query(self) -> dict[str, str]:
        """What follows `?` in the address, the first value of each name; raises `InvalidRequest` for a zero byte."""
        text = self.http.scope.get("query_string", b"").decode("latin-1")
        found = {name: values[0] for name, values in parse_qs(text, keep_blank_values=True).items()}
        if any("\0" in value for value in found.values()):
            # PostgreSQL keeps no such text, and no name has one.
            raise InvalidRequest("The query has a zero byte, which no name has.")
        return found


Handler = Callable[[RouteRequest], Awaitable[Json]]

READING: Final = frozenset({"GET", "HEAD"})
"""Methods of requests that change nothing."""

STREAMED: Final[Json] = object()
"""Returned by a handler that has sent the answer itself, such as a stream of events."""


@dataclass(frozen=True, kw_only=True)
class Route:
    """A method of a path, answered in JSON."""

    method: str
    path: str
    handler: Handler
    """Returns what is sent as JSON. A ToolpostError is sent as the error object, under `error`."""
    is_for_admins: bool = False
    check: Callable[[HttpRequest, Admission], None] | None = None
    """Raises for a request that may not be answered, before its body is read; in place of `HttpContext.check_browser_write`."""


class JsonApi:
    """Routes that take and return JSON. Agents in conversations may not use them."""

    def __init__(self, http: HttpContext, routes: Sequence[Route]) -> None:
        self._http = http
        self._routes = {(route.path, route.method): route for route in routes}
        self._paths = {route.path for route in routes}

    def serves(self, path: str) -> bool:
        return path in self._paths

    async def answer(self, request: HttpRequest) -> None:
        """Answer a request; failures are sent as the error object."""
        try:
            result, headers = await self._result(request)
        except Refused as refusal:
            error: JsonObject = {"code": refusal.code.value, "message": str(refusal)}
            await _send_error(request, error, refusal.status, refusal.headers)
        except QueueOverloaded as overload:
            await _send_error(request, overload.as_object(), overload_status(overload), retry_headers(overload))
        except ToolpostError as failure:
            await _send_error(request, failure.as_object(), _status_of(failure))
        except Exception as bug:
            # A bug gets an answer too.
            if is_out_of_descriptors(bug):
                raise
            message = internal_error(bug).message
            await _send_error(request, {"code": ErrorCode.INTERNAL.value, "message": message}, 500)
        else:
            if result is not STREAMED:
                await send_json(request.send, encode(result), headers=[*PRIVATE_HEADERS, *headers])

    async def _result(self, request: HttpRequest) -> tuple[Json, Headers]:
        admission = await self._http.access.admit(request)
        if admission.caller.is_agent:
            raise forbidden("An agent may use tools, and nothing else")
        route = self._routes.get((request.path, request.method))
        if route is None:
            allowed = ", ".join(method for path, method in self._routes if path == request.path)
            headers = [(b"allow", allowed.encode())]
            raise Refused(405, ErrorCode.INVALID_REQUEST, f"This path takes {allowed} only", headers=headers)
        if route.is_for_admins and not admission.is_admin:
            raise forbidden("Only a caller with `admin = true` may use this path")
        if route.check is not None:
            route.check(request, admission)
        elif request.method not in READING:
            self._http.check_browser_write(request, admission)
        asked = RouteRequest(http=request, admission=admission, body=await self._body(request))
        return await route.handler(asked), asked.answer_headers

    async def _body(self, request: HttpRequest) -> Any:
        if request.method in ("GET", "HEAD", "DELETE"):
            return None
        if not request.is_json:
            # A page of another origin can post a form without a preflight request, but not JSON.
            raise Refused(415, ErrorCode.INVALID_REQUEST, "Send `Content-Type: application/json`")
        raw = await request.body(self._http.body_limit)
        try:
            return decode(raw) if raw else None
        except (BadShape, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"The body is not JSON: {error}.") from error


def _status_of(failure: ToolpostError) -> int:
    if isinstance(failure, NotFound):
        return 404
    if isinstance(failure, Forbidden):
        return 403
    if isinstance(failure, UpstreamUnavailable):
        return 503
    return 400 if failure.code in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_PARAMS) else 500


async def _send_error(
    request: HttpRequest, error: JsonObject, status: int, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    fields = [*PRIVATE_HEADERS, *(headers or ())]
    await send_json(request.send, encode({"error": error}), status=status, headers=fields)
