"""The listening socket, and the HTTP server on it."""

import asyncio
import contextlib
import errno
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import uvicorn

from toolpost.contracts.errors import BadConfiguration
from toolpost.endpoints.http.app import HttpEndpoint
from toolpost.endpoints.http.connection import ServerConnection, write_refusal
from toolpost.endpoints.http.connection_limits import Connections
from toolpost.endpoints.http.descriptors import exhausted, has_run_out, warn_exhausted

CLOSE_S: Final = 2
BACKLOG: Final = 2048
ACCEPTED_AT_ONCE: Final = 32
"""Connections that are accepted before other work of the event loop gets its turn."""
PAUSE_S: Final = 0.5
"""How long nothing is accepted when even the spare descriptor is gone."""


class _Acceptor:
    """Accepts connections, in the place of an `asyncio.Server`.

    When descriptors run out, uvloop closes new connections silently, or its listener for good, and logs nothing. This logs it
    and tells the client: a spare descriptor is kept for that answer.
    """

    def __init__(
        self, listener: socket.socket, factory: Callable[[], ServerConnection], connections: Connections
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._factory = factory
        self._connections = connections
        self._opening: set[asyncio.Task[None]] = set()
        self._spare: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._reserve()
        self._listener.listen(BACKLOG)
        self._loop.add_reader(self._listener, self._accept)

    def close(self) -> None:
        """Stop accepting; connections that are open stay so."""
        self._loop.remove_reader(self._listener)
        if self._timer is not None:
            self._timer.cancel()
        self._release()

    async def wait_closed(self) -> None:
        """Wait until every accepted socket has its protocol."""
        if self._opening:
            await asyncio.wait(self._opening)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if has_run_out(error):
                    self._make_room()
                    return
                continue  # the client disconnected before it was accepted
            task = self._loop.create_task(self._open(accepted))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        # Answers are small: Nagle's algorithm would delay each until the client acknowledges the one before.
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await self._loop.connect_accepted_socket(self._factory, accepted)
        except OSError:  # it was reset
            accepted.close()

    def _make_room(self) -> None:
        """Close unauthenticated connections; if there are none, answer those that wait with a 503."""
        displaced = self._connections.displace(ACCEPTED_AT_ONCE)
        warn_exhausted("accepting connections")
        if displaced:
            return  # their descriptors are free in the next turn of the loop
        for _ in range(ACCEPTED_AT_ONCE):
            self._release()
            try:
                refused, _ = self._listener.accept()
            except OSError:
                break
            finally:
                self._reserve()
            self._connections.refused.add(of="descriptors")
            with refused, contextlib.suppress(OSError):
                refused.setblocking(False)
                refused.send(write_refusal(exhausted()))
        if self._spare is None:
            # Another part of the process took the spare descriptor: without a pause the loop would only try again.
            self._loop.remove_reader(self._listener)
            self._timer = self._loop.call_later(PAUSE_S, self._loop.add_reader, self._listener, self._accept)

    def _reserve(self) -> None:
        if self._spare is None:
            with contextlib.suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY)

    def _release(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the application decides when the server ends."""

    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self._connections = connections

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the acceptors; there is no lifespan to start."""
        loop = asyncio.get_running_loop()

        def connect() -> ServerConnection:
            return ServerConnection(self.config, self.server_state, self._connections, loop)

        self.servers = []
        for listener in sockets or ():
            if sys.platform == "win32":  # its loop cannot watch a listener
                self.servers.append(await loop.create_server(connect, sock=listener, backlog=BACKLOG))
                continue
            acceptor = _Acceptor(listener, connect, self._connections)
            acceptor.start()
            self.servers.append(acceptor)  # type: ignore[arg-type]
        self.started = True


def bind_socket(host: str, port: int) -> socket.socket:
    """Bind the address; raise `BadConfiguration` if that fails."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        raise BadConfiguration(
            f"Cannot listen on {host}:{port}: {error.strerror or error}.",
            hint=f"another server is there; try --listen {host}:{port + 1}" if in_use else "check --listen",
        ) from error
    listener.setblocking(False)
    return listener


@asynccontextmanager
async def open_http_server(
    endpoint: HttpEndpoint, listener: socket.socket, connections: Connections
) -> AsyncIterator[None]:
    """Serve HTTP on a socket until the context is left."""
    config = uvicorn.Config(
        endpoint,
        proxy_headers=False,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=CLOSE_S,
    )
    server = _Server(config, connections)
    async with anyio.create_task_group() as tasks:
        await tasks.start(endpoint.run)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            while not server.started and not serving.done():  # noqa: ASYNC110 (uvicorn has a flag, not an event)
                await anyio.sleep(0.005)
            yield
        finally:
            server.should_exit = True
            with anyio.CancelScope(shield=True):
                await serving
            tasks.cancel_scope.cancel()
