"""`Toolpost`: the gateway as an object in a Python program. `docs/guides/embed-toolpost.md` is the guide.

    app = Toolpost(servers={"git": {"command": "mcp-server-git"}}, plugins=[plugin], middleware=[forbid_deletes])

    app.run()                                   # serves by itself, on HTTP or stdio, as `toolpost serve` does
    uvicorn module:app                          # is an ASGI application, and can be mounted into another one
    async with app.open() as gateway: ...       # calls tools in this process

`app.run()` listens with Toolpost's own connections. Under another server, requests come through `__call__`: who may call is
checked there all the same, but limits on connections and on slow requests are that server's.
"""

import ipaddress
import logging
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import msgspec

from toolpost.app import App, open_app, open_http, serve_on_stdio
from toolpost.app.open import OpenOptions
from toolpost.app.serve import open_asgi
from toolpost.authoring import CallResult, Middleware, Plugin
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId, JsonObject
from toolpost.cli.call.answer import parse_answer
from toolpost.cli.serve import ServeOutput, Stop, announce
from toolpost.contracts.errors import BadConfiguration, ErrorCode, ToolFailed
from toolpost.endpoints.auth.access import LOCAL_HOSTS
from toolpost.endpoints.http import Refused, send_json
from toolpost.endpoints.http.app import HttpEndpoint
from toolpost.endpoints.http.refusal import forbidden
from toolpost.endpoints.http.request import Receive, Scope, Send
from toolpost.endpoints.stdio import StdioStreams
from toolpost.manifest import Part
from toolpost.providers.configured_middleware import MIDDLEWARE_SIGNATURE, problem_of_middleware
from toolpost.settings import Config, load_config
from toolpost.settings.loader import convert_settings
from toolpost.settings.model import parse_address
from toolpost.terminal import on_signals
from toolpost.terminal.logging import set_up_logging
from toolpost.upstreams.in_process import ServerObject

PLACE: Final = "Toolpost()"
"""Names the settings that a program gives, in errors."""

APPLICATION: Final = Caller(id=CallerId("application"), transport="memory")
"""Who calls with `OpenToolpost.call`, unless a caller is given."""

_ANNOUNCEMENT: Final = ServeOutput(log_format="text", as_json=False)


class Toolpost:
    """A gateway in your own program: an ASGI application, a server by itself, or tools to call in process."""

    def __init__(
        self,
        *,
        servers: Mapping[str, Mapping[str, Any]] | None = None,
        plugins: Sequence[Plugin | ServerObject] = (),
        middleware: Sequence[Middleware] = (),
        parts: Sequence[Part] = (),
        settings: Mapping[str, Any] | str | Path | None = None,
        allow_anonymous: bool = False,
    ) -> None:
        """Read the settings; nothing is opened or started yet. Raises `ToolpostError` for settings that are wrong.

        `servers` are settings of MCP servers by name, and `settings` all others, both as in `toolpost.toml`; or the path of
        such a file, to which `servers` are added. Without a file the store is in memory unless `store.url` is set, and plugins
        of installed packages are loaded only if `plugins.installed` is set.

        `middleware` runs around every call, the outermost first. `parts` are opened beside those that come with Toolpost.
        `allow_anonymous` is for an application that checks callers itself: without it, requests from other machines are refused
        unless the settings ask for a token.
        """
        for function in middleware:
            if problem := problem_of_middleware(function):
                raise BadConfiguration(f"{PLACE}: middleware {function!r} {problem}.", hint=MIDDLEWARE_SIGNATURE)
        self.config = _read_settings(settings, servers or {}, parts)
        self._plugins = tuple(plugins)
        self._middleware = tuple(middleware)
        self._parts = tuple(parts)
        self._allow_anonymous = allow_anonymous
        self._is_open = False
        self._endpoint: HttpEndpoint | None = None

    def run(self, *, transport: Literal["http", "stdio"] = "http", listen: str | None = None) -> None:
        """Serve until Ctrl-C or SIGTERM, on HTTP at `listen` (`host:port`), or to the client that started this process.

        Events are logged on stderr, unless logging is set up already.
        """
        config = self.config
        if listen is not None:
            parse_address(listen)
            config = msgspec.structs.replace(config, http=msgspec.structs.replace(config.http, listen=listen))
        if not logging.getLogger().handlers:
            set_up_logging("info")
        # Before anything else can write to stdout, which is the client's.
        streams = StdioStreams() if transport == "stdio" else None
        anyio.run(self._serve, config, streams, backend_options={"use_uvloop": sys.platform != "win32"})

    async def _serve(self, config: Config, streams: StdioStreams | None) -> None:
        stop = Stop()
        with on_signals(stop.request_stop):
            async with self._open_app(config) as app:
                stop.app = app
                if streams is not None:
                    announce(app, None, _ANNOUNCEMENT)
                    await serve_on_stdio(app, streams, stop.event)
                    return
                async with open_http(app) as url:
                    announce(app, url, _ANNOUNCEMENT)
                    await stop.event.wait()

    @asynccontextmanager
    async def open(self) -> AsyncIterator["OpenToolpost"]:
        """Open the gateway: its tools can be called in this process, and the ASGI application answers.

        Leaving gives calls in flight their grace, and ends the servers. A gateway is open once at a time.
        """
        failure: Exception | None = None
        async with self._open_app(self.config) as app, open_asgi(app, is_guarded=self._allow_anonymous) as endpoint:
            self._endpoint = endpoint
            try:
                yield OpenToolpost(app)
            except Exception as error:  # noqa: BLE001 (raised again below)
                # Task groups in between would make an exception group of it.
                failure = error
            finally:
                # Requests that still come in are told that it is not open.
                self._endpoint = None
        if failure is not None:
            raise failure

    @asynccontextmanager
    async def lifespan(self, _app: object = None) -> AsyncIterator[None]:
        """Open the gateway for as long as an application runs: `FastAPI(lifespan=app.lifespan)`."""
        async with self.open():
            # Starlette takes what a lifespan yields for state of its requests.
            yield

    @asynccontextmanager
    async def _open_app(self, config: Config) -> AsyncIterator[App]:
        if self._is_open:
            raise RuntimeError("This Toolpost is open already: make another one to open it twice")
        self._is_open = True
        try:
            async with open_app(
                config,
                plugins=self._plugins,
                options=OpenOptions(more_parts=self._parts, middleware=self._middleware),
            ) as app:
                yield app
        finally:
            self._is_open = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, as ASGI has it; MCP is at `/mcp`, below the path that this is mounted at."""
        if scope["type"] == "lifespan":
            await self._follow_lifespan(receive, send)
        elif scope["type"] == "http":
            try:
                endpoint = self._admit(scope)
            except Refused as refusal:
                await send_json(send, refusal.body, status=refusal.status, headers=refusal.headers)
            else:
                await endpoint({**scope, "path": _path_below(scope)}, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    def _admit(self, scope: Scope) -> HttpEndpoint:
        """Return the handler of a request; raise `Refused` for an unknown path and a forbidden request."""
        if self._endpoint is None:
            raise Refused(
                503,
                ErrorCode.CAPABILITY_MISSING,
                "The gateway is not open: an application that mounts it opens it in its own lifespan, as in "
                "FastAPI(lifespan=app.lifespan)",
            )
        # A listener of ours is on localhost where no token is needed. What another server listens on only a request shows.
        if not (self._endpoint.requires_token or self._allow_anonymous or _is_local(scope.get("server"))):
            raise forbidden(
                "Requests from other machines need a token: set TOOLPOST_TOKEN (or http.token, or callers), or "
                "allow_anonymous=True where the application checks callers itself"
            )
        return self._endpoint

    async def _follow_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        is_started = False
        try:
            async with self.open():
                await send({"type": "lifespan.startup.complete"})
                is_started = True
                await receive()
        except Exception as error:
            step = "shutdown" if is_started else "startup"
            await send({"type": f"lifespan.{step}.failed", "message": f"{type(error).__name__}: {error}"})
            raise
        await send({"type": "lifespan.shutdown.complete"})


class OpenToolpost:
    """An open gateway, for calls within the process."""

    def __init__(self, app: App) -> None:
        self._app = app

    @property
    def tools(self) -> list[str]:
        """The names of all tools that can be called now."""
        return [tool.contract.name for tool in self._app.gateway.catalog]

    async def call(self, tool: str, arguments: JsonObject | None = None, *, caller: Caller = APPLICATION) -> CallResult:
        """Call a tool, and return its result; raise the `ToolpostError` that a client would be told of.

        The call passes everything that a client's call does: middleware, validation, limits, the audit log, which has `caller`.
        """
        gateway = self._app.gateway
        call = gateway.admit(caller=caller, name=tool, arguments=arguments or {}, wants_whole_result=True)
        answer = await gateway.call(call)
        if answer.error is not None:
            raise answer.error
        told = parse_answer(answer)
        if told.error is not None:
            raise ToolFailed(str(told.error["message"]))
        return CallResult(told.data, content=told.content)


def _read_settings(
    settings: Mapping[str, Any] | str | Path | None, servers: Mapping[str, Mapping[str, Any]], parts: Sequence[Part]
) -> Config:
    if isinstance(settings, str | Path):
        config = load_config(Path(settings), parts=parts)
    else:
        values = dict(settings or {})
        # An application names what it serves, and is not surprised by files of ours in its folder.
        values["store"] = {"url": "sqlite::memory:", **values.get("store", {})}
        values["plugins"] = {"installed": False, **values.get("plugins", {})}
        config = convert_settings(values, place=PLACE, parts=parts)
    if twice := sorted(servers.keys() & config.servers.keys()):
        raise BadConfiguration(f"{PLACE}: the server `{twice[0]}` is in `servers` and in `settings`.")
    given = convert_settings({"servers": servers}, place=PLACE).servers
    return msgspec.structs.replace(config, servers={**config.servers, **given})


def _path_below(scope: Scope) -> str:
    """Return the path of a request without the one that the application is mounted at."""
    path, mounted_at = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return path.removeprefix(mounted_at) if path.startswith(f"{mounted_at}/") else path


def _is_local(server: tuple[str, int | None] | None) -> bool:
    """Whether a request came to an address that only this machine reaches; a Unix socket has no address."""
    if server is None or server[1] is None or server[0] in LOCAL_HOSTS:
        return True
    try:
        return ipaddress.ip_address(server[0]).is_loopback
    except ValueError:
        return False
