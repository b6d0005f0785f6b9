"""The loopback address that a browser is redirected to at the end of a login (RFC 8252 §7.3)."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from toolpost.contracts.errors import BadConfiguration

PATH: Final = "/callback"

_HEAD_LIMIT: Final = 16 * 1024
_HEAD_S: Final = 10.0

_HEADERS: Final = (
    "content-type: text/html; charset=utf-8\r\ncache-control: no-store\r\nreferrer-policy: no-referrer\r\n"
    "content-security-policy: default-src 'none'; frame-ancestors 'none'\r\nx-content-type-options: nosniff\r\n"
    "connection: close\r\n"
)
_DONE: Final = "The browser's part is done. Close this window, and see the terminal."


class LoginListener:
    """Waits for the redirect of a login; `redirect_uri` is what to register."""

    def __init__(self, port: int) -> None:
        self.redirect_uri = f"http://127.0.0.1:{port}{PATH}"
        self._authority = f"127.0.0.1:{port}"
        self._redirects: asyncio.Queue[dict[str, str]] = asyncio.Queue(10)

    async def next_redirect(self) -> dict[str, str]:
        """Return the parameters of the next redirect: from the browser, or a URL pasted into the terminal."""
        return await self._redirects.get()

    def take_url(self, url: str) -> bool:
        """Take the URL of a redirect; False if it is none."""
        parameters = dict(parse_qsl(urlsplit(url.strip()).query))
        if "state" not in parameters:
            return False
        with contextlib.suppress(asyncio.QueueFull):
            self._redirects.put_nowait(parameters)
        return True

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, text = self._take(head.decode("latin-1"))
                body = f"<!doctype html><title>Toolpost</title><p>{text}</p>".encode()
                writer.write(f"HTTP/1.1 {status}\r\n{_HEADERS}content-length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # not a browser that has come back: the login goes on waiting for one
        finally:
            writer.close()

    def _take(self, head: str) -> tuple[str, str]:
        lines = head.split("\r\n")
        method, _, rest = lines[0].partition(" ")
        target = rest.partition(" ")[0]
        hosts = [line.partition(":")[2].strip() for line in lines[1:] if line.lower().startswith("host:")]
        # The name of another host that resolves to this machine is a page's attempt to look like it (DNS rebinding).
        if hosts != [self._authority]:
            return "421 Misdirected Request", "This is not the address of a login."
        if method != "GET" or urlsplit(target).path != PATH or not self.take_url(target):
            return "404 Not Found", "There is nothing here but the end of a login."
        return "200 OK", _DONE


@asynccontextmanager
async def open_listener(port: int | None) -> AsyncIterator[LoginListener]:
    """Listen on a loopback port, any free one if None; raises `BadConfiguration` if it is taken."""
    listeners: list[LoginListener] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await listeners[0].answer(reader, writer)

    try:
        server = await asyncio.start_server(answer, "127.0.0.1", port or 0, limit=_HEAD_LIMIT)
    except OSError as error:
        raise BadConfiguration(
            f"Port {port} cannot be used for the login: {error.strerror}.", hint="set another `auth.redirect_port`"
        ) from error
    async with server:
        listeners.append(LoginListener(server.sockets[0].getsockname()[1]))
        yield listeners[0]


@contextlib.contextmanager
def read_pasted_urls(listener: LoginListener) -> Iterator[None]:
    """Take URLs from stdin, too: a browser on another machine cannot reach this one's loopback address."""
    loop = asyncio.get_running_loop()
    typed = bytearray()

    def take() -> None:
        # Not `readline`, which keeps further lines in a buffer that nothing announces.
        read = os.read(sys.stdin.fileno(), 4096)
        typed.extend(read)
        *lines, rest = bytes(typed).split(b"\n")
        typed[:] = rest
        if not read:
            loop.remove_reader(sys.stdin)
        for line in lines:
            listener.take_url(line.decode(errors="replace"))

    try:
        loop.add_reader(sys.stdin, take)
    except (NotImplementedError, OSError, ValueError):
        yield  # Windows, or stdin is closed or a file.
        return
    try:
        yield
    finally:
        loop.remove_reader(sys.stdin)
