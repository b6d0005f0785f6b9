"""The socket and the HTTP server on it."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import anyio
import uvicorn

from toolpost.contracts.errors import BadConfiguration
from toolpost.endpoints.front import FrontProtocol
from toolpost.endpoints.http import HttpEndpoint

CLOSE_S = 2


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: whoever opened the application decides when it ends."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bound_socket(host: str, port: int) -> socket.socket:
    """Take the address, or say who may have it."""
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
async def open_http_server(endpoint: HttpEndpoint, listener: socket.socket) -> AsyncIterator[None]:
    """Serve HTTP on a socket until the context is left."""
    config = uvicorn.Config(
        endpoint,
        http=FrontProtocol,
        proxy_headers=False,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=CLOSE_S,
        backlog=2048,
    )
    server = _Server(config)
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
