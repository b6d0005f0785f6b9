"""One gateway, asked the same thing twice: as a client asks it, and in a way that the fast path leaves to the ordinary one."""

import asyncio
import atexit
import functools
import json
import re
import socket
import threading
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import anyio

from tests.ways import IN_MEMORY
from toolpost import NotFound, Plugin
from toolpost.app import open_app, open_http

plugin = Plugin("fuzz", version="1.0.0")

_FRAMING: Final = (b"content-length", b"transfer-encoding", b"connection", b"expect", b"upgrade", b"x-odd")
"""Headers that say where a request ends are left to the target `heads`."""
_ODD: Final = b"x-odd: 1\r\nx-odd: 2\r\n"
"""A header that comes twice is out of the ordinary: the front of the connection leaves the request to uvicorn."""
_VARYING: Final = re.compile(rb'"(callId|traceId)":"[^"]*"')
_TIMEOUT_S: Final = 10.0


@plugin.tool
async def echo(text: str, times: int = 1) -> list[str]:
    """Say it back."""
    return [text] * min(times, 3)


@plugin.tool
async def fail(reason: str | None = None) -> str:
    """Find nothing."""
    raise NotFound(reason or "nothing")


@dataclass(frozen=True)
class _Gateway:
    port: int
    session: bytes


def check(data: bytes) -> None:
    """Send a call by both paths and compare the answers. The input is `header lines, an empty line, body`."""
    lines, separator, body = data.partition(b"\r\n\r\n")
    if not separator or not _is_for_the_fast_path(body):
        return
    head = b"POST /mcp HTTP/1.1\r\n"
    for line in lines.split(b"\r\n"):
        if line and line.partition(b":")[0].strip().lower() not in _FRAMING:
            head += line.replace(b"SESSION", _gateway().session) + b"\r\n"
    length = b"content-length: %d\r\n" % len(body)
    quick = _answer(head + length + b"\r\n" + body)
    ordinary = _answer(head + length + _ODD + b"\r\n" + body)
    assert quick == ordinary, f"by the fast path {quick!r}, else {ordinary!r}"


def _is_for_the_fast_path(body: bytes) -> bool:
    """Whether the paths could differ: all other methods open sessions or streams, and are the SDK's on both."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return True
    if not isinstance(message, dict) or message.get("method") not in ("tools/call", "tools/list"):
        return False
    params = message.get("params")
    # A task outlives its request, and has another id each time.
    return not (isinstance(params, dict) and "tasks" in json.dumps(params.get("_meta")))


def _answer(raw: bytes) -> tuple[bytes, bytes]:
    """Send a request on a connection of its own; return the status line and the body, without what differs from call to call."""
    with closing(socket.create_connection(("127.0.0.1", _gateway().port), _TIMEOUT_S)) as peer:
        peer.sendall(raw)
        received = b""
        while not _is_whole(received):
            try:
                chunk = peer.recv(65_536)
            except ConnectionError:
                break
            if not chunk:
                break
            received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    return head.partition(b"\r\n")[0], _VARYING.sub(b"", body)


def _is_whole(received: bytes) -> bool:
    head, separator, body = received.partition(b"\r\n\r\n")
    if not separator:
        return False
    if b"transfer-encoding: chunked" in head.lower():
        return body.endswith(b"0\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    return length is not None and len(body) >= int(length[1])


@functools.cache
def _gateway() -> _Gateway:
    """Start the gateway in a thread of its own; it ends with the process."""
    started = threading.Event()
    ports: list[int] = []
    stops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        stop = asyncio.Event()
        async with open_app(IN_MEMORY, plugins=[plugin], bundled=False) as app, open_http(app) as url:
            ports.append(int(url.split(":")[2].split("/")[0]))
            stops.append((asyncio.get_running_loop(), stop))
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: anyio.run(serve, backend_options={"use_uvloop": True}), daemon=True)
    thread.start()
    assert started.wait(60)

    def end() -> None:
        loop, stop = stops[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)

    atexit.register(end)
    return _Gateway(ports[0], _open_session(ports[0]))


def _open_session(port: int) -> bytes:
    """Open a session of the handshake era, for which the corpus says SESSION."""
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "fuzz", "version": "0"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).encode()
    head = (
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n"
        b"accept: application/json, text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body)
    )
    with closing(socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)) as peer:
        peer.sendall(head + body)
        received = b""
        while chunk := peer.recv(65_536):
            received += chunk
    found = re.search(rb"mcp-session-id: (\S+)", received)
    assert found is not None, received
    return found[1]
