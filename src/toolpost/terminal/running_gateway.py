"""An HTTP client for the API of a running gateway."""

import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote, urlsplit

from toolpost.base.ids import Json, JsonObject
from toolpost.contracts import errors
from toolpost.contracts.errors import BadConfiguration, ErrorCode, InvalidRequest, OperatorError, ToolpostError
from toolpost.net.client import open_tunnel_blocking
from toolpost.net.network import DIRECT, Network

if TYPE_CHECKING:
    from toolpost.settings import Config

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
"""The class of an error answer, which decides the exit code; any other code counts as a bug."""

_HINTS: Final = {
    ErrorCode.UNAUTHORIZED: "set TOOLPOST_TOKEN, or http.token in toolpost.toml, to the token of that gateway"
}


class NoGateway(OperatorError):
    pass


@dataclass(frozen=True, kw_only=True)
class RunningGateway:
    """A gateway at a URL."""

    url: str
    """Without a path, unless it is a single endpoint such as `/mcp/server/NAME`."""
    token: str | None = field(default=None, repr=False)
    network: Network = DIRECT
    """How it is reached, if it is not on this machine."""

    @classmethod
    def at(cls, url: str) -> Self:
        """Return the gateway at a URL, with or without `/mcp`; raises `InvalidRequest` for what is no URL."""
        return cls(url=base_url(url))

    @classmethod
    def of(cls, config: "Config", url: str | None = None) -> Self:
        """Return the gateway at a URL, with or without `/mcp`; without a URL the gateway of the configuration, on this machine.

        Raises `InvalidRequest` for what is no URL, and `BadConfiguration` if the configuration has no port.
        """
        if url is None:
            return cls(url=gateway_url(config, hint="give its address with --url"), token=config.token())
        return cls(url=base_url(url), token=config.token(), network=config.resolve_network())

    @property
    def mcp_url(self) -> str:
        """The URL of its MCP endpoint; `/mcp/server/NAME` and `/mcp/tags/a,b` are kept."""
        return self.url if f"{MCP_PATH}/" in urlsplit(self.url).path else f"{self.url}{MCP_PATH}"

    def servers(self) -> list[JsonObject]:
        """Return the report of every server."""
        found = self.ask("GET", SERVERS_PATH, limit_s=_LOOK_S).get("servers")
        if not isinstance(found, list):
            raise self._not_toolpost()
        return found

    def act(self, name: str, action: str) -> JsonObject:
        """Start, stop or restart a server; returns its report afterwards."""
        return self.ask("POST", f"{SERVERS_PATH}/{quote(name, safe='')}/{action}", limit_s=_ACT_S)

    def ask(self, method: str, path: str, body: JsonObject | None = None, *, limit_s: float = _LOOK_S) -> JsonObject:
        """Send a request and return its JSON object; an error answer is raised as the error that it names."""
        with self.open_response(method, path, body, limit_s=limit_s) as response:
            return self._object(response.read())

    @contextmanager
    def open_response(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        *,
        accept: str = "application/json",
        limit_s: float = _LOOK_S,
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request and yield the open response; `limit_s` is the longest silence."""
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self.url}{path}", data, method=method)  # noqa: S310 (`base_url` checks the scheme)
        request.add_header("X-Toolpost", "1")
        request.add_header("Accept", accept)
        if data is not None:
            request.add_header("Content-Type", "application/json")
        if self.token is not None:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with _make_opener(self.url, self.network).open(request, timeout=limit_s) as response:
                yield response
        except urllib.error.HTTPError as answer:
            with answer:
                raise parse_error(self._object(answer.read()).get("error")) or self._not_toolpost() from answer
        except (OSError, http.client.HTTPException) as error:
            raise NoGateway(
                f"Cannot connect to a gateway at {self.url}: {_reason_of(error)}.",
                hint="start one with `toolpost serve`, or give its address with --url",
            ) from error

    def _object(self, body: bytes) -> JsonObject:
        try:
            value = json.loads(body)
        except ValueError as error:
            raise self._not_toolpost() from error
        if not isinstance(value, dict):
            raise self._not_toolpost()
        return value

    def _not_toolpost(self) -> NoGateway:
        return NoGateway(
            f"The server at {self.url} is not a Toolpost gateway, or one without this API.",
            hint="give another address with --url, or start one with `toolpost serve --listen HOST:PORT`",
        )


def parse_error(error: Json) -> ToolpostError | None:
    """Rebuild the error that a gateway answered with; None if this is not an error object."""
    try:
        code = ErrorCode(error["code"])
        details = error.get("details") or {}
        # An unknown tool has the code of any malformed request.
        is_unknown = code is ErrorCode.INVALID_REQUEST and "tool" in details
        kind = errors.UnknownTool if is_unknown else _KINDS.get(code, errors.GatewayError)
        return kind(str(error["message"]), hint=error.get("hint") or _HINTS.get(code), **details)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def base_url(url: str) -> str:
    """Parse a gateway's URL, with or without `/mcp`; returns it without. Raises `InvalidRequest`."""
    with suppress(ValueError):  # an invalid port, an unclosed bracket
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            path = parts.path.rstrip("/").removesuffix(MCP_PATH)
            return f"{parts.scheme}://{parts.netloc}{path}"
    raise InvalidRequest(f"`{url}` is not the URL of a gateway.", hint="write it as http://127.0.0.1:8420")


def gateway_url(config: "Config", *, hint: str = "set a port in http.listen") -> str:
    """Return the URL at which a gateway of this configuration is reached from this machine, without a path."""
    host, port = config.address
    if port == 0:
        raise BadConfiguration(
            "http.listen has port 0: it is another port at each start, which clients cannot know.", hint=hint
        )
    # A server on all interfaces is reached through the loopback address.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (compared, not bound)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _make_opener(url: str, network: Network) -> urllib.request.OpenerDirector:
    handlers: list[Any] = [_NoRedirects()]
    parts = urlsplit(url)
    context = network.make_ssl_context() if parts.scheme == "https" else None
    proxy = network.find_proxy(url)
    if proxy is not None and not proxy.startswith("http:"):
        # urllib knows HTTP proxies alone.
        handlers += [urllib.request.ProxyHandler({}), *_make_tunnel_handlers(proxy, context)]
        return urllib.request.build_opener(*handlers)
    if context is not None:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    if parts.hostname in _LOCAL or network.proxy is not None:
        # No proxy for this machine. Without a setting, others are reached through that of the environment.
        handlers.append(urllib.request.ProxyHandler({parts.scheme: proxy} if proxy is not None else {}))
    return urllib.request.build_opener(*handlers)


def _make_tunnel_handlers(proxy: str, context: ssl.SSLContext | None) -> list[urllib.request.BaseHandler]:
    """Make handlers whose connections go through a SOCKS proxy."""

    class Connection(http.client.HTTPConnection):
        def connect(self) -> None:
            self.sock = open_tunnel_blocking(proxy, self.host, self.port, self.timeout)

    class SecureConnection(http.client.HTTPSConnection):
        def connect(self) -> None:
            assert context is not None
            tunnel = open_tunnel_blocking(proxy, self.host, self.port, self.timeout)
            try:
                self.sock = context.wrap_socket(tunnel, server_hostname=self.host)
            except BaseException:
                tunnel.close()
                raise

    class Handler(urllib.request.HTTPHandler):
        def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Connection, request)

    class SecureHandler(urllib.request.HTTPSHandler):
        def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(SecureConnection, request)

    return [Handler(), SecureHandler()]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: the token is meant for the given address only."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _reason_of(error: BaseException) -> str:
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror.lower()
    return str(inner) or type(inner).__name__
