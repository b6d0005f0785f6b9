"""The gateway that runs, asked over HTTP by a command."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlsplit

from toolpost.base.ids import Json, JsonObject
from toolpost.contracts import errors
from toolpost.contracts.errors import ErrorCode, InvalidRequest, OperatorError, ToolpostError

SERVERS_PATH: Final = "/api/servers"
MCP_PATH: Final = "/mcp"

_LOOK_S: Final = 15.0
_ACT_S: Final = 60.0
_LOCAL: Final = ("127.0.0.1", "localhost", "::1")
_KINDS: Final[dict[ErrorCode, type[ToolpostError]]] = {
    ErrorCode.INVALID_REQUEST: errors.InvalidRequest,
    ErrorCode.INVALID_PARAMS: errors.InvalidArguments,
    ErrorCode.NOT_FOUND: errors.NotFound,
    ErrorCode.UNAUTHORIZED: errors.Unauthorized,
    ErrorCode.FORBIDDEN: errors.Forbidden,
    ErrorCode.QUEUE_OVERLOADED: errors.QueueOverloaded,
    ErrorCode.CANCELLED: errors.CallCancelled,
    ErrorCode.HANDLER_ERROR: errors.ToolFailed,
    ErrorCode.UPSTREAM_UNAVAILABLE: errors.UpstreamUnavailable,
    ErrorCode.CAPABILITY_MISSING: errors.CapabilityMissing,
}
"""What a gateway's refusal is raised as, so that the process ends with its exit code; any other code counts as a bug."""

_HINTS: Final = {
    ErrorCode.UNAUTHORIZED: "set TOOLPOST_TOKEN, or http.token_file in toolpost.toml, to the token of that gateway"
}


class NoGateway(OperatorError):
    """No gateway answers."""


@dataclass(frozen=True, kw_only=True)
class RunningGateway:
    """A gateway at an address."""

    url: str
    """Without a path; `base_url` makes it."""
    token: str | None = field(default=None, repr=False)

    def servers(self) -> list[JsonObject]:
        """Ask how every server is doing."""
        found = self.ask("GET", SERVERS_PATH, limit_s=_LOOK_S).get("servers")
        if not isinstance(found, list):
            raise self._something_else()
        return found

    def act(self, name: str, action: str) -> JsonObject:
        """Start, stop or restart a server; returns how it is doing then."""
        return self.ask("POST", f"{SERVERS_PATH}/{quote(name, safe='')}/{action}", limit_s=_ACT_S)

    def ask(self, method: str, path: str, body: JsonObject | None = None, *, limit_s: float = _LOOK_S) -> JsonObject:
        """Ask for something, and return the answer; a refusal is raised as the error that it names."""
        with self.open_answer(method, path, body, limit_s=limit_s) as response:
            return self._object(response.read())

    @contextmanager
    def open_answer(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        *,
        accept: str = "application/json",
        limit_s: float = _LOOK_S,
    ) -> Iterator[http.client.HTTPResponse]:
        """Ask for something, and read the answer as it comes; `limit_s` is how long it may be silent."""
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self.url}{path}", data, method=method)  # noqa: S310 (`base_url` checks the scheme)
        request.add_header("X-Toolpost", "1")
        request.add_header("Accept", accept)
        if data is not None:
            request.add_header("Content-Type", "application/json")
        if self.token is not None:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with _opener(self.url).open(request, timeout=limit_s) as response:
                yield response
        except urllib.error.HTTPError as answer:
            with answer:
                raise read_error(self._object(answer.read()).get("error")) or self._something_else() from answer
        except (OSError, http.client.HTTPException) as error:
            raise NoGateway(
                f"No gateway answers at {self.url}: {_reason(error)}.",
                hint="`toolpost serve` starts one; --url names another",
            ) from error

    def _object(self, body: bytes) -> JsonObject:
        try:
            value = json.loads(body)
        except ValueError as error:
            raise self._something_else() from error
        if not isinstance(value, dict):
            raise self._something_else()
        return value

    def _something_else(self) -> NoGateway:
        return NoGateway(
            f"What answers at {self.url} is no Toolpost that can be asked this.",
            hint="--url names another; `toolpost serve --listen HOST:PORT` starts one elsewhere",
        )


def read_error(error: Json) -> ToolpostError | None:
    """Make the error again that a gateway answered with, None if that is no error object."""
    try:
        code = ErrorCode(error["code"])
        details = error.get("details") or {}
        # Its code is that of any other malformed request.
        is_unknown = code is ErrorCode.INVALID_REQUEST and "tool" in details
        kind = errors.UnknownTool if is_unknown else _KINDS.get(code, errors.GatewayError)
        return kind(str(error["message"]), hint=error.get("hint") or _HINTS.get(code), **details)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def base_url(url: str) -> str:
    """Read an address as people write it: with the path of MCP, or without."""
    with suppress(ValueError):  # a port that is no number, brackets that do not close
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            path = parts.path.rstrip("/").removesuffix(MCP_PATH)
            return f"{parts.scheme}://{parts.netloc}{path}"
    raise InvalidRequest(f"`{url}` is no address of a gateway.", hint="write it as http://127.0.0.1:8420")


def _opener(url: str) -> urllib.request.OpenerDirector:
    handlers: list[Any] = [_NoRedirects()]
    if urlsplit(url).hostname in _LOCAL:
        # A proxy is for what is elsewhere.
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows nobody: the token is for the address that was named."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _reason(error: BaseException) -> str:
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror.lower()
    return str(inner) or type(inner).__name__
