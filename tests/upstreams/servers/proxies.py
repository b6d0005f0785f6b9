"""Small proxies for tests: HTTP (tunnels and forwarded requests) and SOCKS5, both with a user and a password."""

import asyncio
import base64
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

USER, PASSWORD = "ann", "p:s3cret/word"


class Proxy:
    """What it was asked for is in `seen`."""

    def __init__(self, kind: str, *, requires_user: bool = False) -> None:
        self.kind = kind
        self.requires_user = requires_user
        self.seen: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await (self._http if self.kind == "http" else self._socks)(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split("\r\n")[0].split(" ")
        pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.requires_user and f"proxy-authorization: basic {pair}".lower() not in head.lower():
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
            return
        self.seen.append(f"{method} {target}")
        if method == "CONNECT":
            host, _, port = target.rpartition(":")
            other = await asyncio.open_connection(host.strip("[]"), int(port))
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            place, _, path = target.removeprefix("http://").partition("/")
            host, _, port = place.partition(":")
            other = await asyncio.open_connection(host, int(port or 80))
            other[1].write(head.replace(target, f"/{path}", 1).encode())
        await _pump(reader, writer, *other)

    async def _socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        if self.requires_user:
            assert 2 in methods
            writer.write(b"\x05\x02")
            _, length = await reader.readexactly(2)
            user = await reader.readexactly(length)
            password = await reader.readexactly((await reader.readexactly(1))[0])
            is_known = (user.decode(), password.decode()) == (USER, PASSWORD)
            writer.write(b"\x01\x00" if is_known else b"\x01\x01")
            if not is_known:
                await writer.drain()
                return
        else:
            writer.write(b"\x05\x00")
        _, _, _, kind = await reader.readexactly(4)
        if kind == 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            host = str(ipaddress.ip_address(await reader.readexactly(4 if kind == 1 else 16)))
        port = int.from_bytes(await reader.readexactly(2), "big")
        self.seen.append(f"{'name' if kind == 3 else 'address'} {host}:{port}")
        other = await asyncio.open_connection(host, port)
        writer.write(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
        await _pump(reader, writer, *other)


async def _pump(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    other_reader: asyncio.StreamReader,
    other_writer: asyncio.StreamWriter,
) -> None:
    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while chunk := await source.read(65_536):
                target.write(chunk)
        finally:
            target.close()

    await asyncio.gather(copy(reader, other_writer), copy(other_reader, writer), return_exceptions=True)


@asynccontextmanager
async def serving_proxy(proxy: Proxy) -> AsyncIterator[int]:
    """Serve a proxy; yields its port."""
    serving: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        task.add_done_callback(serving.discard)
        await proxy.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        server.close()
    if serving:
        # Connections that are closed at their other ends are closed here in a moment.
        await asyncio.wait(serving, timeout=2)


def server_context(cert: str, key: str, *, client_ca: str | None = None) -> ssl.SSLContext:
    """Make the context of a server, which requires a certificate of its clients if `client_ca` is given."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    return context
