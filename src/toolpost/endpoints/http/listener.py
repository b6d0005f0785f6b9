"""The listening socket, and the HTTP server on it."""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, cast

import anyio
import uvicorn
from uvicorn.server import ServerState

from toolpost.base.events import event
from toolpost.contracts.errors import BadConfiguration
from toolpost.endpoints.http.app import HttpEndpoint
from toolpost.endpoints.http.connection import ServerConnection
from toolpost.endpoints.http.connection_limits import Connections
from toolpost.endpoints.http.descriptors import exhausted, is_out_of_descriptors, warn_exhausted
from toolpost.endpoints.http.responses import write_refusal

_log = logging.getLogger("toolpost.http")

CLOSE_S: Final = 2.0
"""How long requests that are being answered may take when the server closes."""
STREAM_S: Final = 0.2
"""How long a stream may still be written to then."""
CLOSING_POLL_S: Final = 0.005
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
        # Another thread may have taken the spare descriptor while it was released. The next one that becomes free is
        # the spare again, not a connection's: without it nothing could be answered until one more is free.
        self._reserve()
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if is_out_of_descriptors(error):
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
            # Without a pause the loop would only try again.
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


class _Server:
    """Makes a connection's protocol of each accepted socket, and closes what is open at the end.

    Of uvicorn the connections use the protocol, which needs a configuration and a state. `uvicorn.Server` would wake up ten times
    a second to see whether it should end, and take two or three tenths more to do so.
    """

    def __init__(self, config: uvicorn.Config, listener: socket.socket, connections: Connections) -> None:
        config.load()
        self._config = config
        self._listener = listener
        self._connections = connections
        self._state = ServerState()
        self._acceptor: _Acceptor | asyncio.Server | None = None

    async def open(self) -> None:
        loop = asyncio.get_running_loop()

        def connect() -> ServerConnection:
            return ServerConnection(self._config, self._state, self._connections, loop)

        if sys.platform == "win32":  # its loop cannot watch a listener
            self._acceptor = await loop.create_server(connect, sock=self._listener, backlog=BACKLOG)
        else:
            self._acceptor = _Acceptor(self._listener, connect, self._connections)
            self._acceptor.start()

    async def close(self) -> None:
        """Stop accepting, and close what is idle, then streams, and after `CLOSE_S` everything."""
        if self._acceptor is None:
            return
        self._acceptor.close()
        self._listener.close()
        if isinstance(self._acceptor, _Acceptor):
            await self._acceptor.wait_closed()
        for connection in self._open_connections():
            connection.shutdown()
        if await self._is_idle_within(STREAM_S):
            return
        # What clients listen to has no end: without this, each of them would make the shutdown last for CLOSE_S.
        for connection in self._open_connections():
            connection.end_stream()
        if not await self._is_idle_within(CLOSE_S):
            tasks = list(self._state.tasks)
            event(_log, logging.WARNING, "requests cancelled at shutdown", requests=len(tasks), afterS=CLOSE_S)
            for task in tasks:
                task.cancel()

    def _open_connections(self) -> list[ServerConnection]:
        return cast("list[ServerConnection]", list(self._state.connections))  # uvicorn has its own protocols there

    async def _is_idle_within(self, limit_s: float) -> bool:
        """Wait until every connection is closed and every request is done; return whether that was within the limit."""
        with anyio.move_on_after(limit_s):
            while self._state.connections or self._state.tasks:  # noqa: ASYNC110 (uvicorn has sets, not an event)
                await anyio.sleep(CLOSING_POLL_S)
            return True
        return False


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
    )
    server = _Server(config, listener, connections)
    async with anyio.create_task_group() as tasks:
        await tasks.start(endpoint.run)
        try:
            await server.open()
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await server.close()
            tasks.cancel_scope.cancel()
